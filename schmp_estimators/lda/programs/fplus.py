"""Latent Dirichlet allocation by exact collapsed Gibbs sampling (F+LDA: Yu et al., WWW 2015).

The words go round the ring with their rows, so a token sees the true counts of its word and of its document.  Only the
topic totals are shared: every shard starts a step of the rotation from the true ones, and does not know what others
change in that step (Kim et al., EuroSys 2016, section 3.3.1).  With one shard the sampler is exact; with more, the
topics depend on how the documents are divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.core.stages import At, Stage, changes, each
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import WordBlock
from schmp_estimators.lda.kernels import ftree
from schmp_estimators.lda.kernels.fplus import sample_cell
from schmp_estimators.lda.kernels.lists import TopicLists, empty_lists, list_topics, order_lists
from schmp_estimators.lda.kernels.warp_documents import start_documents
from schmp_estimators.lda.programs.blocks import WordPart
from schmp_estimators.lda.programs.topics import Measured, TopicProgram

#: Which stream of random numbers: a sweep, or the first topics, which are those of the frozen-count sampler.
_SWEEP, _ORIGIN = 0, 2


class FPlusState(NamedTuple):
    """What changes of a shard, with `document`, which is too dear to make again for every block."""

    #: (n_tokens,) topics, word-major; int16 or int32.
    topic: NDArray[np.signedinteger]
    #: (n_tokens,) document of each token, word-major.
    document: NDArray[np.uint32]
    #: Topics of the documents.
    lists: TopicLists
    #: (K,) the shard's tokens of each topic.
    total: NDArray[np.int64]


class FPlusStep(NamedTuple):
    """What a shard reports after a step of the rotation."""

    #: (K,) how its counts of each topic have changed in the step.
    change: NDArray[np.int64]
    #: Tokens that moved to another topic.
    moved: int


class FPlusReport(NamedTuple):
    """What a shard reports at the end of a sweep."""

    #: (K,) its counts of each topic, with those of earlier batches that it speaks for.
    topic_total: NDArray[np.int64]
    n_tokens: int


class FPlusModel(NamedTuple):
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


@dataclass(frozen=True)
class FPlusLDA(TopicProgram[FPlusState, FPlusModel]):
    """Latent Dirichlet allocation by collapsed Gibbs sampling, word by word, with an F+ tree.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every
        As in `TopicProgram`.
    """

    sampler: ClassVar[str] = "fplus"

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the rotation of the words, with a barrier after every step, and the end of the sweep."""
        words = changes(self.sample_words, order=schedule_rotation(n_shards), synced=True)
        stages = [words, each(self.count_topics, merge=self.merge)]
        return [*stages, self.measuring(n_shards)] if self.measures(sweep) else stages

    def restore(self, at: At, saved: NDArray[np.signedinteger]) -> tuple[FPlusState, dict[int, WordPart]]:
        """Return topics that were saved in document order, or uniform ones, with their lists."""
        shard, dtype = at.shard, saved.dtype.type
        topic, total = np.empty(len(shard.place), dtype), np.zeros(self.n_components, np.int64)
        start_documents(
            0, len(shard.doc_ptr) - 1, shard, freeze(saved), topic, np.float32(self.doc_topic_prior),
            np.uint64(0), stream_key(self.seed, 0, _ORIGIN), total, (),
        )  # fmt: skip
        document, lists = np.empty(len(topic), np.uint32), empty_lists(shard.doc_ptr, self.n_components, dtype)
        list_topics(shard.doc_ptr, shard.place, freeze(topic), self.n_components, document, lists)
        order_lists(lists)
        state = FPlusState(topic, document, lists, total)
        return state, self.parts(at, state)

    def sample_words(self, at: At, state: FPlusState, block: WordBlock) -> tuple[FPlusState, WordBlock, FPlusStep]:
        """Sample the tokens whose words are in the block."""
        total = at.model.topic_total.copy()
        first, last = at.shard.block_ptr[at.block : at.block + 2]
        moved = sample_cell(
            first, last, at.shard, block._replace(tail_ptr=freeze(block.tail_ptr), fixed=freeze(block.fixed)),
            state.topic, freeze(state.document), state.lists, total, freeze(ftree.level_offsets(self.n_components)),
            float(self.doc_topic_prior), float(self.topic_word_prior), self.n_words * float(self.topic_word_prior),
            stream_key(self.seed, at.sweep, _SWEEP),
        )  # fmt: skip
        change = total - at.model.topic_total
        state.total[:] += change
        return state, block, FPlusStep(change, moved)

    def count_topics(self, at: At, state: FPlusState) -> FPlusState:
        """End the sweep of a shard."""
        order_lists(state.lists)
        return state

    def report(self, at: At, state: FPlusState) -> FPlusReport:
        """Return the topic totals, with those of earlier batches that the shard speaks for."""
        total = state.total.copy()
        np.add.at(total, at.shard.fixed.topic, at.shard.fixed.tokens)
        return FPlusReport(total, len(state.topic))

    def merge(self, report: FPlusReport, other: FPlusReport) -> FPlusReport:
        """Add up what two shards report at the end of a sweep."""
        return tree_sum((report, other))

    def aggregate(self, model: FPlusModel | None, reports: Sequence[Any]) -> FPlusModel:
        """Bring the topic totals up to date, and measure how far the shards' copies of them were off."""
        if isinstance(reports[0], FPlusReport):
            total, n_tokens = _sum([report.topic_total for report in reports]), sum(one.n_tokens for one in reports)
            return FPlusModel(total, n_tokens, *((model.s_error_now, model.moved_now) if model else ()))
        assert model is not None  # the run began with reports
        if isinstance(reports[0], Measured):
            return self.with_likelihood(model, reports)
        change = _sum([step.change for step in reports])
        off = sum(int(np.abs(change - step.change).sum()) for step in reports)
        return model._replace(
            topic_total=model.topic_total + change,
            s_error_now=max(model.s_error_now, off / max(1, len(reports) * model.n_tokens)),
            moved_now=model.moved_now + sum(step.moved for step in reports),
        )

    def topics(self, state: FPlusState) -> NDArray[np.signedinteger]:
        """Return the topics of a shard's tokens in word-major order."""
        return state.topic

    def moves(self, model: FPlusModel) -> dict[str, Any]:
        """Return how many tokens moved, and the s-error."""
        return {"moved": model.moved, "s_error": model.s_error}


def _sum(pieces: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    return np.asarray(np.sum(pieces, axis=0, dtype=np.int64))
