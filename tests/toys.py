"""Two small programs in which every order and every number matters: the test pieces of engines and runtimes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from schmp_estimators.core.program import Local, Outcome, Program, Rotation
from schmp_estimators.core.schedules.rotation import schedule_rotation


def scramble(*arrays):
    """A sum that depends on which argument is which, modulo a prime."""
    total = np.zeros(4, np.int64)
    for array in arrays:
        total = (total * 1_000_003 + array) % 2_147_483_647
    return total


class Report(NamedTuple):
    total: np.ndarray
    visits: int


@dataclass(frozen=True)
class Ring(Program):
    """Blocks are changed and move on; the state is changed as a whole."""

    name: ClassVar[str] = "ring"
    fail_at: int = -1

    def schedule(self, sweep, n_shards):
        return Rotation("turn", schedule_rotation(n_shards), moves=True, divided=False), Local("sum-up")

    def start(self, shard, saved, each):
        state = np.array(shard) if saved is None else np.array(saved)
        return Outcome(state, partial=Report(state, 0))

    def start_block(self, index, parts, saved):
        return np.full(4, index + 1, np.int64) if saved is None else np.array(saved)

    def update(self, visit):
        if visit.sweep == self.fail_at:
            raise ZeroDivisionError("the program itself is wrong")
        if visit.stage == "turn":
            new = scramble(visit.state, visit.block, visit.model.total, visit.shard)
            visit.block[:] = scramble(visit.block, visit.state)
            visit.state[:] = new
            return Outcome(visit.state, block=visit.block)
        visit.state[:] += 1
        each = visit.each(lambda i: int(visit.state[i]), range(4))
        return Outcome(visit.state, partial=Report(np.array(each), 1))

    def aggregate(self, model, partials):
        return Report(scramble(*(p.total for p in partials)), sum(p.visits for p in partials))

    def save(self, shard, state):
        return np.array(state)

    def save_block(self, block):
        return np.array(block)

    def progress(self, sweep, model, shards, blocks):
        return {"sweep": sweep, "total": model.total.tolist(), "visits": model.visits}

    def harvest_shard(self, shard, state):
        return state.tolist()

    def harvest_block(self, block):
        return block.tolist()


@dataclass(frozen=True)
class Synced(Ring):
    """Every step of the rotation ends in a barrier."""

    name: ClassVar[str] = "synced"

    def schedule(self, sweep, n_shards):
        rotation, last = super().schedule(sweep, n_shards)
        return rotation._replace(synced=True), last

    def update(self, visit):
        out = super().update(visit)
        return out if out.partial else out._replace(partial=Report(scramble(out.state, out.block), 1))


@dataclass(frozen=True)
class Resting(Ring):
    """Blocks stay what they were from the start."""

    name: ClassVar[str] = "resting"

    def schedule(self, sweep, n_shards):
        rotation, last = super().schedule(sweep, n_shards)
        return rotation._replace(moves=False), last

    def update(self, visit):
        if visit.stage != "turn":
            return super().update(visit)
        visit.state[:] = scramble(visit.state, visit.block, visit.model.total, visit.shard)
        return Outcome(visit.state)


@dataclass(frozen=True)
class Divided(Program):
    """Blocks are read, and made anew of parts; the state is divided by block."""

    name: ClassVar[str] = "divided"

    def schedule(self, sweep, n_shards):
        return (
            Rotation("visit", schedule_rotation(n_shards), moves=False, divided=True),
            Local("remake", parts=True),
        )

    def start(self, shard, saved, each):
        state = np.outer(shard, np.arange(1, 9)) if saved is None else np.array(saved)
        return Outcome(state, parts=self._parts(shard, state), partial=state.sum(1))

    def _parts(self, shard, state):
        n = int(shard[-1])
        return [state[:, b::n].sum(1) for b in range(n)]

    def combine(self, index, parts):
        return scramble(*parts, np.full(4, index))

    def split(self, shard, state, index):
        return state[:, index :: int(shard[-1])]

    def join(self, shard, pieces):
        n = int(shard[-1])
        state = np.empty((4, 8), np.int64)
        for b, piece in enumerate(pieces):
            state[:, b::n] = piece
        return state

    def update(self, visit):
        if visit.stage == "visit":
            assert not visit.block.flags.writeable
            visit.state[:] = (visit.state * 31 + visit.block[:, None] + visit.model[:, None]) % 2_147_483_647
            return Outcome(visit.state, partial=visit.state.sum(1))
        visit.state[:, 0] += visit.sweep
        return Outcome(visit.state, parts=self._parts(visit.shard, visit.state), partial=visit.state.sum(1))

    def aggregate(self, model, partials):
        return scramble(*partials)

    def save(self, shard, state):
        return np.array(state)

    def measures(self, sweep):
        return sweep % 2 == 0

    def measure_shard(self, shard, state):
        return int(state.max())

    def measure_block(self, block):
        return int(block.max())

    def progress(self, sweep, model, shards, blocks):
        return {"sweep": sweep, "model": model.tolist(), "shards": list(shards), "blocks": list(blocks)}

    def harvest_shard(self, shard, state):
        return state.tolist()

    def harvest_block(self, block):
        return block.tolist()


@dataclass(frozen=True)
class DividedSynced(Divided):
    """Every step of the rotation that divides the state ends in a barrier."""

    name: ClassVar[str] = "divided-synced"

    def schedule(self, sweep, n_shards):
        rotation, last = super().schedule(sweep, n_shards)
        return rotation._replace(synced=True), last


def make_shards(n_shards):
    """Shards whose last number is how many they are."""
    return [np.array([3 * p + 1, p, 7, n_shards], np.int64) for p in range(n_shards)]


PROGRAMS = [Ring(), Synced(), Resting(), Divided(), DividedSynced()]
