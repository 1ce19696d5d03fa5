"""Matrix factorisation by stochastic gradient descent on rotating item blocks (Kim et al., EuroSys 2016, §4.3).

A shard owns users, a block owns items, and no two shards ever hold the same block: every step moves a user and an item
that nobody else touches, so that the result is that of a serial pass over the same blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.lanes import padded_width
from schmp_estimators.core.program import Harvest, Local, Outcome, Program, Rotation, Saved, Stage, Visit
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.data.ratings import RatingShard
from schmp_estimators.mf.kernels.sgd import FactorBlock, StepSizes, sgd_block
from schmp_estimators.mf.kernels.start import draw_factors, squared_error

#: Which stream of random numbers.
_USERS, _ITEMS = range(2)

Each = Callable[[Callable[[Any], Any], Any], list[Any]]


class SgdState(NamedTuple):
    """What changes of a shard."""

    users: FactorBlock
    #: (3, n_blocks) sums of squared errors: on the way, after the sweep, and on the held-out ratings.
    errors: NDArray[np.float64]


class SgdModel(NamedTuple):
    """What every update reads, and what the shards reported last."""

    steps: StepSizes
    #: (3,) sums of squared errors, as in `SgdState`.
    errors: NDArray[np.float64]
    #: (2,) number of ratings, and of held-out ratings.
    sizes: NDArray[np.int64]


class SgdReport(NamedTuple):
    """What a shard reports at the end of a sweep."""

    errors: NDArray[np.float64]
    sizes: NDArray[np.int64]


class Side(NamedTuple):
    """Users or items of a finished run, or what an earlier one left of them."""

    factors: NDArray[np.float32]  #: (n, K)
    bias: NDArray[np.float32]  #: (n,)
    #: (n, 2) sums of squared gradients of factors and bias, which set the next steps; 0 where there were none.
    squares: NDArray[np.float32]


@dataclass(frozen=True)
class SgdFactorization(Program):
    """Matrix factorisation by stochastic gradient descent with adaptive steps.

    Parameters
    ----------
    n_components : int
        Rank K.
    mean, scale : float
        Mean and standard deviation of the ratings.
    penalty : float
        λ.
    per_rating : bool
        Whether λ counts once for every rating of a row, or once for the row.
    fit_bias : bool
        Whether there are a global mean and biases.
    positive : bool
        Whether factors stay at or above zero.
    learning_rate : float
        Step of the first rating, for ratings with standard deviation 1.
    seed : int
    evaluate_every : int
        Sweeps between two exact evaluations of the objective; 0 for none.
    unit : float
        How many of the user's units one of the ratings has; records are in the user's.
    """

    n_components: int
    mean: float
    scale: float
    penalty: float
    per_rating: bool = True
    fit_bias: bool = True
    positive: bool = False
    learning_rate: float = 0.1
    seed: int = 0
    evaluate_every: int = 0
    validates: bool = False
    unit: float = 1.0

    name: ClassVar[str] = "mf-sgd"

    def schedule(self, sweep: int, n_shards: int) -> tuple[Stage, ...]:
        """Return one rotation that moves the item blocks, and one that only reads them where errors are wanted."""
        order = schedule_rotation(n_shards)
        update = Rotation("update", order, moves=True, divided=False)
        if self.validates or self.measures(sweep):
            return update, Rotation("evaluate", order, moves=False, divided=False), Local("add-up")
        return update, Local("add-up")

    def start(self, shard: RatingShard, saved: FactorBlock | None, each: Each) -> Outcome:
        """Return the shard's users, and as its only part the block with its number."""
        users = saved or self._fresh(shard.user_ids, shard.user_counts, _USERS)
        items = self._fresh(shard.item_ids, shard.item_counts, _ITEMS)
        n_blocks = len(shard.train.offsets) - 1
        parts = [items if block == shard.number else () for block in range(n_blocks)]
        state = SgdState(FactorBlock(*map(np.array, users)), np.zeros((3, n_blocks)))
        return Outcome(state, parts=parts, partial=report(shard, state))

    def start_block(self, index: int, parts: Sequence[Any], saved: FactorBlock | None) -> FactorBlock:
        """Return the block that the shard with its number made, or the saved one."""
        return FactorBlock(*map(np.array, saved or parts[index]))

    def update(self, visit: Visit) -> Outcome:
        """Take the steps of one block of ratings, measure errors on it, or add up."""
        shard, state, block = visit.shard, visit.state, visit.block
        if visit.stage == "add-up":
            return Outcome(state, partial=report(shard, state))
        if visit.stage == "update":
            train = shard.train.block(visit.block_index)
            state.errors[0, visit.block_index] = sgd_block(train, state.users, block, visit.model.steps, self.positive)
            return Outcome(state, block=block)
        self._evaluate(visit, visit.block_index, block)
        return Outcome(state)

    def _evaluate(self, visit: Visit, index: int, items: FactorBlock) -> None:
        """Take down the errors on the ratings of block `index`, whose items are `items`."""
        shard, mean, users = visit.shard, visit.model.steps.mean, freeze(visit.state.users)
        measured = [(2, shard.held_out), (1, shard.train)] if self.measures(visit.sweep) else [(2, shard.held_out)]
        for kind, blocks in measured:
            rows = users.factors, items.factors, users.biases, items.biases
            visit.state.errors[kind, index] = squared_error(blocks.block(index), *rows, mean)

    def aggregate(self, model: SgdModel | None, partials: Sequence[SgdReport]) -> SgdModel:
        """Add up errors, in shard order."""
        errors = np.sum([one.errors for one in partials], axis=0)
        return SgdModel(self._steps(), errors, np.sum([one.sizes for one in partials], axis=0))

    def save(self, shard: RatingShard, state: SgdState) -> FactorBlock:
        """Return the users' rows."""
        return FactorBlock(*map(np.array, state.users))

    def save_block(self, block: FactorBlock) -> FactorBlock:
        """Return the items' rows."""
        return FactorBlock(*map(np.array, block))

    def measures(self, sweep: int) -> bool:
        """Return whether the objective is wanted after this sweep."""
        return bool(self.evaluate_every) and (sweep + 1) % self.evaluate_every == 0

    def measure_shard(self, shard: RatingShard, state: SgdState) -> float:
        """Return the penalty of the shard's users."""
        return penalty_of(state.users)

    def measure_block(self, block: FactorBlock) -> float:
        """Return the penalty of the block's items."""
        return penalty_of(block)

    def unpack(self, saved: Sequence[Any]) -> Saved:
        """Return what `Saved` was before it went through a file."""
        (_, errors, sizes), shards, blocks = saved
        users, items = ([FactorBlock(*side) for side in sides] for sides in (shards, blocks))
        return Saved(SgdModel(self._steps(), errors, sizes), users, items)

    def begin_from(self, users: Sequence[FactorBlock], items: Sequence[FactorBlock]) -> Saved:
        """Return what a run starts from that is to begin with these rows."""
        return Saved(None, users, items)

    def progress(self, sweep: int, model: SgdModel, shards: Sequence[Any], blocks: Sequence[Any]) -> dict[str, Any]:
        """Return root mean squared errors, and the objective where it was measured."""
        return error_record(model.errors, model.sizes, sum([*shards, *blocks]) if shards else None, self.unit)

    def harvest_shard(self, shard: RatingShard, state: SgdState) -> Side:
        """Return the users, in the order of the shard."""
        return self.harvest_block(state.users)

    def harvest_block(self, block: FactorBlock) -> Side:
        """Return the items, in the order of the block."""
        squares = np.stack([block.squares, block.bias_squares], axis=1)
        return Side(np.array(block.factors[:, : self.n_components]), np.array(block.biases), squares)

    def sides(self, harvest: Harvest) -> tuple[Sequence[Side], Sequence[Side]]:
        """Return users and items of a run, group by group."""
        return harvest.shards, harvest.blocks

    def restore(self, earlier: Side, ids: NDArray[np.int64], counts: NDArray[np.int64], is_item: bool) -> FactorBlock:
        """Return rows `ids` of an earlier fit, and fresh ones for ids beyond it; `counts` are their new ratings."""
        block = self._fresh(ids, counts, _ITEMS if is_item else _USERS)
        known = ids < len(earlier.bias)
        block.factors[known, : self.n_components] = earlier.factors[ids[known]]
        first = (counts > 0) & ~block.factors.any(axis=1)  # rated for the first time; zeros cannot move each other
        block.factors[first] = self._fresh(ids[first], counts[first], _ITEMS if is_item else _USERS).factors
        block.biases[known] = earlier.bias[ids[known]]
        stepped = earlier.squares[ids[known]]
        for sums, column in ((block.squares, stepped[:, 0]), (block.bias_squares, stepped[:, 1])):
            sums[known] = np.where(column > 0, column, sums[known])
        return block._replace(norms=(block.factors**2).sum(axis=1))

    def _steps(self) -> StepSizes:
        rate, scale = self.learning_rate, self.scale
        mean, bias_rate = (self.mean, rate * scale) if self.fit_bias else (0.0, 0.0)
        numbers = (mean, rate * np.sqrt(scale), bias_rate, 1 / self.n_components)
        return StepSizes(*(np.float32(number) for number in numbers))

    def _fresh(self, ids: NDArray[np.int64], counts: NDArray[np.int64], stream: int) -> FactorBlock:
        """Return rows that no rating has moved yet: zeros where none will."""
        factors = np.zeros((ids.size, padded_width(self.n_components)), np.float32)
        centre, spread = start_range(self, stream == _ITEMS)
        key = stream_key(self.seed, stream)
        draw_factors(freeze(ids), 0, self.n_components, key, np.float32(centre), np.float32(spread), factors)
        factors[counts == 0] = 0
        # A first gradient of a factor is an error times a factor, that of a bias is an error: hence the powers.
        squares, bias_squares = np.float32(self.scale) ** 3, np.float32(self.scale) ** 2
        penalty = np.full(ids.size, self.penalty) if self.per_rating else self.penalty / np.maximum(counts, 1)
        return FactorBlock(
            factors,
            np.zeros(ids.size, np.float32),
            (factors**2).sum(axis=1),
            np.full(ids.size, squares),
            np.full(ids.size, bias_squares),
            penalty.astype(np.float32),
            np.array(counts, np.int64),
        )


