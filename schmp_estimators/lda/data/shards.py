"""From counted documents to shards: the tokens of each, in two orders, and which words travel between them.

The pieces of the input never have to meet in one place: words are counted where documents are, the layout is made from
all the counts, and then the tokens of each shard are placed.

Where shards exchange tokens, a shard has arrays only over the words that it needs; else over all words.

There are two ways to sample a word whose tokens are in several shards.  Its tokens may go to the shard that owns the
word, be sampled there, and come back.  Or the word is sampled *locally*, by every shard that has tokens of it: then its
counts go to the owner, who adds them up and sends the row to all shards.  Topics are the same either way; bytes and
work differ (`count_local_words`).

Of other shards a shard needs to know only how many tokens earlier shards have of the local words.  All else follows
from its documents, the layout, and the tokens of each column in all shards.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from schmp_estimators.core.typing import (
    AnyIntegers,
    AnySigned,
    Floats,
    Integers,
    Integers32,
    Masks,
    Unsigned32,
)
from schmp_estimators.core.values import offsets_of, part_of_each
from schmp_estimators.lda.blocks import HEAD, TokenShard, TopicRows, WordTopics, no_topics
from schmp_estimators.lda.data.counts import Counts, changed, count_words
from schmp_estimators.lda.data.partition import Layout
from schmp_estimators.lda.data.passages import topics_of_shard
from schmp_estimators.lda.kernels.tokens import place_tokens

#: A shard addresses its tokens with 32 bits.
MAX_TOKENS = 2**32


def lay_out(
    pieces: Sequence[Counts], layout_of: Integers32, lengths: AnySigned
) -> tuple[Integers, Unsigned32, Integers]:
    """Return `doc_ptr`, `place` and `word_ptr` of a shard.

    Parameters
    ----------
    pieces : sequence of Counts
        Consecutive documents.
    layout_of : (n_columns,) int32
        Number of each column among the words of the shard; any number for columns that the documents do not have.
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
    #: (n_words,) by column: tokens in all shards, in as few bits as possible, since every shard gets this array.
    word_totals: AnyIntegers
    #: (n_blocks,) words of each block that are sampled locally, the first ones: from `count_local_words`, or all.
    n_local: Integers
    #: Tokens in earlier shards.
    first_token: int
    #: Counts of earlier batches for the words of the block with this number, in layout order.
    fixed: TopicRows
    #: Topics in which the tokens of words may begin, by column.
    first: WordTopics = no_topics()


def local_columns(layout: Layout, n_local: Integers) -> Integers32:
    """Return the columns of the words that all shards sample locally, in layout order."""
    return layout.column[_is_local(layout, n_local)]


def make_shard(pieces: Sequence[Counts], before: Integers, own: Integers, plan: Plan) -> TokenShard:
    """Lay out the tokens of consecutive documents: 8 bytes a document, 4 a token, 8 to 32 for each word in them.

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
        plan.first_token, number, plan.fixed, first, n_local, word_number,
    )  # fmt: skip


def join_parts(before: Integers, own: Integers, plan: Plan, *parts: Sequence[Counts]) -> TokenShard:
    """Return the shard of the documents of consecutive parts; for other parameters see `make_shard`."""
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
#: The work that a local head word is for every other shard, as bytes for each topic: in the time in which a shard
#: reads the row and makes a table to draw from it, as measured, a network of 3 Gbit/s sends so many.
WORK_BYTES = 4
#: Topics up to which tail words can be local.  Every shard then keeps the topics of all shards' tokens of the word:
#: with more topics, of 4 bytes each, two shards would save a fourth of the bytes, but each would need as much memory as
#: one shard with all tokens.
MOST_IN_LISTS = 1 << 15


def count_local_words(
    word_totals: Integers, layout: Layout, n_topics: int, topic_bytes: int, token_bytes: int,
    *, far: bool,
) -> Integers:  # fmt: skip
    """Return how many words of each block are sampled locally: the heaviest, and as many as make the cost least.

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
        Whether messages go between processes; else only words with too many tokens for one owner are local.
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
    """Return how many bytes words of `n` tokens save if they are local, less those for the work on their rows."""
    by_rows, by_tokens = bytes_of_words(n, n_shards, n_topics, topic_bytes, token_bytes)
    return (
        by_tokens
        - by_rows
        - np.where(n >= HEAD * n_topics, WORK_BYTES * n_topics * (n_shards - 1), 0)
    )


def bytes_of_words(
    n: Integers, n_shards: int, n_topics: int, topic_bytes: int, token_bytes: int
) -> tuple[Floats, Floats]:
    """Return how many bytes words of `n` tokens cost in a sweep, in all shards together: as rows, and as tokens.

    It is assumed that every shard has equally many tokens of a word.
    """
    others = n_shards - 1
    is_head = n >= HEAD * n_topics
    there, back = (
        np.where(is_head, COUNT_BYTES * n_topics, topic_bytes * some) for some in (n / n_shards, n)
    )
    return (there + back + ROW_BYTES) * others, 2 * token_bytes * n * others / n_shards
