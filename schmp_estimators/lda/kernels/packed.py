"""Tokens on their way: a topic and its proposals in one number of 64 bits, where they fit and that is shorter."""

import numpy as np

from schmp_estimators.core.jit import inlined, kernel


@inlined
def pack_token(tokens, at, width, bits):
    """Return the numbers of token `at` in one."""
    value = np.uint64(0)
    for j in range(width):
        value |= np.uint64(tokens[np.uint64(at * width + j)]) << np.uint64(j * bits)
    return value


@inlined
def unpack_token(value, width, bits, tokens, at):
    """Write the numbers in `value` to token `at`."""
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
        packed[np.uint64(i)] = pack_token(tokens, i, width, bits)


@kernel
def unpack_tokens(packed, width, bits, tokens):
    """Do what undoes `pack_tokens`, with the same parameters; `tokens` is mutated instead of `packed`."""
    for i in range(len(packed)):
        unpack_token(packed[np.uint64(i)], width, bits, tokens, i)
