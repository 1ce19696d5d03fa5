"""What samplers have in common that read the word counts of the beginning of a sweep: "frozen" and "saber".

Their shards only read rows of words, which travel, and count their own topics, of which the model is the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.stages import At
from schmp_estimators.lda.blocks import TopicRows
from schmp_estimators.lda.data.topic_rows import rows_of_lists
from schmp_estimators.lda.kernels.visits import draw_uniform_topics
from schmp_estimators.lda.programs.learning import Exposure
from schmp_estimators.lda.programs.topics import ORIGIN, Measured, TopicProgram


class CountedState(Protocol):
    """What a state has at least."""

    @property
    def topic(self) -> NDArray[np.signedinteger]:
        """(n_tokens,) topics, word-major; int16 or int32."""

    @property
    def totals(self) -> NDArray[np.int64]:
        """(K,) tokens of each topic."""

    @property
    def moved(self) -> int:
        """Tokens that moved to another topic in the last sweep."""


S = TypeVar("S", bound=CountedState)


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
    #: (K,) document-topic priors that have been learned, if there are, and those of the last sweep.
    alphas: NDArray[np.float64] | None = None
    alphas_before: NDArray[np.float64] | None = None


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
        totals = state.totals.copy()
        np.add.at(totals, at.shard.fixed.topic, at.shard.fixed.tokens)
        return FrozenReport(totals, state.moved)

    def merge(self, report: FrozenReport, other: FrozenReport) -> FrozenReport:
        """Add up what two shards report."""
        return tree_sum((report, other))

    def aggregate(self, model: FrozenModel | None, reports: Sequence[Any]) -> FrozenModel:
        """Add up the topic totals, which all tokens of the next sweep read, or the joint log-likelihood."""
        if isinstance(reports[0], Measured):
            assert model is not None  # the run began with reports of topics
            return self.with_likelihood(model, reports)
        if isinstance(reports[0], Exposure):
            assert model is not None
            return self.with_priors(model, reports)
        total = total_of([report.topic_total for report in reports], self.n_components)
        learned = model.alphas if model else None
        return FrozenModel(total, sum(report.moved for report in reports), (), learned, learned)

    def by_place(self, at: At, saved: NDArray[np.signedinteger]) -> NDArray[np.signedinteger]:
        """Return topics that were saved in document order in word-major order; uniform ones, if none were."""
        place = at.shard.place
        if len(saved) < len(place):
            saved = np.empty(len(place), saved.dtype)
            draw_uniform_topics(at.shard.first_token, stream_key(self.seed, 0, ORIGIN), self.n_components, saved)
        topic: NDArray[np.signedinteger] = np.empty(len(place), saved.dtype)
        topic[place] = saved
        return topic

    def topics(self, state: S) -> NDArray[np.signedinteger]:
        """Return the topics of a shard's tokens in word-major order."""
        return state.topic

    def moves(self, model: FrozenModel) -> dict[str, int]:
        """Return how many tokens moved."""
        return {"moved": model.moved}

    def harvest(self, at: At, state: S) -> TopicRows | None:
        """Return the word rows, without the fixed ones, in layout order, if there are no blocks."""
        return None if at.n_blocks else rows_of_lists(at.shard.word_ptr, state.topic, self.n_components)


def total_of(pieces: Sequence[NDArray[np.int64]], size: int) -> NDArray[np.int64]:
    """Return the sum of counts (size,) of some jobs or shards, of which there may be none."""
    return np.sum(pieces, axis=0) if pieces else np.zeros(size, np.int64)
