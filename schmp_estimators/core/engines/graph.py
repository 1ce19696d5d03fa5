"""The graph of one sweep: which cell needs what, in the order in which blocks go round the ring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from schmp_estimators.core.engines import cells
from schmp_estimators.core.places.place import Key, Mode, Ref, Task
from schmp_estimators.core.program import Local, Program, Rotation, Stage

#: A cell that only reads its block may start when the cell before the last one of its shard is done, so that the next
#: block travels while this one is worked on, and no more than two blocks are on a worker at a time.
READ_AHEAD = 2


#: Names of tasks that are no stages.
ENGINE_TASKS = {"aggregate", "combine", "load", "part", "pass-on", "record", "report", "start", "start-block"}


class Keys(NamedTuple):
    """Where the parts of a run are at the end of a sweep."""

    shards: tuple[Key, ...]
    #: Outcomes that hold the states.  That their parts live as long is cheaper than a task for each state.
    states: tuple[Key, ...]
    blocks: tuple[Key, ...]
    model: Key
    #: For each shard the pieces of its state, in block order; only between a dividing rotation and the next stage.
    pieces: tuple[tuple[Key, ...], ...] = ()


def check_schedule(stages: Sequence[Stage], n_shards: int) -> None:
    """Raise ValueError if `stages` are no sweep: say which, and what is wrong with it."""
    everyone = set(range(n_shards))
    for stage in stages:
        if stage.name in ENGINE_TASKS:
            raise ValueError(f"schedule: {stage.name!r} is what the engine calls a task of its own; rename the stage")
    if not stages or isinstance(stages[-1], Rotation):
        raise ValueError("schedule: the last stage of a sweep must be Local, so that the sweep ends in aggregate")
    for stage, following in pairwise(stages):
        if isinstance(stage, Rotation):
            columns = [set(column) for column in zip(*stage.order, strict=True)]
            if not all(set(line) == everyone for line in (*stage.order, *columns)):
                raise ValueError(
                    f"schedule: the order of rotation {stage.name!r} must let every shard meet every block of "
                    f"0 … {n_shards - 1} once, and never two shards the same block in one step; got {stage.order}"
                )
            if stage.divided and isinstance(following, Rotation):
                raise ValueError(
                    f"schedule: rotation {stage.name!r} divides the state, so the next stage must be Local, "
                    f"not rotation {following.name!r}"
                )


class Run(NamedTuple):
    """What keeps the keys of a run apart from those of other runs, and of the same one before its last beginning.

    Only `name` goes into the first word of a key: Dask keeps a record of every such word that it has ever met.
    """

    name: str
    number: int = 0

    def key(self, what: str, *at: int) -> Key:
        """Return the key of a task, which reads as words on the dashboard: all before the run's name is shown."""
        return (f"{what}-{self.name}", self.number, *at)


