"""Latent Dirichlet allocation by a sampler with frozen counts (WarpLDA: Chen et al., VLDB 2016).

One sweep is a pass over the words and a pass over the documents (`kernels.lda_warp`, `kernels.lda_warp_documents`).
All that a token reads is either frozen for the pass or belongs to its own document, and random bits are addressed by
canonical positions, so the topics do not depend on how documents, words and jobs are divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.stages import At, Stage, each, exchanges, observes
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, WordBlock
from schmp_estimators.lda.data.corpus import narrow
from schmp_estimators.lda.data.met_shards import words_at_home
from schmp_estimators.lda.data.partition import cut_jobs
from schmp_estimators.lda.data.tokens import Layout
from schmp_estimators.lda.data.topic_rows import Harvested, plain_rows, rows_of_lists
from schmp_estimators.lda.kernels import warp_documents
from schmp_estimators.lda.kernels.document_priors import TopicPriors, topic_priors
from schmp_estimators.lda.kernels.likelihood import word_histogram
from schmp_estimators.lda.kernels.warp import Steps, pieces_of, sample_words, steps_for
from schmp_estimators.lda.programs.blocks import WordPart, combine_parts, make_parts, rows_of_tokens
from schmp_estimators.lda.programs.learning import Learned, merge_some
from schmp_estimators.lda.programs.seeds import chain_seeds, count_seeds, seed_rows, seeds_of_words
from schmp_estimators.lda.programs.topics import Measured, TopicProgram, topic_dtype
from schmp_estimators.lda.programs.warp_values import (
    MetWords,
    WarpAnswer,
    WarpModel,
    WarpPiece,
    WarpReport,
    WarpState,
    Words,
    pack,
    unpack,
)

#: A job has at least this many tokens, and a shard at most this many jobs in a pass.
MIN_JOB, MAX_JOBS = 1 << 17, 16
#: Which stream of random numbers: a pass of a sweep; the first topics have the next ones.
_WORDS, _DOCUMENTS = range(2)
#: The totals of a state that has reported them.
_REPORTED = freeze(np.zeros(0, np.int32))


@dataclass(frozen=True)
class WarpLDA(TopicProgram[WarpState, WarpModel]):
    """Latent Dirichlet allocation by Metropolis–Hastings with counts frozen during a pass.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, topics_of_word,
    from_passages, hot_priors, hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds, far
        As in `TopicProgram`.
    mh_steps : int, 1 to 4
        Proposals for each token in each pass.
    """

    sampler: ClassVar[str] = "warp"
    partition_invariant: ClassVar[bool] = True
    rotates: ClassVar[bool] = False
    begins_tempered: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ("mh_steps",)

    mh_steps: int = 2

    def n_blocks(self, n_shards: int) -> int:
        """Return 0: what several shards know of a word they exchange, in every sweep."""
        return 0

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the word pass and the document pass, in one stage where there is one shard."""
        looking = self.looking(sweep, n_shards)
        if n_shards == 1:
            return [each(self.sample, reports=True), *looking]
        documents = each(self.sample_documents, reports=True, merge=self.merge)
        words = exchanges(self.sample_words, split=self.split)
        return [words, documents, *looking]

    def words_at_home(
        self, word_totals: NDArray[np.int64], layout: Layout, *, alone: bool = False
    ) -> NDArray[np.int64] | None:
        """Return how many words of each block have rows that travel, rather than tokens."""
        if len(layout.block_ptr) == 2:
            return None
        n_bytes, where = np.dtype(topic_dtype(self.n_components)).itemsize, {"far": self.far, "alone": alone}
        return words_at_home(word_totals, layout, self.n_components, n_bytes, self.token_bytes, **where)

    def restore(self, at: At, saved: NDArray[np.signedinteger]) -> tuple[WarpState, dict[int, Any]]:
        """Return topics that were saved in document order, with what a document pass leaves."""
        tokens, steps = np.empty((len(at.shard.place), 1 + self.mh_steps), saved.dtype), self._steps
        prior, jobs = self._document_prior(at.sweep, self.alphas_before(at)), self._jobs(at.shard.doc_ptr)
        topic, key = freeze(saved), stream_key(self.seed, at.sweep, _DOCUMENTS)

        def work(job: tuple[int, int]) -> NDArray[np.signedinteger]:
            totals = self._no_totals(tokens)
            warp_documents.start_documents(*job, at.shard, topic, tokens.reshape(-1), prior, key, totals, steps)
            return totals

        return WarpState(tokens, np.sum(at.each(work, jobs), axis=0)), {}

    def sample(self, at: At, state: WarpState) -> tuple[WarpState, WarpReport]:
        """Do both passes of a single shard, and report."""
        shard = at.shard
        pieces = freeze(pieces_of(state.tokens, shard.word_ptr))
        words = Words(pieces, shard.word_first, None, shard.fixed, self.seeds_of(shard))
        return self._finish(at, state, self._pass_words(at, [(words, shard.word_ptr)], state.tokens))

    def split(self, at: At, state: WarpState) -> list[WarpPiece]:
        """Return what the shard has for the owner of each block: topics of words whose rows travel, and tokens."""
        return self._pieces(at.shard, self.by_word(at, state), state.tokens, self._bits)

    def sample_words(self, at: At, pieces: Sequence[WarpPiece]) -> list[WarpAnswer]:
        """Do the word pass of the words whose tokens have come, of all shards, and make the rows of the others."""
        block, met = self._met(at, pieces, self._bits)
        words = Words(met.pieces, met.owner.word_first, None, met.owner.fixed, self.seeds_of(met.owner))
        moved = self._pass_words(at, [(words, met.ptr)], met.tokens[0])
        of_shards, counted = [pack(one, self._bits) for one in met.tokens], chain([moved], repeat(0))
        return [*map(WarpAnswer, repeat(block), of_shards, counted)]

    def sample_documents(self, at: At, state: WarpState, answers: Sequence[WarpAnswer]) -> tuple[WarpState, WarpReport]:
        """Take what owners have sampled, do the word pass of the other words with their rows, and the document pass."""
        for met, answer in zip(_met_tokens(at.shard), answers, strict=True):
            unpack(answer.tokens, self._bits, state.tokens[met])
        shard, seeds, jobs = at.shard, self.seeds_of(at.shard), []
        address = shard.word_first + shard.word_rank
        for number, answer in enumerate(answers):
            if (block := answer.block) is not None:
                begin = int(shard.block_ptr[number])
                words = slice(begin, begin + len(block.fixed.ptr) - 1)
                ptr = shard.word_ptr[words.start : words.stop + 1]
                own = freeze((pieces_of(state.tokens, ptr), address[words], block, block.fixed))
                jobs.append((Words(*own, None if seeds is None else seeds_of_words(seeds, words)), ptr))
        moved = sum([answer.moved for answer in answers])  # by owners
        return self._finish(at, state, moved + self._pass_words(at, jobs, state.tokens))

    def _pass_words(
        self, at: At, some: Sequence[tuple[Words, NDArray[np.int64]]], tokens: NDArray[np.signedinteger]
    ) -> int:
        """Do the word pass of words, given with their offsets, whose tokens are like those given; return the moves."""
        prior, key = np.float32(self.priors(at.sweep, at.model)[1]), stream_key(self.seed, at.sweep, _WORDS)
        given = tokens[:0].reshape(-1), at.model.inverse, prior, key, at.sweep == 0, self._steps

        def work(job: tuple[Words, int, int]) -> int:
            words, first, last = job
            moved: int = sample_words(first, last, *words, *given)
            return moved

        return sum(at.each(work, [(words, *job) for words, ptr in some for job in self._jobs(ptr)]))

    def _finish(self, at: At, state: WarpState, moved_by_words: int) -> tuple[WarpState, WarpReport]:
        """Do the document pass; return a state without what is reported, which would be copied, and the report."""
        tokens, prior = state.tokens.reshape(-1), self._document_prior(at.sweep, self.alphas(at.sweep, at.model))
        key = stream_key(self.seed, at.sweep, _DOCUMENTS)

        def work(job: tuple[int, int]) -> tuple[NDArray[np.signedinteger], int]:
            totals = self._no_totals(state.tokens)
            given = *job, at.shard, tokens, at.model.inverse, prior, key, totals, self._steps
            return totals, warp_documents.sample_documents(*given)

        totals, moved = zip(*at.each(work, self._jobs(at.shard.doc_ptr)), strict=True)
        return WarpState(state.tokens, _REPORTED), self._reported(at, sum(totals), (moved_by_words, sum(moved)))

    def _no_totals(self, tokens: NDArray[np.signedinteger]) -> NDArray[np.signedinteger]:
        """Return what so many tokens can be counted in: (K,) zeros."""
        return np.zeros(self.n_components, np.int32 if len(tokens) <= np.iinfo(np.int32).max else np.int64)

    def report(self, at: At, state: WarpState) -> WarpReport:
        """Return the topic totals before the first sweep."""
        return self._reported(at, state.totals, (0, 0))

    def _reported(self, at: At, totals: NDArray[np.integer], moved: tuple[int, int]) -> WarpReport:
        return WarpReport(self.with_fixed(at, totals.astype(np.int64)), moved, at.sweep + 1)

    def merge(self, report: WarpReport, other: WarpReport) -> WarpReport:
        """Add up what two shards report."""
        return tree_sum((report, other))._replace(sweep=report.sweep)

    def summed(self, model: WarpModel | None, reports: Sequence[Any]) -> WarpModel:
        """Add up the topic totals, which all passes of the next sweep read."""
        total, moved, _ = tree_sum(reports)
        learned, inverse = model.learned if model else Learned(), self._inverse(total, reports[0].sweep, model)
        return WarpModel(total, inverse, moved, (), learned, learned)

    def with_measured(self, model: WarpModel, measured: Sequence[Measured]) -> WarpModel:
        """Return the model with what has been measured; a learned topic-word prior changes what topics weigh."""
        found = super().with_measured(model, measured)
        return found._replace(inverse=self._inverse(found.topic_total, measured[0].sweep + 1, found))

    def _inverse(self, total: NDArray[np.integer], sweep: int, model: WarpModel | None) -> NDArray[np.float32]:
        """Return ``1 / (n_k + V beta)`` with the topic-word prior of a sweep, rounded as kernels take it."""
        smooth = self.n_words * np.float64(np.float32(self.priors(sweep, model)[1]))
        with_seeds = smooth if self.seeds is None else smooth + self.seeds.total
        return (1.0 / (total + with_seeds)).astype(np.float32)

    def measuring(self, n_shards: int) -> Stage:
        """Return the stage that measures the joint log-likelihood; several shards exchange topics for it."""
        if n_shards == 1:
            return observes(self.measure, merge=self.merge_measured)
        return observes(self.measure_met, split=self.split_topics, merge=self.merge_measured)

    def split_topics(self, at: At, state: WarpState) -> list[WarpPiece]:
        """Return what the shard knows of the words of each block."""
        topic = self.by_word(at, state)
        return self._pieces(at.shard, topic, topic)

    def measure_met(self, at: At, state: WarpState, pieces: Sequence[WarpPiece]) -> Measured:
        """Return the shard's share of the joint log-likelihood, and that of the words that it owns."""
        block, met = self._met(at, pieces)
        there, topics = at._replace(block=at.number, n_blocks=at.n_shards), freeze(met.together())
        of_met = word_histogram(freeze(met.ptr), topics, self.n_components, met.owner.fixed)
        measured = replace(self, seeds=None).measure(there, state, block)
        measured = measured._replace(words=merge_some(measured.words, of_met))
        if self.seeds is None:
            return measured
        own = rows_of_tokens(met.ptr, topics, met.owner.fixed, self.n_components)
        seeds = [count_seeds(seed_rows(self.seeds, met.owner), own, self.n_components)]
        if block is not None:
            first = int(at.shard.block_ptr[at.number])
            seeds.append(count_seeds(seed_rows(self.seeds, at.shard), block, self.n_components, first))
        return measured._replace(seeds=chain_seeds(seeds))

    def harvesting(self, n_shards: int) -> Stage | None:
        """Return the stage in which several shards make the rows of the words that they own."""
        return observes(self.harvest_met, split=self.split_topics) if n_shards > 1 else None

    def harvest_met(self, at: At, state: WarpState, pieces: Sequence[WarpPiece]) -> Harvested:
        """Return the rows of the words that a shard owns, without the fixed ones, in layout order."""
        block, met = self._met(at, pieces)
        ptr, topics = met.ptr, met.together()
        del met  # rows are made while little else is there
        rows = rows_of_lists(ptr, topics, self.n_components)
        del topics
        return plain_rows(rows) if block is None else plain_rows(self.harvest_block(block), rows)

    def _pieces(
        self, shard: TokenShard, topic: NDArray[np.signedinteger], tokens: NDArray[np.signedinteger], bits: int = 0
    ) -> list[WarpPiece]:
        """Return what the shard has for the owner of each block: of words that stay at home topics, of others tokens.

        There may be none to stay at home; `tokens` can be the topics themselves.
        """
        at_home, parts = np.flatnonzero(shard.home).tolist(), dict[int, WordPart]()
        if at_home:
            parts = make_parts(shard, topic, self.n_components, shard.home, at_home)
        found, begins, lengths = [], shard.block_ptr[:-1] + shard.home, np.diff(shard.word_ptr)
        for block, (met, words) in enumerate(zip(_met_tokens(shard), _slices(begins, shard.block_ptr[1:]), strict=True)):
            has = lengths[words] > 0
            of_words = shard.word_number[words][has], narrow(lengths[words][has])
            found.append(WarpPiece(parts.get(block), pack(tokens[met], bits), *of_words))
        return found

    def _met(
        self, at: At, pieces: Sequence[WarpPiece], bits: int = 0
    ) -> tuple[WordBlock | None, MetWords]:
        """Return what has come from all shards: rows of words that stay at home, if there are any, and other words."""
        parts = [piece.part for piece in pieces if piece.part is not None]
        block = freeze(combine_parts(at.number, parts, self.n_components)) if parts else None
        return block, MetWords.of(at, pieces, [self._taken(piece.tokens, bits) for piece in pieces])

    def _taken(self, tokens: NDArray[Any], bits: int) -> NDArray[Any]:
        """Return tokens that have come, or topics, to be written to."""
        if not bits:
            return np.require(tokens, requirements="CAW")
        found = np.empty((len(tokens), 1 + self.mh_steps), topic_dtype(self.n_components))
        unpack(tokens, bits, found)
        return found

    def by_word(self, at: At, state: WarpState) -> NDArray[np.signedinteger]:
        """Return the topics of a shard's tokens in word-major order."""
        return state.tokens[:, 0]

    def moves(self, model: WarpModel) -> dict[str, int]:
        """Return how many tokens moved in each pass."""
        return {"moved_by_words": model.moved[0], "moved_by_documents": model.moved[1]}

    def harvest(self, at: At, state: WarpState) -> Harvested | None:
        """Return the word rows, without the fixed ones, in layout order, if there is one shard."""
        if at.n_shards > 1:
            return None
        return plain_rows(rows_of_lists(at.shard.word_ptr, self.by_word(at, state), self.n_components))

    def state_bytes(self) -> int:
        """Return how many bytes of a shard's state there are for each token: its topic and its proposals."""
        return (1 + self.mh_steps) * np.dtype(topic_dtype(self.n_components)).itemsize

    def _document_prior(self, sweep: int, alphas: NDArray[np.float64]) -> np.float32 | TopicPriors:
        """Return the document-topic prior of a sweep, as kernels take it."""
        return topic_priors(alphas) if self.is_asymmetric else np.float32(self.priors(sweep, None)[0])

    @property
    def _bits(self) -> int:
        """Bits of a topic where tokens travel in one number of 64 bits each; 0 where they do not."""
        bits, width = (self.n_components - 1).bit_length(), 1 + self.mh_steps
        return bits if self.far and width * bits <= 64 < 8 * self.state_bytes() else 0

    @property
    def token_bytes(self) -> int:
        """Bytes of a token on its way."""
        return 8 if self._bits else self.state_bytes()

    @property
    def _steps(self) -> Steps:
        """Return what tells kernels the number of proposals."""
        return steps_for(self.n_components, self.mh_steps)

    def _jobs(self, ptr: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Cut words or documents into consecutive jobs of equal weight, worth the O(K) that each of them costs."""
        return cut_jobs(ptr, max(MIN_JOB, 4 * self.n_components), MAX_JOBS)


def _met_tokens(shard: TokenShard) -> list[slice]:
    """Return where the tokens are that go to the owner of each block."""
    return _slices(shard.word_ptr[shard.block_ptr[:-1] + shard.home], shard.word_ptr[shard.block_ptr[1:]])


def _slices(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> list[slice]:
    return list(map(slice, begins.tolist(), ends.tolist()))
