"""The word pass of words whose tokens have come from all shards: as if one process had them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard
from schmp_estimators.lda.data.topic_rows import cut_rows
from schmp_estimators.lda.kernels.exchange import cut_tokens, merge_tokens
from schmp_estimators.lda.kernels.warp import sample_words


class MetWords(NamedTuple):
    """Words whose tokens are here."""

    #: (n_tokens, 1 + mh_steps) of the first shard, word-major, then of the second, and so on.
    tokens: NDArray[np.signedinteger]
    #: (n_words, n_shards) tokens of each word in each shard.
    lengths: NDArray[np.int32]
    #: (n_shards,) where the tokens of each shard begin.
    begins: NDArray[np.int64]
    #: (n_words + 1,) offsets of the words where all tokens of a word are together.
    ptr: NDArray[np.int64]
    #: The shard that owns the words.
    owner: TokenShard

    @classmethod
    def of(cls, at: At, tokens: NDArray[Any], counts: Sequence[int]) -> MetWords:
        """Return the words that a shard owns, with the tokens of all shards, which have so many."""
        lengths = at.shard.lengths
        begins, ptr = np.zeros(len(counts), np.int64), np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(counts[:-1], out=begins[1:])
        np.cumsum(lengths.sum(axis=1), out=ptr[1:])
        return cls(tokens, lengths, begins, ptr, at.shard)

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
            begins, lengths = self.begins + self.lengths[:first].sum(axis=0), self.lengths[first:last]
            together = np.empty((self.ptr[last] - self.ptr[first]) * width, flat.dtype)
            merge_tokens(lengths, begins.copy(), flat, width, together)
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
            cut_tokens(lengths, begins, together, width, flat)
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
