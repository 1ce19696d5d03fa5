"""What all sparse linear models do in a fit: input, the choice of the solver, one target after the other."""

from collections.abc import Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Self

import numpy as np
from sklearn.base import _fit_context
from sklearn.callback import with_callbacks
from sklearn.utils import check_random_state

from schmp_estimators.core.door.masks import unmask
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.linear import opening as shared
from schmp_estimators.linear.by_blocks import by_class, fetched, is_joint, of_classes
from schmp_estimators.linear.checkpoint import Checkpointing, check_checkpoint
from schmp_estimators.linear.data.samples import read_samples
from schmp_estimators.linear.following import CertifiedEstimator
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.penalties.base import of_strength
from schmp_estimators.linear.penalties.choose import choose_penalty, factors_of
from schmp_estimators.linear.predicting import LinearModel
from schmp_estimators.linear.programs.choose import is_quadratic, make_model, make_program
from schmp_estimators.linear.programs.homotopy import Solution, record_of
from schmp_estimators.linear.targets import Targets, find_targets, reading
from schmp_estimators.linear.texts import described


class SparseModel(CertifiedEstimator, LinearModel):
    """Fits a loss with a penalty; subclasses say which, and how strong the penalty is."""

    #: Parameters that some classes do not have.
    positive = False
    class_weight: Any = None

    #: of tasks on a cluster, and of the fit in warnings
    _name, _what = "lasso", "The fit"

    alpha: float
    l1_ratio: float
    penalty_factors: Any
    fit_intercept: bool
    schedule: str
    max_iter: int
    tol: float
    warm_start: bool
    n_parallel: int
    max_correlation: float | None
    pipeline_depth: int
    n_schedulers: int
    n_shards: int | None
    n_jobs: int | None
    checkpoint: Any
    checkpoint_every: int
    random_state: Any

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    @described
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        y : array-like or Dask collection of shape (n_samples,) or (n_samples, n_targets)
            Responses, of which each target is fitted on its own; of a classifier labels, numbers or strings.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If X, y or the weights are masked, not finite, empty or of different lengths, or the weights are negative or
            all zero; if y holds one class only, or numbers that are no classes; if squares of X or y overflow or
            underflow; if chunks of X have different widths.
        TypeError
        CheckpointMismatchError

        Warns
        -----
        ConvergenceWarning
        CheckpointWarning
        UserWarning
        """
        return shared.fit_where_input_is(self, X, y, sample_weight, f"schmp-{self._name}")

    def _check(self) -> None:
        """Raise an error if parameters do not go together."""
        check_checkpoint(self)

    def _loss(self) -> Loss:
        raise NotImplementedError

    def _strength(self, unit: float) -> tuple[float, float | None]:
        """Return what the penalty is multiplied by, and the loss in the user's objective, if that is a sum.

        Without the latter the loss is a mean over samples.
        """
        return self.alpha, None

    def _factors(self) -> Any:
        return factors_of(self, self.penalty_factors, self.positive)

    def _penalty(self, strength: float, factors: Any) -> Any:
        return choose_penalty(strength, self.l1_ratio, factors, self.positive)

    def _fit_on(self, place: Place, X: Any, y: Any, sample_weight: Any, models: list[Any] | None = None) -> Self:
        """Fit at a place; `models` gets what has been fitted, one for each target or class."""
        self._check()
        loss = self._loss()
        samples = read_samples(self, X, y, sample_weight, place=place, **reading(loss))
        targets = find_targets(loss, samples, self.class_weight, self.fit_intercept)
        loss = of_classes(loss, targets.classes)
        models = [] if models is None else models
        models.clear()  # input that is lost is read again
        opened: dict[str, Any] = {"n_shards": self.n_shards, "name": self._name}
        with (
            shared.open_rows(self, samples, targets.responses, targets.weights, place, **opened) as problem,
            self._followed(X, y, place) as follower,
        ):
            strength, scale = self._strength(targets.unit)
            per_weight, total = scale is None and is_quadratic(loss), 1.0
            if scale is None and not per_weight:
                total = float(targets.weights.sum()) if len(targets.weights) else problem.extent.n_rows
            kept = np.float32 if problem.extent.dtype == np.float32 else np.float64
            attributes = partial(_attributes, models, targets, scale, kept)
            followed = follower.watch(problem.rounds, attributes)
            starts = self._starts(targets, problem.extent.n_columns, loss)
            penalty = self._penalty(strength * total, self._factors())
            if hasattr(penalty, "of_strength"):
                penalty = of_strength(self._penalty(1.0, self._factors()), strength * total, total)
            self.solver_ = shared.find_solver(self, problem.extent, len(starts), loss, penalty)
            if not self._fit_at_hand(
                problem, followed, models, starts, kept, loss, targets, strength * total, per_weight
            ):
                identity = shared.identity_of(self, problem, penalty)
                checkpointing = Checkpointing(self, problem, identity, len(starts))
                asked = {"per_weight": per_weight, "dtype": kept}
                fits = self._fits(problem, loss, penalty, targets, starts, asked)
                shared.fit_each(fits, models, problem, followed, checkpointing)
        if not follower.stopped:
            for model in models:
                shared.warn_unless_converged(model, self.max_iter, self._what)
        self.__dict__.update(attributes())
        return self

    def _starts(self, targets: Targets, n_columns: int, loss: Loss) -> list[tuple[np.ndarray, float]]:
        """Return the coefficients and the intercept that each fit starts from; none stand for zeros."""
        n_targets = len(targets.classes) if is_joint(loss) and targets.classes is not None else len(targets.jobs)
        coef = np.atleast_2d(unmask(self.coef_, "coef_")) if self.warm_start and hasattr(self, "coef_") else None
        if coef is None or coef.shape != (n_targets, n_columns):
            return [(np.empty(0), 0.0)] * len(targets.jobs)
        if is_joint(loss):
            return [(coef.astype(np.float64).ravel(), 0.0)]
        levels = np.zeros(n_targets)
        if self.fit_intercept and not is_quadratic(loss):
            levels += self.intercept_ - targets.shifts
        return list(zip(coef.astype(np.float64), levels.tolist(), strict=True))

    def _fit_at_hand(
        self,
        problem: shared.Problem,
        followed: Any,
        models: list[Any],
        starts: Any,
        dtype: type,
        loss: Any,
        targets: Targets,
        strength: float,
        per_weight: bool,
    ) -> bool:
        """Fit all targets where all columns are, until a callback ends that; returns False if that is not the way."""
        n_columns, solutions, records = problem.extent.n_columns, list[Solution](), list[dict[str, float]]()
        if self.solver_ not in {"blocks", *shared.AT_HAND}:
            return False
        factors = self._factors()
        if not np.ndim(factors):  # factors that are all alike multiply the strength
            factors, strength = 1.0, strength * factors
        unit = self._penalty(1.0, factors)
        found: Any
        if self.solver_ == "blocks":
            found = fetched(problem, self.fit_intercept, loss, unit, targets.labels)
            shared.tell_of(problem, found)
        else:
            found = shared.at_hand(problem, self.solver_, loss, unit, self.fit_intercept, targets.labels)
        if found is not None:
            with one_blas_thread():
                for target, (coef, level) in enumerate(starts):
                    began, tolerance = perf_counter(), self.tol * found.square(target)
                    start = coef if len(coef) else np.zeros(n_columns)
                    whole = strength * found.total if per_weight else strength
                    given = target, whole, tolerance, self.max_iter, start
                    if self.solver_ == "blocks":
                        points = found.fit(*given)
                        solutions.append(found.as_dtype(target, points, tolerance, dtype))
                    else:
                        points = found.fit(*given, level + float(start @ found.means))
                        solutions.append(found.rounded(target, points, tolerance, dtype))
                    records.append(record_of(solutions[-1], int(points.work[0]), perf_counter() - began))
        if found is None or (not found.at_hand and any(one.fell_short for one in solutions)):
            self.solver_ = "rounds"
            return False
        for solution, record in zip(solutions, records, strict=True):
            models.append(solution)
            followed.report(record)
            if followed.stopped:
                break
        return True

    def _fits(
        self,
        problem: shared.Problem,
        loss: Loss,
        penalty: Any,
        targets: Targets,
        starts: Sequence[tuple[np.ndarray, float]],
        asked: dict[str, Any],
    ) -> Iterator[shared.Fit]:
        """Give one target or class after the other; of targets the Gram matrix of candidates is shared."""
        random, size = check_random_state(self.random_state), problem.extent
        for (coef, level), job in zip(starts, targets.jobs, strict=True):
            start: dict[str, Any] = {"coef": coef, "level": level, **asked}
            model = make_model(self, loss, penalty, size, problem.n_partitions, **start)
            yield make_program(self, loss, model, size, random), job


def _attributes(models: Sequence[Any], targets: Targets, scale: float | None, dtype: type) -> dict[str, Any]:
    """Return the fitted attributes; targets or classes whose fit has not begun have no coefficients.

    Gaps of objectives that are sums become `scale` times these, or, without one, those of means.
    """
    if models and np.ndim(models[0].coef) == 2:  # of all classes at once
        [model] = models
        coef, level = by_class(model.coef, model.intercept)
        figures = np.array([model.certified_gap / model.total_weight]), np.array([max(1, model.n_iter)])
        found: dict[str, Any] = {"classes_": targets.classes, "coef_": coef.astype(dtype), "intercept_": level}
        return {**found, "dual_gap_": figures[0], "n_iter_": figures[1]}
    count, classes = len(targets.jobs), targets.classes
    coefs: np.ndarray = np.zeros((count, max(model.n_columns for model in models)), dtype)
    levels, gaps, steps = np.zeros(count), np.full(count, np.inf), np.ones(count, int)
    for number, model in enumerate(models):
        if len(model.coef):
            coefs[number], levels[number], steps[number] = model.coef, model.intercept, max(1, model.n_iter)
            gap = model.certified_gap
            gaps[number] = gap / model.total_weight if scale is None else scale * gap
    found = {"coef_": coefs, "intercept_": levels + targets.shifts, "dual_gap_": gaps}
    if not all(getattr(model, "certified", True) for model in models):
        found |= {"dual_gap_": np.full(count, np.nan), "stationarity_": gaps}
    if classes is not None:
        return {"classes_": classes, **found, "n_iter_": steps}
    if count > 1:
        return {**found, "n_iter_": steps.tolist()}
    single = {**found, "n_iter_": steps}
    return {name: value[0] if name == "coef_" else value.item() for name, value in single.items()}
