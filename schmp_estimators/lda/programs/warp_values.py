"""What the frozen-count sampler's states, reports and model are made of, and words that are sampled together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, TopicRows, WordBlock, no_topics
from schmp_estimators.lda.data.counts import changed
from schmp_estimators.lda.data.topic_rows import cut_rows
from schmp_estimators.lda.kernels.warp import Pieces, join_pieces, order_pieces
from schmp_estimators.lda.kernels.word_priors import SeedRows
from schmp_estimators.lda.programs.blocks import WordPart


class WarpState(NamedTuple):
    """What changes of a shard."""

    #: (n_tokens, 1 + mh_steps) topic and pending proposals of each token, word-major; int16 or int32.
    tokens: NDArray[np.signedinteger]
    #: (K,) tokens of each topic.
    totals: NDArray[np.int64]
    #: Tokens that moved to another topic in the word pass and in the document pass of the last sweep.
    moved: tuple[int, int] = (0, 0)


class WarpPiece(NamedTuple):
    """What a shard has for the owner of a block."""

    #: Topics of the words whose rows travel; None if there are none.
    part: WordPart | None
    #: Tokens of the other words, word-major; or their topics, where it is for a look at them.
    tokens: NDArray[Any]
    #: (n,) numbers of the words of these tokens among those that the owner samples, and how many there are of each.
    word: NDArray[np.int32]
    n_tokens: NDArray[np.int64]


class WarpAnswer(NamedTuple):
    """What the owner of a block has for a shard."""

    #: Rows of the words whose rows travel; None if there are none.
    block: WordBlock | None
    #: Tokens of the other words, sampled, as they came.
    tokens: NDArray[Any]
    #: Of them, those that moved to another topic; the tokens of all shards in the answer to the first one.
    moved: int


class Words(NamedTuple):
    """What a word pass is told of words, see `kernels.warp.sample_words`: where their tokens are, and their rows."""

    pieces: Pieces
    #: (n_words,) canonical address of the first of these tokens of each word.
    address: NDArray[np.int64]
    block: WordBlock | None
    fixed: TopicRows
    seeds: SeedRows | None


class MetWords(NamedTuple):
    """Words whose tokens are here."""

    #: Tokens of each shard, word-major: (n_tokens, 1 + mh_steps), or their topics.
    tokens: list[NDArray[Any]]
    pieces: Pieces
    #: (n_words + 1,) offsets of the words where all tokens of a word are together.
    ptr: NDArray[np.int64]
    #: The shard that owns the words, as if it had no others, and no tokens.
    owner: TokenShard

    @classmethod
    def of(cls, at: At, given: Sequence[WarpPiece]) -> MetWords:
        """Return the words that a shard owns, given what all shards have of them; their tokens can be written to.

        Raises
        ------
        ValueError
            If they do not have as many tokens as they had when shards were made.
        """
        owner, tokens = _owner(at.shard), [writable(piece.tokens) for piece in given]
        n, word = np.concatenate([piece.n_tokens for piece in given]), np.concatenate([piece.word for piece in given])
        size = int(np.prod(tokens[0].shape[1:])) * tokens[0].itemsize  # strides do not tell it where there is no token
        ends = [one.ctypes.data + size * np.cumsum(piece.n_tokens) for one, piece in zip(tokens, given, strict=True)]
        pieces, left = Pieces.empty(len(owner.word_total), len(n)), owner.word_total.copy()
        order_pieces(word, np.concatenate(ends) - size * n, n, left, pieces)
        if left.any():
            raise changed()
        return cls(tokens, freeze(pieces), np.append(0, np.cumsum(owner.word_total)), owner)

    def together(self) -> NDArray[Any]:
        """Return the topics of all tokens, word after word; `tokens` are topics."""
        found = np.empty(self.ptr[-1], self.tokens[0].dtype)
        join_pieces(self.pieces, found)
        return found


def writable(tokens: NDArray[Any]) -> NDArray[Any]:
    """Return tokens that have come, and can be written to: in the shard that they are from, if that is in this process.

    Until it has the answer, nobody reads them there.
    """
    found = tokens if tokens.flags.owndata else tokens.view()  # a view, unless they have come from another process
    with suppress(ValueError):  # of memory that is read-only
        found.flags.writeable = True
    return np.require(found, requirements=["C", "A", "W"])


def _owner(shard: TokenShard) -> TokenShard:
    """Return what a shard knows of the words that it owns whose tokens travel, as if they were all."""
    home, (begin, end) = int(shard.home[shard.number]), shard.block_ptr[shard.number : shard.number + 2].tolist()
    words, n, none = slice(begin + home, end), end - begin - home, np.zeros(1, np.int64)
    owner = TokenShard(
        none, np.zeros(0, np.uint32), np.zeros(n + 1, np.int64), np.zeros(n, np.int64), shard.word_first[words],
        shard.word_total[words], np.array([0, n]), 0, 0, cut_rows(shard.fixed, home, home + n), no_topics(), none,
        np.zeros(0, np.int32),
    )  # fmt: skip
    return freeze(owner)
