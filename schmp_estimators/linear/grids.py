"""The penalties of a path or of a cross-validation, in the units of the user."""

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.linear.penalties.choose import STRONGEST, WEAKEST

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """Penalties, the strongest first: falling values of alpha beside the mean loss, or rising ones of C.

    Parameters
    ----------
    name : {"alpha", "C"}
    given : ndarray of shape (count,) or None
        The penalties, or None, if they depend on the data.
    count : int
        How many.
    ratio : float
        Of the smallest to the largest, where they depend on the data.
    """

    name: str
    given: Floats | None
    count: int
    ratio: float

    @classmethod
    def of(cls, name: str, asked: Any, ratio: float) -> Self:
        """Return those that a parameter stands for."""
        values = positive_values(f"{name}s", asked)
        if values is None:
            return cls(name, None, int(asked), ratio)
        return cls(name, values[::-1] if name == "alpha" else values, len(values), ratio)

    def at(self, values: Floats) -> Self:
        """Return the same penalties, given."""
        return replace(self, given=values, count=len(values))

    def values(self, largest: float, total: float, unit: float) -> Floats:
        """Return the penalties, where λ of the summed loss is the smallest for which all coefficients are zero.

        Samples weigh `total` together, or `unit` times that.  Where the largest alpha is but rounding, all are its
        resolution, as scikit-learn has it: gradients are no smaller.
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

    def strength(self, value: float, total: float, unit: float) -> float:
        """Return λ of the summed loss."""
        return value * total if self.name == "alpha" else 1.0 / (value * unit)

    def in_units(self, sums: Floats, values: Floats, total: float, unit: float) -> Floats:
        """Return summed objectives as those of the user: means, or C times the sums."""
        return sums / total if self.name == "alpha" else values * unit * sums


def positive_values(name: str, given: Any) -> Floats | None:
    """Return the values of a parameter in rising order, or None if it is their number."""
    if isinstance(given, Integral):
        return None
    given = unmask(given, name)
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 1 or not len(values) or not ((values >= WEAKEST) & (values <= STRONGEST)).all():
        raise ValueError(
            f"{name}={given!r}; give numbers from {WEAKEST:g} to {STRONGEST:g}, or how many to space geometrically"
        )
    return np.sort(values)


def best_of(values: NDArray[np.float64]) -> int:
    """Return the row with the largest mean, the first of equals; rows with NaN were not tried in every fold.

    Folds count alike, whatever their weight, as in scikit-learn's `LassoCV` and `LogisticRegressionCV`.
    """
    means = values.mean(axis=1)
    return int(np.argmax(np.where(np.isnan(means), -np.inf, means)))


def within_one_standard_error(values: NDArray[np.float64]) -> int:
    """Return the first row whose mean is at most one standard error below that of the best row.

    The standard error is that of the best row's mean over folds, zero with one fold.  Hastie, Tibshirani and Friedman,
    "The Elements of Statistical Learning", 2009, section 7.10.
    """
    best = values[best_of(values)]
    error = best.std(ddof=1) / np.sqrt(len(best)) if len(best) > 1 else 0.0
    with np.errstate(invalid="ignore"):
        return int(np.argmax(values.mean(axis=1) >= best.mean() - error))


def ratios_of(given: Any) -> list[Any]:
    """Return the L1 ratios to be tried."""
    if np.ndim(given) == 0:
        return [given]
    found = np.asarray(unmask(given, "l1_ratio"), np.float64)
    if found.ndim != 1 or not len(found) or not ((found >= 1e-6) & (found <= 1.0)).all():
        raise ValueError(f"l1_ratio={given!r}; give one number from 1e-6 to 1, or a list of them")
    return found.tolist()
