"""Fold-in: the topic proportions of documents under fixed topics, and how well they predict.

The proportions theta of a document maximise its likelihood times a Dirichlet(1 + alpha) prior, a
concave problem.  Expectation-maximisation (Hofmann, UAI 1999, section 3, with a prior as in
Asuncion et al., UAI 2009, section 2.3) repeats, for the pseudo-counts
``weight_k = (L + sum of alpha) theta_k``::

    weight_k  <-  alpha_k + sum over the words w of  c_w weight_k phi_wk / sum_j weight_j phi_wj
    phi_wk     =  (n_wk + beta) inverse_k,   inverse_k = 1 / (n_k + V beta)

No step knows of other documents and none is random: a document's result does not depend on its
neighbours.

A *full* step reads the sparse row of each word, and handles ``beta inverse_k`` for all words at
once in O(K).  Most topics soon have almost no tokens in a document.  Between full steps these are
held still.  The others, which are few, are iterated on a compact copy of their part of the rows,
with a leap after every two steps.  Both kinds of steps are one loop, which is compiled once: over
all topics and the rows, or over the active topics and the copy.

In the end each step is r times as long as the one before.  After a step of length s, the limit is
then at a distance of ``s r / (1 - r)``.  A document is done when this is at most the tolerance, as
a share of its pseudo-counts; r is the largest ratio that was seen.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import index, kernel, part
from schmp_estimators.core.rng import GAMMA, mix, unit
from schmp_estimators.core.typing import Array, Floats, Integers, Integers32
from schmp_estimators.core.values import freeze, offsets_of
from schmp_estimators.lda.blocks import Prior, TopicRows
from schmp_estimators.lda.kernels.draw import first_above
from schmp_estimators.lda.kernels.lists import find_in_list, sum_list

#: Full steps before topics are held still: their order of size settles in the first two.
FIRST_STEPS = 2
#: Topics with fewer tokens are held still; in short documents, less than this share of the tokens:
#: times the tolerance.
STILL, STILL_SHARE = 5.0, 0.1
#: Share of the tolerance that the steps between two full steps may leave.
INNER = 0.2
#: A leap leaves at least this share of a weight, so that a weight that should be larger can grow
#: again.
SHRINK = 0.1
#: The ratio r of full steps if there has been only one, and the largest r of full steps, and of
#: others.
FULL_RATE, MAX_FULL_RATE, MAX_RATE = 0.5, 0.9, 0.998
#: Shares below this are taken for none.
NOTHING = 1e-30
#: Limits that only unusual documents reach.
MAX_STEPS, MAX_ROUNDS = 300, 50


class FoldIn(NamedTuple):
    """What fold-in needs to know of topics beside the rows of words."""

    #: (K,) ``1 / (n_k + V beta)``.
    inverse: Floats
    #: (K,) document-topic prior of every topic, and their sum.
    alpha: Floats
    alpha_sum: float
    beta: float
    #: Tolerance: the estimated sum of absolute differences from the proportions at the maximum.
    tol: float


class TopicModel(NamedTuple):
    """Fixed topics, with the priors under which documents are folded in."""

    #: Counts by column number.
    rows: TopicRows
    priors: FoldIn
    #: (K,) proportions of a document without tokens.
    expected: Floats


def topic_model(
    rows: TopicRows, topic_totals: Array, alpha: Prior, beta: float, tol: float
) -> TopicModel:
    """Return the model of word rows in the order of the columns and of the topic totals."""
    n_words = len(rows.ptr) - 1
    inverse = np.reciprocal(topic_totals + n_words * float(beta), dtype=np.float64)
    n_topics = len(inverse)
    if isinstance(alpha, np.ndarray):
        total = math.fsum(alpha)
        expected = alpha / total
    else:
        total = n_topics * float(alpha)
        expected = np.full(n_topics, 1.0 / n_topics)
        alpha = np.full(n_topics, float(alpha))
    return TopicModel(rows, FoldIn(inverse, alpha, total, float(beta), float(tol)), expected)


class Rows(NamedTuple):
    """The rows of words in the order in which documents have them."""

    #: (2 * n_entries,) where the row of the word of each entry of the documents begins, and where
    #: it ends.
    bounds: Integers
    #: Topics, or places in a list of topics, and their tokens.
    topic: Integers32
    tokens: NDArray[np.number]


class Scratch(NamedTuple):
    """The arrays that a thread writes to, made in Python.

    Kernels that make arrays take longer to compile.
    """

    #: Compact rows, with room for all entries of a document; the same arrays, read-only.
    compact: Rows
    read: Rows
    #: (n_entries,) what topics that are held still contribute to each word: nothing in full steps.
    held: Floats
    #: (K,) the topics that are iterated, and the number of each among them.
    active: Integers32
    slot: Integers32
    #: (K,) what a step needs, and what it changes; the step before it.
    share: Floats
    gain: Floats
    first: Floats


def rows_of_words(rows: TopicRows, words: Integers32) -> Rows:
    """Return the rows of the words of some documents."""
    bounds = np.stack([rows.ptr[words], rows.ptr[1:][words]], axis=1).reshape(-1)
    return freeze(Rows(bounds, rows.topic, rows.tokens))


def make_scratch(ptr: Integers, rows: Rows, n_topics: int) -> Scratch:
    """Return what `fold_in` needs for documents with these offsets and rows."""
    n = len(rows.bounds) // 2
    ends = offsets_of(rows.bounds[1::2] - rows.bounds[::2])
    most = int(np.diff(ends[ptr]).max(initial=0))
    compact = Rows(
        np.empty(2 * n, np.int64), np.empty(most, np.int32), np.empty(most, rows.tokens.dtype)
    )
    active, slot = np.empty((2, n_topics), np.int32)
    of_topics = np.empty((3, n_topics))
    return Scratch(compact, freeze(compact), np.empty(n), active, slot, *of_topics)


@part
def _gather(start, stop, rows, priors, least, scratch, weight):
    """List the topics of at least `least` tokens, copy their entries, and add up the others.

    Return how many they are; 2 ns per entry of the rows.
    """
    alpha = priors.alpha
    common, n_active, n_entries = 0.0, 0, 0
    slot = scratch.slot
    share = scratch.share
    compact = scratch.compact
    for k in range(len(weight)):
        share[k] = weight[k] * priors.inverse[k]
        if weight[k] >= alpha[k] + least:
            slot[k] = n_active
            scratch.active[n_active] = k
            n_active += 1
        else:
            slot[k] = -1
            common += share[k]
    common *= priors.beta
    for i in range(start, stop):
        sparse = 0.0
        compact.bounds[2 * i] = n_entries
        for j in range(rows.bounds[2 * i], rows.bounds[2 * i + 1]):
            k = np.uint32(rows.topic[j])
            at = slot[k]
            compact.topic[n_entries] = at
            compact.tokens[n_entries] = rows.tokens[j]
            n_entries += at >= 0
            if at < 0:
                sparse += rows.tokens[j] * share[k]
        compact.bounds[2 * i + 1] = n_entries
        scratch.held[i] = common + sparse
    return n_active


@part
def _leap(active, alpha, first, second, weight):
    """Extrapolate from two steps of the active topics, and return the ratio of their lengths.

    The steps are `first` and `second`.

    Weights go to where the steps would lead if all went on to shrink in the same proportion (scheme
    S3 of Varadhan and Roland, Scandinavian Journal of Statistics 35, 2008), but no lower than to a
    tenth, nor than the prior.
    """
    before, after, lengths, turns = 0.0, 0.0, 0.0, 0.0
    for a in range(len(active)):
        turn = second[a] - first[a]
        before = before + abs(first[a])
        after = after + abs(second[a])
        lengths = lengths + first[a] * first[a]
        turns = turns + turn * turn
    if turns == 0.0:
        return 0.0
    far = max(1.0, np.sqrt(lengths / turns))
    for a in range(len(active)):
        k = np.uint32(active[a])
        turn = second[a] - first[a]
        to = weight[k] + (2.0 * far - 1.0) * first[a] - second[a] + far * far * turn
        if far > 1.0:
            weight[k] = max(to, SHRINK * weight[k], alpha[k])
    return max(after / before, 1.0 - 1.0 / far) if before > 0.0 else 0.0


@part
def _step(start, stop, counts, rows, active, held, priors, share, gain, weight):
    """Do a step for the active topics, and return the sum of the changes of their weights.

    The changes are written to `gain`.

    0.8 ns per entry of the rows, 1 ns per topic.
    """
    common = 0.0
    ratios = 0.0
    change = 0.0
    for a in range(len(active)):
        k = np.uint32(active[a])
        share[a] = weight[k] * priors.inverse[k]
        common += share[a]
        gain[a] = 0.0
    common *= priors.beta
    for i in range(start, stop):
        first, last = rows.bounds[2 * i], rows.bounds[2 * i + 1]
        ratio = counts[i] / (
            held[i] + common + sum_list(rows.topic, rows.tokens, first, last - first, share)
        )
        ratios += ratio
        for j in range(first, last):
            gain[np.uint32(rows.topic[index(j)])] += ratio * rows.tokens[index(j)]
    ratios *= priors.beta
    for a in range(len(active)):
        k = np.uint32(active[a])
        new = priors.alpha[k] + share[a] * (gain[a] + ratios)
        gain[a] = new - weight[k]
        change += abs(gain[a])
        weight[k] = new
    return change


@part
def _fold(start, stop, counts, length, whole, priors, scratch, weight):
    """Find the pseudo-counts (K,) of a document, from those given.

    The document has `length` tokens, and entries `start` to `stop`.
    """
    tol = priors.tol
    _, read, held, active, _, share, gain, before = scratch
    total = length + priors.alpha_sum
    n_full = 0
    is_full = True
    n = len(weight)
    least = tol * min(STILL, STILL_SHARE * length)
    rate = 0.0
    full_change = 0.0
    while True:
        rows = read
        n_steps = MAX_STEPS
        if is_full:
            rows = whole
            n_steps = 1
            n = len(weight)
            for k in range(n):
                active[k] = k
            for i in range(start, stop):
                held[i] = 0.0
        for step in range(n_steps):
            change = _step(start, stop, counts, rows, active[:n], held, priors, share, gain, weight)
            if step % 2 == 0:
                before, gain = gain, before
                continue
            rate = min(max(rate, _leap(active[:n], priors.alpha, before, gain, weight)), MAX_RATE)
            if change * rate <= (1.0 - rate) * INNER * tol * total:
                break
        n_full += is_full
        if is_full and n_full > FIRST_STEPS:
            full_rate = min(change / full_change, MAX_FULL_RATE) if full_change > 0.0 else FULL_RATE
            full_change = change
            if (
                change * full_rate <= (1.0 - full_rate) * tol * total
                or n_full == FIRST_STEPS + MAX_ROUNDS
            ):
                return
        is_full = not is_full or n_full < FIRST_STEPS
        if not is_full:
            n = _gather(start, stop, whole, priors, least, scratch, weight)


@kernel
def fold_in(ptr, counts, lengths, rows, priors, scratch, theta):
    """Find the pseudo-counts of topics in documents.

    Parameters
    ----------
    ptr : (n_docs + 1,) int64
        Offsets of the documents in `counts`.
    counts : (n_entries,) int32
        Tokens of their words.
    lengths : (n_docs,) float64
        All tokens of each; none of an empty document.
    rows : Rows
        Of these words.
    priors : FoldIn
        Of the topics.
    scratch : Scratch
        Made for these documents.
    theta : (n_docs, K) float64
        Mutated: at first equal ones, with the sum that they have in the end; those of empty
        documents stay.

    Notes
    -----
    0.5 to 2 µs per token at K = 100, 4 to 9 at K = 1000, with a tolerance of 1e-3 on two corpora;
    O(K) per document beside.
    """
    for doc in range(len(ptr) - 1):
        if lengths[doc] > 0.0:
            _fold(ptr[doc], ptr[doc + 1], counts, lengths[doc], rows, priors, scratch, theta[doc])


@kernel
def score(ptr, counts, before, rows, priors, theta, scores):
    """Predict the tokens with odd numbers in documents, by the topics of those with even numbers.

    Parameters
    ----------
    ptr, counts, rows, priors
        As in `fold_in`; the documents are whole.
    before : (n_entries,) int64
        Tokens of its document before each entry.
    theta : (n_docs, K) float64
        Proportions of the tokens with even numbers; mutated, for use here only.
    scores : (n_docs,) float64
        Mutated: log-likelihood of the others.
    """
    for doc in range(len(ptr) - 1):
        weight = theta[doc]
        common = 0.0
        scores[doc] = 0.0
        for k in range(len(weight)):
            weight[k] *= priors.inverse[k]
            common += weight[k]
        for i in range(ptr[doc], ptr[doc + 1]):
            scored = ((before[i] + counts[i]) >> 1) - (before[i] >> 1)
            if scored > 0:
                first, last = rows.bounds[2 * i], rows.bounds[2 * i + 1]
                sparse = sum_list(rows.topic, rows.tokens, first, last - first, weight)
                scores[doc] += scored * np.log(priors.beta * common + sparse)


@part
def _draw(start, stop, counts, rows, priors, weight, address, common, topics):
    """Draw a topic for each token of the entries from `start` to `stop`.

    The number of these tokens is returned.

    `weight` (K,) is mutated from proportions, `address` is that of the document, the others are
    those of `draw`.
    """
    total, at = 0.0, 0
    for k in range(len(weight)):
        weight[k] *= priors.inverse[k]
        total += priors.beta * weight[k]
        common[k] = total
    for i in range(start, stop):
        first, last = rows.bounds[2 * i], rows.bounds[2 * i + 1]
        sparse = sum_list(rows.topic, rows.tokens, first, last - first, weight)
        for _ in range(counts[i]):
            address += GAMMA
            left = unit(mix(address)) * (sparse + total)
            if left < sparse:
                topics[at] = rows.topic[
                    find_in_list(rows.topic, rows.tokens, first, last - first, weight, left)
                ]
            else:
                topics[at] = first_above(common, 0, len(common), left - sparse)
            at += 1
    return at


@kernel
def draw(ptr, counts, keys, rows, priors, theta, common, topics):
    """Draw a topic for each token of documents, given the proportions of its document.

    Parameters
    ----------
    ptr, counts, rows, priors
        As in `fold_in`.
    keys : (n_docs,) uint64
        Under which random numbers of each document are addressed.
    theta : (n_docs, K) float64
        Proportions; mutated, for use here only.
    common : (K,) float64
        Mutated, for use here only.
    topics : (n_tokens,) int32
        Mutated: topics of the tokens, in the order of the entries.

    Notes
    -----
    An entry takes the time of its row, each of its tokens that of a search among its topics or
    among all.
    """
    at = 0
    for doc in range(len(ptr) - 1):
        given = ptr[doc], ptr[doc + 1], counts, rows, priors, theta[doc], keys[doc]
        at += _draw(*given, common, topics[at:])


@part
def _gamma(shape, address):
    """Return a number from the gamma distribution; 60 ns.

    The method is that of Marsaglia and Tsang (ACM TOMS 26, 2000).
    """
    boost = 1.0
    if shape < 1.0:
        boost = unit(mix(address)) ** (1.0 / shape)
        shape += 1.0
    spread = shape - 1.0 / 3.0
    while boost > NOTHING:
        address += GAMMA
        radius = math.sqrt(-2.0 * math.log(1.0 - unit(mix(address))))
        address += GAMMA
        normal = radius * math.cos(2.0 * math.pi * unit(mix(address)))
        address += GAMMA
        cube = (1.0 + normal / math.sqrt(9.0 * spread)) ** 3
        if cube > 0.0 and math.log(1.0 - unit(mix(address))) < (
            0.5 * normal * normal + spread * (1.0 - cube + math.log(cube))
        ):
            return boost * spread * cube
    return 0.0


@kernel
def draw_shares(ptr, counts, keys, groups, rows, priors, theta, ways, scratch, totals):
    """Draw topics of tokens and proportions of documents in turn, and add them up by group.

    Given the topics, documents are independent: the topics of the tokens of one are drawn given its
    proportions, and its proportions from a Dirichlet distribution given the topics of its tokens
    (Gibbs sampling).

    Parameters
    ----------
    ptr, counts, keys, rows, priors
        As in `draw`.
    groups : (n_docs,) int64
        Row of `totals` for each document; documents below 0 are left out.
    theta : (n_docs, K) float64
        Proportions to begin with; mutated.
    ways : tuple
        Sweeps before the first draw, sweeps for each draw, and the number by which proportions are
        multiplied before they are rounded and added; 0 adds tokens instead.
    scratch : tuple
        (K,) float64, (K,) int64 and (longest document,) int32; mutated.
    totals : (n_draws, n_groups, K) int64
        Mutated.

    Notes
    -----
    A sweep takes the time of `draw`, and 15 to 60 ns for each topic of a document.
    """
    skipped, thin, scale = ways
    common, seen, topics = scratch
    for doc in range(len(ptr) - 1):
        address = keys[doc]
        weight = theta[doc]
        for sweep in range(skipped + thin * len(totals) if groups[doc] >= 0 else 0):
            address = mix(address + GAMMA)
            seen[:] = 0
            n = _draw(ptr[doc], ptr[doc + 1], counts, rows, priors, weight, address, common, topics)
            for token in range(n):
                seen[topics[token]] += 1
            whole = 0.0
            for k in range(len(weight)):
                address = mix(address + GAMMA)
                weight[k] = _gamma(priors.alpha[k] + seen[k], address)
                whole += weight[k]
            at, rest = divmod(sweep - skipped + 1, thin)
            for k in range(len(weight)):
                weight[k] /= whole
                if rest == 0 and at > 0:
                    totals[at - 1, groups[doc], k] += (
                        np.int64(weight[k] * scale + 0.5) if scale > 0.0 else seen[k]
                    )
