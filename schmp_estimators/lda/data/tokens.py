"""From counted documents to the blocks of the topic samplers: the layout of the vocabulary, and the shards.

The pieces of the input never have to meet in one place: words are counted where documents are, the layout is made from
all the counts, and then the tokens of each shard are placed (`met_shards`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.values import freeze
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
