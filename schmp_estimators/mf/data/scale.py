"""Ratings without their mean, divided by their spread.

So a penalty and a step mean the same on every scale.

The moments are exact sums over ratings that are rounded to whole steps; 2**31 steps or fewer cover
the range of all ratings.  So the moments depend neither on the order of the ratings nor on how
these are divided.  Their error is at most 2**-30 of a standard deviation times the root of the
number of ratings.
"""

from collections.abc import Sequence
from math import frexp, ldexp, sqrt
from typing import NamedTuple

import numpy as np

from schmp_estimators.core.typing import FloatPair, Integers
from schmp_estimators.mf.kernels.tally import CARRIED, STEP_BITS


class Grid(NamedTuple):
    """Steps to which ratings are rounded.

    They are whole multiples of 1 / `inverse_step`, counted from `middle`.
    """

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


#: The scale of ratings as they were given.
AS_THEY_ARE = Scale(0.0, 1.0)


def choose_grid(low: float, high: float, heaviest: float) -> Grid:
    """Return the finest grid of powers of two for ratings between `low` and `high`.

    Weights are at most `heaviest`.
    """
    middle = low / 2 + high / 2
    exponents = frexp(max(high - middle, middle - low))[1], frexp(heaviest)[1]
    return Grid(middle, *(ldexp(1.0, STEP_BITS - exponent) for exponent in exponents))


def read_moments(sums: Integers) -> tuple[Moments, Moments]:
    """Return the moments in a `Tally`, without and with weights.

    They are the same if there are no weights.
    """
    sides = np.reshape((sums[0].astype(object) << CARRIED) + sums[1], (2, 4))
    plain, weighted = (
        Moments(size, total, (high << STEP_BITS) + low) for size, total, high, low in sides
    )
    return plain, weighted if weighted.size else plain


def mean_and_spread(moments: Moments, grid: Grid) -> FloatPair:
    """Return the mean and the standard deviation of at least one rating."""
    size, total, squares = moments
    mean = grid.middle + total / size / grid.inverse_step
    return mean, sqrt((size * squares - total * total) / (size * size)) / grid.inverse_step


def left_by_biases(moments: Moments, counts: Sequence[Integers], sums: Sequence[Integers]) -> float:
    """Estimate the standard deviation that biases leave of standardised ratings.

    It is estimated from moments alone.

    Let a rating be the sum of a user's part, an item's part and noise, all independent, with
    variances a, b and e.  Let n of N·M pairs be rated, a share p of all, at random.  The mean
    rating of a user with k ratings then has the variance ``a + ((1 - p) b + e) / k``, that of an
    item likewise, and a rating has ``a + b + e``.  These are three equations, whose left sides are
    measured.

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
    known = variance
    factor = 1.0
    for rows, rows_sums, which in zip(counts, sums, rated, strict=True):
        between = float(np.sum((rows_sums[which] - rows[which] * mean) ** 2 / rows[which]))
        others = size - which.size * (
            1 - share
        )  # how many times the other side's variance counts within rows
        known -= (variance * size - between) / others
        factor -= (size - which.size) / others
    # if hardly any row has two ratings, the three equations are as good as two; else it is about -1
    if not variance or factor > -0.1:
        return 1.0
    # moments of few ratings may say that biases leave no variance, or less than none
    return sqrt(min(max(known / factor / variance, 0.01), 1.0))


def choose_scale(mean: float, spread: float, fit_bias: bool) -> Scale:
    """Return the scale that standardises ratings; without biases the mean stays in them.

    The unit is the standard deviation in both cases: with the root mean square as the unit, the
    effect of a penalty would grow with an offset.  If all ratings are equal, the unit is their
    size; if all are zero, it is 1.
    """
    return Scale(mean if fit_bias else 0.0, spread or abs(mean) or 1.0)
