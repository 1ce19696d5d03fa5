"""What samplers share whose tokens all read counts of the beginning of a sweep, or of a pass.

Shards report their own topics, of which the model is the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.stages import At
from schmp_estimators.lda.blocks import TopicRows
from schmp_estimators.lda.data.partition import cut_jobs
from schmp_estimators.lda.data.topic_rows import rows_of_lists
from schmp_estimators.lda.programs.learning import Learned
from schmp_estimators.lda.programs.topics import SweepModel, TopicProgram

#: A job has at least this many tokens, and a shard at most this many jobs in a pass.
MIN_JOB, MAX_JOBS = 1 << 17, 16

#: What changes of a shard: tokens of each topic, `totals`, tokens `moved` in the last sweep, and more.
S = TypeVar("S", bound=Any)


class FrozenReport(NamedTuple):
    """What a shard reports at the end of a sweep."""

    #: (K,) tokens of each topic, and counts in the fixed rows that the shard keeps.
    topic_total: NDArray[np.int64]
    #: Tokens that moved to another topic, or how many in each pass.
    moved: Any


@dataclass(frozen=True)
class FrozenCountsLDA(TopicProgram[S]):
    """Base of samplers whose topics do not depend on how documents are divided.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, hot_priors,
    hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds, far
        As in `TopicProgram`.
    """

    partition_invariant: ClassVar[bool] = True
    begins_tempered: ClassVar[bool] = True

    def jobs(self, ptr: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Cut documents or words with these offsets into jobs for several threads, worth the O(K) that each costs."""
        return cut_jobs(ptr, max(MIN_JOB, 4 * self.n_components), MAX_JOBS)

    def report(self, at: At, state: S) -> FrozenReport:
        """Return the topic totals, with those of earlier batches that the shard speaks for."""
        return FrozenReport(self.with_fixed(at, state.totals), state.moved)

    def harvest(self, at: At, state: S) -> TopicRows | None:
        """Return the word rows, without the fixed ones, in layout order, if there is one shard."""
        if at.n_shards > 1:
            return None
        return rows_of_lists(at.shard.word_ptr, self.by_word(at, state), self.n_components)

    def summed(self, model: SweepModel | None, reports: Sequence[Any]) -> SweepModel:
        """Add up the topic totals, which all tokens of the next sweep read."""
        (total, moved), learned = tree_sum(reports), model.learned if model else Learned()
        return SweepModel(total, moved, learned=learned, learned_before=learned)
