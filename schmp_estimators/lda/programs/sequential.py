"""What samplers have in common whose tokens see counts as they change: words go round the ring with their rows.

Only the topic totals are shared: every shard starts a step of the rotation from the true ones, and does not know what
others change in that step (Kim et al., EuroSys 2016, section 3.3.1).  So with several shards topics depend on how the
documents are divided.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.core.stages import At, Stage, changes, each
from schmp_estimators.lda.blocks import WordBlock
from schmp_estimators.lda.programs.learning import Exposure
from schmp_estimators.lda.programs.topics import Measured, TopicProgram

#: Streams of random numbers: of a sweep, and of the first topics, which are those of the frozen-count sampler.
SWEEP, ORIGIN = 0, 2


class SequentialState(Protocol):
    """What changes of a shard."""

    @property
    def topic(self) -> NDArray[np.signedinteger]:
        """(n_tokens,) topics; int16 or int32."""

    @property
    def total(self) -> NDArray[np.int64]:
        """(K,) the shard's tokens of each topic."""


State = TypeVar("State", bound=SequentialState)


class Step(NamedTuple):
    """What a shard reports after a step of the rotation."""

    #: (K,) how its counts of each topic have changed in the step.
    change: NDArray[np.int64]
    #: Tokens that moved to another topic.
    moved: int


class SweepReport(NamedTuple):
    """What a shard reports at the end of a sweep."""

    #: (K,) its counts of each topic, with those of earlier batches that it speaks for.
    topic_total: NDArray[np.int64]
    n_tokens: int


class SequentialModel(NamedTuple):
    """What every shard reads."""

    #: (K,) counts of each topic, earlier batches included.
    topic_total: NDArray[np.int64]
    n_tokens: int
    #: How far the shards' copies of the totals were off before the worst barrier of the last sweep, by shard and token.
    s_error: float = 0.0
    #: Tokens that moved to another topic in the last sweep.
    moved: int = 0
    #: The same of the present sweep, so far.
    s_error_now: float = 0.0
    moved_now: int = 0
    #: The joint log-likelihood and its parts, if it has just been measured.
    likelihood: tuple[float, ...] = ()
    #: (K,) document-topic priors that have been learned, if there are, and those of the last sweep.
    alphas: NDArray[np.float64] | None = None
    alphas_before: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class SequentialProgram(TopicProgram[State, SequentialModel]):
    """Base of samplers that change the counts token by token.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, topics_of_word,
    from_passages, hot_priors, hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds, far
        As in `TopicProgram`.
    """

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the rotation of the words, with a barrier after every step, and the end of the sweep."""
        words = changes(self.sample_words, order=schedule_rotation(n_shards), synced=True)
        return [words, each(self.end_sweep, merge=self.merge), *self.looking(sweep, n_shards)]

    @abstractmethod
    def sample_words(self, at: At, state: State, block: WordBlock) -> tuple[State, WordBlock, Step]:
        """Sample the tokens whose words are in the block."""

    def end_sweep(self, at: At, state: State) -> State:
        """End the sweep of a shard: what is kept beside the topics must be as `restore` would make it of them."""
        return state

    def report(self, at: At, state: State) -> SweepReport:
        """Return the topic totals, with those of earlier batches that the shard speaks for."""
        total = state.total.copy()
        np.add.at(total, at.shard.fixed.topic, at.shard.fixed.tokens)
        return SweepReport(total, len(state.topic))

    def merge(self, report: SweepReport, other: SweepReport) -> SweepReport:
        """Add up what two shards report at the end of a sweep."""
        return tree_sum((report, other))

    def aggregate(self, model: SequentialModel | None, reports: Sequence[Any]) -> SequentialModel:
        """Bring the topic totals up to date, and measure how far the shards' copies of them were off."""
        if isinstance(reports[0], SweepReport):
            total, n_tokens = _sum([report.topic_total for report in reports]), sum(one.n_tokens for one in reports)
            begun = SequentialModel(total, n_tokens)
            if model is None:
                return begun
            return begun._replace(
                s_error=model.s_error_now, moved=model.moved_now, alphas=model.alphas, alphas_before=model.alphas
            )
        assert model is not None  # the run began with reports
        if isinstance(reports[0], Measured):
            return self.with_likelihood(model, reports)
        if isinstance(reports[0], Exposure):
            return self.with_priors(model, reports)
        change = _sum([step.change for step in reports])
        off = sum(int(np.abs(change - step.change).sum()) for step in reports)
        return model._replace(
            topic_total=model.topic_total + change,
            s_error_now=max(model.s_error_now, off / max(1, len(reports) * model.n_tokens)),
            moved_now=model.moved_now + sum(step.moved for step in reports),
        )

    def topics(self, state: State) -> NDArray[np.signedinteger]:
        """Return the topics of a shard's tokens in word-major order."""
        return state.topic

    def moves(self, model: SequentialModel) -> dict[str, Any]:
        """Return how many tokens moved, and the s-error."""
        return {"moved": model.moved, "s_error": model.s_error}


def _sum(pieces: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    return np.asarray(np.sum(pieces, axis=0, dtype=np.int64))
