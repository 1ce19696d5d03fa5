"""What the frozen-count sampler's states, reports and model are made of, and words that are sampled together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.stages import At
from schmp_estimators.core.values import align, freeze
from schmp_estimators.lda.blocks import TokenShard, TopicRows, WordBlock, no_topics, nothing_sent
from schmp_estimators.lda.data.counts import changed
from schmp_estimators.lda.data.parcels import Parcel
from schmp_estimators.lda.data.topic_rows import cut_rows
from schmp_estimators.lda.kernels.exchange import MetLengths, merge_topics, read_lengths
from schmp_estimators.lda.kernels.word_priors import SeedRows
from schmp_estimators.lda.programs.blocks import WordPart
from schmp_estimators.lda.programs.learning import Learned


class WarpState(NamedTuple):
    """What changes of a shard."""

    #: (n_tokens, 1 + mh_steps) topic and pending proposals of each token, word-major; int16 or int32.
    tokens: NDArray[np.signedinteger]
    #: (K,) tokens of each topic before the first sweep; then they are reported.
    totals: NDArray[np.integer]


class WarpPiece(NamedTuple):
    """What a shard has for the owner of a block."""

    #: Topics of the words whose rows travel; None if there are none.
    part: WordPart | None
    #: Tokens of the other words, word-major; or their topics, where it is for a look at them.
    parcel: Parcel


class WarpAnswer(NamedTuple):
    """What the owner of a block has for a shard."""

    #: Rows of the words whose rows travel; None if there are none.
    block: WordBlock | None
    #: Tokens of the other words, sampled, in the order in which they came.
    parcel: Parcel
    #: Of them, those that moved to another topic; the tokens of all shards in the answer to the first one.
    moved: int


class WarpReport(NamedTuple):
    """What a shard reports at the end of a sweep."""

    #: (K,) tokens of each topic, and counts in the fixed rows that the shard keeps.
    topic_total: NDArray[np.int64]
    #: Tokens that moved to another topic in the word pass and in the document pass.
    moved: tuple[int, int]
    #: Sweeps done.
    sweep: int


class WarpModel(NamedTuple):
    """What every token reads."""

    #: (K,) counts of each topic, earlier batches included.
    topic_total: NDArray[np.int64]
    #: (K,) ``1 / (topic_total + V beta)``, rounded once so that all shards use the same bits.
    inverse: NDArray[np.float32]
    #: Tokens that moved to another topic in the word pass and in the document pass.
    moved: tuple[int, int]
    #: The joint log-likelihood and its parts, if it has just been measured.
    likelihood: tuple[float, ...] = ()
    #: Priors that have been learned, if there are, and those of the last document pass.
    learned: Learned = Learned()
    learned_before: Learned = Learned()

    def __reduce__(self) -> tuple[Any, ...]:
        """Arrive with arrays where they should be: else each task that reads them would copy them."""
        return _model, tuple(self)


def _model(*values: Any) -> WarpModel:
    return WarpModel(*align(values))


class Words(NamedTuple):
    """What a word pass is told of words, see `kernels.warp.sample_words`: where their tokens are, and their rows."""

    pieces: MetLengths
    #: (n_words,) canonical address of the first of these tokens of each word.
    address: NDArray[np.int64]
    block: WordBlock | None
    fixed: TopicRows
    seeds: SeedRows | None


class MetWords(NamedTuple):
    """Words whose tokens are here."""

    #: Tokens of each shard, word-major: (n_tokens, 1 + mh_steps), or their topics.
    tokens: list[NDArray[Any]]
    #: With addresses.
    lengths: MetLengths
    #: (n_words + 1,) offsets of the words where all tokens of a word are together.
    ptr: NDArray[np.int64]
    #: The shard that owns the words, as if it had no others, and no tokens.
    owner: TokenShard

    @classmethod
    def of(cls, at: At, parcels: Sequence[Parcel]) -> MetWords:
        """Return the words that a shard owns, given the tokens of all shards, which are taken out of the parcels."""
        tokens = [parcel.take() for parcel in parcels]
        starts = np.array([one.ctypes.data for one in tokens], np.int64)
        owner, codes = _owner(at.shard), [parcel.lengths for parcel in parcels]
        return cls(tokens, *_words_of(owner, codes, starts, _bytes_of_one(tokens[0])), owner)

    def together(self) -> NDArray[Any]:
        """Return the topics of all tokens, word after word; `tokens` are topics."""
        found = np.empty(self.ptr[-1], self.tokens[0].dtype)
        merge_topics(self.lengths, found)
        return found


def _words_of(
    owner: TokenShard, codes: Sequence[NDArray[np.uint8]], starts: NDArray[np.int64], step: int
) -> tuple[MetLengths, NDArray[np.int64]]:
    """Return where the tokens are of the words that a shard owns, and offsets of the words among them."""
    ptr = np.zeros(len(owner.word_total) + 1, np.int64)
    np.cumsum(owner.word_total, out=ptr[1:])
    given = freeze((np.concatenate(codes), np.cumsum([len(one) for one in codes]), starts))
    found = MetLengths(*freeze(read_lengths(*given, step, len(owner.word_total))))
    if not np.array_equal(np.append(0, np.cumsum(found.n_tokens, dtype=np.int64))[found.ptr], ptr):
        raise changed()
    return found, ptr


def _bytes_of_one(tokens: NDArray[Any]) -> int:
    """Return how many bytes a token has: strides do not tell it where there is none."""
    return int(np.prod(tokens.shape[1:])) * tokens.itemsize


def _owner(shard: TokenShard) -> TokenShard:
    """Return what a shard knows of the words that it owns whose tokens travel, as if they were all."""
    home, (begin, end) = int(shard.home[shard.number]), shard.block_ptr[shard.number : shard.number + 2].tolist()
    words, n, none = slice(begin + home, end), end - begin - home, np.zeros(1, np.int64)
    owner = TokenShard(
        none, np.zeros(0, np.uint32), np.zeros(n + 1, np.int64), np.zeros(n, np.int64), shard.word_first[words],
        shard.word_total[words], np.array([0, n]), 0, 0, cut_rows(shard.fixed, home, home + n), no_topics(), none,
        *nothing_sent(1),
    )  # fmt: skip
    return freeze(owner)
