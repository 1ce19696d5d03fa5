"""Gibbs sampling word by word with all counts frozen.

This is SaberLDA (Li, Chen, Chen and Zhu, ASPLOS 2017, section 3).

A token of word w in document d gets a new topic, itself taken out of n_dk and n_wk, with
probabilities::

    p(k)  proportional to  n_dk (n_wk + beta) / (n_k + V beta)    listed: the topics of the document
                         + alpha_k n_wk / (n_k + V beta)          word: those of the word
                         + alpha_k beta / (n_k + V beta)          smoothing: all topics

All counts are those at the beginning of the sweep, so tokens do not depend on each other.  While
the tokens of a word are sampled, its weights ``q_k = (n_wk + beta) / (n_k + V beta)`` are in one
row, and the topics of a document are a short list (`DocumentLists`).  A token reads the row once
for each topic of its list.  Only one draw in three or four is from the other two parts, by
cumulative weights that are the same for all tokens of the word.

If a word occurs several times in a document, most of these tokens have the same topic, and so the
same sums.

A processor cannot guess whether a draw is from the list.  So some tokens are sampled `TOGETHER`:
first the products of all, then the draws from lists, then the others.  Random bits are addressed by
the token's rank among the tokens of its word.  Topics do not depend on how documents and words are
divided.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.jit import index, inlined, kernel, part
from schmp_estimators.core.lanes import LANES, prefetch
from schmp_estimators.core.rng import GAMMA, mix, uniform40
from schmp_estimators.core.typing import (
    AnySigned,
    Floats,
    Floats32,
    Integers,
    Integers32,
    Unsigned32,
)
from schmp_estimators.core.values import offsets_of
from schmp_estimators.lda.blocks import HEAD, Prior, documents_of_places
from schmp_estimators.lda.kernels.draw import find_lane, first_above, select, uniform24
from schmp_estimators.lda.kernels.lists import add_listed
from schmp_estimators.lda.kernels.priors import add_seeds
from schmp_estimators.lda.kernels.rows import count_row

#: Tokens of a word that are sampled together.
TOGETHER = 16
#: How many tokens ahead the list of a token, and before that its place, is fetched into the cache.
_AHEAD, _FAR_AHEAD = 8, 24
#: Lines of a list that are fetched.
_LINES = 5


class DocumentLists(NamedTuple):
    """The topics of a shard's documents, in the order in which they come first in the document."""

    #: (n_tokens,) document of each token, word-major.
    document: Unsigned32
    #: (n_docs + 1,) number of the first block of each document: there are blocks for all topics
    #: that it can have.
    ptr: Integers
    #: (n_docs,) blocks of its list.
    n_blocks: Integers32
    #: (n_blocks * 2 * LANES,) topics and counts; int16 or int32.
    lists: AnySigned


