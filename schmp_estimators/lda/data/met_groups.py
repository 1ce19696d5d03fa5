"""Groups that exchange tokens through files, where neither tokens nor the rows of words fit into the memory of workers.

Each group owns a block of words, which is cut into slices.  Its own tokens are in one file, ``drawn-<sweeps done>``,
by owner, slice of words and slice of documents, so that an owner reads what a group has of a slice at one go; how many
they are of which word is in a file ``lengths``, in the same order.  What an owner has sampled it writes to a file of
its own, ``met-<sweep>``, by group, slice of documents and slice of words, so that a group reads what an owner has of a
slice of documents at one go.  So tokens cross the network twice in a sweep, as where they are exchanged in memory, but
as whoever needs them asks for them: a slice at a time.

For a look at words, topics are written by slice of words to ``words-<sweeps done>``, and rows of words to files
``rows-<slice>-<sweeps done>``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.places.disks import Disk, Held
from schmp_estimators.core.store import Store
from schmp_estimators.lda.data.packed import Packing
from schmp_estimators.lda.data.partition import cut_documents
from schmp_estimators.lda.data.spilled_words import Slices, SliceTokens, lengths_file, make_slices
from schmp_estimators.lda.data.tokens import Layout

#: How files begin that are of a look at words after so many sweeps, which are the number at the end of their names.
OF_A_SWEEP = ("words-", "rows-")
_LENGTHS, _SIZES = "lengths", "sizes"


class WordSlices(NamedTuple):
    """How the words of all owners are cut."""

    #: (n_slices + 1,) first words of the slices, in layout order.
    words: NDArray[np.int64]
    #: (n_shards + 1,) numbers of the first slices of owners.
    firsts: NDArray[np.int64]


class Exchange(NamedTuple):
    """Where a group has the tokens of slices of words, and how many of which word."""

    #: Of its slices of documents.
    slices: Slices
    #: (n_slices, n_slices of documents + 1) offsets in the file of lengths.
    codes: NDArray[np.int64]
    #: (n_shards + 1,) as in `WordSlices`.
    firsts: NDArray[np.int64]


class GroupPiece(NamedTuple):
    """What a group has for the owner of some slices of words."""

    tokens: Held
    lengths: Held
    #: (n_slices,) bytes where the slices begin, (n_slices, n_slices of documents) tokens in them.
    begin: NDArray[np.int64]
    sizes: NDArray[np.int64]
    #: (n_slices, n_slices of documents + 1) as in `Exchange`.
    codes: NDArray[np.int64]


class GroupAnswer(NamedTuple):
    """What an owner has for a group: its tokens, sampled."""

    tokens: Held
    #: (n_slices of documents,) bytes where they begin, and how many they are.
    begin: NDArray[np.int64]
    sizes: NDArray[np.int64]
    #: Tokens that moved to another topic; those of all groups in the answer to the first one.
    moved: int


def cut_words(layout: Layout, word_totals: NDArray[np.int64], n_slices: int) -> WordSlices:
    """Cut the words of each block into up to so many slices of about equal numbers of tokens."""
    words, firsts = [np.zeros(1, np.int64)], [0]
    for first, last in pairwise(layout.block_ptr.tolist()):
        n = max(1, min(n_slices, last - first))
        words.append(first + cut_documents(word_totals[layout.column[first:last]], n)[1:])
        firsts.append(firsts[-1] + n)
    return WordSlices(np.concatenate(words), np.array(firsts, np.int64))


def gather_codes(store: Store, coded: Sequence[NDArray[np.int64]]) -> None:
    """Put the coded lengths of all slices of documents into one file, given what `code_slices` returned for each."""
    sizes, at = np.array([one[1] for one in coded]), 0
    begin = np.cumsum(sizes, axis=1) - sizes
    store.allocate(_LENGTHS, int(sizes.sum()))
    for of_slice, firsts in zip(sizes.T.tolist(), begin.T.tolist(), strict=True):
        codes = np.empty(sum(of_slice), np.uint8)
        for number, (first, piece) in enumerate(zip(firsts, np.split(codes, np.cumsum(of_slice)[:-1]), strict=True)):
            store.read(lengths_file(number), first, piece)
        store.write_at(_LENGTHS, at, codes)
        at += len(codes)
    store.write(_SIZES, np.array(coded, np.int64))
    store.remove(lambda name: not name.startswith(lengths_file(0)[:-1]))


def read_exchange(store: Store, words: WordSlices, n_slices: int, token_bytes: int) -> Exchange:
    """Return where all tokens are of a group with so many slices of documents."""
    coded = np.empty((n_slices, 2, len(words.words) - 1), np.int64)
    store.read(_SIZES, 0, coded)
    sizes = np.ascontiguousarray(coded[:, 1].T)
    ends = np.cumsum(sizes, axis=None).reshape(sizes.shape)
    codes = np.concatenate([(ends - sizes)[:, :1], ends], axis=1)
    return Exchange(make_slices(words.words, list(coded), token_bytes), codes, words.firsts)


def cut_pieces(disk: Disk, number: int, exchange: Exchange, name: str, *, shorter: int = 1) -> list[GroupPiece]:
    """Return what a group has for each owner.

    Parameters
    ----------
    disk, number
        Of the group.
    exchange : Exchange
    name : str
        The file of its tokens.
    shorter : int, default=1
        By what factor that is shorter than one of topics with proposals.
    """
    tokens, lengths = disk.held(number, name), disk.held(number, _LENGTHS)
    begin, sizes = exchange.slices.begin[:, 0] // shorter, exchange.slices.tokens
    found = []
    for first, last in pairwise(exchange.firsts.tolist()):
        some = slice(first, last)
        found.append(GroupPiece(tokens, lengths, begin[some], sizes[some], exchange.codes[some]))
    return found


class Meeting:
    """The tokens that all groups have of an owner's words, which are read slice by slice.

    Parameters
    ----------
    disk, number
        Of the owner.
    pieces : sequence of GroupPiece
        Of all groups.
    packing : Packing
        Of tokens.
    """

    def __init__(self, disk: Disk, number: int, pieces: Sequence[GroupPiece], packing: Packing) -> None:
        self._number, self._pieces, self._packing = number, pieces, packing
        self._readers = [(disk.reader(piece.tokens), disk.reader(piece.lengths)) for piece in pieces]
        self.n_slices = len(pieces[0].begin)

    def read(self, store: Store, number: int) -> SliceTokens:
        """Return a slice, whose tokens, as they travel, are for the caller to change; the next is read meanwhile."""
        found: SliceTokens = store.take(("slice", number), self._loading(number))
        if number + 1 < self.n_slices:
            store.read_ahead(("slice", number + 1), self._loading(number + 1))
        return found

    def _loading(self, number: int) -> Callable[[], SliceTokens]:
        return lambda: self._read(number)

    def _read(self, number: int) -> SliceTokens:
        sizes = [piece.sizes[number] for piece in self._pieces]
        begin = [int(piece.begin[number]) for piece in self._pieces]
        tokens, of_groups = _room([int(some.sum()) for some in sizes], begin, self._number, self._packing)
        lengths = [[np.zeros(0, np.uint8)] * len(some) for some in sizes]
        for n in _from(self._number, len(sizes)):
            if len(of_groups[n]):
                read_tokens, read_lengths = self._readers[n]
                read_tokens(begin[n], of_groups[n])
                codes = self._pieces[n].codes[number]
                of_lengths = np.empty(codes[-1] - codes[0], np.uint8)
                read_lengths(int(codes[0]), of_lengths)
                lengths[n] = np.split(of_lengths, codes[1:-1] - codes[0])
        cuts = np.cumsum(np.concatenate(sizes))[:-1]
        return SliceTokens(tokens, np.split(tokens, cuts), [one for of_group in lengths for one in of_group])


class Sampled:
    """Where an owner writes the tokens that it has sampled: for each group by slice of documents.

    Parameters
    ----------
    pieces : sequence of GroupPiece
        Of all groups.
    packing : Packing
        Of tokens.
    """

    def __init__(self, pieces: Sequence[GroupPiece], packing: Packing) -> None:
        self._sizes = np.concatenate([piece.sizes for piece in pieces], axis=1).T
        nbytes = packing.nbytes * self._sizes
        self._begin = (np.cumsum(nbytes, axis=None).reshape(nbytes.shape)) - nbytes
        self._cuts = np.cumsum([piece.sizes.shape[1] for piece in pieces])[:-1]
        self.nbytes = int(nbytes.sum())

    def write(self, store: Store, name: str, number: int, pieces: Sequence[NDArray[Any]]) -> None:
        """Write a slice of words, the tokens of each slice of documents, sooner or later."""
        store.settle()  # so that no more than one slice waits
        for at, piece in zip(self._begin[:, number].tolist(), pieces, strict=True):
            if len(piece):
                store.scribble_behind(name, at, piece)

    def answers(self, tokens: Held, moved: int) -> list[GroupAnswer]:
        """Return what there is for each group, in a file."""
        begin, sizes = (np.split(one, self._cuts) for one in (self._begin[:, 0], self._sizes.sum(axis=1)))
        return [
            GroupAnswer(tokens, *given, 0 if number else moved)
            for number, given in enumerate(zip(begin, sizes, strict=True))
        ]


class Coming:
    """The tokens of a group that owners have sampled, which are read by slice of documents.

    Parameters
    ----------
    disk, number
        Of the group.
    answers : sequence of GroupAnswer
        Of all owners.
    packing : Packing
        Of tokens.
    """

    def __init__(self, disk: Disk, number: int, answers: Sequence[GroupAnswer], packing: Packing) -> None:
        self._number, self._answers, self._packing = number, answers, packing
        self._readers = [disk.reader(answer.tokens) for answer in answers]
        self.moved = sum([answer.moved for answer in answers])

    def read(self, number: int) -> NDArray[Any]:
        """Return the tokens of a slice, (n_tokens, width) and word-major, for the caller to change."""
        sizes = [int(answer.sizes[number]) for answer in self._answers]
        begin = [int(answer.begin[number]) for answer in self._answers]
        packing = self._packing
        tokens, of_owners = _room(sizes, begin, self._number, packing.plain)
        for n in _from(self._number, len(sizes)):
            if len(of_owners[n]):
                travelled = packing.empty(sizes[n], begin[n]) if packing.bits else of_owners[n]
                self._readers[n](begin[n], travelled)
                packing.unpack(travelled, of_owners[n])  # one after the other: they are there twice
        return tokens


def _room(
    sizes: Sequence[int], begin: Sequence[int], own: int, packing: Packing
) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Return an array for so many tokens of each group, and what is for each of them.

    What is read on this worker lies as it does in its file; what comes from others is copied in any case.
    """
    tokens = packing.empty(sum(sizes), begin[own] - packing.nbytes * sum(sizes[:own]))
    return tokens, np.split(tokens, np.cumsum(sizes)[:-1])


def _from(own: int, n: int) -> list[int]:
    """Return all groups, from the next one on, so that not all read from the same worker at the same time."""
    return [*range(own + 1, n), *range(own + 1)]
