"""The rows of an input where they are worked upon: held here, or by workers, or made again each time they are read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import numpy as np

from schmp_estimators.core.places.place import Place

#: How many partial results one task merges.
_FAN_IN = 16


class Rows:
    """Consecutive partitions of rows, each as some function has prepared it.

    Use it as a context manager: on a cluster the partitions are futures.

    Parameters
    ----------
    partitions : list
        Values, or what stands for them in their place.
    place : Place, optional
        Where the partitions are held; by default in this process.
    """

    def __init__(self, partitions: list[Any], place: Place | None = None) -> None:
        self.partitions = partitions
        self.place = place or Place()

    def each(self, function: Callable[..., Any], name: str) -> list[Any]:
        """Return ``function(partition)`` of every partition: values, or what stands for them."""
        return self.place.map(function, list(zip(self.partitions, strict=True)), name)

    def tasks(self, function: Callable[..., Any], arguments: list[tuple[Any, ...]], name: str) -> list[Any]:
        """Return ``function(*a)`` for all `arguments`, which may hold partitions: values, or what stands for them."""
        return self.place.map(function, arguments, name)

    def cut(self, function: Callable[..., Any], arguments: list[tuple[Any, ...]], name: str) -> list[Any]:
        """Return the same of `arguments` for each shard, made where it will be worked upon.

        That is where the partition is which is in the middle of them, unless one place would get too many shards.
        """
        self.place.settle([row[len(row) // 2 : len(row) // 2 + 1] for row in arguments])
        return self.place.map(function, arguments, name, by_shard=True)

    def here(self, results: list[Any]) -> list[Any]:
        """Return the values of what `each` or `tasks` returned."""
        return self.place.gather(results)

    def reduce(self, function: Callable[..., Any], merge: Callable[[list[Any]], Any], name: str) -> Any:
        """Return all ``function(partition)`` merged into one, by a tree of tasks: only the result comes here."""
        return self.merged(self.each(function, name), merge, name)

    def merged(self, results: list[Any], merge: Callable[[list[Any]], Any], name: str) -> Any:
        """Return what `each` or `tasks` returned, merged into one by a tree of tasks: only the result comes here."""
        return merged(*self.place.made(results, name), merge, name)

    def held(self) -> Rows:
        """Return rows that are held, where these are made again each time, and now are let go of."""
        place, found = self.place.made(self.partitions, "read-rows")
        if place is self.place:
            rows = Rows(self.here(found))
            self.close()
            return rows
        self.partitions = []
        return Rows(found, place)

    def close(self) -> None:
        """Let go of the partitions and of all that `tasks` has returned.  Closing twice does no harm."""
        self.place.let_go()
        self.partitions = []

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def merged(place: Place, found: list[Any], merge: Callable[[list[Any]], Any], name: str) -> Any:
    """Return what a tree of tasks makes of results that a place holds."""
    while len(found) > 1:
        groups = [(found[first : first + _FAN_IN],) for first in range(0, len(found), _FAN_IN)]
        found = place.map(merge, groups, f"{name}-merge")
    return place.gather(found)[0]


def sums_before(place: Place, found: list[Any], name: str) -> list[Any]:
    """Return for every one of some arrays that a place holds the sum of all before it, by two trees of tasks."""
    groups = [found[first : first + _FAN_IN] for first in range(0, len(found), _FAN_IN)]
    sums = place.map(_sum, [(group,) for group in groups], f"{name}-sum") if len(groups) > 1 else []
    bases = sums_before(place, sums, name) if sums else [None]
    arguments = [(bases[n // _FAN_IN], found[n - n % _FAN_IN : n], one) for n, one in enumerate(found)]
    return place.map(_sum_before, arguments, f"{name}-before")


def _sum(arrays: list[Any]) -> Any:
    return _sum_before(None, arrays, arrays[0])


def _sum_before(base: Any, arrays: list[Any], own: Any) -> Any:
    """Return the sum of arrays shaped as `own`."""
    total = np.zeros_like(own)
    for array in arrays if base is None else [base, *arrays]:
        total += array
    return total


class Again:
    """A call that is made whenever its result is asked for; arguments that are such calls are made first.

    Parameters
    ----------
    function : callable
    arguments : tuple
        Of the function: values, calls of this kind, or lists of these.
    """

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function, self._arguments = function, arguments

    def __call__(self) -> Any:
        """Make the call."""
        return self._function(*map(_now, self._arguments))


def _now(value: Any) -> Any:
    if isinstance(value, Again):
        return value()
    return list(map(_now, value)) if type(value) is list else value


class Rereading(Place):
    """A place that keeps nothing: what it holds is made again each time somebody reads it.

    It is for rows that do not fit into memory together.  Only one partition is there at a time for each thread, and the
    one read last is kept, since neighbours in turn ask for the same.

    Parameters
    ----------
    cluster : Place, optional
        Whose workers make what is asked for; by default this process does.
    """

    def __init__(self, cluster: Place | None = None) -> None:
        super().__init__()
        self._cluster = cluster

    def partitions(self, loads: Sequence[Callable[[], Any]]) -> list[Any]:
        """Return what stands for partitions, given what makes each; it goes to workers with what it stands for."""
        token = uuid4().hex
        return [Again(_load_once, ((token, number), load)) for number, load in enumerate(loads)]

    def map(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], name: str, *, by_shard: bool = False
    ) -> list[Any]:
        """Return what stands for the results."""
        return [Again(function, given) for given in arguments]

    def made(self, held: list[Any], name: str) -> tuple[Place, list[Any]]:
        """Let workers make the results, each in a task of its own."""
        if self._cluster is None:
            return self, held
        return self._cluster, self._cluster.map(make, [(one,) for one in held], name)

    def gather(self, held: Sequence[Any]) -> list[Any]:
        """Make the results, one after the other, or let workers make them, and bring them here."""
        if self._cluster is None:
            return list(map(_now, held))
        return self._cluster.gather(self.made(list(held), "read-again")[1])

    def let_go(self) -> None:
        """Forget the partition that was read last, and let go of what is on the cluster."""
        forget_last()
        if self._cluster is not None:
            self._cluster.let_go()


#: The partition that a thread has loaded last.
_last = threading.local()


def make(again: Again) -> Any:
    """Make something again in a task; what it was made of is let go of."""
    try:
        return again()
    finally:
        forget_last()


def _load_once(key: tuple[str, int], load: Callable[[], Any]) -> Any:
    """Return a partition, which is still there if this thread has just loaded it."""
    if getattr(_last, "key", None) != key:
        forget_last()
        _last.value = load()
        _last.key = key
    return _last.value


def forget_last() -> None:
    """Let go of the partition that this thread has loaded last."""
    _last.key = _last.value = None
