"""Latent Dirichlet allocation by a sampler with frozen counts (WarpLDA: Chen et al., VLDB 2016).

One sweep is a pass over the words and a pass over the documents (`kernels.lda_warp`, `kernels.lda_warp_documents`).
All that a token reads is either frozen for the pass or belongs to its own document, and random bits are addressed by
canonical positions, so the topics do not depend on how documents, words and jobs are divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.core.stages import At, Division, Stage, each, reads
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TopicRows, WordBlock
from schmp_estimators.lda.data.topic_rows import rows_of_lists
from schmp_estimators.lda.kernels import warp_documents
from schmp_estimators.lda.kernels.document_priors import TopicPriors, topic_priors
from schmp_estimators.lda.kernels.warp import sample_words
from schmp_estimators.lda.kernels.warp_blocks import sample_block
from schmp_estimators.lda.programs.blocks import WordPart
from schmp_estimators.lda.programs.jobs import cut_jobs
from schmp_estimators.lda.programs.learning import Exposure
from schmp_estimators.lda.programs.seeded_words import SeededWords
from schmp_estimators.lda.programs.topics import Measured, TopicProgram, topic_dtype
from schmp_estimators.lda.programs.warp_values import WarpModel, WarpReport, WarpState

#: A job has at least this many tokens, and a shard at most this many jobs in a pass.
MIN_JOB, MAX_JOBS = 1 << 17, 16
#: Which stream of random numbers: a pass of a sweep, or the first topics.
_WORDS, _DOCUMENTS, _ORIGIN = range(3)


@dataclass(frozen=True)
class WarpLDA(TopicProgram[WarpState, WarpModel]):
    """Latent Dirichlet allocation by Metropolis–Hastings with counts frozen during a pass.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, topics_of_word,
    from_passages, hot_priors, hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds
        As in `TopicProgram`.
    mh_steps : int, 1 to 4
        Proposals for each token in each pass.
    """

    sampler: ClassVar[str] = "warp"
    partition_invariant: ClassVar[bool] = True
    begins_tempered: ClassVar[bool] = True
    takes_seeds: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ("mh_steps",)

    mh_steps: int = 2

    def n_blocks(self, n_shards: int) -> int:
        """Return how many groups of words have rows that travel; a single shard makes its rows on the spot."""
        return n_shards if n_shards > 1 else 0

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the word pass and the document pass, in one stage where there is one shard."""
        looking = self.looking(sweep, self.n_blocks(n_shards))
        if n_shards == 1:
            return [each(self.sample), *looking]
        division = Division(self.split, self.join)
        words = reads(self.sample_words, order=schedule_rotation(n_shards), division=division)
        return [words, each(self.sample_documents, parts=True, merge=self.merge), *looking]

    def restore(self, at: At, saved: NDArray[np.signedinteger]) -> tuple[WarpState, dict[int, WordPart]]:
        """Return topics that were saved in document order, or uniform ones, with what a document pass leaves."""
        tokens, steps = np.empty((len(at.shard.place), 1 + self.mh_steps), saved.dtype), self._steps
        prior, jobs = self._document_prior(at.sweep, self.alphas_before(at)), self._jobs(at.shard.doc_ptr)
        topic, origin = freeze(saved), stream_key(self.seed, 0, _ORIGIN)
        key = stream_key(self.seed, at.sweep, _DOCUMENTS)

        def work(job: tuple[int, int]) -> NDArray[np.int64]:
            totals = np.zeros(self.n_components, np.int64)
            warp_documents.start_documents(*job, at.shard, topic, tokens.reshape(-1), prior, key, origin, totals, steps)
            return totals

        totals = _total(at.each(work, jobs), self.n_components)
        state = WarpState(tokens, np.zeros(len(at.shard.block_ptr) - 1, np.int64), totals)
        return state, self.parts(at, state) if at.n_blocks else {}

    def sample(self, at: At, state: WarpState) -> WarpState:
        """Do both passes of a single shard."""
        tokens, steps, prior = state.tokens.reshape(-1), self._steps, np.float32(self.priors(at.sweep)[1])
        jobs, key = self._jobs(at.shard.word_ptr), stream_key(self.seed, at.sweep, _WORDS)

        def work(job: tuple[int, int]) -> int:
            return sample_words(*job, at.shard, tokens, at.model.inverse, prior, key, at.sweep == 0, steps)

        seeded = self._seeded(at)
        jobs = seeded.between(jobs) if seeded else jobs
        state.moved[:] = sum(at.each(work, jobs)) + (seeded.sample(at, tokens, prior, key, steps) if seeded else 0)
        return self._sample_documents(at, state)

    def sample_words(self, at: At, state: WarpState, block: WordBlock) -> WarpState:
        """Do the word pass of one shard and one block."""
        tokens, steps, prior = state.tokens.reshape(-1), self._steps, np.float32(self.priors(at.sweep)[1])
        begin, end = at.shard.block_ptr[at.block : at.block + 2]
        jobs, key = self._jobs(at.shard.word_ptr[begin : end + 1]), stream_key(self.seed, at.sweep, _WORDS)

        def work(job: tuple[int, int]) -> int:
            return sample_block(
                *job, begin, at.shard, tokens, block, at.model.inverse, prior, key, at.sweep == 0, steps
            )

        seeded = self._seeded(at, block)
        jobs = seeded.between(jobs) if seeded else jobs
        state.moved[:] = sum(at.each(work, jobs)) + (seeded.sample(at, tokens, prior, key, steps) if seeded else 0)
        return state

    def sample_documents(self, at: At, state: WarpState) -> tuple[WarpState, dict[int, WordPart]]:
        """Do the document pass of one shard, and return what its words contribute to all blocks."""
        state = self._sample_documents(at, state)
        return state, self.parts(at, state)

    def sample_topics(self, at: At, state: WarpState) -> tuple[WarpState, NDArray[np.signedinteger]]:
        """Do the document pass of one shard without its proposals; return the topics in document order, too."""
        saved = np.empty(len(state.tokens), state.tokens.dtype)
        return self._sample_documents(at, state, saved), saved

    def _sample_documents(self, at: At, state: WarpState, saved: NDArray[np.signedinteger] | None = None) -> WarpState:
        tokens, steps, prior = (
            state.tokens.reshape(-1),
            self._steps,
            self._document_prior(at.sweep, self.alphas(at.sweep, at.model)),
        )
        jobs, key = self._jobs(at.shard.doc_ptr), stream_key(self.seed, at.sweep, _DOCUMENTS)

        def work(job: tuple[int, int]) -> tuple[NDArray[np.int64], int]:
            totals = np.zeros(self.n_components, np.int64)
            given = *job, at.shard, tokens, at.model.inverse, prior, key, totals, steps
            if saved is None:
                return totals, warp_documents.sample_documents(*given)
            return totals, warp_documents.sample_topics(*given, saved)

        done = at.each(work, jobs)
        totals = _total([totals for totals, _ in done], self.n_components)
        return state._replace(totals=totals, moved_by_documents=sum(moved for _, moved in done))

    def report(self, at: At, state: WarpState) -> WarpReport:
        """Return the topic totals, with those of earlier batches that the shard speaks for."""
        totals = state.totals.copy()
        np.add.at(totals, at.shard.fixed.topic, at.shard.fixed.tokens)
        return WarpReport(totals, (int(state.moved.sum()), state.moved_by_documents), at.sweep + 1)

    def merge(self, report: WarpReport, other: WarpReport) -> WarpReport:
        """Add up what two shards report."""
        return tree_sum((report, other))._replace(sweep=report.sweep)

    def aggregate(self, model: WarpModel | None, reports: Sequence[Any]) -> WarpModel:
        """Add up the topic totals, which all passes of the next sweep read, or the joint log-likelihood."""
        if isinstance(reports[0], Measured):
            assert model is not None  # the run began with reports of topics
            return self.with_likelihood(model, reports)
        if isinstance(reports[0], Exposure):
            assert model is not None
            return self.with_priors(model, reports)
        total = _total([report.topic_total for report in reports], self.n_components)
        prior = np.float32(self.priors(reports[0].sweep)[1])  # rounded as kernels take it
        smooth = self.n_words * np.float64(prior)
        inverse = 1.0 / (total + smooth if self.seeds is None else total + (smooth + self.seeds.total))
        words, documents = zip(*[report.moved for report in reports], strict=True)
        learned = model.alphas if model else None
        return WarpModel(total, np.asarray(inverse, np.float32), (sum(words), sum(documents)), (), learned, learned)

    def split(self, at: At, state: WarpState) -> WarpState:
        """Return the tokens of the words of a block: they are neighbours."""
        first, last = at.shard.word_ptr[at.shard.block_ptr[at.block : at.block + 2]]
        return WarpState(state.tokens[first:last], state.moved[at.block : at.block + 1], state.totals[:0])

    def join(self, at: At, pieces: Sequence[WarpState]) -> WarpState:
        """Put the tokens of all blocks together."""
        tokens, moved, totals = (np.concatenate([piece[i] for piece in pieces]) for i in range(3))
        return WarpState(tokens, moved, totals)

    def topics(self, state: WarpState) -> NDArray[np.signedinteger]:
        """Return the topics of a shard's tokens in word-major order."""
        return state.tokens[:, 0]

    def moves(self, model: WarpModel) -> dict[str, int]:
        """Return how many tokens moved in each pass."""
        return {"moved_by_words": model.moved[0], "moved_by_documents": model.moved[1]}

    def harvest(self, at: At, state: WarpState) -> TopicRows | None:
        """Return the word rows, without the fixed ones, in layout order, if there are no blocks."""
        return None if at.n_blocks else rows_of_lists(at.shard.word_ptr, self.topics(state), self.n_components)

    def state_bytes(self) -> int:
        """Return how many bytes of a shard's state there are for each token: its topic and its proposals."""
        return (1 + self.mh_steps) * np.dtype(topic_dtype(self.n_components)).itemsize

    def _seeded(self, at: At, block: WordBlock | None = None) -> SeededWords | None:
        return None if self.seeds is None else SeededWords.of(self.seeds, at, block)

    def _document_prior(self, sweep: int, alphas: NDArray[np.float64]) -> np.float32 | TopicPriors:
        """Return the document-topic prior of a sweep, as kernels take it."""
        return topic_priors(alphas) if self.is_asymmetric else np.float32(self.priors(sweep)[0])

    @property
    def _steps(self) -> tuple[int, ...]:
        """Return a tuple whose length tells kernels the number of proposals."""
        return (0,) * self.mh_steps

    def _jobs(self, ptr: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Cut words or documents into consecutive jobs of equal weight, worth the O(K) that each of them costs."""
        return cut_jobs(ptr, max(MIN_JOB, 4 * self.n_components), MAX_JOBS)


def _total(pieces: Sequence[NDArray[np.int64]], size: int) -> NDArray[np.int64]:
    return np.sum(pieces, axis=0) if pieces else np.zeros(size, np.int64)
