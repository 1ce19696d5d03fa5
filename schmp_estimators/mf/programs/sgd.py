"""Matrix factorisation by stochastic gradient descent on rotating item blocks.

The source is Kim et al. (EuroSys 2016, §4.3).

A shard owns users, a block owns items, and no two shards hold the same block at the same time.  So
every step moves a user and an item that no other shard uses, and the result is that of a serial
pass over the same blocks.

Rotation is compared with bulk synchronous steps (BSP): in each epoch, every shard takes the steps
of all its ratings on a copy of all items, as they were at the last barrier.  At the next barrier
the changes of all shards are added up.  There is one barrier per epoch, and another one if errors
are measured.  An item takes as many steps from one starting point as there are shards, so the steps
must be smaller if there are more shards; and each worker holds all items.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from schmp_estimators.core.jit import compiled_for
from schmp_estimators.core.lanes import empty_rows
from schmp_estimators.core.program import Harvest, Saved
from schmp_estimators.core.reduction import add, tree_sum
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.schedules.rotation import Visit, schedule_rotation
from schmp_estimators.core.stages import At, Stage, changes, each, observes, reads
from schmp_estimators.core.typing import Arguments, Array, Floats, Floats32, Integers, Named
from schmp_estimators.core.values import freeze, own
from schmp_estimators.mf.kernels import sgd as kernels
from schmp_estimators.mf.kernels.sgd import FactorBlock, StepSizes, candidates_of
from schmp_estimators.mf.kernels.steps import BIAS, NORM, PENALTY, numbers_of
from schmp_estimators.mf.losses import ranking_loss
from schmp_estimators.mf.programs.factors import DRAWN, ITEMS, USERS, Factorization, Side

#: A fit that diverges raises an error of its own.
_overflowing = np.errstate(over="ignore", invalid="ignore")


class SgdState(NamedTuple):
    """The state of a shard."""

    users: FactorBlock
    #: (4, n_blocks) sums of squared errors, or of another loss: during the sweep, after it, and on
    #: held-out ratings; and the penalty of the block with the number of the shard, if it is
    #: measured.
    errors: Floats


class SgdReport(NamedTuple):
    """The report of a shard at the end of a sweep; the model has those of all shards, added up."""

    #: (3,) sums of squared errors, as in `SgdState`.
    errors: Floats
    #: (2,) number of ratings, and of held-out ratings.
    sizes: Integers
    #: If shards work on copies: the changes of this copy of the items, or the copy itself if it is
    #: the only one; in the model all items.
    items: Any = None
    #: If they have just been measured, the penalties of the users, and of the block with the number
    #: of the shard; in the model their sum.
    penalty: Any = None


@dataclass(frozen=True)
class SgdFactorization(Factorization):
    """Matrix factorisation by stochastic gradient descent with adaptive steps.

    Parameters
    ----------
    n_components, mean, penalty, power, fit_bias, positive, seed, unit
        As in `Factorization`.
    learning_rate : float
        Step of the first rating, for ratings with standard deviation 1.
    evaluate_every : int
        Sweeps between two exact evaluations of the objective; 0 for none.
    validates : bool
        Whether there are held-out ratings.
    loss : str or NamedTuple
        As `ranking_loss` takes it.
    """

    learning_rate: float = 0.1
    evaluate_every: int = 0
    validates: bool = False
    loss: Any = "squared"

    name: ClassVar[str] = "mf-sgd"
    meets_model: ClassVar[bool] = False

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return a rotation that changes the item blocks.

        If errors are wanted, another one that only reads them follows.
        """
        order = schedule_rotation(n_shards)
        stages = [changes(self.update, order=order, together=self.update_all)]
        if self.validates or self.measures(sweep):
            stages.append(reads(self.measure, order=order))
        return [*stages, observes(self.report)]

    def init(self, at: At) -> tuple[SgdState, dict[int, FactorBlock]]:
        """Return the shard's users, and the block with its number."""
        shard = at.shard
        users = self._fresh(shard.user_ids, shard.user_counts, USERS)
        block = self._fresh(shard.item_ids, shard.item_counts, ITEMS)
        errors = np.zeros((4, len(shard.train.offsets) - 1))
        return SgdState(users, errors), {at.number: block}

    def update(self, at: At, state: SgdState, block: FactorBlock) -> tuple[SgdState, FactorBlock]:
        """Take the steps of the ratings of a block, or of the only one."""
        shard = at.shard
        index = max(at.block, 0)
        loss = ranking_loss(self.loss)
        ratings = shard.train.block(index)
        moved = (state.users, block, self._steps(), self.positive)
        if loss is not None:
            key = stream_key(self.seed, DRAWN, at.sweep, index)
            candidates = candidates_of(block.counts)
            total = compiled_for(loss, kernels.rank_block)(
                loss, ratings, shard.taken[index], candidates, shard.user_ids, key, *moved
            )
        else:
            total = kernels.sgd_block(ratings, *moved)
        state.errors[0, index] = total
        return state, block

    def update_all(
        self,
        ats: Mapping[int, At],
        states: Mapping[int, SgdState],
        blocks: Mapping[int, FactorBlock],
        visits: Sequence[Visit],
    ) -> None:
        """Take the steps of many blocks of ratings."""
        train = [at.shard.train for at in ats.values()]
        types = {tuple([array.dtype for array in one.ratings]): one.ratings for one in train}
        if (
            self.loss != "squared" or len(types) > 1
        ):  # numbers of rows need more bits in some shards
            for _, p, b in visits:
                self.update(ats[p]._replace(block=b), states[p], blocks[b])
            return
        place_of, row_of = ({key: n for n, key in enumerate(some)} for some in (states, blocks))
        found = kernels.sgd_blocks(
            np.array([(place_of[p], b, row_of[b]) for _, p, b in visits]),
            np.array([[array.ctypes.data for array in one.ratings] for one in train]),
            np.array([one.offsets for one in train]),
            _addresses([state.users for state in states.values()]),
            _addresses(blocks.values()),
            next(iter(blocks.values())).factors.shape[1],
            kernels.RatingBlock(*[array[:0] for array in train[0].ratings]),
            self._steps(),
            self.positive,
        )
        for (_, p, b), total in zip(visits, found.tolist(), strict=True):
            states[p].errors[0, b] = total

    def _steps(self) -> StepSizes:
        """Return the step sizes, as kernels take them."""
        rate = self.learning_rate
        return StepSizes(*map(np.float32, (rate, rate * self.fit_bias, 1 / self.n_components)))

    def measure(self, at: At, state: SgdState, block: FactorBlock) -> SgdState:
        """Measure the errors on the ratings of a block, or of the only one."""
        shard = at.shard
        index = max(at.block, 0)
        users = freeze(state.users)
        measured = {2: shard.held_out}
        if self.measures(at.sweep):
            measured[1] = shard.train
            if at.block == at.number:
                state.errors[3, at.block] = penalty_of(block)
        for kind, blocks in measured.items():
            state.errors[kind, index] = kernels.squared_error(blocks.block(index), users, block)
        return state

    def report(self, at: At, state: SgdState) -> Any:
        """Return the errors of the shard, and its numbers of ratings."""
        sizes = [ratings.ratings.values.size for ratings in (at.shard.train, at.shard.held_out)]
        *errors, of_block = state.errors.sum(axis=1)
        penalty = np.array([penalty_of(state.users), of_block]) if self.measures(at.sweep) else None
        return SgdReport(np.array(errors), np.array(sizes, np.int64), penalty=penalty)

    def aggregate(self, model: Any, reports: Sequence[Any]) -> Any:
        """Add up errors and penalties in shard order."""
        errors, sizes = (
            np.vstack(parts).sum(axis=0) for parts in list(zip(*reports, strict=True))[:2]
        )
        found = [one.penalty for one in reports if one.penalty is not None]
        return SgdReport(errors, sizes, penalty=sum(np.array(found).T.ravel()) if found else None)

    def record(self, sweep: int, model: Any) -> Named:
        """Return the record of all programs, or the mean of a loss that is no squared error."""
        if self.loss == "squared":
            return super().record(sweep, model)
        return {"running_loss": float(model.errors[0] / model.sizes[0])}

    def measures(self, sweep: int) -> bool:
        """Return whether the objective is wanted after this sweep."""
        return bool(self.evaluate_every) and (sweep + 1) % self.evaluate_every == 0

    def harvest(self, at: At, state: SgdState) -> Side:
        """Return the users, in the order of the shard."""
        return self.harvest_block(state.users)

    def harvest_block(self, block: FactorBlock) -> Side:
        """Return the items, in the order of the block."""
        return Side(block.factors[:, : self.n_components], block.biases)

    def sides(self, harvest: Harvest) -> tuple[Sequence[Side], Sequence[Side]]:
        """Return users and items of a run, group by group."""
        return harvest.shards, harvest.blocks

    def begin_from(
        self,
        sides: Sequence[Side],
        counts: Sequence[Floats32],
        members: Sequence[Sequence[Integers]],
    ) -> Saved:
        """Return the start of a run from the factors of an earlier fit.

        All other rows start as in a first one.

        Parameters
        ----------
        sides : sequence of Side
            Users and items of the earlier fit.
        counts : sequence of (n, 2) float32
            Numbers of ratings of each user and item, as in `MFFit.counts`.
        members : sequence of sequences of int64
            The users of each shard, and the items of each block.
        """
        users, blocks = (
            [self._fresh(ids, rated[ids, 0], stream, side) for ids in groups]
            for side, rated, groups, stream in zip(
                sides, counts, members, (USERS, ITEMS), strict=True
            )
        )
        errors = np.zeros((4, len(blocks)))
        return Saved(None, [SgdState(one, errors) for one in users], blocks)

    def _fresh(
        self, ids: Integers, counts: Array, stream: int, earlier: Side | None = None
    ) -> FactorBlock:
        """Return rows that no rating of this run has moved; rows without ratings are zeros."""
        factors = empty_rows(ids.size, self.n_components)
        self.draw(ids, stream, factors, self.n_components)
        factors[counts == 0] = 0
        penalty = self.penalty / np.maximum(counts, 1.0) ** (1 - self.power)
        biases = np.zeros(ids.size, np.float32)
        if earlier is not None:
            known = np.flatnonzero(ids < len(earlier.bias))
            known = known[earlier.factors[ids[known]].any(axis=1)]
            factors[known, : self.n_components] = earlier.factors[ids[known]]
            biases[known] = earlier.bias[ids[known]]
        numbers = numbers_of(factors, penalty)
        numbers[:, BIAS] = biases
        return FactorBlock(factors, numbers, counts.astype(np.int32))


