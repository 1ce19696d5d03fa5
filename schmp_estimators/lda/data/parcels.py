"""Tokens on their way to one other shard, so that there are hardly more of them than once in a process.

A parcel begins as a view of a shard's tokens.  It is packed when it leaves the process, not before, and comes out as an
array that nobody else has: whoever gets it works on it in place, and it can go before the next one is looked at.
It is for one reader only: who reads it a second time finds that it has been used up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.errors import WorkLostError
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.kernels.exchange import pack_tokens, unpack_tokens


class Parcel:
    """Tokens for one shard.

    Parameters
    ----------
    tokens : array of shape (n_tokens, width), or (n_tokens,) topics
        Not written to by the parcel, or by whoever it is for, as long as it is in this process.
    packing : Packing
        How they travel.
    lengths : (n_bytes,) uint8, optional
        How many tokens they are of which word; see `kernels.exchange`.
    """

    def __init__(self, tokens: NDArray[Any] | None, packing: Packing, lengths: NDArray[np.uint8] | None = None) -> None:
        self._tokens, self._packing, self._has_come = tokens, packing, False
        self.lengths = np.zeros(0, np.uint8) if lengths is None else lengths

    def take(self) -> NDArray[Any]:
        """Return the tokens, contiguous and where numbers should be, to be written to.

        Raises
        ------
        WorkLostError
            If they came from another process, and were taken or read before.
        """
        tokens, packing = self._given(), self._packing
        if self._has_come and packing.bits:
            found = np.empty((len(tokens), packing.width), packing.dtype)
            packing.write(tokens, found)
            return found
        if self._has_come and tokens.flags.carray and tokens.dtype == packing.dtype:
            return tokens
        return np.array(tokens, packing.dtype, order="C")

    def write(self, tokens: NDArray[Any]) -> None:
        """Write the tokens, unpacked, to `tokens`; raises as `take`."""
        given = self._given()
        if self._has_come and self._packing.bits:
            self._packing.write(given, tokens)
        elif given.ctypes.data != tokens.ctypes.data:  # else they are there, in a file
            tokens[:] = given

    def _given(self) -> NDArray[Any]:
        tokens = self._tokens
        if tokens is None:
            raise WorkLostError("tokens that have come from another shard were used before")
        if self._has_come:
            self._tokens = None
        return tokens

    def _as_packed(self, tokens: NDArray[Any]) -> NDArray[Any]:
        return tokens if self._has_come else self._packing.pack(tokens)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pack the tokens; lengths travel with the text, so that they do not keep the tokens' buffer alive."""
        packed = None if self._tokens is None else self._as_packed(self._tokens)
        return _come, (packed, self._packing, self.lengths.tobytes())

    def __sizeof__(self) -> int:
        """Return the bytes that travel."""
        n_bytes = 0 if self._tokens is None else len(self._tokens) * self._packing.nbytes
        return object.__sizeof__(self) + self.lengths.nbytes + n_bytes


def _come(tokens: NDArray[Any] | None, packing: Packing, lengths: bytes) -> Parcel:
    parcel = Parcel(tokens, packing, np.frombuffer(lengths, np.uint8))
    parcel._has_come = True
    return parcel


class Packing(NamedTuple):
    """How a topic and its proposals are put into one number."""

    #: Numbers of a token.
    width: int
    #: Bits that each of them gets; 0 if tokens are not packed.
    bits: int
    #: Of the numbers of tokens where they are used, and on the way, if they are not packed.
    dtype: np.dtype[Any]
    shortest: np.dtype[Any]

    @classmethod
    def of(cls, n_topics: int, width: int, dtype: Any) -> Packing:
        """Return how tokens of so many numbers travel, in fewest bytes."""
        bits, shortest = (n_topics - 1).bit_length(), np.min_scalar_type(n_topics - 1)
        is_packed = width * bits <= 64 < 8 * width * shortest.itemsize
        return cls(width, bits if is_packed else 0, np.dtype(dtype), shortest)

    @property
    def nbytes(self) -> int:
        """Bytes of a token on its way."""
        return 8 if self.bits else self.width * self.shortest.itemsize

    def pack(self, tokens: NDArray[Any]) -> NDArray[Any]:
        """Return tokens (n_tokens, width) as they travel, packed or not, contiguous."""
        if not self.bits:
            return tokens.astype(self.shortest, order="C")
        packed = np.empty(len(tokens), np.uint64)
        pack_tokens(freeze(tokens.reshape(-1)), self.width, self.bits, packed)
        return packed

    def write(self, packed: NDArray[Any], tokens: NDArray[Any]) -> None:
        """Write tokens that have travelled packed to `tokens` (n_tokens, width)."""
        unpack_tokens(freeze(packed), self.width, self.bits, tokens.reshape(-1))
