"""Exponential and logarithm of the logistic loss, as polynomials that a compiler turns into vector instructions.

A loop over rows that calls nothing is vectorised; the functions of C take 5 and 10 ns a row instead of 1 and 2.  No sum
is reordered by that, and polynomials have the same bits with any instruction set.  Both are exact but for rounding, to
2 units of the last place.
"""

import numpy as np

from schmp_estimators.core.jit import inlined

#: Where e^x is no longer a normal number; its place is taken by e^−708.
_LEAST = -708.0
#: Added to a number below 2⁵¹, this rounds it, and the last bits are those of an integer.
_ROUNDER = 6755399441055744.0
#: 1/ln 2, and ln 2 in two parts, the first with zeros at its end.
_INVERSE, _HIGH, _LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10
_BIAS, _MANTISSA = np.int64(1023), np.int64(52)


@inlined
def fading(x):
    """Return e^x for x ≤ 0: 2^k e^r with |r| ≤ ½ ln 2, e^r by its series."""
    x = _LEAST if x < _LEAST else x  # NaN stays
    rounded = x * _INVERSE + _ROUNDER
    k = rounded - _ROUNDER
    r = (x - k * _HIGH) - k * _LOW
    series = 1 / 479001600 + r * (1 / 6227020800)
    series = 1 / 3628800 + r * (1 / 39916800 + r * series)
    series = 1 / 40320 + r * (1 / 362880 + r * series)
    series = 1 / 720 + r * (1 / 5040 + r * series)
    series = 1 / 24 + r * (1 / 120 + r * series)
    series = 1 / 2 + r * (1 / 6 + r * series)
    power = np.int64((np.float64(rounded).view(np.int64) + _BIAS) << _MANTISSA).view(np.float64)
    return (1.0 + (r + r * r * series)) * power


@inlined
def log_one_plus(x):
    """Return ln(1 + x) for 0 ≤ x ≤ 1: twice the series of artanh at t = x/(2 + x) ≤ ⅓."""
    t = x / (2.0 + x)
    square = t * t
    series = 1 / 33 + square * (1 / 35)
    series = 1 / 29 + square * (1 / 31 + square * series)
    series = 1 / 25 + square * (1 / 27 + square * series)
    series = 1 / 21 + square * (1 / 23 + square * series)
    series = 1 / 17 + square * (1 / 19 + square * series)
    series = 1 / 13 + square * (1 / 15 + square * series)
    series = 1 / 9 + square * (1 / 11 + square * series)
    series = 1 / 5 + square * (1 / 7 + square * series)
    series = 1 / 3 + square * series
    return 2.0 * (t + t * square * series)
