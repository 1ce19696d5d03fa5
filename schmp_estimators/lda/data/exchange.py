"""How the words of a corpus travel between shards that sample with frozen counts: as tokens or as rows.

A word's tokens may go to the shard that owns the word, be sampled there with the word's true row, and come back; or
its counts go to the owner, who adds them up and sends the row to all.  Topics are the same either way; what differs is
bytes, and who does the work.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.lda.blocks import HEAD
from schmp_estimators.lda.data.tokens import Layout

#: A word that has more than this share of a shard's tokens is not sampled by its owner alone.
LARGEST_SHARE = 0.25


def words_at_home(
    word_totals: NDArray[np.int64], layout: Layout, n_topics: int, topic_bytes: int, token_bytes: int, *, far: bool
) -> NDArray[np.int64]:
    """Return how many words of each block, the heaviest, are sampled where their tokens are, with rows that travel.

    Parameters
    ----------
    word_totals : (n_words,) int64
        Tokens of each column.
    layout : Layout
        One block for each shard.
    n_topics : int
        K.
    topic_bytes, token_bytes : int
        Bytes of a topic, and of a token with its proposals.
    far : bool
        Whether bytes count; else only words that would be too much work for their owner stay at home.
    """
    n, n_shards = word_totals[layout.column], len(layout.block_ptr) - 1
    others = n_shards - 1
    listed = topic_bytes * n
    by_tokens = 2 * token_bytes * n * others / n_shards
    dense = 4 * n_topics
    there = np.minimum(dense, listed / n_shards)
    back = np.where(n >= HEAD * n_topics, dense, listed)
    is_home = n > LARGEST_SHARE * n.sum() / n_shards
    if far:
        is_home |= (there + back) * others <= by_tokens
    ends = np.append(np.flatnonzero(~is_home), len(n))
    first = ends[np.searchsorted(ends, layout.block_ptr[:-1])]
    return np.minimum(first, layout.block_ptr[1:]) - layout.block_ptr[:-1]


def owned_lengths(
    counts: Sequence[NDArray[np.int64]], layout: Layout, home: NDArray[np.int64], number: int
) -> NDArray[np.int32]:
    """Return (n_words, n_shards) tokens of the words that a shard samples for all, in each shard.

    Parameters
    ----------
    counts : sequence of (n_words,) int64
        Tokens of each column in each shard.
    layout : Layout
        One block for each shard.
    home : (n_shards,) int64
        From `words_at_home`.
    number : int
        Number of the shard.
    """
    first, last = layout.block_ptr[number] + home[number], layout.block_ptr[number + 1]
    column = layout.column[first:last]
    return np.stack([of_shard[column] for of_shard in counts], axis=1).astype(np.int32)
