"""Words whose tokens have come from all shards: put together, and sampled, as if one process had them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard
from schmp_estimators.lda.data.topic_rows import cut_rows
from schmp_estimators.lda.kernels.exchange import MetLengths, cut_tokens, merge_tokens, read_lengths
from schmp_estimators.lda.kernels.warp import sample_words


class MetWords(NamedTuple):
    """Words whose tokens are here."""

    #: Tokens of the first shard, word-major, then of the second, and so on: (n_tokens, 1 + mh_steps), or their topics.
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
        return cls(np.concatenate(tokens), freeze(_lengths_of(codes)), ptr, owner)

    def together(self) -> NDArray[Any]:
        """Return the topics of all tokens, word after word; `tokens` are topics."""
        found = np.empty_like(self.tokens)
        merge_tokens(0, len(self.ptr) - 1, self.lengths, self.ptr[:-1].copy(), self.tokens, 1, found)
        return found

    def sample(
        self,
        at: At,
        cut: Callable[[NDArray[np.int64]], list[tuple[int, int]]],
        prior: np.float32,
        key: np.uint64,
        steps: tuple[int, ...],
    ) -> int:
        """Do the word pass, in jobs as `cut` makes them, and return how many tokens moved; `tokens` is mutated."""
        flat, width = self.tokens.reshape(-1), 1 + len(steps)

        def work(job: tuple[int, int]) -> int:
            first, last = job
            begins = self.ptr[first:last] - self.ptr[first]
            together = np.empty((self.ptr[last] - self.ptr[first]) * width, flat.dtype)
            merge_tokens(first, last, self.lengths, begins.copy(), flat, width, together)
            moved: int = sample_words(
                0,
                last - first,
                self._shard_of(first, last),
                together,
                at.model.inverse,
                prior,
                key,
                at.sweep == 0,
                steps,
            )
            cut_tokens(first, last, self.lengths, begins, together, width, flat)
            return moved

        return sum(at.each(work, cut(self.ptr)))

    def _shard_of(self, first: int, last: int) -> TokenShard:
        """Return a shard that has some of the words, and all tokens of them."""
        owner = self.owner
        home = owner.home[owner.number]
        begin = owner.block_ptr[owner.number] + home
        return freeze(
            owner._replace(
                word_ptr=self.ptr[first : last + 1] - self.ptr[first],
                word_first=owner.word_first[begin + first : begin + last],
                fixed=cut_rows(owner.fixed, home + first, home + last),
            )
        )


def _lengths_of(codes: Sequence[NDArray[np.uint8]]) -> MetLengths:
    """Return the lengths that all shards have coded."""
    ends, code = np.cumsum([len(one) for one in codes]), np.concatenate(codes)
    word, begin = np.empty(len(code), np.int32), np.empty(len(code) + 1, np.int64)
    ptr = np.empty(len(codes) + 1, np.int64)
    n = read_lengths(freeze(code), freeze(ends), word, begin, ptr)
    return MetLengths(word[:n], begin[: n + 1], ptr)
