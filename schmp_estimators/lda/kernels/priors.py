"""Priors, as kernels take them.

The document-topic prior is one number for all topics, or one for each.  Kernels call `alpha_at`,
`draw_slots` and the like, which are compiled for the type of the prior.  So a symmetric prior costs
no more than a float, and kernels for asymmetric priors are compiled only when they are used.

A draw from an asymmetric prior takes one look at an alias table (Walker, Electronics Letters 10(8),
1974; built as by Vose, IEEE Trans. Software Eng. 17(9), 1991).  The table is made of integers, so
that a draw is exact.

The topic-word prior is beta for all words; some words have seeds, too.  Kernels get ``seeds``, a
`SeedRows` or None.  A seed s_kw is a number of imaginary tokens of word w in topic k.  The word has
``beta + s_kw`` in place of beta, and the topic ``V beta + sum over w of s_kw`` in place of
``V beta``.  So with seeds, kernels get an array for V beta, with one sum for each topic
(`alpha_at`).
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from schmp_estimators.core.jit import by_types, index, inlined, kernel, part
from schmp_estimators.core.rng import GAMMA, MASK_PROPOSE, SCALE_PROPOSE, mix, unit
from schmp_estimators.core.typing import (
    Floats,
    Floats32,
    Function,
    Integers32,
)
from schmp_estimators.lda.kernels.draw import at_most, first_above, select, uniform24

_HALF = np.uint64(32)
_LOWER = np.uint64((1 << 32) - 1)
_WHOLE = 2.0**32


class TopicPriors(NamedTuple):
    """An asymmetric document-topic prior, with a table to draw from it."""

    #: (K,) float32.
    alpha: Floats32
    #: Sum of `alpha`.
    total: float
    #: (K,) chance, in units of 2**-32, that a slot of the table stands for its own topic.
    own: NDArray[np.uint64]
    #: (K,) the topic for which the slot stands otherwise.
    other: Integers32


def topic_priors(alphas: Floats) -> TopicPriors:
    """Return the prior of the given values, (K,), rounded as kernels take them."""
    alpha = alphas.astype(np.float32)
    share = np.empty(len(alpha))
    other = np.empty(len(alpha), np.int32)
    work = np.empty(len(alpha), np.int32)
    total = _build_table(alpha.astype(np.float64), share, other, work)
    return TopicPriors(alpha, total, (np.minimum(share, 1.0) * _WHOLE).astype(np.uint64), other)


def where_given(without: Function, *, copied: bool = True) -> Callable[[Function], Function]:
    """Let kernels call `without` instead of the decorated function.

    This holds unless the first argument is a tuple or array.
    """

    def declare(function: Function) -> Function:
        @wraps(function)
        def ask(*arguments: Any) -> Any:
            raise NotImplementedError("for kernels")

        @by_types(ask, copied=copied, strict=False)
        def choose(given: Any, *others: Any) -> Function:
            return function if isinstance(given, types.BaseTuple | types.Array) else without

        return ask

    return declare


@where_given(lambda alpha: alpha, copied=False)
def values_of(alpha):
    """Return the prior as a number or an array.

    numba counts references whenever an array is taken out of a tuple.
    """
    return alpha.alpha


@where_given(lambda alpha, topic: alpha)
def alpha_at(alpha, topic):
    """Return the prior of a topic, from a number or an array."""
    return alpha[index(topic)]


@where_given(lambda alpha, n_topics: n_topics * np.float64(alpha))
def _alpha_sum(alpha, n_topics):
    """Return the sum of the prior over all topics."""
    return alpha.total


@where_given(
    lambda alpha, point, bits, n_topics: np.int32(
        max(min(point * (1.0 / np.float64(alpha)), n_topics - 1.0), 0.0)
    )
)
def _topic_of_prior(alpha, point, bits, n_topics):
    """Return a topic drawn from the prior, without a branch that the processor would have to guess.

    If all topics have the same prior, it is the one at `point`.  Floats are limited to the topics
    before they are converted, and to 32 bits, because there are vector instructions for that.  Else
    a second hash of the bits decides.
    """
    bits = mix(bits)
    slot = (bits >> _HALF) * np.uint64(n_topics) >> _HALF
    return select(bits & _LOWER < alpha.own[slot], np.int32(slot), alpha.other[slot])


@part
def draw_slots(alpha, n, counter, n_slots, n_topics, uniforms, out):
    """Make the random numbers for n proposals of a document.

    They are for the acceptance of these proposals, and for the next ones.

    Parameters
    ----------
    alpha : float32 or TopicPriors
        The prior.
    n : int
        Number of draws.
    counter : uint64
        Input of the hash for the first of them.
    n_slots : int
        Tokens of the document.
    n_topics : int
        Number of topics.
    uniforms : (at least n,) float32
        Mutated: uniform numbers, from the upper bits of the hash.
    out : (at least n,) int32
        Mutated: ``~x`` for slot x of the document's tokens, else a topic drawn from the prior.

    Notes
    -----
    1 ns for each draw, 1.5 ns if topics have priors of their own.
    """
    last_slot = np.float64(n_slots)
    scale = (last_slot + _alpha_sum(alpha, n_topics)) * SCALE_PROPOSE
    for i in range(n):
        bits = mix(counter + np.uint64(i) * GAMMA)
        uniforms[index(i)] = uniform24(bits)
        y = np.float64(np.int64(bits & MASK_PROPOSE)) * scale
        slot = np.int32(~np.int32(min(y, last_slot)))  # not used where y is beyond all slots
        out[index(i)] = select(
            y < last_slot, slot, _topic_of_prior(alpha, y - last_slot, bits, n_topics)
        )


@part
def build_alias(weights, share, other, work):
    """Make the alias table of some weights, not all of them zero.

    Parameters
    ----------
    weights : (n,) float64
        At least 0.
    share : (n,) float64
        Mutated: the part of a slot that stands for its own number.
    other : (n,) int32
        Mutated: the number for which the rest of the slot stands.
    work : (at least n,) int32
        Mutated: for use here only.

    Returns
    -------
    float
        The sum of the weights.

    Notes
    -----
    5 ns per weight.
    """
    n = len(weights)
    total = 0.0
    for i in range(n):
        total += weights[i]
    scale = n / total
    n_small, top = 0, n  # small ones from the left end of `work`, large ones from the right
    for i in range(n):
        share[i], other[i] = weights[i] * scale, i
        if share[i] < 1.0:
            work[n_small] = i
            n_small += 1
        else:
            top -= 1
            work[top] = i
    while n_small > 0 and top < n:
        n_small -= 1
        small, large = work[n_small], work[top]
        other[small] = large
        share[large] -= 1.0 - share[small]
        if share[large] < 1.0:
            top += 1
            work[n_small] = large
            n_small += 1
    for i in range(n_small):  # left over because of rounding
        share[work[i]] = 1.0
    return total


@inlined
def draw_alias(share, other, start, n, uniform):
    """Draw from the alias table of n weights that begins at `start`; return a slot of it.

    The slot is counted from `start`; `uniform` is in [0, 1).
    """
    y = uniform * n
    slot = min(np.int64(y), n - 1)
    return slot if y - slot < share[index(start + slot)] else np.int64(other[index(start + slot)])


@kernel
def _build_table(weights, share, other, work):
    """Make an alias table for Python: see `build_alias`."""
    return build_alias(weights, share, other, work)


@kernel
def add_up(ptr, weight, ends):
    """Write the cumulative weights within each word, the same whichever words stand before."""
    for word in range(len(ptr) - 1):
        total = 0.0
        for i in range(ptr[word], ptr[word + 1]):
            total += weight[i]
            ends[i] = total


@kernel
def draw_of_seeds(seeds, word, place, first_token, key, out):
    """Draw the first topics of tokens of seeded words; other tokens keep theirs.

    Parameters
    ----------
    seeds : SeedRows
        Of all words.
    word : (n_tokens,) int32
        Word of each token, word-major.
    place : (n_tokens,) uint32
        Of the TokenShard.
    first_token : int
        Number of the first token in the corpus.
    key : uint64
        Stream of random numbers.
    out : (n_tokens,) uint8, int16 or int32
        Mutated: topics in document order.
    """
    for i in range(len(out)):
        at = seeds.number[word[place[i]]]
        if at >= 0:
            end = seeds.ptr[at + 1]
            y = unit(mix(key + np.uint64(first_token + i) * GAMMA)) * seeds.ends[end - 1]
            out[i] = seeds.topic[first_above(seeds.ends, seeds.ptr[at], end, y)]


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


@where_given(lambda seeds, word, topic, beta: beta)
def beta_of(seeds, word, topic, beta):
    """Return the prior of a word in a topic; a binary search finds its seed."""
    at = seeds.number[word]
    if at >= 0:
        i = first_above(seeds.topic, seeds.ptr[at], seeds.ptr[at + 1], np.int64(topic) - 1)
        if seeds.topic[i] == np.int64(topic):
            return beta + seeds.weight[i]
    return beta + 0.0


# Gibbs sampling: what the seeds of a word weigh for a token, given the counts of its document.


@where_given(lambda seeds, word, skipped, n_dk, alpha, inverse, point: (skipped, 0.0))
def find_seed(seeds, word, skipped, n_dk, alpha, inverse, point):
    """Return the topic (uint64) at `point` in a sum over the seeds.

    Its terms are ``seed * (n_dk + alpha) * inverse``.

    The topic `skipped` is left out.  The sum up to the topic is returned, too.  A point beyond the
    sum finds the last topic.
    """
    found = skipped
    before = 0.0
    at = seeds.number[word]
    if at >= 0:
        for i in range(seeds.ptr[at], seeds.ptr[at + 1]):
            k = index(seeds.topic[i])
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
    at = seeds.number[word]
    return n_topics * beta + (seeds.ends[seeds.ptr[at + 1] - 1] if at >= 0 else 0.0)


@where_given(lambda seeds, word, point, smooth, topic, n_topics: at_most(topic, n_topics - 1))
def draw_of_prior(seeds, word, point, smooth, topic, n_topics):
    """Return the topic (int64) at a point of a word's prior: beta for each topic, then the seeds.

    `smooth` is the prior of all topics, and `topic` the point divided by beta, as a float.
    """
    at = seeds.number[word]
    if at < 0 or point < smooth:
        return at_most(topic, n_topics - 1)
    found = first_above(seeds.ends, seeds.ptr[at], seeds.ptr[at + 1], point - smooth)
    return np.int64(seeds.topic[found])
