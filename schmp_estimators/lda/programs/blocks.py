"""Word blocks of topic programs: made of what the shards contribute, and harvested as sparse rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import HEAD, TokenShard, TopicRows, WordBlock, no_rows
from schmp_estimators.lda.data.topic_rows import cut_rows, rows_of_counts, rows_of_lists, stack_rows
from schmp_estimators.lda.kernels.rows import pack_rows, unpack_rows


class WordPart(NamedTuple):
    """What a shard contributes to a block."""

    #: (n_words,) tokens of each word.
    lengths: NDArray[np.int32]
    #: Topics of the tokens of words with fewer than ``HEAD * K`` of them.
    lists: NDArray[np.signedinteger]
    #: (n_dense, K) counts of the other words.
    dense: NDArray[np.int32]
    #: The block's fixed rows if this shard keeps them, else no rows.
    fixed: TopicRows


def make_parts(shard: TokenShard, topic: NDArray[Any], n_components: int) -> list[WordPart]:
    """Return what the shard contributes to every block, given the topics of its tokens in word-major order."""
    topic, n_words = freeze(topic), np.diff(shard.block_ptr)
    return [make_part(shard, topic, n_components, block, int(n)) for block, n in enumerate(n_words)]


def make_part(shard: TokenShard, topic: NDArray[Any], n_components: int, block: int, n_words: int) -> WordPart:
    """Return what the shard contributes to the first words of a block."""
    first = shard.block_ptr[block]
    lengths, lists, dense = pack_rows(shard.word_ptr[first : first + n_words + 1], topic, n_components)
    return WordPart(lengths, lists, dense, cut_rows(shard.fixed, 0, n_words) if block == shard.number else no_rows())


def combine_parts(index: int, parts: Sequence[WordPart], n_components: int) -> WordBlock:
    """Interleave the lists of all shards, word by word, and add up dense rows."""
    parts = freeze(list(parts))
    total = np.zeros(len(parts[0].lengths), np.int64)
    for part in parts:
        total += part.lengths
    n_heads = int(np.count_nonzero(total >= HEAD * n_components))
    tail_ptr = np.zeros(len(total) - n_heads + 1, np.int64)
    np.cumsum(total[n_heads:], out=tail_ptr[1:])
    heads = np.zeros((n_heads, n_components), np.int32)
    tails = np.empty(tail_ptr[-1], parts[0].lists.dtype)
    cursor = tail_ptr[:-1].copy()
    for part in parts:
        unpack_rows(part.lengths, part.lists, part.dense, heads, tails, cursor)
    return WordBlock(heads, tail_ptr, tails, parts[index].fixed)


def harvest_rows(block: WordBlock, n_components: int) -> TopicRows:
    """Return the word rows of a block, without the fixed ones."""
    tails = rows_of_lists(block.tail_ptr, block.tails, n_components)
    return stack_rows([rows_of_counts(block.heads), tails])
