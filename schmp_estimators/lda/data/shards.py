"""Division of work: documents into shards, words into blocks, shards into jobs.

A shard has its tokens in two orders.

The pieces of the input never have to meet in one place: words are counted where documents are, the
layout is made from all the counts, and then the tokens of each shard are placed.

Where shards exchange tokens, a shard has arrays only over the words that it needs; else over all
words.

There are two ways to sample a word whose tokens are in several shards.  Its tokens may go to the
shard that owns the word, be sampled there, and come back.  Or the word is sampled *locally*, by
every shard that has tokens of it: then its counts go to the owner, who adds them up and sends the
row to all shards.  Topics are the same either way; bytes and work differ (`count_local_words`).

Of other shards a shard needs to know only how many tokens earlier shards have of the local words.
All else follows from its documents, the layout, and the tokens of each column in all shards.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import sparse

from schmp_estimators.core.typing import (
    AnyIntegers,
    AnySigned,
    Array,
    Floats,
    Integers,
    Integers32,
    IntPair,
    Masks,
    Unsigned32,
)
from schmp_estimators.core.values import freeze, offsets_of, part_of_each, spans
from schmp_estimators.lda.blocks import HEAD, SeedRows, TokenShard, WordTopics, no_seeds, no_topics
from schmp_estimators.lda.data.counts import Counts, changed, count_words
from schmp_estimators.lda.kernels.priors import add_up
from schmp_estimators.lda.kernels.tokens import assign_blocks, place_tokens

#: A cell should last about 0.1 s, so that what travels before it costs little beside it; a core
#: resamples 15 million tokens or more in a second.
TOKENS_PER_CELL = 1_500_000


#: How many tokens a worker resamples while an exchange with one more worker takes its time: 3 ms of
#: a sweep.
TOKENS_OF_EXCHANGE = 80_000


def default_shards(n_tokens: int, n_docs: int, n_features: int, *, invariant: bool) -> int:
    """Return the number of shards for data of this size.

    It depends on the data only, never on the machines.
    P shards that rotate have P² cells of `TOKENS_PER_CELL` at least.  Where results are
    `invariant`, P is chosen so that a sweep is shortest: it takes as long as
    ``n_tokens / P + P * TOKENS_OF_EXCHANGE`` tokens.
    """
    best = math.isqrt(n_tokens // (TOKENS_OF_EXCHANGE if invariant else TOKENS_PER_CELL))
    return max(1, min(best, n_docs, n_features))


def cut_documents(lengths: Integers, n_shards: int) -> Integers:
    """Cut documents into consecutive shards of about equal numbers of tokens.

    Parameters
    ----------
    lengths : array of shape (n_docs,)
        Tokens of each document.
    n_shards : int
        At least 1.  With more shards than documents some shards are empty.

    Returns
    -------
    bounds : int64 array of shape (n_shards + 1,)
        Shard s has the documents from ``bounds[s]`` up to ``bounds[s + 1]``.  Its tokens differ
        from an equal share by no more than the longest document.
    """
    weights = lengths if lengths.any() else np.ones_like(lengths)
    before = offsets_of(weights)
    total = int(before[-1])
    goals = np.array([total * shard // n_shards for shard in range(n_shards + 1)], np.int64)
    above = np.searchsorted(before, goals)
    below = np.maximum(above - 1, 0)
    bounds = np.where(goals - before[below] < before[above] - goals, below, above)
    bounds[0], bounds[-1] = 0, lengths.size
    return bounds.astype(np.int64)


def locate_shards(
    bounds: Integers, partition_rows: Sequence[int] | Integers
) -> list[list[tuple[int, slice]]]:
    """Return where each shard's documents lie: partition numbers with their rows, in order.

    An empty shard gets no rows of partition 0, so that every shard has a place.

    Parameters
    ----------
    bounds : array of shape (n_shards + 1,)
        From `cut_documents`.
    partition_rows : sequence of int
        Rows of each partition.
    """
    starts = offsets_of(partition_rows).astype(np.int64)
    shards = []
    for first, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        reached = range(
            int(np.searchsorted(starts, first, side="right")) - 1,
            int(np.searchsorted(starts[:-1], stop)),
        )
        cuts = [
            (p, max(first - int(starts[p]), 0), min(stop, int(starts[p + 1])) - int(starts[p]))
            for p in reached
        ]
        shards.append(
            [(p, slice(low, high)) for p, low, high in cuts if low < high] or [(0, slice(0, 0))]
        )
    return shards


class Layout(NamedTuple):
    """The order in which words are stored: the words of block 0, those of block 1, ….

    In each block, those with the most tokens come first.
    """

    #: (n_words,) column of each word of the layout.
    column: Integers32
    #: (n_blocks + 1,) offsets of the blocks.
    block_ptr: Integers


def make_layout(word_counts: Integers, n_blocks: int) -> Layout:
    """Divide the vocabulary into blocks of equal cost, given each column's tokens in all shards."""
    order = np.argsort(-word_counts, kind="stable")
    block_of = np.zeros(len(order), np.int32)
    if n_blocks > 1:
        assign_blocks(freeze(word_counts), freeze(order), n_blocks, block_of)
    sizes = np.bincount(block_of, minlength=n_blocks)
    column = order[np.argsort(block_of, kind="stable")].astype(np.int32)
    return Layout(column, offsets_of(sizes))


