"""How many documents have how many tokens of each topic: all that an asymmetric document-topic prior depends on.

The counts are integers, so that what follows from them has the same bits however the documents are divided.  Of n
tokens and K topics there are no more than ``sqrt(2 n K)`` different cells, and no more than n.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import kernel

#: Counts that are tallied in a table, of no more than so many cells; others are listed one by one.
SMALL, MAX_CELLS = 64, 1 << 22
_HALF = 32


class TopicCounts(NamedTuple):
    """In how many documents a topic has so many tokens, for those pairs that occur."""

    #: (n,) ``topic << 32 | tokens``, ascending; tokens are positive.
    cell: NDArray[np.int64]
    #: (n,) how many documents.
    documents: NDArray[np.int64]

    @property
    def topic(self) -> NDArray[np.int64]:
        """(n,) topics."""
        return self.cell >> _HALF

    @property
    def tokens(self) -> NDArray[np.int64]:
        """(n,) tokens of the topic in a document."""
        return self.cell & ((1 << _HALF) - 1)


def topic_counts(
    doc_ptr: NDArray[np.int64], place: NDArray[np.uint32], topic: NDArray[Any], n_topics: int, shortest: int = 0
) -> TopicCounts:
    """Count the documents between ``doc_ptr[0]`` and ``doc_ptr[-1]``.

    Parameters
    ----------
    doc_ptr : (n_docs + 1,) int64
        Offsets of the documents in `place`.
    place : (n_tokens,) uint32
        Where to find the topic of each token.
    topic : (n_tokens,) int16 or int32
        Topics, perhaps a strided view.
    n_topics : int
        Number of topics.
    shortest : int
        Documents with fewer tokens are left out.
    """
    n_small = max(1, min(SMALL, MAX_CELLS // n_topics))
    longest = int(np.diff(doc_ptr).max(initial=0))
    table = np.zeros((n_topics, n_small), np.int64)
    large = np.empty((doc_ptr[-1] - doc_ptr[0]) // n_small, np.int64)
    seen, counts = np.empty(longest, topic.dtype), np.zeros(n_topics, np.int32)
    n = _tally(doc_ptr, place, topic, shortest, seen, counts, table, large)
    some_topic, some_tokens = np.nonzero(table)
    small = TopicCounts(some_topic << _HALF | some_tokens, table[some_topic, some_tokens])
    return merge_counts([small, TopicCounts(large[:n], np.ones(n, np.int64))])


def merge_counts(pieces: list[TopicCounts]) -> TopicCounts:
    """Return the counts of several sets of documents taken together; the cells of a piece need no order."""
    cell = np.concatenate([piece.cell for piece in pieces])
    order = np.argsort(cell, kind="stable")
    cell = cell[order]
    documents = np.concatenate([piece.documents for piece in pieces])[order]
    first = np.flatnonzero(np.diff(cell, prepend=-1))
    return TopicCounts(cell[first], np.add.reduceat(documents, first) if len(first) else documents)


@kernel
def _tally(doc_ptr, place, topic, shortest, seen, counts, table, large):
    """Tally the n_dk of documents in `table` (K, n_small), or list them in `large`; return how many are listed.

    Parameters are those of `topic_counts`; `seen` (longest document) and `counts` (K,) int32 are scratch, and `counts`
    is zero before and after.  6 ns per token.
    """
    n = 0
    n_small = table.shape[1]
    for d in range(len(doc_ptr) - 1):
        first, length = doc_ptr[d], doc_ptr[d + 1] - doc_ptr[d]
        if length < shortest:
            continue
        for i in range(length):
            t = topic[place[first + i]]
            seen[i] = t
            counts[t] += 1
        for i in range(length):
            t = np.int64(seen[i])
            if counts[t] >= n_small:
                large[n] = t << 32 | np.int64(counts[t])
                n += 1
            elif counts[t] > 0:
                table[t, counts[t]] += 1
            counts[t] = 0
    return n
