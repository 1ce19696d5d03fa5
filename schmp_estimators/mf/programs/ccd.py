"""Matrix factorisation by coordinate descent on partial sums (Lee et al., NIPS 2014, supplement §2).

A shard owns users.  In one round it improves a chunk of eight components of its users, and sums up what the items need;
`aggregate` adds the sums in a fixed order and improves that chunk of the items.  Nothing is approximated: the number of
shards changes the order of additions, and no more.

The items are divided among the shards, too, by components: chunk c rests with shard c modulo the number of shards.  It
travels when its turn comes: its owner hands it in with the report of the round before, every shard reads it in its
own round, and its owner takes the improved one back from the model of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.lanes import LANES
from schmp_estimators.core.program import Harvest, Local, Outcome, Program, Saved, Stage, Visit
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.values import freeze, own
from schmp_estimators.mf.data.ratings import SortedShard
from schmp_estimators.mf.kernels.ccd import (
    SUMS,
    close_round,
    improve_users,
    shift_residuals,
    solve_rows,
    weighted_squares,
)
from schmp_estimators.mf.kernels.start import draw_factors
from schmp_estimators.mf.programs.sgd import Side, error_record, start_range

Each = Callable[[Callable[[Any], Any], Any], list[Any]]
Chunks = NDArray[np.float32]

#: Items whose sums are added and solved together: what all shards report about them fits the second cache.
_ITEMS_AT_ONCE = 512


class CcdState(NamedTuple):
    """What changes of a shard."""

    #: (n_chunks, n_users, LANES).
    users: Chunks
    #: (n_chunks of this shard, n_items, LANES) chunks that rest here.
    items: Chunks
    #: (n_ratings,) and (n_held_out,) what is left of the ratings.
    residuals: NDArray[np.float32]
    tested: NDArray[np.float32]
    #: (n_items * SUMS, LANES) room for the sums of a round: the report of the round shows them, and is read before the
    #: next one begins.  Empty in what `save` returns.
    sums: NDArray[np.float32]


class CcdModel(NamedTuple):
    """What of the items is on its way, and what the shards reported last."""

    #: (n_items, 2 * LANES) the chunk of the last round, negated, beside that of the next.
    items: NDArray[np.float32]
    #: (n_items,) ratings of each item.
    item_counts: NDArray[np.int64]
    #: (3,) sums of squared errors: twice those after the sweep, then on the held-out ratings.
    errors: NDArray[np.float64]
    #: (2,) number of ratings, and of held-out ratings.
    sizes: NDArray[np.int64]
    #: Of users and items, after the sweep.
    penalty: float


class CcdReport(NamedTuple):
    """What a shard reports after a round."""

    #: The chunk, or -1 at the start and at the end of a sweep.
    chunk: int
    #: Sums over the shard's users for a chunk of the items, or nothing.
    sums: Any
    #: The chunk of the items that is next, if it rests here.
    following: Any
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
    seed: int = 0
    unit: float = 1.0

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
        """Return a saved state, or users that are zero; items are random, so that the first round moves them.

        `saved` may also be the shard's chunks of the items alone: the first round makes the users anew.
        """
        room = np.zeros((shard.item_ids.size * SUMS, LANES), np.float32)
        if isinstance(saved, CcdState):
            state = own(saved)._replace(sums=room)
        else:
            users = np.zeros((self.n_chunks, shard.user_ids.size, LANES), np.float32)
            if self.fit_bias:
                users[0, :, 1] = 1
            mean = np.float32(self.mean if self.fit_bias else 0)
            items = self._fresh_items(shard) if saved is None else np.array(saved)
            state = CcdState(users, items, shard.train.values - mean, shard.held_out.values - mean, room)
        report = self._report(shard, -1, shard.item_counts, self._chunk(shard, state, 0))
        return Outcome(state, partial=report)

    def update(self, visit: Visit) -> Outcome:
        """Do one round, or measure."""
        if visit.stage == "measure":
            return self._measure(visit)
        shard, state, items = freeze(visit.shard), visit.state, visit.model.items
        chunk = int(visit.stage.removeprefix("chunk-"))
        before = state.users[chunk - 1] if chunk else np.zeros_like(state.users[0])
        if chunk:
            self._take_home(shard, state, chunk - 1, items)
        if state.tested.size:
            shift_residuals(shard.held_out, state.tested, *freeze((before, state.users[chunk])), items)
        improve_users(
            shard.train, state.residuals, freeze(before), state.users[chunk], items,
            self._penalties(np.diff(shard.train.indptr)), *self._free(chunk, is_item=False),
            self.positive and not self._is_bias(chunk), state.sums,
        )  # fmt: skip
        return Outcome(state, partial=self._report(shard, chunk, state.sums, self._chunk(shard, state, chunk + 1)))

    def aggregate(self, model: CcdModel | None, partials: Sequence[CcdReport]) -> CcdModel:
        """Take up the first chunk of the items, improve the one whose turn it is, or take down the errors."""
        first = partials[0]
        errors = np.sum([report.errors for report in partials], axis=0)
        sizes = np.sum([report.sizes for report in partials], axis=0)
        penalty = sum(report.penalty for report in partials)
        following = next((report.following for report in partials if report.following is not None), None)
        if model is None:
            return CcdModel(_beside(None, following), first.sums, errors, sizes, penalty)
        if first.chunk < 0:
            return model._replace(items=_beside(None, following), errors=errors, sizes=sizes, penalty=penalty)
        improved = np.array(model.items[:, LANES:], order="C")
        penalties = self._penalties(model.item_counts)
        free = self._free(first.chunk, is_item=True)
        for start in range(0, len(improved), _ITEMS_AT_ONCE):
            rows = slice(start, start + _ITEMS_AT_ONCE)
            of_rows = slice(start * SUMS, (start + _ITEMS_AT_ONCE) * SUMS)
            sums = tree_sum([report.sums[of_rows] for report in partials])
            positive = self.positive and not self._is_bias(first.chunk)
            solve_rows(*freeze((sums, penalties[rows])), *free, positive, improved[rows])
        return model._replace(items=_beside(improved, following))

    def save(self, shard: SortedShard, state: CcdState) -> CcdState:
        """Return the state: residuals made anew would differ in their last bits."""
        return own(state._replace(sums=np.empty((0, LANES), np.float32)))

    def unpack(self, saved: Sequence[Any]) -> Saved:
        """Return what `Saved` was before it went through a file."""
        model, shards, _ = saved
        return Saved(CcdModel(*model), [CcdState(*state) for state in shards], [])

    def progress(self, sweep: int, model: CcdModel, shards: Sequence[Any], blocks: Sequence[Any]) -> dict[str, Any]:
        """Return root mean squared errors and the objective."""
        return error_record(model.errors, model.sizes, model.penalty, self.unit)

    def harvest_shard(self, shard: SortedShard, state: CcdState) -> tuple[Side, Chunks]:
        """Return the users, in the order of the shard, and the chunks of the items that rest there."""
        return self._side(state.users, is_item=False), np.array(state.items)

    def sides(self, harvest: Harvest) -> tuple[Sequence[Side], Sequence[Side]]:
        """Return users and items of a run, group by group."""
        users, parts = zip(*harvest.shards, strict=True)
        chunks = [parts[chunk % len(parts)][chunk // len(parts)] for chunk in range(self.n_chunks)]
        return users, [self._side(chunks, is_item=True)]

    def restore(self, earlier: Side, item_ids: NDArray[np.int64], number: int, n_shards: int) -> Chunks:
        """Return a shard's chunks of the items of an earlier fit, and fresh ones beyond them; biases start anew."""
        items, known = self._draw_items(item_ids, number, n_shards), item_ids < len(earlier.bias)
        for position, chunk in enumerate(range(number, self.n_chunks, n_shards)):
            if not self._is_bias(chunk):
                start = LANES * (chunk - self.fit_bias)
                factors = earlier.factors[item_ids[known], start : start + LANES]
                items[position, known, : factors.shape[1]] = factors
        return items

    def _side(self, chunks: Any, *, is_item: bool) -> Side:
        """Return users or items of their chunks."""
        factors = np.ascontiguousarray(np.hstack(chunks[self.fit_bias :])[:, : self.n_components])
        bias = np.array(chunks[0][:, int(is_item)]) if self.fit_bias else np.zeros(len(factors), np.float32)
        return Side(factors, bias, np.zeros((len(factors), 2), np.float32))

    def _is_bias(self, chunk: int) -> bool:
        return self.fit_bias and chunk == 0

    def _free(self, chunk: int, *, is_item: bool) -> tuple[int, int]:
        """Return the range of coordinates of a chunk that may move."""
        if self._is_bias(chunk):
            return (1, 2) if is_item else (0, 1)
        return 0, min(LANES, self.n_components - LANES * (chunk - self.fit_bias))

    def _penalties(self, counts: Any) -> NDArray[np.float32]:
        weights = counts if self.per_rating else np.ones(counts.size)
        return freeze((self.penalty * weights).astype(np.float32))

    def _chunk(self, shard: SortedShard, state: CcdState, chunk: int) -> Any:
        """Return a chunk of the items, if there is such a chunk and it rests with this shard."""
        here = chunk % shard.n_shards == shard.number and chunk < self.n_chunks
        return state.items[chunk // shard.n_shards] if here else None

    def _take_home(self, shard: SortedShard, state: CcdState, chunk: int, items: NDArray[np.float32]) -> None:
        """Keep the chunk of the items that was improved last, if its place is here; mutates the state."""
        if chunk % shard.n_shards == shard.number:
            np.negative(items[:, :LANES], out=state.items[chunk // shard.n_shards])

    def _fresh_items(self, shard: SortedShard) -> Chunks:
        return self._draw_items(shard.item_ids, shard.number, shard.n_shards)

    def _draw_items(self, item_ids: NDArray[np.int64], number: int, n_shards: int) -> Chunks:
        """Return the first values of the chunks that rest with shard `number`."""
        chunks = range(number, self.n_chunks, n_shards)
        items = np.zeros((len(chunks), item_ids.size, LANES), np.float32)
        centre, spread = start_range(self, is_item=True)
        key = stream_key(self.seed, 1)
        for chunk, rows in zip(chunks, items, strict=True):
            if self._is_bias(chunk):
                rows[:, 0] = 1
                continue
            first, (_, size) = LANES * (chunk - self.fit_bias), self._free(chunk, is_item=True)
            draw_factors(freeze(item_ids), first, size, key, np.float32(centre), np.float32(2 * spread), rows)
            if self.positive:
                np.abs(rows, out=rows)
        return items

    def _measure(self, visit: Visit) -> Outcome:
        """Put the last chunk back into the residuals, and measure errors and the penalty of what rests here."""
        shard, state, items = freeze(visit.shard), visit.state, visit.model.items
        self._take_home(shard, state, self.n_chunks - 1, items)
        last = freeze(state.users[-1])
        loss = close_round(shard.train, state.residuals, last, freeze(np.negative(items[:, :LANES], order="C")))
        if state.tested.size:
            shift_residuals(shard.held_out, state.tested, last, freeze(np.zeros_like(last)), items)
        tested = float(np.sum(state.tested.astype(np.float64) ** 2))
        penalty, mine = 0.0, range(shard.number, self.n_chunks, shard.n_shards)
        user_weights, item_weights = map(self._penalties, (np.diff(shard.train.indptr), shard.item_counts))
        for chunk, rows in enumerate(freeze(state.users)):
            penalty += weighted_squares(rows, *self._free(chunk, is_item=False), user_weights)
        for chunk, rows in zip(mine, freeze(state.items), strict=True):
            penalty += weighted_squares(rows, *self._free(chunk, is_item=True), item_weights)
        report = self._report(shard, -1, (), self._chunk(shard, state, 0), loss, tested, penalty)
        return Outcome(state, partial=report)

    @staticmethod
    def _report(
        shard: SortedShard,
        chunk: int,
        sums: Any,
        following: Any,
        loss: float = 0.0,
        tested: float = 0.0,
        penalty: float = 0.0,
    ) -> CcdReport:
        sizes = np.array([shard.train.values.size, shard.held_out.values.size], np.int64)
        return CcdReport(chunk, sums, following, np.array([loss, loss, tested]), sizes, penalty)


def _beside(improved: Any, following: Any) -> NDArray[np.float32]:
    """Return an improved chunk, negated, beside the one that follows; None is a chunk of zeros."""
    [n_items] = {len(chunk) for chunk in (improved, following) if chunk is not None}
    items = np.zeros((n_items, 2 * LANES), np.float32)
    if improved is not None:
        np.negative(improved, out=items[:, :LANES])
    if following is not None:
        items[:, LANES:] = following
    return items
