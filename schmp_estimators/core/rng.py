"""Addressed random numbers: a value is a hash of the place where it is used.

It is not the next number of a stream.

A kernel computes the bits for (seed, sweep, pass, token, draw) where it needs them, so the bits
depend neither on the order in which tokens are visited nor on how they are divided between workers.
The hash is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014).
"""

import numpy as np

from schmp_estimators.core.jit import inlined

GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)
_S11, _S27, _S30, _S31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)

#: The upper 24 bits of a hash make the uniform number of an acceptance test, the lower 40 that of a
#: proposal.
SHIFT_ACCEPT = np.uint64(40)
MASK_PROPOSE = np.uint64((1 << 40) - 1)
SCALE_ACCEPT = np.float32(2.0**-24)
SCALE_PROPOSE = 2.0**-40


@inlined
def mix(x):
    """Return the SplitMix64 finaliser of the uint64 `x`; 0.5 ns.

    It is a bijection that mixes all input bits.
    """
    x = (x ^ (x >> _S30)) * _FIRST
    x = (x ^ (x >> _S27)) * _SECOND
    return x ^ (x >> _S31)


@inlined
def unit(bits):
    """Return a number in [0, 1), made of the upper 53 of 64 random bits."""
    return np.float64(np.int64(bits >> _S11)) * 2.0**-53


@inlined
def uniform40(bits):
    """Return a number in [0, 1), made of the lower 40 of 64 random bits."""
    return np.float64(np.int64(bits & MASK_PROPOSE)) * SCALE_PROPOSE


@inlined
def below(bits, n):
    """Return a number from 0 to n - 1, as uint64, made of the upper 32 of 64 random bits."""
    return (bits >> _HALF) * np.uint64(n) >> _HALF


def stream_key(*words: int) -> np.uint64:
    """Hash integers, for example (seed, sweep, pass), into a uint64 key.

    A kernel addresses its draws under this key.

    Every integer is mixed in separately, so that keys of different passes are unrelated.
    """
    key = 0x243F6A8885A308D3
    of_64_bits = (1 << 64) - 1
    for word in words:
        key = (key ^ (word & of_64_bits)) + 0x9E3779B97F4A7C15 & of_64_bits
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            key = (key ^ (key >> shift)) * factor & of_64_bits
        key ^= key >> 31
    return np.uint64(key)
