"""Cross-validated estimators and the choice of a penalty.

Also folds, metadata routing, and the tasks that callbacks see.
"""

import reprlib
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from typing import Any, Self

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

from schmp_estimators.core.estimators import undone_on_error
from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.inputs.validation import is_dask
from schmp_estimators.core.places.place import Place, retry
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.core.typing import Named
from schmp_estimators.linear.contracts import classifies
from schmp_estimators.linear.fit import Fit
from schmp_estimators.linear.fitting import Penalised
from schmp_estimators.linear.fold import Common, Fold
from schmp_estimators.linear.paths import Asked
from schmp_estimators.linear.penalties.choose import (
    Floats,
    Grid,
    best_of,
    end_of,
    ratios_of,
    within_one_standard_error,
)
from schmp_estimators.linear.problem import open_problem, place_of
from schmp_estimators.linear.programs.folds import Deviances, Plan
from schmp_estimators.linear.samples import Samples, cut, here, read_samples, reading
from schmp_estimators.linear.targets import check_folds, find_targets, of_classes
from schmp_estimators.linear.texts import described


class CrossValidated(Penalised):
    """Base of estimators that choose the penalty of a fit by cross-validation along a path."""

    #: the estimator that fits all samples
    _kind: Any
    #: name of tasks on a cluster
    _name = "lasso-cv"
    #: name of the attribute with the value of each fold
    _values = "mse_path_"
    #: 1 if larger values are better, −1 otherwise
    _sign = -1.0
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
            Samples.  A Dask collection is read once.  The workers keep its rows, and a copy of the
            rows of the current fold.
        y : array-like or Dask collection of shape (n_samples,)
            Responses or class labels.  Responses may have the shape (n_samples, n_targets).
        sample_weight : array-like or Dask collection of shape (n_samples,), default=None
            Weights of the samples, in fits and in the score of each fold.  As in scikit-learn, the
            mean over folds is not weighted.
        params : dict
            Arguments for the splitter and the scorer.  By default only `groups` is accepted.  With
            scikit-learn's ``enable_metadata_routing=True``, the splitter and the scorer get the
            arguments that they request.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If X, y or the weights are masked or not finite (except missing values of X), empty or
            of different lengths.  If weights are negative or all zero.  If penalties are not
            positive.  If labels y, or those of a fold's training samples, are of one class only.
            If a fold has no training or held-out samples, or its score is NaN.
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
        loss = of_classes(self._loss(), classes)
        penalty = self._penalty(1.0, ratio)
        return Asked(loss, penalty, self.fit_intercept, self.tol, self.max_iter)

    def _model(self) -> Any:
        """Return the estimator that fits all samples with the chosen penalty."""
        shared = {*self._get_param_names()} & {*self._kind._get_param_names()} - {
            "n_jobs",
            "verbose",
        }
        given = {name: getattr(self, name) for name in shared}
        chosen = (self._grid().name, "l1_ratio")
        return self._kind(**given | {name: getattr(self, f"{name}_") for name in chosen})

    def _fit(self, place: Place, X: Any, y: Any, sample_weight: Any, params: Named) -> Self:
        options = {**reading(self._loss()), "place": place, "whole": True}
        if np.shape(np.asarray(y))[1:] in ((), (1,)):
            options["multi_output"] = False
        given = read_samples(self, X, y, sample_weight, **options)
        split, scored = self._route(sample_weight, params)
        counted = given.counted
        samples = given.rows(counted)
        targets = find_targets(self, samples)
        folds = self._folds(given, split)
        fitted = counted.copy()
        if len(targets.weights):
            fitted[counted] = targets.weights > 0.0
        check_folds(targets, given.y, fitted, folds, brief(self.cv))
        weights = np.empty(0)
        if targets.classes is not None and len(targets.weights):  # class weights are not for scores
            weights = scored.get("sample_weight", np.ones(len(given.y)))
            weights = np.asarray(weights, float)[counted]
        plan = Plan(folds, fitted, counted, weights)
        numbers = range(targets.n_targets)
        most = len(numbers) * (self._n_tasks + np.size(self.l1_ratio) - 1)
        rows = np.flatnonzero(counted)
        place.tell("begin", {"estimator": type(self).__name__})

        def choose() -> None:
            with (
                open_problem(self, samples, targets, place, name=self._name, plan=plan) as problem,
                self._followed(given.X, given.y, vars(self).copy, most) as (context, _),
            ):
                common = Common(problem, None, None, targets, folds, given, rows, scored)
                found = [self._choose(context, place, common.of_target(k)) for k in numbers]
                if len(found) > 1:
                    found = [{name: np.array([one[name] for one in found]) for name in found[0]}]
                self.__dict__.update(found[0])

        retry(place, choose)
        return self

    def _choose(self, context: Any, place: Place, common: Common) -> Named:
        """Return the results for one target, or for all classes.

        These are the scores, the chosen penalty, and the fit with it.
        """
        targets = common.targets
        grid = self._grid()
        tried = []
        for ratio in (ratios := ratios_of(self.l1_ratio)):
            given = common._replace(asked=self._asked(ratio, targets.classes), grid=grid)
            whole = Fold(given, len(given.folds))
            values = whole.solve(self.max_worse and 1).values
            whole.pause()
            held_out, end = self._try_folds(context, given._replace(grid=grid.at(values)))
            path = whole.solve(end).at(slice(end))
            path.warn(grid.name, given.asked, self._what)
            tried.append((whole, path, held_out))
        wholes, paths, scores = zip(*tried, strict=True)
        best, count = divmod(best_of(self._sign * np.concatenate(scores)), len(scores[0]))
        simple = within_one_standard_error(self._sign * scores[best])
        path = paths[best]
        simpler = wholes[best].of_all_classes(*(part[simple] for part in path.solutions()))
        coefs, levels = path.arrays(targets.shifts, len(path.values))
        several = np.ndim(self.l1_ratio) > 0
        apart = several and grid.given is None
        found = {
            f"{grid.name}s_": np.array([one.values for one in paths]) if apart else path.values,
            self._values: np.array(scores) if several else scores[0],
            f"{grid.name}_": float(path.values[count]),
            f"{grid.name}_1se_": float(path.values[simple]),
            "l1_ratio_": ratios[best],
            "coefs_path_": coefs,
            "intercepts_path_": levels,
            "coef_1se_": simpler["coef_"],
            "intercept_1se_": simpler["intercept_"],
        }
        self.__dict__.update(found)
        final = self._final(partial(self._fit_all, context, place, common))
        kept = ("classes_", "coef_", "intercept_", "dual_gap_", "n_iter_")
        return found | {name: getattr(final, name) for name in kept if hasattr(final, name)}

    def _scores(self, fold: Fold) -> Floats:
        """Return the scores of a fold on its held-out samples, for each penalty.

        By default these are deviances.
        """
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
            The arguments that the splitter and the scorer request.  Scikit-learn's user guide
            explains metadata routing.
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

    def _route(self, sample_weight: Any, params: Named) -> tuple[Named, Named]:
        """Return the arguments for the splitter and for the scorer.

        Without scikit-learn's routing the splitter gets groups, and the scorer gets weights.
        """
        _raise_for_params(params, self, "fit", allow=["groups"])
        if _routing_enabled():
            routed = process_routing(self, "fit", sample_weight=sample_weight, **params)
            scored = routed["scorer"]["score"] if self._scorer() else {}
            return routed["splitter"]["split"], scored
        split = {name: value for name, value in params.items() if value is not None}
        return split, {} if sample_weight is None else {"sample_weight": sample_weight}

    def _folds(self, given: Samples, params: Named) -> list[tuple[Any, Any]]:
        """Return for each fold the samples to fit and those held out; raise if either is empty."""
        cv = brief(self.cv)
        splitter = check_cv(self.cv, given.y, classifier=classifies(self._loss()))
        X = np.broadcast_to(0.0, (len(given.y), 1)) if is_dask(given.X) else given.X
        folds = list(splitter.split(X, given.y, **params))
        if not folds:
            raise ValueError(
                f"cv={cv} gives no folds; give an iterable with (training, held-out) indices"
            )
        for number, fold in enumerate(folds):
            for samples, what in zip(fold, ("to fit", "held out"), strict=True):
                if not given.counted[unmask(samples, "cv")].any():
                    raise ValueError(
                        f"fold {number} of cv={cv} has no samples of positive weight {what}; "
                        "give fewer folds, or sample_weight=None"
                    )
        return folds

    def _try_folds(self, context: Any, given: Common) -> tuple[Floats, int | None]:
        """Return the scores of all fits, and with which penalty they end, or None.

        Scores are of shape (n_penalties, n_folds), NaN where a path has ended.
        """
        n_folds = len(given.folds)
        count = len(given.grid.given)
        task = context.subcontext(task_name="cross-validation", max_subtasks=n_folds)
        task.call_on_fit_task_begin(estimator=self)
        tasks = [task.subcontext(task_name="fold", max_subtasks=count) for _ in range(n_folds)]
        scores = np.full((n_folds, count), np.nan)
        end = None
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
        """Write the scores of a fold, for all penalties or for one at a time.

        Between penalties that come one at a time, others may end the fold.
        """
        data = {"estimator": self, **_shown(given.samples, given.folds[number][0])}
        task.call_on_fit_task_begin(**data)
        fold = Fold(given, number, task if self._is_heard else None, **data)
        end = None
        while end is None:
            reached = fold.solve(self.max_worse and fold.scored + 1).reached
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
        task = context.subcontext(task_name="refit")
        known = vars(self)
        names = known.keys() & {"n_features_in_", "feature_names_in_", "_labels"}
        vars(model).update({name: known[name] for name in names})
        problem = given.problem.fold(len(given.folds))
        data = {"X": given.samples.X, "y": given.samples.y}
        with task.propagate_callback_context(model):
            task.call_on_fit_task_begin(estimator=self, **data)
            models: list[Any] = Fit(model, problem, given.targets).run(place, **data)
        task.call_on_fit_task_end(estimator=self, **data)
        return models


def _shown(given: Samples, train: Any) -> Named:
    """Return the samples that callbacks see for a fold.

    These are the samples that are fitted, or on Dask all samples.
    """
    if is_dask(given.X):
        return {"X": given.X, "y": given.y}
    return {"X": cache(lambda: cut(given.X, train)), "y": given.y[train]}


def brief(cv: Any) -> str:
    """Return a short text for a splitter or a list of folds."""
    return " ".join(reprlib.repr(cv).split())
