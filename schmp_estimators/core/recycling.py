"""Memory of large arrays that are read again and again: what has been let go of is used again.

Fits on disk read slice after slice.  Workers of Dask give memory that they let go of back to the system at once, and
what they get instead is zeroed, page by page, before it is written: that takes as long as reading into it.
"""

from __future__ import annotations

from collections import deque
from math import prod
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

#: Smaller arrays are left to NumPy.
LEAST_BYTES = 1 << 16
#: Memory may be larger than what is wanted by this factor: shards are hardly ever of the very same size.
_SLACK = 1.25
#: Bytes of a line of the cache: arrays begin with one, as registers that are in two lines take longer.
_LINE = 64


class Recycler:
    """Makes arrays of memory that others have let go of.

    There is never more memory idle than in use, so that none is kept when a run has ended.
    """

    def __init__(self) -> None:
        self.in_use = self.idle = 0
        self._kept: dict[int, NDArray[np.uint8]] = {}
        #: What has come back and is not counted yet: that happens whenever garbage is collected, in `_take`, too.
        self._returned: deque[NDArray[np.uint8]] = deque()
        self._lock = Lock()

    def room(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return an array that holds anything."""
        size = prod(shape) * np.dtype(dtype).itemsize
        if size < LEAST_BYTES:
            return np.empty(shape, dtype)
        memory = self._take(size + _LINE)
        room = np.asarray(_Lent(self, memory))
        first = -memory.ctypes.data % _LINE
        return room[first : first + size].view(dtype).reshape(shape)

    def take_back(self, memory: NDArray[np.uint8]) -> None:
        """Keep memory that nobody shows any more, and let go of what has been idle for longest if that is too much."""
        self._returned.append(memory)
        self._settle()

    def _take(self, size: int) -> NDArray[np.uint8]:
        with self._lock:
            self._count()
            fitting = {key: one.size for key, one in self._kept.items() if size <= one.size <= _SLACK * size}
            if fitting:
                memory = self._kept.pop(min(fitting, key=fitting.__getitem__))
                self.idle -= memory.size
            else:
                memory = np.empty(size, np.uint8)
            self.in_use += memory.size
        self._settle()
        return memory

    def _settle(self) -> None:
        """Count what has come back; if somebody has the lock, they will, as they come by here afterwards."""
        while self._returned and self._lock.acquire(blocking=False):
            try:
                self._count()
            finally:
                self._lock.release()

    def _count(self) -> None:
        while self._returned:
            memory = self._returned.popleft()
            self.in_use -= memory.size
            self.idle += memory.size
            self._kept[id(memory)] = memory
        while self.idle > self.in_use:
            self.idle -= self._kept.pop(next(iter(self._kept))).size


class _Lent:
    """Memory that arrays show; it goes back with the last of them."""

    def __init__(self, owner: Recycler, memory: NDArray[np.uint8]) -> None:
        self._owner, self._memory = owner, memory

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._memory.__array_interface__

    def __del__(self) -> None:
        self._owner.take_back(self._memory)


#: That of this process.
RECYCLER = Recycler()
