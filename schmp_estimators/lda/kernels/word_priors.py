"""Topic-word priors, as kernels take them: beta for all words, or some words with seeds beside it.

Kernels get ``seeds``, a `SeedRows` or None, and ask for what it adds.  They are compiled for the type that they get, so
where no words are seeded nothing is asked.  With seeds V beta, where kernels take it, is an array: one sum for each
topic, its seeds included (`document_priors.alpha_at`).

A seed s_kw is a number of imaginary tokens of word w in topic k, beside those that beta gives to every word: the word
has ``beta + s_kw`` in place of beta, and the topic ``V beta + sum over w of s_kw`` in place of ``V beta``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from schmp_estimators.core.jit import by_types, kernel
from schmp_estimators.core.rng import GAMMA, MASK_PROPOSE, SCALE_PROPOSE, mix
from schmp_estimators.lda.kernels.warp import at_most, uniform24

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


_SHIFT = np.uint64(11)
_SCALE = 2.0**-53


class SeedRows(NamedTuple):
    """The seeds of consecutive words of the layout."""

    #: (n_words,) number of the word among those that are seeded, or -1.
    number: NDArray[np.int32]
    #: (n_seeded + 1,) offsets in what follows.
    ptr: NDArray[np.int64]
    topic: NDArray[np.int32]
    weight: NDArray[np.float64]


@kernel
def _draw(y, slots, n, fixed_topic, fixed_ends, beta, n_topics, seed_topic, seed_ends):
    """Return the topic at y, where the word's tokens, its fixed row, beta for each topic and the seeds are lined up."""
    n_fixed = fixed_ends[-1] if len(fixed_ends) else 0
    if y < np.float64(n):
        return np.int64(slots[np.int64(y)])
    y -= np.float64(n)
    if y < np.float64(n_fixed):
        return np.int64(fixed_topic[np.searchsorted(fixed_ends, np.int64(y), side="right")])
    y -= np.float64(n_fixed)
    smooth = n_topics * np.float64(beta)
    if y < smooth:
        return at_most(y / np.float64(beta), n_topics - 1)
    at = np.searchsorted(seed_ends, y - smooth, side="right")
    return np.int64(seed_topic[min(at, len(seed_topic) - 1)])


@kernel
def sample_seeded_word(
    tokens, address, row, inverse, beta, key, slots, fixed_topic, fixed_ends, seed_topic, seed_weight, fresh, steps
):
    """Do the word pass for tokens of a seeded word: as `warp.sample_word`, or `warp.assign_word` if `fresh`.

    Parameters
    ----------
    tokens, address, inverse, beta, key, fixed_topic, fixed_ends, steps
        As in `warp.sample_word`.
    row : (K,) float64
        Counts of the word, in all shards and earlier batches, with its seeds.
    slots : (n,) int16 or int32
        Topics of the word's tokens in all shards: in document order for a tail word, else in topic order.
    seed_topic, seed_weight : (n_seeds,) int32 and float64
        Its seeds.
    fresh : bool
        Whether topics are still to be drawn from the fixed row.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    20 ns per token.
    """
    n_steps, n_topics, n = len(steps), len(inverse), 0 if fresh else len(slots)
    n_fixed = fixed_ends[-1] if len(fixed_ends) else 0
    seed_ends = np.cumsum(seed_weight)
    mass = np.float64(n + n_fixed) + n_topics * np.float64(beta) + seed_ends[-1]
    scale = mass * SCALE_PROPOSE
    if fresh:
        counter = key + address * np.uint64(1 + n_steps) * GAMMA
        for i in range(len(tokens)):
            y = np.float64(np.int64(mix(counter) & MASK_PROPOSE)) * scale
            counter += GAMMA
            tokens[i] = _draw(y, slots, n, fixed_topic, fixed_ends, beta, n_topics, seed_topic, seed_ends)
        return 0
    counter, moved = key + address * np.uint64(n_steps) * GAMMA, 0
    for i in range(len(tokens) // (1 + n_steps)):
        base = i * (1 + n_steps)
        original = np.int64(tokens[base])
        topic = original
        own = np.float32(row[topic] - 1.0 + np.float64(beta)) * inverse[topic]
        weight = own
        for step in range(n_steps):
            bits = mix(counter)
            counter += GAMMA
            proposed = np.int64(tokens[base + 1 + step])
            proposed_weight = np.float32(row[proposed] + np.float64(beta)) * inverse[proposed]
            if proposed == original:
                proposed_weight = own
            if uniform24(bits) * weight < proposed_weight:
                topic = proposed
                weight = proposed_weight
            y = np.float64(np.int64(bits & MASK_PROPOSE)) * scale
            tokens[base + 1 + step] = _draw(y, slots, n, fixed_topic, fixed_ends, beta, n_topics, seed_topic, seed_ends)
        tokens[base] = topic
        moved += topic != original
    return moved


@kernel
def draw_of_seeds(shard, seeds, key, out):
    """Draw first topics of the tokens of seeded words from their seeds; the others keep theirs.

    Parameters
    ----------
    shard : TokenShard
        Any; a token is known by its number in the corpus.
    seeds : SeedRows
        Of all words.
    key : uint64
        Stream of random numbers.
    out : (n_tokens,) int16 or int32
        Mutated: topics in document order.

    Notes
    -----
    5 ns per token, and 4 bytes for each while it runs.
    """
    number = np.empty(len(out), np.int32)
    for word in range(len(seeds.number)):
        for slot in range(shard.word_ptr[word], shard.word_ptr[word + 1]):
            number[slot] = seeds.number[word]
    ends = np.cumsum(seeds.weight)
    for token in range(len(out)):
        at = number[shard.place[token]]
        if at < 0:
            continue
        first, last = seeds.ptr[at], seeds.ptr[at + 1]
        before = ends[first - 1] if first else 0.0
        bits = mix(key + np.uint64(shard.first_token + token) * GAMMA)
        y = before + np.float64(np.int64(bits >> _SHIFT)) * _SCALE * (ends[last - 1] - before)
        found = first + np.searchsorted(ends[first:last], y, side="right")
        out[token] = seeds.topic[min(found, last - 1)]
