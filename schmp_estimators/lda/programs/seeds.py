"""Seeds of words as programs hold them: by canonical addresses, so that they fit any division of the words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import HEAD, TokenShard, TopicRows, WordBlock
from schmp_estimators.lda.kernels.likelihood import rising
from schmp_estimators.lda.kernels.warp import Steps
from schmp_estimators.lda.kernels.word_priors import SeedRows, sample_seeded_word


class WordSeeds(NamedTuple):
    """Imaginary tokens of words in topics."""

    #: (n_seeded,) canonical addresses of the seeded words that have tokens, ascending.
    address: NDArray[np.int64]
    #: (n_seeded + 1,) offsets of these words in what follows.
    ptr: NDArray[np.int64]
    topic: NDArray[np.int32]
    weight: NDArray[np.float64]
    #: (K,) seeds of each topic, those of words without tokens included.
    total: NDArray[np.float64]
    #: (n_rest,) seeds of words that only earlier batches have, and how many tokens these have of them.
    rest_weight: NDArray[np.float64]
    rest_tokens: NDArray[np.int64]

    def digest(self) -> str:
        """Return what identifies the seeds."""
        return hashlib.sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in self)).hexdigest()


class SeedCounts(NamedTuple):
    """How many tokens seeded words have in the topics that they are seeded in."""

    #: Numbers of the seeds.
    seed: NDArray[np.int64]
    tokens: NDArray[np.int64]


def word_seeds(
    seeds: sparse.csc_array, word_totals: NDArray[np.int64], earlier: sparse.csc_array | None = None
) -> WordSeeds:
    """Return the seeds (K, V) of a corpus with so many tokens of each word, and of earlier ones with their counts."""
    seeds = sparse.csc_array(seeds)
    per_word = np.diff(seeds.indptr)
    kept = np.flatnonzero((per_word > 0) & (word_totals > 0))
    taken = sparse.csc_array(seeds[:, kept])
    taken.sort_indices()
    total = np.asarray(np.bincount(seeds.indices, seeds.data, seeds.shape[0]), np.float64)
    address = np.cumsum(word_totals) - word_totals
    absent = np.flatnonzero((per_word > 0) & (word_totals == 0))
    rest = sparse.coo_array(seeds[:, absent])
    tokens = np.zeros(rest.nnz, np.int64)
    if earlier is not None and rest.nnz:
        tokens = np.asarray(sparse.csr_array(earlier[:, absent])[rest.row, rest.col], np.int64).reshape(-1)
    return WordSeeds(
        address[kept].astype(np.int64), taken.indptr.astype(np.int64), taken.indices.astype(np.int32),
        taken.data.astype(np.float64), total,
        rest.data.astype(np.float64)[tokens > 0], tokens[tokens > 0],
    )  # fmt: skip


def seed_rows(seeds: WordSeeds, shard: TokenShard) -> SeedRows:
    """Return the seeds in the layout of a shard."""
    used = shard.word_total > 0  # a word without tokens has the address of the next one
    at = np.minimum(np.searchsorted(seeds.address, shard.word_first), max(0, len(seeds.address) - 1))
    found = used & (seeds.address[at] == shard.word_first) if len(seeds.address) else np.zeros(len(used), bool)
    return freeze(SeedRows(np.where(found, at, -1).astype(np.int32), seeds.ptr, seeds.topic, seeds.weight))


def seeds_of_words(rows: SeedRows, words: NDArray[np.integer]) -> SeedRows:
    """Return the seeds of some words of the layout."""
    return freeze(rows._replace(number=rows.number[words]))


def count_seeds(
    rows: SeedRows, shard: TokenShard, topic: NDArray[np.integer], block: WordBlock | None, number: int
) -> SeedCounts:
    """Count the tokens of seeded words, of one block or, without blocks, of all."""
    first, last = (0, len(rows.number)) if block is None else shard.block_ptr[number : number + 2].tolist()
    n_topics = block.heads.shape[1] if block is not None else int(rows.topic.max(initial=0)) + 1
    seeds, tokens = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for word in (first + np.flatnonzero(rows.number[first:last] >= 0)).tolist():
        seed = np.arange(*rows.ptr[rows.number[word] : rows.number[word] + 2])
        if block is None:
            own = topic[shard.word_ptr[word] : shard.word_ptr[word + 1]]
            counts, fixed, at = _count(own, n_topics), shard.fixed, word
        else:
            counts, fixed, at = count_word(block, word - first, n_topics), block.fixed, word - first
        counts += fixed_counts(fixed, at, len(counts))
        seeds.append(seed)
        tokens.append(counts[rows.topic[seed]])
    return SeedCounts(np.concatenate(seeds), np.concatenate(tokens))


def count_word(block: WordBlock, word: int, n_topics: int) -> NDArray[np.int64]:
    """Return how many tokens a word of a block has in each topic, earlier batches not included."""
    if word < len(block.heads):
        return block.heads[word].astype(np.int64)
    return _count(list_of_word(block, word), n_topics)


def list_of_word(block: WordBlock, word: int) -> NDArray[np.integer]:
    """Return the topics of the tokens of a tail word of a block."""
    tail = word - len(block.heads)
    return block.tails[block.tail_ptr[tail] : block.tail_ptr[tail + 1]]


def fixed_counts(fixed: TopicRows, word: int, n_topics: int) -> NDArray[np.int64]:
    """Return how many tokens of earlier batches a word has in each topic."""
    counts = np.zeros(max(n_topics, 1), np.int64)
    if len(fixed.topic):
        entries = slice(*fixed.ptr[word : word + 2])
        few = fixed.topic[entries] < len(counts)
        counts[fixed.topic[entries][few]] += fixed.tokens[entries][few]
    return counts


def _count(topic: NDArray[np.integer], n_topics: int) -> NDArray[np.int64]:
    return np.bincount(topic, minlength=n_topics).astype(np.int64)


def seeded_word_log_likelihood(
    plain: float, seeds: WordSeeds, counts: SeedCounts, topic_total: NDArray[np.int64], beta: float, n_words: int
) -> float:
    """Return the word part of the joint log-likelihood, given what it would be without seeds."""
    smooth, weight = n_words * beta, np.concatenate([seeds.weight[counts.seed], seeds.rest_weight])
    tokens = np.concatenate([counts.tokens, seeds.rest_tokens])
    of_topics = rising(smooth, topic_total) - rising(smooth + seeds.total, topic_total)
    return plain + of_topics + rising(beta + weight, tokens) - rising(beta, tokens)


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
