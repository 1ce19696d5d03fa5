"""Shards on disk: what a topic sampler must know of documents, written once, and read one shard at a time.

A shard is a file ``shard-<number>``: offsets of its documents and words, the ranks of its first tokens, and the place
of each token in word-major order.

What changes is in the file ``tokens``, that of all shards: the topic of each token and its pending proposals, as the
last sweep left them, in word-major order, shard after shard, or slice of words after slice (`data.spilled_words`).  A
sweep writes where it has read.  So where a fit may have to go on without that file, topics are in the files
``topics-even`` and ``topics-odd``, too, in document order: what is read after an even number of sweeps, and what is
read after an odd one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.direct import empty_at
from schmp_estimators.core.store import Store
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, TopicRows, WordTopics, no_rows, no_topics, nothing_sent
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.counts import Counts, count_words, token_counts
from schmp_estimators.lda.data.packed import Packing
from schmp_estimators.lda.data.spilled_words import Slices, code_slices, make_slices
from schmp_estimators.lda.data.tokens import Layout, Plan, ShardOffsets, make_shard


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
    #: Of topics with their proposals in their file.
    packing: Packing
    #: Number of the first token in the files.
    first_token: int = 0
    #: Whether every sweep writes a file of topics of its own, and not one of two.
    by_sweep: bool = False
    #: Which file has topics with proposals.
    drawn: str = "tokens"
    #: Where the tokens of each slice of words are in that file; None if those of a shard are together.
    slices: Slices | None = None
    #: What reads a shard's topics and proposals, given its number, where they come from other places.
    come: Callable[[int], NDArray[Any]] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of topic numbers."""
        return self.packing.dtype

    def topics(self, generation: int, number: int) -> tuple[str, int]:
        """Return the file of topics after so many sweeps, and the byte where those of a shard begin."""
        name = f"topics-{generation}" if self.by_sweep else topics_file(generation)
        return name, self._begin(number)

    def proposals(self, number: int) -> list[tuple[int, int]]:
        """Return where those of a shard's topics that have proposals are in their file: first bytes, and tokens."""
        if self.slices is not None:
            return self.slices.of_shard(number)
        first, end = self.tokens[number : number + 2].tolist()
        return [((first - self.first_token) * self.packing.nbytes, end - first)]

    def _begin(self, number: int) -> int:
        return (int(self.tokens[number]) - self.first_token) * self.dtype.itemsize


class Reading(NamedTuple):
    """What is read of a shard, beside what does not change."""

    number: int
    #: Sweeps done, where each of them has a file of topics; else 0 for an even number of them, 1 for an odd one; None
    #: if there are no topics yet.
    generation: int | None
    #: Whether topics are read with their proposals.
    is_drawn: bool = False


