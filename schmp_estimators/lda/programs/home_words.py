"""Words that a shard samples with rows that have come; those of light blocks together, as every call takes time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, WordBlock, no_rows
from schmp_estimators.lda.data.topic_rows import cut_rows, stack_rows
from schmp_estimators.lda.programs.jobs import put_together


class HomeWords(NamedTuple):
    """Some of these words, of one block or of several."""

    #: Number of the block, or of the first one.
    block: int
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
        Blocks are put together that have no more tokens in the shard, and numbers in rows, than so many; none if
        it is negative.
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
        return HomeWords(numbers[0], freeze(words), shard.word_ptr[begin : end + 1], some[0])
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
    return HomeWords(numbers[0], *freeze((words, ptr, rows)))
