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
        owner = at.shard
        begin, end = owner.block_ptr[owner.number] + owner.home[owner.number], owner.block_ptr[owner.number + 1]
        ptr = np.zeros(end - begin + 1, np.int64)
        np.cumsum(owner.word_total[begin:end], out=ptr[1:])
        ends, code = np.cumsum([len(one) for one in codes]), np.concatenate(codes)
        lengths = MetLengths(*freeze(read_lengths(freeze(code), freeze(ends), end - begin)))
        return cls(np.concatenate(tokens), lengths, ptr, owner)

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
        owner, flat, at_once = self.owner, self.tokens.reshape(-1), max(_AT_ONCE, len(at.model.inverse) // 4)
        home = int(owner.home[owner.number])
        word_first = owner.word_first[owner.block_ptr[owner.number] + home :]
        given = at.model.inverse, prior, key, at.sweep == 0, steps

        def fixed(first: int, last: int) -> TopicRows:
            rows: TopicRows = freeze(cut_rows(owner.fixed, home + first, home + last))
            return rows

        every = fixed(0, len(self.ptr) - 1)

        def work(job: tuple[int, int]) -> int:
            if not packing.bits:
                found: int = sample_met(*job, word_first, every, self.lengths, flat, *given)
                return found
            ptr, moved = self.ptr[job[0] : job[1] + 1], 0
            slices = [(job[0] + a, job[0] + b) for a, b in cut_jobs(ptr, at_once, len(ptr))]
            room = packing.room(max([self.ptr[b] - self.ptr[a] for a, b in slices], default=0))
            for first, last in slices:
                begins, n_words = self.ptr[first : last + 1] - self.ptr[first], last - first
                tokens = room[: begins[-1]].reshape(-1)
                pieces = *self.lengths.ptr[[first, last]].tolist(), self.lengths, packing.width, packing.bits
                unpack_pieces(*pieces, freeze(flat), tokens)
                together = MetLengths(np.arange(n_words + 1), begins[:-1], np.diff(begins).astype(np.uint32))
                given_words = 0, n_words, word_first[first:], fixed(first, last), freeze(together)
                moved += sample_met(*given_words, tokens, *given)
                pack_pieces(*pieces, freeze(tokens), flat)
            return moved

        return sum(at.each(work, cut(self.ptr)))
