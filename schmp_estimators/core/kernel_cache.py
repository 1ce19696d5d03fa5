"""Compiled kernels on disk: what is damaged there is named in the log, and compiled anew; a fit never fails of it."""

from __future__ import annotations

import logging
import os
import pickle
import zlib
from contextlib import suppress
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile

logger = logging.getLogger(__name__)

#: What the last bytes of a file begin with, which the checksum of all before them follows.
_MARK, _SIZE = b"crc:", 4


class _CheckedFiles(IndexDataCacheFile):
    """The files of a kernel, with checksums: numba would run machine code that is damaged."""

    def _dump(self, value: Any) -> bytes:
        data: bytes = super()._dump(value)  # type: ignore[no-untyped-call]
        return data + _MARK + zlib.crc32(data).to_bytes(_SIZE, "little")  # which pickle, having ended, does not read

    def _load_index(self) -> Any:
        with suppress(FileNotFoundError), open(self._index_path, "rb") as file:
            pickle.load(file)  # the version of numba
            _check(file.read())
        return super()._load_index()  # type: ignore[no-untyped-call]

    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:  # type: ignore[no-untyped-call]
            _check(file.read())
        return super()._load_data(name)  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        """Remove the index, so that all that it knows is compiled anew."""
        with suppress(FileNotFoundError):
            os.unlink(self._index_path)


def _check(data: bytes) -> None:
    """Raise ValueError if the checksum is another one; what numba alone has written has none, and is as it is."""
    body, end = data[: -len(_MARK) - _SIZE], data[-len(_MARK) - _SIZE :]
    if end.startswith(_MARK) and zlib.crc32(body) != int.from_bytes(end[len(_MARK) :], "little"):
        raise ValueError("its checksum is another one")


class KernelCache(FunctionCache):
    """What `numba.njit` would use as the cache of a function; raises RuntimeError if no folder is writable."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file: Any = _CheckedFiles(
            self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp()
        )  # type: ignore[no-untyped-call]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return a compiled kernel, or None if there is none that can be used."""
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception as error:  # whatever unpickling, or LLVM, says to bytes that are not what they were
            logger.warning(
                "the compiled kernel %s in %s is damaged (%s); it is compiled anew",
                self._py_func.__qualname__, self._cache_path, error,
            )  # fmt: skip
            with suppress(OSError):
                self._cache_file.forget()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled kernel, if its folder takes it."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError as error:
            logger.warning("the compiled kernel %s cannot be kept: %s", self._py_func.__qualname__, error)
