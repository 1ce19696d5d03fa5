"""Division of work: documents into shards, words into blocks, and the work of a shard into jobs of threads."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from schmp_estimators.core.typing import Array, Integers, Integers32, IntPair
from schmp_estimators.core.values import freeze, offsets_of
from schmp_estimators.lda.kernels.tokens import assign_blocks

#: A cell should last about 0.1 s, so that what travels before it costs little beside it; a core resamples 15 million
#: tokens or more in a second.
TOKENS_PER_CELL = 1_500_000


def default_shards(n_tokens: int, n_docs: int, n_features: int, *, rotates: bool) -> int:
    """Return the number of shards for data of this size: the most with cells of `TOKENS_PER_CELL` on average.

    With P shards a rotation has P² cells, an exchange P.  The number depends on the data only, never on the machines.
    """
    n_cells = n_tokens // TOKENS_PER_CELL
    return max(1, min(math.isqrt(n_cells) if rotates else n_cells, n_docs, n_features))


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
        Shard s has the documents from ``bounds[s]`` up to ``bounds[s + 1]``.  Its tokens differ from an equal share by
        no more than the longest document.
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
    """Return for each shard where its documents lie: partition numbers with the rows therein, in order.

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
    """The order in which words are stored: the words of block 0, those of block 1, …; heaviest first in each."""

    #: (n_words,) column of each word of the layout.
    column: Integers32
    #: (n_blocks + 1,) offsets of the blocks.
    block_ptr: Integers


def make_layout(word_counts: Integers, n_blocks: int) -> Layout:
    """Divide the vocabulary into blocks of equal cost, given the tokens of each column in all shards."""
    order = np.argsort(-word_counts, kind="stable")
    block_of = np.zeros(len(order), np.int32)
    if n_blocks > 1:
        assign_blocks(freeze(word_counts), freeze(order), n_blocks, block_of)
    sizes = np.bincount(block_of, minlength=n_blocks)
    column = order[np.argsort(block_of, kind="stable")].astype(np.int32)
    return Layout(column, offsets_of(sizes))


def layout_by_column(n_words: int) -> Layout:
    """Return the layout of a single block in the order of the columns, for samplers to whom the order is all one."""
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
