"""Words whose tokens have come from all shards: sampled as if one shard had them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, TopicRows
from schmp_estimators.lda.data.packed import Packing
from schmp_estimators.lda.data.parcels import Parcel
from schmp_estimators.lda.data.topic_rows import cut_rows
from schmp_estimators.lda.kernels.exchange import MetLengths, merge_topics, read_lengths
from schmp_estimators.lda.kernels.warp import Steps
from schmp_estimators.lda.kernels.warp_met import sample_met
from schmp_estimators.lda.kernels.warp_packed import sample_packed
from schmp_estimators.lda.programs.seeded_words import SeededWords

#: Packed tokens of a word that are unpacked at a time: few enough for the first cache.
_AT_ONCE = 1 << 10


class MetWords(NamedTuple):
    """Words whose tokens are here."""

    #: Tokens of each shard, word-major: (n_tokens, 1 + mh_steps), or (n_tokens,) packed, or their topics.
    tokens: list[NDArray[Any]]
    #: With addresses.
    lengths: MetLengths
    #: (n_words + 1,) offsets of the words where all tokens of a word are together.
    ptr: NDArray[np.int64]
    #: The shard that owns the words.
    owner: TokenShard

    @classmethod
    def of(cls, at: At, parcels: Sequence[Parcel]) -> MetWords:
        """Return the words that a shard owns, given the tokens of all shards, which are taken out of the parcels."""
        tokens = [parcel.take() for parcel in parcels]
        starts = np.array([one.ctypes.data for one in tokens], np.int64)
        codes = [parcel.lengths for parcel in parcels]
        return cls(tokens, *_words_of(at.shard, codes, starts, _bytes_of_one(tokens[0])), at.shard)

    @classmethod
    def of_slice(
        cls, owner: TokenShard, tokens: Sequence[NDArray[Any]], lengths: Sequence[NDArray[np.uint8]]
    ) -> MetWords:
        """Return the words of a block whose `owner` has no other one, given the tokens of all shards as they are."""
        starts = np.array([one.ctypes.data for one in tokens], np.int64)
        return cls(list(tokens), *_words_of(owner, lengths, starts, _bytes_of_one(tokens[0])), owner)

    def together(self) -> NDArray[Any]:
        """Return the topics of all tokens, word after word; `tokens` are topics."""
        found = np.empty(self.ptr[-1], self.tokens[0].dtype)
        merge_topics(self.lengths, found)
        return found

    def sample_as_they_are(
        self,
        at: At,
        cut: Callable[[NDArray[np.int64]], list[tuple[int, int]]],
        prior: np.float32,
        key: np.uint64,
        steps: Steps,
        seeded: SeededWords | None,
    ) -> int:
        """Do the word pass, of `seeded` words, too, of tokens that are not packed, in any number of arrays."""
        jobs = cut(self.ptr)
        if seeded is None:
            return _sample(at, jobs, self.lengths, self.tokens[0], prior, key, steps)
        moved = _sample(at, seeded.between(jobs), self.lengths, self.tokens[0], prior, key, steps)
        size = np.zeros(len(self.ptr) - 1, np.int64)
        size[seeded.words] = np.diff(self.ptr)[seeded.words]
        ptr = np.concatenate([[0], np.cumsum(size)])
        pieces = [piece for word in seeded.words.tolist() for piece in self._pieces_of(word)]
        if not pieces:
            return moved
        together = np.concatenate(pieces)  # as such a word is sampled
        shard = at.shard._replace(word_ptr=ptr)
        moved += seeded.sample(at._replace(shard=shard), together, prior, key, steps)
        for piece, sampled in zip(pieces, np.split(together, np.cumsum(list(map(len, pieces)))[:-1]), strict=True):
            piece[:] = sampled
        return moved

    def _pieces_of(self, word: int) -> list[NDArray[Any]]:
        """Return the tokens of a word, flat views, one for each shard that has some."""
        found, entries = [], slice(*self.lengths.ptr[word : word + 2])
        firsts = np.array([one.ctypes.data for one in self.tokens])
        step = _bytes_of_one(self.tokens[0])
        for begin, n in zip(self.lengths.begin[entries].tolist(), self.lengths.n_tokens[entries].tolist(), strict=True):
            shard = int(np.searchsorted(firsts, begin, side="right")) - 1
            first = (begin - int(firsts[shard])) // step
            found.append(self.tokens[shard][first : first + n].reshape(-1))
        return found

    def sample(
        self,
        at: At,
        cut: Callable[[NDArray[np.int64]], list[tuple[int, int]]],
        prior: np.float32,
        key: np.uint64,
        steps: Steps,
        packing: Packing,
    ) -> int:
        """Do the word pass, in jobs as `cut` makes them, and return how many tokens moved; `tokens` is mutated."""
        if not packing.bits:
            return _sample(at, cut(self.ptr), self.lengths, self.tokens[0], prior, key, steps)
        like, unpacked = self.tokens[0][:0], np.empty(0, packing.dtype)
        words, bits = _of_words(self.owner, 0, len(self.ptr) - 1), packing.bits
        given = *words, self.lengths, unpacked, like, bits, _AT_ONCE, at.model.inverse, prior, key, at.sweep == 0, steps
        return sum(at.each(lambda job: sample_packed(*job, *given), cut(self.ptr)))


def _words_of(
    owner: TokenShard, codes: Sequence[NDArray[np.uint8]], starts: NDArray[np.int64], step: int
) -> tuple[MetLengths, NDArray[np.int64]]:
    """Return where the tokens are of the words that a shard owns, and offsets of the words among them."""
    begin, end = owner.block_ptr[owner.number] + owner.home[owner.number], owner.block_ptr[owner.number + 1]
    ptr = np.zeros(end - begin + 1, np.int64)
    np.cumsum(owner.word_total[begin:end], out=ptr[1:])
    given = freeze((np.concatenate(codes), np.cumsum([len(one) for one in codes]), starts))
    return MetLengths(*freeze(read_lengths(*given, step, end - begin))), ptr


def _bytes_of_one(tokens: NDArray[Any]) -> int:
    """Return how many bytes a token has: strides do not tell it where there is none."""
    return int(np.prod(tokens.shape[1:])) * tokens.itemsize


def _of_words(owner: TokenShard, first: int, last: int) -> tuple[NDArray[np.int64], TopicRows]:
    """Return addresses of random numbers, and rows of earlier batches, of some of the words that a shard owns."""
    home = int(owner.home[owner.number])
    fixed = freeze(cut_rows(owner.fixed, home + first, home + last))
    return owner.word_first[owner.block_ptr[owner.number] + home + first :], fixed


def _sample(
    at: At,
    jobs: Sequence[tuple[int, int]],
    lengths: MetLengths,
    tokens: NDArray[np.signedinteger],
    prior: np.float32,
    key: np.uint64,
    steps: Steps,
) -> int:
    """Do the word pass of the words that a shard owns, whose tokens are like those given."""
    words, like = _of_words(at.shard, 0, len(lengths.ptr) - 1), tokens[:0].reshape(-1)
    given = *words, lengths, like, at.model.inverse, prior, key, at.sweep == 0, steps
    return sum(at.each(lambda job: sample_met(*job, *given), jobs))
