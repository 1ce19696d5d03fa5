"""Exchanges whose shards all work at the same time: one task a shard and sweep, in which it waits for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schmp_estimators.core.engines import cells
from schmp_estimators.core.engines.cells import Cell, Outcome
from schmp_estimators.core.engines.keys import Keys
from schmp_estimators.core.places.place import Hands, Key, Mode, Ref
from schmp_estimators.core.program import AnyProgram
from schmp_estimators.core.stages import Stage
from schmp_estimators.core.values import freeze

if TYPE_CHECKING:
    from schmp_estimators.core.engines.graph import SweepGraph


def add_side_by_side(graph: SweepGraph, exchange: Stage, each: Stage) -> None:
    """Add the tasks of an exchange and of the stage after it, and the model that they make, to a graph."""
    keys, made = graph.keys, []
    name, n = f"{exchange.name}-{each.name}", len(keys.shards)
    for p, (shard, state) in enumerate(zip(keys.shards, keys.states, strict=True)):
        present = None if keys.with_model else Ref(keys.model)
        of_each = graph.holding(graph.cell(p, each)._replace(answered=True, kept=bool(exchange.keep)), p)
        of_each = of_each._replace(merge=each.merge.__name__ if each.merge else "")
        cells_of = graph.holding(graph.cell(p, exchange), p), of_each
        keep, key = exchange.keep.__name__ if exchange.keep else "", graph.key(name)
        head = graph.program, graph.mode, *cells_of, keep, key, present
        made.append(graph.add(name, p, work_side_by_side, *head, Ref(shard), Ref(state), is_bound=True))
    leader = _leader(graph.number, n)
    model = graph.add("model", leader, take_model, Ref(made[leader]))
    graph.keys = Keys(keys.shards, tuple(made), keys.blocks, model, with_model=True)


def work_side_by_side(
    program: AnyProgram, mode: Mode, exchanging: Cell, working: Cell, keep: str, key: Key, model: Any, shard: Any,
    held: Any,
) -> Outcome:  # fmt: skip
    """Do all of a shard's work in an exchange and in the stage after it, while the other shards do theirs.

    Parameters
    ----------
    program, mode
        As for other cells; ``mode.hands`` carries what shards give each other.
    exchanging, working : Cell
        Of the two stages.
    keep : str
        The method that makes what is kept of the state; "": nothing does.
    key : Key
        Under which shards give each other what they have: the same for all.
    model : object
        None: the one in `held`.
    shard, held : object
        As for `cells.send`.
    """
    hands, number, n = mode.hands, working.number, working.n_shards
    assert hands is not None
    if model is None:
        model = cells.outcome_of(held, working.member).model
    pieces = cells.send(program, mode, exchanging, key, shard, held)
    kept = held
    if keep:
        kept = cells.keep(program, mode, exchanging._replace(method=keep), shard, held)
        working = working._replace(member=-1)
    brought = _exchanged(hands, (*key, "pieces"), number, pieces)
    del pieces
    answers = cells.answer(program, mode, exchanging, key, model, shard, *brought)
    del brought
    answers = _exchanged(hands, (*key, "answers"), number, answers)
    made = cells.work_alone(program, mode, working, model, shard, kept, *answers)
    del answers, kept

    leader, reporting = _leader(working.sweep, n), (*key, "reports")
    hands.give(reporting, number, {leader: made.report})
    if number == leader:
        reports = list(hands.take(reporting, number, n).values())
        if working.merge:
            reports = [cells.merge(program, working.merge, *reports)]
        found = cells.aggregate(program, model, *reports)
        hands.give((*key, "model"), number, dict.fromkeys(range(n), found))
    [model] = hands.take((*key, "model"), number, 1).values()
    return made._replace(report=None, model=freeze(model))


def take_model(held: Any) -> Any:
    """Keep the model only."""
    return held.model


def _exchanged(hands: Hands, key: Key, number: int, pieces: Any) -> list[Any]:
    """Give every shard the piece for it, and return those that all have for this one."""
    hands.give(key, number, dict(enumerate(pieces)))
    return list(hands.take(key, number, len(pieces)).values())


def _leader(sweep: int, n_shards: int) -> int:
    """Return the shard that makes the model: every sweep another one, as it waits for all others."""
    return sweep % n_shards
