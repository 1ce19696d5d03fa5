"""The alias tables of a block's words, which are made of counts as they were some time ago."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import inlined, maker, part
from schmp_estimators.core.rng import GAMMA, mix
from schmp_estimators.lda.kernels.alias import build_alias, draw_alias

#: A hash has 53 bits that fit a float64 in [0, 1).
_SHIFT = np.uint64(11)
SCALE = 2.0**-53
#: So often a table is asked for another topic than the token's own; then its weights are summed up.
_TRIES = 16


@inlined
def unit(bits):
    """Return a number in [0, 1)."""
    return np.float64(np.int64(bits >> _SHIFT)) * SCALE


class Tables(NamedTuple):
    """The alias tables of a block's words; their slots have the places of the entries."""

    #: (n_words,) slots, the sum of the weights, and for how many tokens more the table is good.
    slots: NDArray[np.int32]
    sums: NDArray[np.float64]
    left: NDArray[np.int64]
    #: (2 * n_entries,) the weight of each entry with all tokens, and with one less of its topic.
    stale: NDArray[np.float64]
    #: (n_entries,) as in `build_alias`.
    share: NDArray[np.float64]
    other: NDArray[np.int32]
    #: (K,) for use while a table is made.
    weights: NDArray[np.float64]
    order: NDArray[np.int32]


@maker
def no_tables(n_words, n_entries, n_topics):
    """Return the Tables of words that have none as yet."""
    return Tables(
        np.zeros(n_words, np.int32),
        np.zeros(n_words),
        np.zeros(n_words, np.int64),
        np.empty(2 * n_entries),
        np.empty(n_entries),
        np.empty(n_entries, np.int32),
        np.empty(n_topics),
        np.empty(n_topics, np.int32),
    )


@part
def make_table(word, bounds, entries, alpha, inverse, inverse_less, lifetime, tables):
    """Make the table of a word anew, after dropping topics that it has no more; 10 ns per topic."""
    start, end = bounds[2 * word], bounds[2 * word + 1]
    if end < 0:
        end = start + len(alpha)
    else:
        kept = start
        for at in range(start, end):
            if entries[2 * at + 1] > 0:
                entries[2 * kept], entries[2 * kept + 1] = entries[2 * at], entries[2 * at + 1]
                kept += 1
        end = kept
        bounds[2 * word + 1] = end
    weights = tables.weights[: end - start]
    for at in range(start, end):
        k, n = np.uint32(entries[2 * at]), entries[2 * at + 1]
        weights[at - start] = n * alpha[k] * inverse[k]
        tables.stale[2 * at] = weights[at - start]
        tables.stale[2 * at + 1] = (n - 1) * alpha[k] * inverse_less[k]
    tables.slots[word] = end - start
    tables.sums[word] = 0.0
    if end > start:
        tables.sums[word] = build_alias(weights, tables.share[start:end], tables.other[start:end], tables.order)
    tables.left[word] = lifetime if lifetime > 0 else end - start


class Smoothing(NamedTuple):
    """The alias table of all topics."""

    #: (K,) weights with all tokens, and with one less of the topic.
    spread: NDArray[np.float64]
    spread_less: NDArray[np.float64]
    #: (K,) as in `build_alias`.
    share: NDArray[np.float64]
    other: NDArray[np.int32]
    #: (1,) the sum of the weights, and for how many tokens more the table is good.
    sum: NDArray[np.float64]
    left: NDArray[np.int64]


@maker
def no_smoothing(n_topics):
    """Return a Smoothing that has to be made."""
    return Smoothing(
        np.empty(n_topics),
        np.empty(n_topics),
        np.empty(n_topics),
        np.empty(n_topics, np.int32),
        np.zeros(1),
        np.zeros(1, np.int64),
    )


@part
def make_smoothing(alpha, inverse, inverse_less, lifetime, order, smoothing):
    """Make the table of all topics anew; 10 ns per topic."""
    for k in range(len(alpha)):
        smoothing.spread[k] = alpha[k] * inverse[k]
        smoothing.spread_less[k] = alpha[k] * inverse_less[k]
    smoothing.sum[0] = build_alias(smoothing.spread, smoothing.share, smoothing.other, order)
    smoothing.left[0] = lifetime if lifetime > 0 else len(alpha)


@inlined
def draw_other(share, other, start, n, stride, weights, skipped, sum_others, uniform, bits):
    """Return a slot of a table other than `skipped`; the latter only if rounding leaves no other.

    ``weights[stride * (start + slot)]`` are the table's weights, and `bits` is what further random numbers are made of.
    """
    slot = draw_alias(share, other, start, n, uniform)
    tries = 1
    while slot == skipped and tries < _TRIES:
        bits = mix(bits + GAMMA)
        uniform = unit(bits)
        slot = draw_alias(share, other, start, n, uniform)
        tries += 1
    if slot == skipped:
        point = unit(mix(bits + GAMMA)) * sum_others
        for i in range(n):
            if i != skipped:
                point -= weights[np.uint64(stride * (start + i))]
                if point < 0.0:
                    slot = np.int64(i)
                    break
    return slot
