"""Laws of reading ratings.

Each is copied once, into its shard, and what is counted is what a loop counts.
"""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from mf_cases import bits

from schmp_estimators import ModelParallelMF
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.rng import stream_key
from schmp_estimators.mf.data import ratings as data
from schmp_estimators.mf.data.inputs import ratings_of_rows
from schmp_estimators.mf.data.rows import Wanted, open_ratings
from schmp_estimators.mf.data.scale import AS_THEY_ARE, choose_grid, read_moments
from schmp_estimators.mf.data.seen import DuplicateRatingError
from schmp_estimators.mf.kernels.layout import (
    UserRows,
    cut_blocks,
    deal,
    pairs_of,
    select,
    sort_items,
)

generator = np.random.default_rng(0)
N_USERS, N_ITEMS = 40, 60
MATRIX = sp.random_array(
    (N_USERS, N_ITEMS), density=0.2, format="lil", dtype=np.float32, rng=generator
)
MATRIX[0] = 1 + generator.random(N_ITEMS)  # all items
MATRIX[[5, N_USERS - 1]] = MATRIX[:, [7, N_ITEMS - 1]] = 0
MATRIX = sp.csr_array(MATRIX)

make = {"n_components": 3, "max_iter": 2, "tol": 0.0, "random_state": 0, "n_shards": 3}


def shuffled(matrix):
    """Return the same matrix with the entries of each row in another order."""
    order = np.concatenate(
        [first + generator.permutation(last - first) for first, last in
         zip(matrix.indptr, matrix.indptr[1:], strict=False)]
    )  # fmt: skip
    return sp.csr_array(
        (matrix.data[order], matrix.indices[order], matrix.indptr), shape=matrix.shape
    )


def mapped(matrix, folder):
    names = ("data", "indices", "indptr")
    for name in names:
        np.save(folder / f"{name}.npy", getattr(matrix, name))
    arrays = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in names]
    return sp.csr_array(tuple(arrays), shape=matrix.shape, copy=False)


def wide(matrix):
    """Return the same matrix with indices of 64 bits."""
    other = matrix.copy()
    other.indices, other.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return other


