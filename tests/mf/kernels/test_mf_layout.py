import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from schmp_estimators.mf.kernels.layout import (
    TILE,
    UserRows,
    cut_blocks,
    deal,
    rows_of,
    sort_items,
)
from schmp_estimators.mf.kernels.sgd import RatingBlock


def user_rows(n_users, indptr, items, values):
    """Return rows of the types that fits have."""
    return UserRows(np.arange(n_users, dtype=np.int32), indptr, items.astype(np.uint16), values)


@pytest.mark.parametrize("n_groups", [1, 2, 5])
def test_deal_places_every_row_once_and_evenly(n_groups):
    counts = np.random.default_rng(0).zipf(1.5, 1000).clip(max=500)
    placement = deal(counts, n_groups)
    np.testing.assert_array_equal(np.sort(np.concatenate(placement.members)), np.arange(1000))
    for group, members in enumerate(placement.members):
        assert (placement.group[members] == group).all()
        np.testing.assert_array_equal(placement.row[members], np.arange(members.size))
        assert (np.diff(counts[members]) <= 0).all()
    weights = [counts[members].sum() for members in placement.members]
    assert max(weights) - min(weights) <= counts.max()


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 60),
    st.integers(1, 40),
    st.integers(1, 5),
    st.floats(0, 1),
    st.integers(0, 2**31),
)
def test_cutting_keeps_every_rating_once(n_users, n_items, n_blocks, density, seed):
    matrix = sp.random_array(
        (n_users, n_items), density=density, rng=seed, dtype=np.float32
    ).tocoo()
    users_of, items_of = (ids.astype(np.int32) for ids in matrix.coords)
    order = np.random.default_rng(seed).permutation(matrix.nnz)
    pairs = RatingBlock(*(array[order] for array in (users_of, items_of, matrix.data)))
    ratings, twice = sort_items(rows_of(pairs, n_users), n_items)
    assert twice is None
    np.testing.assert_array_equal(ratings.indptr, matrix.tocsr().indptr)
    items = deal(np.bincount(items_of, minlength=n_items), n_blocks)
    rebuilt = np.zeros(matrix.shape, np.float32)
    cut = cut_blocks(ratings, items)
    assert cut.offsets[-1] == ratings.values.size
    for block, members in zip(map(cut.block, range(n_blocks)), items.members, strict=True):
        columns = members[block.items]
        rebuilt[block.users, columns] += block.values
        assert np.unique(np.int64(block.users) * n_items + columns).size == columns.size
        for user in np.unique(
            block.users
        ):  # users begin in order, and wait for no more than the others of a tile
            visits = np.flatnonzero(block.users == user)
            assert (np.diff(visits) <= TILE).all()
        assert (np.diff(np.unique(block.users, return_index=True)[1]) > 0).all()
    np.testing.assert_array_equal(rebuilt, matrix.toarray())


def test_where_a_user_has_no_more_the_next_takes_over():
    indptr = np.cumsum([0, 1, *[3] * TILE])
    items = np.concatenate([[0], np.tile([0, 1, 2], TILE)]).astype(np.int32)
    cut = cut_blocks(
        user_rows(TILE + 1, indptr, items, np.ones(items.size, np.float32)),
        deal(np.array([9, 8, 8]), 1),
    )
    turns = [*range(TILE), *[TILE, *range(1, TILE)] * 2, TILE]
    np.testing.assert_array_equal(cut.block(0).users, turns)


def test_blocks_of_long_rows_are_cut_into_strips_where_fewer_take_turns():
    items = np.tile(np.arange(7, dtype=np.int32), 5)
    ratings = user_rows(5, np.arange(0, 36, 7), items, np.ones(35, np.float32))
    cut = cut_blocks(ratings, deal(np.full(7, 5), 1), width=30_000).block(
        0
    )  # two rows are 240,000 bytes
    np.testing.assert_array_equal(cut.items // 2, np.repeat([0, 1, 2, 3], [10, 10, 10, 5]))
    np.testing.assert_array_equal(cut.users, [*[0, 1, 0, 1, 2, 3, 2, 3, 4, 4] * 3, 0, 1, 2, 3, 4])


def test_the_first_repeated_pair_is_found():
    pairs = RatingBlock(np.array([1, 0, 1, 0, 1]), np.array([4, 3, 3, 4, 4]), np.ones(5))
    assert sort_items(rows_of(pairs, 2), 5)[1] == (1, 4)
