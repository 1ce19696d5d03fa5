"""How tokens travel: as they are, or packed, which takes fewer bytes where topics need more than 16 bits.

So they are in files, too, of which others read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.direct import empty_at
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.kernels.packed import pack_tokens, unpack_tokens


class Packing(NamedTuple):
    """How a topic and its proposals are put into one number."""

    #: Numbers of a token.
    width: int
    #: Bits that each of them gets; 0 if tokens travel as they are.
    bits: int
    #: Of the numbers of tokens that are not packed.
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, n_topics: int, width: int, dtype: Any) -> Packing:
        """Return how tokens of so many numbers travel, in fewest bytes."""
        bits, plain = (n_topics - 1).bit_length(), np.dtype(dtype)
        return cls(width, bits if width * bits <= 64 < 8 * width * plain.itemsize else 0, plain)

    @property
    def nbytes(self) -> int:
        """Bytes of a token on its way."""
        return 8 if self.bits else self.width * self.dtype.itemsize

    @property
    def plain(self) -> Packing:
        """How they are before they travel, and after it."""
        return self._replace(bits=0)

    def empty(self, n: int, at: int) -> NDArray[Any]:
        """Return an array for n tokens as they travel, which lies in memory as byte `at` of a file does."""
        if self.bits:
            return empty_at(n, np.uint64, at)
        tokens = empty_at(n * self.width, self.dtype, at)
        return tokens.reshape(-1, self.width) if self.width > 1 else tokens

    def pack(self, tokens: NDArray[Any], packed: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return tokens (n_tokens, width) as they travel: themselves, or one number for each, written to `packed`."""
        if not self.bits:
            return tokens
        packed = np.empty(len(tokens), np.uint64) if packed is None else packed
        pack_tokens(freeze(tokens.reshape(-1)), self.width, self.bits, packed)
        return packed

    def unpack(self, packed: NDArray[Any], tokens: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return tokens as they were before they travelled: themselves, or written to `tokens` (n_tokens, width)."""
        if not self.bits:
            return packed
        if tokens is None:
            tokens = self.plain.empty(len(packed), 0)
        unpack_tokens(freeze(packed), self.width, self.bits, tokens.reshape(-1))
        return tokens

    def write(self, packed: NDArray[Any], tokens: NDArray[Any]) -> None:
        """Write tokens that have travelled to `tokens`."""
        if self.unpack(packed, tokens) is packed:
            tokens[:] = packed