def _addresses(blocks: Iterable[FactorBlock]) -> Integers:
    """Return where factors and numbers of some blocks are, and how many rows they have."""
    return np.array(
        [(one.factors.ctypes.data, one.numbers.ctypes.data, len(one.counts)) for one in blocks]
    )


@_overflowing
def penalty_of(side: FactorBlock) -> float:
    """Return the weighted squares of all factors and biases."""
    squares = np.einsum("nk,nk->n", side.factors, side.factors, dtype=np.float64)
    squares += side.biases.astype(np.float64) ** 2
    return float(np.sum(squares * side.numbers[:, PENALTY] * side.counts))


class BspFactorization(SgdFactorization):
    """Matrix factorisation by stochastic gradient descent on copies of the items.

    The copies are merged once per epoch.

    Parameters, steps and storage order are those of `SgdFactorization`; shards have a single item
    block.  With one shard the results of both are bit-for-bit the same.
    """

    name: ClassVar[str] = "mf-bsp"

    def n_blocks(self, n_shards: int) -> int:
        """Return 0.

        The items are part of the model, and the block that `init` returns is not used.
        """
        return 0

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return one stage, and another one if errors are wanted; each ends with a barrier."""
        stages = [each(self.update_copy, reports=True, merge=self.merge)]
        if self.validates or self.measures(sweep):
            stages.append(each(self.measure_copy))
        return stages

    def report(self, at: At, state: SgdState) -> SgdReport:
        """Return the errors of the shard.

        At the start, the first shard also reports the first items.
        """
        is_first = at.model is None and at.number == 0
        found: SgdReport = super().report(at, state)
        return found._replace(items=super().init(at)[1][0]) if is_first else found

    @_overflowing
    def update_copy(self, at: At, state: SgdState) -> tuple[SgdState, SgdReport]:
        """Take the steps of the shard's ratings on a copy of the items."""
        before = at.model.items
        state, items = self.update(at, state, own(before))
        # a single copy has the bits of rotation
        moved = items if at.n_shards == 1 else tuple(map(np.subtract, items[:2], before[:2]))
        return state, self.report(at, state)._replace(items=moved)

    def measure_copy(self, at: At, state: SgdState) -> SgdState:
        """Measure the errors on the shard's ratings."""
        return self.measure(at, state, at.model.items)

    @_overflowing
    def merge(self, report: SgdReport, other: SgdReport) -> SgdReport:
        """Add up changes of the items.

        Errors of shards stay separate, because their sum has an order of its own.
        """
        errors = np.vstack([report.errors, other.errors])  # no penalty yet
        return SgdReport(errors, report.sizes + other.sizes, add(report.items, other.items))

    @_overflowing
    def aggregate(self, model: Any, reports: Sequence[Any]) -> SgdReport:
        """Add up errors, the changes that the shards made to the items, and penalties."""
        found: SgdReport = super().aggregate(model, reports)
        items = reports[0].items if model is None else model.items
        if model is not None and reports[0].items is not None:
            changed = tree_sum([one.items for one in reports])
            items = _moved(items, changed) if len(changed) == 2 else changed
        penalty = None if found.penalty is None else found.penalty + penalty_of(items)
        return found._replace(items=items, penalty=penalty)

    def sides(self, harvest: Harvest) -> tuple[Sequence[Side], Sequence[Side]]:
        """Return users and items of a run, group by group."""
        return harvest.shards, [self.harvest_block(harvest.model.items)]


def _moved(before: FactorBlock, changes: Arguments) -> FactorBlock:
    """Return rows with the changes of all copies."""
    factors, numbers = map(np.add, before[:2], changes)
    numbers[:, NORM] = (factors**2).sum(axis=1)
    return FactorBlock(factors, numbers, before.counts)
