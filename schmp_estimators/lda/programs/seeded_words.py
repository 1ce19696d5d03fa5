"""The word pass of the frozen-count sampler over seeded words, one at a time: they are few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.stages import At
from schmp_estimators.lda.blocks import HEAD, WordBlock
from schmp_estimators.lda.kernels.seeds import SeedRows, sample_seeded_word
from schmp_estimators.lda.kernels.warp import Steps
from schmp_estimators.lda.programs.seeds import WordSeeds, count_word, fixed_counts, list_of_word, seed_rows


class SeededWords(NamedTuple):
    """The seeded words of a block and a shard, or of the only shard."""

    rows: SeedRows
    #: Number of the first word in the layout, and numbers of the seeded words, counted from there.
    begin: int
    words: NDArray[np.intp]
    block: WordBlock | None

    @classmethod
    def of(cls, seeds: WordSeeds, at: At, block: WordBlock | None) -> SeededWords:
        """Return those at a place."""
        rows = seed_rows(seeds, at.shard)
        begin, end = (0, len(rows.number)) if block is None else at.shard.block_ptr[at.block : at.block + 2]
        return cls(rows, int(begin), np.flatnonzero(rows.number[begin:end] >= 0), block)

    def between(self, jobs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Cut jobs, ranges of words, into what lies between seeded words."""
        cut = []
        for first, last in jobs:
            inside = self.words[(self.words >= first) & (self.words < last)].tolist()
            cut += [(a, b) for a, b in zip([first, *(w + 1 for w in inside)], [*inside, last], strict=True) if a < b]
        return cut

    def sample(self, at: At, tokens: NDArray[Any], prior: np.float32, key: np.uint64, steps: Steps) -> int:
        """Do the word pass of all of them, and return how many tokens moved; `tokens` are those of the block."""
        return sum(at.each(lambda word: self._sample_word(at, word, tokens, prior, key, steps), self.words.tolist()))

    def _sample_word(
        self, at: At, word: int, tokens: NDArray[Any], prior: np.float32, key: np.uint64, steps: Steps
    ) -> int:
        shard, width, n_topics = at.shard, 1 + len(steps), len(at.model.inverse)
        first, last = shard.word_ptr[self.begin + word : self.begin + word + 2] - shard.word_ptr[self.begin]
        if first == last:
            return 0
        own = tokens[first * width : last * width]
        if self.block is None:
            fixed, slots = shard.fixed, own[::width].copy()
            row = np.bincount(slots, minlength=n_topics)
        else:
            fixed, row = self.block.fixed, count_word(self.block, word, n_topics)
            slots = list_of_word(self.block, word) if word >= len(self.block.heads) else own[:0]
        if shard.word_total[self.begin + word] >= HEAD * n_topics:
            slots = np.repeat(np.arange(n_topics, dtype=own.dtype), row)
        entries = slice(*fixed.ptr[word : word + 2]) if len(fixed.topic) else slice(0)
        fixed_topic, fixed_ends = fixed.topic[entries], np.cumsum(fixed.tokens[entries], dtype=np.int64)
        seeds = slice(*self.rows.ptr[self.rows.number[self.begin + word] : self.rows.number[self.begin + word] + 2])
        counts = (row + fixed_counts(fixed, word, n_topics)).astype(np.float64)
        counts[self.rows.topic[seeds]] += self.rows.weight[seeds]
        address = np.uint64(shard.word_first[self.begin + word] + shard.word_rank[self.begin + word])
        moved: int = sample_seeded_word(
            own, address, counts, at.model.inverse, prior, key, np.array(slots), np.array(fixed_topic), fixed_ends,
            self.rows.topic[seeds], self.rows.weight[seeds], bool(at.sweep == 0 and len(fixed_topic)), steps,
        )  # fmt: skip
        return moved
