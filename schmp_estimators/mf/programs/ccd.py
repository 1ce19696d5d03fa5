"""Matrix factorisation by coordinate descent on partial sums (Lee et al., NIPS 2014, supplement §2).

A shard owns users.  One round improves a chunk of eight components of its users, and computes its part of the sums that
the items need.  `aggregate` adds up these parts in a fixed order and improves the same chunk of the items.  Nothing is
approximated: the number of shards only changes the order of additions.

The items are divided among the shards, too, by components: chunk c is stored by shard c modulo the number of shards.
This shard sends the chunk with its report of the round before.  Every shard reads the chunk in its own round, and the
shard that stores it takes the improved chunk from the model of the next round.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from schmp_estimators.core.lanes import LANES, PRODUCTS, pad_rows, zero_rows
from schmp_estimators.core.program import Harvest, Saved
from schmp_estimators.core.reduction import add, tree_sum
from schmp_estimators.core.stages import At, Stage, each
from schmp_estimators.core.typing import Floats, Floats32, Function, Integers, IntPair, Numbered
from schmp_estimators.core.values import freeze, own
from schmp_estimators.mf.kernels import ccd as kernels
from schmp_estimators.mf.kernels.registers import SUMS, lay_beside
from schmp_estimators.mf.kernels.sgd import RatingBlock
from schmp_estimators.mf.programs.anchors import (
    Anchored,
    Anchors,
    Chunks,
    Earlier,
    anchor,
    distance,
)
from schmp_estimators.mf.programs.factors import ITEMS, Factorization, Side

#: Items whose sums are added and solved together: all shards' reports about them fit into the second cache.
ITEMS_AT_ONCE = 512


class CcdState(NamedTuple):
    """The state of a shard; at first it has only the items, and the rest is None."""

    #: (n_chunks of this shard, n_items, LANES) the chunks of the items that this shard stores.
    items: Chunks
    #: The influence of earlier ratings, if there are any; see `anchors`.
    anchored: Anchored | None = None
    #: (n_chunks, n_users, LANES).
    users: Any = None
    #: (n_ratings,) and (n_held_out,) residuals of the ratings, and of the held-out ones.
    residuals: Any = None
    tested: Any = None


class CcdModel(NamedTuple):
    """The chunks of the items that are under way, and the last reports of the shards."""

    #: (n_items, 2 * LANES) the chunk of the last round, negated, beside that of the next.
    items: Floats32
    #: (n_items,) number of ratings of each item.
    item_counts: Integers
    #: (3,) the sum of squared errors after the sweep, the same again, and that on the held-out ratings; for clicks the
    #: sum of squared errors, the objective without the penalty, and 0.
    errors: Floats
    #: (2,) number of ratings, and of held-out ratings.
    sizes: Integers
    #: Penalty of users and items, after the sweep.
    penalty: float
    #: For clicks, (n_chunks * LANES, n_chunks * LANES) products of the components of the users, and of the items.
    user_gram: Any = None
    item_gram: Any = None
    #: Whether a sweep has completed those of the items.
    is_complete: bool = False


class CcdReport(NamedTuple):
    """The report of a shard after a round."""

    #: Number of the chunk, or -1 at the start and at the end of a sweep.
    chunk: int
    #: Sums over the shard's users for a chunk of the items.
    sums: Any = None
    #: The next chunk of the items, if this shard stores it.
    following: Any = None
    #: For clicks, products of this shard's chunks of the items with one of the chunks.
    share: Any = None
    #: For clicks, products of the shard's users with this chunk of them.
    own: Any = None
    #: Only at the end of a sweep; as in the model.
    errors: Any = 0.0
    sizes: Any = 0
    penalty: float = 0.0


@dataclass(frozen=True)
class CcdFactorization(Factorization[CcdState, None, CcdModel, CcdReport]):
    """Matrix factorisation by coordinate descent.

    Parameters
    ----------
    n_components, mean, penalty, power, fit_bias, positive, seed, unit
        As in `Factorization`.
    """

    name: ClassVar[str] = "mf-ccd"
    #: Weight of pairs without a rating; 0 if they do not count.
    unobserved = 0.0
    #: What such pairs add to the counts of a user and of an item in the penalty.
    missing = (0.0, 0.0)

    @property
    def n_chunks(self) -> int:
        """Number of chunks, including that of the biases."""
        return -(-self.n_components // LANES) + self.fit_bias

    def n_blocks(self, n_shards: int) -> int:
        """Return 0: the items are part of the states and of the model."""
        return 0

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return one round for each chunk, and a last one that measures errors."""
        return [*self._rounds(self.chunk), each(self.measure, reports=True)]

    def _rounds(self, *functions: Function) -> list[Stage]:
        """Return a round of each function for each chunk."""
        return [
            each(function, number, reports=True, merge=self.merge)
            for function in functions
            for number in range(self.n_chunks)
        ]

    def init(self, at: At) -> tuple[CcdState, Numbered]:
        """Return users that are zero, and items that are random, so that the first round can improve the users."""
        return self.restore(at, CcdState(self._draw_items(at.shard.item_ids, self._mine(at))))

    def restore(self, at: At, saved: CcdState) -> tuple[CcdState, Numbered]:
        """Return a saved state, or one in which only the items are set: the first rounds make the users."""
        shard, state = at.shard, own(saved)
        if state.users is not None:
            return state, {}
        users = np.zeros((self.n_chunks, shard.user_ids.size, LANES), np.float32)
        if self.fit_bias:
            users[0, :, 1] = 1
        residuals = np.array(shard.train.values)
        tested = np.array(shard.held_out.values.real)
        return state._replace(users=users, residuals=residuals, tested=tested), {}

    def report(self, at: At, state: CcdState) -> CcdReport:
        """Return the first report: the number of ratings of each item, and the first chunk of the items."""
        return CcdReport(-1, at.shard.item_counts, self._swap(at, state, -1, 0))

    def chunk(self, at: At, state: CcdState, number: int) -> tuple[CcdState, CcdReport]:
        """Improve a chunk of the users, and compute the sums that this chunk of the items needs."""
        shard, items = at.shard, at.model.items
        sums = np.empty((shard.item_ids.size * SUMS, LANES), np.float32)
        before, now = self._before(state, number), state.users[number]
        following = self._swap(at, state, number - 1, number + 1)
        kernels.shift_residuals(shard.held_out, state.tested, before, freeze(now), items)
        kernels.improve_users(
            shard.train, shard.confidences, state.residuals, before, now, items,
            self._penalties(shard.user_counts, is_item=False), *self._of_users(state, number),
            *self._free(number, is_item=False), self.positive and not self._is_bias(number), sums,
        )  # fmt: skip
        self._anchor_items(at, state, number, sums)
        return state, CcdReport(number, sums, following)

    def merge(self, report: CcdReport, other: CcdReport) -> CcdReport:
        """Add up the reports of two shards on a chunk."""
        return type(report)(report.chunk, *add(report[1:], other[1:]))

    def aggregate(self, model: Any, reports: Sequence[CcdReport]) -> CcdModel:
        """Set the first chunk of the items, improve the current one, or set the errors, as the reports say."""
        first = reports[0]
        following = following_of(reports)
        if model is None:
            return CcdModel(beside(None, following), first.sums, *measured(reports))
        if first.chunk < 0:
            return CcdModel(beside(None, following), model.item_counts, *measured(reports))
        improved: CcdModel = model._replace(items=beside(self._improve(model, reports), following))
        return improved

    def _improve(self, model: CcdModel, reports: Sequence[CcdReport]) -> Floats32:
        """Return the current chunk of the items, improved with the sums of all shards."""
        number = reports[0].chunk
        improved = np.array(model.items[:, LANES:], order="C")
        penalties = self._penalties(model.item_counts, is_item=True)
        free = self._free(number, is_item=True)
        positive = self.positive and not self._is_bias(number)
        shared = self._of_all_pairs(model, number)
        for start in range(0, len(improved), ITEMS_AT_ONCE):
            rows = slice(start, start + ITEMS_AT_ONCE)
            of_rows = slice(start * SUMS, (start + ITEMS_AT_ONCE) * SUMS)
            sums = tree_sum([report.sums[of_rows] for report in reports])
            if shared is not None:
                sums = (sums.reshape(-1, SUMS, LANES) + shared).reshape(-1, LANES)
            kernels.solve_rows(*freeze((sums, penalties[rows])), *free, positive, improved[rows])
        return improved

    def save(self, at: At, state: CcdState) -> CcdState:
        """Return the state with its residuals, which would differ in their last bits if they were computed again."""
        return state

    def harvest(self, at: At, state: CcdState) -> tuple[Side, Chunks]:
        """Return the users, in the order of the shard, and the chunks of the items that it stores."""
        return self._side(state.users, is_item=False), state.items

    def sides(self, harvest: Harvest) -> tuple[Sequence[Side], Sequence[Side]]:
        """Return users and items of a run, group by group."""
        users, parts = zip(*harvest.shards, strict=True)
        chunks = [parts[chunk % len(parts)][chunk // len(parts)] for chunk in range(self.n_chunks)]
        return users, [self._side(chunks, is_item=True)]

    def begin_from(
        self,
        sides: Sequence[Side],
        counts: Sequence[Floats32],
        totals: Sequence[Floats32],
        members: Sequence[Integers],
        item_ids: Integers,
        item_counts: Integers,
    ) -> Saved:
        """Return the start of a run that adds ratings to an earlier fit's users and items.

        Parameters
        ----------
        sides : tuple of Side
            Users and items of the earlier fit.
        counts : sequence of (n, 2) float32
            Of each of them, as in `MFFit.counts`.
        totals : sequence of (n, 2) float32
            The same with the ratings of this run.
        members : sequence of int64
            The users of each shard.
        item_ids, item_counts : (n_items,) int64
            The items, in the order of their rows in shards, and their numbers of ratings in this run.
        """
        users, items = (
            Earlier(self._in_chunks(side, is_item=is_item), rated)
            for side, rated, is_item in zip(sides, counts, (False, True), strict=True)
        )
        known = items.pick(item_ids)
        n_shards = len(members)
        of_items = self._anchor(known, users, totals[1][item_ids], is_item=True)
        # biases, and items rated only now, start as in a first fit
        first = self._draw_items(item_ids, range(self.n_chunks))
        free, rated = int(self.fit_bias), known.counts[:, 0] > 0
        first[free:, rated] = known.rows[free:, rated]
        first[free:, ~rated & (item_counts == 0)] = 0
        shards = []
        gram = None
        if self.unobserved:
            gram = users.pick(
                np.setdiff1d(np.arange(len(users.counts)), np.concatenate(members))
            ).gram()
        for number, ids in enumerate(members):
            mine = slice(number, None, n_shards)
            resting = Anchors(
                of_items.pull[mine], of_items.target[mine], 0.0 if number else of_items.offset
            )
            of_users = self._anchor(users.pick(ids), items, totals[0][ids], is_item=False)
            anchored = Anchored(of_users, resting, None if number else gram)
            shards.append(CcdState(first[mine], anchored))
        return Saved(None, shards, [])

    def _anchor(
        self, earlier: Earlier, others: Earlier, totals: Floats32, *, is_item: bool
    ) -> Anchors:
        """Return the influence of earlier ratings on rows that now have `totals`."""
        before, now = earlier.counts[:, 0], totals[:, 0]
        missing = self.missing[is_item]
        missed = self.unobserved * len(others.counts) if missing else 0.0
        own = self.penalty * (before + missed) ** self.power * (before > 0)
        # what the program adds for the ratings of this run alone is not enough
        more = before
        if self.power != 1:
            more = (now + missing) ** self.power - (now - before + missing) ** self.power
        more = self.penalty * more
        found = anchor(earlier, others, own, more, unobserved=self.unobserved)
        # beside a bias there is a coordinate that is always 1 and has no penalty
        fixed = self.fit_bias * float(np.sum(own - more))
        return found._replace(offset=found.offset + fixed)

    def _of_all_pairs(self, model: CcdModel, chunk: int) -> Any:
        """Return (SUMS, LANES) what missing pairs add to the sums of each item for a chunk; None if not counted."""
        return None

    def _in_chunks(self, side: Side, *, is_item: bool) -> Chunks:
        """Return users or items as chunks, including that of the biases."""
        n = len(side.bias)
        chunks = np.zeros((self.n_chunks, n, LANES), np.float32)
        chunks[int(self.fit_bias) :] = pad_rows(side.factors).reshape(n, -1, LANES).swapaxes(0, 1)
        if self.fit_bias:
            chunks[0, :, int(is_item)] = side.bias
            chunks[0, :, int(not is_item)] = 1
        return chunks

    def _side(self, chunks: Any, *, is_item: bool) -> Side:
        """Return users or items, given their chunks."""
        factors = np.ascontiguousarray(np.hstack(chunks[self.fit_bias :])[:, : self.n_components])
        bias = (
            np.array(chunks[0][:, int(is_item)])
            if self.fit_bias
            else np.zeros(len(factors), np.float32)
        )
        return Side(factors, bias)

    def _is_bias(self, chunk: int) -> bool:
        return self.fit_bias and chunk == 0

    def _free(self, chunk: int, *, is_item: bool) -> IntPair:
        """Return the range of coordinates of a chunk that are fitted."""
        if self._is_bias(chunk):
            return (1, 2) if is_item else (0, 1)
        return 0, min(LANES, self.n_components - LANES * (chunk - self.fit_bias))

    def _penalties(self, counts: Any, *, is_item: bool) -> Floats32:
        weights = (counts + self.missing[is_item]) ** self.power
        return freeze((self.penalty * weights).astype(np.float32))

    def _of_users(self, state: CcdState, chunk: int) -> tuple[Floats32, ...]:
        """Return the influence of earlier ratings on a chunk of the users, as kernels take it."""
        if state.anchored is None:
            return freeze(2 * (np.empty((0, LANES), np.float32),))
        pull, target, _ = state.anchored.users
        return freeze((pull[chunk], target[chunk]))

    def _before(self, state: CcdState, number: int) -> Floats32:
        """Return the users' chunk of the last round, which is zero in the first one."""
        users = state.users
        return freeze(users[number - 1] if number else np.zeros_like(users[0]))

    def _mine(self, at: At) -> range:
        """Return the chunks of the items that a shard stores."""
        return range(at.number, self.n_chunks, at.n_shards)

    def _swap(self, at: At, state: CcdState, last: int, wanted: int) -> Any:
        """Store chunk `last` of the items, which was improved, and return chunk `wanted`; each only if it is here."""
        mine = self._mine(at)
        if last in mine:
            np.negative(at.model.items[:, :LANES], out=state.items[mine.index(last)])
        return state.items[mine.index(wanted)] if wanted in mine else None

    def _anchor_items(self, at: At, state: CcdState, chunk: int, sums: Floats32) -> None:
        """Add the influence of earlier ratings to the sums of a chunk of the items, if this shard stores the chunk."""
        mine = self._mine(at)
        if state.anchored is not None and chunk in mine:
            pull, target, _ = state.anchored.items
            of_items = sums.reshape(-1, SUMS, LANES)
            of_items[:, 0] += pull[mine.index(chunk)]
            of_items[:, PRODUCTS] += target[mine.index(chunk)]

    def _draw_items(self, item_ids: Integers, chunks: range) -> Chunks:
        """Return the first values of chunks."""
        items = np.zeros((len(chunks), item_ids.size, LANES), np.float32)
        for chunk, rows in zip(chunks, items, strict=True):
            if self._is_bias(chunk):
                rows[:, 0] = 1
                continue
            first, size = LANES * (chunk - self.fit_bias), self._free(chunk, is_item=True)[1]
            self.draw(item_ids, ITEMS, rows, size, first=first, width=2)
            if self.positive:
                np.abs(rows, out=rows)
        return items

    def measure(self, at: At, state: CcdState) -> tuple[CcdState, CcdReport]:
        """Include the last chunk in the residuals again; measure errors and the penalty of what this shard stores."""
        shard, items = at.shard, at.model.items
        following = self._swap(at, state, self.n_chunks - 1, 0)
        last, confidences = freeze(state.users[-1]), shard.confidences
        put_back = freeze(np.negative(items[:, :LANES], order="C"))
        loss = kernels.close_round(shard.train, confidences, state.residuals, last, put_back)
        nothing = freeze(np.zeros_like(last))
        kernels.shift_residuals(shard.held_out, state.tested, last, nothing, items)
        weights = _weights_of(shard.held_out)
        tested = float(np.sum(state.tested.astype(np.float64) ** 2 * weights))
        size = state.residuals.size if confidences is None else confidences.sum(dtype=np.float64)
        sizes = np.array([size, np.sum(weights, dtype=np.float64)])
        found = np.array([loss, loss, tested]), sizes, self._penalty_of(at, state)
        return state, CcdReport(-1, None, following, None, None, *found)

    def _penalty_of(self, at: At, state: CcdState) -> float:
        """Return the penalty of all that a shard stores, including the influence of earlier ratings."""
        penalty = 0.0
        of_items = True, at.shard.item_counts, self._mine(at), state.items
        of_users = False, at.shard.user_counts, range(self.n_chunks), state.users
        for is_item, counts, chunks, stored in (of_users, of_items):
            weights = self._penalties(counts, is_item=is_item)
            for chunk, rows in zip(chunks, freeze(stored), strict=True):
                free = self._free(chunk, is_item=is_item)
                penalty += kernels.weighted_squares(rows, *free, weights)
        if state.anchored is not None:
            users, items, _ = state.anchored
            penalty += distance(users, state.users) + distance(items, state.items)
        return penalty


def following_of(reports: Sequence[CcdReport]) -> Any:
    """Return the next chunk of the items, which one of the reports contains; None if there is none."""
    return tree_sum([report.following for report in reports])


def measured(reports: Sequence[CcdReport]) -> tuple[Any, Any, float]:
    """Return errors, sizes and the penalty, added up over all shards."""
    errors, sizes, penalties = zip(*(report[-3:] for report in reports), strict=True)
    return np.sum(errors, axis=0), np.sum(sizes, axis=0), sum(penalties)


def _weights_of(ratings: RatingBlock) -> Any:
    values = ratings.values
    return values.imag if np.iscomplexobj(values) else np.ones(values.size)


def beside(improved: Any, following: Any) -> Floats32:
    """Return an improved chunk, negated, beside the next one; None stands for a chunk of zeros."""
    [n_items] = {len(chunk) for chunk in (improved, following) if chunk is not None}
    items = zero_rows(n_items, 2 * LANES)
    if improved is not None:
        lay_beside(freeze(np.negative(improved)), 0, items)
    if following is not None:
        lay_beside(freeze(following), 1, items)
    return items
