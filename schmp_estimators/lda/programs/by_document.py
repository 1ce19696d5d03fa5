"""What samplers have in common that go document by document within a cell, a shard's tokens of a block of words."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import WordBlock
from schmp_estimators.lda.kernels.seeds import SeedRows
from schmp_estimators.lda.kernels.visits import (
    Visits,
    count_topics,
    draw_uniform_topics,
    no_visits,
    order_visits,
    write_by_word,
)
from schmp_estimators.lda.programs.blocks import WordPart
from schmp_estimators.lda.programs.sequential import ORIGIN, SWEEP, SequentialProgram, Step


class ByDocumentState(NamedTuple):
    """What changes of a shard, with `visits`, which are too dear to make again for every block.

    Counts of documents and all that helps to draw is made anew for every cell, so that nothing but the topics is ever
    carried from one to the next.
    """

    #: (n_tokens,) topics in document order; int16 or int32.
    topic: NDArray[np.signedinteger]
    visits: Visits
    #: (K,) the shard's tokens of each topic.
    total: NDArray[np.int64]


class Cell(NamedTuple):
    """What kernels are told of a sweep."""

    #: (K,) document-topic priors.
    alpha: NDArray[np.float64]
    beta: float
    #: V beta; where words are seeded, one for each topic, with its seeds.
    beta_sum: float | NDArray[np.float64]
    #: Stream of random numbers.
    key: np.uint64
    seeds: SeedRows | None


@dataclass(frozen=True)
class ByDocumentLDA(SequentialProgram[ByDocumentState]):
    """Base of samplers that go document by document within a cell.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, topics_of_word,
    from_passages, hot_priors, hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds, far
        As in `TopicProgram`.
    """

    @abstractmethod
    def sample_cell(
        self, at: At, state: ByDocumentState, block: WordBlock, total: NDArray[np.int64], cell: Cell
    ) -> int:
        """Sample the tokens of a cell in place, with the shard's copy of the topic totals; return how many moved."""

    def restore(self, at: At, saved: NDArray[np.signedinteger]) -> tuple[ByDocumentState, dict[int, WordPart]]:
        """Return topics that were saved in document order, or uniform ones, and the order of the visits."""
        shard, topic = at.shard, saved.copy()
        if not len(saved):
            topic = np.empty(len(shard.place), saved.dtype)
            draw_uniform_topics(shard.first_token, stream_key(self.seed, 0, ORIGIN), self.n_components, topic)
        total = np.zeros(self.n_components, np.int64)
        count_topics(topic, total)
        visits = no_visits(len(topic), len(shard.doc_ptr) - 1, len(shard.block_ptr) - 1)
        order_visits(shard, visits)
        state = ByDocumentState(topic, visits, total)
        return state, self.parts(at, state)

    def sample_words(self, at: At, state: ByDocumentState, block: WordBlock) -> tuple[ByDocumentState, WordBlock, Step]:
        """Sample the tokens whose words are in the block."""
        beta, total = self.priors(at.sweep)[1], at.model.topic_total.copy()
        alphas, key = freeze(self.alphas(at.sweep, at.model)), stream_key(self.seed, at.sweep, SWEEP)
        cell = Cell(alphas, beta, self.beta_sums(beta), key, self.seeds_of(at.shard))
        rows = block._replace(tail_ptr=freeze(block.tail_ptr), fixed=freeze(block.fixed))
        moved = self.sample_cell(at, state._replace(visits=freeze(state.visits)), rows, total, cell)
        change = total - at.model.topic_total
        state.total[:] += change
        return state, block, Step(change, moved)

    def topics(self, state: ByDocumentState) -> NDArray[np.signedinteger]:
        """Return the topics of a shard's tokens in document order."""
        return state.topic

    def by_word(self, at: At, state: ByDocumentState) -> NDArray[Any]:
        """Return the topics of a shard's tokens in word-major order."""
        topic = np.empty_like(state.topic)
        write_by_word(at.shard.place, freeze(state.topic), topic)
        return topic

    def save(self, at: At, state: ByDocumentState) -> NDArray[np.signedinteger]:
        """Return the topics in document order."""
        return state.topic

    def state_bytes(self) -> int:
        """Return how many bytes of a shard's state there are for each token: its topic, and how it is visited."""
        return super().state_bytes() // 6 + 8
