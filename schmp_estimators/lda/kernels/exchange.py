"""Words of which several shards have tokens: how many each has, and topics put together word by word.

How many tokens a shard has of which words of an owner travels as *coded lengths*: for every word that it has, in
ascending order, ``(words passed over since the last one) * 2 + (more than one token)``, then, if there are more, the
number of tokens less two; each number in 7 bits a byte, lowest first, the eighth bit set where more bytes follow.

A token travels as its topic and its proposals in one number of 64 bits, where they fit and that is shorter.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.addresses import array_at
from schmp_estimators.core.jit import inlined, kernel

#: The most bytes that the coded length of a word may take.
MOST_BYTES = 10


class MetLengths(NamedTuple):
    """How many tokens each shard has of the words of an owner; an entry is a word and a shard that has some of it."""

    #: (n_words + 1,) offsets of the words among the entries; those of a word are in the order of the shards.
    ptr: NDArray[np.int64]
    #: (n_entries,) where the tokens of an entry begin: among those of all, shard after shard, or their address.
    begin: NDArray[np.int64]
    #: (n_entries,) how many they are.
    n_tokens: NDArray[np.uint32]


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


@inlined
def get_length(code, at, word):
    """Return the word that follows `word` in a code, the number of its tokens, and where the next one begins."""
    value, at = get_number(code, at)
    n = np.int64(1)
    if value & 1:
        n, at = get_number(code, at)
        n += 2
    return word + 1 + (value >> 1), n, at


@kernel
def read_lengths(code, ends, starts, step, n_words):
    """Return the coded lengths of all shards, word by word, as the three arrays of `MetLengths`.

    Parameters
    ----------
    code : (n_bytes,) uint8
        From `code_lengths`, shard after shard.
    ends : (n_shards,) int64
        Where those of each shard end.
    starts : (n_shards,) int64
        Where the tokens of each shard begin.
    step : int
        How far it is from one token to the next one.
    n_words : int
        Words of the owner.

    Notes
    -----
    8 ns per entry.
    """
    ptr = np.zeros(n_words + 1, np.int64)
    at = 0
    for shard in range(len(ends)):
        word = np.int64(-1)
        while at < ends[shard]:
            word, n, at = get_length(code, at, word)
            ptr[word + 1] += 1
    for word in range(n_words):
        ptr[word + 1] += ptr[word]
    cursor = ptr[:-1].copy()
    begin, n_tokens = np.empty(ptr[-1], np.int64), np.empty(ptr[-1], np.uint32)
    at = 0
    for shard in range(len(ends)):
        word, token = np.int64(-1), starts[shard]
        while at < ends[shard]:
            word, n, at = get_length(code, at, word)
            begin[cursor[word]] = token
            n_tokens[cursor[word]] = n
            cursor[word] += 1
            token += n * step
    return ptr, begin, n_tokens


@kernel
def merge_topics(lengths, merged):
    """Put the topics of words together: of each word those of the first shard, of the second, and so on.

    Parameters
    ----------
    lengths : MetLengths
        With addresses of topics of the type of `merged`.
    merged : (n_tokens,) int16 or int32
        Mutated.

    Notes
    -----
    1 ns per token.
    """
    to = 0
    for entry in range(len(lengths.begin)):
        n = np.int64(lengths.n_tokens[entry])
        topics = array_at(lengths.begin[entry], n, merged)
        for i in range(n):
            merged[np.uint64(to + i)] = topics[np.uint64(i)]
        to += n


@kernel
def pack_tokens(tokens, width, bits, packed):
    """Write the numbers of each token into one.

    Parameters
    ----------
    tokens : (n_tokens * width,) int32
        Topics and proposals, none of them negative.
    width : int
        Numbers that a token consists of.
    bits : int
        Bits that each of them has; ``width * bits`` is no more than 64.
    packed : (n_tokens,) uint64
        Mutated.

    Notes
    -----
    1 ns per token.
    """
    for i in range(len(packed)):
        value = np.uint64(0)
        for j in range(width):
            value |= np.uint64(tokens[np.uint64(i * width + j)]) << np.uint64(j * bits)
        packed[np.uint64(i)] = value


@kernel
def unpack_tokens(packed, width, bits, tokens):
    """Do what undoes `pack_tokens`, with the same parameters; `tokens` is mutated instead of `packed`."""
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    for i in range(len(packed)):
        for j in range(width):
            tokens[np.uint64(i * width + j)] = (packed[np.uint64(i)] >> np.uint64(j * bits)) & mask
