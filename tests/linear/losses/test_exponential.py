"""Exponential and logarithm of vector loops, exact but for rounding.

What the logistic loss makes of them is looked at, too.
"""

import numpy as np

from schmp_estimators.core.jit import kernel
from schmp_estimators.linear.kernels.smooth import fading, log_one_plus
from schmp_estimators.linear.losses.logistic import Logistic


@kernel
def fade_each(values, out):
    for k in range(out.shape[0]):
        out[k] = fading(values[k])


@kernel
def log_each(values, out):
    for k in range(out.shape[0]):
        out[k] = log_one_plus(values[k])


def test_exponentials_are_exact_but_for_rounding():
    x = -np.concatenate(
        [[0.0], np.logspace(-300, np.log10(707.9), 20_000), 0.5 * np.log(2) * np.arange(1, 2000)]
    )
    found = np.empty_like(x)
    fade_each(x, found)
    np.testing.assert_allclose(found, np.exp(x), rtol=5e-16)
    assert found[0] == 1.0
    assert (found <= 1.0).all()


def test_logarithms_are_exact_but_for_rounding():
    x = np.concatenate([[0.0, 1.0], np.logspace(-300, 0, 20_000), np.linspace(0, 1, 1000)])
    found = np.empty_like(x)
    log_each(x, found)
    np.testing.assert_allclose(found, np.log1p(x), rtol=7e-16)
    log_each(np.array([np.nan]), found[:1])
    assert np.isnan(found[0])


def test_weights_multiply_the_logistic_loss_its_slopes_and_its_curvatures():
    decision, weights, sign = (
        np.linspace(-9.0, 9.0, 7),
        np.arange(7) / 4.0,
        np.array([1.0, -1.0] * 3 + [1.0]),
    )
    chance = 1.0 / (1.0 + np.exp(sign * (decision + 0.3)))
    level, slope, curvature = Logistic().derivatives(decision, sign, weights, 0.3)
    np.testing.assert_allclose(slope, weights * sign * chance)
    np.testing.assert_allclose(curvature, weights * chance * (1.0 - chance), rtol=1e-6)
    np.testing.assert_allclose(level, [-weights @ np.log1p(-chance), slope.sum(), curvature.sum()])
