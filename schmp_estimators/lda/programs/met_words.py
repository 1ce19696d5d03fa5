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
from schmp_estimators.lda.data.topic_rows import cut_rows
from schmp_estimators.lda.kernels.exchange import MetLengths, merge_topics, read_lengths
from schmp_estimators.lda.kernels.packed import pack_pieces, unpack_pieces
from schmp_estimators.lda.kernels.warp import Steps
from schmp_estimators.lda.kernels.warp_met import sample_met
from schmp_estimators.lda.programs.jobs import cut_jobs

#: Packed tokens that are unpacked at a time, or a quarter of the topics, if these are more: rows of all topics, which
#: are made anew for each such slice, then take little time beside it.
_AT_ONCE = 1 << 18


class MetWords(NamedTuple):
    """Words whose tokens are here."""

    #: Tokens of the first shard, word-major, then of the second, and so on: (n_tokens, 1 + mh_steps), or (n_tokens,)
    #: packed, or their topics.
    tokens: NDArray[np.signedinteger]
    lengths: MetLengths
    #: (n_words + 1,) offsets of the words where all tokens of a word are together.
    ptr: NDArray[np.int64]
    #: The shard that owns the words.
    owner: TokenShard

    @classmethod
    def of(cls, at: At, tokens: Sequence[NDArray[Any]], codes: Sequence[NDArray[np.uint8]]) -> MetWords:
        """Return the words that a shard owns, given the tokens of all shards with their coded lengths."""
        starts = np.cumsum([0, *map(len, tokens)])
        return cls(np.concatenate(tokens), *_words_of(at.shard, codes, starts[:-1], 1), at.shard)

    def together(self) -> NDArray[Any]:
        """Return the topics of all tokens, word after word; `tokens` are topics."""
        found = np.empty_like(self.tokens)
        merge_topics(self.lengths, freeze(self.tokens), found)
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
            where = _addresses(self.tokens, self.lengths.begin)
            return _sample(at, cut(self.ptr), self.lengths._replace(begin=where), self.tokens, prior, key, steps)
        owner, flat, at_once = self.owner, self.tokens.reshape(-1), max(_AT_ONCE, len(at.model.inverse) // 4)
        given = at.model.inverse, prior, key, at.sweep == 0, steps

        def work(job: tuple[int, int]) -> int:
            ptr, moved = self.ptr[job[0] : job[1] + 1], 0
            slices = [(job[0] + a, job[0] + b) for a, b in cut_jobs(ptr, at_once, len(ptr))]
            room = packing.room(max([self.ptr[b] - self.ptr[a] for a, b in slices], default=0))
            for first, last in slices:
                begins, n_words = self.ptr[first : last + 1] - self.ptr[first], last - first
                tokens = room[: begins[-1]].reshape(-1)
                where = _addresses(room, begins[:-1])
                pieces = *self.lengths.ptr[[first, last]].tolist(), self.lengths, packing.width, packing.bits
                unpack_pieces(*pieces, freeze(flat), tokens)
                together = MetLengths(np.arange(n_words + 1), where, np.diff(begins).astype(np.uint32))
                moved += sample_met(0, n_words, *_of_words(owner, first, last), freeze(together), tokens[:0], *given)
                pack_pieces(*pieces, freeze(tokens), flat)
            return moved

        return sum(at.each(work, cut(self.ptr)))


def sample_here(
    at: At,
    shards: Sequence[TokenShard],
    tokens: Sequence[NDArray[np.signedinteger]],
    cut: Callable[[NDArray[np.int64]], list[tuple[int, int]]],
    prior: np.float32,
    key: np.uint64,
    steps: Steps,
) -> int:
    """Do the word pass of the words that a shard owns on the tokens of all shards, which are mutated."""
    number, home = at.number, int(at.shard.home[at.number])
    codes, starts, nbytes = [], [], _bytes_of_one(tokens[0])
    for shard, of_shard in zip(shards, tokens, strict=True):
        codes.append(shard.sent[shard.sent_ptr[number] : shard.sent_ptr[number + 1]])
        starts.append(of_shard.ctypes.data + int(shard.word_ptr[shard.block_ptr[number] + home]) * nbytes)
    lengths, ptr = _words_of(at.shard, codes, np.array(starts, np.int64), nbytes)
    return _sample(at, cut(ptr), lengths, tokens[0], prior, key, steps)


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
    return tokens.shape[1] * tokens.itemsize


def _addresses(tokens: NDArray[Any], begin: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the addresses of some tokens."""
    return freeze(begin * _bytes_of_one(tokens) + tokens.ctypes.data)


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
