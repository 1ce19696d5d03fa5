"""Matrix factorisation of implicit feedback.

It has the chunks of `ccd`, and two Gram matrices for all missing pairs.

A sweep improves all chunks of the users, and then all chunks of the items.  If chunks of both
alternated, the objective would fall as fast, but recommendations would be an epoch or two behind.
In a round for users, shards need all products of the current chunk of the items, and report those
of their users.  In a round for items, they compute the sums that the items need; the shard that
stores a chunk of the items computes the part of these sums that comes from the chunk.  `aggregate`
adds up the parts in a fixed order and improves the current chunk.

Both Gram matrices are part of the model.  That of the items is updated by the rows that change: the
shards compute the products of a chunk with the others in the round after it was improved.  At the
start this matrix is not known, and need not be: users are zero then, so it is enough to compute the
products of a chunk in the round of its users.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from schmp_estimators.core.lanes import LANES, PRODUCTS, zero_rows
from schmp_estimators.core.stages import At, Stage, each
from schmp_estimators.core.typing import Arguments, FloatPair, Floats, Floats32, Named, Numbered
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.kernels import implicit as kernels
from schmp_estimators.mf.kernels.registers import SUMS, lay_beside
from schmp_estimators.mf.programs.ccd import (
    CcdFactorization,
    CcdModel,
    CcdReport,
    CcdState,
    beside,
)
from schmp_estimators.mf.programs.factors import ITEMS, USERS

Gram = Floats

#: The two coordinates whose product each lane of the registers of products holds, as `add_products`
#: lays them out.
_LEFT = np.broadcast_to(np.arange(LANES), (PRODUCTS, LANES))
_RIGHT = (_LEFT + np.arange(PRODUCTS)[:, None]) % LANES


class Turned(CcdReport):
    """The report of a shard on a chunk of the items before the first sweep.

    It is made by `turn` or `begin`.
    """


@dataclass(frozen=True)
class ImplicitFactorization(CcdFactorization):
    """Matrix factorisation of implicit feedback by block coordinate descent.

    Parameters
    ----------
    n_components, mean, penalty, power, fit_bias, positive, seed, unit
        As in `Factorization`.  There are no biases, and penalties count the pairs that were seen.
    unobserved : float
        Weight u of a missing pair, above 0.
    missing : (float, float)
        What missing pairs add to the counts of a user and of an item in the penalty.
    anew : bool
        Whether random items are turned towards the clicks before the first sweep; see `turn`.
    """

    unobserved: float = 1.0
    missing: FloatPair = (0.0, 0.0)
    anew: bool = True

    name: ClassVar[str] = "mf-implicit"

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return rounds for the chunks of users, for those of items, and one to measure errors.

        Each chunk has a round.
        """
        stages = [*self._rounds(self.chunk, self.gather), each(self.measure, reports=True)]
        if sweep or not self.anew:
            return stages
        return [*self._rounds(self.turn), each(self.begin, reports=True), *stages]

    def init(self, at: At) -> tuple[CcdState, Numbered]:
        """Return users that are zero, and items that are random.

        Items without clicks are zero and stay so.
        """
        items = self._draw_items(at.shard.item_ids, self._mine(at))
        items[:, at.shard.item_counts == 0] = 0
        return self.restore(at, CcdState(items))

    def turn(self, at: At, state: CcdState, number: int) -> tuple[CcdState, CcdReport]:
        """Multiply a chunk of the items by the clicks and back, as in a power iteration.

        `aggregate` scales it.
        """
        shard, items = at.shard, at.model.items
        following = self._swap(at, state, number - 1, number + 1)
        shares = (1 / np.sqrt(np.maximum(shard.item_counts, 1))).astype(np.float32)
        passed = np.zeros((len(items), LANES), np.float32)
        kernels.pass_on(shard.train, freeze(items[:, LANES:] * shares[:, None]), passed)
        return state, Turned(number, passed, following)

    def begin(self, at: At, state: CcdState) -> tuple[CcdState, CcdReport]:
        """Store the chunk of the items that was turned last, and report the first one."""
        return state, Turned(-1, None, self._swap(at, state, self.n_chunks - 1, 0))

    def chunk(self, at: At, state: CcdState, number: int) -> tuple[CcdState, Any]:
        """Improve a chunk of the users, and compute its products with the others."""
        shard, model = at.shard, at.model
        gram, diagonal = self._cross(model.item_gram, number)
        kernels.improve_clicks(
            shard.train, shard.confidences, np.float32(self.unobserved), state.residuals,
            self._before(state, number), state.users, number, model.items, gram, diagonal,
            self._penalties(shard.user_counts, USERS), *self._of_users(state, number),
            *self._free(number, USERS)[1:],
        )  # fmt: skip
        # later chunks add their own products
        own = np.zeros((self.n_chunks * LANES, LANES))
        so_far = (number + 1) * LANES
        users = freeze(state.users)
        own[:so_far] = kernels.gram_rows(users[: number + 1], users, number * users.shape[1], 1)
        if state.anchored is not None and at.number == 0:
            own += state.anchored.gram[:, so_far - LANES : so_far]
        share = None if model.is_complete else self._share(at, state, self.n_chunks, last=False)
        following = self._swap(at, state, -1, (number + 1) % self.n_chunks)
        return state, CcdReport(number, None, following, share, own)

    def gather(self, at: At, state: CcdState, number: int) -> tuple[CcdState, Any]:
        """Compute the sums that a chunk of the items needs."""
        shard = at.shard
        model = at.model
        sums = np.empty((shard.item_ids.size * SUMS, LANES), np.float32)
        following = self._swap(at, state, number - 1, number + 1)
        share = self._share(at, state, number) if number else None
        if not number:
            state = state._replace(residuals=state.residuals[shard.by_item.order])
        gram, _ = self._cross(model.user_gram, number)
        mine = gram.reshape(-1, LANES, LANES)[at.number :: at.n_shards].reshape(-1, LANES)
        users = zero_rows(state.users.shape[1], 2 * LANES)
        chunks = freeze(state.users)
        for at_register, chunk in enumerate((number - 1, number)):
            lay_beside(chunks[chunk], at_register, users)
        kernels.gather_clicks(
            shard.by_item.clicks, shard.by_item.confidences, np.float32(self.unobserved),
            state.residuals, model.items, *freeze((users, state.items, mine)), sums,
        )  # fmt: skip
        self._anchor_items(at, state, number, sums)
        return state, CcdReport(number, sums, following, share)

    def _answer(self, model: Any, report: CcdReport) -> CcdModel:
        """Set the items' first chunk, add up Gram matrices, improve a chunk, or set the errors."""
        chunk, _, following, share, own, *_ = report
        if isinstance(report, Turned):
            return self._turned(model, report)
        if (
            share is not None
        ):  # of a chunk of the items that was improved last, or with which a fit begins
            last = chunk if own is not None else chunk % (self.n_chunks + 1) - 1
            model = model._replace(item_gram=_with_rows(model.item_gram, share, last))
        if own is not None:
            items = beside(model.items[:, LANES:], following)
            user_gram = _with_rows(model.user_gram, own, chunk)
            model = model._replace(items=items, user_gram=user_gram)
            following = (chunk + 1) % self.n_chunks
            return model if model.is_complete else self._with_diagonal(model, following)
        made = super()._answer(model, report)
        if model is None:
            nothing = np.zeros((self.n_chunks * LANES, self.n_chunks * LANES))
            return self._with_diagonal(made._replace(user_gram=nothing, item_gram=nothing), 0)
        if chunk >= 0:
            return made
        grams = model.user_gram, model.item_gram
        missing = self.unobserved * float(np.sum(grams[0] * grams[1]))
        errors = made.errors + np.array([0.0, missing, 0.0])
        return CcdModel(*made[:2], errors, *made[3:5], *grams, is_complete=True)

    def measure(self, at: At, state: CcdState) -> tuple[CcdState, CcdReport]:
        """Include the last chunk again.

        Then errors and the penalty of what this shard stores are measured.
        """
        state, report = super().measure(at, state)
        return state, report._replace(share=self._share(at, state, self.n_chunks))

    def _close(self, at: At, state: CcdState, users: Floats32, items: Floats32) -> Arguments:
        shard = at.shard
        residuals = np.empty_like(state.residuals)
        residuals[shard.by_item.order] = state.residuals
        given = shard.train, shard.confidences, np.float32(self.unobserved), residuals
        errors = kernels.close_clicks(*given, users, items)
        sizes = np.array([residuals.size, 0])
        return state._replace(residuals=residuals), np.array([*errors, 0.0]), sizes

    def _turned(self, model: CcdModel, report: CcdReport) -> CcdModel:
        """Return the model with a chunk of the items turned towards the clicks.

        The following chunk is beside it.
        """
        number, passed, following, *_ = report
        if number < 0:
            return self._with_diagonal(model._replace(items=beside(None, following)), 0)
        turned = np.array(model.items[:, LANES:], order="C")
        stop = self._free(number, ITEMS)[1]
        spread = 2 * self.start_range(ITEMS)[1] / np.sqrt(3)
        given = freeze((passed, model.item_counts))
        kernels.centre_chunk(*given, int(not number), stop, spread, turned)
        return model._replace(items=beside(turned, following))

    def _of_all_pairs(self, model: CcdModel, chunk: int) -> Any:
        shared = np.zeros((SUMS, LANES), np.float32)
        shared[:PRODUCTS] = self._cross(model.user_gram, chunk)[1]
        return shared

    def record(self, sweep: int, model: Any) -> Named:
        """Return the clicks' root mean squared error, and the objective, which counts all pairs."""
        squares, loss, _ = map(float, model.errors)
        rmse = float(np.sqrt(squares / max(model.sizes[0], 1)))
        objective = {"objective": loss + float(model.penalty), "penalty": float(model.penalty)}
        return {"running_rmse": rmse, "train_rmse": rmse, **objective}

    def _share(self, at: At, state: CcdState, stop: int, *, last: bool = True) -> Gram:
        """Return products of this shard's chunks below `stop` with a chunk; else zeros.

        That is the current chunk or the last one.
        """
        share = np.zeros((self.n_chunks, LANES, LANES))
        resting = share[at.number : stop : at.n_shards]
        mine = freeze(state.items)[: len(resting)]
        products = kernels.gram_rows(mine, at.model.items, int(not last), 2)
        resting[:] = products.reshape(-1, LANES, LANES) * (-1 if last else 1)
        return share.reshape(-1, LANES)

    def _cross(self, gram: Gram, chunk: int) -> tuple[Floats32, Floats32]:
        """Return u times the products with a chunk, and those of the chunk with itself.

        The former have zeros in place of the latter, which are as sums hold them.
        """
        of_chunk = slice(chunk * LANES, (chunk + 1) * LANES)
        with np.errstate(over="ignore"):
            cross = (self.unobserved * gram[:, of_chunk]).astype(np.float32)
        if not np.isfinite(
            cross
        ).all():  # their sums would be NaN, and rows solved from these would be zero
            raise ValueError(
                "the factors have grown beyond all bounds; lower "
                f"unobserved_weight={self.unobserved:g}, or scale ratings and weights down"
            )
        diagonal = cross[of_chunk][_LEFT, _RIGHT]
        cross[of_chunk] = 0
        return freeze((cross, diagonal))

    def _with_diagonal(self, model: CcdModel, chunk: int) -> CcdModel:
        """Return the model with the products of its next chunk of the items with itself."""
        item_gram = np.array(model.item_gram)
        of_chunk = slice(chunk * LANES, (chunk + 1) * LANES)
        now, items = freeze((np.array(model.items[None, :, LANES:], order="C"), model.items))
        item_gram[of_chunk, of_chunk] = kernels.gram_rows(now, items, 1, 2)
        return model._replace(item_gram=item_gram)


def _with_rows(gram: Gram, rows: Gram, chunk: int) -> Gram:
    """Return a Gram matrix with the rows and columns of a chunk replaced."""
    changed = np.array(gram)
    of_chunk = slice(chunk * LANES, (chunk + 1) * LANES)
    changed[:, of_chunk] = rows
    changed[of_chunk] = rows.T
    return changed
