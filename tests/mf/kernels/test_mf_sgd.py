import numpy as np
import pytest
from oracles import mf as oracle

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.lanes import pad_rows, padded_width, row_dot, zero_rows
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.kernels.sgd import FactorBlock, RatingBlock, StepSizes, sgd_block
from schmp_estimators.mf.kernels.steps import NORM, numbers_of


def factor_block(n_rows, n_components, generator, penalty=0.05, positive=False):
    factors = pad_rows(generator.normal(size=(n_rows, n_components)) * 0.4)
    if positive:
        factors = np.abs(factors)
    numbers = numbers_of(factors, penalty)
    numbers[:, NORM] = [oracle.lane_dot(row, row) for row in factors]
    return FactorBlock(factors, numbers, np.ones(n_rows, np.int32))


def random_ratings(n_ratings, n_users, n_items, generator):
    users = np.sort(generator.integers(0, n_users, n_ratings)).astype(np.uint16)
    items = generator.integers(0, n_items, n_ratings).astype(np.uint16)
    return freeze(RatingBlock(users, items, generator.normal(size=n_ratings).astype(np.float32)))


def steps(n_components, rate=0.1, bias_rate=0.1):
    return StepSizes(*(np.float32(x) for x in (rate, bias_rate, 1 / n_components)))


def copied(block):
    return FactorBlock(*(array.copy() for array in block))


def _dot(left, i, right, j):
    return row_dot(left, i, right, j)


@pytest.mark.parametrize("n_components", [1, 8, 31, 32, 40, 100])
def test_row_dot_has_the_documented_order(n_components):
    generator = np.random.default_rng(0)
    left, right = (pad_rows(generator.normal(size=(3, n_components))) for _ in range(2))
    assert left.shape == (3, padded_width(n_components))

    dot = kernel(_dot)
    assert dot(left, 2, right, 1) == oracle.lane_dot(left[2], right[1])


@pytest.mark.parametrize(
    "n_rows", [0, 1, 3, 50_000]
)  # the last so large that NumPy begins it elsewhere
def test_rows_begin_at_a_cache_line(n_rows):
    rows = zero_rows(n_rows, 5)
    assert (
        rows.shape == (n_rows, 8)
        and rows.dtype == np.float32
        and rows.flags.c_contiguous
        and not rows.any()
    )
    assert rows.ctypes.data % 64 == 0 or not n_rows


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize(
    ("n_components", "bias_rate", "penalty"),
    [(5, 0.1, 0.05), (40, 0.0, 0.0), (70, 0.1, 30.0), (520, 0.1, 0.05)],
)
def test_sgd_block_equals_the_oracle_bit_for_bit(n_components, bias_rate, penalty, positive):
    generator = np.random.default_rng(1)
    few, many = random_ratings(200, 6, 5, generator), random_ratings(200, 40, 30, generator)
    turns = generator.permutation(400)  # users and items of neighbours are alike and not
    ratings = freeze(
        RatingBlock(*(np.concatenate(arrays)[turns] for arrays in zip(few, many, strict=True)))
    )
    users = factor_block(40, n_components, generator, penalty, positive)
    items = factor_block(30, n_components, generator, penalty, positive)
    expected_users, expected_items = copied(users), copied(items)
    sizes = steps(n_components, bias_rate=bias_rate)
    total = sgd_block(ratings, users, items, sizes, positive)
    expected = oracle.sgd_block(ratings, expected_users, expected_items, sizes, positive)
    assert total == expected
    for actual, wanted in zip(users + items, expected_users + expected_items, strict=True):
        np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("penalty", [1.0, 1e3, 1e6])
def test_large_penalties_shrink_and_never_diverge(penalty):
    generator = np.random.default_rng(5)
    ratings = random_ratings(2000, 10, 10, generator)
    users, items = factor_block(10, 8, generator, penalty), factor_block(10, 8, generator, penalty)
    for _ in range(5):
        total = sgd_block(ratings, users, items, steps(8), False)
    assert np.isfinite(total) and total < 5 * ratings.values.size
