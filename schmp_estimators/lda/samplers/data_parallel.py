"""Latent Dirichlet allocation with a copy of the model for every shard (AD-LDA), for comparison.

Newman, Asuncion, Smyth and Welling, "Distributed algorithms for topic models", JMLR 2009.  Every shard samples all its
tokens, one by one, and does not see what the others change in a sweep: neither in the totals nor in the rows of words.
Only then are the copies brought together.  This is what scheduled model parallelism improves on (Kim et al., EuroSys
2016, section 2): there a row is never in two hands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.core.stages import At, Stage, each, reads
from schmp_estimators.core.values import own
from schmp_estimators.lda.blocks import WordBlock
from schmp_estimators.lda.programs.blocks import WordPart
from schmp_estimators.lda.samplers.fplus import FPlusLDA
from schmp_estimators.lda.samplers.sequential import SequentialModel, Step, SweepReport
from schmp_estimators.lda.samplers.words import WordState


@dataclass(frozen=True)
class DataParallelLDA(FPlusLDA):
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

    def sample_copy(self, at: At, state: WordState, block: WordBlock) -> WordState:
        """Sample the tokens whose words are in the block, in a copy of it that nobody else will see."""
        model = at.model._replace(topic_total=at.model.topic_total + state.total - state.began)
        copied = block._replace(heads=own(block.heads), tails=own(block.tails))
        state, _, step = self.sample_words(at._replace(model=model), state, copied)
        return state._replace(moved=state.moved + step.moved)

    def bring_together(self, at: At, state: WordState) -> tuple[WordState, dict[int, WordPart], SweepReport]:
        """End the sweep of a shard: say what it has changed."""
        report = self.report(at, self.end_sweep(at, state))
        return state._replace(began=state.total.copy(), moved=0), self.parts(at, state), report

    def report(self, at: At, state: WordState) -> SweepReport:
        """Return the topic totals, and how they have changed."""
        return super().report(at, state)._replace(step=Step(state.total - state.began, state.moved))

    def summed(self, model: SequentialModel | None, reports: Sequence[Any]) -> SequentialModel:
        """Bring the topic totals up to date, and measure how far the shards' copies of them were off in the end."""
        if model is not None:
            model = super().summed(model._replace(s_error_now=0.0, moved_now=0), [report.step for report in reports])
        return super().summed(model, reports)
