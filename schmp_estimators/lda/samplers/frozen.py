"""Gibbs sampling with word counts frozen for a sweep: the base of "frozen" and "saber".

The sampler "frozen" is here, too.

Shards only read the rows of words, which go round, and count the topics of their own tokens.  The
model is the sum of these counts.

"frozen" draws a token from the conditional over all topics, given the present topics of its
document and the word counts at the beginning of the sweep (`kernels.frozen`).  All that it reads is
either frozen or belongs to its own document, and random bits are addressed by canonical positions.
So topics do not depend on how documents, words and jobs are divided.

With several shards, every shard first takes from each block the rows of its own words: a table of
(words of the shard) × K weights.  Then it samples its documents from their first token to their
last.  To sample documents block by block would need no table, but then the order of a document's
tokens, and so the topics, would depend on the division.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.typing import AnySigned, Floats32, Integers, Unsigned32
from schmp_estimators.lda.kernels.frozen import (
    frozen_of,
    make_slots,
    make_table,
    sample_documents,
    take_rows,
)
from schmp_estimators.sampling import (
    At,
    FrozenCountsSampler,
    Stage,
    SweepModel,
    TokenShard,
    WordBlock,
    WordPart,
    freeze,
    part_of_each,
    rows_of_tokens,
    topic_bytes,
)
from schmp_estimators.schmp import each, reads, schedule_rotation


class FrozenWordsLDA(FrozenCountsSampler[Any]):
    """Latent Dirichlet allocation by sampling with word counts frozen during a sweep.

    What changes of a shard has the `topic` of each token, word-major, and what
    `FrozenCountsSampler` asks for.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, hot_priors,
    hot_sweeps, own_alphas, learn_every, drawn_alphas, seed_totals, begins_seeded, far
        As in `TopicSampler`.
    """

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the stages in which rows go round and tokens are sampled.

        For one shard it is one stage.
        """
        looking = self.looking(sweep, n_shards)
        if n_shards == 1:
            return [each(self.sample), *looking]
        words = reads(self.sample_words, order=schedule_rotation(n_shards))
        return [words, each(self.end_sweep, parts=True, merge=self.merge), *looking]

    def sample(self, at: At, state: Any) -> Any:
        """Sample the tokens of a single shard, which are its rows."""
        own = rows_of_tokens(at.shard.word_ptr, state.topic, self.n_components)
        return self.sample_words(at._replace(block=0), state, freeze(own))

    @abstractmethod
    def sample_words(self, at: At, state: Any, block: WordBlock) -> Any:
        """Read the rows of the words in a block."""

    def end_sweep(self, at: At, state: Any) -> tuple[Any, dict[int, WordPart]]:
        """Return the parts of the shard for all blocks."""
        return state, self.parts(at, state)

    def n_blocks(self, n_shards: int) -> int:
        """Return how many blocks of rows go round.

        None for a single shard, whose own tokens are its rows.
        """
        return n_shards if n_shards > 1 else 0

    def moves(self, model: SweepModel) -> dict[str, int]:
        """Return how many tokens moved."""
        return {"moved": model.moved}


class Table:
    """The words of a shard, and an array for their weights, kept from sweep to sweep.

    Neither is pickled.
    """

    def __init__(self) -> None:
        self._made: tuple[Integers, list[int], Floats32] | None = None

    def __reduce__(self) -> Any:
        """Pickle an empty table: words and weights are made again."""
        return Table, ()

    def of(self, shard: TokenShard, n_topics: int) -> tuple[Integers, list[int], Floats32]:
        """Return the words with tokens, where blocks begin among them, and the array for weights.

        The array is as it was left.

        Parameters
        ----------
        shard : TokenShard
            Always the same.
        n_topics : int
            K.

        Returns
        -------
        words : (n_words,) int64
        begins : list of n_blocks + 1 integers
        rows : (n_words, padded K) float32
            It begins with a cache line.
        """
        if self._made is None:
            words = np.flatnonzero(np.diff(shard.word_ptr))
            rows = make_table(words.size, n_topics)
            self._made = words, np.searchsorted(words, shard.block_ptr).tolist(), rows
        return self._made


