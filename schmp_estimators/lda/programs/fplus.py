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

from schmp_estimators.core.places.place import Each
from schmp_estimators.core.program import Local, Outcome, Program, Rotation, Stage, Visit
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, TopicRows, WordBlock, topic_dtype
from schmp_estimators.lda.kernels import ftree
from schmp_estimators.lda.kernels.fplus import sample_cell
from schmp_estimators.lda.kernels.lists import TopicLists, empty_lists, list_topics, order_lists
from schmp_estimators.lda.kernels.warp_documents import read_topics, start_documents
from schmp_estimators.lda.programs import blocks as lda_blocks
from schmp_estimators.lda.programs import measures as lda_measures

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


class FPlusSaved(NamedTuple):
    """The least from which a state can be restored at the end of a sweep."""

    #: (n_tokens,) topics in document order.
    topic: NDArray[np.signedinteger]


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


@dataclass(frozen=True)
class FPlusLDA(Program):
    """Latent Dirichlet allocation by collapsed Gibbs sampling, word by word, with an F+ tree.

    Parameters
    ----------
    n_components : int
        Number of topics K.
    n_words : int
        Number of words V, used or not.
    doc_topic_prior, topic_word_prior : float
        Alpha and beta.
    seed : int
        Seed of all random numbers.
    evaluate_every : int
        Number of sweeps between two evaluations of the joint log-likelihood; 0 for none.
    """

    n_components: int
    n_words: int
    doc_topic_prior: float
    topic_word_prior: float
    seed: int = 0
    evaluate_every: int = 0

    name: ClassVar[str] = "lda"

    def schedule(self, sweep: int, n_shards: int) -> tuple[Stage, ...]:
        """Return the rotation of the words, with a barrier after every step, and the end of the sweep."""
        order = schedule_rotation(n_shards)
        return Rotation("sample-words", order, moves=True, divided=False, synced=True), Local("count-topics")

    def start(self, shard: TokenShard, saved: FPlusSaved | None, each: Each) -> Outcome:
        """Return saved or uniform topics with their lists."""
        shard, dtype, n_docs = freeze(shard), topic_dtype(self.n_components), len(shard.doc_ptr) - 1
        topic, total = np.empty(len(shard.place), dtype), np.zeros(self.n_components, np.int64)
        start_documents(
            0, n_docs, shard, freeze(np.empty(0, dtype) if saved is None else saved.topic), topic,
            np.float32(self.doc_topic_prior), np.uint64(0), stream_key(self.seed, 0, _ORIGIN), total, (),
        )  # fmt: skip
        document, lists = np.empty(len(topic), np.uint32), empty_lists(shard.doc_ptr, self.n_components, dtype)
        list_topics(shard.doc_ptr, shard.place, freeze(topic), self.n_components, document, lists)
        order_lists(lists)
        state = FPlusState(topic, document, lists, total)
        parts = lda_blocks.make_parts(shard, topic, self.n_components)
        return Outcome(state, parts=parts, partial=_report(shard, state))

    def update(self, visit: Visit) -> Outcome:
        """Sample the tokens whose words are in the block, or end the sweep."""
        shard, state = freeze(visit.shard), visit.state
        if visit.stage == "count-topics":
            order_lists(state.lists)
            return Outcome(state, partial=_report(shard, state))
        heads, tail_ptr, tails, fixed = visit.block
        block = WordBlock(heads, freeze(tail_ptr), tails, freeze(fixed))
        total = visit.model.topic_total.copy()
        first, last = shard.block_ptr[visit.block_index : visit.block_index + 2]
        moved = sample_cell(
            first, last, shard, block, state.topic, freeze(state.document), state.lists, total,
            freeze(ftree.level_offsets(self.n_components)), float(self.doc_topic_prior), float(self.topic_word_prior),
            self.n_words * float(self.topic_word_prior), stream_key(self.seed, visit.sweep, _SWEEP),
        )  # fmt: skip
        change = total - visit.model.topic_total
        state.total[:] += change
        return Outcome(state, block=visit.block, partial=FPlusStep(change, moved))

    def aggregate(self, model: FPlusModel | None, partials: Sequence[Any]) -> FPlusModel:
        """Bring the topic totals up to date, and measure how far the shards' copies of them were off."""
        if isinstance(partials[0], FPlusReport):
            total, n_tokens = _sum([report.topic_total for report in partials]), sum(p.n_tokens for p in partials)
            return FPlusModel(total, n_tokens, *((model.s_error_now, model.moved_now) if model else ()))
        assert model is not None  # the run began with reports
        change = _sum([step.change for step in partials])
        off = sum(int(np.abs(change - step.change).sum()) for step in partials)
        return model._replace(
            topic_total=model.topic_total + change,
            s_error_now=max(model.s_error_now, off / max(1, len(partials) * model.n_tokens)),
            moved_now=model.moved_now + sum(step.moved for step in partials),
        )

    def combine(self, index: int, parts: Sequence[lda_blocks.WordPart]) -> WordBlock:
        """Put the rows of all shards together."""
        return lda_blocks.combine_parts(index, parts, self.n_components)

    def save(self, shard: TokenShard, state: FPlusState) -> FPlusSaved:
        """Return the topics in document order: all else follows from them."""
        topic = np.empty(len(shard.place), state.topic.dtype)
        read_topics(freeze(shard.place), freeze(state.topic), topic)
        return FPlusSaved(topic)

    def measures(self, sweep: int) -> bool:
        """Return whether the joint log-likelihood is wanted after this sweep."""
        return self.evaluate_every > 0 and (sweep + 1) % self.evaluate_every == 0

    def measure_shard(self, shard: TokenShard, state: FPlusState) -> lda_measures.ShardMeasure:
        """Return the shard's share of the joint log-likelihood."""
        return lda_measures.measure_shard(shard, state.topic, self.n_components, has_blocks=True)

    def measure_block(self, block: WordBlock) -> Any:
        """Return the block's share of the joint log-likelihood."""
        return lda_measures.measure_block(block, self.n_components)

    def progress(self, sweep: int, model: FPlusModel, shards: Sequence[Any], blocks: Sequence[Any]) -> dict[str, Any]:
        """Return how many tokens moved, the s-error, the priors, and the joint log-likelihood if it was measured."""
        record: dict[str, Any] = {"moved": model.moved, "s_error": model.s_error}
        record |= dict(zip(("doc_topic_prior", "topic_word_prior"), self.priors(sweep), strict=True))
        if shards:
            record |= lda_measures.joint_log_likelihood(
                shards, blocks, model.topic_total, self.n_words, self.doc_topic_prior, self.topic_word_prior
            )
        return record

    def harvest_block(self, block: WordBlock) -> TopicRows:
        """Return the word rows of a block, without the fixed ones."""
        return lda_blocks.harvest_rows(block, self.n_components)

    def priors(self, sweep: int) -> tuple[float, float]:
        """Return the document-topic and the topic-word prior of a sweep: always the same."""
        return self.doc_topic_prior, self.topic_word_prior


def _report(shard: TokenShard, state: FPlusState) -> FPlusReport:
    total = state.total.copy()
    np.add.at(total, shard.fixed.topic, shard.fixed.tokens)
    return FPlusReport(total, len(state.topic))


def _sum(pieces: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    return np.asarray(np.sum(pieces, axis=0, dtype=np.int64))
