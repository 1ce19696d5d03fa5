"""Slices of words on disk: the tokens of all shards word by word, where the rows of all words are too large for memory.

The file of topics with proposals then has the tokens of the first slice of words, shard after shard, then those of the
second one: a slice is read at one go, a shard in one piece for each slice.  In a piece tokens are in word-major order,
so the pieces of a shard, one after the other, are as if there were no slices.  How many tokens a shard has of which
words of a slice is in a file ``lengths-<shard>``, coded as what shards in memory send each other (`kernels.exchange`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.store import Store
from schmp_estimators.lda.data.met_shards import code_words
from schmp_estimators.lda.data.packed import Packing


class Slices(NamedTuple):
    """Where the tokens of slices of words are, and the pieces of shards in them."""

    #: (n_slices + 1,) first words of the slices.
    words: NDArray[np.int64]
    #: (n_slices, n_shards) tokens of each piece, and the bytes where they begin.
    tokens: NDArray[np.int64]
    begin: NDArray[np.int64]
    #: (n_shards, n_slices + 1) offsets of the slices in the coded lengths of each shard.
    codes: NDArray[np.int64]

    def of_shard(self, number: int) -> list[tuple[int, int]]:
        """Return the byte where each piece of a shard begins, and its tokens."""
        return list(zip(self.begin[:, number].tolist(), self.tokens[:, number].tolist(), strict=True))


class SliceTokens(NamedTuple):
    """A slice of words in memory."""

    #: Topics with their proposals as they travel (`data.packed`), shard after shard.
    tokens: NDArray[Any]
    #: The same by shard, and how many are of which word.
    pieces: list[NDArray[Any]]
    lengths: list[NDArray[np.uint8]]


def code_slices(store: Store, number: int, word_ptr: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.int64]:
    """Write how many tokens a shard has of the words of each slice; return its tokens of slices, and bytes of codes."""
    lengths, codes = np.diff(word_ptr), []
    for first, last in pairwise(words.tolist()):
        codes.append(code_words(np.arange(last - first), lengths[first:last]))
    store.write(lengths_file(number), *codes)
    return np.array([np.diff(word_ptr[words]), [len(one) for one in codes]])


def make_slices(words: NDArray[np.int64], coded: Sequence[NDArray[np.int64]], token_bytes: int) -> Slices:
    """Return where all pieces are, given what `code_slices` has returned for every shard."""
    tokens, sizes = np.array([one[0] for one in coded]).T, np.array([one[1] for one in coded])
    ends = np.cumsum(tokens, axis=None).reshape(tokens.shape)
    codes = np.concatenate([np.zeros((len(sizes), 1), np.int64), np.cumsum(sizes, axis=1)], axis=1)
    return Slices(words, tokens, token_bytes * (ends - tokens), codes)


def lengths_file(number: int) -> str:
    """Return the name of the file of a shard's coded lengths."""
    return f"lengths-{number}"


def read_slice(
    store: Store, name: str, slices: Slices, number: int, packing: Packing, *, after: int | None = None
) -> SliceTokens:
    """Return a slice, whose tokens are for the caller to change.

    Parameters
    ----------
    store, name
        Where topics with proposals are.
    slices : Slices
        Of all words.
    number : int
        Of the slice.
    packing : Packing
        Of tokens.
    after : int, optional
        The slice that will be read next.
    """

    def loading(number: int) -> Callable[[], SliceTokens]:
        return lambda: _read(store, name, slices, number, packing)

    found: SliceTokens = store.take(("slice", number), loading(number))
    if after is not None:
        store.read_ahead(("slice", after), loading(after))
    return found


def _read(store: Store, name: str, slices: Slices, number: int, packing: Packing) -> SliceTokens:
    sizes, begin = slices.tokens[number], int(slices.begin[number, 0])
    tokens = packing.empty(int(sizes.sum()), begin)
    store.read(name, begin, tokens)
    lengths = []
    for shard, (first, last) in enumerate(slices.codes[:, number : number + 2].tolist()):
        code = np.empty(last - first, np.uint8)
        store.read(lengths_file(shard), first, code)
        lengths.append(code)
    return SliceTokens(tokens, np.split(tokens, np.cumsum(sizes)[:-1]), lengths)


def write_slice(store: Store, name: str, slices: Slices, number: int, tokens: NDArray[Any]) -> None:
    """Write the tokens of a slice where they were read, sooner or later."""
    store.settle()  # so that no more than one slice waits
    store.scribble_behind(name, int(slices.begin[number, 0]), tokens)
