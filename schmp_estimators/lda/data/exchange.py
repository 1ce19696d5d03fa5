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
#: Bytes of a count on its way: few are 2**16 or more.
COUNT_BYTES = 2
#: Bytes that a row takes beside its counts: how many tokens of the word a shard has.
ROW_BYTES = 4
#: Bytes for each topic that a head word at home costs every other shard beside those that travel: the time in which
#: a shard reads its row and makes a table of it to draw from, as measured, is that of so many on a network of 3 Gbit/s.
WORK_BYTES = 4
#: Topics up to which lists of topics travel.  Every shard keeps those of all shards' tokens: with more topics, of 4
#: bytes each, two shards would save a fourth of the bytes, and need as much memory as one that has all tokens.
MOST_IN_LISTS = 1 << 15


def words_at_home(
    word_totals: NDArray[np.int64], layout: Layout, n_topics: int, topic_bytes: int, token_bytes: int,
    *, far: bool, alone: bool = False,
) -> NDArray[np.int64]:  # fmt: skip
    """Return how many words of each block, the heaviest, are sampled where their tokens are, with rows that travel.

    They are as many as cost least, those that travel as tokens included.

    Parameters
    ----------
    word_totals : (n_words,) int64
        Tokens of each column.
    layout : Layout
        One block for each shard.
    n_topics : int
        K.
    topic_bytes, token_bytes : int
        Bytes of a topic, and of a token with its proposals, on their way.
    far : bool
        Whether bytes count; else only words that would be too much work for their owner stay at home.
    alone : bool, default=False
        Whether one thread works for all shards: then no word does, as nobody waits for an owner.
    """
    n, n_shards = word_totals[layout.column], len(layout.block_ptr) - 1
    if alone:
        return np.zeros(n_shards, np.int64)
    saved = np.full(len(n), -1.0)
    if far:
        may_travel = (n >= HEAD * n_topics) | (n_topics <= MOST_IN_LISTS)
        given = n[may_travel], n_shards, n_topics, topic_bytes, token_bytes
        saved[may_travel] = bytes_saved(*given)
    saved[n > LARGEST_SHARE * n.sum() / n_shards] = 2.0 * np.abs(saved).sum() + 1.0  # more than all others cost
    before = np.concatenate([[0.0], np.cumsum(saved)])
    blocks = zip(layout.block_ptr[:-1].tolist(), layout.block_ptr[1:].tolist(), strict=True)
    return np.array([np.argmax(before[first : last + 1]) for first, last in blocks], np.int64)


def bytes_saved(
    n: NDArray[np.int64], n_shards: int, n_topics: int, topic_bytes: int, token_bytes: int
) -> NDArray[np.float64]:
    """Return what words of `n` tokens cost more as tokens than as rows, the work of reading these included."""
    by_rows, by_tokens = bytes_of_words(n, n_shards, n_topics, topic_bytes, token_bytes)
    return by_tokens - by_rows - np.where(n >= HEAD * n_topics, WORK_BYTES * n_topics * (n_shards - 1), 0)


def bytes_of_words(
    n: NDArray[np.int64], n_shards: int, n_topics: int, topic_bytes: int, token_bytes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how many bytes words of `n` tokens cost in a sweep, all shards together: as rows, and as tokens.

    Every shard is taken to have as many tokens of a word as any other.
    """
    others, is_head = n_shards - 1, n >= HEAD * n_topics
    there, back = (np.where(is_head, COUNT_BYTES * n_topics, topic_bytes * some) for some in (n / n_shards, n))
    return (there + back + ROW_BYTES) * others, 2 * token_bytes * n * others / n_shards
