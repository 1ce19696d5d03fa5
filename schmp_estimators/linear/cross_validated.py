"""What the cross-validated L1 estimators share: folds, what is routed to them, and the tasks that callbacks see."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from typing import Any, NamedTuple

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
from sklearn.utils.parallel import Parallel, delayed

from schmp_estimators.core.following import FollowedEstimator
from schmp_estimators.linear.following import CONSTRAINTS
from schmp_estimators.linear.penalties.choose import STRONGEST, WEAKEST

#: Constraints of the parameters that both classes have.
CV_CONSTRAINTS: dict[str, list[Any]] = {"cv": ["cv_object"], "verbose": ["verbose"], **CONSTRAINTS}


class Routed(NamedTuple):
    """Arguments of `fit` on their way to the splitter and to the scorer."""

    split: Mapping[str, Any]
    score: Mapping[str, Any]


#: A value and the fitted attributes, made when asked for, of one penalty after the other.
Results = Generator[tuple[float, Callable[[], dict[str, Any]]], None, None]


class FoldFits(NamedTuple):
    """The samples that one fold is fitted to, and its fits."""

    X: Any
    y: NDArray[Any]
    results: Results


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

    def _folds(self, X: Any, y: NDArray[Any], weights: NDArray[Any] | None, routed: Routed) -> list[tuple[Any, Any]]:
        """Return the samples to fit and those held out, of each fold; both must have some."""
        splitter = check_cv(self.cv, y, classifier=is_classifier(self))
        folds = list(splitter.split(X, y, **routed.split))
        if not folds:
            raise ValueError(f"cv={brief(self.cv)} gives no folds; give an iterable with (training, held-out) indices")
        weight = np.ones(len(y)) if weights is None else weights
        for number, fold in enumerate(folds):
            for samples, what in zip(fold, ("to fit", "held out"), strict=True):
                if not weight[samples].any():
                    raise ValueError(
                        f"fold {number} of cv={brief(self.cv)} has no samples of positive weight {what}; "
                        "give fewer folds, or sample_weight=None"
                    )
        return folds

    @contextmanager
    def _followed(self, X: Any, y: Any) -> Iterator[Any]:
        """Give the task of the whole fit to add tasks to."""
        with self._progress_bar():
            context = self._init_callback_context(max_subtasks=self._n_tasks)
            context.call_on_fit_task_begin(estimator=self, X=X, y=y)
            yield context
            context.call_on_fit_task_end(estimator=self, X=X, y=y, reconstruction_attributes=lambda: vars(self).copy())

    def _fit_folds(
        self, context: Any, folds: list[tuple[Any, Any]], n_penalties: int, fits: Callable[[Any, Any], FoldFits]
    ) -> NDArray[np.float64]:
        """Return the values of all fits, shape (n_penalties, n_folds); those a callback has called off are NaN."""
        task = context.subcontext(task_name="cross-validation", max_subtasks=len(folds))
        task.call_on_fit_task_begin(estimator=self)
        tasks = [task.subcontext(task_name="fold", max_subtasks=n_penalties) for _ in folds]
        values = Parallel(n_jobs=self.n_jobs, prefer="threads")(
            delayed(self._fit_fold)(of_fold, n_penalties, fits, *fold)
            for of_fold, fold in zip(tasks, folds, strict=True)
        )
        task.call_on_fit_task_end(estimator=self)
        return np.array(values).T

    def _fit_fold(
        self, task: Any, n_penalties: int, fits: Callable[[Any, Any], FoldFits], train: Any, test: Any
    ) -> NDArray[np.float64]:
        """Fit penalty after penalty, until a callback ends it."""
        values = np.full(n_penalties, np.nan)
        fold = fits(train, test)
        data = {"estimator": self, "X": fold.X, "y": fold.y}
        task.call_on_fit_task_begin(**data)
        for number in range(n_penalties):
            step = task.subcontext(task_name="penalty").call_on_fit_task_begin(**data)
            values[number], attributes = next(fold.results)
            if step.call_on_fit_task_end(**data, reconstruction_attributes=attributes):
                break
        fold.results.close()
        task.call_on_fit_task_end(**data)
        return values

    def _fit_all(self, context: Any, model: Any, place: Any, X: Any, y: Any, weights: Any) -> Any:
        """Fit a model on all samples, as a task; callbacks that go down to parts of a fit see its steps."""
        task = context.subcontext(task_name="refit")
        with task.propagate_callback_context(model):
            task.call_on_fit_task_begin(estimator=self, X=X, y=y)
            model._fit_on(place, X, y, weights)
        task.call_on_fit_task_end(estimator=self, X=X, y=y)
        return model


def brief(cv: Any) -> str:
    """Return a splitter, or the beginning of its folds, on one line."""
    return " ".join(reprlib.repr(cv).split())


def best_of(values: NDArray[np.float64]) -> int:
    """Return the row with the largest mean, the first of equals; rows with NaN were not tried in every fold.

    Folds count alike, whatever their weight, as in scikit-learn's `LassoCV` and `LogisticRegressionCV`.
    """
    means = values.mean(axis=1)
    return int(np.argmax(np.where(np.isnan(means), -np.inf, means)))


def positive_values(name: str, given: Any) -> NDArray[np.float64] | None:
    """Return the values of a parameter in rising order, or None if it is their number."""
    if isinstance(given, Integral):
        return None
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 1 or not len(values) or not ((values >= WEAKEST) & (values <= STRONGEST)).all():
        raise ValueError(
            f"{name}={given!r}; give numbers from {WEAKEST:g} to {STRONGEST:g}, or how many to space geometrically"
        )
    return np.sort(values)
