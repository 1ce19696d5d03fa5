"""What kernels compile to, against the same functions run by Python."""

from typing import NamedTuple

import numpy as np
import pytest

from schmp_estimators.core.handed import handed
from schmp_estimators.core.jit import kernel, kernel_of_this_process, maker, part


@kernel
def ranges(start, stop, out):
    """Count in all ways."""
    count = 0
    for i in range(stop):
        count += i
    for i in range(start, stop):
        count += 10 * i
    for i in range(start, stop, 3):
        for k in range(i, 5):
            count += 100 * i + k
            if k == 3:
                break
        else:
            count += 1
    for i in range(np.uint64(4), np.uint64(7)):
        count += np.int64(i)
    out[0] = count


@kernel
def falling(start, stop, out):
    """Count down, and by a step that is an argument."""
    count = 0
    for i in range(stop, start, -2):
        count += i * i
    for i in range(start, stop, out[0]):
        count = 3 * count + i
    out[0] = count


@pytest.mark.parametrize("function", [ranges, falling])
@pytest.mark.parametrize("start, stop", [(0, 7), (-3, 5), (5, 5), (6, -4)])
def test_ranges(function, start, stop):
    found, expected = np.array([2]), np.array([2])
    kernel_of_this_process(function)(start, stop, found)
    function.py_func(start, stop, expected)
    assert found[0] == expected[0]


@kernel
def items(cube, places, k, out):
    """Read and write by indices from the beginning and from the end, of numbers and of views."""
    out[0], out[-1] = cube[k, -1, 2], cube[-1][k][1]
    row = cube[1, k]
    row[-2] += 1.5
    cube[places[0], 1, places[-1]] = 7
    out[k] += row[np.uint64(1)] + cube[0, 0].shape[0] + cube[k].sum()
    out[2] = cube[k - 2, 0, 0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
def test_items(dtype):
    cube = np.arange(24).reshape(2, 3, 4).astype(dtype)
    given = [(cube.copy(), np.array([1, 0, -2], np.int32), 1, np.zeros(5)) for _ in range(2)]
    kernel_of_this_process(items)(*given[0])
    items.py_func(*given[1])
    for found, expected in zip(*given, strict=True):
        np.testing.assert_array_equal(found, expected)


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
