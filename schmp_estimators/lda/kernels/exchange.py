"""Tokens of words that several shards have, put together word by word, and cut apart again.

How many tokens a shard has of which words of an owner travels as *coded lengths*: for every word that it has, in
ascending order, ``(words passed over since the last one) * 2 + (more than one token)``, then, if there are more, the
number of tokens less two; each number in 7 bits a byte, lowest first, the eighth bit set where more bytes follow.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import inlined, kernel

#: The most bytes that the coded length of a word may take.
MOST_BYTES = 10


class MetLengths(NamedTuple):
    """How many tokens each shard has of the words of an owner; an entry is a word and a shard that has some of it."""

    #: (n_entries,) words, ascending within a shard.
    word: NDArray[np.int32]
    #: (n_entries + 1,) where the tokens of an entry begin among those of all, shard after shard.
    begin: NDArray[np.int64]
    #: (n_shards + 1,) offsets of the shards among the entries.
    ptr: NDArray[np.int64]


@inlined
def put_number(value, at, out):
    """Write a number in 7 bits a byte, and return where the next one begins."""
    while value >= 128:
        out[at] = np.uint8(value & 127 | 128)
        value >>= 7
        at += 1
    out[at] = np.uint8(value)
    return at + 1


@inlined
def get_number(code, at):
    """Return a number that `put_number` has written, and where the next one begins."""
    value = np.int64(code[at] & 127)
    shift = 7
    while code[at] >= 128:
        at += 1
        value |= np.int64(code[at] & 127) << shift
        shift += 7
    return value, at + 1


@kernel
def code_lengths(word, n_tokens, out):
    """Code the lengths of words, and return how many bytes they take.

    Parameters
    ----------
    word : (n,) int64
        Words, ascending.
    n_tokens : (n,) int64
        Tokens of each, at least 1.
    out : (MOST_BYTES * n,) uint8
        Mutated.

    Notes
    -----
    3 ns per word.
    """
    at, last = 0, -1
    for i in range(len(word)):
        n = n_tokens[i]
        at = put_number((word[i] - last - 1) << 1 | (n > 1), at, out)
        if n > 1:
            at = put_number(n - 2, at, out)
        last = word[i]
    return at


@kernel
def read_lengths(code, ends, word, begin, ptr):
    """Read the coded lengths of all shards, and return how many entries they have.

    Parameters
    ----------
    code : (n_bytes,) uint8
        From `code_lengths`, shard after shard.
    ends : (n_shards,) int64
        Where those of each shard end.
    word, begin, ptr
        Mutated: as in `MetLengths`, with room for as many entries as there are bytes.

    Notes
    -----
    3 ns per entry.
    """
    entry = at = 0
    begin[0] = 0
    ptr[0] = 0
    for shard in range(len(ends)):
        last = -1
        while at < ends[shard]:
            value, at = get_number(code, at)
            last += 1 + (value >> 1)
            n = np.int64(1)
            if value & 1:
                n, at = get_number(code, at)
                n += 2
            word[entry] = last
            begin[entry + 1] = begin[entry] + n
            entry += 1
        ptr[shard + 1] = entry
    return entry


@kernel
def merge_tokens(first, last, lengths, cursor, pieces, width, merged):
    """Put the tokens of some words together: of each word those of the first shard, of the second, and so on.

    Parameters
    ----------
    first, last : int
        Range of words.
    lengths : MetLengths
        Of all words.
    cursor : (last - first,) int64
        Mutated: where each word begins in `merged`.
    pieces : (n_tokens * width,) int16 or int32
        Word-major tokens of the first shard, then those of the second, and so on.
    width : int
        Numbers that a token consists of.
    merged : (n_merged * width,) int16 or int32
        Mutated.

    Notes
    -----
    2 ns per token.
    """
    for shard in range(len(lengths.ptr) - 1):
        start, end = lengths.ptr[shard], lengths.ptr[shard + 1]
        entry = start + np.searchsorted(lengths.word[start:end], first)
        while entry < end and lengths.word[entry] < last:
            word = lengths.word[entry] - first
            at, n = lengths.begin[entry] * width, lengths.begin[entry + 1] - lengths.begin[entry]
            to = cursor[word] * width
            for i in range(n * width):
                merged[np.uint64(to + i)] = pieces[np.uint64(at + i)]
            cursor[word] += n
            entry += 1


@kernel
def cut_tokens(first, last, lengths, cursor, merged, width, pieces):
    """Do what undoes `merge_tokens`, with the same parameters; `pieces` is mutated instead of `merged`."""
    for shard in range(len(lengths.ptr) - 1):
        start, end = lengths.ptr[shard], lengths.ptr[shard + 1]
        entry = start + np.searchsorted(lengths.word[start:end], first)
        while entry < end and lengths.word[entry] < last:
            word = lengths.word[entry] - first
            to, n = lengths.begin[entry] * width, lengths.begin[entry + 1] - lengths.begin[entry]
            at = cursor[word] * width
            for i in range(n * width):
                pieces[np.uint64(to + i)] = merged[np.uint64(at + i)]
            cursor[word] += n
            entry += 1
