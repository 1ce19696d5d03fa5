"""The work of one task, as the static engine sends it out.

The functions stand at module level so that a task travels as a name.  They own what they change: in place where the
runtime allows it, else on copies, so that Dask can compute any cell a second time from its unchanged inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schmp_estimators.core.places.place import Mode
from schmp_estimators.core.program import Local, Outcome, Program, Rotation, Visit
from schmp_estimators.core.values import freeze, own


def load_shard(function: Callable[..., Any], *pieces: Any) -> Any:
    """Make a shard of its pieces of the input."""
    return freeze(function(*pieces))


def start_shard(program: Program, mode: Mode, shard: Any, saved: Any) -> Outcome:
    """Make the first state of a shard, or restore a saved one."""
    return _seal(program.start(shard, saved, mode.each), mode)


def start_block(program: Program, index: int, saved: Any, *parts: Any) -> Any:
    """Make the first value of a block, or restore a saved one; parts are None where `Program.start` made none."""
    return program.start_block(index, [part for part in parts if part is not None], saved)


def rotation_cell(
    program: Program,
    mode: Mode,
    stage: Rotation,
    sweep: int,
    index: int,
    model: Any,
    shard: Any,
    held: Any,
    block: Any,
    *after: Any,
) -> Outcome:
    """Update one shard with one block; `after` are results that only have to be there first."""
    state = _state(held)
    if stage.divided:
        state = program.split(shard, state, index)
    if not mode.in_place:
        state = own(state)
    block = _held(block, stage.moves, mode)
    visit = Visit(stage.name, sweep, freeze(model), freeze(shard), state, index, block, mode.each)
    return _seal(program.update(visit), mode)


def local_cell(
    program: Program, mode: Mode, stage: Local, sweep: int, model: Any, shard: Any, held: Any, *pieces: Outcome
) -> Outcome:
    """Update one shard on its own, after its pieces of state have come back from a rotation that divided it."""
    shard = freeze(shard)
    if mode.in_place:
        state = _state(held)
    else:
        state = program.join(shard, [piece.state for piece in pieces]) if pieces else own(_state(held))
    return _seal(program.update(Visit(stage.name, sweep, freeze(model), shard, state, -1, None, mode.each)), mode)


def take_block(outcome: Outcome) -> Any:
    """Keep the block only: all that the next shard in the ring needs."""
    return outcome.block


def take_part(outcome: Outcome, index: int) -> Any:
    """Keep the part for one block only, None if there is none."""
    return outcome.parts[index] if outcome.parts else None


def take_partial(outcome: Outcome) -> Any:
    """Keep the report to `aggregate` only."""
    return outcome.partial


def combine(program: Program, index: int, *parts: Any) -> Any:
    """Make a block of its parts."""
    return program.combine(index, parts)


def aggregate(program: Program, model: Any, *partials: Any) -> Any:
    """Make the new model of the reports of all shards."""
    return freeze(program.aggregate(model, partials))


def progress(program: Program, sweep: int, n_shards: int, model: Any, *measures: Any) -> dict[str, Any]:
    """Make the record of a sweep."""
    return program.progress(sweep, model, measures[:n_shards], measures[n_shards:])


def call(program: Program, method: str, *args: Any) -> Any:
    """Call one of the program's methods that measure, harvest or save."""
    return getattr(program, method)(*map(_state, args))


def _state(held: Any) -> Any:
    """Return the state in an outcome, and anything else as it is."""
    return held.state if isinstance(held, Outcome) else held


def _held(block: Any, moves: bool, mode: Mode) -> Any:
    if not moves:
        return freeze(block)
    return block if mode.in_place else own(block)


def _seal(outcome: Outcome, mode: Mode) -> Outcome:
    return outcome if mode.in_place else freeze(outcome)
