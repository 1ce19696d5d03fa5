"""Topic-word priors, as kernels take them: beta for all words, or some words with seeds beside it.

Kernels get ``seeds``, a `SeedRows` or None, and ask for what it adds.  They are compiled for the type that they get, so
where no words are seeded nothing is asked.  With seeds V beta, where kernels take it, is an array: one sum for each
topic, its seeds included (`document_priors.alpha_at`).

A seed s_kw is a number of imaginary tokens of word w in topic k, beside those that beta gives to every word: the word
has ``beta + s_kw`` in place of beta, and the topic ``V beta + sum over w of s_kw`` in place of ``V beta``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import inlined
from schmp_estimators.lda.kernels.document_priors import where_given
from schmp_estimators.lda.kernels.draw import at_most


class SeedRows(NamedTuple):
    """The seeds of consecutive words of the layout."""

    #: (n_words,) number of the word among those that are seeded, or -1.
    number: NDArray[np.int32]
    #: (n_seeded + 1,) offsets in what follows.
    ptr: NDArray[np.int64]
    topic: NDArray[np.int32]
    weight: NDArray[np.float64]


@where_given(lambda seeds, n_topics: np.zeros(n_topics, np.int32), copied=False)
def make_row(seeds, n_topics):
    """Return an empty row of a word: of int32, or of float64 if words may be seeded."""
    return np.zeros(n_topics, np.float64)


@where_given(lambda seeds, word, row: False)
def add_seeds(seeds, word, row):
    """Add the seeds of a word of the layout to its row, and return whether it has any."""
    at = seeds.number[word]
    if at < 0:
        return False
    for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
        row[seeds.topic[i]] += seeds.weight[i]
    return True


@where_given(lambda seeds, word, topic, beta: beta, copied=False)
def beta_of(seeds, word, topic, beta):
    """Return the prior of a word in a topic; 1 ns for each seed of the word."""
    at = seeds.number[word]
    if at >= 0:
        for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
            if seeds.topic[i] == np.int64(topic):
                return beta + seeds.weight[i]
    return beta + 0.0


# Gibbs sampling: what the seeds of a word weigh for a token, given the counts of its document.


@where_given(lambda seeds, word, skipped, n_dk, alpha, inverse, point: (skipped, 0.0))
def find_seed(seeds, word, skipped, n_dk, alpha, inverse, point):
    """Return the topic (uint64) in which `point` lies of the sum of ``seed * (n_dk + alpha) * inverse`` over the seeds.

    One topic is left out.  Returned is also the sum up to there.  A point beyond all finds the last topic.
    """
    found, before, at = skipped, 0.0, seeds.number[word]
    if at >= 0:
        for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
            k = np.uint64(seeds.topic[i])
            if k != skipped:
                found = k
                before += seeds.weight[i] * (n_dk[k] + alpha[k]) * inverse[k]
                if before > point:
                    break
    return found, before


# Proposals of a word: a draw from its prior.


@where_given(lambda seeds, word, beta, n_topics: n_topics * beta)
def prior_mass(seeds, word, beta, n_topics):
    """Return the sum of the prior of a word over the topics."""
    at, total = seeds.number[word], 0.0
    if at >= 0:
        for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
            total += seeds.weight[i]
    return n_topics * beta + total


@inlined
def _seed_at(seeds, at, point):
    """Return the topic in which a point of the seeds of a word lies; the last if rounding leads beyond."""
    found = np.int64(0)
    for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
        found = np.int64(seeds.topic[i])
        point -= seeds.weight[i]
        if point < 0.0:
            break
    return found


@where_given(lambda seeds, word, point, beta, n_topics: np.uint64(min(np.int64(point / beta), n_topics - 1)))
def draw_of_prior(seeds, word, point, beta, n_topics):
    """Return the topic (uint64) in which a point of the prior of a word lies: beta for each topic, then the seeds."""
    at, smooth = seeds.number[word], n_topics * beta
    if at < 0 or point < smooth:
        return np.uint64(min(np.int64(point / beta), n_topics - 1))
    return np.uint64(_seed_at(seeds, at, point - smooth))


@where_given(lambda seeds, word, point, beta, per_topic, n_topics: at_most(point * per_topic, n_topics - 1))
def draw_of_weights(seeds, word, point, beta, per_topic, n_topics):
    """Return the same topic, as int64, for any point; `beta` is float32, and `per_topic` is 1 by it in 64 bits."""
    at, smooth = seeds.number[word], n_topics * np.float64(beta)
    if at < 0 or point < smooth:
        return at_most(point * per_topic, n_topics - 1)
    return _seed_at(seeds, at, point - smooth)
