"""Tokens on their way: a topic and its proposals in one number of 64 bits, where they fit and that is shorter."""

import numpy as np

from schmp_estimators.core.jit import inlined, kernel


@inlined
def _pack(tokens, at, width, bits):
    value = np.uint64(0)
    for j in range(width):
        value |= np.uint64(tokens[np.uint64(at * width + j)]) << np.uint64(j * bits)
    return value


@inlined
def _unpack(value, width, bits, tokens, at):
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    for j in range(width):
        tokens[np.uint64(at * width + j)] = (value >> np.uint64(j * bits)) & mask


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
        packed[np.uint64(i)] = _pack(tokens, i, width, bits)


@kernel
def unpack_tokens(packed, width, bits, tokens):
    """Do what undoes `pack_tokens`, with the same parameters; `tokens` is mutated instead of `packed`."""
    for i in range(len(packed)):
        _unpack(packed[np.uint64(i)], width, bits, tokens, i)


@kernel
def unpack_pieces(first, last, lengths, width, bits, packed, tokens):
    """Unpack the tokens of some words that several shards have, so that those of a word are together.

    Parameters
    ----------
    first, last : int
        Range of entries of `lengths`.
    lengths : MetLengths
    width, bits : int
        As in `pack_tokens`.
    packed : (n_tokens,) uint64
        Tokens of all words of the first shard, then those of the second, and so on.
    tokens : (n * width,) int32
        Mutated.

    Notes
    -----
    2 ns per token.
    """
    to = 0
    for entry in range(first, last):
        begin, n = lengths.begin[entry], np.int64(lengths.n_tokens[entry])
        for i in range(n):
            _unpack(packed[np.uint64(begin + i)], width, bits, tokens, to + i)
        to += n


@kernel
def pack_pieces(first, last, lengths, width, bits, tokens, packed):
    """Do what undoes `unpack_pieces`, with the same parameters; `packed` is mutated instead of `tokens`."""
    at = 0
    for entry in range(first, last):
        begin, n = lengths.begin[entry], np.int64(lengths.n_tokens[entry])
        for i in range(n):
            packed[np.uint64(begin + i)] = _pack(tokens, at + i, width, bits)
        at += n
