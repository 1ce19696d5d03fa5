"""Sparse logistic regression for rising C, each solution from the one before."""

from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions, validate_parameter_constraints

from schmp_estimators.linear import opening as shared
from schmp_estimators.linear.classifier import class_weights, find_classes
from schmp_estimators.linear.cross_validated import positive_values
from schmp_estimators.linear.following import CONSTRAINTS, PENALTY_CONSTRAINTS
from schmp_estimators.linear.paths import PathProgram, Target, run_path
from schmp_estimators.linear.penalties.choose import unit_penalty
from schmp_estimators.linear.programs.input import Label, prefer_residual, resolution
from schmp_estimators.linear.programs.path import LogisticPath, PathOptions

_CONSTRAINTS: dict[str, list[Any]] = {
    "eps": [Interval(Real, 0, 1, closed="neither")],
    "Cs": [Interval(Integral, 1, None, closed="left"), "array-like"],
    "class_weight": [dict, StrOptions({"balanced"}), None],
    **PENALTY_CONSTRAINTS,
    **CONSTRAINTS,
}
#: Part of the gap that the solution before has at a C, to which that at C has to come.
_OF_STEP = 0.01


def sparse_logistic_path(
    X: Any,
    y: Any,
    *,
    eps: float = 1e-2,
    Cs: Any = 30,
    l1_ratio: float = 1.0,
    penalty_factors: Any = None,
    fit_intercept: bool = True,
    class_weight: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-4,
    sample_weight: Any = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Compute sparse logistic regression for several C, each certified by its duality gap.

    Every solution starts from the one before; the strong rule leaves columns out until the solution is verified on all
    of them, and moments of the columns are taken once.  Each C is solved anew, also where the solution before would
    meet the tolerance.

    Parameters
    ----------
    X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
        Samples.  On Dask it stays where it is, and each chunk of rows makes a partition, as in
        `SparseLogisticRegression`.
    y : array-like or Dask collection of shape (n_samples,)
        Labels of two classes.
    eps : float, default=1e-2
        Ratio of the smallest to the largest C, where `Cs` is a number.
    Cs : int or array-like, default=30
        Values of C, or how many to space geometrically up from the largest one whose solution is zero.
    l1_ratio : float, default=1.0
        Part of the penalty that is absolute values; see `SparseLogisticRegression`.
    penalty_factors : array-like of shape (n_features,) or None, default=None
        Factors of the penalty of each coefficient, 0 for columns that are never penalised; see
        `SparseLogisticRegression`.
    fit_intercept : bool, default=True
        Whether to fit an intercept for each C.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; "balanced": inversely proportional to their frequencies.
    max_iter : int, default=1000
        Most outer steps for each C.
    tol : float, default=1e-4
        Duality gap to reach, as a part of the objective at zero, see `SparseLogisticRegression`; and each gap is at
        most a hundredth of the one that the solution before has at this C, as far as that is above rounding.
    sample_weight : array-like or Dask collection of shape (n_samples,), default=None
        Weights of the samples.

    Returns
    -------
    Cs : ndarray of shape (n_Cs,)
        Values of C, rising.
    coefs : ndarray of shape (n_features, n_Cs)
        Coefficients, for the log odds of the second class in sorted order.
    intercepts : ndarray of shape (n_Cs,)
        Intercepts.
    dual_gaps : ndarray of shape (n_Cs,)
        Duality gaps reached, in units of the objective of `SparseLogisticRegression`.

    Raises
    ------
    ValueError
        If X, y or the weights are masked, not finite, empty or of different lengths, or the weights are negative or all
        zero; if y does not hold two classes; if a parameter is not what it should be.
    TypeError
        If X is a Dask collection of another kind than arrays, data frames and lists of Delayed objects.

    Warns
    -----
    ConvergenceWarning
        If a gap is above the tolerance after `max_iter`.

    See Also
    --------
    SparseLogisticRegressionCV : Chooses C by cross-validation.
    sklearn.svm.l1_min_c : The largest C whose solution is zero, where classes are of equal weight.

    References
    ----------
    R. Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", JRSS-B 2012, section 5.

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
    common: dict[str, Any] = {"fit_intercept": fit_intercept, "max_iter": max_iter}
    penalised = {"l1_ratio": l1_ratio, "penalty_factors": penalty_factors}
    parameters = {"eps": eps, "Cs": Cs, "tol": tol, "class_weight": class_weight, **common, **penalised}
    validate_parameter_constraints(_CONSTRAINTS, parameters, "sparse_logistic_path")
    given = positive_values("Cs", Cs)

    def program(problem: shared.Problem) -> PathProgram:
        size = problem.extent
        path = LogisticPath(
            PathOptions(unit_penalty(size.n_columns, **penalised), tol, **common),
            prefer_residual(size),
            n_partitions=problem.n_partitions,
            n_rows=size.n_rows,
            eps=resolution(size.dtype),
            part=_OF_STEP,
        )
        penalties = partial(_penalties, given, Cs, eps)
        return PathProgram(path, penalties, "Logistic regression at C={:.3g}", Label(1))

    target = partial(_codes, class_weight)
    found = run_path("sparse_logistic_path", program, target, X, y, sample_weight, max_iter)
    return found.penalties, found.coefs, found.intercepts, found.penalties * found.gaps


def _penalties(given: np.ndarray | None, count: Any, ratio: float, smallest: float) -> np.ndarray:
    return _rising(smallest, int(count), ratio) if given is None else given


def _codes(class_weight: Any, samples: shared.Samples) -> Target:
    """Return the numbers of the classes, and the weights of samples times those of their classes."""
    classes, codes = find_classes(samples.y)
    if len(classes) != 2:
        named = ", ".join(map(repr, classes[:5].tolist())) + (", …" if len(classes) > 5 else "")
        raise ValueError(
            f"y holds {len(classes)} classes, {named} (of samples with positive weight); a path is that of two: give "
            "y == label for one class against all others"
        )
    return codes.astype(np.float64), class_weights(class_weight, classes, samples.y, samples.weights)


def _rising(smallest: float, count: int, ratio: float) -> np.ndarray:
    smallest = smallest if np.isfinite(smallest) else 1.0  # where every solution is zero
    return np.geomspace(smallest, smallest / ratio, count) if count > 1 else np.array([smallest])
