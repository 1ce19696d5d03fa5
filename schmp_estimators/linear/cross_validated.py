"""What the cross-validated L1 estimators share: folds, what is routed to them, and the tasks that callbacks see."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from numbers import Integral
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
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
from schmp_estimators.linear.data.samples import Samples, check_input, check_weights, here, read_samples
from schmp_estimators.linear.folding import FoldedProblem, open_folds
from schmp_estimators.linear.following import CONSTRAINTS
from schmp_estimators.linear.penalties.choose import STRONGEST, WEAKEST
from schmp_estimators.linear.programs.folds import Drop, Plan

#: Constraints of the parameters that both classes have.
CV_CONSTRAINTS: dict[str, list[Any]] = {"cv": ["cv_object"], "verbose": ["verbose"], **CONSTRAINTS}


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

    def rows(self, used: NDArray[np.bool_]) -> tuple[Samples, NDArray[Any]]:
        """Return the rows that are used, and their responses; of an X on Dask the others are left out when it comes."""
        weights = np.empty(0) if self.weights is None else self.weights[used]
        X, y, mask = self.X, self.y[used], None if used.all() else used
        if mask is not None and not is_dask(X):
            X, mask = (X.tocsr()[used].tocsc() if hasattr(X, "tocsr") else X[used]), None
        return Samples(X, y, weights, mask), y


class FoldPath(Protocol):
    """The fits of one fold."""

    def start(self) -> Steps:
        """Get ready for the first penalty."""

    def go_to(self, penalty: float) -> Steps:
        """Fit with a penalty."""

    def held_out(self) -> Steps:
        """Return the value of the present fit on the samples held out."""

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes as they are now."""


class CrossValidatedEstimator(FollowedEstimator):
    """Base of estimators that choose a penalty by cross-validation; they have `cv`, `n_jobs` and `verbose`."""

    cv: Any
    n_jobs: int | None

    #: most tasks of a fit: the folds, and fits on all samples
    _n_tasks = 2

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

    def _fit_where_x_is(self, X: Any, y: Any, sample_weight: Any, params: dict[str, Any]) -> Self:
        """Fit here, or an X on Dask on its cluster; a fit that fails leaves the earlier one as it was."""
        label = f"schmp-{type(self).__name__}"
        chosen: AbstractContextManager[Place] = nullcontext(Place())
        if is_dask(X):
            chosen = choose_place(self.n_jobs, is_dask=True, label=label)
        with undone_on_error(self), chosen as place:
            given = {"y": y, "sample_weight": sample_weight, **params}
            found = begun_anew(place, lambda: {name: here(value, name, place) for name, value in given.items()})
            return self._fit(place, X, found.pop("y"), found.pop("sample_weight"), found)

    def _fit(self, place: Place, X: Any, y: Any, sample_weight: Any, params: dict[str, Any]) -> Self:
        raise NotImplementedError

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
        splitter = check_cv(self.cv, y, classifier=is_classifier(self))
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
        self, place: Place, given: Given, samples: Samples, responses: NDArray[Any], plan: Plan, name: str
    ) -> Iterator[tuple[FoldedProblem, Any]]:
        """Give the partitions, cut along the folds, and the task of the whole fit."""
        with ExitStack() as stack:
            partitions = (self, samples, responses, samples.weights, plan, place, name)
            place.tell("begin", {"estimator": type(self).__name__})
            problem = begun_anew(place, lambda: stack.enter_context(open_folds(*partitions)))
            yield problem, stack.enter_context(self._followed(given.X, given.y))

    @contextmanager
    def _followed(self, X: Any, y: Any) -> Iterator[Any]:
        """Give the task of the whole fit to add tasks to."""
        with self._progress_bar():
            context = self._init_callback_context(max_subtasks=self._n_tasks)
            context.call_on_fit_task_begin(estimator=self, X=X, y=y)
            yield context
            context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes=lambda: vars(self).copy())

    def _fit_folds(
        self,
        context: Any,
        given: Given,
        folds: Sequence[tuple[Any, Any]],
        problem: FoldedProblem,
        penalties: Sequence[float],
        paths: Callable[[int], FoldPath],
    ) -> NDArray[np.float64]:
        """Return the values of all fits, shape (n_penalties, n_folds); those a callback has called off are NaN."""
        task = context.subcontext(task_name="cross-validation", max_subtasks=len(folds))
        task.call_on_fit_task_begin(estimator=self)
        tasks = [task.subcontext(task_name="fold", max_subtasks=len(penalties)) for _ in folds]

        def run(number: int) -> Callable[[], Steps]:
            def shown() -> dict[str, Any]:
                return {"estimator": self, **_shown(given, folds[number][0])}

            return lambda: _follow(tasks[number], shown(), number, paths(number), penalties)

        values = problem.run([run(number) for number in range(len(folds))], self.n_jobs)
        task.call_on_fit_task_end(estimator=self)
        return np.array(values).T

    def _fit_all(self, context: Any, model: Any, place: Place, given: Given, **options: Any) -> Any:
        """Fit a model on all samples, as a task; callbacks that go down to parts of a fit see its steps."""
        task, (X, y, weights) = context.subcontext(task_name="refit"), given
        with task.propagate_callback_context(model):
            task.call_on_fit_task_begin(estimator=self, X=X, y=y)
            begun_anew(place, lambda: model._fit_on(place, X, y, weights, **options))
        task.call_on_fit_task_end(estimator=self, X=X, y=y)
        return model


def _follow(task: Any, data: dict[str, Any], number: int, path: FoldPath, penalties: Sequence[float]) -> Steps:
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
    yield Drop(number)
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


def best_of(values: NDArray[np.float64]) -> int:
    """Return the row with the largest mean, the first of equals; rows with NaN were not tried in every fold.

    Folds count alike, whatever their weight, as in scikit-learn's `LassoCV` and `LogisticRegressionCV`.
    """
    means = values.mean(axis=1)
    return int(np.argmax(np.where(np.isnan(means), -np.inf, means)))


def within_one_standard_error(values: NDArray[np.float64]) -> int:
    """Return the first row whose mean is at most one standard error below that of the best row.

    The standard error is that of the best row's mean over folds, zero with one fold.  Hastie, Tibshirani and Friedman,
    "The Elements of Statistical Learning", 2009, section 7.10.
    """
    best = values[best_of(values)]
    error = best.std(ddof=1) / np.sqrt(len(best)) if len(best) > 1 else 0.0
    with np.errstate(invalid="ignore"):
        return int(np.argmax(values.mean(axis=1) >= best.mean() - error))


def positive_values(name: str, given: Any) -> NDArray[np.float64] | None:
    """Return the values of a parameter in rising order, or None if it is their number."""
    if isinstance(given, Integral):
        return None
    given = unmask(given, name)
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 1 or not len(values) or not ((values >= WEAKEST) & (values <= STRONGEST)).all():
        raise ValueError(
            f"{name}={given!r}; give numbers from {WEAKEST:g} to {STRONGEST:g}, or how many to space geometrically"
        )
    return np.sort(values)
