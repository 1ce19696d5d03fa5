"""Fitted topics in the sparse form in which users keep them, and the rows in which kernels read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators.lda.blocks import TopicRows
from schmp_estimators.lda.data.counts import add_at
from schmp_estimators.lda.data.tokens import Layout, is_by_column
from schmp_estimators.lda.data.topic_rows import order_rows, some_words, spans


def counts_of_rows(
    pieces: Sequence[TopicRows], layout: Layout, n_topics: int, empty: Callable[[int, Any], NDArray[Any]] = np.empty
) -> sparse.csc_array:
    """Return the counts as an int32 array of shape (n_topics, n_words), from the rows of all blocks in layout order.

    The rows of a lone block whose words are in the order of the columns are not copied; for others `empty` makes room.
    """
    n_words = len(layout.column)
    ptr, begins = np.zeros(n_words + 1, np.int64), np.cumsum([0, *(len(piece.ptr) - 1 for piece in pieces)])
    ptr[1:][layout.column] = np.concatenate([np.diff(piece.ptr) for piece in pieces])
    np.cumsum(ptr, out=ptr)
    if len(pieces) == 1 and is_by_column(layout):
        # A journey may have left them at odd addresses.
        topic, tokens = (np.require(one, requirements=["ALIGNED", "WRITEABLE"]) for one in pieces[0][1:])
    else:
        topic, tokens = empty(int(ptr[-1]), np.int32), empty(int(ptr[-1]), np.int32)
        for piece, begin in zip(pieces, begins, strict=False):
            column = layout.column[begin : begin + len(piece.ptr) - 1]
            for first, last in some_words(piece.ptr):
                entries = slice(piece.ptr[first], piece.ptr[last])
                to = spans(ptr[column[first:last]], np.diff(piece.ptr[first : last + 1]))
                topic[to], tokens[to] = piece.topic[entries], piece.tokens[entries]
    if ptr[-1] <= np.iinfo(np.int32).max:  # else SciPy takes the topics for such long numbers, too
        ptr = ptr.astype(np.int32)
    return sparse.csc_array((tokens, topic, ptr), shape=(n_topics, n_words))


def rows_of_counts_array(counts: sparse.csc_array) -> TopicRows:
    """Return the rows by column of what `counts_of_rows` returned."""
    return TopicRows(
        np.asarray(counts.indptr, np.int64), np.asarray(counts.indices, np.int32), np.asarray(counts.data, np.int32)
    )


def rows_of_block(counts: sparse.csc_array, layout: Layout, block: int) -> TopicRows:
    """Return the rows of the words of one block, in layout order."""
    first, last = layout.block_ptr[block : block + 2]
    return order_rows(rows_of_counts_array(counts), layout.column[first:last], counts.shape[0])


def topic_totals(counts: sparse.csc_array) -> NDArray[np.int64]:
    """Return the number of tokens of each topic."""
    totals: NDArray[np.int64] = np.zeros(counts.shape[0], np.int64)
    add_at(totals, counts.indices, counts.data)
    return totals
