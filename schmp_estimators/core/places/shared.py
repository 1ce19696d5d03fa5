"""What the client and the workers of a cluster have in common under a path.

A path alone says little: another host may have another file there, or a folder of its own.  So all bytes that workers
read are compared with what the client has: some by every worker before a fit begins, and each once more when it is
read, by whoever reads it.  A folder is the client's if a file is seen in it whose name the client has just made up.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.io.folders import MARK
from schmp_estimators.core.places.errors import NotSharedError
from schmp_estimators.core.places.memory import memory_left_of_worker
from schmp_estimators.core.places.place import Place

if TYPE_CHECKING:
    from schmp_estimators.core.places.dask import DaskPlace

#: Hosts that an error names; it counts the others.
_NAMED = 5
_REMEDY = (
    "Put the same files there on all hosts (after X.flush(), if X was written to), map X from a path that all hosts "
    "share, or pass X in memory: then workers read a copy that the fit makes"
)
_OTHER_FOLDER = "give one that this process and all workers reach, or 'auto', so that each uses its own disk"


class Piece(NamedTuple):
    """An array in a file, element after element, as the client has it."""

    path: str
    #: Bytes before its first element.
    offset: int
    dtype: str
    shape: tuple[int, ...]
    #: CRC-32 of its bytes.
    checksum: int

    def read(self) -> NDArray[Any]:
        """Return the array; no page of the file stays mapped.

        Raises
        ------
        NotSharedError
            If other bytes are there, or none; in the latter case it has a cause.
        """
        try:
            found = np.fromfile(self.path, self.dtype, math.prod(self.shape), offset=self.offset)
        except OSError as error:
            raise NotSharedError(
                f"host {socket.gethostname()} cannot read {self.path!r}, which X is in ({error}). {_REMEDY}"
            ) from error
        if checksum_of(found) != self.checksum:
            raise NotSharedError(
                f"host {socket.gethostname()} does not find in {self.path!r} what X had there when the fit began: it "
                f"is another file, or has changed. {_REMEDY}"
            )
        return found.reshape(self.shape)


def checksum_of(array: NDArray[Any]) -> int:
    """Return the CRC-32 of the bytes of an array."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def who_misses(place: Place, pieces: Sequence[Piece]) -> list[str]:
    """Let every worker read some pieces, and return the hosts of those that cannot.

    Raises
    ------
    NotSharedError
        If workers find other bytes, with hosts and files.
    """
    found = _ask(place, _differing, pieces)
    if other := [f"{path!r} on {host}" for host, (path, is_there) in found.items() if is_there]:
        raise NotSharedError(
            f"workers would read X from its files, but do not find there what X has here: {listed(other)}. {_REMEDY}"
        )
    return list(found)


def who_is_denied(place: Place, path: str, mode: int) -> list[str]:
    """Return the hosts of workers that do not reach a file or folder, or may not use it in a mode of `os.access`."""
    return list(_ask(place, _is_denied, path, mode))


@contextmanager
def marked(place: Place, folder: str) -> Iterator[None]:
    """Let a file be in a folder by which workers know that it is the client's.

    Raises
    ------
    NotSharedError
        If workers do not see it, or may not write into the folder.
    """
    mark = Path(folder, f"{MARK}{uuid4().hex}")
    try:
        mark.touch()
        if denied := who_is_denied(place, str(mark), os.R_OK):
            raise NotSharedError(f"spill={folder!r} is another folder, or none, on {listed(denied)}; {_OTHER_FOLDER}")
        if denied := who_is_denied(place, folder, os.W_OK):
            raise NotSharedError(f"{listed(denied)} may not write into spill={folder!r}; {_OTHER_FOLDER}")
        yield
    finally:
        mark.unlink(missing_ok=True)


def listed(found: Sequence[str]) -> str:
    """Return what an error says of so many hosts."""
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def _ask(place: Place, question: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """Return for each host whose workers do not all answer with nothing one of these workers, and its answer."""
    place = cast("DaskPlace", place)
    found = place.client.run(_answer, question, args, on_error="ignore")
    by_host = {host: (address, answer) for address, (host, answer) in sorted(found.items(), reverse=True) if answer}
    return {f"host {host} (worker {address})": answer for host, (address, answer) in sorted(by_host.items())}


async def _answer(question: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, Any]:
    return socket.gethostname(), await asyncio.to_thread(question, *args)  # the worker answers others meanwhile


def _differing(pieces: Sequence[Piece]) -> tuple[str, bool] | None:
    """Return the first path where something else is, or nothing, and whether there is something."""
    for piece in pieces:
        try:
            piece.read()
        except NotSharedError as error:
            return piece.path, error.__cause__ is None
    return None


def _is_denied(path: str, mode: int) -> bool:
    return not os.access(path, mode)


def memory_of_workers(place: Place) -> list[int]:
    """Return how many bytes each worker may still take; those on one machine share what is left there."""
    client = cast("DaskPlace", place).client
    found: dict[str, tuple[int, int]] = client.run(memory_left_of_worker, on_error="ignore")
    neighbours = Counter(address.rsplit(":", 1)[0] for address in found)
    return [min(own, here // neighbours[address.rsplit(":", 1)[0]]) for address, (own, here) in found.items()]
