"""Word blocks of topic programs: how they are made from the parts of all shards, and converted to sparse rows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from schmp_estimators.core.typing import AnySigned, Array, Integers, Integers32
from schmp_estimators.core.values import freeze, offsets_of
from schmp_estimators.lda.blocks import HEAD, TokenShard, TopicRows, WordBlock, no_rows
from schmp_estimators.lda.data.topic_rows import cut_rows, rows_of_counts, rows_of_lists, stack_rows
from schmp_estimators.lda.kernels.rows import pack_rows, unpack_rows

_NO_ROWS = freeze(no_rows())


class WordPart(NamedTuple):
    """The tokens of one shard for the words of a block."""

    #: (n_words,) tokens of each word.
    lengths: Integers32
    #: Topics of the tokens of words with fewer than ``HEAD * K`` of them.
    lists: AnySigned
    #: (n_dense, K) counts of the other words.
    dense: Integers32
    #: The block's rows of earlier batches, if this shard keeps them; else no rows.
    fixed: TopicRows


#: Parts of one shard, by the numbers of their blocks.
WordParts = dict[int, WordPart]


def make_parts(
    shard: TokenShard, topic: Array, n_components: int, n_words: Integers | None = None
) -> WordParts:
    """Return the parts of a shard, by the numbers of the blocks.

    Parameters
    ----------
    shard : TokenShard
    topic : (n_tokens,) uint8, int16 or int32
        Topics of its tokens, word-major.
    n_components : int
        K.
    n_words : (n_blocks,) int64, optional
        How many words of each block the parts have, the first ones; by default all.
    """
    sizes = np.diff(shard.block_ptr) if n_words is None else n_words
    topic = freeze(topic)
    parts = WordParts()
    for block, (begin, n) in enumerate(zip(shard.block_ptr.tolist(), sizes.tolist(), strict=False)):
        word_ptr = freeze(shard.word_ptr[begin : begin + n + 1])
        lists, dense = pack_rows(word_ptr, topic, n_components)
        fixed = cut_rows(shard.fixed, 0, n) if block == shard.number else _NO_ROWS
        parts[block] = freeze(WordPart(np.diff(word_ptr).astype(np.int32), lists, dense, fixed))
    return parts


def combine_parts(index: int, parts: Sequence[WordPart], n_components: int) -> WordBlock:
    """Return block `index`, made from the parts of all shards: lists are joined word by word, dense rows added up."""
    total = np.zeros(len(parts[0].lengths), np.int64)
    for part in parts:
        total += part.lengths
    n_heads = int(np.count_nonzero(total >= HEAD * n_components))
    tail_ptr = offsets_of(total[n_heads:])
    heads = np.zeros((n_heads, n_components), np.int32)
    tails = np.empty(tail_ptr[-1], parts[0].lists.dtype)
    cursor = tail_ptr[:-1].copy()
    for part in parts:
        unpack_rows(part.lengths, part.lists, part.dense, heads, tails, cursor)
    return WordBlock(heads, tail_ptr, tails, parts[index].fixed)


def rows_of_tokens(
    word_ptr: Integers, topic: Array, fixed: TopicRows, n_components: int
) -> WordBlock:
    """Return the block of words whose tokens are all given, in word-major order: all rows are lists of topics."""
    return WordBlock(np.zeros((0, n_components), np.int32), word_ptr, topic, fixed)


def harvest_rows(block: WordBlock, n_components: int) -> TopicRows:
    """Return the word rows of a block as sparse rows, without those of earlier batches."""
    tails = rows_of_lists(block.tail_ptr, block.tails, n_components)
    return stack_rows([rows_of_counts(block.heads), tails])
