"""Latent Dirichlet allocation by exact collapsed Gibbs sampling with sparse sums (SparseLDA: Yao et al., KDD 2009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import WordBlock
from schmp_estimators.lda.kernels import ftree
from schmp_estimators.lda.kernels.sparse import sample_cell
from schmp_estimators.lda.programs.by_document import ByDocumentLDA, ByDocumentState, Cell


@dataclass(frozen=True)
class SparseLDA(ByDocumentLDA):
    """Latent Dirichlet allocation by collapsed Gibbs sampling, document by document, with sparse sums.

    With one shard the sampler is exact; with more, topic totals are stale (`SequentialProgram`).

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, topics_of_word,
    from_passages, hot_priors, hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds, far
        As in `TopicProgram`.
    """

    sampler: ClassVar[str] = "sparse"

    def sample_cell(
        self, at: At, state: ByDocumentState, block: WordBlock, total: NDArray[np.int64], cell: Cell
    ) -> int:
        """Sample the tokens of a cell; see the kernel."""
        levels = freeze(ftree.level_offsets(self.n_components))
        return int(sample_cell(at.block, at.shard, block, state.visits, state.topic, total, levels, *cell))
