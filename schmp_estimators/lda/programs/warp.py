"""Latent Dirichlet allocation by a sampler with frozen counts (WarpLDA: Chen et al., VLDB 2016).

One sweep is a pass over the words and a pass over the documents (`kernels.lda_warp`, `kernels.lda_warp_documents`).
All that a token reads is either frozen for the pass or belongs to its own document, and random bits are addressed by
canonical positions, so the topics do not depend on how documents, words and jobs are divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.stages import At, Stage, each, exchanges, observes
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, TopicRows, WordBlock
from schmp_estimators.lda.data.met_shards import words_at_home
from schmp_estimators.lda.data.tokens import Layout
from schmp_estimators.lda.data.topic_rows import rows_of_lists, stack_rows
from schmp_estimators.lda.kernels import warp_documents
from schmp_estimators.lda.kernels.document_priors import TopicPriors, topic_priors
from schmp_estimators.lda.kernels.warp import pieces_of, sample_words
from schmp_estimators.lda.programs.blocks import combine_parts, make_parts, rows_of_tokens
from schmp_estimators.lda.programs.frozen_counts import FrozenCountsLDA, FrozenModel
from schmp_estimators.lda.programs.seeds import seeds_of_words
from schmp_estimators.lda.programs.topics import Measured, topic_dtype
from schmp_estimators.lda.programs.warp_values import (
    MetWords,
    WarpAnswer,
    WarpPiece,
    WarpState,
    Words,
)

#: Which stream of random numbers: a pass of a sweep; the first topics have the next ones.
_WORDS, _DOCUMENTS = range(2)


@dataclass(frozen=True)
class WarpLDA(FrozenCountsLDA[WarpState]):
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
    rotates: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ("mh_steps",)

    mh_steps: int = 2

    def n_blocks(self, n_shards: int) -> int:
        """Return 0: what several shards know of a word they exchange, in every sweep."""
        return 0

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the word pass and the document pass, in one stage where there is one shard."""
        looking = self.looking(sweep, n_shards)
        if n_shards == 1:
            return [each(self.sample), *looking]
        documents = each(self.sample_documents, merge=self.merge)
        words = exchanges(self.sample_words, split=self.split)
        return [words, documents, *looking]

    def words_at_home(self, word_totals: NDArray[np.int64], layout: Layout) -> NDArray[np.int64]:
        """Return how many words of each block have rows that travel, rather than tokens."""
        if len(layout.block_ptr) == 2:
            return super().words_at_home(word_totals, layout)
        n_bytes = np.min_scalar_type(self.n_components - 1).itemsize  # on their way
        return words_at_home(
            word_totals, layout, self.n_components, n_bytes, (1 + self.mh_steps) * n_bytes, far=self.far
        )

    def restore(self, at: At, saved: NDArray[np.signedinteger]) -> tuple[WarpState, dict[int, Any]]:
        """Return topics that were saved in document order, with what a document pass leaves."""
        tokens, steps = np.empty((len(at.shard.place), 1 + self.mh_steps), saved.dtype), self._steps
        prior, jobs = self._document_prior(at.sweep, self.alphas_before(at)), self.jobs(at.shard.doc_ptr)
        topic, key = freeze(saved), stream_key(self.seed, at.sweep, _DOCUMENTS)

        def work(job: tuple[int, int]) -> NDArray[np.signedinteger]:
            totals = np.zeros(self.n_components, np.int64)
            warp_documents.start_documents(*job, at.shard, topic, tokens.reshape(-1), prior, key, totals, steps)
            return totals

        return WarpState(tokens, np.sum(at.each(work, jobs), axis=0)), {}

    def sample(self, at: At, state: WarpState) -> WarpState:
        """Do both passes of a single shard."""
        shard = at.shard
        pieces = freeze(pieces_of(state.tokens, shard.word_ptr))
        words = Words(pieces, shard.word_first, None, shard.fixed, self.seeds_of(shard))
        return self._finish(at, state, self._pass_words(at, [(words, shard.word_ptr)], state.tokens))

    def split(self, at: At, state: WarpState) -> list[WarpPiece]:
        """Return what the shard has for the owner of each block: topics of words whose rows travel, and tokens."""
        return self._pieces(at.shard, self.by_word(at, state), state.tokens)

    def sample_words(self, at: At, pieces: Sequence[WarpPiece]) -> list[WarpAnswer]:
        """Do the word pass of the words whose tokens have come, of all shards, and make the rows of the others."""
        block, met = self._met(at, pieces)
        words = Words(met.pieces, met.owner.word_first, None, met.owner.fixed, self.seeds_of(met.owner))
        moved = self._pass_words(at, [(words, met.ptr)], met.tokens[0])
        return [*map(WarpAnswer, repeat(block), met.tokens, chain([moved], repeat(0)))]

    def sample_documents(self, at: At, state: WarpState, answers: Sequence[WarpAnswer]) -> WarpState:
        """Take what owners have sampled, do the word pass of the other words with their rows, and the document pass."""
        for met, answer in zip(_met_tokens(at.shard), answers, strict=True):
            if answer.tokens.ctypes.data != state.tokens[met].ctypes.data:  # else they are there
                state.tokens[met] = answer.tokens
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
        given = tokens[:0].reshape(-1), self._inverse(at), prior, key, at.sweep == 0, self._steps

        def work(job: tuple[Words, int, int]) -> int:
            words, first, last = job
            moved: int = sample_words(first, last, *words, *given)
            return moved

        return sum(at.each(work, [(words, *job) for words, ptr in some for job in self.jobs(ptr)]))

    def _finish(self, at: At, state: WarpState, moved_by_words: int) -> WarpState:
        """Do the document pass."""
        tokens, prior = state.tokens.reshape(-1), self._document_prior(at.sweep, self.alphas(at.sweep, at.model))
        key, inverse = stream_key(self.seed, at.sweep, _DOCUMENTS), self._inverse(at)

        def work(job: tuple[int, int]) -> tuple[NDArray[np.signedinteger], int]:
            totals = np.zeros(self.n_components, np.int64)
            given = *job, at.shard, tokens, inverse, prior, key, totals, self._steps
            return totals, warp_documents.sample_documents(*given)

        totals, moved = zip(*at.each(work, self.jobs(at.shard.doc_ptr)), strict=True)
        return WarpState(state.tokens, sum(totals), (moved_by_words, sum(moved)))

    def _inverse(self, at: At) -> NDArray[np.float32]:
        """Return ``1 / (n_k + V beta)``, rounded as kernels take it."""
        smooth = self.n_words * np.float64(np.float32(self.priors(at.sweep, at.model)[1]))
        with_seeds = smooth if self.seeds is None else smooth + self.seeds.total
        return freeze((1.0 / (at.model.topic_total + with_seeds)).astype(np.float32))

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
        own = rows_of_tokens(met.ptr, freeze(met.together()), met.owner.fixed, self.n_components)
        some = [(met.owner, own, 0)]
        if block is not None:
            some.append((at.shard, block, int(at.shard.block_ptr[at.number])))
        return self.measured(at, state, some)

    def harvesting(self, n_shards: int) -> Stage | None:
        """Return the stage in which several shards make the rows of the words that they own."""
        return observes(self.harvest_met, split=self.split_topics) if n_shards > 1 else None

    def harvest_met(self, at: At, state: WarpState, pieces: Sequence[WarpPiece]) -> TopicRows:
        """Return the rows of the words that a shard owns, without the fixed ones, in layout order."""
        block, met = self._met(at, pieces)
        ptr, topics = met.ptr, met.together()
        del met  # rows are made while little else is there
        rows = rows_of_lists(ptr, topics, self.n_components)
        del topics
        return rows if block is None else stack_rows([self.harvest_block(block), rows])

    def _pieces(
        self, shard: TokenShard, topic: NDArray[np.signedinteger], tokens: NDArray[np.signedinteger]
    ) -> list[WarpPiece]:
        """Return what the shard has for the owner of each block: of words that stay at home topics, of others tokens.

        There may be none to stay at home; `tokens` can be the topics themselves.
        """
        parts = make_parts(shard, topic, self.n_components, shard.home) if shard.home.any() else {}
        found, lengths, ends = [], np.diff(shard.word_ptr), shard.block_ptr[1:].tolist()
        for block, met in enumerate(_met_tokens(shard)):
            begin = int(shard.block_ptr[block] + shard.home[block])
            has = begin + np.flatnonzero(lengths[begin : ends[block]])
            found.append(WarpPiece(parts.get(block), tokens[met], shard.word_number[has], lengths[has]))
        return found

    def _met(self, at: At, pieces: Sequence[WarpPiece]) -> tuple[WordBlock | None, MetWords]:
        """Return what has come from all shards: rows of words that stay at home, if there are any, and other words."""
        parts = [piece.part for piece in pieces if piece.part is not None]
        block = freeze(combine_parts(at.number, parts, self.n_components)) if parts else None
        return block, MetWords.of(at, pieces)

    def by_word(self, at: At, state: WarpState) -> NDArray[np.signedinteger]:
        """Return the topics of a shard's tokens in word-major order."""
        return state.tokens[:, 0]

    def moves(self, model: FrozenModel) -> dict[str, int]:
        """Return how many tokens moved in each pass."""
        return {"moved_by_words": model.moved[0], "moved_by_documents": model.moved[1]}

    def state_bytes(self) -> int:
        """Return how many bytes of a shard's state there are for each token: its topic and its proposals."""
        return (1 + self.mh_steps) * np.dtype(topic_dtype(self.n_components)).itemsize

    def _document_prior(self, sweep: int, alphas: NDArray[np.float64]) -> np.float32 | TopicPriors:
        """Return the document-topic prior of a sweep, as kernels take it."""
        return topic_priors(alphas) if self.is_asymmetric else np.float32(self.priors(sweep, None)[0])

    @property
    def _steps(self) -> tuple[int, ...]:
        """Return what tells kernels the number of proposals, when they are compiled."""
        return (0,) * int(self.mh_steps)


def _met_tokens(shard: TokenShard) -> list[slice]:
    """Return where the tokens are that go to the owner of each block."""
    firsts, ends = shard.word_ptr[shard.block_ptr[:-1] + shard.home], shard.word_ptr[shard.block_ptr[1:]]
    return list(map(slice, firsts.tolist(), ends.tolist()))
