import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from schmp_estimators.kernels.mf_layout import TILE, cut_shard, deal


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
@given(st.integers(1, 60), st.integers(1, 40), st.integers(1, 5), st.floats(0, 1), st.integers(0, 2**31))
def test_cutting_keeps_every_rating_once(n_users, n_items, n_shards, density, seed):
    matrix = sp.random_array((n_users, n_items), density=density, format="csr", rng=seed, dtype=np.float32)
    matrix.sort_indices()
    users = deal(np.diff(matrix.indptr), n_shards)
    items = deal(np.bincount(matrix.indices, minlength=n_items), n_shards)
    rebuilt = np.zeros(matrix.shape, np.float32)
    for members in users.members:
        blocks = cut_shard(members, matrix.indptr, matrix.indices, matrix.data, items)
        for block, item_members in zip(blocks, items.members, strict=True):
            rows, columns = members[block.users], item_members[block.items]
            rebuilt[rows, columns] += block.values
            assert np.unique(rows * n_items + columns).size == rows.size
            assert (np.diff(block.users // TILE) >= 0).all()
    np.testing.assert_array_equal(rebuilt, matrix.toarray())


def test_ratings_of_a_tile_take_turns():
    matrix = sp.csr_array(np.ones((TILE, 7), np.float32))
    items = deal(np.full(7, TILE), 1)
    (block,) = cut_shard(np.arange(TILE), matrix.indptr, matrix.indices, matrix.data, items)
    np.testing.assert_array_equal(block.users, np.tile(np.arange(TILE), 7))
