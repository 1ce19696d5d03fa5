"""Disks of a cluster: folders in which the workers of a run keep what does not fit into their memory.

Either each worker has a folder on its own disk, in its ``local_directory``, or all have one that everybody reaches.  In
a folder of its own a shard is found again by whoever works upon it next, if that is the same worker, or if everybody
reaches it.  Else what was kept of it comes from a neighbour of the worker, which has a copy: so a run goes on where a
worker has died, unless its neighbour has died, too.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import uuid4

import numpy as np

from schmp_estimators.core.direct import empty_at
from schmp_estimators.core.later import Later
from schmp_estimators.core.places.errors import SchMPError, WorkLostError
from schmp_estimators.core.places.memory import memory_left_of_worker
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.places.shared import check_mark, marked
from schmp_estimators.core.store import PREFIX, SUFFIX, SpillError, Store, Written

if TYPE_CHECKING:
    from distributed import Worker

    from schmp_estimators.core.places.dask import DaskPlace

distributed: Any = Later("distributed")
_plugin: Any = Later("schmp_estimators.core.places.disk_plugin")

#: Bytes that go from worker to worker at a time: of what is kept, and of what is read while others are worked upon.
_AT_ONCE, _READ_AT_ONCE = 1 << 24, 1 << 23
Array = np.ndarray[Any, np.dtype[Any]]

#: Seconds after which a worker that cannot be reached is taken to have died.
_CONNECTING = 10
_GIVE, _TAKE = "schmp-give-file", "schmp-take-file"
#: How many of the last files that were kept of a shard stay.  A run goes on from the one before the last until all
#: shards have the last one.  In a folder that everybody reaches every sweep is kept, a sweep ahead of that.
_STAYING, _STAYING_SHARED = 2, 3


class KeptLostError(SchMPError):
    """What was kept of a shard is lost with all who had it; the run must begin anew."""


class Span(NamedTuple):
    """Some bytes of a file that everybody reaches."""

    path: str
    at: int
    size: int


class Kept(NamedTuple):
    """What is kept of a shard."""

    name: str
    size: int
    #: Where it is, piece by piece, if everybody reaches it, and what was written there.
    spans: tuple[Span, ...]
    written: tuple[Written, ...]
    #: Workers that have it, else.
    holders: tuple[str, ...]


class Held(NamedTuple):
    """A file of a shard that other shards may read.  Whoever writes into it takes its name away first."""

    number: int
    name: str
    #: The worker that has it; empty if everybody reaches it.
    holder: str


class Disk(NamedTuple):
    """Where the workers of one run put files; it travels with shards."""

    token: str
    #: A folder that all workers reach; None: each has its own.
    shared: str | None

    @property
    def mark(self) -> str:
        """The file in `shared` by which workers, also those that come late, know that it is the client's."""
        return f"mark-{self.token}"

    def folder(self, number: int, worker: Worker | None = None) -> str:
        """Return the folder of a shard, on the worker where this is called."""
        if self.shared is not None:
            return os.path.join(self.shared, f"shard-{number}-{self.token}{SUFFIX}")
        return os.path.join(
            (worker or distributed.get_worker()).local_directory, PREFIX + self.token, f"shard-{number}"
        )

    @contextmanager
    def opened(self, number: int) -> Iterator[Store]:
        """Give a store in the folder of a shard, which is made if it is not there; raises as `check_mark`."""
        folder = self.folder(number)
        if self.shared is not None:
            check_mark(self.shared, self.mark)
        with _USES.of(os.path.dirname(folder)):
            os.makedirs(folder, exist_ok=True)
            store = Store(folder, is_kept=self.shared is not None)
            try:
                yield store
            finally:
                store.close()

    def held(self, number: int, name: str) -> Held:
        """Return what others know of a file of a shard which is on the worker where this is called."""
        return Held(number, name, "" if self.shared is not None else distributed.get_worker().address)

    def reader(self, held: Held) -> Callable[[int, Array], None]:
        """Return a function that fills a contiguous array from byte `at` of a file on, in any thread of this worker.

        It raises WorkLostError if the file is not there any more.
        """
        worker = distributed.get_worker()
        if held.holder in ("", worker.address):
            return partial(_read_held, self.folder(held.number, worker), held.name)

        def fetch(at: int, array: Array) -> None:
            data = array.reshape(-1).view(np.uint8)
            for first in range(0, len(data), _READ_AT_ONCE):
                piece = data[first : first + _READ_AT_ONCE]
                told = {"at": at + first, "size": len(piece)}
                try:
                    piece[:] = self._ask(worker, held.holder, _GIVE, held.number, held.name, **told)
                except (OSError, TimeoutError) as error:
                    raise WorkLostError(f"worker {held.holder} does not give {held.name}: {error}") from error

        return fetch

    def fetch(self, place: Place, held: Held, at: int, array: Array) -> None:
        """Fill a contiguous array on the client from byte `at` of a file on; raises as `reader`."""
        place = cast("DaskPlace", place)
        if not held.holder:
            _read_held(self.folder(held.number), held.name, at, array)
            return
        data = array.reshape(-1).view(np.uint8)
        for first in range(0, len(data), _AT_ONCE):
            piece = data[first : first + _AT_ONCE]
            given = self, held, at + first, len(piece)
            try:
                found = place.client.run(_give_client, *given, workers=[held.holder], on_error="return")
            except (OSError, TimeoutError, KeyError, ValueError) as error:
                raise WorkLostError(f"worker {held.holder} does not answer: {error}") from error
            if not isinstance(some := found.get(held.holder), np.ndarray):
                raise WorkLostError(f"worker {held.holder} does not give {held.name}: {some}")
            piece[:] = some

    def keep(self, number: int, name: str, size: int, written: Sequence[Written]) -> Kept:
        """Keep a file of a shard, `name`, which ends with a number; those kept before the last one are let go of."""
        kept = f"kept-{name}"
        with self.opened(number) as store:
            store.link(name, kept)
            staying = _STAYING if self.shared is None else _STAYING_SHARED
            store.remove(_but_last("kept-", store.names(), staying).__contains__)
        if self.shared is not None:
            span = Span(os.path.join(self.folder(number), kept + SUFFIX), 0, size)
            return Kept(kept, size, (span,), tuple(written), ())
        worker = distributed.get_worker()
        holders = [worker.address]
        with suppress(OSError, TimeoutError, WorkLostError):
            holders += self._copy(worker, number, kept, size)
        return Kept(kept, size, (), (), tuple(holders))

    def _copy(self, worker: Worker, number: int, name: str, size: int) -> list[str]:
        """Give a copy of a file to a neighbour, on another machine if there is one, and return who has it now."""
        known = distributed.utils.sync(worker.loop, worker.scheduler.identity, n_workers=-1)["workers"]
        host, me = _host(worker.address), worker.address
        others = sorted((_host(one) == host, one <= me, one) for one in known if one != me)
        for _, _, address in others[:1]:
            data = np.empty(min(size, _AT_ONCE), np.uint8)
            for at in range(0, max(1, size), _AT_ONCE):
                piece = data[: min(size - at, _AT_ONCE)]
                with self.opened(number) as store:
                    store.read(name, at, piece)
                said = self._ask(
                    worker, address, _TAKE, number, name, at=at, data=distributed.protocol.to_serialize(piece)
                )
                if said != "taken":
                    raise WorkLostError(f"worker {address} cannot keep a copy: {said}")
            return [address]
        return []

    def bring(self, number: int, kept: Kept, name: str) -> None:
        """Put what was kept of a shard into its file `name`, wherever it is.

        Raises
        ------
        KeptLostError
            If nobody has it any more.
        """
        with self.opened(number) as store:
            store.allocate(name, kept.size)
            for read in self._sources(number, kept, store):
                try:
                    for at in range(0, kept.size, _AT_ONCE):
                        store.write_at(name, at, read(at, min(_AT_ONCE, kept.size - at)))
                except (OSError, TimeoutError, WorkLostError):
                    continue
                return
        raise KeptLostError(f"{kept.name} of shard {number} is lost: all who had it have died")

    def _sources(
        self, number: int, kept: Kept, store: Store
    ) -> Iterator[Callable[[int, int], np.ndarray[Any, np.dtype[np.uint8]]]]:
        """Yield functions that read some bytes of what was kept."""
        if not kept.holders:
            yield lambda at, size: _read_spans(kept.spans, at, size)
            return
        worker = distributed.get_worker()
        if store.size(kept.name) == kept.size:
            yield lambda at, size: _read_spans([Span(store.path(kept.name), 0, kept.size)], at, size)
        for address in kept.holders:
            if address != worker.address:
                yield lambda at, size, address=address: self._ask(  # type: ignore[misc]
                    worker, address, _GIVE, number, kept.name, at=at, size=size
                )

    def _ask(self, worker: Worker, address: str, what: str, number: int, name: str, **told: Any) -> Any:
        async def ask() -> Any:
            worker.rpc.reuse(address, await worker.rpc.connect(address, timeout=_CONNECTING))
            call = getattr(worker.rpc(address), what)
            answer = await asyncio.wait_for(call(disk=list(self), number=number, name=name, **told), 60)
            if "gone" in answer:
                raise WorkLostError(answer["gone"])
            return answer["said"]

        return distributed.utils.sync(worker.loop, ask)


