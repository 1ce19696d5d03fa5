"""Runs of programs in this process: one rank has all shards, and shares their work among threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from schmp_estimators.core.engine.communicator import Alone
from schmp_estimators.core.engine.sweep import Rank
from schmp_estimators.core.io.checkpoint import Checkpoint, settle
from schmp_estimators.core.io.slices import Slices
from schmp_estimators.core.program import AnyProgram, Harvest, Saved, Source
from schmp_estimators.core.stages import Each, in_turn
from schmp_estimators.core.values import freeze


def in_order(
    model: Any, groups: Sequence[Sequence[int]], of_ranks: Sequence[tuple[list[Any], dict[int, Any]]]
) -> tuple[Any, list[Any], list[Any]]:
    """Return the model, what ranks have of their shards, and what they have of blocks, in the order of the numbers."""
    shards: dict[int, Any] = {}
    blocks: dict[int, Any] = {}
    for group, (of_shards, of_blocks) in zip(groups, of_ranks, strict=True):
        shards |= zip(group, of_shards, strict=True)
        blocks |= of_blocks
    return model, [shards[p] for p in sorted(shards)], [blocks[b] for b in sorted(blocks)]


class LocalRun:
    """A run of a program, which has begun: iterate over it to get the record of each sweep.

    Between two steps of the iteration the run can be asked for its harvest, or for what a restart needs.

    Parameters
    ----------
    program, sources, n_sweeps, saved, first, release, saves
        As in `StaticRun`.
    each : callable
        Applies a function to every job, perhaps with several threads.
    inside : callable, optional
        The same for jobs inside a shard, where shards have to be worked off in turn; by default `each`.
    slices : Slices, optional
        Files of what does not fit into memory: shards, and all that a `Rank` keeps there.
    """

    #: Sweeps come one by one.
    took: ClassVar[None] = None

    def __init__(
        self,
        program: AnyProgram,
        sources: Sequence[Source],
        *,
        n_sweeps: int,
        saved: Saved | None = None,
        first: int = 0,
        release: Callable[[], None] = lambda: None,
        each: Each = in_turn,
        inside: Each | None = None,
        saves: Callable[[int], bool] = lambda sweep: False,
        slices: Slices | None = None,
    ) -> None:
        self._program, self._sweeps, self._saves = program, range(first, n_sweeps), saves
        self._kept: Checkpoint | None = None
        self._told: list[Any] = []
        shards = []
        for load, pieces, tells in sources:
            brought = [piece() if callable(piece) else piece for piece in pieces]
            found = freeze(load(*freeze(brought)) if slices is None else slices.keep(load(*freeze(brought))))
            shards.append(found[0] if tells else found)
            self._told.append(found[1] if tells else None)
        release()
        self._n_shards = len(shards)
        self._rank = Rank(program, Alone(each), [range(len(shards))], shards, inside, slices)
        self._rank.begin(first - 1, saved)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for sweep in self._sweeps:
            yield self._rank.sweep(sweep, saves=self._saves(sweep))

    def told_by_sources(self) -> list[Any]:
        """Return, once, what each source has told beside its shard; None, if it does not."""
        told, self._told = self._told, [None] * len(self._told)
        return told

    def harvest(self) -> Harvest:
        """Return the model and what the program harvests of shards and blocks after the current sweep."""
        return Harvest(*in_order(self._rank.model, [range(self._n_shards)], [self._rank.harvest()]))

    def save(self) -> Saved:
        """Return all that a run needs to go on after the current sweep."""
        return Saved(*in_order(self._rank.model, [range(self._n_shards)], [self._rank.save()]))

    def keep(self, checkpoint: Checkpoint, done: int, values: Callable[[Saved], Any]) -> None:
        """Let a checkpoint of the current sweep be written; the arguments are those of `StaticRun.keep`."""
        self._kept = checkpoint
        checkpoint.write_behind(done, values(self.save()))

    def observe(self, stages: Any) -> dict[str, Any]:
        """Return the record that the current sweep would have if these stages, which observe, were its last ones."""
        return self._rank.observe(self._rank.checked(stages))

    def __enter__(self) -> LocalRun:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Wait for a checkpoint that is being written."""
        settle(self._kept, error)
