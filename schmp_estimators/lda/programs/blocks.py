"""Word blocks of topic programs: made of what the shards contribute, sampled from, and harvested as sparse rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import HEAD, TokenShard, TopicRows, WordBlock, no_rows
from schmp_estimators.lda.data.partition import put_together
from schmp_estimators.lda.data.topic_rows import cut_rows, rows_of_counts, rows_of_lists, stack_rows
from schmp_estimators.lda.kernels.rows import pack_rows, unpack_rows

#: Numbers up to which what comes from several shards is copied, to be dealt with by one call of a kernel.
LIGHT = 1 << 17
_NO_ROWS = freeze(no_rows())


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


def make_parts(
    shard: TokenShard,
    topic: NDArray[Any],
    n_components: int,
    n_words: NDArray[np.int64] | None = None,
    blocks: Iterable[int] | None = None,
) -> dict[int, WordPart]:
    """Return what the shard contributes to the first so many words, or all, of each of `blocks`, or of all.

    `topic` are the topics of its tokens in word-major order; of other blocks no words are asked.
    """
    sizes = np.diff(shard.block_ptr) if n_words is None else n_words
    packed = pack_rows(shard.word_ptr, shard.block_ptr[:-1], freeze(sizes), freeze(topic), n_components)
    lengths, lists, dense = freeze(packed[:3])
    parts, ends = {}, [[0, 0, 0], *packed[3].tolist()]
    for block in range(len(sizes)) if blocks is None else blocks:
        (word, listed, row), (word_end, list_end, row_end) = ends[block], ends[block + 1]
        fixed = freeze(cut_rows(shard.fixed, 0, word_end - word)) if block == shard.number else _NO_ROWS
        parts[block] = WordPart(lengths[word:word_end], lists[listed:list_end], dense[row:row_end], fixed)
    return parts


def combine_parts(index: int, parts: Sequence[WordPart], n_components: int) -> WordBlock:
    """Interleave the lists of all shards, word by word, and add up dense rows."""
    total = np.zeros(len(parts[0].lengths), np.int64)
    for part in parts:
        total += part.lengths
    n_heads = int(np.count_nonzero(total >= HEAD * n_components))
    tail_ptr = np.zeros(len(total) - n_heads + 1, np.int64)
    np.cumsum(total[n_heads:], out=tail_ptr[1:])
    heads, tails = np.zeros((n_heads, n_components), np.int32), np.empty(tail_ptr[-1], parts[0].lists.dtype)
    cursor = tail_ptr[:-1].copy()
    sizes = [part.lengths.size + part.lists.size + part.dense.size for part in parts]
    for group in put_together(sizes, LIGHT):
        lengths, lists, dense, _ = _stack_parts([parts[shard] for shard in group])
        unpack_rows(lengths, lists, dense, heads, tails, cursor)
    return WordBlock(heads, tail_ptr, tails, parts[index].fixed)


def _stack_parts(parts: Sequence[WordPart]) -> WordPart:
    """Return the parts of several shards one after the other, as one."""
    if len(parts) == 1:
        return parts[0]
    lengths, lists, dense = [np.concatenate(arrays) for arrays in list(zip(*parts, strict=True))[:3]]
    return freeze(WordPart(lengths, lists, dense, parts[0].fixed))


def rows_of_tokens(word_ptr: NDArray[np.int64], topic: NDArray[Any], fixed: TopicRows, n_components: int) -> WordBlock:
    """Return the rows of words that have no tokens elsewhere: lists of topics."""
    return WordBlock(np.zeros((0, n_components), np.int32), word_ptr, topic, fixed)


def harvest_rows(block: WordBlock, n_components: int) -> TopicRows:
    """Return the word rows of a block, without the fixed ones."""
    tails = rows_of_lists(block.tail_ptr, block.tails, n_components)
    return stack_rows([rows_of_counts(block.heads), tails])


class HomeWords(NamedTuple):
    """Some of these words, of one block or of several."""

    #: (n_words,) numbers of the words in the shard.
    words: NDArray[np.int32]
    #: (n_words + 1,) offsets of the words among their tokens in the shard.
    ptr: NDArray[np.int64]
    #: Rows of the words.
    rows: WordBlock


def home_words(shard: TokenShard, blocks: Sequence[WordBlock | None], most: int) -> list[HomeWords]:
    """Return the words of all blocks that the shard samples at home.

    Parameters
    ----------
    shard : TokenShard
    blocks : sequence of WordBlock or None
        Rows of these words, by block.
    most : int
        Blocks are put together that have no more tokens in the shard, and numbers in rows, than so many.
    """
    ends = shard.block_ptr[:-1] + shard.home
    tokens = (shard.word_ptr[ends] - shard.word_ptr[shard.block_ptr[:-1]]).tolist()
    some = [(number, block) for number, block in enumerate(blocks) if block is not None]
    sizes = [tokens[number] + block.heads.size + len(block.tails) for number, block in some]
    return [_words_of(shard, *zip(*[some[at] for at in group], strict=True)) for group in put_together(sizes, most)]


def _words_of(shard: TokenShard, numbers: Sequence[int], some: Sequence[WordBlock]) -> HomeWords:
    first, n_words = shard.block_ptr[list(numbers)], shard.home[list(numbers)]
    if len(some) == 1:
        begin, end = int(first[0]), int(first[0] + n_words[0])
        words = np.arange(begin, end, dtype=np.int32)
        return HomeWords(freeze(words), shard.word_ptr[begin : end + 1], some[0])
    n_heads = np.array([len(block.heads) for block in some])
    # All head words, then all others, in runs of consecutive numbers.
    run, size = np.concatenate([first, first + n_heads]), np.concatenate([n_heads, n_words - n_heads])
    words = (np.repeat(run - np.cumsum(size) + size, size) + np.arange(size.sum())).astype(np.int32)
    heads = np.concatenate([block.heads for block in some])
    tail_ptr, ptr = np.zeros(len(words) - len(heads) + 1, np.int64), np.zeros(len(words) + 1, np.int64)
    np.cumsum(shard.word_total[words[len(heads) :]], out=tail_ptr[1:])
    np.cumsum(shard.word_ptr[words + 1] - shard.word_ptr[words], out=ptr[1:])
    fixed = no_rows(len(words))
    if any(len(block.fixed.topic) for block in some):
        of_heads = [cut_rows(block.fixed, 0, len(block.heads)) for block in some]
        fixed = stack_rows([*of_heads, *[cut_rows(b.fixed, len(b.heads), len(b.fixed.ptr) - 1) for b in some]])
    rows = WordBlock(heads, tail_ptr, np.concatenate([block.tails for block in some]), fixed)
    return HomeWords(*freeze((words, ptr, rows)))
