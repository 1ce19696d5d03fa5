"""Sparse linear models of any loss with any penalty."""

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, RegressorTags, Tags

from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.inputs.validation import keep
from schmp_estimators.core.schedules.dynamic import Schedule
from schmp_estimators.core.typing import Array, Named
from schmp_estimators.linear.contracts import declared, is_joint
from schmp_estimators.linear.cross_validated import CrossValidated
from schmp_estimators.linear.fitting import Penalised, SparseModel
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.losses.huber import Huber
from schmp_estimators.linear.losses.logistic import Logistic
from schmp_estimators.linear.losses.multinomial import Multinomial
from schmp_estimators.linear.losses.poisson import Poisson
from schmp_estimators.linear.losses.squared import Squared
from schmp_estimators.linear.paths import path_of
from schmp_estimators.linear.penalties.base import fields_of, read_only
from schmp_estimators.linear.penalties.choose import choose_penalty, factors_of, labels_of
from schmp_estimators.linear.penalties.elastic_net import L1
from schmp_estimators.linear.penalties.group import check_blocks, group_penalty
from schmp_estimators.linear.penalties.mcp import MCP
from schmp_estimators.linear.predicting import Deciding
from schmp_estimators.linear.programs.choose import kind_of
from schmp_estimators.linear.texts import described

#: By name: what makes a loss, and what makes a penalty of a strength: of ratio, factors and
#: `positive`.
LOSSES: Named = {"squared": Squared, "logistic": Logistic, "multinomial": Multinomial}
LOSSES |= {"poisson": Poisson, "huber": Huber}
PENALTIES: Named = {
    "l1": lambda strength, _, factors, positive: choose_penalty(strength, 1.0, factors, positive),
    "elasticnet": choose_penalty,
    "group": None,  # which needs more than strengths
    "mcp": lambda strength, _, factors, positive: MCP(read_only(strength * factors), _GAMMA),
}
#: Zhang's γ: coefficients of standardised columns are not shrunk from γ times the penalty on.
_GAMMA = 3.0


def find_loss(loss: Any) -> Loss:
    """Return the loss for the value of the parameter `loss`."""
    if isinstance(loss, str) and loss not in LOSSES:
        raise ValueError(
            f"loss={loss!r}; give one of {sorted(LOSSES)}, or an object such as penalised.Loss "
            "describes"
        )
    return LOSSES[loss]() if isinstance(loss, str) else loss


class Pair(Deciding, Penalised, BaseEstimator):
    """An estimator with the parameters `loss` and `penalty`.

    Its tags for scikit-learn follow the loss.
    """

    loss: Any
    penalty: Any

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = not declared(self._loss(), "signed")
        if self._classifies:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags()
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags()
            # scikit-learn tries those of any sign
            tags.target_tags.multi_output = not tags.target_tags.positive_only
        return tags

    def _loss(self) -> Loss:
        return find_loss(self.loss)

    def _validate_params(self) -> None:
        """Raise an error early if a loss, a penalty and other parameters cannot be combined."""
        super()._validate_params()
        schedule = getattr(self, "schedule", "resolve")
        penalty = self.penalty
        loss = self._loss()
        is_named = isinstance(penalty, str)
        grouped = penalty == "group" or declared(penalty, "in_blocks")
        if is_named and penalty not in PENALTIES:
            raise ValueError(
                f"penalty={penalty!r}; give one of {sorted(PENALTIES)}, or an object such as "
                "penalised.Penalty describes"
            )
        if self.l1_ratio is not None and penalty != "elasticnet":
            raise ValueError(
                f'l1_ratio={self.l1_ratio!r} needs penalty="elasticnet"; got penalty={penalty!r}'
            )
        if self.groups is not None and penalty != "group":
            raise ValueError(f'groups needs penalty="group"; got penalty={penalty!r}')
        if self.positive and penalty in ("mcp", "group"):
            raise ValueError(
                f'positive=True cannot be combined with penalty={penalty!r}; give penalty="l1"'
            )
        if not is_named and (self.penalty_factors is not None or self.positive):
            raise ValueError(
                "penalty_factors and positive need a penalty given by name; an object has its own"
            )
        if self.standardize and (not is_named or self.groups is not None):
            raise ValueError(
                "standardize=True cannot be combined with groups, or with a penalty given as an "
                "object; put a StandardScaler before the model"
            )
        if not grouped and not is_joint(loss):
            kind_of(schedule, loss, L1(1.0) if is_named else penalty)
            return
        if grouped and not is_named:
            kind_of(schedule, loss, penalty)
        if penalty == "group" and self.groups is None and not is_joint(loss):
            raise ValueError(
                'penalty="group" needs groups: the group of each column, or the columns of each '
                "group"
            )
        if is_named and not grouped and penalty not in ("l1", "elasticnet"):
            raise ValueError(
                'loss="multinomial" needs penalty "l1", "elasticnet" or "group"; got '
                f"penalty={penalty!r}"
            )
        if schedule != "resolve":
            raise ValueError(
                f'penalty="group" and loss="multinomial" need schedule="resolve"; got {schedule!r}'
            )

    def _penalty(self, strength: float, ratio: Any) -> Any:
        """Return the penalty of a strength for the columns of X; the default L1 ratio is ½."""
        given = self.penalty
        n_columns = self.n_features_in_
        if given == "group":
            groups = range(n_columns) if self.groups is None else self.groups
            labels = labels_of(self)
            return group_penalty(groups, n_columns, self.penalty_factors, labels).scaled(strength)
        if isinstance(given, str):
            ratio = 0.5 if ratio is None else ratio
            return PENALTIES[given](strength, ratio, factors_of(self), self.positive)
        penalty = type(given)(*(unmask(field, "penalty") for field in fields_of(given)))
        if declared(penalty, "in_blocks"):
            check_blocks(penalty.columns, penalty.starts, n_columns)
            return penalty.scaled(strength)
        for field in fields_of(penalty):
            if np.ndim(field) and np.shape(field) != (n_columns,):
                raise ValueError(
                    f"penalty holds an array of shape {np.shape(field)}; give one number for all "
                    f"columns of X, or an array of shape ({n_columns},)"
                )
        return penalty.scaled(strength)


