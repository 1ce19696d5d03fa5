"""Rows that are made again on the workers of a cluster, where each thread has one partition at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from schmp_estimators.core.places.held import Rows, merged
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.places.rereading import Again, Rereading

#: The partition that a thread has loaded last.
_last = threading.local()


class RereadingThere(Rereading):
    """Make what is asked for on the workers of a cluster, when its value is asked for.

    Parameters
    ----------
    cluster : Place
    """

    def __init__(self, cluster: Place) -> None:
        super().__init__()
        self.cluster = cluster

    def partitions(self, loads: Sequence[Callable[[], Any]]) -> list[Any]:
        """Return what stands for partitions, given what makes each; it goes to workers with what it stands for."""
        token = uuid4().hex
        return [Again(_load_once, ((token, number), load)) for number, load in enumerate(loads)]

    def gather(self, held: Sequence[Any]) -> list[Any]:  # type: ignore[override]  # mypy takes a static one for another
        """Let workers make the results, and bring them here."""
        return self.cluster.gather(self.cluster.map(make, [(one,) for one in held], "read-again"))

    def let_go(self) -> None:
        """Let go of what is on the cluster."""
        self.cluster.let_go()


class RowsThere(Rows):
    """Rows whose partitions are made again on workers.

    Parameters
    ----------
    partitions : list
        From `RereadingThere.partitions`.
    place : RereadingThere
    """

    place: RereadingThere

    def merged(self, results: list[Any], merge: Callable[[list[Any]], Any], name: str) -> Any:
        """Return results merged into one, each made in a task of its own."""
        cluster = self.place.cluster
        return merged(cluster, cluster.map(make, [(one,) for one in results], name), merge, name)

    def held(self) -> Rows:
        """Return the same rows, held by the cluster."""
        partitions, self.partitions = [(partition,) for partition in self.partitions], []
        return Rows(self.place.cluster.map(make, partitions, "read-rows"), self.place.cluster)


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
