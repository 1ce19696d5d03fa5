"""Ratings without their mean, divided by their spread, so that a penalty and a step mean the same on every scale.

The moments are exact sums over ratings that are rounded to whole steps; 2**31 steps or fewer cover the range of all
ratings.  So the moments depend neither on the order of the ratings nor on how these are divided.  Their error is at
most 2**-30 of a standard deviation times the root of the number of ratings.
"""

from collections.abc import Sequence
from math import frexp, ldexp, sqrt
from typing import NamedTuple

import numpy as np

from schmp_estimators.core.typing import Array, FloatPair, Floats, Integers, Integers32
from schmp_estimators.mf.kernels.sgd import RatingBlock


class Grid(NamedTuple):
    """Steps to which ratings are rounded: whole multiples of 1 / `inverse_step`, counted from `middle`."""

    middle: float
    inverse_step: float
    #: Weights are rounded to whole multiples of 1 / `inverse_weight`.
    inverse_weight: float = 1.0


class Moments(NamedTuple):
    """Exact sums over steps, which can be added in any order."""

    #: Number of ratings, or sum of their weights in steps.
    size: int
    total: int
    squares: int


class Scale(NamedTuple):
    """The mean that is subtracted from ratings, and the unit in which the rest is measured."""

    mean: float
    unit: float


#: Ratings are rounded to whole multiples of a step: at most 2**_STEP_BITS of them from the middle to either end.
_STEP_BITS = 30
#: Each step is split in two parts, and the lower one has this many bits; this many steps are added up at a time, so
#: that 64 bits hold the sums.
_LOW_BITS, _AT_ONCE = 15, 1 << 17
#: Number of steps that add up in float64 without rounding.
_SUMMED = 1 << 53 - _STEP_BITS
_LOW_MASK = (1 << _LOW_BITS) - 1
#: If hardly any row has two ratings, the three equations are as good as two; otherwise their factor is about -1.
_LEAST_KNOWN = -0.1
#: Moments of few ratings may say that biases leave no variance, or less than none.
_LEAST_SHARE = 0.01

#: The scale of ratings as they were given.
AS_THEY_ARE = Scale(0.0, 1.0)


def choose_grid(low: float, high: float, heaviest: float) -> Grid:
    """Return the finest grid of powers of two for ratings between `low` and `high`, with weights up to `heaviest`."""
    middle = low / 2 + high / 2
    exponents = frexp(max(high - middle, middle - low))[1], frexp(heaviest)[1]
    return Grid(middle, *(ldexp(1.0, _STEP_BITS - exponent) for exponent in exponents))


def measure(values: Array, grid: Grid) -> tuple[Moments, Moments]:
    """Return the moments of ratings, without and with weights; both are the same if all weights are 1."""
    plain, weighted = [], []
    for start in range(0, values.size or 1, _AT_ONCE):
        some = values[start : start + _AT_ONCE]
        steps = _steps(some, grid).astype(np.int64)
        plain.append(_moments(steps, None))
        if np.iscomplexobj(values):
            weights = np.rint(some.imag * grid.inverse_weight).astype(np.int64)
            for bits, part in ((_LOW_BITS, weights >> _LOW_BITS), (0, weights & _LOW_MASK)):
                weighted.append(Moments(*(number << bits for number in _moments(steps, part))))
    moments = add_moments(plain)
    return moments, add_moments(weighted) if weighted else moments


def sum_steps(ids: Integers32, values: Array, grid: Grid, size: int) -> Integers:
    """Return (size,) exact sums over the steps of the values of each id, which float64 holds up to 2**53."""
    sums = np.zeros(size, np.int64)
    for start in range(0, ids.size, _SUMMED):
        some = slice(start, start + _SUMMED)
        sums += np.bincount(ids[some], _steps(values[some], grid), size).astype(np.int64)
    return sums


def _steps(values: Array, grid: Grid) -> Floats:
    steps = np.subtract(values.real, grid.middle, dtype=np.float64)
    steps *= grid.inverse_step
    return np.rint(steps, out=steps)


def _moments(steps: Integers, weights: Integers | None) -> Moments:
    """Return exact sums over `_AT_ONCE` steps, with weights up to 2**`_LOW_BITS`; no sum overflows."""
    high = steps >> _LOW_BITS
    low = steps & _LOW_MASK
    size, total = (steps.size, steps.sum()) if weights is None else (weights.sum(), weights @ steps)
    of_high, of_low = (part if weights is None else weights * part for part in (high, low))
    squares = (
        (int(of_high @ high) << 2 * _LOW_BITS)
        + (int(of_high @ low) << _LOW_BITS + 1)
        + int(of_low @ low)
    )
    return Moments(int(size), int(total), squares)


def add_moments(parts: list[Moments]) -> Moments:
    """Return the moments of all ratings from those of their parts."""
    return Moments(*map(sum, zip(*parts, strict=True)))


def mean_and_spread(moments: Moments, grid: Grid) -> FloatPair:
    """Return the mean and the standard deviation of at least one rating."""
    size, total, squares = moments
    mean = grid.middle + total / size / grid.inverse_step
    return mean, sqrt((size * squares - total * total) / (size * size)) / grid.inverse_step


def left_by_biases(moments: Moments, counts: Sequence[Integers], sums: Sequence[Integers]) -> float:
    """Estimate the standard deviation that biases leave of standardised ratings, from moments alone.

    Let a rating be the sum of a user's part, an item's part and noise, all independent, with variances a, b and e.  Let
    n of N·M pairs be rated, a share p of all, at random.  The mean rating of a user with k ratings then has the
    variance ``a + ((1 - p) b + e) / k``, that of an item likewise, and a rating has ``a + b + e``.  These are three
    equations, whose left sides are measured.

    Parameters
    ----------
    moments : Moments
    counts, sums : ndarray of int64
        Numbers of ratings of users, and of items, and the sums of their steps.
    """
    size, total, squares = moments
    mean = total / size
    variance = (size * squares - total * total) / (size * size)
    rated = [np.flatnonzero(rows) for rows in counts]
    share = size / (rated[0].size * rated[1].size)
    known, factor = variance, 1.0
    for rows, rows_sums, which in zip(counts, sums, rated, strict=True):
        between = float(np.sum((rows_sums[which] - rows[which] * mean) ** 2 / rows[which]))
        others = size - which.size * (
            1 - share
        )  # how many times the other side's variance counts within rows
        known -= (variance * size - between) / others
        factor -= (size - which.size) / others
    if not variance or factor > _LEAST_KNOWN:
        return 1.0
    return sqrt(min(max(known / factor / variance, _LEAST_SHARE), 1.0))


def choose_scale(mean: float, spread: float, fit_bias: bool) -> Scale:
    """Return the scale that standardises ratings; without biases the mean stays in them.

    The unit is the standard deviation in both cases: with the root mean square as the unit, the effect of a penalty
    would grow with an offset.  If all ratings are equal, the unit is their size; if all are zero, it is 1.
    """
    return Scale(mean if fit_bias else 0.0, spread or abs(mean) or 1.0)


def standardised(ratings: RatingBlock, scale: Scale) -> RatingBlock:
    """Return ratings in units of the scale, computed in float64, as float32; weights do not change."""
    left = np.subtract(ratings.values.real, scale.mean, dtype=np.float64)
    out = np.divide(left, scale.unit, out=left).astype(np.float32)
    if np.iscomplexobj(ratings.values):
        out = (out + 1j * ratings.values.imag.astype(np.float32)).astype(np.complex64)
    return ratings._replace(values=out)
