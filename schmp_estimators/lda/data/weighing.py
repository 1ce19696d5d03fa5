"""How much of each word the topics have in whose passages it is: EM before the first sweep, wherever documents are.

Where words begin evenly in all the topics that they remember, Gibbs sampling takes tens of sweeps until a word is in a
few of them mostly.  EM finds these at a small part of the cost: it looks only at topics that words remember, of which
most are soon forgotten, and at some of the documents at a time (Neal and Hinton, "A view of the EM algorithm that
justifies incremental, sparse, and other variants", 1998).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import WordTopics
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.counts import Counts
from schmp_estimators.lda.kernels.weighing import expect_topics

#: How many topics a word remembers first, if there are documents enough.
CHOICES = 100
#: How many times words are divided anew, each time by the documents of one of so many parts.
ROUNDS, PARTS = 12, 6
#: A word forgets a topic that has less than this share of its tokens, and less than half an equal one.
LEAST = 0.01
#: In how many parts a word's tokens are divided among its topics in the end.
SHARES = 64


class Weighed(NamedTuple):
    """The topics that words remember, none of them twice: those of word w are ``ptr[w]`` to ``ptr[w + 1]``."""

    ptr: NDArray[np.int64]
    topic: NDArray[np.int32]
    #: The word of each, and which share of its tokens the topic has.
    word: NDArray[np.int64]
    share: NDArray[np.float64]


def weigh_topics(
    corpus: Corpus,
    documents: list[Any],
    bounds: NDArray[np.int64],
    remembered: WordTopics,
    alphas: NDArray[np.float64],
    beta: float,
) -> WordTopics:
    """Return the topics in which the tokens of each column may begin, repeated according to their shares.

    Parameters
    ----------
    corpus, documents, bounds
        As in `topics_from_passages`.
    remembered : WordTopics
        What that has returned: topics with more of a word's tokens are there more than once.
    alphas : (K,) float64
        Document-topic priors.
    beta : float
        Topic-word prior.

    Returns
    -------
    WordTopics
        By column.  It does not depend on how documents are divided.
    """
    words, rows = _count(remembered, len(alphas)), corpus.rows
    prior, totals = alphas.astype(np.float32), corpus.word_totals
    for number in range(ROUNDS):
        tokens = words.share * totals[words.word]
        of_topics = np.bincount(words.topic, tokens, len(alphas)) + beta * corpus.n_features
        weight = ((tokens + beta) / of_topics[words.topic]).astype(np.float32)
        given = rows.place.share((words.ptr, words.topic, weight, prior))
        work = [
            (documents[shard], (number - int(first)) % PARTS, given)
            for shard, (first, last) in enumerate(pairwise(bounds))
            if first < last
        ]
        found = rows.tasks(_expect, work, "weigh-topics")
        words = _divide_anew(words, rows.merged(found, _add_up, "weigh-topics"))
    return _repeated(words)


def _count(remembered: WordTopics, n_topics: int) -> Weighed:
    """Return each topic of a word once, with its share."""
    n_words = len(remembered.ptr) - 1
    word = np.repeat(np.arange(n_words), np.diff(remembered.ptr))
    pairs, n = np.unique(word * n_topics + remembered.topic, return_counts=True)
    of_word, topic = pairs // n_topics, (pairs % n_topics).astype(np.int32)
    ptr = np.searchsorted(of_word, np.arange(n_words + 1))
    return Weighed(ptr, topic, of_word, n / np.diff(remembered.ptr)[of_word])


def _expect(pieces: Sequence[Counts], first: int, given: tuple[NDArray[Any], ...]) -> NDArray[np.int64]:
    """Return what every `PARTS`-th document of a shard, from number `first` on, expects of its words."""
    given = freeze(given)
    expected, alpha = np.zeros(len(given[1]), np.int64), given[3]
    products = np.empty(np.diff(given[0]).max(initial=0), np.float32)
    scratch = np.empty_like(alpha), np.empty_like(alpha), products
    for piece in pieces:
        expect_topics(piece.indptr, piece.indices, piece.data, first, PARTS, *given, scratch, expected)
        first = (first - (len(piece.indptr) - 1)) % PARTS
    return expected


def _add_up(expected: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the sum of what documents of several shards expect."""
    total: NDArray[np.int64] = np.sum(expected, axis=0)
    return total


def _divide_anew(words: Weighed, expected: NDArray[np.int64]) -> Weighed:
    """Return the shares that documents expect, of topics with a share that is not small; old ones of words in none."""
    n_words = len(words.ptr) - 1
    tokens = np.bincount(words.word, expected, n_words)[words.word]
    share = np.where(tokens > 0, expected / np.maximum(tokens, 1), words.share)
    kept = share >= np.minimum(LEAST, 0.5 / np.diff(words.ptr)[words.word])  # one at least: it has an equal share
    word, share = words.word[kept], share[kept]
    share /= np.bincount(word, share, n_words)[word]
    return Weighed(np.searchsorted(word, np.arange(n_words + 1)), words.topic[kept], word, share)


def _repeated(words: Weighed) -> WordTopics:
    """Return the topics, each as often as is its share of `SHARES`, and once at least."""
    n = np.maximum(1, np.rint(words.share * SHARES)).astype(np.int64)
    sizes = np.bincount(words.word, n, len(words.ptr) - 1).astype(np.int64)
    return WordTopics(np.concatenate([[0], np.cumsum(sizes)]), np.repeat(words.topic, n))
