"""The graph of one sweep: which cell needs what, in the order in which blocks go round the ring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from schmp_estimators.core.engines import cells
from schmp_estimators.core.engines.cells import Cell
from schmp_estimators.core.places.place import Key, Mode, Ref, Task
from schmp_estimators.core.program import AnyProgram
from schmp_estimators.core.reduction import FAN_IN, groups
from schmp_estimators.core.stages import At, Order, Stage, check_stages

#: What makes one report of two, if reports may be merged on their way.
Merge = Callable[[Any, Any], Any] | None

#: A cell that only reads its block may start when the cell before the last one of its shard is done, so that the next
#: block travels while this one is worked on, and no more than two blocks are on a worker at a time.
READ_AHEAD = 2
#: How many tickets, or lists of them, one task puts together.  They are small, and a task costs more than they do.
TICKETS_TOGETHER = 64


class Keys(NamedTuple):
    """Where the parts of a run are at the end of a sweep."""

    shards: tuple[Key, ...]
    #: Outcomes that hold the states.  That their parts live as long is cheaper than a task for each state.
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


#: A stage, with the sweep and the number that it has in keys.
Placed = tuple[Stage, int, int]


class SweepGraph:
    """Collects the tasks of a sweep.

    Parameters
    ----------
    program : Program
    mode : Mode
    run : Run
    sweep : int
    keys : Keys
    homes : sequence, optional
        What is equal for shards whose results are at the same place, as far as that is known.
    """

    def __init__(
        self, program: AnyProgram, mode: Mode, run: Run, sweep: int, keys: Keys, homes: Sequence[Any] | None = None
    ) -> None:
        self.tasks: list[Task] = []
        self.keys = keys
        #: Where that is which is kept of states.
        self.kept: dict[Key, Key] = {}
        self._program, self._mode, self._run, self._sweep = program, mode, run, sweep
        self._stage, self._homes = 0, homes or range(len(keys.shards))

    def add(self, what: str, place: int, function: Callable[..., Any], *args: Any, at: tuple[int, ...] = ()) -> Key:
        """Add the task of `function` near shard `place`, and return its key."""
        key = self._key(what, place, at)
        self.tasks.append(Task(key, function, args, place))
        return key

    def _key(self, what: str, place: int, at: tuple[int, ...] = ()) -> Key:
        return self._named(what, self._sweep, self._stage, place, *at)

    def _named(self, what: str, *at: int) -> Key:
        return self._run.key(f"{self._program.name}-{what}", *at)

    def start(self, saved: Sequence[Ref | None], n_blocks: int, model: Ref | None = None) -> tuple[Key, ...]:
        """Add the tasks that make the first states of the shards, or restore those that were saved with a model."""
        made = []
        for p, (shard, kept) in enumerate(zip(self.keys.shards, saved, strict=True)):
            cell = self._cell(p)._replace(n_blocks=n_blocks)
            made.append(
                self.add("start", p, cells.start_shard, self._program, self._mode, cell, Ref(shard), kept, model)
            )
        return tuple(made)

    def sweep(self, *, is_last: bool = False) -> None:
        """Add all stages of the sweep; if there is another one, what it sends first may be sent ahead."""
        ahead = [] if is_last or not self._mode.post else self._stages_of(self._sweep + 1)
        self._add_stages(self._stages_of(self._sweep), ahead)

    def add_after(self, stages: Any) -> None:
        """Add stages that follow those of the sweep."""
        checked = check_stages(self._program, stages, len(self.keys.shards), len(self.keys.blocks))
        self._add_stages([(stage, self._sweep, -1 - number) for number, stage in enumerate(checked)])

    def _stages_of(self, sweep: int) -> list[Placed]:
        """Return the stages of a sweep, each with where it stands in keys: no task has the key of another."""
        n_shards, n_blocks = len(self.keys.shards), len(self.keys.blocks)
        stages = check_stages(self._program, self._program.schedule(sweep, n_shards), n_shards, n_blocks)
        return [(stage, sweep, 1 + number) for number, stage in enumerate(stages)]

    def _add_stages(self, stages: list[Placed], ahead: Sequence[Placed] = ()) -> None:
        for number, (stage, _, self._stage) in enumerate(stages):
            if stage.kind == "each":
                self._each(stage, self._exchange_after([*stages[number + 1 :], *ahead]))
            elif stage.kind == "observes":
                model = self._aggregated(self._seen(stage), Ref(self.keys.model), (), stage.merge)
                self.keys = self.keys._replace(model=model)
            elif stage.kind == "exchanges":
                self._exchange(stage)
            else:
                assert stage.order is not None
                self._rotate(stage, stage.order)

    def _exchange_after(self, stages: Sequence[Placed]) -> Placed | None:
        """Return the stage that exchanges pieces of the present states, if they travel by post."""
        changing = (placed for placed in stages if placed[0].kind != "observes")
        following = next(changing, None) if self._mode.post else None
        return following if following and following[0].kind == "exchanges" else None

    def _cell(self, number: int, stage: Stage | None = None) -> Cell:
        cell = Cell(self._sweep, number, len(self.keys.shards), len(self.keys.blocks))
        return cell.of(stage) if stage else cell

    def _rotate(self, stage: Stage, order: Order) -> None:
        n = len(self.keys.shards)
        blocks, held = list(self.keys.blocks), list(self.keys.states)
        last = {p: step for step, line in enumerate(order) for p, b in enumerate(line) if b >= 0}
        following = _following(order)
        done: list[dict[int, Key]] = [{} for _ in range(n)]
        for step, line in enumerate(order):
            met = [(p, b) for p, b in enumerate(line) if b >= 0]
            for p, b in met:
                cell = self._cell(p, stage)._replace(block=b, is_last=step == last[p])
                ahead = (
                    list(done[p].values())[-READ_AHEAD:][:1] if stage.division and len(done[p]) >= READ_AHEAD else []
                )
                refs = map(Ref, (self.keys.model, self.keys.shards[p], held[p], blocks[b], *ahead))
                done[p][b] = self.add(stage.name, p, cells.meet, self._program, self._mode, cell, *refs, at=(step, b))
            for p, b in met:
                if stage.kind == "changes":
                    blocks[b] = done[p][b]
                    heir = following.get((step, b))
                    if heir is None or self._homes[heir] != self._homes[p]:  # else it is there already
                        blocks[b] = self.add("pass-on", p, cells.take_block, Ref(done[p][b]), at=(step,))
                if not stage.division:
                    held[p] = done[p][b]
            if stage.synced:
                model = self.aggregate([done[p][b] for p, b in met], Ref(self.keys.model), at=(step,))
                self.keys = self.keys._replace(model=model)
        if stage.division:
            pieces = tuple(tuple(of_shard[b] for b in range(len(blocks))) for of_shard in done)
            self.keys = self.keys._replace(pieces=pieces, join=stage.division.join.__name__)
        else:
            self.keys = self.keys._replace(blocks=tuple(blocks), states=tuple(held))

    def _exchange(self, stage: Stage) -> None:
        met, any_cell = [], self._cell(0, stage)
        for p, pieces in enumerate(self._pieces_cut_ahead() if self.keys.cut else self._pieces(stage)):
            key, cell = self._key(stage.name, p), any_cell._replace(number=p)
            refs = map(Ref, (self.keys.model, self.keys.shards[p], *pieces))
            met.append(self.add(stage.name, p, cells.answer, self._program, self._mode, cell, key, *refs))
        kept = self._kept(stage.keep) if stage.keep and not (self._mode.in_place or self._mode.post) else ()
        self.keys = self.keys._replace(answers=self._dealt("answer", met), kept=kept)

    def _kept(self, function: Callable[[At, Any], Any]) -> tuple[Key, ...]:
        """Add the tasks that make what is kept of states, and return where it is."""
        kept, any_cell = [], self._cell(0)._replace(method=function.__name__)
        for p, (shard, state) in enumerate(zip(self.keys.shards, self.keys.states, strict=True)):
            cell = any_cell._replace(number=p)
            kept.append(self.add("keep", p, cells.keep, self._program, self._mode, cell, Ref(shard), Ref(state)))
        self.kept.update(zip(self.keys.states, kept, strict=True))
        return tuple(kept)

    def _pieces(self, stage: Stage) -> tuple[tuple[Key, ...], ...]:
        """Add the tasks that cut states, and return for each shard where the pieces for it are."""
        sent, any_cell = [], self._cell(0, stage)
        for p, (shard, state) in enumerate(zip(self.keys.shards, self.keys.states, strict=True)):
            key, cell = self._key("send", p), any_cell._replace(number=p)
            sent.append(self.add("send", p, cells.send, self._program, self._mode, cell, key, Ref(shard), Ref(state)))
        return self._dealt("piece", sent)

    def _pieces_cut_ahead(self) -> tuple[tuple[Key, ...], ...]:
        """Add the tasks that gather the tickets in outcomes, each where its outcomes are, as these are large."""
        tickets, states = [], self.keys.states
        for _, some in groupby(range(len(states)), self._homes.__getitem__):
            for group in groups(list(some), TICKETS_TOGETHER):
                refs = [Ref(states[p]) for p in group]
                tickets.append(self.add("tickets", group[0], cells.take_tickets, *refs, at=(1, group[0])))
        return self._gathered(tickets, "piece")

    def _gathered(self, tickets: list[Key], what: str) -> tuple[tuple[Key, ...], ...]:
        """Add the tasks that make one list of tickets, or of lists of them, and return where it is, for each shard."""
        n, width = len(self.keys.shards), 1
        while len(tickets) > 1 or width == 1:
            width *= TICKETS_TOGETHER
            tickets = [
                self.add(
                    "tickets", i * width % n, cells.gather_tickets, *map(Ref, group), at=(width, i, what == "answer")
                )
                for i, group in enumerate(groups(tickets, TICKETS_TOGETHER))
            ]
        return (tuple(tickets),) * n

    def _dealt(self, what: str, made: list[Key]) -> tuple[tuple[Key, ...], ...]:
        """Return for each shard where that is which lists for all shards have for it; `what` is what it is called."""
        n = len(made)
        if self._mode.post:
            return self._gathered(made, what)
        if self._mode.in_place:
            return (tuple(made),) * n
        return tuple(
            tuple(self.add(what, p, cells.take_one, Ref(of_shard), to, at=(to,)) for p, of_shard in enumerate(made))
            for to in range(n)
        )

    def _each(self, stage: Stage, following: Placed | None = None) -> None:
        """Add the tasks of a stage; if an exchange is `following`, they cut the new states for it, too."""
        outcomes, answered = [], self.keys.answers != ()
        any_cell = self._cell(0, stage)._replace(join=self.keys.join, answered=answered, kept=self.keys.kept != ())
        cutting, *when = following or (None,)
        if cutting and cutting.split:
            any_cell = any_cell._replace(split=cutting.split.__name__)
        states = self.keys.kept or self.keys.states
        for p, (shard, state) in enumerate(zip(self.keys.shards, states, strict=True)):
            pieces = self.keys.answers[p] if answered else self.keys.pieces[p] if self.keys.pieces else ()
            # Where the pieces are new, the old state is not needed and must not be kept alive.
            held = None if pieces and not answered and not self._mode.in_place else Ref(state)
            cell = any_cell._replace(number=p, ahead=self._named("send", *when, p) if cutting else ())
            head = (self._program, self._mode, cell, Ref(self.keys.model), Ref(shard), held)
            outcomes.append(self.add(stage.name, p, cells.work_alone, *head, *map(Ref, pieces)))
        model = self.aggregate(outcomes, Ref(self.keys.model), merge=stage.merge)
        blocks = self.combine(outcomes, len(self.keys.blocks)) if stage.parts else self.keys.blocks
        self.keys = Keys(self.keys.shards, tuple(outcomes), blocks, model, cut=cutting is not None)

    def _seen(self, stage: Stage) -> list[Key]:
        """Add the tasks of shards that observe, and return where their reports are, in order."""
        made: list[tuple[int, int, Key]] = []
        pieces = self._pieces(stage) if stage.split else ()
        for step, line in enumerate(stage.order or ((-1,) * len(self.keys.shards),)):
            for p, b in enumerate(line):
                if b < 0 and stage.order:
                    continue
                cell = self._cell(p, stage)._replace(block=b)
                seen = pieces[p] if pieces else [self.keys.blocks[b]] if b >= 0 else []
                refs = map(Ref, (self.keys.model, self.keys.shards[p], self.keys.states[p], *seen))
                head = (self._program, self._mode, cell)
                made.append((p, step, self.add(stage.name, p, cells.observe, *head, *refs, at=(step, b))))
        return [key for *_, key in sorted(made)]

    def aggregate(
        self, outcomes: Sequence[Key], model: Ref | None, at: tuple[int, ...] = (), merge: Merge = None
    ) -> Key:
        """Add the tasks that make the model of the reports in outcomes, one of each shard."""
        if not merge or len(outcomes) <= FAN_IN // 2:
            return self._aggregated(self._reports(outcomes, at), model, at, merge)
        # Up to eight reports could come together at once, but each may have all topics.
        width = FAN_IN // 2 if len(outcomes) <= FAN_IN else FAN_IN if len(outcomes) <= FAN_IN**2 else FAN_IN**2
        merged = [
            self._merged(group, merge, at, first, width)
            for first, group in zip(range(0, len(outcomes), width), groups(outcomes, width), strict=True)
        ]
        return self._aggregated(merged, model, at, merge, width)

    def _merged(
        self, outcomes: Sequence[Key], merge: Callable[[Any, Any], Any], at: tuple[int, ...], first: int, width: int
    ) -> Key:
        """Add the tasks that make one report of those of up to `width` neighbours, of which shard `first` is one."""
        head, at = (self._program, merge.__name__), (*at, width, first // width)
        if len(set(self._homes[first : first + len(outcomes)])) == 1:
            return self.add("merge", first, cells.merge_reports, *head, *map(Ref, outcomes), at=at)
        if width > FAN_IN:
            seen = [
                self._merged(group, merge, at[:-2], first + n * FAN_IN, FAN_IN)
                for n, group in enumerate(groups(outcomes))
            ]
        else:  # what is larger than its report stays where it is
            seen = self._reports(outcomes, at[:-2], first)
        return self.add("merge", first, cells.merge, *head, *map(Ref, seen), at=at)

    def _reports(self, outcomes: Sequence[Key], at: tuple[int, ...], first: int = 0) -> list[Key]:
        """Add the tasks that take the reports out of outcomes, whose first one is that of shard `first`."""
        return [self.add("report", p, cells.take_report, Ref(one), at=at) for p, one in enumerate(outcomes, first)]

    def _aggregated(
        self, reports: Sequence[Key], model: Ref | None, at: tuple[int, ...], merge: Merge, width: int = 1
    ) -> Key:
        while merge and len(reports) > FAN_IN:
            width, head = width * FAN_IN, (cells.merge, self._program, merge.__name__)
            reports = [
                self.add("merge", n * width % len(self.keys.shards), *head, *map(Ref, group), at=(*at, width, n))
                for n, group in enumerate(groups(reports))
            ]
        place = self._sweep % max(1, len(self.keys.shards))
        return self.add("aggregate", place, cells.aggregate, self._program, model, *map(Ref, reports), at=at)

    def combine(self, outcomes: Sequence[Key], n_blocks: int) -> tuple[Key, ...]:
        """Add the tasks that make the blocks of the parts in outcomes."""
        made = []
        for b in range(n_blocks):
            parts = [self.add("part", p, cells.take_part, Ref(o), b, at=(b,)) for p, o in enumerate(outcomes)]
            made.append(
                self.add("combine", b % len(outcomes), cells.combine, self._program, b, *map(Ref, parts), at=(b,))
            )
        return tuple(made)

    def record(self) -> Key:
        """Add the task that makes the record of this sweep, and return its key."""
        return self.add("record", 0, cells.record, self._program, self._sweep, Ref(self.keys.model))

    def ask_shards(self, method: str, at: tuple[int, ...] = ()) -> list[Key]:
        """Add a call of a method of the program for each shard, and return the keys."""
        return [
            self.add(f"{method}-shard", p, cells.ask_shard, self._program, self._mode,
                     self._cell(p)._replace(method=method), Ref(self.keys.model), Ref(shard), Ref(state), at=at)
            for p, (shard, state) in enumerate(zip(self.keys.shards, self.keys.states, strict=True))
        ]  # fmt: skip

    def harvest_blocks(self) -> list[Key]:
        """Add the harvest of each block, or of what shards see of each other's states, and return the keys."""
        stage = self._program.harvesting(len(self.keys.shards))
        if stage is not None:
            self._stage = 0
            return self._seen(stage)
        n, head = len(self.keys.shards), (cells.harvest_block, self._program, self._mode)
        return [self.add("harvest-block", b % n, *head, Ref(key), at=(b,)) for b, key in enumerate(self.keys.blocks)]

    def copy_blocks(self, what: str, blocks: Sequence[Ref], at: tuple[int, ...] = ()) -> list[Key]:
        """Add a copy of each block, and return the keys."""
        n = len(self.keys.shards)
        return [self.add(what, b % n, cells.copy_block, ref, at=(b, *at)) for b, ref in enumerate(blocks)]


def _following(order: Order) -> dict[tuple[int, int], int]:
    """Return for a step and a block the shard that the block meets next, if there is another one."""
    following: dict[tuple[int, int], int] = {}
    upcoming: dict[int, int] = {}
    for step, line in reversed(list(enumerate(order))):
        following |= {(step, b): upcoming[b] for b in line if b in upcoming}
        upcoming |= {b: p for p, b in enumerate(line) if b >= 0}
    return following
