"""What cross-validated estimators do: folds, what is routed to them, the choice, and the tasks that callbacks see."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from copy import copy
from functools import cache, partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context
from sklearn.callback import with_callbacks
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _raise_for_params,
    _routing_enabled,
    process_routing,
)

from schmp_estimators.core.door.inputs import is_dask
from schmp_estimators.core.door.masks import unmask
from schmp_estimators.core.engine.dynamic import Steps
from schmp_estimators.core.following import FollowedEstimator, undone_on_error
from schmp_estimators.core.places.place import Place, begun_anew, choose_place
from schmp_estimators.linear.by_blocks import fetched_folds, of_classes
from schmp_estimators.linear.data.samples import Samples, check_input, check_weights, here, read_samples
from schmp_estimators.linear.fold_paths import Fold, FoldAtHand, Folded
from schmp_estimators.linear.folding import FoldedProblem, open_folds
from schmp_estimators.linear.grids import Floats, Grid, best_of, ratios_of, within_one_standard_error
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.opening import find_solver
from schmp_estimators.linear.penalties.base import Penalty
from schmp_estimators.linear.penalties.choose import by_name, unit_penalty
from schmp_estimators.linear.programs.folds import Drop, Plan
from schmp_estimators.linear.programs.path import PathOptions
from schmp_estimators.linear.targets import classifies, find_fold_targets, positives
from schmp_estimators.linear.texts import described


class Routed(NamedTuple):
    """Arguments of `fit` on their way to the splitter and to the scorer."""

    split: Mapping[str, Any]
    score: Mapping[str, Any]


class Given(NamedTuple):
    """Checked input of a fit, with the rows of weight zero."""

    X: Any
    y: NDArray[Any]
    #: (n,), or None if there are none
    weights: NDArray[np.float64] | None

    def rows(self, used: NDArray[np.bool_]) -> Samples:
        """Return the rows that are used; of an X on Dask the others are left out when it comes."""
        weights = np.empty(0) if self.weights is None else self.weights[used]
        X, y, mask = self.X, self.y[used], None if used.all() else used
        if mask is not None and not is_dask(X):
            X, mask = (X.tocsr()[used].tocsc() if hasattr(X, "tocsr") else X[used]), None
        return Samples(X, y, weights, mask)


class CrossValidated(FollowedEstimator):
    """Base of estimators that choose a penalty by cross-validation along a path, and fit the model with it."""

    cv: Any
    l1_ratio: float
    penalty_factors: Any
    fit_intercept: bool
    max_iter: int
    tol: float
    n_jobs: int | None
    #: Parameters that some classes do not have.
    positive = False
    class_weight: Any = None

    #: the estimator that fits all samples
    _kind: Any
    #: of tasks on a cluster, and of a fit in warnings
    _name, _what = "lasso-cv", "The fit"
    #: the attribute with the value of each fold, and whether larger ones are better
    _values, _sign = "mse_path_", -1.0
    #: most tasks of a fit: the folds, and fits on all samples
    _n_tasks = 2

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    @described
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Self:
        """Choose the penalty, and fit the model with it on all samples.

        Parameters
        ----------
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.  On Dask it stays where it is; it is read once for the folds, and once or twice for fits on all
            samples: persist it if reading takes long.
        y : array-like or Dask collection of shape (n_samples,)
            Responses, or class labels.
        sample_weight : array-like or Dask collection of shape (n_samples,), default=None
            Weights of the samples, in fits and in the value of each fold; folds count alike, as in scikit-learn.
        params : dict
            Arguments of the splitter and the scorer: `groups`, and with ``enable_metadata_routing=True`` whatever `cv`
            and `scoring` ask for.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If X, y or the weights are masked, not finite, empty or of different lengths, or the weights are negative or
            all zero; if penalties are not positive; if y holds one class only, or what a fold is fitted to does; if a
            fold has no samples to fit, or none held out, or its score is NaN.
        TypeError

        Warns
        -----
        ConvergenceWarning
        """
        label = f"schmp-{type(self).__name__}"
        chosen: AbstractContextManager[Place] = nullcontext(Place())
        if is_dask(X):
            chosen = choose_place(self.n_jobs, is_dask=True, label=label)
        with undone_on_error(self), chosen as place:
            given = {"y": y, "sample_weight": sample_weight, **params}
            found = begun_anew(place, lambda: {name: here(value, name, place) for name, value in given.items()})
            y, sample_weight = found.pop("y"), found.pop("sample_weight")
            fit = self._fit if np.ndim(np.asarray(y)) < 2 else self._fit_targets
            return fit(place, X, y, sample_weight, found)

    def _fit_targets(self, place: Place, X: Any, y: Any, sample_weight: Any, params: dict[str, Any]) -> Self:
        """Choose a penalty for each of several targets."""
        y = np.asarray(y)
        if y.shape[1] < 2 or classifies(self._loss()):
            return self._fit(place, X, y, sample_weight, params)
        splitter, fits = check_cv(self.cv), []
        for column in y.T:
            one = copy(self)
            one.cv = splitter
            fits.append(vars(one._fit(place, X, column, sample_weight, dict(params))))
        alike = ("n_features_in_", "feature_names_in_")
        names = [name for name in fits[0] if name.endswith("_") and not name.startswith("_")]
        found = {name: fits[0][name] if name in alike else np.array([one[name] for one in fits]) for name in names}
        self.__dict__.update(found)
        return self

    def _loss(self) -> Loss:
        raise NotImplementedError

    def _check(self) -> None:
        """Raise an error if parameters do not go together."""

    def _grid(self) -> Grid:
        raise NotImplementedError

    def _unit(self, ratio: Any) -> Penalty:
        """Return the penalty of strength one, with an L1 ratio."""
        found: Penalty = unit_penalty(self, ratio, self.penalty_factors, self.positive)
        return found

    def _model(self, value: float) -> Any:
        """Return the estimator that fits all samples with a penalty; their weights know of those of classes."""
        kind, others = self._kind, {"n_jobs", "verbose", "class_weight"}
        given = {name: getattr(self, name) for name in set(self._get_param_names()) & set(kind._get_param_names())}
        given["penalty_factors"] = by_name(self.penalty_factors, getattr(self, "feature_names_in_", None))
        given["l1_ratio"] = self.l1_ratio_
        return kind(**{name: one for name, one in given.items() if name not in others}, **{self._grid().name: value})

    def _fit(self, place: Place, X: Any, y: Any, sample_weight: Any, params: dict[str, Any]) -> Self:
        self._check()
        loss, grid, ratios = self._loss(), self._grid(), ratios_of(self.l1_ratio)
        given = self._read(place, X, y, sample_weight, **({} if classifies(loss) else {"y_numeric": True}))
        routed = self._route(sample_weight, params)
        counted = np.ones(len(given.y), bool) if given.weights is None else given.weights > 0.0
        targets = find_fold_targets(loss, given.y, given.weights, self.class_weight, counted, self.fit_intercept)
        loss = of_classes(loss, targets.classes)
        folds = self._folds(given, routed)
        targets.check_folds(folds, brief(self.cv))
        responses: list[Any] = [targets.codes]
        if targets.weights is not None and classifies(loss):  # weights in scores are others, without those of classes
            scored = routed.score.get("sample_weight")
            responses.append(np.ones(len(targets.codes)) if scored is None else np.asarray(scored, float)[counted])
        samples = given._replace(weights=targets.weights).rows(counted)
        plan = make_plan(folds, targets.fitted, counted)
        with self._opened(place, given, samples, np.array(responses), plan) as (problem, context):
            score = partial(self._score, given, routed.score, np.flatnonzero(counted))
            found = []
            for ratio in ratios:
                options = PathOptions(penalty := self._unit(ratio), self.tol, self.max_iter, self.fit_intercept)
                solver = find_solver(None, problem.extent, grid.count, loss, penalty)
                if solver == "blocks":
                    labels = [] if targets.classes is None or targets.joint else positives(len(targets.classes))
                    at_hand: Any = fetched_folds(problem, self.fit_intercept, loss, penalty, labels)
                else:
                    at_hand = problem.fetch(solver, options, loss)
                common = Folded(problem, loss, options, grid, targets, self._what, score, at_hand)
                values = self._values_of(grid, common, len(folds))
                found.append((common, values, self._fit_folds(context, given, folds, common, values)))
            self._choose(grid.name, ratios, found)
            problem.close()
            final = self._final(context, place, given._replace(weights=targets.factors))
            kept = ("classes_", "coef_", "intercept_", "dual_gap_", "n_iter_")
            self.__dict__.update({name: getattr(final, name) for name in kept if hasattr(final, name)})
        return self

    def _values_of(self, grid: Grid, given: Folded, n_folds: int) -> Floats:
        """Return the penalties."""
        if grid.given is not None:
            return grid.given
        whole = given.at_hand(n_folds, Fold(given, n_folds).labels)
        if whole is not None:
            return grid.values(whole.largest(0), whole.total, given.targets.unit)
        [values] = given.problem.run([Fold(given, n_folds).grid_of_all])
        return values

    def _choose(self, name: str, ratios: Sequence[Any], found: Sequence[tuple[Folded, Floats, Floats]]) -> None:
        """Set what has been found, what is chosen, and the coefficients of all samples along the path that it is on."""
        commons, values, scores = zip(*found, strict=True)
        best, count = divmod(best_of(self._sign * np.concatenate(scores)), len(values[0]))
        simple = within_one_standard_error(self._sign * scores[best])
        path = FoldAtHand(commons[best], len(commons[best].problem.plan.folds), values[best])
        [[coefs, levels]] = commons[best].problem.run([path.all_solutions])
        several, of_paths = np.ndim(self.l1_ratio) > 0, self._grid().given is None
        self.__dict__.update(
            {
                f"{name}s_": np.array(values) if several and of_paths else values[0],
                self._values: np.array(scores) if several else scores[0],
                f"{name}_": float(values[best][count]),
                f"{name}_1se_": float(values[best][simple]),
                "l1_ratio_": ratios[best],
                "coefs_path_": coefs[0].T if len(coefs) == 1 else coefs.transpose(0, 2, 1),
                "intercepts_path_": levels[0] if len(levels) == 1 else levels,
                "coef_1se_": coefs[0, simple] if commons[best].targets.classes is None else coefs[:, simple],
                "intercept_1se_": levels[0, simple] if commons[best].targets.classes is None else levels[:, simple],
            }
        )

    def _score(self, given: Given, params: Mapping[str, Any], kept: NDArray[np.int64], fold: Fold) -> Steps:
        """Return how good the present fit of a fold is on the samples held out; `kept` are those that count."""
        raise NotImplementedError

    def _final(self, context: Any, place: Place, given: Given) -> Any:
        """Return the model with the chosen penalty."""
        return self._fit_all(context, self._model(getattr(self, f"{self._grid().name}_")), place, given)

    def _scorer(self) -> Any:
        """Return the scorer that arguments of `fit` may be routed to, if there is one."""

    def get_metadata_routing(self) -> MetadataRouter:
        """Return what arguments of `fit` are routed to the splitter, and to the scorer.

        Returns
        -------
        MetadataRouter
            The routing of scikit-learn's user guide on metadata routing.
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(splitter=check_cv(self.cv), method_mapping=MethodMapping().add(caller="fit", callee="split"))
        scorer = self._scorer()
        if scorer is not None:
            router.add(scorer=scorer, method_mapping=MethodMapping().add(caller="fit", callee="score"))
        return router

    def _route(self, sample_weight: Any, params: dict[str, Any]) -> Routed:
        """Say what goes where; without scikit-learn's routing, groups go to the splitter and weights to the scorer."""
        _raise_for_params(params, self, "fit", allow=["groups"])
        if _routing_enabled():
            routed = process_routing(self, "fit", sample_weight=sample_weight, **params)
            return Routed(routed["splitter"]["split"], routed["scorer"]["score"] if self._scorer() else {})
        split = {name: value for name, value in params.items() if value is not None}
        return Routed(split, {} if sample_weight is None else {"sample_weight": sample_weight})

    def _read(self, place: Place, X: Any, y: Any, sample_weight: Any, **options: Any) -> Given:
        """Check the input."""
        if is_dask(X):
            y = read_samples(self, X, y, place=place, **options).y
        else:
            X, y = check_input(self, X, y, **options)
        return Given(X, y, check_weights(sample_weight, np.broadcast_to(0.0, (len(y), 1))))

    def _folds(self, given: Given, routed: Routed) -> list[tuple[Any, Any]]:
        """Return the samples to fit and those held out, of each fold; both must have some."""
        X, y, weights = given
        splitter = check_cv(self.cv, y, classifier=classifies(self._loss()))
        folds = list(splitter.split(np.broadcast_to(0.0, (len(y), 1)) if is_dask(X) else X, y, **routed.split))
        if not folds:
            raise ValueError(f"cv={brief(self.cv)} gives no folds; give an iterable with (training, held-out) indices")
        weight = np.ones(len(y)) if weights is None else weights
        for number, fold in enumerate(folds):
            for samples, what in zip(fold, ("to fit", "held out"), strict=True):
                if not weight[unmask(samples, "cv")].any():
                    raise ValueError(
                        f"fold {number} of cv={brief(self.cv)} has no samples of positive weight {what}; "
                        "give fewer folds, or sample_weight=None"
                    )
        return folds

    @contextmanager
    def _opened(
        self, place: Place, given: Given, samples: Samples, responses: NDArray[Any], plan: Plan
    ) -> Iterator[tuple[FoldedProblem, Any]]:
        """Give the partitions, cut along the folds, and the task of the whole fit."""
        with ExitStack() as stack:
            partitions = (self, samples, responses, samples.weights, plan, place, self._name)
            place.tell("begin", {"estimator": type(self).__name__})
            problem = begun_anew(place, lambda: stack.enter_context(open_folds(*partitions)))
            yield problem, stack.enter_context(self._followed(given.X, given.y))

    @contextmanager
    def _followed(self, X: Any, y: Any) -> Iterator[Any]:
        """Give the task of the whole fit to add tasks to."""
        with self._progress_bar():
            context = self._init_callback_context(max_subtasks=self._n_tasks + np.size(self.l1_ratio) - 1)
            context.call_on_fit_task_begin(estimator=self, X=X, y=y)
            yield context
            context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes=lambda: vars(self).copy())

    def _fit_folds(
        self, context: Any, given: Given, folds: Sequence[tuple[Any, Any]], common: Folded, values: Floats
    ) -> Floats:
        """Return the values of all fits, shape (n_penalties, n_folds); those a callback has called off are NaN."""
        task = context.subcontext(task_name="cross-validation", max_subtasks=len(folds))
        task.call_on_fit_task_begin(estimator=self)
        tasks = [task.subcontext(task_name="fold", max_subtasks=len(values)) for _ in folds]

        def run(number: int) -> Callable[[], Steps]:
            def shown() -> dict[str, Any]:
                return {"estimator": self, **_shown(given, folds[number][0])}

            return lambda: _follow(tasks[number], shown(), FoldAtHand(common, number, values), values.tolist())

        found = common.problem.run([run(number) for number in range(len(folds))], self.n_jobs)
        task.call_on_fit_task_end(estimator=self)
        return np.array(found).T

    def _fit_all(self, context: Any, model: Any, place: Place, given: Given, **options: Any) -> Any:
        """Fit a model on all samples, as a task; callbacks that go down to parts of a fit see its steps."""
        task, (X, y, weights) = context.subcontext(task_name="refit"), given
        with task.propagate_callback_context(model):
            task.call_on_fit_task_begin(estimator=self, X=X, y=y)
            begun_anew(place, lambda: model._fit_on(place, X, y, weights, **options))
        task.call_on_fit_task_end(estimator=self, X=X, y=y)
        return model


