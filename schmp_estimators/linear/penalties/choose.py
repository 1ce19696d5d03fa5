"""Penalties for the parameters of an estimator, and those of a path or of folds, in the user's units."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_array

from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.inputs.validation import name_input
from schmp_estimators.linear.penalties.base import Floats, PerColumn, read_only
from schmp_estimators.linear.penalties.elastic_net import ElasticNet

#: Smallest and largest penalty: products of penalties, or their inverses, with sample weights must
#: not underflow or overflow.
WEAKEST = 1e-300
STRONGEST = 1e300
NO_PENALTY = (
    "; for no penalty take scikit-learn's LinearRegression, LogisticRegression(C=np.inf), "
    "PoissonRegressor(alpha=0) or HuberRegressor(alpha=0)"
)
ONLY_SQUARES = (
    "; for squares alone take scikit-learn's Ridge, LogisticRegression or PoissonRegressor"
)


def choose_penalty(
    strength: float, l1_ratio: float, factors: PerColumn = 1.0, positive: bool = False
) -> Any:
    """Return strength·f_j·(l1_ratio·|b| + ½(1 − l1_ratio)·b²).

    Raises
    ------
    ValueError
        If a factor makes the penalty underflow or overflow.
    """
    whole = float(strength) * factors
    if np.ndim(factors) or factors != 1.0:
        some = np.atleast_1d(factors)
        found = np.atleast_1d(whole)[some != 0.0]
        if found.min() < WEAKEST or found.max() > STRONGEST:
            raise ValueError(
                f"penalty_factors{_range(some)} make penalties from {found.min():.3g} to {found.max():.3g} of one of "
                f"{strength:.3g}; each has to be 0 or from {WEAKEST:g} to {STRONGEST:g}: give factors near 1, and 0 "
                "for columns without a penalty"
            )
    ridges = (1.0 - l1_ratio) * whole if l1_ratio < 1.0 else 0.0
    return ElasticNet(read_only(l1_ratio * whole), read_only(ridges), bool(positive))


def factors_of(estimator: Any) -> PerColumn:
    """Return `penalty_factors` for the columns of an estimator; see `check_factors`."""
    given = estimator.penalty_factors
    if given is None:
        return 1.0
    given = named_values("penalty_factors", given, dict.fromkeys(labels_of(estimator), 1.0))
    return check_factors(given, estimator.n_features_in_, estimator.positive)


def labels_of(estimator: Any) -> Any:
    """Return the labels of the columns of X, strings or not; empty if X has none."""
    names = getattr(estimator, "feature_names_in_", None)
    return getattr(estimator, "_labels", ()) if names is None else names


def named_values(name: str, given: Any, others: dict[Any, Any], owner: str = "X") -> Any:
    """Return values in the order of the names in `others`, if a mapping or a Series gives them by name.

    Names that are left out get their value in `others`.  A Series with the labels 0, 1, … is no
    such Series, unless some of them are names.

    Raises
    ------
    ValueError
        If values are given by other names, or by one name twice.
    """
    is_mapping = isinstance(given, Mapping)
    is_series = hasattr(given, "index") and hasattr(given, "to_dict") and np.ndim(given) == 1
    if not is_mapping and not is_series:
        return given
    keys = list(given.keys())
    unknown = [key for key in keys if key not in others]
    if not is_mapping and keys == list(range(len(keys))) and len(unknown) == len(keys):
        return given
    what, remedy = _NAMED[owner]
    if not others:
        raise ValueError(f"{name} names {what}, but {owner} has no names; give {remedy}")
    if unknown:
        more = ", …" if len(unknown) > 5 else ""
        raise ValueError(
            f"{name} names {what} that {owner} does not have: {str(unknown[:5])[1:-1]}{more}"
        )
    named = dict(given.items())
    if len(named) < len(keys):
        raise ValueError(f"{name} names a {what[:-1]} more than once; give one value for each")
    return list((others | named).values())


_NAMED = {
    "X": ("columns", "a data frame, or one value for each column"),
    "groups": ("groups", "groups as the group of each column, or as a dict"),
}


def check_factors(
    given: Any, n_columns: int, positive: bool = False, what: str = "column of X"
) -> PerColumn:
    """Return `penalty_factors` for kernels: one number if all are equal.

    Raises
    ------
    ValueError
        If they are not one finite number ≥ 0 for each column, if all are zero, or if one is zero
        and coefficients are restricted to be ≥ 0.
    """
    given = refuse_texts(unmask(given, "penalty_factors"), "penalty_factors")
    options: Any = {"ensure_2d": False, "dtype": np.float64, "input_name": "penalty_factors"}
    with name_input(given, "penalty_factors"):
        factors = check_array(given, ensure_all_finite=False, **options)
    if np.isinf(factors).any():
        raise ValueError(
            f"penalty_factors contains infinity; leave out each {what} that should have no coefficient"
        )
    factors = check_array(factors, **options)
    if factors.shape != (n_columns,) or (factors < 0.0).any() or not factors.any():
        raise ValueError(
            f"penalty_factors must hold {n_columns} numbers >= 0, one for each {what} and not all of them zero; "
            f"got shape {factors.shape}{_range(factors)}"
        )
    if positive and not factors.all():
        raise ValueError(
            "penalty_factors holds zeros, which cannot be combined with positive=True; "
            "give such columns a small factor, or positive=False"
        )
    return float(factors[0]) if (factors == factors[0]).all() else read_only(factors.copy())


def refuse_texts(given: Any, name: str) -> Any:
    """Return what should be numbers, or raise ValueError if some are texts, which NumPy would convert."""
    array = np.asarray(given)
    for one in () if array.dtype.kind in "biuf" else np.asarray(given, object).flat:
        if isinstance(one, str | bytes):
            raise ValueError(f"{name} has an entry that is no number: {one!r}; give numbers")
    return given


def _range(factors: Any) -> str:
    return f" with values from {factors.min():.3g} to {factors.max():.3g}" if factors.size else ""


@dataclass(frozen=True)
class Grid:
    """Penalties, the strongest first: falling values of alpha for the mean loss, or rising values of C.

    Parameters
    ----------
    name : {"alpha", "C"}
    given : ndarray of shape (count,) or None
        The penalties, or None, if they depend on the data.
    count : int
        Number of penalties.
    ratio : float
        Ratio of the smallest to the largest, if they depend on the data.
    """

    name: str
    given: Floats | None
    count: int = 1
    ratio: float = 1.0

    @classmethod
    def of(cls, name: str, asked: Any, ratio: float) -> Self:
        """Return the penalties for the value of a parameter."""
        values = positive_values(f"{name}s", asked)
        if values is None:
            return cls(name, None, int(asked), ratio)
        return cls(name, values[::-1] if name == "alpha" else values, len(values), ratio)

    def check(self, l1_ratio: Any, eps: float) -> None:
        """Raise ValueError if `ratio`, by default `eps`, cannot act, or makes penalties that are too strong."""
        if self.given is not None and self.ratio != eps:
            raise ValueError(
                f"eps={self.ratio:g} needs a number of {self.name}s; a list of them has its own smallest penalty"
            )
        least = min(ratios_of(1.0 if l1_ratio is None else l1_ratio))
        if self.given is None and least < self.ratio:
            raise ValueError(
                f"l1_ratio={least:g} is below eps={self.ratio:g}, so that a number of {self.name}s would make a grid "
                f"of penalties so strong that coefficients vanish; give {self.name}s as a list{ONLY_SQUARES}"
            )

    def at(self, values: Floats) -> Self:
        """Return a grid with these values."""
        return replace(self, given=values, count=len(values))

    def values(self, largest: float, total: float, unit: float) -> Floats:
        """Return the penalties; `largest` is the smallest λ of the summed loss for which all coefficients are zero.

        `total` is the sum of weights, and `unit` a factor of C. If the largest alpha is only
        rounding, all penalties are the resolution of floats, as in scikit-learn.
        """
        if self.given is not None:
            return self.given
        resolution = float(np.finfo(float).resolution)
        if self.name == "C":
            first = 1.0 / largest / unit if largest > 0.0 else 1.0  # or every solution is zero
            last = first / self.ratio
        else:
            first = max(largest / total, resolution)
            last = self.ratio * first if first > resolution else first
        return np.geomspace(first, last, self.count) if self.count > 1 else np.array([first])

    def strength(self, value: Any, total: float, unit: float) -> Any:
        """Return λ of the summed loss, for one penalty or for many."""
        return value * total if self.name == "alpha" else 1.0 / (value * unit)

    def in_units(self, sums: Any, values: Any, total: float, unit: float) -> Any:
        """Convert summed objectives to the user's units: means, or C times the sums."""
        return sums / total if self.name == "alpha" else values * unit * sums


