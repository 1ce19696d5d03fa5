"""Words whose tokens have come from all shards: sampled as if one shard had them all."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, no_topics, nothing_sent
from schmp_estimators.lda.data.counts import changed
from schmp_estimators.lda.data.parcels import Parcel
from schmp_estimators.lda.data.topic_rows import cut_rows
from schmp_estimators.lda.kernels.exchange import MetLengths, merge_topics, read_lengths
from schmp_estimators.lda.kernels.warp import Steps, sample_met
from schmp_estimators.lda.programs.seeds import SeededWords, WordSeeds


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

    def _sample(
        self,
        at: At,
        jobs: list[tuple[int, int]],
        prior: np.float32,
        key: np.uint64,
        steps: Steps,
        seeded: SeededWords | None,
    ) -> int:
        """Do the word pass, of `seeded` words, too."""
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
        starts = {int(one.ctypes.data): one for one in self.tokens if len(one)}
        firsts, step = sorted(starts), _bytes_of_one(self.tokens[0])
        for begin, n in zip(self.lengths.begin[entries].tolist(), self.lengths.n_tokens[entries].tolist(), strict=True):
            start = firsts[bisect_right(firsts, begin) - 1]
            first = (begin - start) // step
            found.append(starts[start][first : first + n].reshape(-1))
        return found

    def sample(
        self,
        at: At,
        cut: Callable[[NDArray[np.int64]], list[tuple[int, int]]],
        prior: np.float32,
        key: np.uint64,
        steps: Steps,
        seeds: WordSeeds | None,
    ) -> int:
        """Do the word pass, in jobs as `cut` makes them, and return how many tokens moved; `tokens` is mutated."""
        at = at._replace(shard=self.owner)
        seeded = None if seeds is None else SeededWords.of(seeds, at, None)
        return self._sample(at, cut(self.ptr), prior, key, steps, seeded)


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


def _sample(
    at: At,
    jobs: Sequence[tuple[int, int]],
    lengths: MetLengths,
    tokens: NDArray[np.signedinteger],
    prior: np.float32,
    key: np.uint64,
    steps: Steps,
) -> int:
    """Do the word pass of the words of an owner, whose tokens are like those given."""
    words, like = (at.shard.word_first, at.shard.fixed), tokens[:0].reshape(-1)
    given = *words, lengths, like, at.model.inverse, prior, key, at.sweep == 0, steps
    return sum(at.each(lambda job: sample_met(*job, *given), jobs))
