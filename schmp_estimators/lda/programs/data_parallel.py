"""Latent Dirichlet allocation with a copy of the model for every shard (AD-LDA), for comparison.

Newman, Asuncion, Smyth and Welling, "Distributed algorithms for topic models", JMLR 2009.  Every shard samples all its
tokens, one by one, and does not see what the others change in a sweep: neither in the totals nor in the rows of words.
Only then are the copies brought together.  This is what scheduled model parallelism improves on (Kim et al., EuroSys
2016, section 2): there a row is never in two hands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.core.stages import At, Stage, each, reads
from schmp_estimators.core.values import own
from schmp_estimators.lda.blocks import WordBlock
from schmp_estimators.lda.programs.blocks import WordPart
from schmp_estimators.lda.programs.fplus import FPlusLDA, FPlusState
from schmp_estimators.lda.programs.learning import Exposure
from schmp_estimators.lda.programs.sequential import SequentialModel
from schmp_estimators.lda.programs.topics import Measured, TopicProgram


class CopyState(NamedTuple):
    """What changes of a shard."""

    #: As if the shard were alone.
    own: FPlusState
    #: (K,) the shard's tokens of each topic at the beginning of the sweep: what has changed since only it knows.
    began: NDArray[np.int64]
    #: Tokens that moved to another topic in this sweep.
    moved: int = 0


class CopyReport(NamedTuple):
    """What a shard reports at the end of a sweep."""

    #: (K,) its counts of each topic, with those of earlier batches that it speaks for, and how they have changed.
    topic_total: NDArray[np.int64]
    change: NDArray[np.int64]
    n_tokens: int
    moved: int


@dataclass(frozen=True)
class DataParallelLDA(TopicProgram[CopyState, SequentialModel]):
    """Latent Dirichlet allocation by collapsed Gibbs sampling of every shard against a copy of all counts.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, topics_of_word,
    from_passages, hot_priors, hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds, far
        As in `TopicProgram`.
    """

    sampler: ClassVar[str] = "data-parallel"

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the visits to the words, block by block so that a shard has few copies at a time, and the meeting."""
        words = reads(self.sample_copy, order=schedule_rotation(n_shards))
        return [words, each(self.bring_together, parts=True, reports=True), *self.looking(sweep, n_shards)]

    def restore(self, at: At, saved: NDArray[np.signedinteger]) -> tuple[CopyState, dict[int, WordPart]]:
        """Return topics that were saved in document order, or uniform ones, with their lists."""
        alone, parts = self._exact.restore(at, saved)
        return CopyState(alone, alone.total.copy()), parts

    def sample_copy(self, at: At, state: CopyState, block: WordBlock) -> CopyState:
        """Sample the tokens whose words are in the block, in a copy of it that nobody else will see."""
        model = at.model._replace(topic_total=at.model.topic_total + state.own.total - state.began)
        copied = block._replace(heads=own(block.heads), tails=own(block.tails))
        alone, _, step = self._exact.sample_words(at._replace(model=model), state.own, copied)
        return state._replace(own=alone, moved=state.moved + step.moved)

    def bring_together(self, at: At, state: CopyState) -> tuple[CopyState, dict[int, WordPart], CopyReport]:
        """End the sweep of a shard: say what it has changed."""
        state = state._replace(own=self._exact.end_sweep(at, state.own))
        report = self.report(at, state)
        return CopyState(state.own, state.own.total.copy()), self.parts(at, state), report

    def report(self, at: At, state: CopyState) -> CopyReport:
        """Return the topic totals, with those of earlier batches that the shard speaks for."""
        total = state.own.total.copy()
        np.add.at(total, at.shard.fixed.topic, at.shard.fixed.tokens)
        return CopyReport(total, state.own.total - state.began, len(state.own.topic), state.moved)

    def aggregate(self, model: SequentialModel | None, reports: Sequence[Any]) -> SequentialModel:
        """Bring the topic totals up to date, and measure how far the shards' copies of them were off in the end."""
        if isinstance(reports[0], Measured):
            assert model is not None  # the run began with reports of topics
            return self.with_likelihood(model, reports)
        if isinstance(reports[0], Exposure):
            assert model is not None
            return self.with_priors(model, reports)
        total = np.asarray(np.sum([report.topic_total for report in reports], axis=0, dtype=np.int64))
        change = np.sum([report.change for report in reports], axis=0, dtype=np.int64)
        n_tokens = sum(report.n_tokens for report in reports)
        off = sum(int(np.abs(change - report.change).sum()) for report in reports)
        s_error = off / max(1, len(reports) * n_tokens)
        learned = model.alphas if model else None
        moved = sum(report.moved for report in reports)
        return SequentialModel(total, n_tokens, s_error, moved, alphas=learned, alphas_before=learned)

    def topics(self, state: CopyState) -> NDArray[np.signedinteger]:
        """Return the topics of a shard's tokens in word-major order."""
        return state.own.topic

    def moves(self, model: SequentialModel) -> dict[str, Any]:
        """Return how many tokens moved, and the s-error."""
        return {"moved": model.moved, "s_error": model.s_error}

    @property
    def _exact(self) -> FPlusLDA:
        """Return the program that every shard runs by itself."""
        return FPlusLDA(**{one.name: getattr(self, one.name) for one in fields(self)})
