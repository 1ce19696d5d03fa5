"""Matrix factorisation by coordinate descent on partial sums.

The source is Lee et al. (NIPS 2014, supplement §2).

A shard owns users.  One round improves a chunk of eight components of its users, and computes its
part of the sums that the items need.  `aggregate` adds up these parts in a fixed order and improves
the same chunk of the items.  Nothing is approximated: the number of shards only changes the order
of additions.

The items are divided among the shards, too, by components: chunk c is stored by shard c modulo the
number of shards.  This shard sends the chunk with its report of the round before.  Every shard
reads the chunk in its own round, and the shard that stores it takes the improved chunk from the
model of the next round.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from schmp_estimators.core.lanes import LANES, PRODUCTS, pad_rows, zero_rows
from schmp_estimators.core.program import Harvest, Saved
from schmp_estimators.core.reduction import add, tree_merge
from schmp_estimators.core.stages import At, Stage, each
from schmp_estimators.core.typing import Arguments, Floats, Floats32, Function, Integers, Numbered
from schmp_estimators.core.values import freeze, own
from schmp_estimators.mf.kernels import ccd as kernels
from schmp_estimators.mf.kernels.registers import SUMS, lay_beside
from schmp_estimators.mf.programs.anchors import (
    Anchored,
    Anchors,
    Chunks,
    Earlier,
    anchor,
    distance,
)
from schmp_estimators.mf.programs.factors import ITEMS, USERS, Factorization, Side

#: Items whose sums are added and solved together: all shards' reports about them fit into the
#: second cache.
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
    #: (3,) the sum of squared errors after the sweep, the same again, and that on the held-out
    #: ratings; for clicks the sum of squared errors, the objective without the penalty, and 0.
    errors: Floats
    #: (2,) number of ratings, and of held-out ratings.
    sizes: Integers
    #: Penalty of users and items, after the sweep.
    penalty: float
    #: For clicks, (n_chunks * LANES, n_chunks * LANES) products of the components of the users, and
    #: of the items.
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
class CcdFactorization(Factorization):
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
        """Return users that are zero, and items that are random.

        So the first round can improve the users.
        """
        return self.restore(at, CcdState(self._draw_items(at.shard.item_ids, self._mine(at))))

    def restore(self, at: At, saved: CcdState) -> tuple[CcdState, Numbered]:
        """Return a saved state, or one in which only the items are set.

        In the latter the first rounds make the users.

        Residuals are saved, because they would differ in their last bits if they were computed
        again.
        """
        shard = at.shard
        state = own(saved)
        if state.users is not None:
            return state, {}
        users = np.zeros((self.n_chunks, shard.user_ids.size, LANES), np.float32)
        if self.fit_bias:
            users[0, :, 1] = 1
        values = shard.train.values
        # clicks have predictions instead of residuals, and users are zero
        residuals = np.zeros_like(values) if self.unobserved else np.array(values)
        tested = np.array(shard.held_out.values.real)
        return state._replace(users=users, residuals=residuals, tested=tested), {}

    def report(self, at: At, state: CcdState) -> CcdReport:
        """Return the first report: each item's number of ratings, and the items' first chunk."""
        counts = None if at.number else at.shard.item_counts
        return CcdReport(-1, counts, self._swap(at, state, -1, 0))

    def chunk(self, at: At, state: CcdState, number: int) -> tuple[CcdState, CcdReport]:
        """Improve a chunk of the users, and compute the sums that this chunk of the items needs."""
        shard, items = at.shard, at.model.items
        sums = np.empty((shard.item_ids.size * SUMS, LANES), np.float32)
        before, now = self._before(state, number), state.users[number]
        following = self._swap(at, state, number - 1, number + 1)
        kernels.shift_residuals(shard.held_out, state.tested, before, freeze(now), items)
        kernels.improve_users(
            shard.train, shard.confidences, state.residuals, before, now, items,
            self._penalties(shard.user_counts, USERS), *self._of_users(state, number),
            *self._free(number, USERS), sums,
        )  # fmt: skip
        self._anchor_items(at, state, number, sums)
        return state, CcdReport(number, sums, following)

    def merge(self, report: CcdReport, other: CcdReport) -> CcdReport:
        """Add up the reports of two shards on a chunk."""
        return type(report)(report.chunk, *add(report[1:], other[1:]))

    def aggregate(self, model: Any, reports: Sequence[CcdReport]) -> CcdModel:
        """Add up the reports, and return the model that follows."""
        return self._answer(model, tree_merge(reports, self.merge))

    def _answer(self, model: Any, report: CcdReport) -> CcdModel:
        """Set the items' first chunk, improve the current one, or set the errors.

        The sum of reports says which.
        """
        chunk, sums, following, _, _, *measured = report
        if chunk < 0:
            counts = sums if model is None else model.item_counts
            return CcdModel(beside(None, following), counts, *measured)
        return CcdModel(beside(self._improve(model, chunk, sums), following), *model[1:])

    def _improve(self, model: CcdModel, chunk: int, sums: Floats32) -> Floats32:
        """Return the current chunk of the items, improved."""
        improved = np.array(model.items[:, LANES:], order="C")
        penalties = self._penalties(model.item_counts, ITEMS)
        free = self._free(chunk, ITEMS)
        shared = self._of_all_pairs(model, chunk)
        for start in range(0, len(improved), ITEMS_AT_ONCE):
            rows = slice(start, start + ITEMS_AT_ONCE)
            some = sums.reshape(-1, SUMS, LANES)[rows] + shared
            given = freeze((some.reshape(-1, LANES), penalties[rows]))
            kernels.solve_rows(*given, *free, improved[rows])
        return improved

    def harvest(self, at: At, state: CcdState) -> tuple[Side, Chunks]:
        """Return the users, in the order of the shard, and the item chunks that it stores."""
        return self._side(state.users, USERS), state.items

    def sides(self, harvest: Harvest) -> tuple[Sequence[Side], Sequence[Side]]:
        """Return users and items of a run, group by group."""
        users, parts = zip(*harvest.shards, strict=True)
        chunks = [parts[chunk % len(parts)][chunk // len(parts)] for chunk in range(self.n_chunks)]
        return users, [self._side(chunks, ITEMS)]

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
            The items, in the order of their rows in shards, and their numbers of ratings in this
            run.
        """
        rows = map(self._in_chunks, sides, (USERS, ITEMS))
        users, items = map(Earlier, rows, counts)
        known = items.pick(item_ids)
        n_shards = len(members)
        of_items = self._anchor(known, users, totals[1][item_ids], ITEMS)
        # biases, and items rated only now, start as in a first fit
        first = self._draw_items(item_ids, range(self.n_chunks))
        free = int(self.fit_bias)
        rated = known.counts[:, 0] > 0
        first[free:, rated] = known.rows[free:, rated]
        first[free:, ~rated & (item_counts == 0)] = 0
        shards: list[CcdState] = []
        pull, target, offset = of_items
        elsewhere = np.setdiff1d(np.arange(len(users.counts)), np.concatenate(members))
        gram = users.pick(elsewhere).gram() if self.unobserved else None
        for number, ids in enumerate(members):
            mine = slice(number, None, n_shards)
            resting = Anchors(pull[mine], target[mine], offset)
            of_users = self._anchor(users.pick(ids), items, totals[0][ids], USERS)
            shards.append(CcdState(first[mine], Anchored(of_users, resting, gram)))
            offset = 0.0  # they count once
            gram = None
        return Saved(None, shards, [])

    def _anchor(self, earlier: Earlier, others: Earlier, totals: Floats32, side: int) -> Anchors:
        """Return the influence of earlier ratings on rows that now have `totals`."""
        before, now = earlier.counts[:, 0], totals[:, 0]
        missing = self.missing[side]
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
        """Return what missing pairs add to the sums of each item for a chunk.

        It is nothing, or of shape (SUMS, LANES).
        """
        return np.float32(0)

    def _in_chunks(self, given: Side, side: int) -> Chunks:
        """Return users or items as chunks, including that of the biases."""
        factors, bias = given
        chunks = np.zeros((self.n_chunks, bias.size, LANES), np.float32)
        free = pad_rows(factors).reshape(bias.size, -1, LANES)
        chunks[int(self.fit_bias) :] = free.swapaxes(0, 1)
        if self.fit_bias:
            chunks[0, :, side] = bias
            chunks[0, :, 1 - side] = 1
        return chunks

    def _side(self, chunks: Any, side: int) -> Side:
        """Return users or items, given their chunks."""
        factors = np.ascontiguousarray(np.hstack(chunks[self.fit_bias :])[:, : self.n_components])
        bias = chunks[0][:, side] if self.fit_bias else np.zeros(len(factors))
        return Side(factors, np.array(bias, np.float32))

    def _is_bias(self, chunk: int) -> bool:
        return self.fit_bias and chunk == 0

    def _free(self, chunk: int, side: int) -> tuple[int, int, bool]:
        """Return the range of coordinates of a chunk that are fitted.

        Whether they stay at or above zero is returned, too.
        """
        if self._is_bias(chunk):
            return side, side + 1, False
        return 0, min(LANES, self.n_components - LANES * (chunk - self.fit_bias)), self.positive

    def _penalties(self, counts: Any, side: int) -> Floats32:
        weights = (counts + self.missing[side]) ** self.power
        return freeze((self.penalty * weights).astype(np.float32))

    def _of_users(self, state: CcdState, chunk: int) -> tuple[Floats32, ...]:
        """Return the influence of earlier ratings on a chunk of the users, as kernels take it."""
        if state.anchored is None:
            return freeze((np.empty((0, LANES), np.float32),)) * 2
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
        """Store chunk `last` of the items, which was improved, and return chunk `wanted`.

        Each is done only if the chunk is here.
        """
        mine = self._mine(at)
        if last in mine:
            np.negative(at.model.items[:, :LANES], out=state.items[mine.index(last)])
        return state.items[mine.index(wanted)] if wanted in mine else None

    def _anchor_items(self, at: At, state: CcdState, chunk: int, sums: Floats32) -> None:
        """Add the influence of earlier ratings to the sums of a chunk of the items.

        Only the shard that stores the chunk does so.
        """
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
            first = LANES * (chunk - self.fit_bias)
            size = self._free(chunk, ITEMS)[1]
            self.draw(item_ids, ITEMS, rows, size, first=first, width=2)
            if self.positive:
                np.abs(rows, out=rows)
        return items

    def measure(self, at: At, state: CcdState) -> tuple[CcdState, CcdReport]:
        """Include the last chunk in the residuals again.

        Then errors and the penalty of what this shard stores are measured.
        """
        following = self._swap(at, state, self.n_chunks - 1, 0)
        put_back = np.negative(at.model.items[:, :LANES], order="C")
        last = freeze((state.users[-1], put_back))
        state, errors, sizes = self._close(at, state, *last)
        found = errors, sizes, self._penalty_of(at, state)
        return state, CcdReport(-1, None, following, None, None, *found)

    def _close(self, at: At, state: CcdState, users: Floats32, items: Floats32) -> Arguments:
        """Include the last chunk again.

        The state, errors and numbers of ratings are returned as in `CcdModel`.
        """
        shard, confidences = at.shard, at.shard.confidences
        loss = kernels.close_round(shard.train, confidences, state.residuals, users, items)
        nothing = freeze(np.zeros_like(users))
        kernels.shift_residuals(shard.held_out, state.tested, users, nothing, at.model.items)
        values = shard.held_out.values
        weights = values.imag if np.iscomplexobj(values) else np.ones(values.size)
        tested = float(np.sum(state.tested.astype(np.float64) ** 2 * weights))
        size = state.residuals.size if confidences is None else confidences.sum(dtype=np.float64)
        sizes = np.array([size, np.sum(weights, dtype=np.float64)])
        return state, np.array([loss, loss, tested]), sizes

    def _penalty_of(self, at: At, state: CcdState) -> float:
        """Return the penalty of all that a shard stores, with the influence of earlier ratings."""
        penalty = 0.0
        of_users = at.shard.user_counts, range(self.n_chunks), state.users
        of_items = at.shard.item_counts, self._mine(at), state.items
        for side, (counts, chunks, stored) in enumerate((of_users, of_items)):
            weights = self._penalties(counts, side)
            for chunk, rows in zip(chunks, stored, strict=True):
                first, stop, _ = self._free(chunk, side)
                free = rows[:, first:stop]
                squares = np.einsum("nk,nk->n", free, free, dtype=np.float64)
                penalty += float(np.sum(squares * weights))
        if state.anchored is not None:
            users, items, _ = state.anchored
            penalty += distance(users, state.users) + distance(items, state.items)
        return penalty


def beside(improved: Any, following: Any) -> Floats32:
    """Return an improved chunk, negated, beside the next one; None stands for a chunk of zeros."""
    [n_items] = {len(chunk) for chunk in (improved, following) if chunk is not None}
    items = zero_rows(n_items, 2 * LANES)
    if improved is not None:
        lay_beside(freeze(np.negative(improved)), 0, items)
    if following is not None:
        lay_beside(freeze(following), 1, items)
    return items
