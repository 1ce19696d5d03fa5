"""The rows of an input where they are worked upon: here, or in the memory of the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from schmp_estimators.core.places.local import LocalPlace
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
        self.place = place or LocalPlace()

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
        return merged(self.place, results, merge, name)

    def held(self) -> Rows:
        """Return rows that are held, where these are made again each time, and now are let go of."""
        found = Rows(self.here(self.partitions))
        self.close()
        return found

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