def start_range(program: Any, is_item: bool) -> tuple[float, float]:
    """Return the centre and half-width of the first factors, so that their products have the size of what is left.

    With biases that is about zero; without them, the mean of the ratings, whose sign the items take.
    """
    spread = 0.5 * np.sqrt(program.scale / program.n_components)
    if program.fit_bias:
        return (spread if program.positive else 0.0), spread
    centre = np.sqrt(abs(program.mean) / program.n_components)
    if program.positive:
        return max(centre, spread), spread
    return (-centre if is_item and program.mean < 0 else centre), spread


def error_record(errors: Any, sizes: Any, penalty: float | None, unit: float) -> dict[str, Any]:
    """Return the record of a sweep from sums of squared errors in units: on the way, after it, and held out."""
    record: dict[str, Any] = {"running_rmse": unit * float(np.sqrt(errors[0] / max(sizes[0], 1)))}
    if sizes[1]:
        record["validation_rmse"] = unit * float(np.sqrt(errors[2] / sizes[1]))
    if penalty is not None:
        record["train_rmse"] = unit * float(np.sqrt(errors[1] / max(sizes[0], 1)))
        record["objective"] = unit * unit * float(errors[1] + penalty)
        record["penalty"] = unit * unit * float(penalty)
    return record


def report(shard: RatingShard, state: SgdState) -> SgdReport:
    """Return what a shard reports at the end of a stage."""
    sizes = [cut.ratings.values.size for cut in (shard.train, shard.held_out)]
    return SgdReport(state.errors.sum(axis=1), np.array(sizes, np.int64))


def penalty_of(side: FactorBlock) -> float:
    """Return the weighted squares of all factors and biases."""
    with np.errstate(over="ignore", invalid="ignore"):  # a fit that diverges ends with an error of its own
        squares = np.einsum("nk,nk->n", side.factors, side.factors, dtype=np.float64)
        squares += side.biases.astype(np.float64) ** 2
        return float(np.sum(squares * side.penalties * side.counts))
