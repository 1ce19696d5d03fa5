"""Shards on disk: what a topic sampler must know of documents, written once, and read one shard at a time.

A shard is a file ``shard-<number>``: offsets of its documents and words, the ranks of its first tokens, and the place
of each token in word-major order.  Topics are in the files ``topics-even`` and ``topics-odd``, those of all shards in
document order: what is read after an even number of sweeps, and what is read after an odd one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.store import Store
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, TopicRows, WordTopics, no_rows, no_topics, nothing_sent
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.counts import Counts, token_counts
from schmp_estimators.lda.data.tokens import Layout, Plan, ShardOffsets, count_words, make_shard


class SpilledCorpus(NamedTuple):
    """What is known of all shards without reading any of them."""

    store: Store
    #: (n_shards + 1,) number of the first document of each shard, and of the first token.
    documents: NDArray[np.int64]
    tokens: NDArray[np.int64]
    #: (n_words,) as in `TokenShard`: the same for all shards.
    word_first: NDArray[np.int64]
    word_total: NDArray[np.int64]
    block_ptr: NDArray[np.int64]
    #: Of topic numbers.
    dtype: Any
    #: Number of the first token in the files of topics.
    first_token: int = 0
    #: Whether every sweep writes a file of topics of its own, and not one of two.
    by_sweep: bool = False

    def topics(self, generation: int, number: int) -> tuple[str, int]:
        """Return the file of topics after so many sweeps, and the byte where those of a shard begin."""
        first = int(self.tokens[number]) - self.first_token
        name = f"topics-{generation}" if self.by_sweep else topics_file(generation)
        return name, first * np.dtype(self.dtype).itemsize


class SpilledShard(NamedTuple):
    """One shard, which stands for a `TokenShard` on disk."""

    corpus: SpilledCorpus
    number: int
    #: Rows of earlier batches, for all words; the first shard has them.
    fixed: TopicRows = no_rows()
    first: WordTopics = no_topics()

    def load(self, generation: int | None, following: tuple[int, int | None] | None = None) -> tuple[TokenShard, Any]:
        """Return the shard and its topics in document order, None if there are no topics yet.

        Parameters
        ----------
        generation : int or None
            Sweeps done, where each of them has a file; else 0 for an even number of them, 1 for an odd one.
        following : tuple, optional
            Number and generation of what will be read next.
        """
        store = self.corpus.store
        arrays, topic = store.take((self.number, generation), lambda: self._read(self.number, generation))
        if following is not None:
            store.read_ahead(following, lambda: self._read(*following))
        doc_ptr, word_ptr, word_rank, place = arrays
        common = self.corpus
        shard = TokenShard(
            doc_ptr, place, word_ptr, word_rank, common.word_first, common.word_total, common.block_ptr,
            int(common.tokens[self.number]), self.number, self.fixed, self.first,
            np.diff(common.block_ptr), *nothing_sent(len(common.block_ptr) - 1),
        )  # fmt: skip
        return freeze(shard), freeze(topic)

    def write(self, generation: int, topic: NDArray[Any]) -> None:
        """Write topics in document order, sooner or later."""
        self.corpus.store.write_behind(*self.corpus.topics(generation, self.number), topic)

    def _read(self, number: int, generation: int | None) -> tuple[tuple[NDArray[Any], ...], NDArray[Any] | None]:
        corpus = self.corpus
        n_docs, n_tokens = (int(ptr[number + 1] - ptr[number]) for ptr in (corpus.documents, corpus.tokens))
        n_words = len(corpus.word_total)
        arrays = np.empty(n_docs + 1, np.int64), np.empty(n_words + 1, np.int64), np.empty(n_words, np.int64)
        found = *arrays, np.empty(n_tokens, np.uint32)
        corpus.store.read(shard_file(number), 0, *found)
        if generation is None:
            return found, None
        topic = np.empty(n_tokens, corpus.dtype)
        corpus.store.read(*corpus.topics(generation, number), topic)
        return found, topic


def topics_file(generation: int) -> str:
    """Return the name of the file of topics after an even or an odd number of sweeps."""
    return ("topics-even", "topics-odd")[generation % 2]


def shard_file(number: int) -> str:
    """Return the name of the file of what does not change of a shard."""
    return f"shard-{number}"


def documents_as_counted(corpus: Corpus, bounds: NDArray[np.int64]) -> list[Any]:
    """Return what stands for the documents of every shard; reading them raises if they are no longer as they were.

    Kernels write into arrays that have the sizes counted before.
    """
    given = zip(corpus.shards(bounds), bounds[:-1], bounds[1:], strict=True)
    return corpus.rows.tasks(_as_counted, [(one, corpus.lengths[a:b]) for one, a, b in given], "check-documents")


def _as_counted(pieces: Sequence[Counts], lengths: NDArray[np.int64]) -> Sequence[Counts]:
    if not np.array_equal(np.concatenate([token_counts(piece)[0] for piece in pieces]), lengths):
        raise changed()
    return pieces


def changed() -> ValueError:
    """Return what to raise where a second look at the input has found something else than the first."""
    return ValueError(
        "X has changed while it was read: a second look at its documents found other counts than the first. With "
        "spill, X is read several times: write it to a file that stays, or make its chunks by functions without chance."
    )


def spill_shards(
    store: Store, corpus: Corpus, documents: Sequence[Any], bounds: NDArray[np.int64], layout: Layout, dtype: Any
) -> list[SpilledShard]:
    """Write the shards, one at a time, and make room for their topics.

    Parameters
    ----------
    store : Store
        Where they go.
    corpus : Corpus
        Sums over all documents.
    documents : sequence
        From `documents_as_counted`.
    bounds : (n_shards + 1,) int64
        Shard s has the documents from ``bounds[s]`` up to ``bounds[s + 1]``.
    layout : Layout
        With one block of all words.
    dtype : dtype
        Of topic numbers.
    """
    total, tokens = corpus.word_totals, np.concatenate([[0], np.cumsum(corpus.lengths)])[bounds]
    common = SpilledCorpus(
        store, bounds, tokens, (np.cumsum(total) - total)[layout.column], total[layout.column], layout.block_ptr, dtype
    )
    for generation in (0, 1):
        store.allocate(topics_file(generation), int(tokens[-1]) * np.dtype(dtype).itemsize)
    rank = np.zeros_like(total)
    for number, piece in enumerate(documents):
        [pieces] = corpus.rows.here([piece])
        counts = count_words(pieces, corpus.n_features)
        offsets = ShardOffsets(
            rank[layout.column], common.word_first, common.word_total, int(tokens[number]), number
        )  # fmt: skip
        shard = make_shard(pieces, Plan(counts, layout, offsets, no_rows()))
        store.write(shard_file(number), shard.doc_ptr, shard.word_ptr, shard.word_rank, shard.place)
        rank = rank + counts
    if not np.array_equal(rank, total):
        raise changed()
    return [SpilledShard(common, number) for number in range(len(documents))]
