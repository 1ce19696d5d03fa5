"""Words whose tokens have come from all shards: sampled as if one shard had them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard
from schmp_estimators.lda.data.topic_rows import cut_rows
from schmp_estimators.lda.kernels.exchange import MetLengths, merge_topics, read_lengths
from schmp_estimators.lda.kernels.warp_met import sample_met


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
        steps: tuple[int, ...],
    ) -> int:
        """Do the word pass, in jobs as `cut` makes them, and return how many tokens moved; `tokens` is mutated."""
        owner, flat, n_words = self.owner, self.tokens.reshape(-1), len(self.ptr) - 1
        home = int(owner.home[owner.number])
        begin = owner.block_ptr[owner.number] + home
        word_first = owner.word_first[begin : begin + n_words]
        given = word_first, freeze(cut_rows(owner.fixed, home, home + n_words)), self.lengths, flat

        def work(job: tuple[int, int]) -> int:
            moved: int = sample_met(*job, *given, at.model.inverse, prior, key, at.sweep == 0, steps)
            return moved

        return sum(at.each(work, cut(self.ptr)))