class SweepGraph:
    """Collects the tasks of a sweep."""

    def __init__(self, program: Program, mode: Mode, run: Run, sweep: int, keys: Keys) -> None:
        self.tasks: list[Task] = []
        self.keys = keys
        self._program, self._mode, self._run, self._sweep = program, mode, run, sweep
        self._stage = 0

    def add(self, what: str, place: int, function: Callable[..., Any], *args: Any, at: tuple[int, ...] = ()) -> Key:
        """Add the task of `function` near shard `place`, and return its key."""
        key = self._run.key(f"{self._program.name}-{what}", self._sweep, self._stage, place, *at)
        self.tasks.append(Task(key, function, args, place))
        return key

    def sweep(self) -> None:
        """Add all stages of the sweep."""
        n_shards = len(self.keys.shards)
        stages = self._program.schedule(self._sweep, n_shards)
        check_schedule(stages, n_shards)
        for self._stage, stage in enumerate(stages):
            if isinstance(stage, Rotation):
                self._rotation(stage)
            else:
                self._local(stage)

    def _rotation(self, stage: Rotation) -> None:
        n = len(self.keys.shards)
        blocks, held = list(self.keys.blocks), list(self.keys.states)
        done: list[list[Key]] = [[] for _ in range(n)]
        for step, line in enumerate(stage.order):
            for p, b in enumerate(line):
                ahead = done[p][-READ_AHEAD:][:1] if stage.divided and len(done[p]) >= READ_AHEAD else []
                head = (self._program, self._mode, stage, self._sweep, b)
                refs = map(Ref, (self.keys.model, self.keys.shards[p], held[p], blocks[b], *ahead))
                done[p].append(self.add(stage.name, p, cells.rotation_cell, *head, *refs, at=(step,)))
            for p, b in enumerate(line):
                if stage.moves:
                    blocks[b] = self.add("pass-on", p, cells.take_block, Ref(done[p][-1]), at=(step,))
                if not stage.divided:
                    held[p] = done[p][-1]
            if stage.synced:
                model = self.aggregate([cells_of[-1] for cells_of in done], Ref(self.keys.model), at=(step,))
                self.keys = self.keys._replace(model=model)
        if stage.divided:
            visited = [[line[p] for line in stage.order] for p in range(n)]
            pieces = tuple(tuple(done[p][visited[p].index(b)] for b in range(n)) for p in range(n))
            self.keys = self.keys._replace(blocks=tuple(blocks), pieces=pieces)
        else:
            self.keys = self.keys._replace(blocks=tuple(blocks), states=tuple(held))

    def _local(self, stage: Local) -> None:
        outcomes = []
        for p, (shard, state) in enumerate(zip(self.keys.shards, self.keys.states, strict=True)):
            pieces = self.keys.pieces[p] if self.keys.pieces else ()
            # Where the pieces are new, the old state is not needed and must not be kept alive.
            held = None if pieces and not self._mode.in_place else Ref(state)
            head = (self._program, self._mode, stage, self._sweep, Ref(self.keys.model), Ref(shard), held)
            outcomes.append(self.add(stage.name, p, cells.local_cell, *head, *map(Ref, pieces)))
        total = self.aggregate(outcomes, Ref(self.keys.model))
        blocks = self.blocks("combine", cells.combine, outcomes) if stage.parts else self.keys.blocks
        self.keys = Keys(self.keys.shards, tuple(outcomes), blocks, total)

    def aggregate(self, outcomes: Sequence[Key], model: Ref | None, at: tuple[int, ...] = ()) -> Key:
        """Add the tasks that make the model of the reports in outcomes, one of each shard."""
        partials = [self.add("report", p, cells.take_partial, Ref(o), at=at) for p, o in enumerate(outcomes)]
        place = self._sweep % len(outcomes)
        return self.add("aggregate", place, cells.aggregate, self._program, model, *map(Ref, partials), at=at)

    def blocks(
        self, what: str, function: Callable[..., Any], outcomes: Sequence[Key], extra: Sequence[Any] = ()
    ) -> tuple[Key, ...]:
        """Add the tasks that make blocks of the parts in local outcomes; ``extra[b]`` is an argument for block b."""
        made = []
        for b in range(len(outcomes)):
            parts = [self.add("part", p, cells.take_part, Ref(o), b, at=(b,)) for p, o in enumerate(outcomes)]
            made.append(self.add(what, b, function, self._program, b, *extra[b : b + 1], *map(Ref, parts)))
        return tuple(made)

    def record(self) -> Key:
        """Add the task that makes the record of this sweep, and return its key."""
        measures: list[Key] = []
        if self._program.measures(self._sweep):
            measures = self.ask("measure-shard", "measure_shard", zip(self.keys.shards, self.keys.states, strict=True))
            measures += self.ask("measure-block", "measure_block", ((block,) for block in self.keys.blocks))
        head = (self._program, self._sweep, len(self.keys.shards), Ref(self.keys.model))
        return self.add("record", 0, cells.progress, *head, *map(Ref, measures))

    def ask(self, what: str, method: str, arguments: Any) -> list[Key]:
        """Add a call of a method of the program for each of `arguments`, and return the keys."""
        return [
            self.add(what, place, cells.call, self._program, method, *map(Ref, keys))
            for place, keys in enumerate(arguments)
        ]
