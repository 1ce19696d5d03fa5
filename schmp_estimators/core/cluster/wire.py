"""Values between ranks.

A value is sent as its form and one buffer, in which its arrays lie one after the other.

Integers are sent in as few bytes as the largest number of an array needs.  The buffer is a copy, so
the memory of what was sent may be written to at once.  Arrays that arrive are parts of the buffer,
unless their numbers are widened.
"""

from typing import Any

import numpy as np
from distributed.protocol import to_serialize
from distributed.protocol.pickle import dumps, loads

from schmp_estimators.core.typing import Array, Named

#: Largest array, in bytes, whose integers are sent as they are; and size from which Dask is to read
#: a buffer apart from what else is in the message.  Then it is aligned.
SMALL, LARGE = 1 << 10, 1 << 20
#: Between arrays, so that each begins at a multiple of as many bytes.
_GAP = np.zeros(16, np.uint8)


def pack(value: Any) -> tuple[Named, int]:
    """Return a value as it is sent, and how many bytes that are."""
    found: list[Any] = []
    form = dumps(value, buffer_callback=found.append)
    places = []
    parts = [_GAP[:0]]
    end = 0
    for array in map(np.asarray, found):
        flat = array.ravel("K")
        sent = _narrowed(flat)
        kinds = (sent.dtype.str, flat.dtype.str) if sent is not flat else ()
        places.append((end, end + sent.nbytes, *kinds))
        parts += [sent.view(np.uint8), _GAP[: -sent.nbytes % len(_GAP)]]
        end += len(parts[-2]) + len(parts[-1])
    head = to_serialize(bytearray(form)) if end > LARGE else form
    buffer = to_serialize(np.concatenate(parts).data)
    return {"form": head, "places": places, "buffer": buffer}, len(form) + end


def unpack(message: Named) -> Any:
    """Return the value that `pack` was given."""
    buffer = np.asarray(message["buffer"])
    if buffer.ctypes.data % len(_GAP):
        buffer = buffer.copy()
    arrays = []
    for first, last, *kinds in message["places"]:
        array = buffer[first:last]
        arrays.append(array.view(kinds[0]).astype(kinds[1]) if kinds else array)
    return loads(message["form"], buffers=arrays)


def _narrowed(array: Array) -> Array:
    if array.dtype.kind not in "iu" or array.dtype.itemsize == 1 or array.nbytes <= SMALL:
        return array
    low, high = int(array.min()), int(array.max())
    dtype = np.min_scalar_type(min(low, ~high) if low < 0 else high)
    return array.astype(dtype) if dtype.itemsize < array.dtype.itemsize else array
