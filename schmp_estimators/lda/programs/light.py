"""Latent Dirichlet allocation by Metropolis–Hastings in constant time for a token (LightLDA: Yuan et al., WWW 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.stages import At
from schmp_estimators.lda.blocks import WordBlock
from schmp_estimators.lda.kernels.light import sample_cell
from schmp_estimators.lda.programs.by_document import ByDocumentLDA, ByDocumentState, Cell


@dataclass(frozen=True)
class LightLDA(ByDocumentLDA):
    """Latent Dirichlet allocation by Metropolis–Hastings, with proposals of a token's word and of its document in turn.

    With one shard the sampler is exact; with more, topic totals are stale (`SequentialProgram`).

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, topics_of_word,
    from_passages, hot_priors, hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds, far
        As in `TopicProgram`.
    mh_steps : int, at least 1
        Proposals of the word, and of the document, for each token in a sweep.
    """

    sampler: ClassVar[str] = "light"
    options: ClassVar[tuple[str, ...]] = ("mh_steps",)

    mh_steps: int = 2

    def sample_cell(
        self, at: At, state: ByDocumentState, block: WordBlock, total: NDArray[np.int64], cell: Cell
    ) -> int:
        """Sample the tokens of a cell; see the kernel."""
        steps = int(self.mh_steps)
        return int(sample_cell(at.block, at.shard, block, state.visits, state.topic, total, steps, *cell))
