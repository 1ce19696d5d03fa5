"""Shards: consecutive, complete, about equal, and a function of the data alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schmp_estimators.lda.data.partition import TOKENS_PER_CELL, cut_documents, default_shards, locate_shards

lengths_of_documents = st.lists(st.integers(0, 50), max_size=30).map(lambda values: np.array(values, np.int64))


@given(lengths_of_documents, st.integers(1, 40))
def test_shards_are_consecutive_complete_and_about_equal(lengths, n_shards):
    bounds = cut_documents(lengths, n_shards)
    assert bounds.dtype == np.int64
    assert bounds.shape == (n_shards + 1,)
    assert bounds[0] == 0
    assert bounds[-1] == lengths.size
    assert (np.diff(bounds) >= 0).all()
    tokens = np.diff(np.concatenate([[0], np.cumsum(lengths)])[bounds])
    assert (np.abs(tokens - lengths.sum() / n_shards) <= max(lengths, default=0) + 1).all()


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.integers(1, 12), st.data())
def test_shards_are_found_in_their_partitions(partition_rows, n_shards, data):
    n_rows = sum(partition_rows)
    inner = data.draw(st.lists(st.integers(0, n_rows), min_size=n_shards - 1, max_size=n_shards - 1))
    bounds = np.array([0, *sorted(inner), n_rows])
    rows = np.split(np.arange(n_rows), np.cumsum(partition_rows)[:-1])
    places = locate_shards(bounds, partition_rows)
    assert len(places) == n_shards
    for place, first, stop in zip(places, bounds[:-1], bounds[1:], strict=True):
        assert place
        found = np.concatenate([rows[number][cut] for number, cut in place])
        np.testing.assert_array_equal(found, np.arange(first, stop))


@pytest.mark.parametrize(
    ("n_tokens", "n_docs", "n_features", "rotating", "exchanging"),
    [
        (0, 1, 1, 1, 1),
        (TOKENS_PER_CELL * 4 - 1, 10**6, 10**5, 1, 3),
        (TOKENS_PER_CELL * 4, 10**6, 10**5, 2, 4),
        (TOKENS_PER_CELL * 64, 10**6, 10**5, 8, 64),
        (TOKENS_PER_CELL * 64, 3, 10**5, 3, 3),
        (TOKENS_PER_CELL * 64, 10**6, 5, 5, 5),
    ],
)
def test_number_of_shards_follows_from_the_size_of_the_data(n_tokens, n_docs, n_features, rotating, exchanging):
    assert default_shards(n_tokens, n_docs, n_features, rotates=True) == rotating
    assert default_shards(n_tokens, n_docs, n_features, rotates=False) == exchanging
