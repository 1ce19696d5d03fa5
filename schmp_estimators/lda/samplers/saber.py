"""Latent Dirichlet allocation by Gibbs sampling with all counts frozen for a sweep.

It is for many topics in short documents.

A token is drawn from its conditional, given the topics of its document and its word at the
beginning of the sweep (`kernels.saber`).  All that it reads is frozen, and random bits are
addressed by canonical positions, so the topics do not depend on how documents, words and jobs are
divided.

Rows of words go round the shards, which sample the tokens that they have of them; then every shard
lists the topics of its documents anew.
"""

from typing import ClassVar, NamedTuple

import numpy as np

from schmp_estimators.core.typing import AnySigned, Integers
from schmp_estimators.lda.kernels import saber
from schmp_estimators.lda.samplers.frozen import FrozenWordsLDA
from schmp_estimators.sampling import At, WordBlock, WordPart, freeze, topic_bytes


class SaberState(NamedTuple):
    """What changes of a shard, and parts of `documents`.

    The latter are kept because they take long to make.
    """

    #: (n_tokens,) topics, word-major; see `topic_dtype`.
    topic: AnySigned
    #: The topics of its documents, after the last sweep.
    documents: saber.DocumentLists
    #: (K,) tokens of each topic.
    totals: Integers
    #: Tokens that moved to another topic so far in this sweep, and in the last one.
    moving: int = 0
    moved: int = 0


class SaberLDA(FrozenWordsLDA):
    """Latent Dirichlet allocation by Gibbs sampling with all counts frozen during a sweep.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, hot_priors,
    hot_sweeps, own_alphas, learn_every, drawn_alphas, seed_totals, begins_seeded, far
        As in `TopicSampler`.
    """

    weighs_passages: ClassVar[bool] = True

    def restore(self, at: At, saved: AnySigned) -> tuple[SaberState, dict[int, WordPart]]:
        """Return topics that were saved in document order."""
        shard = at.shard
        _, topic, total = self.begun(at, saved)
        documents = saber.make_lists(shard.doc_ptr, shard.place, self.n_components)
        state = self._listed(at, SaberState(topic, documents, total))
        return state, self.parts(at, state) if at.n_blocks else {}

    def sample(self, at: At, state: SaberState) -> SaberState:
        """Sample the words of a single shard, and list the topics of its documents.

        The shard's tokens are the lists of its words.
        """
        return self._listed(at, super().sample(at, state))

    def end_sweep(self, at: At, state: SaberState) -> tuple[SaberState, dict[int, WordPart]]:
        """List the topics of the documents of a shard, and return its parts for all blocks."""
        return super().end_sweep(at, self._listed(at, state))

    def sample_words(self, at: At, state: SaberState, block: WordBlock) -> SaberState:
        """Sample the tokens whose words are in the block."""
        begin, end = at.shard.block_ptr[at.block : at.block + 2].tolist()
        beta = self.beta(at)
        alphas = self.alphas(at.sweep, at.model)
        smooth = freeze(saber.smoothing(at.model.topic_total, self.beta_sums(beta), alphas, beta))
        seeds = self.seeds_of(at.shard)
        given = *freeze((block, state.documents)), smooth, self.key(at), seeds

        def sample(first: int, last: int, _: Integers) -> int:
            scratch = saber.make_scratch(smooth, seeded=seeds is not None)
            words = first, last, begin, at.shard, state.topic
            return int(saber.sample_words(*words, *given, *scratch))

        _, moved = self.over(at, at.shard.word_ptr[begin : end + 1], sample)
        return state._replace(moving=state.moving + moved)

    def _listed(self, at: At, state: SaberState) -> SaberState:
        topic = freeze(state.topic)

        def list_some(first: int, last: int, totals: Integers) -> int:
            row = np.zeros(self.n_components, np.int32)
            found = row, np.empty_like(row), totals
            saber.list_documents(first, last, at.shard, topic, state.documents, *found)
            return 0

        totals, _ = self.over(at, at.shard.doc_ptr, list_some)
        return state._replace(totals=totals, moving=0, moved=state.moving)

    def state_bytes(self) -> int:
        """Return how many bytes of a shard's state there are for each token at most.

        They are for its topic, its document, and its place in a list.
        """
        return 4 * topic_bytes(self.n_components) + 4
