"""Small programs in which every order and every number matters.

The test pieces of engines and places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from schmp_estimators.core.program import Program, Source
from schmp_estimators.core.reduction import tree_merge
from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.core.stages import changes, each, exchanges, observes, reads


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
    #: Whether every step of the rotation ends in a barrier; the function is told a number then.
    synced: ClassVar[bool] = False
    fail_at: int = -1

    def order(self, n_shards):
        return schedule_rotation(n_shards, self.n_blocks(n_shards))

    def schedule(self, sweep, n_shards):
        order = self.order(n_shards)
        if self.synced:
            return changes(self.turn_and_tell, sweep, order=order, synced=True), each(self.sum_up)
        return changes(self.turn, order=order), each(self.sum_up)

    def init(self, at):
        mine = range(at.number, at.n_blocks, at.n_shards)
        return np.array(at.shard), {b: np.full(4, b + 1, np.int64) for b in mine}

    def turn_and_tell(self, at, state, block, told):
        assert told == at.sweep
        state, block = self.turn(at, state, block)
        return state, block, Total(scramble(state, block), 1)

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
        return state  # which is written into later on

    def harvest_block(self, block):
        return block

    def tell(self, at, state):
        return Total(state + at.model.total, 100)

    def observing(self, n_shards):
        """Return stages with which a run can be observed."""
        return observes(self.tell)


class Together(Ring):
    """Many visits are one call."""

    name: ClassVar[str] = "together"

    def schedule(self, sweep, n_shards):
        order = self.order(n_shards)
        return changes(self.mix, 3, order=order, together=self.mix_all), each(self.sum_up)

    def n_blocks(self, n_shards):
        return n_shards + 2

    def mix(self, at, state, block, told):
        new = scramble(state, block, at.model.total, at.shard, told)
        block[:] = scramble(block, state)
        state[:] = new
        return state, block

    def mix_all(self, ats, states, blocks, visits, told):
        for step, p, b in visits:
            assert (p + step) % len(self.order(ats[p].n_shards)) == b
            self.mix(ats[p], states[p], blocks[b], told)


class Synced(Ring):
    name, synced = "synced", True


class Resting(Ring):
    """Blocks stay what they were from the start."""

    name = "resting"

    def schedule(self, sweep, n_shards):
        return reads(self.look, order=schedule_rotation(n_shards)), each(self.sum_up)

    def look(self, at, state, block):
        assert not block.flags.writeable
        state[:] = scramble(state, block, at.model.total, at.shard)
        return state


class ReadAndChanged(Resting):
    """Blocks that have come to be read are changed."""

    name = "read-and-changed"

    def schedule(self, sweep, n_shards):
        order = schedule_rotation(n_shards)
        return reads(self.look, order=order), changes(self.turn, order=order[1:]), each(self.sum_up)


class Blind(Ring):
    """What meets blocks knows no model."""

    name = "blind"
    meets_model = False

    def turn(self, at, state, block):
        assert at.model is None
        block += state
        return state + block, block


class ManyBlocks(Ring):
    """Twice as many blocks as shards, and one more: some rest in every step."""

    name = "many-blocks"

    def n_blocks(self, n_shards):
        return 2 * n_shards + 1


class ManySynced(ManyBlocks):
    name, synced = "many-synced", True


class FewBlocks(Ring):
    """Fewer blocks than shards: some shards are idle in every step."""

    name = "few-blocks"

    def n_blocks(self, n_shards):
        return (n_shards + 1) // 2


class Partial(Ring):
    """Only some pairs meet; the last block meets nobody."""

    name = "partial"

    def order(self, n_shards):
        line = [-1 if p == n_shards - 1 else p for p in range(n_shards)]
        return line, [line[-1], *line[:-1]]


class Observed(Ring):
    """Shards tell what they see of themselves and of blocks.

    One stage makes its own reports, and orders alternate.
    """

    name = "observed"

    def schedule(self, sweep, n_shards):
        order = schedule_rotation(n_shards)
        return (
            changes(self.turn, order=order[::-1] if sweep % 2 else order),
            each(self.sum_up_and_tell, reports=True),
            observes(
                self.tell_of_block, 3, order=[order[0], *((-1, *line[1:]) for line in order[1:2])]
            ),
            observes(self.list_blocks, order=order),
            observes(self.tell),
        )

    def sum_up_and_tell(self, at, state):
        state = self.sum_up(at, state)
        return state, Total(state * 2, 1)

    def tell_of_block(self, at, state, block, factor):
        assert not block.flags.writeable and not state.flags.writeable
        return Total(factor * block + state + at.block + at.model.total, 10)

    def list_blocks(self, at, state, block):
        return [self.tell_of_block(at, state, block, 5)]  # a list is one report, as any

    def aggregate(self, model, reports):
        return super().aggregate(
            model, [one[0] if isinstance(one, list) else one for one in reports]
        )

    def observing(self, n_shards):
        return observes(self.tell_of_block, 7, order=schedule_rotation(n_shards)[-1:])


@dataclass(frozen=True)
class Remade(Program):
    """Blocks are read, and made anew of parts.

    Shards work on the part of their state that belongs to a block.
    """

    name: ClassVar[str] = "remade"
    saves_blocks: ClassVar[bool] = False
    synced: ClassVar[bool] = False

    def schedule(self, sweep, n_shards):
        order = schedule_rotation(n_shards)
        visit = reads(
            self.visit_and_tell if self.synced else self.visit, order=order, synced=self.synced
        )
        remake = each(self.remake, parts=True)
        return (visit, remake, self.observing(n_shards)) if sweep % 2 == 0 else (visit, remake)

    def observing(self, n_shards):
        return observes(self.largest, order=schedule_rotation(n_shards)[:1])

    def init(self, at):
        return self.restore(at, np.outer(at.shard, np.arange(1, 9)))

    def restore(self, at, saved):
        state = np.array(saved)
        return state, self._parts(at, state)

    def _parts(self, at, state):
        return {b: state[:, b :: at.n_blocks].sum(1) for b in range(at.n_blocks)}

    def combine(self, index, parts):
        assert not any(part.flags.writeable for part in parts)
        return scramble(*parts, np.full(4, index))

    def visit(self, at, state, block):
        assert not block.flags.writeable
        piece = state[:, at.block :: at.n_blocks]
        piece[:] = (piece * 31 + block[:, None] + at.model[0][:, None]) % 2_147_483_647
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


class RemadeSynced(Remade):
    name, synced = "remade-synced", True


class SomeParts(ManyBlocks):
    """In every other sweep blocks are made anew of parts, which come with reports.

    Not all shards have one for each.
    """

    name = "some-parts"

    def schedule(self, sweep, n_shards):
        turn, sum_up = super().schedule(sweep, n_shards)
        return (turn, each(self.remake, parts=True, reports=True)) if sweep % 2 else (turn, sum_up)

    def remake(self, at, state):
        state = self.sum_up(at, state)
        parts = {b: state + b for b in range(at.n_blocks) if (b + at.number) % 3}
        return state, parts, self.report(at, state)

    def combine(self, index, parts):
        return scramble(*parts)


@dataclass(frozen=True)
class Exchanging(Program):
    """Pieces of all states meet at every shard; there are no blocks."""

    name: ClassVar[str] = "exchanging"

    def n_blocks(self, n_shards):
        return 0

    def schedule(self, sweep, n_shards):
        stages = exchanges(self.mix_up, 5, split=self.split), each(self.take, 7)
        return (
            (*stages, each(self.work), observes(self.see, split=self.split))
            if sweep % 2
            else stages
        )

    def init(self, at):
        return np.outer(at.shard, np.arange(1, at.n_shards + 1)), {}

    def split(self, at, state):
        assert not state.flags.writeable
        assert at.model is None
        return [state[:, to] + at.sweep if to % 2 else state[:, to] for to in range(at.n_shards)]

    def mix_up(self, at, pieces, factor):
        assert not any(piece.flags.writeable for piece in pieces)
        return [
            scramble(*pieces, at.shard, at.model, np.full(4, factor * to))
            for to in range(at.n_shards)
        ]

    def take(self, at, state, answers, summand):
        assert not any(answer.flags.writeable for answer in answers)
        for number, answer in enumerate(answers):
            state[:, number] = (state[:, number] * 31 + answer + summand) % 2_147_483_647
        return state

    def work(self, at, state, *answers):
        assert not answers  # those of the stage before
        return state + at.number

    def see(self, at, state, pieces):
        assert not any(piece.flags.writeable for piece in pieces)
        return scramble(*pieces, state.sum(1), np.full(4, at.number))

    def observing(self, n_shards):
        return observes(self.see, split=self.split)

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

    name = "foretold"

    def schedule(self, sweep, n_shards):
        return super().schedule(0, n_shards)

    def report(self, at, state):
        return np.full(4, at.saves)

    def aggregate(self, model, reports):
        assert len({bool(one[0]) for one in reports}) == 1
        return reports[0].astype(np.int64)

    def record(self, sweep, model):
        return {"saves": bool(model[0])}


class Merging(Exchanging):
    """Reports are merged on their way, in pairs.

    In another order the result would be another one.
    """

    name = "merging"

    def schedule(self, sweep, n_shards):
        stages = exchanges(self.mix_up, 5, split=self.split), each(self.take, 7, merge=self.mix)
        return (
            (*stages, observes(self.see, split=self.split, merge=self.mix)) if sweep % 2 else stages
        )

    def mix(self, report, other):
        return scramble(report, other)

    def aggregate(self, model, reports):
        return scramble(*([] if model is None else [model]), tree_merge(reports, self.mix))


def changed(kind, method, before):
    """Return a program one of whose methods does something else before."""

    def does_both(self, *given):
        before(*given)
        return getattr(kind, method)(self, *given)

    does_both.__name__ = method
    return type("Changed", (kind,), {method: does_both})()


def make_shards(n_shards):
    """Shards whose last number is how many they are."""
    return [np.array([3 * p + 1, p, 7, n_shards], np.int64) for p in range(n_shards)]


def make_sources(n_shards):
    """Sources of the same."""
    return [Source(as_it_is, (lambda shard=shard: shard,)) for shard in make_shards(n_shards)]


def as_it_is(shard):
    return shard


def bits(value):
    """Return values by which results can be compared to the bit."""
    if isinstance(value, np.ndarray):
        content = (
            value.tolist() if value.dtype == object else value.tobytes()
        )  # of objects these are addresses
        return str(value.dtype), value.shape, content
    if isinstance(value, dict):
        return {name: bits(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        kind = type(value).__name__ if hasattr(value, "_fields") else "sequence"
        return kind, [bits(one) for one in value]
    return value


PROGRAMS = [
    *(
        Ring(),
        Together(),
        Synced(),
        Resting(),
        ReadAndChanged(),
        Blind(),
        ManyBlocks(),
        ManySynced(),
        FewBlocks(),
        Partial(),
    ),
    *(Observed(), Remade(), RemadeSynced(), SomeParts(), Exchanging(), Foretold(), Merging()),
]
