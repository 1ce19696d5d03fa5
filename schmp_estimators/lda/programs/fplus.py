"""Latent Dirichlet allocation by exact collapsed Gibbs sampling (F+LDA: Yu et al., WWW 2015).

The words go round the ring with their rows, so a token sees the true counts of its word and of its document.  With one
shard the sampler is exact; with more, topic totals are stale (`SequentialProgram`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import WordBlock
from schmp_estimators.lda.kernels import ftree
from schmp_estimators.lda.kernels.fplus import sample_cell
from schmp_estimators.lda.kernels.lists import TopicLists, empty_lists, list_topics, order_lists
from schmp_estimators.lda.kernels.warp_documents import start_documents
from schmp_estimators.lda.programs.blocks import WordPart
from schmp_estimators.lda.programs.sequential import ORIGIN, SWEEP, SequentialProgram, Step


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


@dataclass(frozen=True)
class FPlusLDA(SequentialProgram[FPlusState]):
    """Latent Dirichlet allocation by collapsed Gibbs sampling, word by word, with an F+ tree.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, topics_of_word,
    from_passages, hot_priors, hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds, far
        As in `TopicProgram`.
    """

    sampler: ClassVar[str] = "fplus"

    def restore(self, at: At, saved: NDArray[np.signedinteger]) -> tuple[FPlusState, dict[int, WordPart]]:
        """Return topics that were saved in document order, or uniform ones, with their lists."""
        shard, dtype = at.shard, saved.dtype.type
        topic, total = np.empty(len(shard.place), dtype), np.zeros(self.n_components, np.int64)
        start_documents(
            0, len(shard.doc_ptr) - 1, shard, freeze(saved), topic, np.float32(self.doc_topic_prior),
            np.uint64(0), stream_key(self.seed, 0, ORIGIN), total, (),
        )  # fmt: skip
        document, lists = np.empty(len(topic), np.uint32), empty_lists(shard.doc_ptr, self.n_components, dtype)
        list_topics(shard.doc_ptr, shard.place, freeze(topic), self.n_components, document, lists)
        order_lists(lists)
        state = FPlusState(topic, document, lists, total)
        return state, self.parts(at, state)

    def sample_words(self, at: At, state: FPlusState, block: WordBlock) -> tuple[FPlusState, WordBlock, Step]:
        """Sample the tokens whose words are in the block."""
        alpha, beta = self.priors(at.sweep)
        alphas = freeze(self.alphas(at.sweep, at.model)) if self.is_asymmetric else alpha
        total = at.model.topic_total.copy()
        first, last = at.shard.block_ptr[at.block : at.block + 2]
        moved = sample_cell(
            first, last, at.shard, block._replace(tail_ptr=freeze(block.tail_ptr), fixed=freeze(block.fixed)),
            state.topic, freeze(state.document), state.lists, total, freeze(ftree.level_offsets(self.n_components)),
            alphas, beta, self.beta_sums(beta),
            stream_key(self.seed, at.sweep, SWEEP), self.seeds_of(at.shard),
        )  # fmt: skip
        change = total - at.model.topic_total
        state.total[:] += change
        return state, block, Step(change, moved)

    def end_sweep(self, at: At, state: FPlusState) -> FPlusState:
        """Put the lists in the order in which `restore` makes them."""
        order_lists(state.lists)
        return state
