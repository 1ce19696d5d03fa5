"""Arrays between ranks: integers are sent in as few bytes as the largest number of an array needs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from schmp_estimators.core.typing import Array
from schmp_estimators.core.values import replace_leaves

#: Largest array, in bytes, that is sent as it is.
SMALL = 1 << 10


@dataclass(frozen=True, slots=True)
class Narrow:
    """An array of integers as it is sent."""

    array: Array
    #: The dtype that the receiver gets.
    dtype: np.dtype[Any]
    is_writeable: bool

    def __sizeof__(self) -> int:
        return self.array.nbytes


def narrow(value: Any) -> Any:
    """Return `value` as it is sent: its arrays of integers become `Narrow` if that saves bytes."""
    return replace_leaves(value, np.ndarray, _narrowed)


def widen(value: Any) -> Any:
    """Return the value that `narrow` was given."""
    return replace_leaves(value, Narrow, _widened)


def _narrowed(array: Array) -> Array | Narrow:
    if array.dtype.kind not in "iu" or array.dtype.itemsize == 1 or array.nbytes <= SMALL:
        return array
    low = int(array.min())
    high = int(array.max())
    dtype = np.min_scalar_type(min(low, ~high) if low < 0 else high)
    if dtype.itemsize >= array.dtype.itemsize:
        return array
    return Narrow(array.astype(dtype), array.dtype, array.flags.writeable)


def _widened(one: Narrow) -> Array:
    array = one.array.astype(one.dtype)
    array.flags.writeable = one.is_writeable
    return array
