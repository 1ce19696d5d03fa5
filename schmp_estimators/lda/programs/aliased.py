"""Latent Dirichlet allocation by Metropolis–Hastings with stale alias tables (AliasLDA: Li et al., KDD 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.stages import At
from schmp_estimators.lda.blocks import HEAD, WordBlock
from schmp_estimators.lda.kernels.aliased import sample_cell
from schmp_estimators.lda.programs.by_document import ByDocumentLDA, ByDocumentState, Cell


@dataclass(frozen=True)
class AliasLDA(ByDocumentLDA):
    """Latent Dirichlet allocation by Metropolis–Hastings, with proposals from stale alias tables where sums are long.

    Not exact, not even with one shard: a table is kept for as many tokens as it has slots.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, topics_of_word,
    from_passages, hot_priors, hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds, far
        As in `TopicProgram`.
    mh_steps : int, at least 1
        Proposals for each token in a sweep.
    """

    sampler: ClassVar[str] = "alias"
    options: ClassVar[tuple[str, ...]] = ("mh_steps",)

    mh_steps: int = 2

    def sample_cell(
        self, at: At, state: ByDocumentState, block: WordBlock, total: NDArray[np.int64], cell: Cell
    ) -> int:
        """Sample the tokens of a cell; see the kernel."""
        options = int(self.mh_steps), HEAD * self.n_components, 0
        return int(sample_cell(at.block, at.shard, block, state.visits, state.topic, total, *options, *cell))
