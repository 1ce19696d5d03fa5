"""Seeds of words as programs hold them: by canonical addresses, so that they fit any division of the words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, WordBlock
from schmp_estimators.lda.data.topic_rows import spans
from schmp_estimators.lda.kernels.likelihood import rising
from schmp_estimators.lda.kernels.priors import SeedRows
from schmp_estimators.lda.kernels.rows import look_up


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


def count_seeds(rows: SeedRows, block: WordBlock, n_topics: int, first: int = 0) -> SeedCounts:
    """Count the tokens of the seeded words of a block, earlier batches included, whose first word has this number."""
    words = np.flatnonzero(rows.number[first : first + len(block.fixed.ptr) - 1] >= 0)
    numbers = rows.number[first + words]
    sizes = np.diff(rows.ptr)[numbers]
    seeds = spans(rows.ptr[numbers], sizes)
    tokens = np.empty(len(seeds), np.int64)
    look_up(*freeze((block, words, np.append(0, np.cumsum(sizes)), rows.topic[seeds])), n_topics, tokens)
    return SeedCounts(seeds, tokens)


def chain_seeds(pieces: Sequence[SeedCounts]) -> SeedCounts:
    """Take what has been counted of several words together."""
    return SeedCounts(*(np.concatenate(part) for part in zip(*pieces, strict=True)))


def seeded_word_log_likelihood(
    plain: float, seeds: WordSeeds, counts: SeedCounts, topic_total: NDArray[np.int64], beta: float, n_words: int
) -> float:
    """Return the word part of the joint log-likelihood, given what it would be without seeds."""
    smooth, weight = n_words * beta, np.concatenate([seeds.weight[counts.seed], seeds.rest_weight])
    tokens = np.concatenate([counts.tokens, seeds.rest_tokens])
    of_topics = rising(smooth, topic_total) - rising(smooth + seeds.total, topic_total)
    return plain + of_topics + rising(beta + weight, tokens) - rising(beta, tokens)
