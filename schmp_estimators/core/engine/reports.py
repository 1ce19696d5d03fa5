"""What shards report, on its way to `Program.aggregate`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any

from schmp_estimators.core.reduction import Nodes, add_up
from schmp_estimators.core.values import freeze


class Reports:
    """What the shards of a rank report, merged as soon as that can be, since reports may be large."""

    def __init__(self, n_shards: int, merge: Callable[[Any, Any], Any] | None, *, are_lists: bool = False) -> None:
        self.nodes: Nodes = {}
        self.merge = None if merge is None else partial(_merged, merge)
        #: Whether each shard has a list of them.
        self.are_lists = are_lists
        self._n_shards, self._lock = n_shards, Lock()

    def add(self, number: int, report: Any) -> None:
        """Add the report of a shard."""
        with self._lock:
            self.nodes[0, number] = freeze(report)
            if self.merge:
                self.nodes = add_up(self.nodes, self._n_shards, self.merge, least=2)


def _merged(merge: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    return freeze(merge(freeze(left), freeze(right)))