class FrozenState(NamedTuple):
    """What changes of a shard, and `word`, which is kept because it takes long to make."""

    #: (n_tokens,) topics, word-major; see `topic_dtype`.
    topic: AnySigned
    #: (n_tokens,) number of each token's word among those of the shard, in document order.
    word: Unsigned32
    #: The words of the shard, and their weights.
    table: Table
    #: (K,) tokens of each topic; nothing in the pieces of a divided state.
    totals: Integers
    #: Tokens that moved to another topic in the last sweep.
    moved: int = 0


class FrozenLDA(FrozenWordsLDA):
    """Latent Dirichlet allocation by Gibbs sampling with word counts frozen during a sweep.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, hot_priors,
    hot_sweeps, own_alphas, learn_every, drawn_alphas, seed_totals, begins_seeded, far
        As in `TopicSampler`.
    """

    def restore(self, at: At, saved: AnySigned) -> tuple[FrozenState, dict[int, WordPart]]:
        """Return topics that were saved in document order."""
        shard = at.shard
        _, topic, totals = self.begun(at, saved)
        lengths = np.diff(shard.word_ptr)
        sizes = lengths[lengths > 0]
        word = part_of_each(sizes, np.uint32)[shard.place]
        state = FrozenState(topic, word, Table(), totals)
        return state, self.parts(at, state) if at.n_blocks else {}

    def sample_words(self, at: At, state: FrozenState, block: WordBlock) -> FrozenState:
        """Take the rows of the words that the shard has from a block.

        After the last block, its documents are sampled.
        """
        self._take_rows(at, state, freeze(block))
        return self._sample_documents(at, state) if at.is_last else state

    def _take_rows(self, at: At, state: FrozenState, block: WordBlock) -> None:
        """Write the weights of the words of a block that the shard has."""
        words, begins, rows = state.table.of(at.shard, self.n_components)
        mine = slice(*begins[at.block : at.block + 2])
        begin, end = at.shard.block_ptr[at.block : at.block + 2]
        seeds = self.seeds_of(at.shard, words[mine])
        words = freeze(words[mine] - begin)
        ptr = at.shard.word_ptr[begin : end + 1]
        beta = self.beta(at)
        inverse = 1.0 / (at.model.topic_total + self.beta_sums(beta))
        given = words, block, inverse, beta, rows[mine], seeds
        jobs = self.jobs(np.append(ptr[words], ptr[-1]))
        at.each(lambda job: take_rows(*job, *given), jobs)

    def _sample_documents(self, at: At, state: FrozenState) -> FrozenState:
        beta = self.beta(at)
        alpha = self.alphas(at.sweep, at.model)
        words, _, rows = state.table.of(at.shard, self.n_components)
        frozen = freeze(frozen_of(rows, alpha, at.model.topic_total, beta, self.beta_sums(beta)))
        ptr = at.shard.doc_ptr
        given = at.shard, freeze(state.word), state.topic, frozen, self.key(at)
        seeds = self.seeds_of(at.shard, words)

        def sample(first: int, last: int, totals: Integers) -> int:
            lengths = np.diff(ptr[first : last + 1])
            slots = make_slots(lengths, self.n_components, state.topic.dtype)
            return int(sample_documents(first, last, *given, slots, totals, seeds))

        totals, moved = self.over(at, ptr, sample)
        return state._replace(totals=totals, moved=moved)

    def state_bytes(self) -> int:
        """Return a shard's state bytes for each token: its topic and its word."""
        return topic_bytes(self.n_components) + 4

    def row_bytes(self) -> int:
        """Return how many bytes a shard needs for each word that it has."""
        return make_table(1, self.n_components).nbytes
