"""Sparse logistic regression: classification with an L1 penalty."""

import inspect
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer, make_scorer
from sklearn.utils.validation import _check_method_params

from schmp_estimators.core.inputs.validation import is_dask, keep
from schmp_estimators.core.schedules.dynamic import Schedule
from schmp_estimators.core.typing import Array, Named
from schmp_estimators.linear.cross_validated import CrossValidated, brief
from schmp_estimators.linear.fitting import SparseModel
from schmp_estimators.linear.fold import Fold
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.losses.logistic import Logistic
from schmp_estimators.linear.paths import path_of
from schmp_estimators.linear.penalties.choose import Floats, Grid, positive_values
from schmp_estimators.linear.predicting import LinearClassifier
from schmp_estimators.linear.programs.folds import Right
from schmp_estimators.linear.programs.resolve import LEAST
from schmp_estimators.linear.samples import cut
from schmp_estimators.linear.texts import described


@described
class SparseLogisticRegression(SparseModel, LinearClassifier):
    r"""Logistic regression with an L1 penalty, solved up to a given duality gap.

    With labels :math:`y_i \in \{-1, 1\}` and weights :math:`s_i`, `sample_weight` times
    `class_weight`, the model minimises over the coefficients w and the intercept b

    .. math:: \sum_j f_j \left(\rho |w_j| + \frac{1 - \rho}{2} w_j^2\right)
        + C \sum_i s_i \ln\left(1 + e^{-y_i (x_i^\top w + b)}\right),

    with the `l1_ratio` :math:`\rho` and `penalty_factors` :math:`f`, both 1 by default.  With more
    than two classes, each class is fitted against all others.  The duality gap of a fit bounds how
    far its objective is above the minimum.

    The parameters up to `fit_intercept`, and `class_weight`, define the model; the others control
    the fit.

    Parameters
    ----------
    tol : float, default=1e-4
        The fit ends when the duality gap is at most ``tol * C * sum(s) * ln(2)``, which is `tol`
        times the objective if w and b are 0.

    Attributes
    ----------
    classes_
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients w; float32 if X is float32, otherwise float64.
    sparse_coef_ : sparse array of the same shape
        `coef_` without its zeros.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts b.
    dual_gap_ : ndarray of shape (1,) or (n_classes,)
        Duality gap.  Except for rounding errors in float64, the objective is at most this far above
        its minimum.  If `coef_` is float32, this is the gap of the rounded coefficients.
    n_iter_ : ndarray of shape (1,) or (n_classes,)
        Number of steps of "resolve", or of passes over all coefficients by another schedule.
    history_
    solver_
    n_features_in_
    feature_names_in_
    fill_values_

    See Also
    --------
    SparseLogisticRegressionCV : Chooses C by cross-validation.
    PrioritizedLasso : L1 penalty for regression.

    References
    ----------
    .. [1] S. Lee, J. K. Kim, X. Zheng, Q. Ho, G. A. Gibson, E. P. Xing, "On model
       parallelization and scheduling strategies for distributed machine learning", NIPS 2014,
       section 3.3.
    .. [2] J. K. Bradley, A. Kyrola, D. Bickson, C. Guestrin, "Parallel coordinate descent for
       L1-regularized loss minimization", ICML 2011, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import SparseLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1000))
    >>> y = np.where(X[:, 0] - X[:, 1] > 0, "right", "left")
    >>> model = SparseLogisticRegression(C=0.05).fit(X, y)
    >>> np.flatnonzero(model.coef_).tolist(), model.predict(X[:3]).tolist() == y[:3].tolist()
    ([0, 1], True)
    """

    _name = "logistic"
    _what = "Logistic regression"
    _strength = "C"

    def __init__(
        self,
        C: float = 1.0,
        *,
        l1_ratio: float = 1.0,
        penalty_factors: Any = None,
        missing_values: Any = None,
        standardize: bool = False,
        fit_intercept: bool = True,
        schedule: str | Schedule = "resolve",
        class_weight: Any = None,
        max_iter: int = 1000,
        tol: float = 1e-4,
        warm_start: bool = False,
        n_shards: int | None = None,
        n_jobs: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 5,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        keep(self, locals())

    def _loss(self) -> Loss:
        return Logistic()


@described
class SparseLogisticRegressionCV(CrossValidated, LinearClassifier):
    """Sparse logistic regression with C chosen by cross-validation along a path of values.

    Parameters
    ----------
    Cs : int or array-like, default=10
        Values of C, or their number.  With a number, the values are spaced geometrically from 1e-4
        to 1e4.
    scoring : str, callable or None, default=None
        Score that is maximised on held-out samples; None means accuracy.  On Dask, the workers
        compute accuracy.  For another score, the client receives the decision values of each fold
        for all values of C, with 8 bytes each.  A callable then gets these values as X, and an
        estimator that predicts from them.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes in fits, but not in scores.  "balanced" weights are inversely
        proportional to class frequencies in all samples.
    tol : float, default=1e-7
        Tolerance of the duality gap.  In folds it is relative to the objective of zero
        coefficients, as in `SparseLogisticRegression`.  In the fit to all samples it is relative to
        the objective of the solution.  The default is small, because this objective is small if
        a large C separates the classes.

    Attributes
    ----------
    classes_
    C_ : float
        Value of C with the largest mean score over folds, or the smallest of equally good ones.
    C_1se_ : float
        Smallest value of C whose mean score with the chosen `l1_ratio_` is at least the largest
        mean minus its standard error.  The model is usually simpler than with `C_`, and about as
        good.
    Cs_ : ndarray of shape (n_Cs,)
        Values of C, in increasing order.
    scores_ : ndarray of shape (n_Cs, n_folds) or (n_ratios, n_Cs, n_folds)
        Score of each held-out fold, weighted by `sample_weight`.  It is NaN for values of C that
        `max_worse` left out.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients of the fit to all samples with `C_`.
    sparse_coef_ : sparse array of the same shape
        `coef_` without its zeros.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    dual_gap_ : ndarray of shape (1,) or (n_classes,)
        Duality gaps of the fit to all samples.
    n_iter_ : ndarray of shape (1,) or (n_classes,)
        Number of steps of the fit to all samples.
    l1_ratio_
    coefs_path_
    intercepts_path_
    coef_1se_
    intercept_1se_
    n_features_in_
    feature_names_in_
    fill_values_

    See Also
    --------
    SparseLogisticRegression : Logistic regression with a given C.
    sklearn.linear_model.LogisticRegressionCV : For two classes, usually chooses the same C with
        ``l1_ratios=(1,)``.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import SparseLogisticRegressionCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 20))
    >>> y = X[:, 0] > 0
    >>> SparseLogisticRegressionCV(Cs=[0.01, 0.1, 1.0]).fit(X, y).scores_.shape
    (3, 5)
    """

    _kind = SparseLogisticRegression
    _name = "logistic-cv"
    _what = "logistic regression"
    _values = "scores_"
    _sign = 1.0
    _n_tasks = 3
    C_: float

    def __init__(
        self,
        *,
        Cs: Any = 10,
        l1_ratio: float = 1.0,
        penalty_factors: Any = None,
        missing_values: Any = None,
        standardize: bool = False,
        cv: Any = None,
        scoring: Any = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        max_iter: int = 1000,
        tol: float = 1e-7,
        max_worse: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())

    def _loss(self) -> Loss:
        return Logistic()

    def _grid(self) -> Grid:
        given = (
            self.Cs
            if positive_values("Cs", self.Cs) is not None
            else np.logspace(-4, 4, int(self.Cs))
        )
        return Grid.of("C", given, 1.0)

    def _scorer(self) -> Any:
        return get_scorer(self.scoring or "accuracy")

    def _final(self, fit: Callable[[Any], list[Any]]) -> SparseLogisticRegression:
        """Fit on all samples, with a tolerance relative to the objective reached."""
        model = self._model().set_params(warm_start=True)
        models = fit(model)
        parts = np.array([one.objective / one.null_objective for one in models])
        gaps = np.array([one.certified_gap / one.null_objective for one in models])
        if not (gaps <= self.tol * parts).all():
            steps = model.n_iter_
            fit(model.set_params(tol=max(self.tol * float(parts.min()), LEAST)))
            model.n_iter_ = model.n_iter_ + steps
        return model

    def _scores(self, fold: Fold) -> Floats:
        """Return scores."""
        if self.scoring in (None, "accuracy") and set(fold.given.scored) <= {"sample_weight"}:
            return fold.held_out(Right(fold.codes))
        samples = fold.given.samples
        y = samples.y[fold.rows]
        options = _check_method_params(samples.y, fold.given.scored, indices=fold.rows)
        scorer = _knowing_classes(self._scorer(), fold.given.targets.classes)
        by_decisions = hasattr(scorer, "_response_method") or is_dask(samples.X)
        X = None if by_decisions else cut(samples.X, fold.rows)
        found = []
        for number, values in enumerate(fold.decisions(), fold.scored):
            if by_decisions:
                X = values.T
                given = fold.of_all_classes(np.eye(len(values)), np.zeros(len(values)))
            else:
                given = {**fold.attributes(number), "missing_values": self.missing_values}
            found.append(float(scorer(_model_of(given), X, y, **options)))
        if np.isnan(found).any():
            raise ValueError(
                f"scoring={self.scoring!r} is NaN on a fold of cv={brief(self.cv)}; give a "
                "splitter that holds out samples of every class, such as StratifiedKFold, or fewer "
                "folds"
            )
        return np.array(found)


def _model_of(attributes: Named) -> SparseLogisticRegression:
    """Return a fitted model whose input is decision values instead of samples."""
    model = SparseLogisticRegression()
    model.__dict__.update(attributes, n_features_in_=attributes["coef_"].shape[1])
    return model


def _knowing_classes(scorer: Any, classes: Any) -> Any:
    """Return a scorer with fixed labels, if its metric accepts labels.

    A fold may lack some classes.
    """
    metric = getattr(scorer, "_score_func", None)
    known = inspect.signature(metric).parameters if metric else {}
    if "labels" not in known:
        return scorer
    options = {"labels": classes, **getattr(scorer, "_kwargs", {})}
    if len(classes) == 2 and "pos_label" in known:
        options = {"pos_label": classes[1], **options}
    return make_scorer(
        metric,
        greater_is_better=scorer._sign == 1,
        response_method=scorer._response_method,
        **options,
    )


@described
def sparse_logistic_path(
    X: Any,
    y: Any,
    *,
    eps: float = 1e-2,
    Cs: Any = 30,
    l1_ratio: float = 1.0,
    penalty_factors: Any = None,
    missing_values: Any = None,
    standardize: bool = False,
    fit_intercept: bool = True,
    class_weight: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-4,
    max_explained: float = 1.0,
    max_worse: int | None = None,
    validation_data: Any = None,
    sample_weight: Any = None,
) -> tuple[Array, Array, Array, Array]:
    """Solve sparse logistic regression for several values of C, with a duality gap for each.

    The duality gap bounds how far the objective of a solution is above its minimum.  Each fit
    starts from the previous solution.  The strong rule skips columns that probably have the
    coefficient 0; each solution is then checked on all columns.

    Parameters
    ----------
    X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
        Samples.  Each chunk of rows of a Dask collection is a partition, as in
        `SparseLogisticRegression`.
    y : array-like or Dask collection of shape (n_samples,)
        Labels of two classes.
    Cs : int or array-like, default=30
        Values of C, or their number.  With a number, the values are spaced geometrically, up from
        the largest C for which all penalised coefficients are 0.
    tol : float, default=1e-4
        Tolerance of the duality gap, as in `SparseLogisticRegression`.  Each fit also tries to
        reduce its first gap to a hundredth, or to rounding errors.

    Returns
    -------
    Cs : ndarray of shape (n_Cs,)
        Values of C, in increasing order.
    coefs : ndarray of shape (n_features, n_Cs)
        Coefficients of the log odds of the second of the sorted classes.
    intercepts : ndarray of shape (n_Cs,)
        Intercepts.
    dual_gaps : ndarray of shape (n_Cs,)
        Duality gaps of the solutions, in units of the objective of `SparseLogisticRegression`.

    Raises
    ------
    ValueError
        If X, y or the weights are masked or not finite (except missing values of X), empty or of
        different lengths.  If weights are negative or all zero.  If y does not have two classes.
        If a parameter is invalid.
    TypeError

    Warns
    -----
    ConvergenceWarning

    See Also
    --------
    SparseLogisticRegressionCV : Chooses C by cross-validation.
    sklearn.svm.l1_min_c : The largest C whose solution is zero, for classes of equal weight.

    References
    ----------
    R. Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS-B
    2012, section 5.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import sparse_logistic_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 50))
    >>> Cs, coefs, intercepts, gaps = sparse_logistic_path(X, X[:, 0] - X[:, 1] > 0, Cs=5)
    >>> coefs.shape, int((coefs[:, 0] != 0).sum()), np.flatnonzero(coefs[:, 1]).tolist()
    ((50, 5), 0, [0, 1])
    """
    return path_of(
        sparse_logistic_path, SparseLogisticRegressionCV, locals(), Grid.of("C", Cs, eps)
    )
