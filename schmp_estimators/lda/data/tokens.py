"""From counted documents to the blocks of the topic samplers: the layout of the vocabulary, and the shards.

A shard is made in three steps, so that the pieces of the input never have to meet in one place: count the words of each
shard, make the layout and the offsets from all the counts, then place the tokens of each shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, TopicRows, WordTopics, no_topics
from schmp_estimators.lda.data.counts import Counts, changed, count_words
from schmp_estimators.lda.kernels.tokens import assign_blocks, place_tokens

#: A shard addresses its tokens with 32 bits.
MAX_TOKENS = 2**32


class Layout(NamedTuple):
    """The order in which words are stored: the words of block 0, those of block 1, …; heaviest first in each."""

    #: (n_words,) column of each word of the layout.
    column: NDArray[np.int32]
    #: (n_blocks + 1,) offsets of the blocks.
    block_ptr: NDArray[np.int64]


class ShardOffsets(NamedTuple):
    """What a shard must know of the others; arrays over words are in layout order."""

    #: (n_words,) tokens of the word in earlier shards.
    word_rank: NDArray[np.int64]
    #: (n_words,) tokens of all words with a lower column number, in all shards.
    word_first: NDArray[np.int64]
    #: (n_words,) tokens of the word in all shards.
    word_total: NDArray[np.int64]
    #: Tokens in earlier shards.
    first_token: int
    #: Number of the shard.
    number: int


def count_some_words(pieces: Sequence[Counts], columns: NDArray[np.int32], n_words: int) -> NDArray[np.int64]:
    """Return how many tokens each of some columns has in the pieces of a shard."""
    return count_words(pieces, n_words)[columns].astype(np.int64)


def make_layout(word_counts: NDArray[np.int64], n_blocks: int) -> Layout:
    """Divide the vocabulary into blocks of equal cost, given the tokens of each column in all shards."""
    order = np.argsort(-word_counts, kind="stable")
    block_of = np.zeros(len(order), np.int32)
    if n_blocks > 1:
        assign_blocks(freeze(word_counts), freeze(order), n_blocks, block_of)
    sizes = np.bincount(block_of, minlength=n_blocks)
    column = order[np.argsort(block_of, kind="stable")].astype(np.int32)
    return Layout(column, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


def layout_by_column(n_words: int) -> Layout:
    """Return the layout of a single block in the order of the columns, for samplers to whom the order is all one."""
    return Layout(np.arange(n_words, dtype=np.int32), np.array([0, n_words], np.int64))


def is_by_column(layout: Layout) -> bool:
    """Return whether words are in the order of the columns."""
    return bool((layout.column == np.arange(len(layout.column), dtype=np.int32)).all())


def shard_offsets(shard_counts: Sequence[NDArray[np.signedinteger]], layout: Layout) -> list[ShardOffsets]:
    """Return what every shard must know of the others, given the word counts of all shards by column."""
    total: NDArray[np.int64] = np.sum(shard_counts, axis=0, dtype=np.int64)
    word_first = (np.cumsum(total) - total)[layout.column]
    word_total = total[layout.column]
    rank, first_token, offsets = np.zeros_like(total), 0, []
    for number, counts in enumerate(shard_counts):
        before = rank[layout.column] if number else np.zeros_like(word_total)  # which takes no memory
        offsets.append(ShardOffsets(before, word_first, word_total, first_token, number))
        rank = rank + counts
        first_token += int(counts.sum())
    return offsets


class Plan(NamedTuple):
    """What it takes beside documents to make a shard."""

    #: (n_words,) what `count_words` has returned for the documents.
    counts: NDArray[np.signedinteger]
    layout: Layout
    #: What `shard_offsets` has returned for this shard.
    offsets: ShardOffsets
    #: Counts of earlier batches for the words of the block with this shard's number, in layout order.
    fixed: TopicRows
    #: Topics in which the tokens of words may begin, in layout order.
    first: WordTopics = no_topics()


def make_shard(pieces: Sequence[Counts], plan: Plan) -> TokenShard:
    """Lay out the tokens of consecutive documents: 8 bytes a document, 4 a token, beside offsets over all words."""
    counts, layout, offsets, fixed, first = plan
    layout_of = np.empty(len(counts), np.int32)
    layout_of[layout.column] = np.arange(len(counts), dtype=np.int32)
    doc_ptr, place, word_ptr = lay_out(pieces, layout_of, counts[layout.column])
    return TokenShard(
        doc_ptr, place, word_ptr, offsets.word_rank, offsets.word_first, offsets.word_total,
        layout.block_ptr, offsets.first_token, offsets.number, fixed, first,
        np.diff(layout.block_ptr), np.zeros(0, np.int32),
    )  # fmt: skip


def lay_out(
    pieces: Sequence[Counts], layout_of: NDArray[np.int32], lengths: NDArray[np.signedinteger]
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.int64]]:
    """Return `doc_ptr`, `place` and `word_ptr` of a shard.

    Parameters
    ----------
    pieces : sequence of Counts
        Consecutive documents.
    layout_of : (n_columns,) int32
        Number of each column among the words of the shard; of columns that the documents do not have, anything.
    lengths : (n_words,) int32 or int64
        Tokens of these words in the documents.
    """
    n_docs = sum([len(piece.indptr) - 1 for piece in pieces])
    word_ptr = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=word_ptr[1:])
    n_tokens = int(word_ptr[-1])
    if n_tokens >= MAX_TOKENS:
        raise ValueError(f"a shard has {n_tokens} tokens; raise n_shards, a shard holds fewer than {MAX_TOKENS}")
    doc_ptr = np.zeros(n_docs + 1, np.int64)
    place = np.empty(n_tokens, np.uint32)
    cursor, doc, token = word_ptr[:-1].copy(), 0, 0
    for piece in pieces:
        token = place_tokens(
            piece.indptr, piece.indices, piece.data, layout_of, cursor, doc, token, doc_ptr, place
        )  # fmt: skip
        doc += len(piece.indptr) - 1
    if not np.array_equal(cursor, word_ptr[1:]):
        raise changed()
    return doc_ptr, place, word_ptr