def layout_by_column(n_words: int) -> Layout:
    """Return the layout of a single block in the order of the columns.

    It is for samplers to whom the order is all one.
    """
    return Layout(np.arange(n_words, dtype=np.int32), np.array([0, n_words], np.int64))


def cut_jobs(ptr: Array, least: int, most: int) -> list[IntPair]:
    """Cut words or documents with these offsets into consecutive jobs of equal weight.

    Parameters
    ----------
    ptr : array of shape (n + 1,)
        Offsets in tokens.
    least, most : int
        The fewest tokens of a job, and the largest number of jobs.

    Returns
    -------
    list of pairs
        Where each job begins and ends.
    """
    first, last = int(ptr[0]), int(ptr[-1])
    n_jobs = max(1, min(most, (last - first) // least))
    if n_jobs == 1:
        return [(0, len(ptr) - 1)]
    cuts = np.searchsorted(ptr, np.linspace(first, last, n_jobs + 1)[1:-1])
    ends = np.unique(np.concatenate([[0], cuts, [len(ptr) - 1]])).tolist()
    return list(pairwise(ends))


#: A shard addresses its tokens with 32 bits.
MAX_TOKENS = int(np.iinfo(np.uint32).max) + 1


def lay_out(
    pieces: Sequence[Counts], layout_of: Integers32, lengths: AnySigned
) -> tuple[Integers, Unsigned32, Integers]:
    """Return `doc_ptr`, `place` and `word_ptr` of a shard.

    Parameters
    ----------
    pieces : sequence of Counts
        Consecutive documents.
    layout_of : (n_columns,) int32
        Number of each column among the words of the shard; any number for columns that the
        documents do not have.
    lengths : (n_words,) int32 or int64
        Tokens of these words in the documents.
    """
    n_docs = sum([len(piece.indptr) - 1 for piece in pieces])
    word_ptr = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=word_ptr[1:])
    n_tokens = int(word_ptr[-1])
    if n_tokens >= MAX_TOKENS:
        raise ValueError(
            f"a shard has {n_tokens} tokens; raise n_shards, a shard holds fewer than {MAX_TOKENS}"
        )
    doc_ptr = np.zeros(n_docs + 1, np.int64)
    place = np.empty(n_tokens, np.uint32)
    cursor = word_ptr[:-1].copy()
    doc = 0
    token = 0
    for piece in pieces:
        token = place_tokens(*piece[:3], layout_of, cursor, doc, token, doc_ptr, place)
        doc += len(piece.indptr) - 1
    if not np.array_equal(cursor, word_ptr[1:]):
        raise changed()
    return doc_ptr, place, word_ptr


class Plan(NamedTuple):
    """What `make_shard` needs beside the documents and the numbers of tokens of local words."""

    number: int
    layout: Layout
    #: (n_words,) by column: tokens in all shards, in as few bits as possible, since every shard
    #: gets this array.
    word_totals: AnyIntegers
    #: (n_blocks,) words of each block that are sampled locally, the first ones: from
    #: `count_local_words`, or all.
    n_local: Integers
    #: Tokens in earlier shards.
    first_token: int
    #: Topics in which the tokens of words may begin, by column.
    first: WordTopics = no_topics()
    #: (K, V) imaginary tokens, if there are some.
    seeds: sparse.csc_array | None = None


def local_columns(layout: Layout, n_local: Integers) -> Integers32:
    """Return the columns of the words that all shards sample locally, in layout order."""
    return layout.column[_is_local(layout, n_local)]


def make_shard(pieces: Sequence[Counts], before: Integers, own: Integers, plan: Plan) -> TokenShard:
    """Lay out the tokens of consecutive documents.

    They take 8 bytes a document, 4 a token, and 8 to 32 for each word in them.

    Parameters
    ----------
    pieces : sequence of Counts
        The documents.
    before, own : (n_local,) int64
        Tokens of the local words, in layout order, in earlier shards and in this one.
    plan : Plan
    """
    layout = plan.layout
    n_local = plan.n_local
    number = plan.number
    n_words = len(plan.word_totals)
    is_local = _is_local(layout, n_local)
    counts = np.zeros(n_words, np.int64) if is_local.all() else count_words(pieces, n_words)
    counts[layout.column[is_local]] = (
        own  # counted before; if documents have changed since, `lay_out` raises
    )
    is_present = is_local | (counts > 0)[layout.column]
    is_present[layout.block_ptr[number] : layout.block_ptr[number + 1]] = True
    present = np.flatnonzero(is_present)
    column = layout.column[present]
    lengths = counts[column].astype(np.int64)
    rank = np.zeros(len(present), np.int64)
    totals = plan.word_totals[column]
    rank[is_local[present]] = before
    first = topics_of_shard(plan.first, column, counts) if len(plan.first.ptr) > 1 else no_topics()
    seeds = no_seeds() if plan.seeds is None else seeds_of_words(plan.seeds, column, totals)
    del counts, is_local, is_present  # one array over all words at a time, beside the plan
    ends = plan.word_totals.astype(np.int64)
    np.cumsum(ends, out=ends)
    word_first = ends[column] - totals
    del ends
    layout_of = np.zeros(n_words, np.int32)
    layout_of[column] = np.arange(len(present), dtype=np.int32)
    block_ptr = np.searchsorted(present, layout.block_ptr)
    block = part_of_each(np.diff(block_ptr))
    word_number = (present - (layout.block_ptr[:-1] + n_local)[block]).astype(np.int32)
    return TokenShard(
        *lay_out(pieces, layout_of, lengths), rank, word_first, totals.astype(np.int64), block_ptr,
        plan.first_token, number, seeds, first, n_local, word_number,
    )  # fmt: skip


def topics_of_shard(of_columns: WordTopics, column: Integers32, counts: AnySigned) -> WordTopics:
    """Return the choices of the words that occur in a shard, in layout order.

    Parameters
    ----------
    of_columns : WordTopics
        The result of `topics_from_passages`.
    column : (n_words,) int32
        Column of each word of the layout.
    counts : (n_words,) int32 or int64
        The shard's tokens of each column.
    """
    size = np.where(counts > 0, np.diff(of_columns.ptr), 0)[column]
    ptr = offsets_of(size)
    return WordTopics(ptr, of_columns.topic[spans(of_columns.ptr[column], size)])


def seeds_of_words(seeds: sparse.csc_array, column: Integers32, totals: AnyIntegers) -> SeedRows:
    """Return the seeds (K, V) of words in these columns.

    Words without tokens in any shard need none.
    """
    used = np.flatnonzero(totals)
    found = sparse.csc_array(seeds[:, column[used]])
    found.sort_indices()
    sizes = np.diff(found.indptr)
    number = np.full(len(column), -1, np.int32)
    number[used[sizes > 0]] = np.arange(np.count_nonzero(sizes))
    ptr = offsets_of(sizes[sizes > 0])
    weight = found.data.astype(np.float64)
    ends = np.empty_like(weight)
    add_up(*freeze((ptr, weight)), ends)
    return SeedRows(number, ptr, found.indices.astype(np.int32), weight, ends)


def join_parts(before: Integers, own: Integers, plan: Plan, *parts: Sequence[Counts]) -> TokenShard:
    """Return the shard of the documents of consecutive parts.

    For other parameters see `make_shard`.
    """
    return make_shard([piece for part in parts for piece in part], before, own, plan)


def _is_local(layout: Layout, n_local: Integers) -> Masks:
    """Return which words of the layout are sampled locally."""
    found = np.zeros(len(layout.column), np.bool_)
    for first, end in zip(layout.block_ptr[:-1], layout.block_ptr[:-1] + n_local, strict=True):
        found[first:end] = True
    return found


#: A word with more than this share of the tokens of an average shard is sampled locally.
LARGEST_SHARE = 0.25
#: Bytes of a count in a message: few counts are 2**16 or more.
COUNT_BYTES = 2
#: Bytes of a row beside its counts: how many tokens of the word a shard has.
ROW_BYTES = 4
#: The work that a local head word is for every other shard, as bytes for each topic: in the time in
#: which a shard reads the row and makes a table to draw from it, as measured, a network of 3 Gbit/s
#: sends so many.
WORK_BYTES = 4
#: Topics up to which tail words can be local.  Every shard then keeps the topics of all shards'
#: tokens of the word: with more topics, of 4 bytes each, two shards would save a fourth of the
#: bytes, but each would need as much memory as one shard with all tokens.
MOST_IN_LISTS = 1 << 15


def count_local_words(
    word_totals: Integers, layout: Layout, n_topics: int, topic_bytes: int, token_bytes: int,
    *, far: bool,
) -> Integers:  # fmt: skip
    """Return how many words of each block are sampled locally.

    They are those with the most tokens, as many as minimise the cost.

    Parameters
    ----------
    word_totals : (n_words,) int64
        Tokens of each column.
    layout : Layout
        One block for each shard.
    n_topics : int
        K.
    topic_bytes, token_bytes : int
        Bytes of a topic, and of a token with its proposals, in messages.
    far : bool
        Whether messages go between processes; else only words with too many tokens for one owner
        are local.
    """
    n = word_totals[layout.column]
    n_shards = len(layout.block_ptr) - 1
    saved = np.full(len(n), -1.0)
    if far:
        may_travel = (n >= HEAD * n_topics) | (n_topics <= MOST_IN_LISTS)
        given = n[may_travel], n_shards, n_topics, topic_bytes, token_bytes
        saved[may_travel] = bytes_saved(*given)
    saved[n > LARGEST_SHARE * n.sum() / n_shards] = (
        2.0 * np.abs(saved).sum() + 1.0
    )  # more than all others cost
    before = offsets_of(saved)
    blocks = zip(layout.block_ptr[:-1].tolist(), layout.block_ptr[1:].tolist(), strict=True)
    return np.array([np.argmax(before[first : last + 1]) for first, last in blocks], np.int64)


def bytes_saved(
    n: Integers, n_shards: int, n_topics: int, topic_bytes: int, token_bytes: int
) -> Floats:
    """Return how many bytes words of `n` tokens save if they are local.

    Those for the work on their rows are subtracted.
    """
    by_rows, by_tokens = bytes_of_words(n, n_shards, n_topics, topic_bytes, token_bytes)
    return (
        by_tokens
        - by_rows
        - np.where(n >= HEAD * n_topics, WORK_BYTES * n_topics * (n_shards - 1), 0)
    )


def bytes_of_words(
    n: Integers, n_shards: int, n_topics: int, topic_bytes: int, token_bytes: int
) -> tuple[Floats, Floats]:
    """Return how many bytes words of `n` tokens cost in a sweep, as rows, and as tokens.

    The bytes of all shards are added up.

    It is assumed that every shard has equally many tokens of a word.
    """
    others = n_shards - 1
    is_head = n >= HEAD * n_topics
    there, back = (
        np.where(is_head, COUNT_BYTES * n_topics, topic_bytes * some) for some in (n / n_shards, n)
    )
    return (there + back + ROW_BYTES) * others, 2 * token_bytes * n * others / n_shards
