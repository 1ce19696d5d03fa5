"""Topic-word priors, as kernels take them: beta for all words, or some words with seeds beside it.

Kernels get ``seeds``, a `SeedRows` or None, and ask for what it adds.  They are compiled for the type that they get, so
where no words are seeded nothing is asked.  With seeds V beta, where kernels take it, is an array: one sum for each
topic, its seeds included (`document_priors.alpha_at`).
"""

import numpy as np
from numba import types

from schmp_estimators.core.jit import by_types, part


def make_row(seeds, n_topics):
    """Return an empty row of a word: of int32, or of float64 if words may be seeded."""
    raise NotImplementedError("for kernels")


@by_types(make_row)
def _make_row(seeds, n_topics):
    if isinstance(seeds, types.BaseTuple):
        return lambda seeds, n_topics: np.zeros(n_topics, np.float64)
    return lambda seeds, n_topics: np.zeros(n_topics, np.int32)


def add_seeds(seeds, word, row):
    """Add the seeds of a word of the layout to its row, and return whether it has any."""
    raise NotImplementedError("for kernels")


@by_types(add_seeds)
def _add_seeds(seeds, word, row):
    if not isinstance(seeds, types.BaseTuple):
        return lambda seeds, word, row: False

    def add(seeds, word, row):
        at = seeds.number[word]
        if at < 0:
            return False
        for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
            row[seeds.topic[i]] += seeds.weight[i]
        return True

    return add


def beta_of(seeds, word, topic, beta):
    """Return the prior of a word in a topic."""
    raise NotImplementedError("for kernels")


@by_types(beta_of)
def _beta_of(seeds, word, topic, beta):
    if isinstance(seeds, types.BaseTuple):
        return lambda seeds, word, topic, beta: beta + _seed_of(seeds, word, topic)
    return lambda seeds, word, topic, beta: beta


@part
def _seed_of(seeds, word, topic):
    """Return the seed of a word in a topic; 1 ns for each seed of the word."""
    at = seeds.number[word]
    if at >= 0:
        for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
            if seeds.topic[i] == np.int64(topic):
                return seeds.weight[i]
    return 0.0


# Gibbs sampling: what the seeds of a word weigh for a token, given the counts of its document.


def sum_seeds(seeds, word, skipped, n_dk, alpha, inverse):
    """Return the sum of ``seed * (n_dk + alpha) * inverse`` over the seeds of a word, one topic left out."""
    raise NotImplementedError("for kernels")


@by_types(sum_seeds, copied=True)
def _sum_seeds(seeds, word, skipped, n_dk, alpha, inverse):
    if not isinstance(seeds, types.BaseTuple):
        return lambda seeds, word, skipped, n_dk, alpha, inverse: 0.0

    def add_up(seeds, word, skipped, n_dk, alpha, inverse):
        _, total = _search(seeds, word, skipped, n_dk, alpha, inverse, np.inf)
        return total

    return add_up


def find_seed(seeds, word, skipped, n_dk, alpha, inverse, point):
    """Return the topic (uint64) in which `point` lies of the sum of `sum_seeds`; the last if rounding leads beyond."""
    raise NotImplementedError("for kernels")


@by_types(find_seed, copied=True)
def _find_seed(seeds, word, skipped, n_dk, alpha, inverse, point):
    if not isinstance(seeds, types.BaseTuple):
        return lambda seeds, word, skipped, n_dk, alpha, inverse, point: skipped

    def find(seeds, word, skipped, n_dk, alpha, inverse, point):
        found, _ = _search(seeds, word, skipped, n_dk, alpha, inverse, point)
        return found

    return find


@part
def _search(seeds, word, skipped, n_dk, alpha, inverse, point):
    """Return the topic in which `point` lies, and the sum up to its end; 2 ns for each seed of the word."""
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


def prior_mass(seeds, word, beta, n_topics):
    """Return the sum of the prior of a word over the topics."""
    raise NotImplementedError("for kernels")


@by_types(prior_mass, copied=True)
def _prior_mass(seeds, word, beta, n_topics):
    if isinstance(seeds, types.BaseTuple):
        return lambda seeds, word, beta, n_topics: n_topics * beta + _sum_weights(seeds, word)
    return lambda seeds, word, beta, n_topics: n_topics * beta


@part
def _sum_weights(seeds, word):
    at, total = seeds.number[word], 0.0
    if at >= 0:
        for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
            total += seeds.weight[i]
    return total


def draw_of_prior(seeds, word, point, beta, n_topics):
    """Return the topic (uint64) in which a point of the prior of a word lies: beta for each topic, then the seeds."""
    raise NotImplementedError("for kernels")


@by_types(draw_of_prior, copied=True)
def _draw_of_prior(seeds, word, point, beta, n_topics):
    if not isinstance(seeds, types.BaseTuple):
        return lambda seeds, word, point, beta, n_topics: np.uint64(min(np.int64(point / beta), n_topics - 1))

    def draw(seeds, word, point, beta, n_topics):
        return _draw_with_seeds(seeds, word, point, beta, n_topics)

    return draw


@part
def _draw_with_seeds(seeds, word, point, beta, n_topics):
    at, found = seeds.number[word], n_topics - 1
    if at < 0 or point < n_topics * beta:
        return np.uint64(min(np.int64(point / beta), n_topics - 1))
    point -= n_topics * beta
    for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
        found = np.int64(seeds.topic[i])
        point -= seeds.weight[i]
        if point < 0.0:
            break
    return np.uint64(found)
