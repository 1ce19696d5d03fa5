"""Exponential and logarithm of vector loops: exact but for rounding, and honest at the ends."""

import numpy as np

from schmp_estimators.core.jit import kernel
from schmp_estimators.linear.kernels.smooth import fading, log_one_plus


@kernel
def fade_each(values, out):
    for k in range(out.shape[0]):
        out[k] = fading(values[k])


@kernel
def log_each(values, out):
    for k in range(out.shape[0]):
        out[k] = log_one_plus(values[k])


def test_exponentials_are_exact_but_for_rounding():
    x = -np.concatenate([[0.0], np.logspace(-300, np.log10(707.9), 20_000), 0.5 * np.log(2) * np.arange(1, 2000)])
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