def _follow(task: Any, data: dict[str, Any], path: Fold, penalties: Sequence[float]) -> Steps:
    """Fit penalty after penalty, until a callback ends it; returns the values on what is held out."""
    values = np.full(len(penalties), np.nan)
    task.call_on_fit_task_begin(**data)
    for position, penalty in enumerate(penalties):
        step = task.subcontext(task_name="penalty").call_on_fit_task_begin(**data)
        if not position:
            yield from path.start()
        yield from path.go_to(penalty)
        values[position] = yield from path.held_out()
        if step.call_on_fit_task_end(**data, reconstruction_attributes=path.attributes):
            break
    yield Drop(path.number)
    task.call_on_fit_task_end(**data)
    return values


def _shown(given: Given, train: Any) -> dict[str, Any]:
    """Return what callbacks are shown of a fold: its samples, cut out for those that ask; on Dask all samples."""
    if is_dask(given.X):
        return {"X": given.X, "y": given.y}

    @cache
    def cut() -> Any:
        return (given.X.tocsr() if hasattr(given.X, "tocsr") else given.X)[train]

    return {"X": cut, "y": given.y[train]}


def make_plan(folds: Sequence[tuple[Any, Any]], fitted: NDArray[np.bool_], scored: NDArray[np.bool_]) -> Plan:
    """Return the folds as rows among those that are fitted or scored at all."""
    places, everything = np.cumsum(fitted | scored) - 1, np.arange(len(fitted))

    def rows(chosen: Any, counted: NDArray[np.bool_]) -> NDArray[np.int64]:
        numbers = np.sort(everything[chosen])
        return places[numbers[counted[numbers]]]

    return Plan([(rows(train, fitted), rows(test, scored)) for train, test in folds], int(places[-1]) + 1)


def brief(cv: Any) -> str:
    """Return a splitter, or the beginning of its folds, on one line."""
    return " ".join(reprlib.repr(cv).split())
