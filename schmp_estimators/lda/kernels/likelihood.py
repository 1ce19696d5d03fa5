"""Joint log-likelihood of a topic model, from histograms of its counts.

With the multinomials integrated out, ln p(words, topics) is a document part plus a word part
(Griffiths and Steyvers, PNAS 2004, equations 2 and 3; Yu et al., VLDB 2017, section 6.1)::

    document part   sum over (d, k) of ln (alpha_k)_n_dk   -   sum over d of ln (sum of alpha)_L_d
    word part       sum over (w, k) of ln (beta)_n_wk      -   sum over k of ln (V beta)_n_k

where (a)_n = a (a + 1) ... (a + n - 1).  Every sum needs only how many cells hold each count; with
an asymmetric alpha, how many of each topic.  These histograms are integers, and the float sum over
them is correctly rounded, so the result has the same bits however the documents and words are
divided.

An asymmetric document-topic prior depends on how many documents have how many tokens of each topic.
Of n tokens and K topics there are no more than ``sqrt(2 n K)`` different cells of these counts, and
no more than n.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.typing import Array, Integers, Unsigned32
from schmp_estimators.lda.blocks import Prior

#: In sums over counts, equal counts below this are one term, multiplied by how often they occur.
LIMIT = 4096
#: Counts that are tallied in a table, of no more than so many cells; others are listed one by one.
SMALL, MAX_CELLS = 64, 1 << 22
_HALF = 32


class TopicCounts(NamedTuple):
    """In how many documents a topic has so many tokens, for those pairs that occur.

    The same is counted of words, and of lengths of documents: where topics do not matter, all have
    topic 0.
    """

    #: (n,) ``topic << 32 | tokens``, ascending; tokens are positive.
    cell: Integers
    #: (n,) how many documents, or words.
    often: Integers

    @property
    def topic(self) -> Integers:
        """(n,) topics."""
        return self.cell >> _HALF

    @property
    def tokens(self) -> Integers:
        """(n,) tokens of the topic in a document."""
        return self.cell & ((1 << _HALF) - 1)

    @property
    def terms(self) -> tuple[Integers, Integers]:
        """Tokens of any topic, and how often, with an entry for each term of a sum; see `LIMIT`."""
        merged = merge_counts([TopicCounts(self.tokens, self.often)])
        n_terms = np.where(merged.cell < LIMIT, 1, merged.often)
        return np.repeat(merged.cell, n_terms), np.repeat(merged.often // n_terms, n_terms)


def count_cells(topic: int | Array, tokens: int | Array) -> TopicCounts:
    """Count documents that have so many tokens of a topic each, and none of any other.

    One of the two is an array.
    """
    cells = np.asarray(topic, np.int64) << _HALF | tokens
    return TopicCounts(*np.unique(cells, return_counts=True))


def count_table(counts: Array) -> TopicCounts:
    """Count how often each positive number occurs in an integer array of any shape."""
    is_small = counts < LIMIT
    table = np.bincount(counts[is_small], minlength=1)
    small = np.flatnonzero(table[1:]) + 1
    return merge_counts([TopicCounts(small, table[small]), count_cells(0, counts[~is_small])])


def document_log_likelihood(
    counts: TopicCounts, lengths: TopicCounts, alpha: Prior, n_topics: int
) -> float:
    """Return the document part, from the topic counts and the lengths of documents.

    The prior is one number, or one for each topic (K,).
    """
    if isinstance(alpha, np.ndarray):
        return rising(alpha[counts.topic], counts.tokens, counts.often) - rising(
            math.fsum(alpha), *lengths.terms
        )
    return rising(alpha, *counts.terms) - rising(n_topics * alpha, *lengths.terms)


def word_log_likelihood(
    words: TopicCounts, topic_totals: Integers, beta: float, n_words: int
) -> float:
    """Return the word part, from the counts n_wk and from the topic totals n_k."""
    return rising(beta, *words.terms) - rising(n_words * beta, *count_table(topic_totals).terms)


def rising(start: Prior, counts: Integers, often: Integers | int = 1) -> float:
    """Return a sum over counts, correctly rounded.

    Its terms are ``often * ln(start (start + 1) ... (start + count - 1))``.
    """
    return math.fsum(often * (gammaln(start + counts) - gammaln(start)))


def topic_counts(doc_ptr: Integers, place: Unsigned32, topic: Array, n_topics: int) -> TopicCounts:
    """Count the documents between ``doc_ptr[0]`` and ``doc_ptr[-1]``, or words.

    Tokens are in the order of what is counted.

    Parameters
    ----------
    doc_ptr : (n_docs + 1,) int64
        Offsets of the documents in `place`.
    place : (n_tokens,) uint32
        Where to find the topic of each token.
    topic : (n_tokens,) uint8, int16 or int32
        Topics, perhaps a strided view.
    n_topics : int
        Number of topics.
    """
    n_small = max(1, min(SMALL, MAX_CELLS // n_topics))
    longest = int(np.diff(doc_ptr).max(initial=0))
    table = np.zeros((n_topics, n_small), np.int64)
    large = np.empty((doc_ptr[-1] - doc_ptr[0]) // n_small, np.int64)
    seen = np.empty(longest, topic.dtype)
    counts = np.zeros(n_topics, np.int32)
    n = _tally(doc_ptr, place, topic, seen, counts, table, large)
    some_topic, some_tokens = np.nonzero(table)
    small = TopicCounts(some_topic << _HALF | some_tokens, table[some_topic, some_tokens])
    return merge_counts([small, TopicCounts(large[:n], np.ones(n, np.int64))])


def merge_counts(pieces: Sequence[TopicCounts]) -> TopicCounts:
    """Return the counts of several sets of documents taken together.

    The cells of a piece need no order.
    """
    nothing = np.empty(0, np.int64)
    cell, often = (np.concatenate([nothing, *(piece[i] for piece in pieces)]) for i in (0, 1))
    order = np.argsort(cell, kind="stable")
    cell, often = cell[order], often[order]
    first = np.flatnonzero(np.diff(cell, prepend=-1))
    return TopicCounts(cell[first], np.add.reduceat(often, first) if len(first) else often)


@kernel
def _tally(doc_ptr, place, topic, seen, counts, table, large):
    """Tally the n_dk of documents in `table` (K, n_small), or list them in `large`.

    The number of those listed is returned.

    Parameters are those of `topic_counts`; `seen` (longest document) and `counts` (K,) int32 are
    scratch, and `counts` is zero before and after.  6 ns per token.
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
