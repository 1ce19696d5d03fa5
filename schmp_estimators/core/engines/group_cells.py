"""The work of a task for several shards that share a thread of a worker: their cells, one after the other.

As in `cells`, the functions own what they change.  A task copies a state once, however many cells it goes through.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

from schmp_estimators.core.engines.cells import (
    Blocks,
    Cell,
    Outcome,
    Several,
    aggregate,
    at_of,
    block_of,
    observe,
    outcome_of,
    seal,
    single,
    work_alone,
)
from schmp_estimators.core.engines.handing_over import look_at
from schmp_estimators.core.places.place import Mode
from schmp_estimators.core.program import AnyProgram
from schmp_estimators.core.recycling import RECYCLER
from schmp_estimators.core.reduction import Segment, add_segment
from schmp_estimators.core.values import freeze, own


class Plan(NamedTuple):
    """What a task for several shards does, and where among its inputs it finds what it works on."""

    #: For each visit the position of the shard, the block, and whether the shard meets no further one.
    visits: tuple[tuple[int, int, bool], ...]
    #: For each shard which input holds its state, and which of the outcomes there, -1 if there is only one.
    states: tuple[tuple[int, int], ...]
    #: Blocks, and which inputs hold them.
    blocks: tuple[tuple[int, int], ...]


class Segments(list[Segment]):
    """Merged reports of neighbouring shards."""


def meet_some(program: AnyProgram, mode: Mode, cell: Cell, plan: Plan, model: Any, *inputs: Any) -> Any:
    """Let neighbouring shards meet blocks as planned; `cell` is that of the first, `inputs` are shards, then the rest.

    Returns
    -------
    Outcome, or Several of them
        For each shard, those that meet nobody included; the first one has all blocks that were changed.
    """
    n = len(plan.states)
    shards, held = freeze(list(inputs[:n])), inputs[n:]
    model, changing = freeze(model), cell.kind == "changes"
    kept = [outcome_of(held[at], which).state for at, which in plan.states]
    states: dict[int, Any] = {}
    blocks = {b: block_of(held[at], b) for b, at in plan.blocks}
    copied: set[int] = set()
    for position, b, is_last in plan.visits:
        if position not in states:
            states[position] = own(look_at(kept[position]), RECYCLER.copy)
        if changing and b not in copied:
            blocks[b] = own(blocks[b], RECYCLER.copy)
            copied.add(b)
        at = at_of(
            mode, cell._replace(number=cell.number + position, block=b, is_last=is_last), model, shards[position]
        )
        block = blocks[b] if changing else freeze(blocks[b])
        found = getattr(program, cell.method)(at, states[position], block, *cell.args)
        states[position], blocks[b] = found if changing else (found, block)
    changed = Blocks({b: freeze(block) for b, block in blocks.items()}) if changing else None
    outcomes = [seal(Outcome(states[n]), mode) if n in states else Outcome(one) for n, one in enumerate(kept)]
    outcomes[0] = outcomes[0]._replace(block=changed)
    return Several(outcomes) if len(outcomes) > 1 else outcomes[0]


def work_together(
    program: AnyProgram, mode: Mode, cell: Cell, model: Any, n_shards: int, *inputs: Any
) -> Outcome | Several:
    """Update neighbouring shards, as `work_some` does; the first outcome has the reports of all, merged if they may be.

    These are Several reports, or Segments of merged ones.  A lone shard has its own outcome.
    """
    shards, held = inputs[:n_shards], single(inputs[n_shards:])[max(0, cell.member) :]
    made, reports, model = Several(), Several(), freeze(model)
    segments = Segments()
    for n, (shard, outcome) in enumerate(zip(shards, held, strict=False), cell.number):
        new = work_alone(program, mode, cell._replace(number=n, member=-1), model, shard, outcome)
        if n_shards == 1:
            return new
        if cell.merge:
            add_segment(segments, Segment(n, 1, new.report), cell.n_shards, getattr(program, cell.merge))
        else:
            reports.append(new.report)
        made.append(new._replace(report=None))
    made[0] = made[0]._replace(report=segments if cell.merge else reports)
    return made


def observe_some(program: AnyProgram, mode: Mode, cell: Cell, model: Any, n_shards: int, *inputs: Any) -> Several:
    """Return what neighbouring shards report of themselves; arguments are as in `work_some`."""
    shards, held = inputs[:n_shards], single(inputs[n_shards:])[max(0, cell.member) :]
    numbered = enumerate(zip(shards, held, strict=False), cell.number)
    model, alone = freeze(model), cell._replace(member=-1)
    return Several(observe(program, mode, alone._replace(number=n), model, *one) for n, one in numbered)


def merge_segments(program: AnyProgram, method: str, n_shards: int, firsts: Sequence[int], *reports: Any) -> Segments:
    """Merge the reports of groups of shards, each with its first one, as far as the tree has them together."""
    segments = Segments()
    for first, found in zip(firsts, reports, strict=True):
        for one in found if type(found) is Segments else [Segment(first, 1, found)]:
            add_segment(segments, one._replace(value=freeze(one.value)), n_shards, getattr(program, method))
    return segments


def aggregate_segments(
    program: AnyProgram, method: str, n_shards: int, firsts: Sequence[int], model: Any, *reports: Any
) -> Any:
    """Make the new model of the reports of groups of shards: of two at least, as with one shard only there is one."""
    if all(type(one) is Segments for one in reports) and len({one.width for some in reports for one in some}) == 1:
        # nodes of one level of the tree: `aggregate` adds them up as it would add up all leaves
        return aggregate(program, model, *(one.value for some in reports for one in some))
    left, *others = [one.value for one in merge_segments(program, method, n_shards, firsts, *reports)]
    right = reduce(lambda after, before: getattr(program, method)(before, after), reversed(others))
    return aggregate(program, model, left, right)
