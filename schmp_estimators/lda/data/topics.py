"""Fitted topics in the sparse form in which users keep them, and the rows in which kernels read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TopicRows
from schmp_estimators.lda.data.tokens import Layout
from schmp_estimators.lda.data.topic_rows import order_rows, stack_rows
from schmp_estimators.lda.kernels.counts import add_columns


def counts_of_rows(pieces: Sequence[TopicRows], layout: Layout, n_topics: int) -> sparse.csc_array:
    """Return the counts as an int32 array of shape (n_topics, n_words), from the rows of all blocks in layout order."""
    rows = order_rows(stack_rows(pieces), np.argsort(layout.column), n_topics)
    return sparse.csc_array((rows.tokens, rows.topic, rows.ptr), shape=(n_topics, len(layout.column)))


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
    totals, (_, topic, tokens) = np.zeros(counts.shape[0], np.int64), freeze(rows_of_counts_array(counts))
    add_columns(topic, tokens, totals)
    return totals
