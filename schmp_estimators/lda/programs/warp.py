"""Latent Dirichlet allocation by a sampler with frozen counts (WarpLDA: Chen et al., VLDB 2016).

One sweep is a pass over the words and a pass over the documents (`kernels.lda_warp`, `kernels.lda_warp_documents`).
All that a token reads is either frozen for the pass or belongs to its own document, and random bits are addressed by
canonical positions, so the topics do not depend on how documents, words and jobs are divided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.program import Local, Outcome, Program, Rotation, Stage, Visit
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, TopicRows, WordBlock, topic_dtype
from schmp_estimators.lda.data.topic_rows import rows_of_lists
from schmp_estimators.lda.kernels import warp_documents as lda_warp_documents
from schmp_estimators.lda.kernels.warp import sample_words
from schmp_estimators.lda.kernels.warp_blocks import sample_block
from schmp_estimators.lda.programs import blocks as lda_blocks
from schmp_estimators.lda.programs import measures as lda_measures
from schmp_estimators.lda.programs.warp_values import WarpModel, WarpReport, WarpSaved, WarpState

#: A job has at least this many tokens, and a shard at most this many jobs in a pass.
MIN_JOB, MAX_JOBS = 1 << 17, 16
#: Which stream of random numbers: a pass of a sweep, or the first topics.
_WORDS, _DOCUMENTS, _ORIGIN = range(3)

Each = Callable[[Callable[[Any], Any], Any], list[Any]]


@dataclass(frozen=True)
class WarpLDA(Program):
    """Latent Dirichlet allocation by Metropolis–Hastings with counts frozen during a pass.

    Parameters
    ----------
    n_components : int
        Number of topics K.
    n_words : int
        Number of words V, used or not.
    doc_topic_prior, topic_word_prior : float
        Alpha and beta.
    mh_steps : int, 1 to 4
        Proposals for each token in each pass.
    hot_priors : tuple of two floats
        The priors of the first `hot_sweeps` sweeps, as far as they are larger than `doc_topic_prior` and
        `topic_word_prior`.  With larger priors documents and words are not yet set on the few topics that chance gave
        them, and tokens try others: the same held-out perplexity is reached in fewer sweeps (docs/measurements/lda).
    seed : int
        Seed of all random numbers.
    evaluate_every : int
        Number of sweeps between two evaluations of the joint log-likelihood; 0 for none.
    hot_sweeps : int
        For how many sweeps `hot_priors` are used.
    """

    n_components: int
    n_words: int
    doc_topic_prior: float
    topic_word_prior: float
    mh_steps: int = 2
    hot_priors: tuple[float, float] = (0.0, 0.0)
    seed: int = 0
    evaluate_every: int = 0
    #: Not shown: a fit that goes on from a checkpoint may have another number, and is the same fit.
    hot_sweeps: int = field(default=0, repr=False)

    name: ClassVar[str] = "lda"

    def has_blocks(self, n_shards: int) -> bool:
        """Return whether words need rows that travel; a single shard makes them on the spot."""
        return n_shards > 1

    def schedule(self, sweep: int, n_shards: int) -> tuple[Stage, ...]:
        """Return the word pass and the document pass, in one stage where there is one shard."""
        if n_shards == 1:
            return (Local("sample"),)
        order = schedule_rotation(n_shards)
        return Rotation("sample-words", order, moves=False, divided=True), Local("sample-documents", parts=True)

    def start(self, shard: TokenShard, saved: WarpSaved | None, each: Each) -> Outcome:
        """Return saved or uniform topics, with the proposals that a document pass leaves."""
        sweep = saved.sweep if saved else 0
        dtype = topic_dtype(self.n_components)
        topic = freeze(saved.topic if saved else np.empty(0, dtype))
        tokens = np.empty((len(shard.place), 1 + self.mh_steps), dtype)
        shard = freeze(shard)

        def work(job: tuple[int, int]) -> NDArray[np.int64]:
            totals = np.zeros(self.n_components, np.int64)
            lda_warp_documents.start_documents(
                *job, shard, topic, tokens.reshape(-1), self._priors(sweep - 1)[0],
                self._key(sweep - 1, _DOCUMENTS), self._key(0, _ORIGIN), totals, self._steps,
            )  # fmt: skip
            return totals

        totals = _total(each(work, self._jobs(shard.doc_ptr)), self.n_components)
        state = WarpState(tokens, np.zeros(len(shard.block_ptr) - 1, np.int64), sweep)
        return self._outcome(shard, state, totals, 0)

    def update(self, visit: Visit) -> Outcome:
        """Do the passes of a stage."""
        shard, state = freeze(visit.shard), visit.state
        if visit.stage == "sample-words":
            state.moved[:] = self._sample_block(visit, shard)
            return Outcome(state)
        if visit.stage == "sample":
            state.moved[:] = self._sample_words(visit, shard)
        totals, moved = self._sample_documents(visit, shard)
        return self._outcome(shard, WarpState(state.tokens, state.moved, visit.sweep + 1), totals, moved)

    def aggregate(self, model: WarpModel | None, partials: Sequence[WarpReport]) -> WarpModel:
        """Add up the topic totals, which all passes of the next sweep read."""
        total = _total([report.topic_total for report in partials], self.n_components)
        inverse = 1.0 / (total + self.n_words * np.float64(self._priors(partials[0].sweep)[1]))
        words, documents = (sum(report.moved[i] for report in partials) for i in range(2))
        return WarpModel(total, np.asarray(inverse, np.float32), (words, documents))

    def combine(self, index: int, parts: Sequence[lda_blocks.WordPart]) -> WordBlock:
        """Interleave the lists of all shards, word by word, and add up dense rows."""
        return lda_blocks.combine_parts(index, parts, self.n_components)

    def split(self, shard: TokenShard, state: WarpState, index: int) -> WarpState:
        """Return the tokens of the words of a block: they are neighbours."""
        first, last = shard.word_ptr[shard.block_ptr[index : index + 2]]
        return WarpState(state.tokens[first:last], state.moved[index : index + 1], state.sweep)

    def join(self, shard: TokenShard, pieces: Sequence[WarpState]) -> WarpState:
        """Put the tokens of all blocks together."""
        tokens, moved = (np.concatenate([piece[i] for piece in pieces]) for i in range(2))
        return WarpState(tokens, moved, pieces[0].sweep)

    def save(self, shard: TokenShard, state: WarpState) -> WarpSaved:
        """Return the topics in document order: proposals are drawn from them again."""
        topic = np.empty(len(shard.place), state.tokens.dtype)
        lda_warp_documents.read_topics(freeze(shard.place), freeze(state.tokens[:, 0]), topic)
        return WarpSaved(topic, state.sweep)

    def measures(self, sweep: int) -> bool:
        """Return whether the joint log-likelihood is wanted after this sweep."""
        return self.evaluate_every > 0 and (sweep + 1) % self.evaluate_every == 0

    def measure_shard(self, shard: TokenShard, state: WarpState) -> lda_measures.ShardMeasure:
        """Return the shard's share of the joint log-likelihood."""
        has_blocks = self.has_blocks(len(shard.block_ptr) - 1)
        return lda_measures.measure_shard(shard, state.tokens[:, 0], self.n_components, has_blocks)

    def measure_block(self, block: WordBlock) -> Any:
        """Return the block's share of the joint log-likelihood."""
        return lda_measures.measure_block(block, self.n_components)

    def progress(self, sweep: int, model: WarpModel, shards: Sequence[Any], blocks: Sequence[Any]) -> dict[str, Any]:
        """Return how many tokens moved, under which priors, and the joint log-likelihood if it was measured."""
        record: dict[str, Any] = {"moved_by_words": model.moved[0], "moved_by_documents": model.moved[1]}
        record |= dict(zip(("doc_topic_prior", "topic_word_prior"), self.priors(sweep), strict=True))
        if shards:
            record |= lda_measures.joint_log_likelihood(
                shards, blocks, model.topic_total, self.n_words, self.doc_topic_prior, self.topic_word_prior
            )
        return record

    def harvest_shard(self, shard: TokenShard, state: WarpState) -> TopicRows | None:
        """Return the word rows, without the fixed ones, in layout order, if there are no blocks."""
        if self.has_blocks(len(shard.block_ptr) - 1):
            return None
        return rows_of_lists(shard.word_ptr, state.tokens[:, 0], self.n_components)

    def harvest_block(self, block: WordBlock) -> TopicRows:
        """Return the word rows of a block, without the fixed ones."""
        return lda_blocks.harvest_rows(block, self.n_components)

    @property
    def _steps(self) -> tuple[int, ...]:
        """Return a tuple whose length tells kernels the number of proposals."""
        return (0,) * self.mh_steps

    def priors(self, sweep: int) -> tuple[float, float]:
        """Return the document-topic and the topic-word prior of a sweep."""
        hot = self.hot_priors if sweep < self.hot_sweeps else (0.0, 0.0)
        return max(self.doc_topic_prior, hot[0]), max(self.topic_word_prior, hot[1])

    def _priors(self, sweep: int) -> tuple[np.float32, np.float32]:
        """Return the priors of a sweep as kernels take them."""
        of_documents, of_words = self.priors(sweep)
        return np.float32(of_documents), np.float32(of_words)

    def _key(self, sweep: int, stream: int) -> np.uint64:
        return stream_key(self.seed, sweep, stream)

    def _sample_words(self, visit: Visit, shard: TokenShard) -> int:
        """Do the word pass of a single shard."""
        tokens, model = visit.state.tokens.reshape(-1), freeze(visit.model)

        def work(job: tuple[int, int]) -> int:
            return sample_words(
                *job, shard, tokens, model.inverse, self._priors(visit.sweep)[1],
                self._key(visit.sweep, _WORDS), visit.sweep == 0, self._steps,
            )  # fmt: skip

        return sum(visit.each(work, self._jobs(shard.word_ptr)))

    def _sample_block(self, visit: Visit, shard: TokenShard) -> int:
        """Do the word pass of one shard and one block."""
        tokens, model, block = visit.state.tokens.reshape(-1), freeze(visit.model), freeze(visit.block)
        begin, end = shard.block_ptr[visit.block_index : visit.block_index + 2]

        def work(job: tuple[int, int]) -> int:
            return sample_block(
                *job, begin, shard, tokens, block, model.inverse, self._priors(visit.sweep)[1],
                self._key(visit.sweep, _WORDS), visit.sweep == 0, self._steps,
            )  # fmt: skip

        return sum(visit.each(work, self._jobs(shard.word_ptr[begin : end + 1])))

    def _sample_documents(self, visit: Visit, shard: TokenShard) -> tuple[NDArray[np.int64], int]:
        """Do the document pass, and return the new topic totals and how many tokens moved."""
        tokens, model = visit.state.tokens.reshape(-1), freeze(visit.model)

        def work(job: tuple[int, int]) -> tuple[NDArray[np.int64], int]:
            totals = np.zeros(self.n_components, np.int64)
            moved = lda_warp_documents.sample_documents(
                *job, shard, tokens, model.inverse, self._priors(visit.sweep)[0],
                self._key(visit.sweep, _DOCUMENTS), totals, self._steps,
            )  # fmt: skip
            return totals, moved

        done = visit.each(work, self._jobs(shard.doc_ptr))
        return _total([totals for totals, _ in done], self.n_components), sum(moved for _, moved in done)

    def _outcome(self, shard: TokenShard, state: WarpState, totals: NDArray[np.int64], moved: int) -> Outcome:
        """Return the state with the shard's parts and its report."""
        np.add.at(totals, shard.fixed.topic, shard.fixed.tokens)
        report = WarpReport(totals, (int(state.moved.sum()), moved), state.sweep)
        n_blocks = len(shard.block_ptr) - 1
        if not self.has_blocks(n_blocks):
            return Outcome(state, partial=report)
        parts = lda_blocks.make_parts(shard, state.tokens[:, 0], self.n_components)
        return Outcome(state, parts=parts, partial=report)

    def _jobs(self, ptr: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Cut words or documents into consecutive jobs of equal weight, worth the O(K) that each of them costs."""
        first, last = int(ptr[0]), int(ptr[-1])
        n_jobs = max(1, min(MAX_JOBS, (last - first) // max(MIN_JOB, 4 * self.n_components)))
        cuts = np.searchsorted(ptr, np.linspace(first, last, n_jobs + 1)[1:-1])
        ends = np.unique(np.concatenate([[0], cuts, [len(ptr) - 1]])).tolist()
        return list(pairwise(ends))


def _total(pieces: Sequence[NDArray[np.int64]], size: int) -> NDArray[np.int64]:
    return np.sum(pieces, axis=0) if pieces else np.zeros(size, np.int64)
