"""The Lasso: least squares with an L1 penalty."""

import os
from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin

from schmp_estimators.core.inputs.validation import keep
from schmp_estimators.core.schedules.dynamic import Schedule
from schmp_estimators.linear.cross_validated import CrossValidated
from schmp_estimators.linear.fitting import SparseModel
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.losses.squared import Squared
from schmp_estimators.linear.paths import path_of
from schmp_estimators.linear.predicting import LinearRegressor
from schmp_estimators.linear.texts import described


@described
class PrioritizedLasso(MultiOutputMixin, SparseModel, LinearRegressor):
    r"""Linear regression with an L1 penalty, solved up to a given duality gap.

    The model minimises over the coefficients :math:`\beta` and the intercept :math:`b`

    .. math:: \frac{1}{2n} \sum_i (y_i - x_i^\top\beta - b)^2
        + \alpha \sum_j f_j \left(\rho |\beta_j| + \frac{1 - \rho}{2} \beta_j^2\right),

    with the `l1_ratio` :math:`\rho` and `penalty_factors` :math:`f`, both 1 by default.
    `sample_weight` weights the squares, and its sum replaces n.  This is the objective of
    :class:`sklearn.linear_model.Lasso` and :class:`~sklearn.linear_model.ElasticNet`, with the same
    parameter names.  The duality gap of a fit bounds how far its objective is above the minimum.

    The parameters up to `fit_intercept`, and `positive`, define the model; the others control the
    fit.

    Parameters
    ----------
    tol : float, default=1e-4
        The fit ends when the duality gap is at most ``tol * sum(y ** 2) / n_samples``.  If there is
        an intercept, y is centred in this formula.  With `sample_weight`, the mean of squares is
        weighted.

    Attributes
    ----------
    coef_
    sparse_coef_
    intercept_
    dual_gap_ : float or ndarray of shape (n_targets,)
        Duality gap, in units of the objective.  Except for rounding errors in float64, the
        objective is at most this far above its minimum.  If `coef_` is float32, this is the gap of
        the rounded coefficients.
    n_iter_
    history_
    solver_
    n_features_in_
    feature_names_in_
    fill_values_

    See Also
    --------
    PrioritizedLassoCV : Chooses alpha by cross-validation.
    SparseLogisticRegression : L1 penalty for classification.

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
    >>> from schmp_estimators import PrioritizedLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 1000))
    >>> y = 3 * X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=100)
    >>> lasso = PrioritizedLasso(alpha=0.1).fit(X, y)
    >>> np.flatnonzero(lasso.coef_).tolist()
    [0, 1]
    """

    _what = "The Lasso"

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 1.0,
        penalty_factors: Any = None,
        missing_values: Any = None,
        standardize: bool = False,
        fit_intercept: bool = True,
        schedule: str | Schedule = "resolve",
        max_iter: int = 1000,
        tol: float = 1e-4,
        positive: bool = False,
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
        return Squared()


@described
class PrioritizedLassoCV(MultiOutputMixin, CrossValidated, LinearRegressor):
    """Lasso whose penalty is chosen by cross-validation along a path of penalties.

    If y has several columns, a penalty is chosen for each.  Each column is a target, and results
    such as `coef_` have the targets along their first axis.

    Parameters
    ----------
    tol : float, default=1e-4
        Tolerance of the duality gap.  The folds use it as `prioritized_lasso_path` does, and the
        fit to all samples as `PrioritizedLasso` does.

    Attributes
    ----------
    alpha_
    alpha_1se_
    alphas_
    mse_path_ : ndarray of shape (n_alphas, n_folds) or (n_ratios, n_alphas, n_folds)
        Mean squared error of each held-out fold, weighted by `sample_weight`.  It is NaN for
        penalties that `max_worse` left out.
    coef_ : ndarray of shape (n_features,)
        Coefficients of the fit to all samples with `alpha_`.
    sparse_coef_ : sparse array of shape (1, n_features)
        `coef_` without its zeros.
    intercept_ : float
        Intercept.
    dual_gap_ : float
        Duality gap of the fit to all samples.
    n_iter_ : int
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
    PrioritizedLasso : Lasso with a given penalty.
    prioritized_lasso_path : Solutions for all penalties.
    sklearn.linear_model.LassoCV : Usually chooses the same penalty.

    References
    ----------
    R. Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS-B
    2012, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import PrioritizedLassoCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 50))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=100)
    >>> PrioritizedLassoCV(alphas=20).fit(X, y).mse_path_.shape
    (20, 5)
    """

    _kind = PrioritizedLasso
    _what = "the Lasso"

    def __init__(
        self,
        *,
        eps: float = 1e-3,
        alphas: Any = 100,
        l1_ratio: float = 1.0,
        penalty_factors: Any = None,
        missing_values: Any = None,
        standardize: bool = False,
        cv: Any = None,
        fit_intercept: bool = True,
        positive: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-4,
        max_worse: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())

    def _loss(self) -> Loss:
        return Squared()


@described
def prioritized_lasso_path(
    X: Any,
    y: Any,
    *,
    eps: float = 1e-3,
    alphas: Any = 100,
    l1_ratio: float = 1.0,
    penalty_factors: Any = None,
    missing_values: Any = None,
    standardize: bool = False,
    fit_intercept: bool = True,
    positive: bool = False,
    max_iter: int = 1000,
    tol: float = 1e-4,
    max_explained: float = 1.0,
    max_worse: int | None = None,
    validation_data: Any = None,
    sample_weight: Any = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Solve the Lasso for several penalties, with a duality gap for each solution.

    The duality gap bounds how far the objective of a solution is above its minimum.  Each fit
    starts from the previous solution.  The strong rule skips columns that probably have the
    coefficient 0; each solution is then checked on all columns.

    Parameters
    ----------
    X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
        Samples.  Each chunk of rows of a Dask collection is a partition, as in `PrioritizedLasso`.
    y : array-like or Dask collection of shape (n_samples,)
        Responses.
    tol : float, default=1e-4
        Tolerance of the duality gap, as in `PrioritizedLasso`.  Each fit also tries to reduce its
        first gap to a hundredth, or to rounding errors, so that neighbouring solutions differ.

    Returns
    -------
    alphas : ndarray of shape (n_alphas,)
        Penalties, in decreasing order.
    coefs : ndarray of shape (n_features, n_alphas)
        Coefficients.
    intercepts : ndarray of shape (n_alphas,)
        Intercepts.
    dual_gaps : ndarray of shape (n_alphas,)
        Duality gaps.

    Raises
    ------
    ValueError
        If X, y or the weights are masked or not finite (except missing values of X), empty or of
        different lengths.  If weights are negative or all zero.  If a parameter is invalid.
    TypeError

    Warns
    -----
    ConvergenceWarning

    See Also
    --------
    sklearn.linear_model.lasso_path : Returns (alphas, coefs, dual_gaps), without intercepts.
    PrioritizedLassoCV : Chooses a penalty of the path by cross-validation.

    References
    ----------
    R. Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS-B
    2012, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import prioritized_lasso_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 200))
    >>> alphas, coefs, intercepts, gaps = prioritized_lasso_path(X, X[:, 0], alphas=5)
    >>> coefs.shape, int((coefs[:, 0] != 0).sum())
    ((200, 5), 0)
    """
    return path_of(prioritized_lasso_path, PrioritizedLassoCV, locals())
