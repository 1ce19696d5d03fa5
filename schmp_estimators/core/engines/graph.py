"""The graph of one sweep: which cell needs what, in the order in which blocks go round the ring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from schmp_estimators.core.engines import cells, grouping
from schmp_estimators.core.engines.cells import Cell
from schmp_estimators.core.engines.keys import Keys, Run, member
from schmp_estimators.core.engines.rotating import add_rotation
from schmp_estimators.core.places.place import Key, Mode, Ref, Task
from schmp_estimators.core.program import AnyProgram
from schmp_estimators.core.reduction import FAN_IN, groups
from schmp_estimators.core.stages import At, Stage, check_stages

#: What makes one report of two, if reports may be merged on their way.
Merge = Callable[[Any, Any], Any] | None

#: How many tickets, or lists of them, one task puts together.  They are small, and a task costs more than they do.
TICKETS_TOGETHER = 64


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
    together : int, default=1
        How many neighbours at the same place one task may serve, one after the other, where pieces travel by post.
    beside : int, default=1
        How many neighbours at the same place share a thread: one task may serve them all.

    Attributes
    ----------
    groups : list of sequence of int
        The shards that share a thread.
    is_grouped : bool
        Whether any do.
    number : int
        That of the sweep.
    saves : bool
        Whether it is known that the state after it will be saved.
    """

    def __init__(
        self,
        program: AnyProgram,
        mode: Mode,
        run: Run,
        sweep: int,
        keys: Keys,
        homes: Sequence[Any] | None = None,
        together: int = 1,
        beside: int = 1,
    ) -> None:
        self.tasks: list[Task] = []
        self.keys = keys
        self.program, self._mode, self._run, self.number, self.saves = program, mode, run, sweep, False
        self._stage, self.homes = 0, homes or range(len(keys.shards))
        shards = range(len(keys.shards))
        self._batches = self._at_home(shards, together if mode.post else 1)
        self.groups = self._at_home(shards, beside)
        self.is_grouped = len(self.groups) < len(shards)

    def add(self, what: str, place: int, function: Callable[..., Any], *args: Any, at: tuple[int, ...] = ()) -> Key:
        """Add the task of `function` near shard `place`, and return its key."""
        key = self.key(what, place, at)
        self.tasks.append(Task(key, function, args, place))
        return key

    def add_stage(
        self, stage: Stage, place: int, function: Callable[..., Any], cell: Cell, *args: Any, at: tuple[int, ...] = ()
    ) -> Key:
        """Add a task of a stage."""
        return self.add(stage.name, place, function, self.program, self._mode, cell, *args, at=at)

    def key(self, what: str, place: int, at: tuple[int, ...] = ()) -> Key:
        """Return the key of a task near shard `place`."""
        return self._named(what, self.number, self._stage, place, *at)

    def _named(self, what: str, *at: int) -> Key:
        return self._run.key(f"{self.program.name}-{what}", *at)

    def start(self, saved: Sequence[Ref | None], n_blocks: int, model: Ref | None = None) -> tuple[Key, ...]:
        """Add the tasks that make the first states of the shards, or restore those that were saved with a model."""
        made = []
        for p, (shard, kept) in enumerate(zip(self.keys.shards, saved, strict=True)):
            cell = self.cell(p)._replace(n_blocks=n_blocks)
            made.append(
                self.add("start", p, cells.start_shard, self.program, self._mode, cell, Ref(shard), kept, model)
            )
        return tuple(made)

    def sweep(self, *, is_last: bool = False) -> None:
        """Add all stages of the sweep; if there is another one, what it sends first may be sent ahead."""
        ahead = [] if is_last or not self._mode.post else self._stages_of(self.number + 1)
        self._add_stages(self._stages_of(self.number), ahead)

    def add_after(self, stages: Any) -> None:
        """Add stages that follow those of the sweep."""
        checked = check_stages(self.program, stages, len(self.keys.shards), len(self.keys.blocks))
        self._add_stages([(stage, self.number, -1 - number) for number, stage in enumerate(checked)])

    def _stages_of(self, sweep: int) -> list[Placed]:
        """Return the stages of a sweep, each with where it stands in keys: no task has the key of another."""
        n_shards, n_blocks = len(self.keys.shards), len(self.keys.blocks)
        stages = check_stages(self.program, self.program.schedule(sweep, n_shards), n_shards, n_blocks)
        return [(stage, sweep, 1 + number) for number, stage in enumerate(stages)]

    def _add_stages(self, stages: list[Placed], ahead: Sequence[Placed] = ()) -> None:
        for number, (stage, _, self._stage) in enumerate(stages):
            if stage.kind == "each":
                self._each(stage, self._exchange_after([*stages[number + 1 :], *ahead]))
            elif stage.kind == "observes":
                alone = stage.order or stage.split or stage.merge or not self.is_grouped
                seen = self._seen(stage) if alone else grouping.add_seen(self, stage)
                model = self.aggregated(seen, Ref(self.keys.model), (), stage.merge)
                self.keys = self.keys._replace(model=model)
            elif stage.kind == "exchanges":
                self._exchange(stage)
            else:
                assert stage.order is not None
                add_rotation(self, stage, stage.order)

    def _exchange_after(self, stages: Sequence[Placed]) -> Placed | None:
        """Return the stage that exchanges pieces of the present states, if they travel by post."""
        changing = (placed for placed in stages if placed[0].kind != "observes")
        following = next(changing, None) if self._mode.post else None
        return following if following and following[0].kind == "exchanges" else None

    def _at_home(self, shards: Sequence[int], most: int) -> list[Sequence[int]]:
        """Cut consecutive shards where the place changes, and where there are more than `most`."""
        alike = [list(some) for _, some in groupby(shards, self.homes.__getitem__)]
        return [batch for some in alike for batch in groups(some, most)]

    @property
    def met_model(self) -> Ref | None:
        """The model as cells get it that meet blocks."""
        return Ref(self.keys.model) if self.program.meets_model else None

    def cell(self, number: int, stage: Stage | None = None) -> Cell:
        """Return what the cell of a shard must know."""
        cell = Cell(self.number, number, len(self.keys.shards), len(self.keys.blocks), saves=self.saves)
        return cell.of(stage) if stage else cell

    def holding(self, cell: Cell, number: int) -> Cell:
        """Return the cell of a shard, with what it must know to find the state."""
        return cell._replace(number=number, member=member(self.keys.states, number))

    def _exchange(self, stage: Stage) -> None:
        met, any_cell = [], self.cell(0, stage)
        if stage.here and self._mode.in_place:
            self._exchange_here(stage, stage.here.__name__)
            return
        pieces = self._pieces_cut_ahead() if self.keys.cut else self._pieces(stage)
        for p, *others in self._batches:
            head = (self.program, self._mode, any_cell._replace(number=p), self.key(stage.name, p))
            shards = [self.keys.shards[one] for one in (p, *others)]
            function = cells.answer_some if others else cells.answer
            refs = map(Ref, (self.keys.model, *((*pieces[p], *shards) if others else (*shards, *pieces[p]))))
            met.append(self.add(stage.name, p, function, *head, *refs))
        kept = self._kept(stage.keep) if stage.keep and not (self._mode.in_place or self._mode.post) else ()
        self.keys = self.keys._replace(answers=self._dealt("answer", met), kept=kept)

    def _exchange_here(self, stage: Stage, method: str) -> None:
        """Add the tasks that let every shard work on all states."""
        met, any_cell = [], self.cell(0, stage)._replace(method=method)
        every = [Ref(key) for key in (self.keys.model, *self.keys.shards, *self.keys.states)]
        for p in range(len(self.keys.shards)):
            cell = any_cell._replace(number=p)
            met.append(self.add(stage.name, p, cells.answer_here, self.program, self._mode, cell, *every))
        self.keys = self.keys._replace(answers=self._dealt("answer", met))

    def _kept(self, function: Callable[[At, Any], Any]) -> tuple[Key, ...]:
        """Add the tasks that make what is kept of states, and return where it is."""
        kept, any_cell = [], self.cell(0)._replace(method=function.__name__)
        for p, (shard, state) in enumerate(zip(self.keys.shards, self.keys.states, strict=True)):
            cell = any_cell._replace(number=p)
            kept.append(self.add("keep", p, cells.keep, self.program, self._mode, cell, Ref(shard), Ref(state)))
        return tuple(kept)

    def _pieces(self, stage: Stage) -> tuple[tuple[Key, ...], ...]:
        """Add the tasks that cut states, and return for each shard where the pieces for it are."""
        sent, any_cell = [], self.cell(0, stage)
        for p, (shard, state) in enumerate(zip(self.keys.shards, self.keys.states, strict=True)):
            key, cell = self.key("send", p), self.holding(any_cell, p)
            sent.append(self.add("send", p, cells.send, self.program, self._mode, cell, key, Ref(shard), Ref(state)))
        return self._dealt("piece", sent)

    def _pieces_cut_ahead(self) -> tuple[tuple[Key, ...], ...]:
        """Add the tasks that gather the tickets in outcomes, each where its outcomes are, as these are large."""
        tickets, states = [], self.keys.states
        firsts = [p for p, state in enumerate(states) if not p or state != states[p - 1]]
        for some in self._at_home(firsts, TICKETS_TOGETHER):
            refs = [Ref(states[p]) for p in some]
            tickets.append(self.add("tickets", some[0], cells.take_tickets, *refs, at=(1, some[0])))
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
        if self.is_grouped and not (self._mode.post or self.keys.pieces or self.keys.answers):
            grouping.add_each(self, stage)
            return
        outcomes, answered = [], self.keys.answers != ()
        any_cell = self.cell(0, stage)._replace(join=self.keys.join, answered=answered, kept=self.keys.kept != ())
        cutting, *when = following or (None,)
        if cutting and cutting.split:
            any_cell = any_cell._replace(split=cutting.split.__name__)
        states = self.keys.kept or self.keys.states
        for p, *others in [(p,) for p in range(len(states))] if self.keys.pieces else self._batches:
            pieces = self.keys.answers[p] if answered else self.keys.pieces[p] if self.keys.pieces else ()
            cell = self.holding(any_cell, p)._replace(ahead=self._named("send", *when, p) if cutting else ())
            head = (self.program, self._mode, cell, Ref(self.keys.model))
            if others:
                shards, held = ([of[one] for one in (p, *others)] for of in (self.keys.shards, states))
                refs = map(Ref, (*shards, *dict.fromkeys(held)))
                tickets = Ref(pieces[0]) if pieces else None
                made = self.add(stage.name, p, cells.work_some, *head, tickets, len(shards), *refs)
            else:
                # Where the pieces are new, the old state is not needed and must not be kept alive.
                state = None if pieces and not answered and not self._mode.in_place else Ref(states[p])
                made = self.add(
                    stage.name, p, cells.work_alone, *head, Ref(self.keys.shards[p]), state, *map(Ref, pieces)
                )
            outcomes += [made] * (1 + len(others))
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
                cell = self.holding(self.cell(p, stage), p)._replace(block=b)
                seen = pieces[p] if pieces else [self.keys.blocks[b]] if b >= 0 else []
                refs = map(Ref, (self.keys.model, self.keys.shards[p], self.keys.states[p], *seen))
                head = (self.program, self._mode, cell)
                made.append((p, step, self.add(stage.name, p, cells.observe, *head, *refs, at=(step, b))))
        return [key for *_, key in sorted(made)]

    def aggregate(
        self, outcomes: Sequence[Key], model: Ref | None, at: tuple[int, ...] = (), merge: Merge = None
    ) -> Key:
        """Add the tasks that make the model of the reports in outcomes, one of each shard."""
        if not merge or len(outcomes) <= FAN_IN // 2:
            return self.aggregated(self._reports(outcomes, at, range(len(outcomes))), model, at, merge)
        # Up to eight reports could come together at once, but each may have all topics.
        width = FAN_IN // 2 if len(outcomes) <= FAN_IN else FAN_IN if len(outcomes) <= FAN_IN**2 else FAN_IN**2
        shards = groups(range(len(outcomes)), width)
        merged = [self._merged(outcomes, some, merge, at, width) for some in shards]
        return self.aggregated(merged, model, at, merge, width)

    def _merged(
        self,
        outcomes: Sequence[Key],
        shards: Sequence[int],
        merge: Callable[[Any, Any], Any],
        at: tuple[int, ...],
        width: int,
    ) -> Key:
        """Add the tasks that make one report of those of up to `width` neighbouring shards."""
        first, head = shards[0], (self.program, merge.__name__)
        place = (*at, width, first // width)
        if len({self.homes[p] for p in shards}) == 1:
            held = map(Ref, dict.fromkeys(outcomes[p] for p in shards))
            which = max(0, member(outcomes, first)), len(shards)
            return self.add("merge", first, cells.merge_reports, *head, *which, *held, at=place)
        if width > FAN_IN:
            seen = [self._merged(outcomes, some, merge, at, FAN_IN) for some in groups(shards)]
        else:  # what is larger than its report stays where it is
            seen = self._reports(outcomes, at, shards)
        return self.add("merge", first, cells.merge, *head, *map(Ref, seen), at=place)

    def _reports(self, outcomes: Sequence[Key], at: tuple[int, ...], shards: Sequence[int]) -> list[Key]:
        """Add the tasks that take the reports of some shards out of outcomes."""
        return [self.add("report", p, cells.take_report, Ref(outcomes[p]), member(outcomes, p), at=at) for p in shards]

    def aggregated(
        self, reports: Sequence[Key], model: Ref | None, at: tuple[int, ...], merge: Merge, width: int = 1
    ) -> Key:
        """Add the tasks that make the model of reports, of which several may be together."""
        while merge and len(reports) > FAN_IN:
            width, head = width * FAN_IN, (cells.merge, self.program, merge.__name__)
            reports = [
                self.add("merge", n * width % len(self.keys.shards), *head, *map(Ref, group), at=(*at, width, n))
                for n, group in enumerate(groups(reports))
            ]
        place = self.number % max(1, len(self.keys.shards))
        return self.add("aggregate", place, cells.aggregate, self.program, model, *map(Ref, reports), at=at)

    def combine(self, outcomes: Sequence[Key], n_blocks: int) -> tuple[Key, ...]:
        """Add the tasks that make the blocks of the parts in outcomes."""
        made = []
        for b in range(n_blocks):
            parts = [
                self.add("part", p, cells.take_part, Ref(o), b, member(outcomes, p), at=(b,))
                for p, o in enumerate(outcomes)
            ]
            made.append(
                self.add("combine", b % len(outcomes), cells.combine, self.program, b, *map(Ref, parts), at=(b,))
            )
        return tuple(made)

    def record(self) -> Key:
        """Add the task that makes the record of this sweep, and return its key."""
        return self.add("record", 0, cells.record, self.program, self.number, Ref(self.keys.model))

    def ask_shards(self, method: str, at: tuple[int, ...] = ()) -> list[Key]:
        """Add a call of a method of the program for each shard, and return the keys."""
        any_cell = self.cell(0)._replace(method=method)
        return [
            self.add(f"{method}-shard", p, cells.ask_shard, self.program, self._mode, self.holding(any_cell, p),
                     Ref(self.keys.model), Ref(shard), Ref(state), at=at)
            for p, (shard, state) in enumerate(zip(self.keys.shards, self.keys.states, strict=True))
        ]  # fmt: skip

    def harvest_blocks(self) -> list[Key]:
        """Add the harvest of each block, or of what shards see of each other's states, and return the keys."""
        stage = self.program.harvesting(len(self.keys.shards))
        if stage is not None:
            self._stage = 0
            return self._seen(stage)
        n, head = len(self.keys.shards), (cells.harvest_block, self.program, self._mode)
        blocks = enumerate(self.keys.blocks)
        return [self.add("harvest-block", b % n, *head, b, Ref(key), at=(b,)) for b, key in blocks]

    def copy_blocks(self, what: str, blocks: Sequence[Ref], at: tuple[int, ...] = ()) -> list[Key]:
        """Add a copy of each block, and return the keys."""
        n = len(self.keys.shards)
        return [self.add(what, b % n, cells.copy_block, b, ref, at=(b, *at)) for b, ref in enumerate(blocks)]
