"""The fit of all sparse linear models: input, the choice of the solver, one target after the other, checkpoints.

A checkpoint contains the state of the coroutine, the state of each partition, the models of finished targets, and the
history.
"""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.base import _fit_context
from sklearn.callback import with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from schmp_estimators.core.engine.dynamic import PlaceOfRounds, Save, run_coroutine
from schmp_estimators.core.following import FollowedEstimator, undone_on_error, without_itself
from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.inputs.validation import is_dask
from schmp_estimators.core.io.checkpoint import (
    Checkpoint,
    check_sweeps,
    identity_of,
    recognised,
)
from schmp_estimators.core.places.place import Place, choose_place, retry
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.core.progress import FitBar, Progress
from schmp_estimators.linear.contracts import declared, is_joint
from schmp_estimators.linear.losses.base import Loss, total_of
from schmp_estimators.linear.penalties.base import Penalty, fields_of, of_strength
from schmp_estimators.linear.penalties.choose import Grid, choose_penalty, factors_of
from schmp_estimators.linear.predicting import LinearModel
from schmp_estimators.linear.problem import Problem, open_problem
from schmp_estimators.linear.programs.choose import (
    AT_HAND,
    choose_solver,
    make_program,
    schedule_of,
)
from schmp_estimators.linear.programs.homotopy import Solution, record_of
from schmp_estimators.linear.programs.input import SavedPartition, identify
from schmp_estimators.linear.programs.resolve import Resolve
from schmp_estimators.linear.samples import (
    Targets,
    by_class,
    find_targets,
    of_classes,
    read_samples,
    reading,
)
from schmp_estimators.linear.texts import described

logger = logging.getLogger(__name__)


class Followed:
    """Rounds with callbacks: a task "step" begins with the first round and ends with a duality gap."""

    def __init__(
        self,
        estimator: Any,
        context: Any,
        data: dict[str, Any],
        place: Place,
        rounds: PlaceOfRounds,
    ) -> None:
        self.estimator, self.context, self.data = estimator, context, data
        self.progress = Progress(estimator, place, step="step", every=1)
        self._rounds, self.collect = rounds, rounds.collect
        self._step: Any = None
        #: whether a callback has ended the fit
        self.stopped = False

    def submit(self, function: Callable[..., Any], job: Any, *, is_sum: bool = False) -> Any:
        """Apply function(partition, job) to every partition, as part of a step."""
        self.begin()
        return self._rounds.submit(function, job, is_sum=is_sum)

    def begin(self) -> None:
        """Begin a step if none has begun."""
        if self._step is None:
            self._step = self.context.subcontext(task_name="step").call_on_fit_task_begin(
                **self.data
            )

    def report(self, record: dict[str, Any]) -> bool:
        """End the step with its record; returns whether the fit should end."""
        self.begin()
        self.estimator.history_.append(record)
        logger.debug("%s: %s", type(self.estimator).__name__, record)
        step, self._step = self._step, None
        if step.call_on_fit_task_end(
            **self.data, reconstruction_attributes=self.estimator._snapshot
        ):
            self.stopped = True
        self.progress.record()
        return self.stopped


