"""Tokens on their way to one other shard, so that there are hardly more of them than once in a process.

A parcel begins as a view of a shard's tokens.  It is packed when it leaves the process, not before, and comes out as an
array that nobody else has: whoever gets it works on it in place, and it can go before the next one is looked at.
It is for one reader only: who reads it a second time finds that it has been used up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.errors import WorkLostError
from schmp_estimators.lda.data.packed import Packing


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
