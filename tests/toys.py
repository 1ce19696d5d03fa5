"""Small programs in which every order and every number matters: the test pieces of engines and places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from schmp_estimators.core.program import Program
from schmp_estimators.core.reduction import tree_merge
from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.core.stages import Division, changes, each, exchanges, observes, reads


def scramble(*arrays):
    """A sum that depends on which argument is which, modulo a prime."""
    total = np.zeros(4, np.int64)
    for array in arrays:
        total = (total * 1_000_003 + array) % 2_147_483_647
    return total


class Total(NamedTuple):
    total: np.ndarray
    visits: int


@dataclass(frozen=True)
class Ring(Program):
    """Blocks are changed and move on; the state is changed as a whole."""

    name: ClassVar[str] = "ring"
    saved_types: ClassVar[tuple] = (Total, None, None)
    fail_at: int = -1

    def schedule(self, sweep, n_shards):
        return changes(self.turn, order=schedule_rotation(n_shards)), each(self.sum_up)

    def init(self, at):
        return np.array(at.shard), {at.number: np.full(4, at.number + 1, np.int64)}

    def turn(self, at, state, block):
        if at.sweep == self.fail_at:
            raise ZeroDivisionError("the program itself is wrong")
        new = scramble(state, block, at.model.total, at.shard, at.is_last)
        block[:] = scramble(block, state)
        state[:] = new
        return state, block

    def sum_up(self, at, state):
        state[:] = [number + 1 for number in at.each(lambda i: int(state[i]), range(4))]
        return state

    def report(self, at, state):
        return Total(np.array(state), int(at.model is not None))

    def aggregate(self, model, reports):
        return Total(scramble(*(p.total for p in reports)), sum(p.visits for p in reports))

    def record(self, sweep, model):
        return {"sweep": sweep, "total": model.total.tolist(), "visits": model.visits}

    def harvest(self, at, state):
        return state.tolist()

    def harvest_block(self, block):
        return block.tolist()


@dataclass(frozen=True)
class Synced(Ring):
    """Every step of the rotation ends in a barrier; the function is told a number."""

    name: ClassVar[str] = "synced"

    def schedule(self, sweep, n_shards):
        return changes(self.turn_and_tell, sweep, order=schedule_rotation(n_shards), synced=True), each(self.sum_up)

    def turn_and_tell(self, at, state, block, told):
        assert told == at.sweep
        state, block = self.turn(at, state, block)
        return state, block, Total(scramble(state, block), 1)


@dataclass(frozen=True)
class Resting(Ring):
    """Blocks stay what they were from the start."""

    name: ClassVar[str] = "resting"

    def schedule(self, sweep, n_shards):
        return reads(self.look, order=schedule_rotation(n_shards)), each(self.sum_up)

    def look(self, at, state, block):
        state[:] = scramble(state, block, at.model.total, at.shard)
        return state


@dataclass(frozen=True)
class ManyBlocks(Ring):
    """Twice as many blocks as shards, and one more: some rest in every step."""

    name: ClassVar[str] = "many-blocks"

    def n_blocks(self, n_shards):
        return 2 * n_shards + 1

    def init(self, at):
        mine = range(at.number, at.n_blocks, at.n_shards)
        return np.array(at.shard), {b: np.full(4, b + 1, np.int64) for b in mine}

    def schedule(self, sweep, n_shards):
        return changes(self.turn, order=schedule_rotation(n_shards, self.n_blocks(n_shards))), each(self.sum_up)


@dataclass(frozen=True)
class FewBlocks(ManyBlocks):
    """Fewer blocks than shards: some shards are idle in every step."""

    name: ClassVar[str] = "few-blocks"

    def n_blocks(self, n_shards):
        return (n_shards + 1) // 2


@dataclass(frozen=True)
class Partial(Ring):
    """Only some pairs meet; the last block meets nobody."""

    name: ClassVar[str] = "partial"

    def schedule(self, sweep, n_shards):
        line = [-1 if p == n_shards - 1 else p for p in range(n_shards)]
        return changes(self.turn, order=(line, [line[-1], *line[:-1]])), each(self.sum_up)


@dataclass(frozen=True)
class Observed(Ring):
    """Shards tell what they see of themselves and of blocks, and one stage makes its own reports."""

    name: ClassVar[str] = "observed"

    def schedule(self, sweep, n_shards):
        order = schedule_rotation(n_shards)
        return (
            changes(self.turn, order=order),
            each(self.sum_up_and_tell, reports=True),
            observes(self.tell_of_block, 3, order=[order[0], *((-1, *line[1:]) for line in order[1:2])]),
            observes(self.tell),
        )

    def sum_up_and_tell(self, at, state):
        state = self.sum_up(at, state)
        return state, Total(state * 2, 1)

    def tell_of_block(self, at, state, block, factor):
        assert not block.flags.writeable and not state.flags.writeable
        return Total(factor * block + state + at.block + at.model.total, 10)

    def tell(self, at, state):
        return Total(state + at.model.total, 100)


@dataclass(frozen=True)
class Divided(Program):
    """Blocks are read, and made anew of parts; the state is divided by block."""

    name: ClassVar[str] = "divided"
    saves_blocks: ClassVar[bool] = False
    synced: ClassVar[bool] = False

    def schedule(self, sweep, n_shards):
        division, order = Division(self.split, self.join), schedule_rotation(n_shards)
        visit = reads(
            self.visit_and_tell if self.synced else self.visit, order=order, division=division, synced=self.synced
        )
        remake = each(self.remake, parts=True)
        return (visit, remake, observes(self.largest, order=order[:1])) if sweep % 2 == 0 else (visit, remake)

    def init(self, at):
        return self.restore(at, np.outer(at.shard, np.arange(1, 9)))

    def restore(self, at, saved):
        state = np.array(saved)
        return state, self._parts(at, state)

    def _parts(self, at, state):
        return {b: state[:, b :: at.n_blocks].sum(1) for b in range(at.n_blocks)}

    def combine(self, index, parts):
        return scramble(*parts, np.full(4, index))

    def split(self, at, state):
        return state[:, at.block :: at.n_blocks]

    def join(self, at, pieces):
        state = np.empty((4, 8), np.int64)
        for b, piece in enumerate(pieces):
            state[:, b :: at.n_blocks] = piece
        return state

    def visit(self, at, state, block):
        assert not block.flags.writeable
        state[:] = (state * 31 + block[:, None] + at.model[0][:, None]) % 2_147_483_647
        return state

    def visit_and_tell(self, at, state, block):
        state = self.visit(at, state, block)
        return state, state.sum(1)

    def remake(self, at, state):
        state[:, 0] += at.sweep
        return state, self._parts(at, state)

    def report(self, at, state):
        return state.sum(1)

    def largest(self, at, state, block):
        return int(state.max()), int(block.max())

    def aggregate(self, model, reports):
        if isinstance(reports[0], tuple):
            return model[0], np.array(reports)
        return scramble(*reports), np.zeros((0, 2), np.int64)

    def record(self, sweep, model):
        return {"sweep": sweep, "model": model[0].tolist(), "largest": model[1].tolist()}

    def harvest(self, at, state):
        return state.tolist()

    def harvest_block(self, block):
        return block.tolist()


@dataclass(frozen=True)
class DividedSynced(Divided):
    """Every step of the rotation that divides the state ends in a barrier."""

    name: ClassVar[str] = "divided-synced"
    synced: ClassVar[bool] = True


@dataclass(frozen=True)
class Exchanging(Program):
    """Pieces of all states meet at every shard; there are no blocks."""

    name: ClassVar[str] = "exchanging"

    def n_blocks(self, n_shards):
        return 0

    def schedule(self, sweep, n_shards):
        stages = exchanges(self.mix_up, 5, split=self.split, keep=self.keep), each(self.take, 7)
        return (*stages, observes(self.see, split=self.split)) if sweep % 2 else stages

    def init(self, at):
        return np.outer(at.shard, np.arange(1, at.n_shards + 1)), {}

    def split(self, at, state):
        assert not state.flags.writeable
        return [state[:, to].copy() if to % 2 else state[:, to] for to in range(at.n_shards)]

    def keep(self, at, state):
        assert not state.flags.writeable
        return state.astype(np.int32)

    def mix_up(self, at, pieces, factor):
        assert not any(piece.flags.writeable for piece in pieces)
        return [scramble(*pieces, at.shard, np.full(4, factor * to)) for to in range(at.n_shards)]

    def take(self, at, state, answers, summand):
        assert not any(answer.flags.writeable for answer in answers)
        if not state.flags.writeable:
            assert state.dtype == np.int32  # it is what was kept
            state = state.astype(np.int64)
        for number, answer in enumerate(answers):
            state[:, number] = (state[:, number] * 31 + answer + summand) % 2_147_483_647
        return state

    def see(self, at, state, pieces):
        return scramble(*pieces, state.sum(1), np.full(4, at.number))

    def report(self, at, state):
        return state.sum(1)

    def aggregate(self, model, reports):
        return scramble(*([] if model is None else [model]), *reports)

    def record(self, sweep, model):
        return {"model": model.tolist()}

    def harvest(self, at, state):
        return state.tolist()

    def harvesting(self, n_shards):
        return observes(self.tell, split=self.split)

    def tell(self, at, state, pieces):
        return self.see(at, state, pieces).tolist()


class Foretold(Exchanging):
    """Records say whether shards knew that the state would be saved."""

    name: ClassVar[str] = "foretold"

    def schedule(self, sweep, n_shards):
        return super().schedule(0, n_shards)

    def report(self, at, state):
        return np.array([at.saves])

    def aggregate(self, model, reports):
        assert len({bool(one) for [one] in reports}) == 1
        return reports[0]

    def record(self, sweep, model):
        return {"saves": bool(model)}


class Merging(Exchanging):
    """Reports are merged on their way, in pairs: in another order the result would be another one."""

    def schedule(self, sweep, n_shards):
        stages = exchanges(self.mix_up, 5, split=self.split), each(self.take, 7, merge=self.mix)
        return (*stages, observes(self.see, split=self.split, merge=self.mix)) if sweep % 2 else stages

    def mix(self, report, other):
        return scramble(report, other)

    def aggregate(self, model, reports):
        return scramble(*([] if model is None else [model]), tree_merge(reports, self.mix))


@dataclass(frozen=True)
class ExchangingHere(Exchanging):
    """Where all states are in one process, shards work on these."""

    name: ClassVar[str] = "exchanging-here"

    def schedule(self, sweep, n_shards):
        mix_up, take, *rest = super().schedule(sweep, n_shards)
        return mix_up._replace(here=self.mix_up_here), take, *rest

    def mix_up_here(self, at, shards, states, factor):
        pieces, number = [state[:, at.number].copy() for state in states], at.number
        for to, state in enumerate(states):
            answer = scramble(*pieces, shards[number], np.full(4, factor * to))
            state[:, number] = (state[:, number] * 31 + answer + 7) % 2_147_483_647
        return [to * 10 for to in range(at.n_shards)]

    def take(self, at, state, answers, summand):
        if np.ndim(answers[0]):
            return super().take(at, state, answers, summand)
        assert answers == [at.number * 10] * at.n_shards
        return state


def make_shards(n_shards):
    """Shards whose last number is how many they are."""
    return [np.array([3 * p + 1, p, 7, n_shards], np.int64) for p in range(n_shards)]


PROGRAMS = [
    Ring(), Synced(), Resting(), ManyBlocks(), FewBlocks(), Partial(), Observed(), Divided(), DividedSynced(),
    Exchanging(), ExchangingHere(),
]  # fmt: skip