class Penalised(FollowedEstimator, LinearModel):
    """Base of all estimators: a loss with a penalty."""

    #: Parameters that some classes do not have.
    positive = False
    class_weight: Any = None
    standardize = False
    #: whether columns may be constant, because the samples are a part of those of the user
    _of_part = False

    #: names of tasks on a cluster, and of the fit in warnings
    _name, _what = "lasso", "The fit"

    if TYPE_CHECKING:  # `keep` sets parameters

        def __getattr__(self, name: str) -> Any: ...

    def _check(self) -> None:
        """Raise an error if parameters cannot be combined."""
        if self.class_weight is not None and not self._classifies:
            raise ValueError(
                f'class_weight={self.class_weight!r} needs a loss for classes, such as "logistic"; the weights of '
                "samples are sample_weight of fit"
            )

    def _penalty(self, strength: float, ratio: Any) -> Any:
        """Return the penalty of a strength for the columns of X, with an L1 ratio."""
        factors = factors_of(self, self.penalty_factors, self.positive)
        return choose_penalty(strength, ratio, factors, self.positive)

    @contextmanager
    def _followed(
        self, X: Any, y: Any, snapshot: Callable[[], dict[str, Any]], most: int | None = None
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Give the task of the whole fit, and what callbacks get; it has at most so many parts."""
        with self._progress_bar():
            context, data = self._task(most), {"estimator": self, "X": X, "y": y}
            context.call_on_fit_task_begin(**data)
            yield context, data
            context.call_on_fit_task_end(**data, reconstruction_attributes=snapshot)


class SparseModel(Penalised):
    """Base of estimators that fit a model with a given penalty."""

    _objective, _bar = "objective", FitBar
    #: name of the parameter for the strength of the penalty
    _strength = "alpha"

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    @described
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        y : array-like or Dask collection of shape (n_samples,) or (n_samples, n_targets)
            Responses; each target is fitted separately.  For a classifier labels, numbers or strings.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If X, y or the weights are masked, not finite, empty, or of different lengths.  If weights are negative, or
            all are zero.  If the y of a classifier has only one class, or is continuous.  If squares of X or y overflow
            or underflow.  If chunks of X differ in their number of columns.
        TypeError
        CheckpointMismatchError

        Warns
        -----
        ConvergenceWarning
        CheckpointWarning
        UserWarning
        """
        lazy = any(map(is_dask, (X, y, sample_weight)))
        chosen = choose_place(self.n_jobs, is_dask=lazy, label=f"schmp-{self._name}")
        with undone_on_error(self), chosen as place, one_blas_thread():
            return retry(place, lambda: self._fit_on(place, X, y, sample_weight))

    def _check(self) -> None:
        """Raise an error if parameters cannot be combined."""
        super()._check()
        earlier = getattr(self, "coef_", None) if self.warm_start else None
        schedule = None if self.schedule == "resolve" else schedule_of(self.schedule)
        if schedule:
            schedule.check()
        draws = bool(schedule and schedule.uses_random_state)
        self._check_checkpoint(earlier, "warm_start", draws=draws)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of a schedule that is an object by names such as ``schedule__n_parallel``.

        Parameters
        ----------
        **params : dict
            Parameters by name.

        Returns
        -------
        self
            The estimator.

        Raises
        ------
        ValueError
            If there is no such parameter.
        """
        schedule = params.get("schedule", self.schedule)
        nested = [name for name in params if name.startswith("schedule__")]
        if nested and isinstance(schedule, str):
            raise ValueError(
                f"{nested[0]}: schedule={schedule!r} is a name, which has no parameters; give an object, such as "
                "schedule=schmp.Priority()"
            )
        return super().set_params(**params)

    def _fit_on(self, place: Place, X: Any, y: Any, sample_weight: Any) -> Self:
        """Fit at a place."""
        self._check()
        loss = self._loss()
        samples = read_samples(self, X, y, sample_weight, place=place, **reading(loss))
        targets = find_targets(self, samples)
        opened: dict[str, Any] = {"n_shards": self.n_shards, "name": self._name}
        with open_problem(self, samples, targets, place, **opened) as problem:
            self._fit_to(problem, targets, place, X, y)
        return self

    def _fit_to(
        self, problem: Problem, targets: Targets, place: Place, X: Any, y: Any
    ) -> list[Any]:
        """Fit all targets or classes; returns what has been found.  X and y are for callbacks."""
        loss, models = of_classes(self._loss(), targets.classes), list[Any]()
        total = total_of(targets.weights, problem.extent.n_rows)
        value = float(getattr(self, self._strength))
        grid = Grid(self._strength, None)
        if self.penalty_factors is not None:
            self._penalty(
                grid.strength(value, 1.0, targets.unit), self.l1_ratio
            )  # raises if it vanishes or overflows
        strength, unit = (
            grid.strength(value, total, targets.unit),
            problem.in_units(self._penalty(1.0, self.l1_ratio)),
        )
        kept = np.float32 if problem.extent.dtype == np.float32 else np.float64
        in_units = partial(grid.in_units, values=value, unit=targets.unit)
        attributes = partial(_attributes, models, targets, in_units, kept)
        self.history_, self._snapshot = [], without_itself(attributes)
        with self._followed(X, y, self._snapshot) as task:
            followed = Followed(self, *task, place, problem.rounds)
            starts = self._starts(targets, problem.extent.n_columns, loss)
            self.solver_ = choose_solver(self, problem.extent, len(starts), unit, loss)
            solved = self._solve_at_hand(problem, loss, unit, targets, starts, strength, kept)
            if solved is None:
                penalty = of_strength(unit, strength, total)
                self._solve_by_rounds(
                    problem, loss, penalty, targets, starts, kept, models, followed
                )
            for solution, record in solved or []:
                models.append(solution)
                if followed.report(record):
                    break
            followed.progress.end()
        for model in models if not followed.stopped else []:
            if model.fell_short:
                figures = model.gap, model.tolerance, model.total_weight, model.n_iter
                kind = loss, model.certified, self.schedule != "resolve"
                warn_of_gap(*figures, self.max_iter, self._what, *kind)
        self.__dict__.update(attributes())
        return models

    def _starts(self, targets: Targets, n_columns: int, loss: Loss) -> list[tuple[np.ndarray, Any]]:
        """Return the coefficients and the intercept from which each fit starts; empty arrays stand for zeros."""
        n_targets = (
            len(targets.classes)
            if is_joint(loss) and targets.classes is not None
            else len(targets.jobs)
        )
        coef = (
            np.atleast_2d(unmask(self.coef_, "coef_"))
            if self.warm_start and hasattr(self, "coef_")
            else None
        )
        if coef is None or coef.shape != (n_targets, n_columns):
            return [(np.empty(0), 0.0)] * len(targets.jobs)
        coef, levels = coef.astype(np.float64), np.zeros(n_targets)
        if self.fit_intercept:
            levels += getattr(self, "intercept_", 0.0) - targets.shifts
        return [(coef, levels)] if is_joint(loss) else list(zip(coef, levels.tolist(), strict=True))

    def _solve_at_hand(
        self,
        problem: Problem,
        loss: Any,
        unit: Any,
        targets: Targets,
        starts: Any,
        strength: float,
        dtype: type,
    ) -> list[tuple[Solution, dict[str, float]]] | None:
        """Return the solutions and records of all targets, solved in one call each; None if this is not possible."""
        found = problem.at_hand(self.solver_, loss, unit, self.fit_intercept, targets.labels)
        if found is None:
            return None
        problem.tell_of(found.dropped)
        solved = []
        for target, (coef, level) in enumerate(starts):
            began, tolerance = perf_counter(), self.tol * found.square(target)
            start = coef if len(coef) else np.zeros(len(found.means))
            points = found.fit(
                target, strength, tolerance, self.max_iter, start, level + start @ found.means
            )
            solution = found.rounded(target, points, tolerance, dtype)
            solved.append(
                (solution, record_of(solution, int(points.work[0]), perf_counter() - began))
            )
        return solved if found.at_hand or not any(one.fell_short for one, _ in solved) else None

    def _solve_by_rounds(
        self,
        problem: Problem,
        loss: Loss,
        penalty: Any,
        targets: Targets,
        starts: Sequence[tuple[np.ndarray, float]],
        dtype: type,
        models: list[Any],
        followed: Followed,
    ) -> None:
        """Solve for one target or class after the other, until a callback ends the fit; append to `models`.

        Targets share the Gram matrix of the working set.
        """
        self.solver_ = "rounds" if self.solver_ in AT_HAND else self.solver_
        problem.begin()
        checkpointing = Checkpointing(self, problem, penalty, len(starts))
        resumed, random, size = (
            checkpointing.resumed,
            check_random_state(self.random_state),
            problem.extent,
        )
        program: Resolve | None = None
        for number, ((coef, level), job) in enumerate(zip(starts, targets.jobs, strict=True)):
            start: dict[str, Any] = {"coef": coef, "level": level, "dtype": dtype, "random": random}
            previous, program = (
                program,
                make_program(self, loss, penalty, size, problem.n_partitions, **start),
            )
            if number < resumed.target:
                models.append(Solution(**resumed.finished[number]))
                continue
            state = resumed.state if number == resumed.target else None
            if state is None:
                if previous is not None:
                    program.follow(previous)
                if job is not None:
                    problem.do(job)
            models.append(program)
            save = checkpointing.saver(models[:-1])
            run_coroutine(program, followed, state, report=followed.report, save=save)
            models[-1] = program.solution()
            problem.tell_of(program.design.dropped)
            if followed.stopped:
                return


def _attributes(
    models: Sequence[Solution | Resolve],
    targets: Targets,
    in_units: Callable[..., float],
    dtype: type,
) -> dict[str, Any]:
    """Return the fitted attributes; targets or classes whose fit has not begun have no coefficients."""
    count, missing = len(targets.jobs), len(targets.jobs) - len(models)
    begun = [model if isinstance(model, Solution) else model.solution() for model in models]
    found = [by_class(model.coef[None], np.array([model.intercept])) for model in begun]
    found += [(np.zeros((1, 1, begun[0].n_columns)), np.zeros((1, 1)))] * missing
    coefs, levels = (np.concatenate(part, axis=1)[0] for part in zip(*found, strict=True))
    known = [in_units(one.certified_gap, total=one.total_weight) for one in begun]
    steps = np.array([max(1, one.n_iter) for one in begun] + [1] * missing)
    gaps = np.array(known + [np.inf] * missing)
    values: dict[str, Any] = {
        "coef_": coefs.astype(dtype),
        "intercept_": levels + targets.shifts,
        "dual_gap_": gaps,
    }
    if not all(model.certified for model in begun):
        values |= {"dual_gap_": np.full(count, np.nan), "stationarity_": gaps}
    values["n_iter_"] = steps if count == 1 or targets.classes is not None else steps.tolist()
    if targets.classes is not None:
        values = {"classes_": targets.classes, **values}
    elif count == 1:
        values = {
            name: value[0] if name == "coef_" else value.item() for name, value in values.items()
        }
    if moves := [model.moves for model in begun if model.moves is not None]:
        values["moves_"] = moves[0] if count == 1 else moves
    return values


def warn_of_gap(
    gap: float,
    tolerance: float,
    weight: float,
    n_iter: int,
    max_iter: int,
    what: str,
    loss: Any,
    certified: bool,
    scheduled: bool = False,
) -> None:
    """Warn of a fit whose gap is above its tolerance; both are sums over rows with this total weight."""
    reason = (
        f"stopped after max_iter={max_iter}" if n_iter >= max_iter else f"ended in step {n_iter}"
    )
    name = "a duality gap" if certified else "an estimated possible decrease (stationarity_)"
    slower = "; with fewer updates at a time (n_parallel) random schedules do not diverge"
    warnings.warn(
        f"{what} {reason} with {name} of {gap / weight:.3g}, above the tolerance of {tolerance / weight:.3g}. "
        f"Increase max_iter or tol, or scale the columns of X{slower if scheduled else ''}."
        + declared(loss, "remedy"),
        ConvergenceWarning,
        stacklevel=3,
    )


class Resumed(NamedTuple):
    """The state from which a fit continues; `target` is the current target or class, −1 if the fit begins."""

    target: int = -1
    #: fields of the solutions of finished targets
    finished: Sequence[Mapping[str, Any]] = ()
    state: Any = None
    partitions: Sequence[SavedPartition] = ()
    history: Sequence[dict[str, float]] = ()


class Checkpointing:
    """Reads and writes the checkpoint of a fit, if it has one."""

    def __init__(self, estimator: Any, problem: Any, penalty: Penalty, n_targets: int) -> None:
        self._estimator, self._rounds = estimator, problem.rounds
        self.resumed = Resumed()
        if estimator.checkpoint is None:
            return
        rows, digests = map(list, zip(*problem.do(identify), strict=True))
        max_iter = int(estimator.max_iter)
        # a finished target is not continued, so with several targets max_iter must be the same
        identity = {
            **_identity(estimator, problem, penalty),
            "max_iter": max_iter if n_targets > 1 else None,
        }
        self._checkpoint = Checkpoint(
            estimator.checkpoint, identity_of(estimator, digests, rows=rows, **identity)
        )
        if found := self._checkpoint.read(self._go_on):
            self.resumed = found
            estimator.history_ = list(found.history)

    def _go_on(self, found: Resumed) -> Resumed:
        """Restore the partitions that a checkpoint holds, and return what it holds."""
        url, n_iter = self._checkpoint.url, found.state["work"]["n_iter"]
        check_sweeps(url, n_iter, int(self._estimator.max_iter))
        logger.info("going on after certificate %d from %s", len(found.history), url)
        self._rounds.restore(found.partitions)
        return found

    def saver(self, finished: Sequence[Solution]) -> Callable[[Save], None] | None:
        """Return the function that writes the checkpoint while the next target is fitted, or None."""
        return partial(self._save, finished) if self._estimator.checkpoint is not None else None

    def _save(self, finished: Sequence[Solution], saved: Save) -> None:
        history = self._estimator.history_
        if saved.last or len(history) % self._estimator.checkpoint_every == 0:
            before = [dict(vars(solution)) for solution in finished]
            values = Resumed(len(finished), before, saved.state, self._rounds.save(), history)
            self._checkpoint.write(len(history), values)


def _identity(estimator: Any, problem: Any, penalty: Penalty) -> dict[str, Any]:
    """Return what the result depends on besides data: parameters that the schedule uses, and the penalty."""
    used = {"alpha", "C", "loss", "l1_ratio", "positive", "fit_intercept", "tol"}
    used |= {"missing_values", "standardize"}
    named = {
        name: repr(value)
        for name, value in estimator.get_params(deep=False).items()
        if name in used
    }
    named |= _identity_of_schedule(estimator)
    factors = estimator._penalty(1.0, 1.0).strengths
    for name, values in {"penalty": fields_of(penalty), "penalty_factors": [factors]}.items():
        whole = b"".join(np.asarray(value, np.float64).tobytes() for value in values)
        named[name] = hashlib.sha256(whole).hexdigest()
    return {**named, "dtype": str(problem.extent.dtype)}


def _identity_of_schedule(estimator: Any) -> dict[str, Any]:
    if estimator.schedule == "resolve":
        return {"schedule": "resolve"}
    schedule = schedule_of(estimator.schedule)
    seed = {"random_state": repr(estimator.random_state)} if schedule.uses_random_state else {}
    given = schedule.get_params(deep=False).items()
    known = {f"schedule {name}": recognised(value) for name, value in given}
    return {"schedule": type(schedule).__name__, **seed, **known}
