"""Topic-word priors, as kernels take them: beta for all words, or some words with seeds beside it.

Kernels get ``seeds``, a `SeedRows` or None, and ask for what it adds.  They are compiled for the type that they get, so
where no words are seeded nothing is asked.  With seeds V beta, where kernels take it, is an array: one sum for each
topic, its seeds included (`document_priors.alpha_at`).
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from numba import types

from schmp_estimators.core.jit import by_types

#: What kernels call.
_Function = Callable[..., Any]


def _where_seeded(without: _Function, *, copied: bool = True) -> Callable[[_Function], _Function]:
    """Let kernels that call the decorated function get `without` where ``seeds``, the first argument, is None."""

    def declare(function: _Function) -> _Function:
        @wraps(function)
        def ask(*arguments: Any) -> Any:
            raise NotImplementedError("for kernels")

        @by_types(ask, copied=copied, strict=False)
        def choose(seeds: Any, *others: Any) -> _Function:
            return function if isinstance(seeds, types.BaseTuple) else without

        return ask

    return declare


@_where_seeded(lambda seeds, n_topics: np.zeros(n_topics, np.int32), copied=False)
def make_row(seeds, n_topics):
    """Return an empty row of a word: of int32, or of float64 if words may be seeded."""
    return np.zeros(n_topics, np.float64)


@_where_seeded(lambda seeds, word, row: False)
def add_seeds(seeds, word, row):
    """Add the seeds of a word of the layout to its row, and return whether it has any."""
    at = seeds.number[word]
    if at < 0:
        return False
    for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
        row[seeds.topic[i]] += seeds.weight[i]
    return True


@_where_seeded(lambda seeds, word, topic, beta: beta, copied=False)
def beta_of(seeds, word, topic, beta):
    """Return the prior of a word in a topic; 1 ns for each seed of the word."""
    at = seeds.number[word]
    if at >= 0:
        for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
            if seeds.topic[i] == np.int64(topic):
                return beta + seeds.weight[i]
    return beta + 0.0


# Gibbs sampling: what the seeds of a word weigh for a token, given the counts of its document.


@_where_seeded(lambda seeds, word, skipped, n_dk, alpha, inverse: 0.0)
def sum_seeds(seeds, word, skipped, n_dk, alpha, inverse):
    """Return the sum of ``seed * (n_dk + alpha) * inverse`` over the seeds of a word, one topic left out."""
    total, at = 0.0, seeds.number[word]
    if at >= 0:
        for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
            k = np.uint64(seeds.topic[i])
            if k != skipped:
                total += seeds.weight[i] * (n_dk[k] + alpha[k]) * inverse[k]
    return total


@_where_seeded(lambda seeds, word, skipped, n_dk, alpha, inverse, point: skipped)
def find_seed(seeds, word, skipped, n_dk, alpha, inverse, point):
    """Return the topic (uint64) in which `point` lies of the sum of `sum_seeds`; the last if rounding leads beyond."""
    found, before, at = skipped, 0.0, seeds.number[word]
    if at >= 0:
        for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
            k = np.uint64(seeds.topic[i])
            if k != skipped:
                found = k
                before += seeds.weight[i] * (n_dk[k] + alpha[k]) * inverse[k]
                if before > point:
                    break
    return found


# Proposals of a word: a draw from its prior.


@_where_seeded(lambda seeds, word, beta, n_topics: n_topics * beta)
def prior_mass(seeds, word, beta, n_topics):
    """Return the sum of the prior of a word over the topics."""
    at, total = seeds.number[word], 0.0
    if at >= 0:
        for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
            total += seeds.weight[i]
    return n_topics * beta + total


@_where_seeded(lambda seeds, word, point, beta, n_topics: np.uint64(min(np.int64(point / beta), n_topics - 1)))
def draw_of_prior(seeds, word, point, beta, n_topics):
    """Return the topic (uint64) in which a point of the prior of a word lies: beta for each topic, then the seeds."""
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
