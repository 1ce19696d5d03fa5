"""The work of one task, as the static engine sends it out.

The functions stand at module level so that a task travels as a name.  They own what they change: in place where the
place allows it, else on copies, so that Dask can compute any cell a second time from its unchanged inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from schmp_estimators.core.engines.handing_over import HandedOver, look_at
from schmp_estimators.core.places.place import Key, Mode, quick
from schmp_estimators.core.program import AnyProgram
from schmp_estimators.core.recycling import RECYCLER
from schmp_estimators.core.reduction import tree_merge
from schmp_estimators.core.stages import At, Stage, for_all
from schmp_estimators.core.values import freeze, own, own_views


class Cell(NamedTuple):
    """What a cell must know beside its inputs.  It does not grow with the number of shards."""

    sweep: int
    number: int
    n_shards: int
    n_blocks: int
    #: The program's methods, by name, and how their results are to be read.
    method: str = ""
    args: tuple[Any, ...] = ()
    kind: str = "each"
    split: str = ""
    join: str = ""
    parts: bool = False
    reports: bool = False
    block: int = -1
    is_last: bool = True
    #: As in `At`.
    saves: bool = False
    #: Whether what comes from other cells are answers, not pieces of the shard's own state.
    answered: bool = False
    #: Whether the state is only what was kept of it.
    kept: bool = False
    #: Which one of the outcomes that a task has made for several shards holds the state; -1: there is only one.
    member: int = -1
    #: The method that makes one report of two, where reports of several shards are put together; "": none does.
    merge: str = ""
    #: Under which key `work_alone` keeps the pieces of the new state for the next exchange; else it cuts none.
    ahead: Key = ()

    def of(self, stage: Stage) -> Cell:
        """Return the cell with what it must know of a stage."""
        splits = stage.division.split if stage.division else stage.split
        split = splits.__name__ if splits else ""
        reports = stage.reports or stage.synced
        return self._replace(
            method=stage.function.__name__, args=stage.args, kind=stage.kind, split=split,
            parts=stage.parts, reports=reports,
        )  # fmt: skip


class Blocks(dict[int, Any]):
    """Blocks by number that are together."""


class Several(list[Any]):
    """What a task has made for each of several neighbouring shards, in their order."""


class Outcome(NamedTuple):
    """What a cell makes; other tasks take from it what they need."""

    state: Any
    #: The changed block, where the stage changes blocks.
    block: Any = None
    parts: Mapping[int, Any] = {}
    report: Any = None
    #: The ticket for pieces that were cut ahead.
    ticket: Any = None


def load_shard(function: Callable[..., Any], *pieces: Any) -> Any:
    """Make a shard of its pieces of the input."""
    return freeze(function(*freeze(pieces)))


@quick
def take_shard(loaded: Sequence[Any]) -> Any:
    """Keep the shard only."""
    return loaded[0]


@quick
def take_told(loaded: Sequence[Any]) -> Any:
    """Keep only what was told beside the shard."""
    return loaded[1]


def start_shard(program: AnyProgram, mode: Mode, cell: Cell, shard: Any, saved: Any, model: Any = None) -> Outcome:
    """Make the first state of a shard, or restore one that was saved with a model."""
    at = at_of(mode, cell, None, shard)
    if saved is None:
        state, parts = program.init(at)
    else:
        [kept] = freeze(saved)  # it may be needed again
        state, parts = program.restore(at._replace(model=freeze(model)), kept)
    return seal(Outcome(state, None, parts, program.report(at, state)), mode)


def meet(
    program: AnyProgram, mode: Mode, cell: Cell, model: Any, shard: Any, held: Any, block: Any, *after: Any
) -> Outcome:
    """Update one shard with one block, held as in `block_of`; `after` are results that only have to be there first."""
    at, state = at_of(mode, cell, model, shard), _state(held, cell)
    block = block_of(block, cell.block)  # the sweep before may have been grouped otherwise
    if cell.split:
        state = getattr(program, cell.split)(at, state)
    changing = cell.kind == "changes"
    if not mode.in_place:
        state, block = own(state, RECYCLER.copy), own(block, RECYCLER.copy) if changing else block
    result = getattr(program, cell.method)(at, state, block if changing else freeze(block), *cell.args)
    report = None
    if cell.reports:
        *result, report = result
        result = tuple(result) if changing else result[0]
    state, block = result if changing else (result, None)
    return seal(Outcome(state, block, {}, report), mode)


def send(program: AnyProgram, mode: Mode, cell: Cell, key: Key, shard: Any, held: Any) -> Any:
    """Cut the state of a shard into pieces for all shards; with a post, return a ticket for them."""
    return _cut(program, mode, cell, key, at_of(mode, cell, None, shard), freeze(_state(held, cell)))


def keep(program: AnyProgram, mode: Mode, cell: Cell, shard: Any, held: Any) -> Outcome:
    """Make what a shard needs of its state while the pieces of it are on their way."""
    at = at_of(mode, cell, None, shard)
    return seal(Outcome(getattr(program, cell.method)(at, freeze(_state(held, cell)))), mode)


def answer(program: AnyProgram, mode: Mode, cell: Cell, key: Key, model: Any, shard: Any, *brought: Any) -> Any:
    """Let a shard work on the pieces that all shards have for it, and answer them; `brought` is as in `bring`."""
    at = at_of(mode, cell, model, shard)
    answers = for_all(getattr(program, cell.method), at, bring(mode, cell.number, brought), *cell.args)
    return mode.post.keep(key, answers) if mode.post else answers


def answer_some(
    program: AnyProgram, mode: Mode, cell: Cell, key: Key, model: Any, tickets: Sequence[Any], *shards: Any
) -> list[Any]:
    """Let neighbouring shards answer, one after the other; `cell` and `key` are those of the first."""
    numbered = enumerate(shards, cell.number)
    return [
        answer(program, mode, cell._replace(number=n), (*key[:-1], n), model, shard, tickets) for n, shard in numbered
    ]


def answer_here(program: AnyProgram, mode: Mode, cell: Cell, model: Any, *held: Any) -> Any:
    """Let a shard work on the states of all shards, which are here, and answer; `held` are all shards, then states."""
    shards, states = held[: cell.n_shards], [_state(one, cell) for one in held[cell.n_shards :]]
    at = at_of(mode, cell, model, shards[cell.number])
    return for_all(getattr(program, cell.method), at, shards, states, *cell.args)


def bring(mode: Mode, number: int, brought: Sequence[Any]) -> list[Any]:
    """Return what is for shard `number`: of lists for all shards where nothing travels, and by tickets with a post."""
    if mode.in_place:
        return [of_shard[number] for of_shard in brought]
    return freeze(list(mode.post.bring(brought[0], number) if mode.post else brought))


@quick
def take_one(pieces: Sequence[Any], number: int) -> Any:
    """Keep only what is for shard `number`."""
    return pieces[number]


def gather_tickets(*tickets: Any) -> list[Any]:
    """Put tickets together: single ones, or lists of them."""
    return single(tickets)


def take_tickets(*outcomes: Any) -> list[Any]:
    """Put those tickets together that are in outcomes."""
    return [outcome.ticket for outcome in single(outcomes)]


def work_alone(program: AnyProgram, mode: Mode, cell: Cell, model: Any, shard: Any, held: Any, *pieces: Any) -> Outcome:
    """Update one shard on its own, after its pieces of state, or the answers of all shards, have come back."""
    at, answers = at_of(mode, cell, model, shard), []
    if cell.answered:
        answers, pieces = [bring(mode, cell.number, pieces)], ()
    if mode.in_place or cell.kept:
        state = _state(held, cell)
    else:
        joined = [look_at(piece.state) for piece in pieces]
        # Of exchanges there is more memory in use while the old state is gone: none of it shall be idle beside them.
        copy = None if cell.answered else RECYCLER.copy
        state = getattr(program, cell.join)(at, joined) if joined else own(_state(held, cell), copy)
    result = getattr(program, cell.method)(at, state, *answers, *cell.args)
    found = list(result) if cell.parts or cell.reports else [result]
    report = found.pop() if cell.reports else program.report(at, found[0])
    made = seal(Outcome(found[0], None, found[1] if cell.parts else {}, report), mode)
    if not cell.ahead:
        return made
    sweep = cell.ahead[2]
    ticket = _cut(program, mode, cell, cell.ahead, at._replace(model=None, sweep=sweep), look_at(made.state))
    return made._replace(ticket=ticket)


def work_some(
    program: AnyProgram, mode: Mode, cell: Cell, model: Any, tickets: Any, n_shards: int, *inputs: Any
) -> Several:
    """Update neighbouring shards, one after the other; `cell` is that of the first.

    Parameters
    ----------
    program, mode, cell, model
        As in `work_alone`.
    tickets : list of Ticket, optional
        Where the answers to them are, if there are any.
    n_shards : int
        How many shards there are.
    *inputs : object
        The shards, then what holds their states: outcomes, or lists of them, of which `cell.member` says where the
        first one's is.
    """
    shards, held = inputs[:n_shards], single(inputs[n_shards:])[max(0, cell.member) :]
    answers, made, model = [] if tickets is None else [tickets], Several(), freeze(model)
    for n, (shard, outcome) in enumerate(zip(shards, held, strict=False), cell.number):
        one = cell._replace(number=n, member=-1, ahead=cell.ahead and (*cell.ahead[:-1], n))
        made.append(work_alone(program, mode, one, model, shard, outcome, *answers))
    return made


def observe(program: AnyProgram, mode: Mode, cell: Cell, model: Any, shard: Any, held: Any, *blocks: Any) -> Any:
    """Return what a shard reports of itself, of a block, or of the pieces that all shards have for it."""
    at = at_of(mode, cell, model, shard)
    seen = (
        [bring(mode, cell.number, blocks)] if cell.split else freeze([block_of(block, cell.block) for block in blocks])
    )
    found = getattr(program, cell.method)(at, freeze(_state(held, cell)), *seen, *cell.args)
    return own_views(found) if mode.hands_over else found  # the state will go on changing, perhaps before it is read


@quick
def take_block(outcome: Outcome) -> Any:
    """Keep the block only: all that the next shard in the ring needs."""
    return outcome.block


@quick
def take_blocks(held: Any, numbers: Sequence[int]) -> Blocks:
    """Keep some of the blocks only: all that the next shards in the ring need."""
    return Blocks({b: block_of(held, b) for b in numbers})


@quick
def take_part(held: Any, index: int, member: int = -1) -> Any:
    """Keep the part for one block only, None if there is none."""
    return outcome_of(held, member).parts.get(index)


@quick
def take_report(held: Any, member: int = -1) -> Any:
    """Keep the report to `aggregate` only."""
    return outcome_of(held, member).report


def combine(program: AnyProgram, index: int, *parts: Any) -> Any:
    """Make a block of its parts."""
    return program.combine(index, [part for part in parts if part is not None])


def aggregate(program: AnyProgram, model: Any, *reports: Any) -> Any:
    """Make the new model of the reports of all shards, of which several may be together."""
    every = [one for some in reports for one in (some if type(some) is Several else [some])]
    return freeze(program.aggregate(model, freeze(every)))


def merge(program: AnyProgram, method: str, *reports: Any) -> Any:
    """Make one report of those of neighbouring shards."""
    return freeze(tree_merge(freeze(list(reports)), getattr(program, method)))


def record(program: AnyProgram, sweep: int, model: Any) -> dict[str, Any]:
    """Make the record of a sweep."""
    return program.record(sweep, model)


def merge_reports(program: AnyProgram, method: str, first: int, n: int, *outcomes: Any) -> Any:
    """Make one report of those in `n` outcomes of neighbouring shards, from the `first` one on."""
    return merge(program, method, *map(take_report, single(outcomes)[first : first + n]))


def ask_shard(program: AnyProgram, mode: Mode, cell: Cell, model: Any, shard: Any, held: Any) -> Any:
    """Return what the program saves or harvests of a shard."""
    found = getattr(program, cell.method)(at_of(mode, cell, model, shard), freeze(_state(held, cell)))
    # what goes on changing is not what was asked for
    return own_views(found) if mode.in_place or mode.hands_over else found


def harvest_block(program: AnyProgram, mode: Mode, number: int, held: Any) -> Any:
    """Return what the program harvests of a block."""
    found = program.harvest_block(freeze(block_of(held, number)))
    return own_views(found) if mode.in_place else found


def copy_block(number: int, held: Any) -> Any:
    """Return a block to be saved, or to be worked upon after it was saved."""
    return own(block_of(held, number))


def block_of(held: Any, number: int) -> Any:
    """Return a block, which may be held alone, with others, or by the outcomes of who has changed it."""
    held = held[0] if type(held) is Several else held
    held = held.block if type(held) is Outcome else held
    return held[number] if type(held) is Blocks else held


def at_of(mode: Mode, cell: Cell, model: Any, shard: Any) -> At:
    """Return what a function of the program is told of where it is called."""
    if not mode.in_place:  # else they are what this process has frozen
        model, shard = freeze(model), freeze(shard)
    return At(
        shard,
        model,
        cell.sweep,
        cell.number,
        cell.n_shards,
        cell.block,
        cell.n_blocks,
        cell.is_last,
        mode.each,
        mode.in_place,
        cell.saves,
    )


def _cut(program: AnyProgram, mode: Mode, cell: Cell, key: Key, at: At, state: Any) -> Any:
    pieces = for_all(getattr(program, cell.split), at, state)
    return mode.post.keep(key, pieces) if mode.post else pieces


def _state(held: Any, cell: Cell) -> Any:
    """Return the state in an outcome."""
    return look_at(outcome_of(held, cell.member).state)


def outcome_of(held: Any, member: int) -> Outcome:
    """Return an outcome, of those that a task has made if there are several."""
    found: Outcome = held if member < 0 else held[member]
    return found


def single(found: Sequence[Any]) -> list[Any]:
    """Return what tasks have made one by one, where some have made lists."""
    return [one for some in found for one in (some if isinstance(some, list) else [some])]


def seal(outcome: Outcome, mode: Mode) -> Outcome:
    """Return an outcome that nobody may write to, but for a state that the next task may take over."""
    if mode.in_place:
        return outcome
    if mode.hands_over:
        return freeze(outcome._replace(state=HandedOver(outcome.state)))
    return freeze(outcome)
