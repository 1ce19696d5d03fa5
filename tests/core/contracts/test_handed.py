"""Named tuples by their addresses: what parts of kernels read and write is what they would in the tuple."""

from typing import NamedTuple

import numpy as np
import pytest

from schmp_estimators.core.handed import handed
from schmp_estimators.core.jit import kernel, kernel_of_this_process, maker, part


class Pair(NamedTuple):
    """A matrix, a vector and numbers."""

    matrix: np.ndarray
    vector: np.ndarray
    factor: float
    negative: bool


@part
def _multiply(pair, out):
    for i in range(pair.matrix.shape[0]):
        for j in range(pair.matrix.shape[1]):
            pair.vector[j] += 1.0  # seen by the loads that follow
            out[i] += pair.matrix[i, j] * pair.vector[j] * (-pair.factor if pair.negative else pair.factor)


@maker
def _through(pair, out):
    kept = out.copy()
    _multiply(pair, out)
    return kept


@kernel
def by_address(pair, out):
    """Multiply, with the tuple handed over by its address."""
    return _through(handed(pair), out)


@pytest.mark.parametrize("negative", [False, True])
def test_tuples_by_address(negative):
    rng = np.random.default_rng(0)
    matrix, vector, out = rng.normal(size=(7, 33)), rng.normal(size=33), np.ones(7)
    kept = kernel_of_this_process(by_address)(Pair(matrix, vector.copy(), 0.5, negative), out)
    np.testing.assert_array_equal(kept, np.ones(7))
    expected = 1 + (0.5 - negative) * np.array([row @ (vector + 1 + i) for i, row in enumerate(matrix)])
    np.testing.assert_allclose(out, expected)
