"""Where the values of a run are: the keys of the tasks that have made them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from schmp_estimators.core.places.place import Key


class Keys(NamedTuple):
    """Where the parts of a run are at the end of a sweep."""

    shards: tuple[Key, ...]
    #: Outcomes that hold the states, or lists of those of neighbouring shards.  That their parts live as long is
    #: cheaper than a task for each state.
    states: tuple[Key, ...]
    blocks: tuple[Key, ...]
    model: Key
    #: For each shard the pieces of its state, in block order, and the method that joins them; only between a stage that
    #: divides the state and the next one.
    pieces: tuple[tuple[Key, ...], ...] = ()
    join: str = ""
    #: For each shard where the answers to it are; only between a stage made by `exchanges` and the next one.
    answers: tuple[tuple[Key, ...], ...] = ()
    #: Outcomes that hold what is kept of each state; there are some at the same time only.
    kept: tuple[Key, ...] = ()
    #: Whether the tasks that made the states have cut them, too, for the exchange that is next.
    cut: bool = False


class Run(NamedTuple):
    """What keeps the keys of a run apart from those of other runs, and of the same one before its last beginning.

    Only `name` goes into the first word of a key: Dask keeps a record of every such word that it has ever met.
    """

    name: str
    number: int = 0

    def key(self, what: str, *at: int) -> Key:
        """Return the key of a task, which reads as words on the dashboard: all before the run's name is shown.

        In a sweep there follow the numbers of the sweep, the stage and the shard, and, where it meets blocks, those of
        the step and the block; `ScheduleDisplay` reads them.
        """
        return (f"{what}-{self.name}", self.number, *at)


def member(held: Sequence[Key], p: int) -> int:
    """Return which one of a list of outcomes is that of shard `p`, where several are held together; else -1.

    Those that are together need not be neighbours: a stretch of sweeps has all shards of a worker in one list.
    """
    return held[:p].count(held[p]) if held.count(held[p]) > 1 else -1
