"""Stability selection: which columns are selected in most random halves of the samples."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed

from schmp_estimators.core.typing import Array, Masks
from schmp_estimators.linear.fitting import SparseModel
from schmp_estimators.linear.penalties.choose import positive_values
from schmp_estimators.linear.programs.layout import Layout
from schmp_estimators.linear.samples import here
from schmp_estimators.linear.texts import check_arguments


class Stability(NamedTuple):
    """Result of `stability_selection`.

    Parameters
    ----------
    probabilities : ndarray of shape (n_features, n_penalties)
        Share of the halves in which a column is selected, that is, has a coefficient other than
        zero for some class or target.
    penalties : ndarray of shape (n_penalties,)
        Values of alpha or C, the strongest penalty first.
    selected : ndarray of shape (n_features,), dtype bool
        Whether the largest probability of a column over all penalties is at least the threshold.
        It is True for columns without a penalty, because nearly every fit selects them.
    n_selected : float
        Mean number of columns that are selected in a half with at least one of the penalties.
        Columns without a penalty do not count.
    expected_false : float
        Upper bound q²/((2π − 1)p) on the expected number of falsely selected columns, with q =
        `n_selected`, p penalised columns and the threshold π.
    """

    probabilities: Array
    penalties: Array
    selected: Array
    n_selected: float
    expected_false: float


def stability_selection(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    penalties: Any = None,
    n_halves: int = 100,
    threshold: float = 0.6,
    sample_weight: Any = None,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> Stability:
    """Count in how many random halves of the samples each column is selected.

    A column is selected if its coefficient is not zero.  The result bounds the expected number
    of columns without influence that are selected in most halves.  The bound holds if such columns
    are exchangeable and the fit is no worse than random selection.

    Parameters
    ----------
    estimator : estimator
        `PrioritizedLasso`, `SparseLogisticRegression`, `SparseGLM`, or another estimator with
        `coef_`, a parameter alpha or C, and a `fit` that accepts `sample_weight`.  It is copied,
        not changed.
    X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
        Samples, as for the estimator.
    y : array-like or Dask collection of shape (n_samples,) or (n_samples, n_targets)
        Responses or labels.
    penalties : float, array-like or None, default=None
        Values of alpha or C.  On each half, the strongest penalty comes first.  If the estimator
        has `warm_start`, each later fit starts from the previous solution.  If None, the value of
        the estimator is used.
    n_halves : int, default=100
        Number of halves.  A half has ⌊n/2⌋ of the n samples, drawn without replacement.
    threshold : float, default=0.6
        Share π of the halves, above ½ and at most 1, in which a column must be selected.
    sample_weight : array-like or Dask collection of shape (n_samples,), default=None
        Weights of the samples.
    random_state : int, RandomState or None, default=None
        Seed of the draws of halves.
    n_jobs : int or None, default=None
        Number of halves that are fitted at the same time, in threads.  None means 1, and -1 all
        processors.  The result does not depend on `n_jobs`.

    Returns
    -------
    Stability

    Raises
    ------
    ValueError
        If a parameter is invalid, or if `fit` of the estimator raises this error.

    References
    ----------
    N. Meinshausen and P. Bühlmann, "Stability selection", JRSS-B 2010, section 2.5 and theorem 1.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import PrioritizedLasso, stability_selection
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 50))
    >>> y = X[:, 3] - X[:, 7] + rng.normal(size=100)
    >>> found = stability_selection(
    ...     PrioritizedLasso(0.3), X, y, n_halves=50, threshold=0.9, random_state=0
    ... )
    >>> np.flatnonzero(found.selected).tolist()
    [3, 7]
    """
    check_arguments(stability_selection, locals())
    known = estimator.get_params()
    name = next((one for one in ("alpha", "C") if one in known), None)
    if name is None:
        kind = type(estimator).__name__
        raise ValueError(
            f"estimator={kind} has no parameter alpha or C; give one that does not choose it"
        )
    given = np.atleast_1d(known[name] if penalties is None else penalties)
    values: Any = positive_values("penalties", given)
    values = values[::-1] if name == "alpha" else values
    y = here(y, "y")
    weights = here(sample_weight, "sample_weight")
    random = check_random_state(random_state)
    n_samples = len(y)
    if n_samples < 4:
        raise ValueError(f"y has {n_samples} samples, too few for halves; give four or more")
    halves = [random.permutation(n_samples)[: n_samples // 2] for _ in range(n_halves)]

    def chosen(half: Array) -> tuple[Array, Array]:
        counts = np.zeros(n_samples)
        counts[half] = 1.0 if weights is None else np.asarray(weights, np.float64)[half]
        model = clone(estimator)
        found = []
        model._of_part = True
        if "warm_start" in model.get_params():
            model.set_params(warm_start=True)
        for value in values.tolist():
            coef = model.set_params(**{name: value}).fit(X, y, sample_weight=counts).coef_
            found.append(np.atleast_2d(coef).any(axis=0))
        penalised: Masks = np.ones(found[0].shape, np.bool_)
        if isinstance(model, SparseModel):
            unit = model._penalty(1.0, model.l1_ratio)
            penalised[Layout.of(unit, len(penalised), 1).free] = False
        return np.array(found), penalised

    runs = Parallel(n_jobs=n_jobs, prefer="threads")(delayed(chosen)(half) for half in halves)
    counted, [penalised, *_] = (np.array(part) for part in zip(*runs, strict=True))
    probabilities = counted.mean(axis=0).T
    n_selected = float(counted[:, :, penalised].any(axis=1).sum(axis=1).mean())
    bound = n_selected**2 / ((2.0 * threshold - 1.0) * np.count_nonzero(penalised))
    return Stability(
        probabilities, values, probabilities.max(axis=1) >= threshold, n_selected, bound
    )