def positive_values(name: str, given: Any) -> Floats | None:
    """Return the values of a parameter in rising order, or None if it is only their number."""
    if isinstance(given, Integral):
        return None
    given = unmask(given, name)
    try:
        values = numbers_between(given, name, WEAKEST, STRONGEST)
    except (TypeError, ValueError):
        values = None
    if values is None:
        raise ValueError(
            f"{name}={given!r}; give numbers from {WEAKEST:g} to {STRONGEST:g}, or their number{NO_PENALTY}"
        )
    return np.sort(values)


def numbers_between(given: Any, name: str, least: float, most: float) -> Floats | None:
    """Return an array of one dimension; None if the values of a parameter are no such numbers."""
    values = np.asarray(refuse_texts(given, name), np.float64)
    fit = values.ndim == 1 and values.size and ((values >= least) & (values <= most)).all()
    return values if fit else None


def best_of(values: Floats) -> int:
    """Return the first row with the largest mean; rows with NaN, which some folds did not try, are never chosen.

    The mean over folds is not weighted, as in scikit-learn's `LassoCV` and `LogisticRegressionCV`.
    """
    means = values.mean(axis=1)
    return int(np.argmax(np.where(np.isnan(means), -np.inf, means)))


def end_of(costs: Iterable[float], most: int | None) -> int | None:
    """Return how many costs there are when `most` in a row have been above the least before; None if this never is so.

    snpnet's rule: J. Qian et al., "A fast and scalable framework for large-scale and
    ultrahigh-dimensional sparse regression", PLOS Genetics 2020.
    """
    least = np.inf
    worse = 0
    for count, cost in enumerate(costs, 1):
        worse = worse + 1 if cost > least else 0
        least = min(least, cost)
        if worse == most:
            return count
    return None


def within_one_standard_error(values: Floats) -> int:
    """Return the first row whose mean is at most one standard error below that of the best row.

    The standard error is that of the best row's mean over folds, zero with one fold.  Hastie,
    Tibshirani and Friedman, "The Elements of Statistical Learning", 2009, section 7.10.
    """
    best = values[best_of(values)]
    error = best.std(ddof=1) / np.sqrt(len(best)) if len(best) > 1 else 0.0
    with np.errstate(invalid="ignore"):
        return int(np.argmax(values.mean(axis=1) >= best.mean() - error))


def ratios_of(given: Any) -> list[Any]:
    """Return the L1 ratios to try."""
    if np.ndim(given) == 0:
        return [given]
    found = numbers_between(unmask(given, "l1_ratio"), "l1_ratio", 1e-6, 1.0)
    if found is None:
        raise ValueError(
            f"l1_ratio={given!r}; give one number from 1e-6 to 1, or a list of them{ONLY_SQUARES}"
        )
    return found.tolist()
