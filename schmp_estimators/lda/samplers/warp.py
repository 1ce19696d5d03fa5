"""Latent Dirichlet allocation by a sampler with frozen counts (WarpLDA: Chen et al., VLDB 2016).

One sweep is a pass over the words and a pass over the documents (`kernels.warp`,
`kernels.warp_documents`).  All that a token reads is either frozen for the pass or belongs to its
own document, and random bits are addressed by canonical positions.  So topics do not depend on how
documents, words and jobs are divided.

Several shards exchange tokens for the word pass: each word has an owner, the shard whose block it
is in.  Heavy words are sampled locally instead, with rows that their owners make (`data.shards`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, repeat
from typing import ClassVar, NamedTuple

import numpy as np

from schmp_estimators.core.typing import (
    AnyIntegers,
    Arguments,
    Array,
    Floats,
    Floats32,
    Integers,
    Integers32,
    IntPair,
    Numbered,
)
from schmp_estimators.lda.kernels.warp import (
    Pieces,
    find_pieces,
    join_pieces,
    pieces_of,
    sample_words,
)
from schmp_estimators.lda.kernels.warp_documents import sample_documents
from schmp_estimators.sampling import (
    At,
    FrozenCountsSampler,
    Layout,
    Measured,
    Stage,
    SweepModel,
    TokenShard,
    TopicRows,
    WordBlock,
    WordPart,
    changed,
    combine_parts,
    count_local_words,
    freeze,
    make_parts,
    offsets_of,
    rows_of_tokens,
    stack_rows,
    topic_bytes,
    topic_priors,
)
from schmp_estimators.schmp import each, exchanges, observes


class WarpState(NamedTuple):
    """What changes of a shard."""

    #: (n_tokens, 1 + mh_steps) topic and pending proposals of each token, word-major; see
    #: `topic_dtype`.
    tokens: AnyIntegers
    #: (K,) tokens of each topic.
    totals: Integers
    #: Tokens that moved to another topic in the word pass and in the document pass of the last
    #: sweep.
    moved: IntPair = (0, 0)


class WarpPiece(NamedTuple):
    """What a shard sends to the owner of a block."""

    #: Topics of the local words; None if there are none.
    part: WordPart | None
    #: Tokens of the other words, word-major; only their topics, if they are not to be sampled.
    tokens: Array
    #: (n,) numbers of the words of these tokens among those that the owner samples, and how many
    #: there are of each.
    word: Integers32
    n_tokens: Integers


class WarpAnswer(NamedTuple):
    """What the owner of a block sends to a shard."""

    #: Rows of the local words; None if there are none.
    block: WordBlock | None
    #: Tokens of the other words, sampled, in the order in which they were sent.
    tokens: Array
    #: Tokens that moved to another topic: those of all shards in the answer to the first shard,
    #: else 0.
    moved: int


class ReceivedWords(NamedTuple):
    """Words with their tokens from all shards."""

    #: Tokens of each shard, word-major: (n_tokens, 1 + mh_steps), or their topics.
    tokens: list[Array]
    pieces: Pieces
    #: (n_words + 1,) offsets of the words if the tokens of all shards are put together.
    ptr: Integers
    #: The shard that owns the words, as if it had no others.
    owner: TokenShard

    @classmethod
    def of(cls, at: At, given: Sequence[WarpPiece]) -> ReceivedWords:
        """Return the words that a shard owns, given the pieces of all shards.

        Their tokens are writable.

        Raises
        ------
        ValueError
            If words do not have as many tokens as when shards were made.
        """
        owner = _owner(at.shard)
        tokens = [writable(piece.tokens) for piece in given]
        n = np.concatenate([piece.n_tokens for piece in given])
        word = np.concatenate([piece.word for piece in given])
        total = owner.word_total
        if (np.bincount(word, n, len(total)) != total).any():
            raise changed()
        size = (
            int(np.prod(tokens[0].shape[1:])) * tokens[0].itemsize
        )  # strides do not tell it where there is no token
        shard_ptr = offsets_of([len(one.word) for one in given])
        begins = [one.ctypes.data for one in tokens]
        ptr = offsets_of(np.bincount(word, minlength=len(total)))
        pieces = Pieces(
            ptr, *find_pieces(*freeze((word, n, shard_ptr, np.array(begins))), size, freeze(ptr))
        )
        return cls(tokens, freeze(pieces), offsets_of(total), owner)

    def together(self) -> Array:
        """Return the topics of all tokens, word after word; `tokens` are topics."""
        found = np.empty(self.ptr[-1], self.tokens[0].dtype)
        join_pieces(self.pieces, found)
        return found


def writable(tokens: Array) -> Array:
    """Return received tokens as a writable array.

    If the sending shard is in this process, it is that shard's array.

    That shard does not read them until it has the answer.
    """
    found = (
        tokens if tokens.flags.owndata else tokens.view()
    )  # a view, unless they are from another process
    with suppress(ValueError):  # if the memory is read-only
        found.flags.writeable = True
    return np.require(found, requirements=["C", "A", "W"])


def _owner(shard: TokenShard) -> TokenShard:
    """Return the shard as if its words were only those that it owns and that are not local."""
    begin, end = shard.block_ptr[shard.number : shard.number + 2].tolist()
    words = slice(begin + int(shard.n_local[shard.number]), end)
    return freeze(
        shard._replace(
            word_first=shard.word_first[words],
            word_total=shard.word_total[words],
            seeds=shard.seeds._replace(number=shard.seeds.number[words]),
        )
    )


@dataclass(frozen=True)
class WarpLDA(FrozenCountsSampler[WarpState]):
    """Latent Dirichlet allocation by Metropolis–Hastings with counts frozen during a pass.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, hot_priors,
    hot_sweeps, own_alphas, learn_every, drawn_alphas, seed_totals, begins_seeded, far
        As in `TopicSampler`.
    mh_steps : int, 1 to 4
        Proposals for each token in each pass.
    """

    rotates: ClassVar[bool] = False

    mh_steps: int = 2

    def takes(self, mh_steps: int | str, size: int) -> bool:
        """Return whether it makes so many proposals, which it keeps for all tokens."""
        return mh_steps in range(1, 5)

    def n_blocks(self, n_shards: int) -> int:
        """Return 0: no blocks go round, because shards exchange tokens in every sweep."""
        return 0

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the word pass and the document pass, in one stage where there is one shard."""
        looking = self.looking(sweep, n_shards)
        if n_shards == 1:
            return [each(self.sample), *looking]
        documents = each(self.sample_documents, merge=self.merge)
        words = exchanges(self.sample_words, split=self.split)
        return [words, documents, *looking]

    def count_local_words(self, word_totals: Integers, layout: Layout) -> Integers:
        """Return how many words of each block are sampled locally."""
        if len(layout.block_ptr) == 2:
            return super().count_local_words(word_totals, layout)
        n_bytes = np.min_scalar_type(self.n_components - 1).itemsize  # on their way
        sizes = self.n_components, n_bytes, (1 + self.mh_steps) * n_bytes
        return count_local_words(word_totals, layout, *sizes, far=self.far)

    def restore(self, at: At, saved: AnyIntegers) -> tuple[WarpState, Numbered]:
        """Return topics that were saved in document order, with proposals.

        They are the proposals of a document pass that moves nothing.
        """
        width = 1 + int(self.mh_steps)
        even = freeze(np.ones(self.n_components, np.float32))
        topic = self.begun(at, saved)[1]
        tokens = np.repeat(topic, width).reshape(-1, width)
        return self._pass_documents(at, tokens, self.alphas_before(at), even), {}

    def sample(self, at: At, state: WarpState) -> WarpState:
        """Do both passes of a single shard."""
        shard = at.shard
        pieces = freeze(pieces_of(state.tokens, shard.word_ptr))
        words = pieces, shard.word_first, None, self.seeds_of(shard)
        return self._finish(
            at, state, self._pass_words(at, [(words, shard.word_ptr)], state.tokens)
        )

    def split(self, at: At, state: WarpState) -> list[WarpPiece]:
        """Return the pieces for the owners of all blocks."""
        return self._pieces(at.shard, self.by_word(at, state), state.tokens)

    def sample_words(self, at: At, pieces: Sequence[WarpPiece]) -> list[WarpAnswer]:
        """Do the word pass for words that are not local, and make the rows of those that are."""
        block, received = self._receive(at, pieces)
        words = (
            received.pieces,
            received.owner.word_first,
            None,
            self.seeds_of(received.owner),
        )
        moved = self._pass_words(at, [(words, received.ptr)], received.tokens[0])
        return [*map(WarpAnswer, repeat(block), received.tokens, chain([moved], repeat(0)))]

    def sample_documents(
        self, at: At, state: WarpState, answers: Sequence[WarpAnswer]
    ) -> WarpState:
        """Take the tokens that owners have sampled, and do the two passes.

        The word pass is for local words, the document pass for all documents.
        """
        for sent, answer in zip(_sent_tokens(at.shard), answers, strict=True):
            if answer.tokens.ctypes.data != state.tokens[sent].ctypes.data:  # else they are there
                state.tokens[sent] = answer.tokens
        shard = at.shard
        jobs = []
        address = shard.word_first + shard.word_rank
        for number, answer in enumerate(answers):
            if (block := answer.block) is not None:
                begin = int(shard.block_ptr[number])
                words = slice(begin, begin + int(shard.n_local[number]))
                ptr = shard.word_ptr[words.start : words.stop + 1]
                own = freeze((pieces_of(state.tokens, ptr), address[words], block))
                jobs.append(((*own, self.seeds_of(shard, words)), ptr))
        moved_by_owners = sum([answer.moved for answer in answers])
        return self._finish(at, state, moved_by_owners + self._pass_words(at, jobs, state.tokens))

    def _pass_words(
        self, at: At, some: Sequence[tuple[Arguments, Integers]], tokens: AnyIntegers
    ) -> int:
        """Do the word pass of words, and return how many tokens moved.

        Given are the arguments of `kernels.warp.sample_words` from `pieces` to `seeds`, each with
        the offsets of the words, and tokens of the dtype and shape of theirs.
        """
        prior = np.float32(self.beta(at))
        key = self.key(at)
        types = (
            tokens[:0].reshape(-1),
            np.empty(0, np.int16 if self.n_components < 1 << 15 else np.int32),
        )
        given = types, self._inverse(at), prior, key, self._steps

        jobs = [(*job, *words) for words, ptr in some for job in self.jobs(ptr)]
        return int(sum(at.each(lambda job: sample_words(*job, *given), jobs)))

    def _finish(self, at: At, state: WarpState, moved: int) -> WarpState:
        """Do the document pass of a sweep, in whose word pass so many tokens have moved."""
        return self._pass_documents(
            at, state.tokens, self.alphas(at.sweep, at.model), self._inverse(at), moved
        )

    def _pass_documents(
        self, at: At, tokens: Array, alphas: Floats, inverse: Array, moved_by_words: int = 0
    ) -> WarpState:
        prior = np.float32(self.priors(at.sweep, None)[0])
        alpha = prior if self.own_alphas is None else topic_priors(alphas)
        given = at.shard, tokens.reshape(-1), inverse, alpha, self.key(at, 1), self._steps
        totals, moved = self.over(
            at, at.shard.doc_ptr, lambda *job: int(sample_documents(*job, *given))
        )
        return WarpState(tokens, totals, (moved_by_words, moved))

    def _inverse(self, at: At) -> Floats32:
        """Return ``1 / (n_k + V beta)``, rounded as kernels take it."""
        smooth = self.n_words * np.float64(np.float32(self.beta(at)))
        with_seeds = smooth if self.seed_totals is None else smooth + self.seed_totals
        return freeze((1.0 / (at.model.topic_total + with_seeds)).astype(np.float32))

    def measuring(self, n_shards: int) -> Stage:
        """Return the stage that measures the joint log-likelihood.

        Several shards exchange topics for it.
        """
        if n_shards == 1:
            return observes(self.measure, merge=self.merge_measured)
        return observes(self.measure_owned, split=self.split_topics, merge=self.merge_measured)

    def split_topics(self, at: At, state: WarpState) -> list[WarpPiece]:
        """Return the pieces for the owners of all blocks, with topics in place of tokens."""
        topic = self.by_word(at, state)
        return self._pieces(at.shard, topic, topic)

    def measure_owned(self, at: At, state: WarpState, pieces: Sequence[WarpPiece]) -> Measured:
        """Return the shares of the joint log-likelihood of a shard and of the words it owns."""
        return self.measured(at, state, self._owned(at, pieces))

    def harvesting(self, n_shards: int) -> Stage | None:
        """Return the stage in which several shards make the rows of the words that they own."""
        return observes(self.harvest_owned, split=self.split_topics) if n_shards > 1 else None

    def harvest_owned(self, at: At, state: WarpState, pieces: Sequence[WarpPiece]) -> TopicRows:
        """Return the rows of the words that a shard owns, in layout order."""
        return stack_rows([self.harvest_block(block) for _, block, _ in self._owned(at, pieces)])

    def _owned(
        self, at: At, pieces: Sequence[WarpPiece]
    ) -> list[tuple[TokenShard, WordBlock, int]]:
        """Return the words that a shard owns, as `measured` takes them.

        The pieces have topics as tokens.
        """
        block, received = self._receive(at, pieces)
        others = rows_of_tokens(received.ptr, freeze(received.together()), self.n_components)
        local = [] if block is None else [(at.shard, block, int(at.shard.block_ptr[at.number]))]
        return [*local, (received.owner, others, 0)]

    def _pieces(
        self, shard: TokenShard, topic: AnyIntegers, tokens: AnyIntegers
    ) -> list[WarpPiece]:
        """Return the pieces for the owners of all blocks, given topics and tokens.

        `tokens` may be the topics.
        """
        parts = (
            make_parts(shard, topic, self.n_components, shard.n_local)
            if shard.n_local.any()
            else {}
        )
        found = []
        lengths = np.diff(shard.word_ptr)
        ends = shard.block_ptr[1:].tolist()
        for block, sent in enumerate(_sent_tokens(shard)):
            begin = int(shard.block_ptr[block] + shard.n_local[block])
            has = begin + np.flatnonzero(lengths[begin : ends[block]])
            found.append(
                WarpPiece(parts.get(block), tokens[sent], shard.word_number[has], lengths[has])
            )
        return found

    def _receive(
        self, at: At, pieces: Sequence[WarpPiece]
    ) -> tuple[WordBlock | None, ReceivedWords]:
        """Return the rows of local words, if there are any, and the other words.

        Both come from the pieces of all shards.
        """
        parts = [piece.part for piece in pieces if piece.part is not None]
        block = freeze(combine_parts(parts, self.n_components)) if parts else None
        return block, ReceivedWords.of(at, pieces)

    def by_word(self, at: At, state: WarpState) -> AnyIntegers:
        """Return the topics of a shard's tokens in word-major order."""
        return state.tokens[:, 0]

    def moves(self, model: SweepModel) -> dict[str, int]:
        """Return how many tokens moved in each pass."""
        return {"moved_by_words": model.moved[0], "moved_by_documents": model.moved[1]}

    def state_bytes(self) -> int:
        """Return how many bytes of a shard's state there are for each token.

        They are for its topic and its proposals.
        """
        return (1 + self.mh_steps) * topic_bytes(self.n_components)

    @property
    def _steps(self) -> tuple[int, ...]:
        """Return a tuple as long as there are proposals, which kernels get as a constant."""
        return (0,) * int(self.mh_steps)


def _sent_tokens(shard: TokenShard) -> list[slice]:
    """Return the ranges of the tokens that go to the owner of each block."""
    firsts = shard.word_ptr[shard.block_ptr[:-1] + shard.n_local]
    ends = shard.word_ptr[shard.block_ptr[1:]]
    return list(map(slice, firsts.tolist(), ends.tolist()))
