"""Latent Dirichlet allocation, exact for short documents, with proposals for long ones (LDA*: Yu et al., VLDB 2017).

Both kinds of documents are sampled in one visit to a word, so that its row and its tree are made once.  How many
proposals a token makes follows from how many were accepted in the last sweep, summed over all shards: a number of the
model, like the totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import WordBlock
from schmp_estimators.lda.kernels import ftree
from schmp_estimators.lda.kernels.hybrid import MAX_STEPS, sample_hybrid
from schmp_estimators.lda.programs.fplus import FPlusLDA, FPlusState
from schmp_estimators.lda.programs.sequential import SWEEP, SequentialModel, Step

#: Stream of random numbers of proposals.
_PROPOSALS = 1
#: The fewest proposals, and how many there are in the first sweep: one from the word and one from the document.
_LEAST = 2


class HybridStep(NamedTuple):
    """What a shard reports after a step of the rotation."""

    #: (K,) how its counts of each topic have changed in the step.
    change: NDArray[np.int64]
    #: Tokens that moved to another topic, proposals made and proposals accepted.
    moved: int
    proposed: int
    accepted: int


class HybridModel(NamedTuple):
    """What every shard reads: the fields of `SequentialModel`, and what proposals have come to."""

    topic_total: NDArray[np.int64]
    n_tokens: int
    s_error: float = 0.0
    moved: int = 0
    s_error_now: float = 0.0
    moved_now: int = 0
    likelihood: tuple[float, ...] = ()
    alphas: NDArray[np.float64] | None = None
    alphas_before: NDArray[np.float64] | None = None
    #: Share of the proposals of the last sweep that were accepted; 1 if there were none.
    acceptance: float = 1.0
    #: Proposals made in the present sweep so far, and those accepted.
    proposed_now: int = 0
    accepted_now: int = 0


@dataclass(frozen=True)
class HybridLDA(FPlusLDA):
    """Latent Dirichlet allocation by collapsed Gibbs sampling, with Metropolis–Hastings for long documents.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, topics_of_word,
    from_passages, hot_priors, hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds, far
        As in `TopicProgram`.
    long_document : int
        Documents with more tokens are sampled by proposals, if there are more topics than that, too.
    accepted_before : float
        Share of proposals accepted in the sweep before the first one.
    """

    sampler: ClassVar[str] = "hybrid"

    long_document: int = 600
    #: Not shown: a fit that goes on from a checkpoint is the same fit.
    accepted_before: float = field(default=1.0, repr=False)

    def resumed(self, history: Sequence[Mapping[str, Any]]) -> HybridLDA:
        """Return the program that goes on after these sweeps."""
        return replace(self, accepted_before=float(history[-1]["acceptance"])) if history else self

    def sample_words(self, at: At, state: FPlusState, block: WordBlock) -> tuple[FPlusState, WordBlock, Step]:
        """Sample the tokens whose words are in the block."""
        alpha, beta = self.priors(at.sweep)
        alphas = freeze(self.alphas(at.sweep, at.model)) if self.is_asymmetric else alpha
        total = at.model.topic_total.copy()
        first, last = at.shard.block_ptr[at.block : at.block + 2]
        limit = self.long_document if self.n_components > self.long_document else np.iinfo(np.int64).max
        counted = sample_hybrid(
            first, last, at.shard, block._replace(tail_ptr=freeze(block.tail_ptr), fixed=freeze(block.fixed)),
            state.topic, freeze(state.document), state.lists, total, freeze(ftree.level_offsets(self.n_components)),
            alphas, beta, self.beta_sums(beta),
            stream_key(self.seed, at.sweep, SWEEP), stream_key(self.seed, at.sweep, _PROPOSALS),
            limit, steps_after(at.model.acceptance), self.seeds_of(at.shard),
        )  # fmt: skip
        change = total - at.model.topic_total
        state.total[:] += change
        step: Any = HybridStep(change, *counted)
        return state, block, step

    def aggregate(self, model: Any, reports: Sequence[Any]) -> Any:
        """Bring totals up to date, as other sequential samplers do, and the share of proposals that were accepted."""
        made: Any = super().aggregate(model, reports)
        if isinstance(reports[0], HybridStep):
            return made._replace(
                proposed_now=model.proposed_now + sum(step.proposed for step in reports),
                accepted_now=model.accepted_now + sum(step.accepted for step in reports),
            )
        if isinstance(made, HybridModel):
            return made
        found: SequentialModel = made
        acceptance = self.accepted_before
        if model is not None:
            acceptance = model.accepted_now / model.proposed_now if model.proposed_now else 1.0
        return HybridModel(**found._asdict(), acceptance=acceptance)

    def moves(self, model: Any) -> dict[str, Any]:
        """Return how many tokens moved, the s-error, and the share of proposals that were accepted."""
        return {**super().moves(model), "acceptance": model.acceptance}


def steps_after(acceptance: float) -> int:
    """Return how many proposals a token makes after a sweep in which this share of them was accepted."""
    return min(max(ceil(1.0 / max(acceptance, 1.0 / MAX_STEPS)), _LEAST), MAX_STEPS)