class SpilledShard(NamedTuple):
    """One shard, which stands for a `TokenShard` on disk."""

    corpus: SpilledCorpus
    number: int
    #: Rows of earlier batches, for all words; the first shard has them.
    fixed: TopicRows = no_rows()
    first: WordTopics = no_topics()

    def load(self, reading: Reading, following: Reading | None = None) -> tuple[TokenShard, Any]:
        """Return the shard and what is read with it; None if there are no topics yet.

        These are either (n_tokens,) topics in document order, or (n_tokens, 1 + mh_steps) topics with their proposals,
        in word-major order and for the caller to change.

        Parameters
        ----------
        reading : Reading
            What is read.
        following : Reading, optional
            What will be read next.
        """
        store = self.corpus.store
        arrays, tokens = store.take(reading, lambda: self._read(reading))
        if following is not None:
            store.read_ahead(following, lambda: self._read(following))
        doc_ptr, word_ptr, word_rank, place = arrays
        common = self.corpus
        shard = TokenShard(
            doc_ptr, place, word_ptr, word_rank, common.word_first, common.word_total, common.block_ptr,
            int(common.tokens[self.number]), self.number, self.fixed, self.first,
            np.diff(common.block_ptr), *nothing_sent(len(common.block_ptr) - 1),
        )  # fmt: skip
        return freeze(shard), tokens if reading.is_drawn else freeze(tokens)

    def room(self, generation: int) -> NDArray[Any]:
        """Return an array for topics in document order."""
        n_tokens = int(self.corpus.tokens[self.number + 1] - self.corpus.tokens[self.number])
        return empty_at(n_tokens, self.corpus.dtype, self.corpus.topics(generation, self.number)[1])

    def write(self, generation: int, topic: NDArray[Any] | None, tokens: NDArray[Any]) -> None:
        """Write topics in document order, if there is to be a file of them, and with proposals, sooner or later."""
        store = self.corpus.store
        store.settle()  # so that no more than one shard waits
        if topic is not None:
            store.write_behind(*self.corpus.topics(generation, self.number), topic)
        spans, packing, first = self.corpus.proposals(self.number), self.corpus.packing, 0
        if packing.bits:
            tokens = packing.pack(tokens, packing.empty(len(tokens), spans[0][0]))
        for at, n_tokens in spans:
            store.scribble_behind(self.corpus.drawn, at, tokens[first : first + n_tokens])
            first += n_tokens

    def _read(self, reading: Reading) -> tuple[tuple[NDArray[Any], ...], NDArray[Any] | None]:
        corpus, (number, generation, is_drawn) = self.corpus, reading
        n_docs, n_tokens = (int(ptr[number + 1] - ptr[number]) for ptr in (corpus.documents, corpus.tokens))
        n_words = len(corpus.word_total)
        arrays = np.empty(n_docs + 1, np.int64), np.empty(n_words + 1, np.int64), np.empty(n_words, np.int64)
        found = *arrays, empty_at(n_tokens, np.uint32, sum(one.nbytes for one in arrays))
        corpus.store.read(shard_file(number), 0, *found)
        if generation is None:
            return found, None
        if not is_drawn:
            name, at = corpus.topics(generation, number)
            topic = empty_at(n_tokens, corpus.dtype, at)
            corpus.store.read(name, at, topic)
            return found, topic
        if corpus.come is not None:
            return found, corpus.come(number)
        spans, first = corpus.proposals(number), 0
        tokens = corpus.packing.empty(n_tokens, spans[0][0])
        for at, n in spans:
            corpus.store.read(corpus.drawn, at, tokens[first : first + n])
            first += n
        return found, corpus.packing.unpack(tokens)


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
    store: Store,
    corpus: Corpus,
    documents: Sequence[Any],
    bounds: NDArray[np.int64],
    layout: Layout,
    packing: Packing,
    words: NDArray[np.int64] | None = None,
) -> list[SpilledShard]:
    """Write the shards, one at a time, and make room for their topics and proposals.

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
    packing : Packing
        Of topics with their proposals in their file.
    words : (n_slices + 1,) int64, optional
        First words of slices, if tokens are to be read by these, too.
    """
    total, tokens = corpus.word_totals, np.concatenate([[0], np.cumsum(corpus.lengths)])[bounds]
    common = SpilledCorpus(
        store, bounds, tokens, (np.cumsum(total) - total)[layout.column], total[layout.column], layout.block_ptr,
        packing,
    )  # fmt: skip
    store.allocate(common.drawn, int(tokens[-1]) * packing.nbytes)
    for generation in (0, 1) if store.is_kept else ():
        store.allocate(topics_file(generation), int(tokens[-1]) * packing.dtype.itemsize)
    rank, coded = np.zeros_like(total), []
    for number, piece in enumerate(documents):
        [pieces] = corpus.rows.here([piece])
        counts = count_words(pieces, corpus.n_features)
        offsets = ShardOffsets(
            rank[layout.column], common.word_first, common.word_total, int(tokens[number]), number
        )  # fmt: skip
        shard = make_shard(pieces, Plan(counts, layout, offsets, no_rows()))
        store.write(shard_file(number), shard.doc_ptr, shard.word_ptr, shard.word_rank, shard.place)
        if words is not None:
            coded.append(code_slices(store, number, shard.word_ptr, words))
        rank = rank + counts
    if not np.array_equal(rank, total):
        raise changed()
    if words is not None:
        common = common._replace(slices=make_slices(words, coded, packing.nbytes))
    return [SpilledShard(common, number) for number in range(len(documents))]