@described
class SparseGLM(Pair, SparseModel):
    r"""Linear model with any convex loss and any penalty that is a sum over coefficients or groups.

    With weights :math:`s_i`, `sample_weight` times `class_weight`, the model minimises over the
    coefficients :math:`\beta` and the intercept :math:`b`

    .. math:: \frac{1}{\sum_i s_i} \sum_i s_i\, \ell(y_i, x_i^\top\beta + b) + \alpha P(\beta).

    `PrioritizedLasso` is this model with the loss "squared" and the penalty "l1" or "elasticnet".
    `SparseLogisticRegression` has the loss "logistic" with the same penalties, and C = 1/(α Σ s).
    The duality gap of a fit bounds how far its objective is above the minimum.  Some losses and
    penalties, such as "mcp", have no duality gap.

    The parameters up to `fit_intercept`, and `class_weight` and `positive`, define the model; the
    others control the fit.

    Parameters
    ----------
    l1_ratio : float, default=None
        Weight ρ of absolute values in penalty="elasticnet", from 1e-6 to 1.  None means ½.
    tol : float, default=1e-4
        The fit ends when the duality gap is at most `tol` times the objective of zero coefficients.
        For the squared loss, this limit is ``tol * sum(s * y ** 2) / sum(s)`` with y centred if
        there is an intercept.  Without a duality gap, `stationarity_` is compared instead.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, if the model is a classifier.  If there are more than two, each class is
        fitted against all others, except with the loss "multinomial".
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Coefficients β; float32 if X is float32, otherwise float64.  For a classifier, the shape is
        (1, n_features) or (n_classes, n_features).
    sparse_coef_
    intercept_ : float or ndarray of shape (n_targets,)
        Intercept b; an array if the model is a classifier.
    dual_gap_ : float or ndarray of shape (n_targets,)
        Duality gap, in units of the objective; NaN if the loss or the penalty has none.
    stationarity_ : float or ndarray of shape (n_targets,)
        Estimate of how much updates of single coefficients could still lower the objective.
        Defined only without a duality gap.
    n_iter_
    history_
    solver_
    n_features_in_
    feature_names_in_
    fill_values_

    See Also
    --------
    SparseGLMCV : Chooses alpha by cross-validation.
    sparse_glm_path : Solutions for several alphas.
    PrioritizedLasso, SparseLogisticRegression : Two of these models, with the parameters of
        scikit-learn.

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
    >>> from schmp_estimators import SparseGLM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 50))
    >>> y = np.where(X[:, 0] - X[:, 1] > 0, "right", "left")
    >>> model = SparseGLM("logistic", alpha=0.1).fit(X, y)
    >>> np.flatnonzero(model.coef_).tolist(), model.predict(X[:3]).tolist() == y[:3].tolist()
    ([0, 1], True)
    """

    def __init__(
        self,
        loss: Any = "squared",
        penalty: Any = "l1",
        alpha: float = 1.0,
        *,
        l1_ratio: float | None = None,
        penalty_factors: Any = None,
        groups: Any = None,
        missing_values: Any = None,
        standardize: bool = False,
        fit_intercept: bool = True,
        schedule: str | Schedule = "resolve",
        class_weight: Any = None,
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


@described
class SparseGLMCV(Pair, CrossValidated):
    """Linear model with any loss and any penalty, where alpha is chosen by cross-validation.

    If y has several columns, a penalty is chosen for each.  These targets are then the first
    dimension of results such as `coef_`.

    Parameters
    ----------
    l1_ratio : float, default=None
        Weight ρ as in `SparseGLM`, or a list of values to choose from.  None means ½.
    tol : float, default=1e-4
        Tolerance of the duality gap.  The folds use it as `sparse_glm_path` does, and the fit to
        all samples as `SparseGLM` does.

    Attributes
    ----------
    alpha_
    alpha_1se_
    alphas_
    deviance_path_ : ndarray of shape (n_alphas, n_folds) or (n_ratios, n_alphas, n_folds)
        Twice the mean loss of each held-out fold, weighted by `sample_weight`.  For the squared
        loss this is the mean squared error.  If each class is fitted against all others, the losses
        of the classes are added up.  Penalties that `max_worse` left out have NaN.
    classes_ : ndarray of shape (n_classes,)
        Class labels, if the model is a classifier.
    coef_ : ndarray of shape (n_features,)
        Coefficients of the fit to all samples with `alpha_`.  For a classifier, the shape is (1,
        n_features) or (n_classes, n_features).
    sparse_coef_
    intercept_ : float
        Intercept; an array if the model is a classifier.
    dual_gap_ : float
        Duality gap of the fit to all samples; an array if the model is a classifier.  It is NaN if
        the loss or the penalty has none.
    n_iter_ : int
        Number of steps of the fit to all samples; an array if the model is a classifier.
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
    SparseGLM : Model with a given penalty.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import SparseGLMCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 20))
    >>> y = X[:, 0] > 0.3 * rng.normal(size=100)
    >>> SparseGLMCV("logistic", alphas=[0.1, 0.01]).fit(X, y).deviance_path_.shape
    (2, 5)
    """

    _kind = SparseGLM
    _name = "glm-cv"
    _what = "the model"
    _values = "deviance_path_"

    def __init__(
        self,
        loss: Any = "squared",
        penalty: Any = "l1",
        *,
        eps: float = 1e-3,
        alphas: Any = 100,
        l1_ratio: float | None = None,
        penalty_factors: Any = None,
        groups: Any = None,
        missing_values: Any = None,
        standardize: bool = False,
        cv: Any = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        positive: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-4,
        max_worse: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())


@described
def sparse_glm_path(
    X: Any,
    y: Any,
    loss: Any = "squared",
    penalty: Any = "l1",
    *,
    eps: float = 1e-3,
    alphas: Any = 100,
    l1_ratio: float | None = None,
    penalty_factors: Any = None,
    groups: Any = None,
    missing_values: Any = None,
    standardize: bool = False,
    fit_intercept: bool = True,
    class_weight: Any = None,
    positive: bool = False,
    max_iter: int = 1000,
    tol: float = 1e-4,
    max_explained: float = 1.0,
    max_worse: int | None = None,
    validation_data: Any = None,
    sample_weight: Any = None,
) -> tuple[Array, Array, Array, Array]:
    """Solve a linear model with any loss and any penalty for several alphas.

    Each fit starts from the previous solution.  The duality gap, if there is one, bounds how far
    the objective of a solution is above its minimum.

    Parameters
    ----------
    y : array-like or Dask collection of shape (n_samples,)
        Responses, or class labels.  Labels are of two classes, except with the loss "multinomial".
    l1_ratio : float, default=None
        Weight ρ as in `SparseGLM`.  None means ½.
    tol : float, default=1e-4
        Tolerance of the duality gap, as in `SparseGLM`.  Each fit also tries to reduce its first
        gap to a hundredth, or to rounding errors.

    Returns
    -------
    alphas : ndarray of shape (n_alphas,)
        Penalties, in decreasing order.
    coefs : ndarray of shape (n_features, n_alphas) or (n_classes, n_features, n_alphas)
        Coefficients.  With the loss "multinomial" and more than two classes, each class has its
        own.
    intercepts : ndarray of shape (n_alphas,) or (n_classes, n_alphas)
        Intercepts.
    dual_gaps : ndarray of shape (n_alphas,)
        Duality gap of each solution, on the scale of the objective of `SparseGLM`.  If the loss or
        the penalty has none, these are values of `stationarity_`, as in `SparseGLM`.

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
    SparseGLMCV : Chooses a penalty of the path by cross-validation.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import sparse_glm_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 200))
    >>> alphas, coefs, intercepts, gaps = sparse_glm_path(X, X[:, 0] > 0, "logistic", alphas=5)
    >>> coefs.shape, int((coefs[:, 0] != 0).sum())
    ((200, 5), 0)
    """
    return path_of(sparse_glm_path, SparseGLMCV, locals())