class _Uses:
    """Which folders of runs tasks of this process are using; one whose run has ended is removed after the last."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._ended: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def of(self, folder: str) -> Iterator[None]:
        """Use a folder."""
        with self._lock:
            if folder in self._ended:
                raise WorkLostError("the run has ended")
            self._uses[folder] += 1
        try:
            yield
        finally:
            with self._lock:
                self._uses[folder] -= 1
                if not self._uses[folder]:
                    del self._uses[folder]
                    if folder in self._ended:
                        shutil.rmtree(folder, ignore_errors=True)

    def end(self, folder: str) -> None:
        """Let nobody use a folder any more."""
        with self._lock:
            self._ended.add(folder)
            if folder not in self._uses:
                shutil.rmtree(folder, ignore_errors=True)


_USES = _Uses()


def _read_spans(spans: Sequence[Span], at: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    data, filled, first = np.empty(size, np.uint8), 0, 0
    for span in spans:
        begin, end = max(at, first), min(at + size, first + span.size)
        if begin < end:
            with open(span.path, "rb", buffering=0) as file:
                file.seek(span.at + begin - first)
                while filled < end - at:
                    n = file.readinto(data[filled : end - at].data)
                    if not n:
                        raise OSError(f"{span.path} is shorter than it was")
                    filled += n
        first += span.size
    if filled != size:
        raise OSError("what was kept is shorter than it was")
    return data


def _host(address: str) -> str:
    return address.rsplit(":", 1)[0]


def _but_last(prefix: str, names: Sequence[str], staying: int) -> set[str]:
    """Return all names but those with a prefix which are not among the last `staying` of them."""
    ours = sorted((name for name in names if name.startswith(prefix)), key=number_of)
    return set(names) - set(ours[:-staying])


def number_of(name: str) -> int:
    """Return the number that a name ends with."""
    return int(name.rsplit("-", 1)[1])


def answer(worker: Worker) -> None:
    """Let a worker, which may have come late, give and take files of a run."""

    async def give(disk: Sequence[Any], number: int, name: str, at: int, size: int) -> dict[str, Any]:
        folder = Disk(*disk).folder(number, worker)
        try:
            data = await asyncio.to_thread(_read_some, folder, name, at, size)
        except WorkLostError as error:
            return {"gone": str(error)}
        return {"said": distributed.protocol.to_serialize(data)}

    async def take(disk: Sequence[Any], number: int, name: str, at: int, data: Any) -> dict[str, Any]:
        try:
            await asyncio.to_thread(_take_some, Disk(*disk).folder(number, worker), name, at, data)
        except Exception as error:  # whatever it is, there is no copy here
            return {"gone": str(error)}
        return {"said": "taken"}

    worker.handlers[_GIVE], worker.handlers[_TAKE] = give, take


def clear(disk: Disk, worker: Worker) -> None:
    """Remove the folder that a run has on a worker."""
    if disk.shared is None:
        _USES.end(os.path.join(worker.local_directory, PREFIX + disk.token))


def _read_some(folder: str, name: str, at: int, size: int) -> Array:
    data = empty_at(size, np.uint8, at)
    _read_held(folder, name, at, data)
    return data


def _read_held(folder: str, name: str, at: int, array: Array) -> None:
    """Fill an array from a file, and see that it still has its name then: so nobody has written into it."""
    store = Store(folder, is_kept=False)
    try:
        store.read(name, at, array)
        if store.size(name) < 0:
            raise WorkLostError(f"{name} in {folder} is not there any more")
    except SpillError as error:
        raise WorkLostError(str(error)) from error
    finally:
        store.close()


def _give_client(disk: Disk, held: Held, at: int, size: int, *, dask_worker: Worker) -> Array:
    return _read_some(disk.folder(held.number, dask_worker), held.name, at, size)


def _take_some(folder: str, name: str, at: int, data: Any) -> None:
    os.makedirs(folder, exist_ok=True)
    store = Store(folder, is_kept=False)
    try:
        if at == 0:
            store.allocate(name, 0)
            store.remove(_but_last("kept-", store.names(), _STAYING).__contains__)
        store.write_at(name, at, np.asarray(data))
    finally:
        store.close()


@contextmanager
def disks_of(place: Place, store: Store | None) -> Iterator[Disk]:
    """Let the workers of a place use their disks, on which nothing is left, or a store's folder; raises as `marked`."""
    place = cast("DaskPlace", place)
    disk = Disk(uuid4().hex[:12], None if store is None else store.folder)
    files = _plugin.Files(disk)
    with nullcontext() if store is None else marked(place, store, disk.mark):
        place.client.register_plugin(files, name=files.name)
        place.stay()
        try:
            yield disk
        finally:
            with suppress(Exception):  # the cluster may have gone
                place.client.unregister_worker_plugin(files.name)


def memory_of_workers(place: Place) -> list[int]:
    """Return how many bytes each worker may still take; those on one machine share what is left there."""
    place = cast("DaskPlace", place)
    found: dict[str, tuple[int, int]] = place.client.run(memory_left_of_worker, on_error="ignore")
    neighbours = Counter(map(_host, found))
    return [min(own, here // neighbours[_host(address)]) for address, (own, here) in found.items()]
