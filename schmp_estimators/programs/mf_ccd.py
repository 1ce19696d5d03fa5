"""Matrix factorisation by coordinate descent on partial sums (Lee et al., NIPS 2014, supplement §2).

A shard owns users.  In one round it improves a chunk of eight components of its users, and sums up what the items need;
`aggregate` adds the sums in a fixed order and improves that chunk of the items.  Nothing is approximated: the number of
shards changes the order of additions, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.data.ratings import SortedShard
from schmp_estimators.data.values import freeze
from schmp_estimators.kernels.lanes import LANES
from schmp_estimators.kernels.mf_ccd import SUMS, close_round, improve_users, solve_rows
from schmp_estimators.kernels.mf_start import draw_factors, squared_error
from schmp_estimators.kernels.rng import stream_key
from schmp_estimators.programs.base import Local, Outcome, Program, Stage, Visit
from schmp_estimators.programs.mf_sgd import Side, error_record, start_range

Each = Callable[[Callable[[Any], Any], Any], list[Any]]
Chunks = tuple[NDArray[np.float32], ...]


class CcdState(NamedTuple):
    """What changes of a shard."""

    #: Per chunk (n_users, LANES).
    users: Chunks
    #: (n_ratings,) what is left of the ratings.
    residuals: NDArray[np.float32]


class CcdModel(NamedTuple):
    """The items, which every update reads, and what the shards reported last."""

    #: Per chunk (n_items, LANES).
    items: Chunks
    #: (n_items,) ratings of each item.
    item_counts: NDArray[np.int64]
    #: (3,) sums of squared errors: twice those after the sweep, then on the held-out ratings.
    errors: NDArray[np.float64]
    #: (2,) number of ratings, and of held-out ratings.
    sizes: NDArray[np.int64]
    penalty: float


class CcdReport(NamedTuple):
    """What a shard reports after a round."""

    #: The chunk, or -1 at the start and at the end of a sweep.
    chunk: int
    #: Counts of the items, or sums over the shard's users for a chunk of the items, or nothing.
    sums: Any
    errors: NDArray[np.float64]
    sizes: NDArray[np.int64]
    penalty: float


@dataclass(frozen=True)
class CcdFactorization(Program):
    """Matrix factorisation by coordinate descent.

    Parameters
    ----------
    n_components : int
        Rank K.
    n_items : int
        Number of items, rated or not.
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
    seed : int
    """

    n_components: int
    n_items: int
    mean: float
    scale: float
    penalty: float
    per_rating: bool = True
    fit_bias: bool = True
    positive: bool = False
    seed: int = 0

    name: ClassVar[str] = "mf-ccd"

    @property
    def n_chunks(self) -> int:
        """Number of chunks, the one of the biases included."""
        return -(-self.n_components // LANES) + self.fit_bias

    def has_blocks(self, n_shards: int) -> bool:
        """Return False: the items are made anew in every round."""
        return False

    def schedule(self, sweep: int, n_shards: int) -> tuple[Stage, ...]:
        """Return one round for each chunk, and one in which errors are measured."""
        return (*(Local(f"chunk-{chunk}") for chunk in range(self.n_chunks)), Local("measure"))

    def start(self, shard: SortedShard, saved: Any, each: Each) -> Outcome:
        """Return saved users, or users that are zero; items are random, so that the first round moves them."""
        if saved is None:
            users = tuple(np.zeros((shard.user_ids.size, LANES), np.float32) for _ in range(self.n_chunks))
            if self.fit_bias:
                users[0][:, 1] = 1
            residuals = shard.train.values - np.float32(self.mean if self.fit_bias else 0)
        else:
            users, residuals = tuple(map(np.array, saved.users)), np.array(saved.residuals)
        counts = np.bincount(shard.train.items, minlength=self.n_items)
        return Outcome(CcdState(users, residuals), partial=self._report(shard, -1, counts, 0.0, 0.0, 0.0))

    def update(self, visit: Visit) -> Outcome:
        """Do one round, or measure."""
        if visit.stage == "measure":
            return self._measure(visit)
        shard, state, items = freeze(visit.shard), visit.state, visit.model.items
        chunk = int(visit.stage.removeprefix("chunk-"))
        first, stop = self._free(chunk, is_item=False)
        nothing = np.zeros_like(state.users[0]), np.zeros_like(items[0])
        users_before, items_before = (state.users[chunk - 1], items[chunk - 1]) if chunk else nothing
        user_rows = np.hstack([users_before, state.users[chunk]])
        item_rows = np.hstack([-items_before, items[chunk]])
        sums = np.zeros((self.n_items * SUMS, LANES), np.float32)
        penalties = self._penalties(np.diff(shard.train.indptr))
        improve_users(
            shard.train, state.residuals, user_rows, item_rows, items[chunk], penalties,
            first, stop, self.positive and not self._is_bias(chunk), state.users[chunk], sums,
        )  # fmt: skip
        return Outcome(state, partial=self._report(shard, chunk, sums, 0.0, 0.0, 0.0))

    def aggregate(self, model: CcdModel | None, partials: Sequence[CcdReport]) -> CcdModel:
        """Start the items, improve a chunk of them, or take down the errors."""
        first = partials[0]
        errors = np.sum([report.errors for report in partials], axis=0)
        sizes = np.sum([report.sizes for report in partials], axis=0)
        penalty = sum(report.penalty for report in partials)
        if model is None:
            return CcdModel(self._fresh_items(), tree_sum([r.sums for r in partials]), errors, sizes, penalty)
        if first.chunk < 0:
            own = self._penalty(model.items, model.item_counts, is_item=True)
            return model._replace(errors=errors, sizes=sizes, penalty=penalty + own)
        improved = np.array(model.items[first.chunk])
        solve_rows(
            tree_sum([report.sums for report in partials]), self._penalties(model.item_counts),
            *self._free(first.chunk, is_item=True), self.positive and not self._is_bias(first.chunk), improved,
        )  # fmt: skip
        items = (*model.items[: first.chunk], improved, *model.items[first.chunk + 1 :])
        return model._replace(items=items)

    def save(self, shard: SortedShard, state: CcdState) -> CcdState:
        """Return the state: residuals made anew would differ in their last bits."""
        return CcdState(tuple(map(np.array, state.users)), np.array(state.residuals))

    def progress(self, sweep: int, model: CcdModel, shards: Sequence[Any], blocks: Sequence[Any]) -> dict[str, Any]:
        """Return root mean squared errors and the objective."""
        return error_record(model.errors, model.sizes, model.penalty)

    def harvest_shard(self, shard: SortedShard, state: CcdState) -> Side:
        """Return the users, in the order of the shard."""
        return self.side(state.users, is_item=False)

    def side(self, chunks: Chunks, *, is_item: bool) -> Side:
        """Return users or items of their chunks."""
        factors = np.ascontiguousarray(np.hstack(chunks[self.fit_bias :])[:, : self.n_components])
        bias = np.array(chunks[0][:, int(is_item)]) if self.fit_bias else np.zeros(len(factors), np.float32)
        return Side(factors, bias, np.zeros((len(factors), 2), np.float32))

    def restore(self, earlier: Side, item_counts: NDArray[np.int64]) -> CcdModel:
        """Return a model with the items of an earlier fit, and fresh ones beyond them; biases start anew."""
        items = self._fresh_items()
        factors = np.hstack(items[self.fit_bias :])
        factors[: len(earlier.factors), : self.n_components] = earlier.factors
        chunks = np.hsplit(factors, factors.shape[1] // LANES)
        return CcdModel(
            (*items[: self.fit_bias], *map(np.ascontiguousarray, chunks)),
            item_counts,
            np.zeros(3),
            np.ones(2, np.int64),
            0.0,
        )

    def _is_bias(self, chunk: int) -> bool:
        return self.fit_bias and chunk == 0

    def _free(self, chunk: int, *, is_item: bool) -> tuple[int, int]:
        """Return the range of coordinates of a chunk that may move."""
        if self._is_bias(chunk):
            return (1, 2) if is_item else (0, 1)
        return 0, min(LANES, self.n_components - LANES * (chunk - self.fit_bias))

    def _penalties(self, counts: Any) -> NDArray[np.float32]:
        weights = counts if self.per_rating else np.ones(counts.size)
        return (self.penalty * weights).astype(np.float32)

    def _penalty(self, chunks: Chunks, counts: Any, *, is_item: bool) -> float:
        factors, bias, _ = self.side(chunks, is_item=is_item)
        squares = (factors.astype(np.float64) ** 2).sum(axis=1) + bias.astype(np.float64) ** 2
        return float(np.sum(squares * self._penalties(counts)))

    def _fresh_items(self) -> Chunks:
        items = np.zeros((self.n_items, LANES * self.n_chunks), np.float32)
        centre, spread = start_range(self, is_item=True)
        ids, key = np.arange(self.n_items), stream_key(self.seed, 1)
        own = items[:, LANES * self.fit_bias :]
        drawn = np.zeros((self.n_items, own.shape[1]), np.float32)
        draw_factors(freeze(ids), self.n_components, key, np.float32(centre), np.float32(2 * spread), drawn)
        own[:] = np.abs(drawn) if self.positive else drawn
        if self.fit_bias:
            items[:, 0] = 1
        return tuple(np.ascontiguousarray(part) for part in np.hsplit(items, self.n_chunks))

    def _measure(self, visit: Visit) -> Outcome:
        """Put the last chunk back into the residuals, and measure errors and the users' penalty."""
        shard, state, items = freeze(visit.shard), visit.state, visit.model.items
        loss = close_round(shard.train, state.residuals, freeze(state.users[-1]), items[-1])
        users, all_items = freeze((np.hstack(state.users), np.hstack(items)))
        none = freeze((np.zeros(len(users), np.float32), np.zeros(self.n_items, np.float32)))
        mean = np.float32(self.mean if self.fit_bias else 0)
        tested = squared_error(shard.held_out, users, all_items, *none, mean)
        penalty = self._penalty(state.users, np.diff(shard.train.indptr), is_item=False)
        return Outcome(state, partial=self._report(shard, -1, (), loss, tested, penalty))

    @staticmethod
    def _report(shard: SortedShard, chunk: int, sums: Any, loss: float, tested: float, penalty: float) -> CcdReport:
        sizes = np.array([shard.train.values.size, shard.held_out.values.size], np.int64)
        return CcdReport(chunk, sums, np.array([loss, loss, tested]), sizes, penalty)


def tree_sum(parts: Sequence[Any]) -> Any:
    """Add arrays by a binary tree over their positions."""
    if len(parts) == 1:
        return parts[0]
    half = (len(parts) + 1) // 2
    return tree_sum(parts[:half]) + tree_sum(parts[half:])