def make_lists(doc_ptr: Integers, place: Unsigned32, n_topics: int) -> DocumentLists:
    """Return empty lists for the documents of a `TokenShard`."""
    lengths = np.diff(doc_ptr)
    ptr = offsets_of(-(-np.minimum(lengths, n_topics) // LANES))
    narrow = max(n_topics, int(lengths.max(initial=0))) <= np.iinfo(np.int16).max
    number: type[np.signedinteger] = np.int16 if narrow else np.int32
    lists = np.empty(int(ptr[-1]) * 2 * LANES, number)
    document = documents_of_places(doc_ptr, place)
    return DocumentLists(document, ptr, np.zeros(len(lengths), np.int32), lists)


@kernel
def list_documents(first, last, shard, topic, documents, row, found, totals):
    """List the topics of some documents.

    Parameters
    ----------
    first, last : int
        Range of documents.
    shard : TokenShard
        Any.
    topic : (n_tokens,) uint8, int16 or int32
        Topics, word-major.
    documents : DocumentLists
        Mutated: lists and their lengths.
    row, found : (K,) int32
        For use here; `row` must be 0.
    totals : (K,) int64
        Mutated: the tokens' topics are added.

    Notes
    -----
    9 ns per token.
    """
    place = shard.place
    lists = documents.lists
    for doc in range(first, last):
        n_found = 0
        for i in range(shard.doc_ptr[doc], shard.doc_ptr[doc + 1]):
            if i + 16 < len(place):
                prefetch(topic, np.int64(place[index(i + 16)]))
            k = np.uint32(topic[index(place[index(i)])])
            if row[k] == 0:
                found[index(n_found)] = k
                n_found += 1
            row[k] += 1
        n = (n_found + LANES - 1) // LANES
        documents.n_blocks[doc] = n
        base = documents.ptr[doc] * 2 * LANES
        for j in range(n * LANES):
            at = index(base + (j // LANES) * 2 * LANES + j % LANES)
            topic_of_list, count = 0, 0
            if j < n_found:
                topic_of_list = found[index(j)]
                count = row[np.uint32(topic_of_list)]
                totals[topic_of_list] += count
                row[np.uint32(topic_of_list)] = 0
            lists[at] = topic_of_list
            lists[at + index(LANES)] = count


class Smoothing(NamedTuple):
    """Weights of topics that follow from the priors, the same for all words."""

    #: (K,) ``1 / (n_k + V beta)``, rounded once so that all shards use the same bits.
    inverse: Floats32
    #: (K,) ``alpha_k`` times that.
    weight: Floats
    #: (K,) cumulative sums of ``beta * weight``.
    ends: Floats
    beta: np.float32


class Row(NamedTuple):
    """The word that is being sampled."""

    #: (K,) its tokens of each topic, with seeds: int32, or float64 where words may be seeded.
    tokens: Integers32
    #: (K,) ``(tokens + beta) * inverse``.
    weight: Floats32
    #: (K,) the topics that it has, where among them each topic is, and cumulative sums of their
    #: `Smoothing.weight`.
    topic: Integers32
    where: Integers32
    ends: Floats


class Together(NamedTuple):
    """The tokens of a word that are sampled together."""

    #: What `add_listed` keeps of each list, one after the other.
    sums: Floats32
    #: (TOGETHER,) where those of each token begin, the weight of its list, and the point that is
    #: drawn.
    starts: Integers
    totals: Floats32
    points: Floats32
    #: (TOGETHER + 1,) tokens that are drawn from their lists, and the others.
    listed: Integers
    others: Integers


def make_scratch(smooth: Smoothing, *, seeded: bool) -> tuple[Row, Together]:
    """Return arrays for `sample_words`, made in Python.

    A kernel that makes arrays takes longer to compile.
    """
    n = len(smooth.inverse)
    row = Row(
        np.zeros(n, np.float64 if seeded else np.int32), smooth.beta * smooth.inverse,
        np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n),
    )  # fmt: skip
    sums = TOGETHER * LANES * (-(-n // LANES) + 1)
    starts, listed, others = np.empty((3, TOGETHER + 1), np.int64)
    totals, points = np.empty((2, TOGETHER), np.float32)
    return row, Together(np.empty(sums, np.float32), starts, totals, points, listed, others)


def smoothing(total: Integers, beta_sum: Prior, alpha: Floats, beta: float) -> Smoothing:
    """Return the `Smoothing` of topics with these totals.

    `beta_sum` is V beta, with seeds if there are any.
    """
    inverse = (1.0 / (total + beta_sum)).astype(np.float32)
    weight = alpha * inverse
    ends = np.cumsum(np.float64(np.float32(beta)) * weight)
    return Smoothing(inverse, weight, ends, np.float32(beta))


@part
def _begin_word(word, at, n, block, smooth, seeds, row):
    """Make the row of a word of a block.

    The word has number `at` in the shard, and n tokens in all shards.

    Return how many topics it has, and the last of the cumulative sums.  Topics come as they come
    first in its list; those of a head word, which has none, and of one with seeds in ascending
    order.
    """
    n_topics = len(smooth.inverse)
    found = count_row(block, word, row.tokens, row.topic)
    if add_seeds(seeds, at, row.tokens) or n >= HEAD * n_topics:
        found = 0
        for k in range(n_topics):
            if row.tokens[k] > 0:
                row.topic[found] = k
                found += 1
    end = 0.0
    for j in range(found):
        k = np.uint32(row.topic[index(j)])
        row.weight[k] = (np.float32(row.tokens[k]) + smooth.beta) * smooth.inverse[k]
        end += np.float64(row.tokens[k]) * smooth.weight[k]
        row.ends[index(j)] = end
        row.where[k] = j
    return found, end


@inlined
def _end_word(found, smooth, row):
    """Set the row to that of a word without tokens."""
    for j in range(found):
        k = np.uint32(row.topic[index(j)])
        row.weight[k] = smooth.beta * smooth.inverse[k]
        row.tokens[k] = 0


@inlined
def _fetch(i, document, ptr, n_blocks, lists):
    """Fetch what tokens after number i need into the cache."""
    if i + _FAR_AHEAD < len(document):
        coming = np.int64(document[index(i + _FAR_AHEAD)])
        prefetch(ptr, coming)
        prefetch(n_blocks, coming)
    if i + _AHEAD < len(document):
        begin = ptr[index(document[index(i + _AHEAD)])] * 2 * LANES
        for line in range(_LINES):
            prefetch(lists, begin + line * (64 // lists.itemsize))


@inlined
def _draw_listed(point, sums, start, first, n_blocks, lists, old):
    """Return the topic at a point of a list, or the old one if there are no tokens.

    Rounding can lead to such a place.
    """
    lane, rest = find_lane(sums, start + n_blocks * LANES, LANES, point)
    block = 0
    for b in range(n_blocks):
        block += sums[index(start + b * LANES + lane)] <= rest
    at = (first + min(block, n_blocks - 1)) * 2 * LANES + lane
    return select(lists[index(at + LANES)] > 0, np.int64(lists[index(at)]), old)


@inlined
def _weigh_others(old, end, smooth):
    """Return the weight of the word and of the smoothing without the token itself.

    If all tokens of the word have that topic, the word may weigh almost nothing, and the smoothing
    still less.
    """
    return (end - smooth.weight[index(old)]) + smooth.ends[len(smooth.ends) - 1]


@inlined
def _draw_other(y, old, found, end, row, smooth):
    """Return the topic at y in the word's topics without the token, and then in the smoothing."""
    own = smooth.weight[index(old)]
    rest = end - own
    if y < rest:
        at = np.int64(row.where[index(old)])
        less = np.float64(row.tokens[index(old)] - 1) * own
        before = (row.ends[index(at - 1)] if at > 0 else 0.0) + less
        y = select(y >= before, y + own, y)
        return np.int64(row.topic[index(first_above(row.ends, 0, found, y))])
    return first_above(smooth.ends, 0, len(smooth.ends), y - rest)


@kernel
def sample_words(
    first, last, begin, shard, topic, block, documents, smooth, key, seeds, row, together
):
    """Sample the tokens of some words of one block and one shard.

    Parameters
    ----------
    first, last : int
        Range of words within the block.
    begin : int
        Number of the block's first word in the layout.
    shard : TokenShard
        Any.
    block : WordBlock
        Rows of the words over all shards, and of earlier batches.
    topic : (n_tokens,) uint8, int16 or int32
        Mutated: topics of the shard's tokens, word-major.
    documents : DocumentLists
        Of the beginning of the sweep.
    smooth : Smoothing
        Of the same.
    key : uint64
        Stream of this sweep.
    row, together
        From `make_scratch`.
    seeds : SeedRows or None
        In the layout of the shard.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    66 ns per token with 65 topics in a list.
    """
    word_ptr = shard.word_ptr
    document, ptr, n_blocks, lists = documents
    sums, starts, totals, points, listed, others = together
    moved = 0
    for word in range(first, last):
        at = begin + word
        own_first, own_last = word_ptr[at], word_ptr[at + 1]
        if own_first == own_last:
            continue
        found, end = _begin_word(word, at, shard.word_total[at], block, smooth, seeds, row)
        origin = key + np.uint64(shard.word_first[at] + shard.word_rank[at] - own_first) * GAMMA
        for begun in range(own_first, own_last, TOGETHER):
            n = min(TOGETHER, own_last - begun)
            start, last_doc, last_old = 0, index(0), 0
            for j in range(n):
                i = begun + j
                _fetch(i, document, ptr, n_blocks, lists)
                old, doc = np.int64(topic[index(i)]), index(document[index(i)])
                if (
                    j > 0 and doc == last_doc and old == last_old
                ):  # the same sums, of a word that comes again
                    starts[index(j)] = starts[index(j - 1)]
                    totals[index(j)] = totals[index(j - 1)]
                    continue
                last_doc, last_old = doc, old
                less = np.float32(row.tokens[index(old)] - 1) + smooth.beta
                starts[index(j)] = start
                n_doc, weight = np.int64(n_blocks[doc]), less * smooth.inverse[index(old)]
                totals[index(j)] = add_listed(
                    lists, ptr[doc], n_doc, row.weight, old, weight, sums, start
                )
                start += LANES * (n_doc + 1)
            n_listed, n_others = 0, 0
            for j in range(n):
                i = begun + j
                of_list = totals[index(j)]
                other = np.float32(_weigh_others(np.int64(topic[index(i)]), end, smooth))
                point = uniform24(mix(origin + np.uint64(i) * GAMMA)) * (of_list + other)
                points[index(j)] = point
                is_listed = point < of_list
                listed[index(n_listed)], others[index(n_others)] = j, j
                n_listed += is_listed
                n_others += not is_listed
            for which in range(n_listed):
                j = listed[index(which)]
                i = begun + j
                old, doc = np.int64(topic[index(i)]), index(document[index(i)])
                given = ptr[doc], np.int64(n_blocks[doc]), lists, old
                new = _draw_listed(points[index(j)], sums, starts[index(j)], *given)
                topic[index(i)] = new
                moved += new != old
            for which in range(n_others):
                i = begun + others[index(which)]
                old = np.int64(topic[index(i)])
                uniform = uniform40(mix(origin + np.uint64(i) * GAMMA))
                new = _draw_other(
                    uniform * _weigh_others(old, end, smooth), old, found, end, row, smooth
                )
                topic[index(i)] = new
                moved += new != old
        _end_word(found, smooth, row)
    return moved
