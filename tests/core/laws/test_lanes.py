"""Sums of vectors in registers, against NumPy."""

import numpy as np
import pytest

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.lanes import dot, moments


@kernel
def _sums(column, weights, vector):
    return moments(column, weights, vector), dot(column, vector)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 31, 32, 77])
def test_sums_count_each_number_once(length):
    rng = np.random.default_rng(length)
    column = rng.integers(-9, 9, length).astype(np.float32)
    weights, vector = rng.integers(-9, 9, (2, length)).astype(np.float64)
    first, second = (column * weights).sum(), (column**2 * weights).sum()
    found, product = _sums(column, weights, vector)
    assert found == (first, second, (column * vector).sum())
    assert product == (column * vector).sum()
