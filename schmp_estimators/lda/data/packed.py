"""How tokens travel: as they are, or packed, which takes fewer bytes where topics need more than 16 bits."""

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

    def pack(self, tokens: NDArray[Any]) -> NDArray[Any]:
        """Return tokens (n_tokens, width) as they travel: themselves, or one number for each."""
        if not self.bits:
            return tokens
        packed = np.empty(len(tokens), np.uint64)
        pack_tokens(freeze(tokens.reshape(-1)), self.width, self.bits, packed)
        return packed

    def write(self, packed: NDArray[Any], tokens: NDArray[Any]) -> None:
        """Write tokens that have travelled packed to `tokens` (n_tokens, width)."""
        unpack_tokens(freeze(packed), self.width, self.bits, tokens.reshape(-1))
