"""First topics of tokens: uniform ones, and those of seed words.

A token is known by its number in the corpus, so that topics do not depend on how documents are divided among shards.
This is NumPy, some tokens at a time: a kernel would take longer to compile than most corpora take here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.rng import GAMMA, below, mix, unit
from schmp_estimators.lda.blocks import TokenShard
from schmp_estimators.lda.kernels.priors import SeedRows

#: Tokens whose topics are drawn at a time: what is made for them stays in the cache.
_AT_ONCE = 1 << 14


def _some_tokens(n_tokens: int, first_token: int, key: np.uint64) -> Iterator[tuple[slice, NDArray[np.uint64]]]:
    """Give tokens of a shard, in document order: which they are, and random bits of each."""
    for begin in range(0, n_tokens, _AT_ONCE):
        end = min(n_tokens, begin + _AT_ONCE)
        address = np.arange(first_token + begin, first_token + end, dtype=np.uint64)
        yield slice(begin, end), mix.py_func(key + address * GAMMA)


def words_of_places(shard: TokenShard) -> NDArray[np.int32]:
    """Return the word of each place in word-major order: 4 bytes for a token."""
    return np.repeat(np.arange(len(shard.word_ptr) - 1, dtype=np.int32), np.diff(shard.word_ptr))


def draw_uniform_topics(first_token: int, key: np.uint64, n_topics: int, out: NDArray[Any]) -> None:
    """Write a uniform topic for every token of a shard, in document order; token i is number `first_token` + i."""
    for span, bits in _some_tokens(len(out), first_token, key):
        out[span] = below.py_func(bits, n_topics)


def draw_of_seeds(shard: TokenShard, seeds: SeedRows, key: np.uint64, out: NDArray[Any]) -> None:
    """Draw the first topics of tokens of seed words; other tokens keep theirs.

    Parameters
    ----------
    shard : TokenShard
        Any; a token is known by its number in the corpus.
    seeds : SeedRows
        Of all words.
    key : uint64
        Stream of random numbers.
    out : (n_tokens,) int16 or int32
        Mutated: topics in document order.
    """
    number_of = seeds.number[words_of_places(shard)]
    ends = np.append(0.0, np.cumsum(seeds.weight))
    for span, bits in _some_tokens(len(out), shard.first_token, key):
        number = number_of[shard.place[span]]
        seeded = np.flatnonzero(number >= 0)
        first, last = seeds.ptr[number[seeded]], seeds.ptr[number[seeded] + 1]
        y = ends[first] + unit.py_func(bits[seeded]) * (ends[last] - ends[first])
        found = np.minimum(np.searchsorted(ends, y, side="right") - 1, last - 1)
        out[seeded + span.start] = seeds.topic[found]
