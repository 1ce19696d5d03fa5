"""How the words of a corpus travel between shards that sample with frozen counts: as tokens or as rows.

A word's tokens may go to the shard that owns the word, be sampled there with the word's true row, and come back; or
its counts go to the owner, who adds them up and sends the row to all: counts of all topics, if it is a head word, else
a list of topics.  Topics are the same either way; what differs is bytes, and who does the work.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.lda.blocks import HEAD
from schmp_estimators.lda.data.tokens import Layout

#: A word that has more than this share of a shard's tokens is not sampled by its owner alone.
LARGEST_SHARE = 0.25
#: Bytes of a count.
COUNT_BYTES = 4
#: Bytes that a row takes beside its counts: how many tokens of the word a shard has.
ROW_BYTES = 4
#: Bytes for each topic that a head word at home costs every other shard beside those that travel: the time in which
#: a shard reads its row and makes a table of it to draw from, as measured, is that of so many on a network of 3 Gbit/s.
WORK_BYTES = 4
#: Bytes of a topic up to which lists of topics travel.  Every shard keeps those of all shards' tokens: with longer ones
#: two shards would save a fourth of the bytes that travel, and need as much memory as one that has all tokens.
SHORT = 2


def words_at_home(
    word_totals: NDArray[np.int64], layout: Layout, n_topics: int, topic_bytes: int, token_bytes: int,
    *, far: bool, alone: bool = False,
) -> NDArray[np.int64]:  # fmt: skip
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
    alone : bool, default=False
        Whether one thread works for all shards: then no word does, as nobody waits for an owner.
    """
    if alone:
        return np.zeros(len(layout.block_ptr) - 1, np.int64)
    n, n_shards = word_totals[layout.column], len(layout.block_ptr) - 1
    is_home = n > LARGEST_SHARE * n.sum() / n_shards
    if far:
        cheaper = are_cheaper_as_rows(n, n_shards, n_topics, topic_bytes, token_bytes)
        is_home |= cheaper if topic_bytes <= SHORT else cheaper & (n >= HEAD * n_topics)
    ends = np.append(np.flatnonzero(~is_home), len(n))
    first = ends[np.searchsorted(ends, layout.block_ptr[:-1])]
    return np.minimum(first, layout.block_ptr[1:]) - layout.block_ptr[:-1]


def are_cheaper_as_rows(
    n: NDArray[np.int64], n_shards: int, n_topics: int, topic_bytes: int, token_bytes: int
) -> NDArray[np.bool_]:
    """Return which words of `n` tokens cost less as rows, the work of reading these included, than as tokens."""
    by_rows, by_tokens = bytes_of_words(n, n_shards, n_topics, topic_bytes, token_bytes)
    work = np.where(n >= HEAD * n_topics, WORK_BYTES * n_topics * (n_shards - 1), 0)
    cheaper: NDArray[np.bool_] = by_rows + work <= by_tokens
    return cheaper


def bytes_of_words(
    n: NDArray[np.int64], n_shards: int, n_topics: int, topic_bytes: int, token_bytes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how many bytes words of `n` tokens cost in a sweep, all shards together: as rows, and as tokens.

    Every shard is taken to have as many tokens of a word as any other.
    """
    others, is_head = n_shards - 1, n >= HEAD * n_topics
    there, back = (np.where(is_head, COUNT_BYTES * n_topics, topic_bytes * some) for some in (n / n_shards, n))
    return (there + back + ROW_BYTES) * others, 2 * token_bytes * n * others / n_shards
