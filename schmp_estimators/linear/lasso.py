"""The Lasso: least squares with an L1 penalty."""

import os
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin

from schmp_estimators.linear.cross_validated import CrossValidated
from schmp_estimators.linear.fitting import SparseModel
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.losses.squared import Squared
from schmp_estimators.linear.paths import path_of
from schmp_estimators.linear.penalties.choose import Grid, unit_penalty
from schmp_estimators.linear.predicting import LinearRegressor
from schmp_estimators.linear.texts import check_arguments, described, keep


@described
class PrioritizedLasso(MultiOutputMixin, SparseModel, LinearRegressor):
    r"""Linear model with an L1 penalty, fitted by priority-scheduled coordinate descent, certified by a duality gap.

    Minimises over :math:`\beta` and :math:`b`

    .. math:: \frac{1}{2n} \sum_i (y_i - x_i^\top\beta - b)^2
        + \alpha \sum_j f_j \left(\rho |\beta_j| + \frac{1 - \rho}{2} \beta_j^2\right),

    with the L1 ratio :math:`\rho` and penalty factors :math:`f`, both 1 by default: the objectives of
    :class:`sklearn.linear_model.Lasso` and :class:`~sklearn.linear_model.ElasticNet`, with the same meaning of every
    shared parameter.

    Parameters
    ----------
    tol : float, default=1e-4
        The fit ends when the duality gap is at most ``tol * sum(y ** 2) / n_samples`` (of the centred response).

    Attributes
    ----------
    coef_
    sparse_coef_
    intercept_
    dual_gap_ : float or ndarray of shape (n_targets,)
        Duality gap reached, in units of the objective: the objective is at most this far from its minimum, up to the
        rounding of float64.  If `coef_` is float32, it is the gap of the rounded coefficients.
    n_iter_
    history_
    solver_
    n_features_in_
    feature_names_in_

    See Also
    --------
    PrioritizedLassoCV : Chooses alpha by cross-validation.
    SparseLogisticRegression : The same for classification.

    References
    ----------
    .. [1] S. Lee, J. K. Kim, X. Zheng, Q. Ho, G. A. Gibson, E. P. Xing, "On model parallelization and scheduling
       strategies for distributed machine learning", NIPS 2014, section 3.3.
    .. [2] J. K. Bradley, A. Kyrola, D. Bickson, C. Guestrin, "Parallel coordinate descent for L1-regularized loss
       minimization", ICML 2011, section 3.

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
        fit_intercept: bool = True,
        schedule: str = "resolve",
        max_iter: int = 1000,
        tol: float = 1e-4,
        positive: bool = False,
        warm_start: bool = False,
        n_parallel: int = 64,
        max_correlation: float | None = None,
        pipeline_depth: int = 1,
        n_schedulers: int = 1,
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
    """Lasso whose penalty is chosen by cross-validation along a path.

    For each of several targets (y of two dimensions) one is chosen; attributes then have one more dimension, the first.

    Parameters
    ----------
    tol : float, default=1e-4
        Duality gap to reach; see `prioritized_lasso_path` for the folds, `PrioritizedLasso` for the fit on all samples.

    Attributes
    ----------
    alpha_
    alpha_1se_
    alphas_
    mse_path_ : ndarray of shape (n_alphas, n_folds) or (n_ratios, n_alphas, n_folds)
        Mean squared error of each held-out fold, weighted by `sample_weight`; NaN where a callback has ended a path.
    coef_ : ndarray of shape (n_features,)
        Coefficients of the fit on all samples with `alpha_`.
    sparse_coef_ : sparse array of shape (1, n_features)
        `coef_` without its zeros.
    intercept_ : float
        Intercept.
    dual_gap_ : float
        Duality gap of the fit on all samples.
    n_iter_ : int
        Outer steps of the fit on all samples.
    l1_ratio_
    coefs_path_
    intercepts_path_
    coef_1se_
    intercept_1se_
    n_features_in_
    feature_names_in_

    See Also
    --------
    PrioritizedLasso : The same with a given penalty.
    prioritized_lasso_path : Solutions for all penalties.
    sklearn.linear_model.LassoCV : Chooses the same penalty.

    References
    ----------
    R. Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS-B 2012, section 2.

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

    _kind, _what = PrioritizedLasso, "the Lasso"

    def __init__(
        self,
        *,
        eps: float = 1e-3,
        alphas: Any = 100,
        l1_ratio: float = 1.0,
        penalty_factors: Any = None,
        cv: Any = None,
        fit_intercept: bool = True,
        positive: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-4,
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
    fit_intercept: bool = True,
    positive: bool = False,
    max_iter: int = 1000,
    tol: float = 1e-4,
    max_explained: float = 1.0,
    sample_weight: Any = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Compute the Lasso for several penalties, each certified by its duality gap.

    Every solution starts from the one before; the strong rule leaves columns out until the solution is verified on all
    of them, and the Gram matrix of candidates is shared.  Each penalty is solved anew, also where the solution before
    would meet the tolerance: neighbours differ where they should.

    Parameters
    ----------
    X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
        Samples.  On Dask it stays where it is, and each chunk of rows makes a partition, as in `PrioritizedLasso`.
    y : array-like or Dask collection of shape (n_samples,)
        Responses.
    tol : float, default=1e-4
        Duality gap to reach, see `PrioritizedLasso`; and each gap is at most a hundredth of the one that the exact
        solution before has at this alpha, as far as that is above rounding.

    Returns
    -------
    alphas : ndarray of shape (n_alphas,)
        Penalties, falling.
    coefs : ndarray of shape (n_features, n_alphas)
        Coefficients.
    intercepts : ndarray of shape (n_alphas,)
        Intercepts.
    dual_gaps : ndarray of shape (n_alphas,)
        Duality gaps reached.

    Raises
    ------
    ValueError
        If X, y or the weights are masked, not finite, empty or of different lengths, or the weights are negative or all
        zero; if a parameter is not what it should be.
    TypeError

    Warns
    -----
    ConvergenceWarning

    See Also
    --------
    sklearn.linear_model.lasso_path : Returns (alphas, coefs, dual_gaps), without intercepts, which it does not fit.
    PrioritizedLassoCV : Chooses a point of the path by cross-validation.

    References
    ----------
    R. Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS-B 2012, section 2.

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
    check_arguments(prioritized_lasso_path, locals())
    penalty = partial(unit_penalty, l1_ratio=l1_ratio, penalty_factors=penalty_factors, positive=positive)
    return path_of("prioritized_lasso_path", "The Lasso", Squared(), Grid.of("alpha", alphas, eps), penalty, locals())
