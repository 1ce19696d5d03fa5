"""Collapsed Gibbs sampling as in "fplus", with a copy of the model for every shard, for comparison.

This is AD-LDA (Newman, Asuncion, Smyth and Welling, "Distributed algorithms for topic models",
JMLR 2009).  Every shard samples all its tokens, and does not see what other shards change in the
sweep, neither in the totals nor in the rows of words.  After the sweep the copies are merged.
Scheduled model parallelism improves on this (Kim et al., EuroSys 2016, section 2): there, no two
shards change a row at the same time.
"""

from collections.abc import Sequence
from typing import Any

from schmp_estimators.lda.samplers.fplus import FPlusLDA
from schmp_estimators.sampling import (
    At,
    Stage,
    Step,
    SweepModel,
    WordBlock,
    WordPart,
    WordState,
    own,
)
from schmp_estimators.schmp import each, reads, schedule_rotation


class DataParallelLDA(FPlusLDA):
    """Collapsed Gibbs sampling of every shard against a copy of all counts."""

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the sampling, block by block few copies at a time, and the merge."""
        words = reads(self.sample_copy, order=schedule_rotation(n_shards))
        return [
            words,
            each(self.bring_together, parts=True, reports=True),
            *self.looking(sweep, n_shards),
        ]

    def sample_copy(self, at: At, state: WordState, block: WordBlock) -> WordState:
        """Sample the tokens whose words are in the block, in a copy of the block."""
        model = at.model._replace(topic_total=at.model.topic_total + state.total - state.began)
        copied = block._replace(heads=own(block.heads), tails=own(block.tails))
        state, _, step = self.sample_words(at._replace(model=model), state, copied)
        return state._replace(moved=state.moved + step.moved)

    def bring_together(
        self, at: At, state: WordState
    ) -> tuple[WordState, dict[int, WordPart], Step]:
        """End the sweep of a shard: report what it has changed."""
        state, step = self.end_sweep(at, state), Step(state.total - state.began, state.moved)
        return state._replace(began=state.total.copy(), moved=0), self.parts(at, state), step

    def summed(self, model: SweepModel | None, reports: Sequence[Any]) -> SweepModel:
        """Bring the topic totals up to date, and measure the errors of the copies."""
        if model is None:
            return super().summed(model, reports)
        model = super().summed(model._replace(s_error_now=0.0, moved_now=0), reports)
        moved = model.moved_now
        s_error = model.s_error_now
        return model._replace(
            moved=moved, s_error=s_error, likelihood=(), learned_before=model.learned
        )