@pytest.mark.parametrize("solver", ["sgd", "ccd"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_forms_of_a_matrix_give_the_same_bits(solver, n_jobs, tmp_path):
    pairs = np.column_stack(MATRIX.tocoo().coords)[::-1]
    fit = ModelParallelMF(
        **make, solver=solver, n_jobs=n_jobs, n_users=N_USERS, n_items=N_ITEMS
    ).fit
    expected = bits(fit(pairs, MATRIX.data[::-1]))
    swapped = MATRIX.copy()
    swapped.data = MATRIX.data.astype(MATRIX.data.dtype.newbyteorder())
    for form in (MATRIX, shuffled(MATRIX), mapped(MATRIX, tmp_path), wide(MATRIX), swapped):
        assert bits(fit(form)) == expected


def test_a_matrix_is_not_copied_before_there_are_shards():
    wanted = Wanted(3, (None, None))
    with open_ratings(MATRIX, None, ModelParallelMF(), wanted) as ratings:
        (piece,) = ratings.pieces.partitions
        assert np.shares_memory(piece.items, MATRIX.indices)
        assert np.shares_memory(piece.values, MATRIX.data)


def test_memory_of_a_fit_is_that_of_its_shards():
    """Ten bytes per rating stay: those of the blocks, and the items that each user has rated."""
    matrix = sp.random_array((3000, 500), density=0.2, format="csr", dtype=np.float32, rng=1)
    estimator = ModelParallelMF(1, max_iter=1, random_state=0).fit(matrix)
    tracemalloc.start()
    try:
        estimator.fit(matrix)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 18 * matrix.nnz
    assert estimator.n_shards_ == 4


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_counts_are_those_of_a_loop(weighted, share):
    values = np.rint(8 * MATRIX.data) / 8
    if weighted:
        values = values + 1j * generator.integers(0, 5, values.size) / 4
    rows = ratings_of_rows(MATRIX)._replace(values=values)
    hold_out = data.HoldOut(stream_key(1, 2), np.uint64(share * 2.0**64))
    ends = float(values.real.min()), float(values.real.max())
    grid = choose_grid(*ends, float(values.imag.max()) or 1.0)
    given = (N_USERS, N_ITEMS), hold_out, grid, True
    halves = [select(rows, np.arange(values.size) % 2 == number) for number in range(2)]
    found = tree_sum([data.count_and_measure(*given, half) for half in halves])
    users, items = MATRIX.tocoo().coords
    kept = ~data.held_out_mask(pairs_of(rows), hold_out)
    for which, counts in zip((kept | True, kept), found.counts, strict=True):
        both = (users[which], N_USERS), (items[which], N_ITEMS)
        expected = [np.bincount(ids, minlength=size) for ids, size in both]
        np.testing.assert_array_equal(counts, np.concatenate(expected))
    exact = [Fraction(float(value)) - Fraction(grid.middle) for value in values.real[kept]]
    steps = [round(value * Fraction(grid.inverse_step)) for value in exact]
    sums = [
        np.bincount(ids[kept], steps, size) for ids, size in ((users, N_USERS), (items, N_ITEMS))
    ]
    np.testing.assert_array_equal(found.sums, np.concatenate(sums))
    plain, with_weights = read_moments(found.moments)
    assert plain == (len(steps), sum(steps), sum(step * step for step in steps))
    if weighted:
        weights = [int(weight * grid.inverse_weight) for weight in values.imag[kept]]
        pairs = list(zip(weights, steps, strict=True))
        moments = sum(weights), sum(w * s for w, s in pairs), sum(w * s * s for w, s in pairs)
        assert with_weights == moments
        expected = np.bincount(users[kept], values.imag[kept], N_USERS)
        np.testing.assert_array_equal(found.weights[:N_USERS], expected)
    else:
        assert not found.weights.size
    hashes = data.hash_pairs(pairs_of(rows), np.uint64(0))
    assert found.told[0] == hashes.sum()
    words = np.uint64 if weighted else np.uint32
    bits_of = values.astype(np.complex64 if weighted else np.float32).view(words)
    assert found.told[1] == (hashes * bits_of.astype(np.uint64)).sum()


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**31))
def test_shards_get_their_rows_from_all_pieces(n_shards, n_pieces, seed):
    """Whether pieces are divided first, as on a cluster, or not.

    A user may have ratings in several.
    """
    rng = np.random.default_rng(seed)
    users = deal(np.diff(MATRIX.indptr), n_shards)
    piece_of = rng.integers(0, n_pieces, MATRIX.nnz)
    every = ratings_of_rows(MATRIX)
    pieces = [select(every, piece_of == number) for number in range(n_pieces)]
    divided = [data.split_ratings(users, N_ITEMS, AS_THEY_ARE, piece) for piece in pieces]
    for number, members in enumerate(users.members):
        for parts in (pieces, [found[number] for found in divided]):
            found, twice = sort_items(
                data.ratings_of(number, users, N_ITEMS, AS_THEY_ARE, parts), N_ITEMS
            )
            assert twice is None
            assert found.items.dtype.itemsize <= 4
            shape = members.size, N_ITEMS
            rebuilt = sp.csr_array((found.values, found.items, found.indptr), shape=shape)
            np.testing.assert_array_equal(rebuilt.toarray(), MATRIX[members].toarray())
            np.testing.assert_array_equal(found.users, members)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_of_duplicates_that_of_the_first_shard_is_named(n_jobs):
    matrix = MATRIX.copy()
    for user in (0, 1, 2, 3):
        matrix.indices[matrix.indptr[user] + 1] = matrix.indices[matrix.indptr[user]]
    with pytest.raises(DuplicateRatingError, match="user 0 rated item 0 more than once"):
        ModelParallelMF(**make, n_jobs=n_jobs).fit(matrix)


def test_many_users_have_numbers_of_32_bits():
    n_users = 70_000
    rows = UserRows(
        np.arange(n_users, dtype=np.int32), np.arange(n_users + 1), np.zeros(n_users, np.int32),
        np.arange(n_users, dtype=np.float32),
    )  # fmt: skip
    cut = cut_blocks(rows, deal(np.array([n_users]), 1))
    assert [array.dtype for array in cut.ratings] == [np.int32, np.uint16, np.float32]
    np.testing.assert_array_equal(cut.block(0).users, np.arange(n_users))
