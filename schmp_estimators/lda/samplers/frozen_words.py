"""What samplers have in common that read the word counts of the beginning of a sweep: "frozen" and "saber".

Their shards only read rows of words, which travel, and count their own topics, of which the model is the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TopicRows, WordBlock
from schmp_estimators.lda.data.partition import cut_jobs
from schmp_estimators.lda.data.topic_rows import rows_of_lists
from schmp_estimators.lda.programs.learning import Learned
from schmp_estimators.lda.programs.topics import TopicProgram

#: A job has at least this many tokens, and a shard at most this many jobs in a pass.
MIN_JOB, MAX_JOBS = 1 << 17, 16


#: What changes of a shard: `topic` of each token, word-major, `totals` of topics, `moved` in the last sweep, and more.
S = TypeVar("S", bound=Any)


class FrozenReport(NamedTuple):
    """What a shard reports at the end of a sweep."""

    #: (K,) tokens of each topic, and counts in the fixed rows that the shard keeps.
    topic_total: NDArray[np.int64]
    moved: int


class FrozenModel(NamedTuple):
    """What every token reads."""

    #: (K,) counts of each topic, earlier batches included.
    topic_total: NDArray[np.int64]
    #: Tokens that moved to another topic in the last sweep.
    moved: int
    #: The joint log-likelihood and its parts, if it has just been measured.
    likelihood: tuple[float, ...] = ()
    #: Priors that have been learned, if there are, and those of the last sweep.
    learned: Learned = Learned()
    learned_before: Learned = Learned()


@dataclass(frozen=True)
class FrozenWordsLDA(TopicProgram[S, FrozenModel]):
    """Latent Dirichlet allocation by sampling with word counts frozen during a sweep.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, topics_of_word,
    from_passages, hot_priors, hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds, far
        As in `TopicProgram`.
    """

    partition_invariant: ClassVar[bool] = True
    begins_tempered: ClassVar[bool] = True

    def n_blocks(self, n_shards: int) -> int:
        """Return how many groups of words have rows that travel; a single shard has them in its own tokens."""
        return n_shards if n_shards > 1 else 0

    def report(self, at: At, state: S) -> FrozenReport:
        """Return the topic totals, with those of earlier batches that the shard speaks for."""
        return FrozenReport(self.with_fixed(at, state.totals), state.moved)

    def merge(self, report: FrozenReport, other: FrozenReport) -> FrozenReport:
        """Add up what two shards report."""
        return tree_sum((report, other))

    def summed(self, model: FrozenModel | None, reports: Sequence[Any]) -> FrozenModel:
        """Add up the topic totals, which all tokens of the next sweep read."""
        total = total_of([report.topic_total for report in reports], self.n_components)
        learned = model.learned if model else Learned()
        return FrozenModel(total, sum(report.moved for report in reports), (), learned, learned)

    def topics(self, state: S) -> NDArray[np.signedinteger]:
        """Return the topics of a shard's tokens in word-major order."""
        return state.topic

    def moves(self, model: FrozenModel) -> dict[str, int]:
        """Return how many tokens moved."""
        return {"moved": model.moved}

    def own_block(self, at: At, state: S) -> WordBlock:
        """Return the rows of all words of a single shard: its own tokens."""
        none = np.zeros((0, self.n_components), np.int32)
        return freeze(WordBlock(none, at.shard.word_ptr, state.topic, at.shard.fixed))

    def jobs(self, ptr: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Cut documents or words with these offsets into jobs for several threads."""
        return cut_jobs(ptr, max(MIN_JOB, 4 * self.n_components), MAX_JOBS)

    def harvest(self, at: At, state: S) -> TopicRows | None:
        """Return the word rows, without the fixed ones, in layout order, if there are no blocks."""
        return None if at.n_blocks else rows_of_lists(at.shard.word_ptr, state.topic, self.n_components)


def total_of(pieces: Sequence[NDArray[np.int64]], size: int) -> NDArray[np.int64]:
    """Return the sum of counts (size,) of some jobs or shards, of which there may be none."""
    return np.sum(pieces, axis=0) if pieces else np.zeros(size, np.int64)
