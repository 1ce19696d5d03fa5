"""Rows of words on their way between processes: those of head words coded, in a fraction of their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.places.errors import SchMPError
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import HEAD, TokenShard, TopicRows, WordBlock, no_rows
from schmp_estimators.lda.kernels.coded_rows import add_coded_rows, code_rows, code_topics, most_bytes
from schmp_estimators.lda.kernels.rows import unpack_rows
from schmp_estimators.lda.programs.blocks import (
    LIGHT,
    RowsInMaking,
    WordPart,
    add_part,
    begin_rows,
    combine_parts,
    end_rows,
    make_some_parts,
)
from schmp_estimators.lda.programs.jobs import put_together


class DamagedRowsError(SchMPError):
    """Rows of words have come that are none: they were damaged on the way, or coded by another version."""


class CodedPart(NamedTuple):
    """What a shard contributes to another shard's block."""

    #: (n_words,) tokens of each word.
    lengths: NDArray[np.int32]
    #: Topics of the tokens of tail words, in document order.
    lists: NDArray[np.signedinteger]
    #: Rows of the head words; see `kernels.coded_rows`.
    code: NDArray[np.uint8]


class CodedBlock(NamedTuple):
    """The rows of one block, as `WordBlock`, for another shard."""

    #: Rows of the head words; see `kernels.coded_rows`.
    code: NDArray[np.uint8]
    tails: NDArray[np.integer]
    #: Without a word if no word has any.
    fixed: TopicRows


def code_parts(shard: TokenShard, topic: NDArray[Any], n_components: int) -> dict[int, WordPart | CodedPart]:
    """Return what the shard contributes to the words of each block that stay at home, to its own as it is."""
    is_other = np.arange(len(shard.home)) != shard.number
    own, others = np.where(is_other, 0, shard.home), np.flatnonzero(is_other & (shard.home > 0))
    parts = dict[int, WordPart | CodedPart]()
    if shard.home[shard.number]:
        parts.update(make_some_parts(shard, topic, n_components, own, [shard.number]))
    begins, n_words = shard.block_ptr[others], shard.home[others].tolist()
    n_heads = np.array([_n_heads(shard, block, n_components) for block in others.tolist()], np.int64)
    tokens = (shard.word_ptr[begins + n_heads] - shard.word_ptr[begins]).sum()
    out = np.empty(most_bytes(int(n_heads.sum()), int(tokens), n_components), np.uint8)
    ends = code_topics(shard.word_ptr, *freeze((begins, n_heads, topic)), n_components, out).tolist()
    code = freeze(out[: ends[-1]].copy() if ends else out)
    of_blocks = zip(others.tolist(), begins.tolist(), n_words, n_heads.tolist(), pairwise([0, *ends]), strict=True)
    for block, first, n, heads, (begin, end) in of_blocks:
        ptr = shard.word_ptr[first : first + n + 1]
        lists = topic[ptr[heads] : ptr[-1]].copy()  # of a state whose tokens have proposals between their topics
        parts[block] = CodedPart(*freeze((np.diff(ptr).astype(np.int32), lists)), code[begin:end])
    return parts


def combine_coded(index: int, parts: Sequence[WordPart | CodedPart], n_components: int) -> WordBlock:
    """Do as `combine_parts` does, where parts of other shards may be coded."""
    if not any(isinstance(part, CodedPart) for part in parts):
        return combine_parts(index, [part for part in parts if isinstance(part, WordPart)], n_components)
    total: NDArray[np.int64] = np.sum([part.lengths for part in parts], axis=0, dtype=np.int64)
    rows, own = begin_rows(total, n_components, parts[0].lists.dtype), parts[index]
    assert isinstance(own, WordPart)
    for is_coded, some in groupby(parts, lambda part: isinstance(part, CodedPart)):
        if not is_coded:
            add_part(rows, own)
            continue
        coded = [part for part in some if isinstance(part, CodedPart)]
        sizes = [part.lengths.size + part.lists.size + part.code.size for part in coded]
        for group in put_together(sizes, LIGHT):
            _add_coded(rows, [coded[at] for at in group])
    return end_rows(rows, own.fixed)


def code_block(owner: TokenShard, block: WordBlock) -> CodedBlock:
    """Return the block of a shard as it travels."""
    first = owner.block_ptr[owner.number]
    n_tokens = int(owner.word_total[first : first + len(block.heads)].sum())
    out = np.empty(most_bytes(len(block.heads), n_tokens, block.heads.shape[1]), np.uint8)
    code = out[: code_rows(freeze(block.heads), out)].copy()
    return freeze(CodedBlock(code, block.tails, block.fixed if len(block.fixed.topic) else no_rows()))


def read_blocks(
    shard: TokenShard, blocks: Sequence[WordBlock | CodedBlock | None], n_components: int
) -> list[WordBlock | None]:
    """Return the rows of all blocks, those that have travelled read."""
    found: list[WordBlock | None] = []
    for number, block in enumerate(blocks):
        if not isinstance(block, CodedBlock):
            found.append(block)
            continue
        first, n_heads = int(shard.block_ptr[number]), _n_heads(shard, number, n_components)
        total = shard.word_total[first : first + int(shard.home[number])]
        heads, tail_ptr = np.zeros((n_heads, n_components), np.int32), np.zeros(len(total) - n_heads + 1, np.int64)
        np.cumsum(total[n_heads:], out=tail_ptr[1:])
        _add_rows(freeze(total[:n_heads]), freeze(block.code), heads)
        fixed = block.fixed if len(block.fixed.topic) else no_rows(len(total))
        found.append(freeze(WordBlock(heads, tail_ptr, block.tails, fixed)))
    return found


def _n_heads(shard: TokenShard, block: int, n_components: int) -> int:
    """Return how many words of a block, of those that stay at home, are head words: the first ones."""
    first = shard.block_ptr[block]
    return int(np.count_nonzero(shard.word_total[first : first + shard.home[block]] >= HEAD * n_components))


def _add_coded(rows: RowsInMaking, parts: Sequence[CodedPart]) -> None:
    """Add what several shards contribute, one after the other."""
    n_heads = len(rows.heads)
    lengths = np.stack([part.lengths for part in parts])
    code = parts[0].code if len(parts) == 1 else np.concatenate([part.code for part in parts])
    _add_rows(freeze(lengths[:, :n_heads].astype(np.int64).reshape(-1)), freeze(code), rows.heads)
    if len(rows.cursor):
        lists = parts[0].lists if len(parts) == 1 else np.concatenate([part.lists for part in parts])
        no_rows = np.zeros((0, rows.heads.shape[1]), np.int32)
        lengths = np.ascontiguousarray(lengths[:, n_heads:]).reshape(-1)
        unpack_rows(*freeze((lengths, lists, no_rows)), rows.heads[:0], rows.tails, rows.cursor)


def _add_rows(n_tokens: NDArray[np.int64], code: NDArray[np.uint8], rows: NDArray[np.int32]) -> None:
    if not add_coded_rows(n_tokens, code, rows):
        raise DamagedRowsError(
            f"{len(code)} bytes have come that are not the rows of {len(rows)} words in {rows.shape[1]} topics: they "
            "were damaged on the way, or another version of this package has coded them; fit again, with the same "
            "version on all workers"
        )
