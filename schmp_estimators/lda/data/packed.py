"""How tokens travel: in the shortest whole numbers, or packed, where that takes fewer bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.kernels.packed import pack_tokens, unpack_tokens


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
