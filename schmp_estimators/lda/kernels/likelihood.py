"""Joint log-likelihood of a topic model, from histograms of its counts.

With the multinomials integrated out, ln p(words, topics) is a document part plus a word part (Griffiths and Steyvers,
PNAS 2004, equations 2 and 3; Yu et al., VLDB 2017, section 6.1)::

    document part   sum over (d, k) of ln (alpha_k)_n_dk   -   sum over d of ln (sum of alpha)_L_d
    word part       sum over (w, k) of ln (beta)_n_wk      -   sum over k of ln (V beta)_n_k

where (a)_n = a (a + 1) ... (a + n - 1).  Every sum needs only how many cells hold each count; with an asymmetric alpha,
how many of each topic.  These histograms are integers, and the float sum over them is correctly rounded, so the result
has the same bits however the documents and words are divided.

An asymmetric document-topic prior depends on how many documents have how many tokens of each topic.  Of n tokens and K
topics there are no more than ``sqrt(2 n K)`` different cells of these counts, and no more than n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from schmp_estimators.core.jit import kernel

#: Counts from here on are listed one by one: at most one for every `LIMIT` tokens.
LIMIT = 4096


class Histogram(NamedTuple):
    """How often each positive count occurs in a table of counts."""

    #: (LIMIT,) number of cells that hold the count c, for c < LIMIT; the empty cells are not counted.
    dense: NDArray[np.int64]
    #: The counts of all other cells, ascending.
    overflow: NDArray[np.int64]

    @property
    def cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The counts that occur, and how often: those that overflow one by one."""
        small = np.flatnonzero(self.dense)
        often = np.ones(len(self.overflow), np.int64)
        return np.concatenate([small, self.overflow]), np.concatenate([self.dense[small], often])


def merge(histograms: Sequence[Histogram]) -> Histogram:
    """Return the histogram of several tables taken together."""
    dense = np.zeros(LIMIT, np.int64)
    for histogram in histograms:
        dense += histogram.dense
    overflow = np.concatenate([np.empty(0, np.int64), *(histogram.overflow for histogram in histograms)])
    return Histogram(dense, np.sort(overflow))


def count_histogram(counts: NDArray[Any]) -> Histogram:
    """Return the histogram of an integer array of any shape.

    Serves lengths of documents, topic totals, and the counts of word rows, sparse or dense.
    """
    dense = np.bincount(counts[counts < LIMIT], minlength=LIMIT)
    dense[0] = 0
    large = counts[counts >= LIMIT]
    return Histogram(dense, np.sort(large.astype(np.int64)))


def document_log_likelihood(
    counts: TopicCounts, lengths: Histogram, alpha: float | NDArray[np.float64], n_topics: int
) -> float:
    """Return the document part, from the counts of topics in documents and the histogram of the documents' lengths.

    The prior is one number, or one for each topic (K,).
    """
    if not isinstance(alpha, np.ndarray):
        return _log_rising(counts.histogram, alpha) - _log_rising(lengths, n_topics * alpha)
    start = alpha[counts.topic]
    found = math.fsum(counts.documents * (gammaln(start + counts.tokens) - gammaln(start)))
    return found - _log_rising(lengths, math.fsum(alpha))


def word_log_likelihood(histogram: Histogram, topic_totals: NDArray[np.int64], beta: float, n_words: int) -> float:
    """Return the word part, from the histogram of the n_wk and from the topic totals n_k."""
    return _log_rising(histogram, beta) - _log_rising(count_histogram(topic_totals), n_words * beta)


def rising(start: float | NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """Return the sum of ``ln(start (start + 1) ... (start + count - 1))`` over counts, correctly rounded."""
    return math.fsum(gammaln(start + counts) - gammaln(start))


def _log_rising(histogram: Histogram, start: float) -> float:
    """Return the sum over the cells of ``ln(start (start + 1) ... (start + count - 1))``, correctly rounded."""
    count, weight = histogram.cells
    return math.fsum(weight * (gammaln(start + count) - gammaln(start)))


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

    @property
    def histogram(self) -> Histogram:
        """The counts n_dk, whichever topics have them."""
        small = self.tokens < LIMIT
        dense = np.bincount(self.tokens[small], self.documents[small], LIMIT).astype(np.int64)  # exact up to 2**53
        return Histogram(dense, np.sort(np.repeat(self.tokens[~small], self.documents[~small])))


def count_cells(topic: int | NDArray[Any], tokens: int | NDArray[Any]) -> TopicCounts:
    """Count documents that have so many tokens of a topic each, and none of any other; one of the two is an array."""
    cells = np.asarray(topic, np.int64) << _HALF | tokens
    return TopicCounts(*np.unique(cells, return_counts=True))


def topic_counts(
    doc_ptr: NDArray[np.int64], place: NDArray[np.uint32], topic: NDArray[Any], n_topics: int
) -> TopicCounts:
    """Count the documents between ``doc_ptr[0]`` and ``doc_ptr[-1]``, or words, whose tokens are in their order.

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
    """
    n_small = max(1, min(SMALL, MAX_CELLS // n_topics))
    longest = int(np.diff(doc_ptr).max(initial=0))
    table = np.zeros((n_topics, n_small), np.int64)
    large = np.empty((doc_ptr[-1] - doc_ptr[0]) // n_small, np.int64)
    seen, counts = np.empty(longest, topic.dtype), np.zeros(n_topics, np.int32)
    n = _tally(doc_ptr, place, topic, seen, counts, table, large)
    some_topic, some_tokens = np.nonzero(table)
    small = TopicCounts(some_topic << _HALF | some_tokens, table[some_topic, some_tokens])
    return merge_counts([small, TopicCounts(large[:n], np.ones(n, np.int64))])


def merge_counts(pieces: Sequence[TopicCounts]) -> TopicCounts:
    """Return the counts of several sets of documents taken together; the cells of a piece need no order."""
    cell = np.concatenate([piece.cell for piece in pieces])
    order = np.argsort(cell, kind="stable")
    cell = cell[order]
    documents = np.concatenate([piece.documents for piece in pieces])[order]
    first = np.flatnonzero(np.diff(cell, prepend=-1))
    return TopicCounts(cell[first], np.add.reduceat(documents, first) if len(first) else documents)


@kernel
def _tally(doc_ptr, place, topic, seen, counts, table, large):
    """Tally the n_dk of documents in `table` (K, n_small), or list them in `large`; return how many are listed.

    Parameters are those of `topic_counts`; `seen` (longest document) and `counts` (K,) int32 are scratch, and `counts`
    is zero before and after.  6 ns per token.
    """
    n = 0
    n_small = table.shape[1]
    for d in range(len(doc_ptr) - 1):
        first, length = doc_ptr[d], doc_ptr[d + 1] - doc_ptr[d]
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
