"""Words that a shard samples with rows that have come; those of light blocks together, as every call takes time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, WordBlock, no_rows
from schmp_estimators.lda.data.topic_rows import cut_rows, stack_rows


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


def home_words(shard: TokenShard, blocks: Sequence[WordBlock | None], most: int) -> Iterator[HomeWords]:
    """Yield the words of all blocks that the shard samples at home.

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
    some, weight = list[int](), 0
    for number, block in enumerate(blocks):
        if block is None:
            continue
        of_block = tokens[number] + block.heads.size + len(block.tails)
        if some and weight + of_block > most:
            yield _put_together(shard, blocks, some)
            some, weight = [], 0
        some.append(number)
        weight += of_block
    if some:
        yield _put_together(shard, blocks, some)


def _put_together(shard: TokenShard, blocks: Sequence[WordBlock | None], numbers: Sequence[int]) -> HomeWords:
    ranges = [(int(shard.block_ptr[b]), int(shard.block_ptr[b] + shard.home[b])) for b in numbers]
    some = [block for block in map(blocks.__getitem__, numbers) if block is not None]
    if len(some) == 1:
        [(first, end)], [rows] = ranges, some
        return HomeWords(
            numbers[0], freeze(np.arange(first, end, dtype=np.int32)), shard.word_ptr[first : end + 1], rows
        )
    cuts = [(first, first + len(block.heads), end) for (first, end), block in zip(ranges, some, strict=True)]
    runs = [*[cut[:2] for cut in cuts], *[cut[1:] for cut in cuts]]  # all head words, then all others
    words = np.concatenate([np.arange(*run, dtype=np.int32) for run in runs])
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
