"""Cross-validated estimators: folds, metadata routing, the choice of a penalty, and the tasks that callbacks see."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np
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
from sklearn.utils.parallel import Parallel, delayed

from schmp_estimators.core.following import undone_on_error
from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.inputs.validation import is_dask
from schmp_estimators.core.places.place import Place, retry
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.linear.fit import Fit
from schmp_estimators.linear.fitting import Penalised
from schmp_estimators.linear.fold import Common, Fold, Penalties
from schmp_estimators.linear.penalties.choose import (
    Floats,
    Grid,
    best_of,
    end_of,
    ratios_of,
    within_one_standard_error,
)
from schmp_estimators.linear.problem import open_problem, place_of
from schmp_estimators.linear.programs.choose import Asked
from schmp_estimators.linear.programs.folds import Deviances, Plan
from schmp_estimators.linear.samples import (
    Samples,
    check_folds,
    classifies,
    cut,
    find_targets,
    here,
    of_classes,
    read_samples,
    reading,
)
from schmp_estimators.linear.texts import described


class Routed(NamedTuple):
    """Arguments of `fit` for the splitter and for the scorer."""

    split: Mapping[str, Any]
    score: Mapping[str, Any]


class CrossValidated(Penalised):
    """Base of estimators that choose a penalty by cross-validation along a path, and fit the model with it."""

    #: the estimator that fits all samples
    _kind: Any
    #: names of tasks on a cluster, and of a fit in warnings
    _name, _what = "lasso-cv", "The fit"
    #: name of the attribute with the value of each fold, and 1 if larger values are better, −1 otherwise
    _values, _sign = "mse_path_", -1.0
    #: most tasks of a target: the folds, and fits on all samples
    _n_tasks = 2

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    @described
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Self:
        """Choose the penalty by cross-validation, and fit the model with it to all samples.

        Parameters
        ----------
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.  A Dask collection is read once; the workers also keep a copy of the rows of the current fold.
        y : array-like or Dask collection of shape (n_samples,)
            Responses, or class labels.
        sample_weight : array-like or Dask collection of shape (n_samples,), default=None
            Weights of the samples, in fits and in the score of each fold.  The mean over folds is not weighted, as in
            scikit-learn.
        params : dict
            Arguments for the splitter and the scorer: `groups`, and with ``enable_metadata_routing=True`` all that `cv`
            and `scoring` request.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If X, y or the weights are masked, not finite, empty or of different lengths, or the weights are negative or
            all zero; if penalties are not positive; if y, or the part that a fold is fitted to, has only one class; if
            a fold has no samples to fit, or none held out, or its score is NaN.
        TypeError

        Warns
        -----
        ConvergenceWarning
        """
        chosen = place_of(X, f"schmp-{type(self).__name__}", self.n_jobs)
        with undone_on_error(self), chosen as place, one_blas_thread():
            given = {"y": y, "sample_weight": sample_weight, **params}
            found = retry(
                place, lambda: {name: here(value, name, place) for name, value in given.items()}
            )
            return self._fit(place, X, found.pop("y"), found.pop("sample_weight"), found)

    def _validate_params(self) -> None:
        """See `Penalised`."""
        super()._validate_params()
        self._grid().check(self.l1_ratio, self._defaults.get("eps", 1.0))

    def _grid(self) -> Grid:
        return Grid.of("alpha", self.alphas, self.eps)

    def _asked(self, ratio: Any, classes: Any) -> Asked:
        """Return the parameters of a path."""
        objective = of_classes(self._loss(), classes), self._penalty(1.0, ratio)
        return Asked(*objective, self.fit_intercept, self.tol, self.max_iter)

    def _model(self) -> Any:
        """Return the estimator that fits all samples with the chosen penalty."""
        shared = {*self._get_param_names()} & {*self._kind._get_param_names()} - {
            "n_jobs",
            "verbose",
        }
        given = {name: getattr(self, name) for name in shared}
        chosen = (self._grid().name, "l1_ratio")
        return self._kind(**given | {name: getattr(self, f"{name}_") for name in chosen})

    def _fit(
        self, place: Place, X: Any, y: Any, sample_weight: Any, params: dict[str, Any]
    ) -> Self:
        loss = self._loss()
        options = {**reading(loss), "place": place, "whole": True}
        if np.shape(np.asarray(y))[1:] in ((), (1,)):
            options["multi_output"] = False
        given = read_samples(self, X, y, sample_weight, **options)
        routed = self._route(sample_weight, params)
        counted = given.weights > 0.0 if len(given.weights) else np.ones(len(given.y), bool)
        samples = given.rows(counted)
        targets = find_targets(self, samples)
        folds, fitted = self._folds(given, routed), counted.copy()
        if len(targets.weights):
            fitted[counted] = targets.weights > 0.0
        check_folds(targets, given.y, fitted, folds, brief(self.cv))
        weights = np.empty(0)
        if targets.classes is not None and len(targets.weights):  # class weights are not for scores
            scored = routed.score.get("sample_weight", np.ones(len(given.y)))
            weights = np.asarray(scored, float)[counted]
        plan = Plan(folds, fitted, counted, weights)
        opened = self, samples, targets, place
        place.tell("begin", {"estimator": type(self).__name__})
        numbers = range(targets.n_targets)
        most = len(numbers) * (self._n_tasks + np.size(self.l1_ratio) - 1)
        shown = given.X, given.y, lambda: vars(self).copy(), most

        def choose() -> None:
            with (
                open_problem(*opened, name=self._name, plan=plan) as problem,
                self._followed(*shown) as (context, _),
            ):
                rows = folds, given, np.flatnonzero(counted), routed.score
                common = Common(problem, None, None, targets, *rows)
                found = [self._choose(context, place, common.of_target(k)) for k in numbers]
                if len(found) > 1:
                    found = [{name: np.array([one[name] for one in found]) for name in found[0]}]
                self.__dict__.update(found[0])

        retry(place, choose)
        return self

    def _choose(self, context: Any, place: Place, common: Common) -> dict[str, Any]:
        """Return the results for one target, or for all classes: scores, the chosen penalty, and the fit with it."""
        targets, grid, tried = common.targets, self._grid(), []
        for ratio in (ratios := ratios_of(self.l1_ratio)):
            given = common._replace(asked=self._asked(ratio, targets.classes), grid=grid)
            whole = Fold(given, len(given.folds))
            values = whole.solve(self.max_worse and 1).values
            whole.pause()
            held_out, end = self._try_folds(context, given._replace(grid=grid.at(values)))
            path = whole.solve(end).at(slice(end))
            path.warn(grid.name, given.asked, self._what)
            tried.append((path, held_out))
        paths, scores = zip(*tried, strict=True)
        best, count = divmod(best_of(self._sign * np.concatenate(scores)), len(scores[0]))
        simple, path = within_one_standard_error(self._sign * scores[best]), paths[best]
        coefs, levels = path.arrays(targets.shifts, len(path.values))
        simpler = coefs[..., simple], levels.T[simple]
        several, name = np.ndim(self.l1_ratio) > 0, grid.name
        apart = several and grid.given is None
        found = {
            f"{name}s_": np.array([one.values for one in paths]) if apart else path.values,
            self._values: np.array(scores) if several else scores[0],
            f"{name}_": float(path.values[count]),
            f"{name}_1se_": float(path.values[simple]),
            "l1_ratio_": ratios[best],
            "coefs_path_": coefs,
            "intercepts_path_": levels,
        }
        if targets.classes is not None:
            simpler = np.atleast_2d(simpler[0]), np.atleast_1d(simpler[1])
        found["coef_1se_"], found["intercept_1se_"] = simpler
        self.__dict__.update(found)
        final = self._final(partial(self._fit_all, context, place, common))
        kept = ("classes_", "coef_", "intercept_", "dual_gap_", "n_iter_")
        return found | {name: getattr(final, name) for name in kept if hasattr(final, name)}

    def _scores(self, fold: Fold) -> Floats:
        """Return the scores of a fold on its held-out samples, for each penalty; by default deviances."""
        return fold.held_out(Deviances(fold.given.asked.loss, fold.targets.labels))

    def _final(self, fit: Callable[[Any], list[Any]]) -> Any:
        """Return the model with the chosen penalty."""
        fit(model := self._model())
        return model

    def _scorer(self) -> Any:
        """Return the scorer to which arguments of `fit` may be routed, or None."""

    def get_metadata_routing(self) -> MetadataRouter:
        """Return how arguments of `fit` are routed to the splitter and to the scorer.

        Returns
        -------
        MetadataRouter
            Which arguments the splitter and the scorer request; see scikit-learn's user guide on metadata routing.
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(
            splitter=check_cv(self.cv),
            method_mapping=MethodMapping().add(caller="fit", callee="split"),
        )
        scorer = self._scorer()
        if scorer is not None:
            router.add(
                scorer=scorer, method_mapping=MethodMapping().add(caller="fit", callee="score")
            )
        return router

    def _route(self, sample_weight: Any, params: dict[str, Any]) -> Routed:
        """Route arguments; without scikit-learn's routing the splitter gets groups, and the scorer gets weights."""
        _raise_for_params(params, self, "fit", allow=["groups"])
        if _routing_enabled():
            routed = process_routing(self, "fit", sample_weight=sample_weight, **params)
            return Routed(
                routed["splitter"]["split"], routed["scorer"]["score"] if self._scorer() else {}
            )
        split = {name: value for name, value in params.items() if value is not None}
        return Routed(split, {} if sample_weight is None else {"sample_weight": sample_weight})

    def _folds(self, given: Samples, routed: Routed) -> list[tuple[Any, Any]]:
        """Return for each fold the samples to fit and those held out; raise if either is empty."""
        X, y, weights, _ = given
        splitter = check_cv(self.cv, y, classifier=classifies(self._loss()))
        folds = list(
            splitter.split(
                np.broadcast_to(0.0, (len(y), 1)) if is_dask(X) else X, y, **routed.split
            )
        )
        if not folds:
            raise ValueError(
                f"cv={brief(self.cv)} gives no folds; give an iterable with (training, held-out) indices"
            )
        weight = weights if len(weights) else np.ones(len(y))
        for number, fold in enumerate(folds):
            for samples, what in zip(fold, ("to fit", "held out"), strict=True):
                if not weight[unmask(samples, "cv")].any():
                    raise ValueError(
                        f"fold {number} of cv={brief(self.cv)} has no samples of positive weight {what}; "
                        "give fewer folds, or sample_weight=None"
                    )
        return folds

    def _try_folds(self, context: Any, given: Common) -> tuple[Floats, int | None]:
        """Return the scores of all fits, and with which penalty they end, or None.

        Scores are of shape (n_penalties, n_folds), NaN where a path has ended.
        """
        n_folds, count = len(given.folds), len(given.grid.given)
        task = context.subcontext(task_name="cross-validation", max_subtasks=n_folds)
        task.call_on_fit_task_begin(estimator=self)
        tasks = [task.subcontext(task_name="fold", max_subtasks=count) for _ in range(n_folds)]
        scores, end = np.full((n_folds, count), np.nan), None
        tried = [self._try_fold(tasks[k], given, k, scores[k]) for k in range(n_folds)]
        run = Parallel(n_jobs=self.n_jobs if given.problem.is_local else 1, require="sharedmem")
        while end is None and any(
            run(delayed(list)(islice(one, self.max_worse and 1)) for one in tried)
        ):
            end = end_of(-self._sign * scores.mean(axis=0), self.max_worse)
        for one in tried:
            with suppress(StopIteration):
                one.send(end)
        scores[:, end or count :] = np.nan
        task.call_on_fit_task_end(estimator=self)
        return scores.T, end

    def _try_fold(
        self, task: Any, given: Common, number: int, row: Floats
    ) -> Generator[None, int | None, None]:
        """Write the scores of a fold, for all penalties or for one at a time, which is when others may end it."""
        data = {"estimator": self, **_shown(given.samples, given.folds[number][0])}
        task.call_on_fit_task_begin(**data)
        fold, end = Fold(given, number), None
        told = Penalties(task, data, fold, len(row)) if self._is_heard else None
        while end is None:
            reached = fold.solve(self.max_worse and fold.scored + 1, told).reached
            if fold.scored == reached:
                break
            row[fold.scored : reached] = self._scores(fold)
            fold.scored = reached
            fold.pause()
            end = yield
        fold.paths.at(slice(end)).warn(given.grid.name, given.asked, f"A fold of {self._what}")
        task.call_on_fit_task_end(**data)

    def _fit_all(self, context: Any, place: Place, given: Common, model: Any) -> list[Any]:
        """Fit a model on all samples, as a task whose steps callbacks may see."""
        task, known = context.subcontext(task_name="refit"), vars(self)
        names = known.keys() & {"n_features_in_", "feature_names_in_", "_labels"}
        vars(model).update({name: known[name] for name in names})
        problem, data = (
            given.problem.fold(len(given.folds)),
            {"X": given.samples.X, "y": given.samples.y},
        )
        with task.propagate_callback_context(model):
            task.call_on_fit_task_begin(estimator=self, **data)
            models: list[Any] = Fit(model, problem, given.targets).run(place, **data)
        task.call_on_fit_task_end(estimator=self, **data)
        return models


def _shown(given: Samples, train: Any) -> dict[str, Any]:
    """Return the samples that callbacks see for a fold: those that are fitted, or on Dask all samples."""
    if is_dask(given.X):
        return {"X": given.X, "y": given.y}
    return {"X": cache(lambda: cut(given.X, train)), "y": given.y[train]}


def brief(cv: Any) -> str:
    """Return a short text for a splitter or a list of folds."""
    return " ".join(reprlib.repr(cv).split())
