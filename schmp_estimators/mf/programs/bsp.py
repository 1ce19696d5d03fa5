"""Matrix factorisation by data-parallel stochastic gradient descent: what rotation is compared with.

Bulk synchronous (BSP): in every epoch each shard takes the steps of all its ratings on a copy of all items as they were
at the last barrier, and at the next one the changes of all shards are added.  There is one barrier per epoch, and one
more where errors are measured.  An item takes as many steps from one starting point as there are shards, so the step
must shrink as shards are added; and each worker holds all items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.program import Harvest, Saved
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.stages import At, Stage, each, observes
from schmp_estimators.core.values import own
from schmp_estimators.mf.kernels.sgd import FactorBlock, sgd_block
from schmp_estimators.mf.programs.factors import Side
from schmp_estimators.mf.programs.sgd import Penalty, SgdFactorization, SgdState, penalty_of


class BspModel(NamedTuple):
    """The items, and what the shards reported last."""

    items: FactorBlock
    #: (3,) sums of squared errors, as in `SgdState`.
    errors: NDArray[np.float64]
    #: (2,) number of ratings, and of held-out ratings.
    sizes: NDArray[np.int64]
    #: Of users and items, if it has just been measured.
    penalty: float | None = None


class BspReport(NamedTuple):
    """What a shard reports at a barrier."""

    #: The shard's copy of the items after its steps; None if it has not changed them.
    items: FactorBlock | None
    errors: NDArray[np.float64]
    sizes: NDArray[np.int64]


class BspFactorization(SgdFactorization):
    """Matrix factorisation by stochastic gradient descent on copies of the items that are merged once per epoch.

    Parameters, steps and storage order are those of `SgdFactorization`; shards are made with a single item block.  With
    one shard both are the same, to the bit.
    """

    name: ClassVar[str] = "mf-bsp"
    saved_types: ClassVar[tuple[Any, Any, Any]] = (BspModel, FactorBlock, None)

    def n_blocks(self, n_shards: int) -> int:
        """Return 0: the items are part of the model, and what `init` makes as a block is left where it is."""
        return 0

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return one stage, and more where errors are wanted; each ends in a barrier."""
        stages = [each(self.update_copy, reports=True)]
        if self.validates or self.measures(sweep):
            stages.append(each(self.measure_copy))
        return [*stages, observes(self.penalise_users)] if self.measures(sweep) else stages

    def report(self, at: At, state: SgdState) -> BspReport:
        """Return the errors of the shard; at the start, the first shard also reports the items to start from."""
        is_first = at.model is None and at.number == 0
        return BspReport(super().init(at)[1][0] if is_first else None, *super().report(at, state))

    def update_copy(self, at: At, state: SgdState) -> tuple[SgdState, BspReport]:
        """Take the steps of the shard's ratings on a copy of the items."""
        items = own(at.model.items)
        state.errors[0, 0] = sgd_block(at.shard.train.block(0), state.users, items, self.steps(), self.positive)
        return state, self.report(at, state)._replace(items=items)

    def measure_copy(self, at: At, state: SgdState) -> SgdState:
        """Take down the errors on the shard's ratings."""
        self.note_errors(at, state, 0, at.model.items)
        return state

    def penalise_users(self, at: At, state: SgdState) -> Penalty:
        """Return the penalty of the shard's users."""
        return Penalty(penalty_of(state.users), 0.0)

    def aggregate(self, model: Any, reports: Sequence[Any]) -> BspModel:
        """Add up errors, what the shards did to the items, or penalties."""
        if isinstance(reports[0], Penalty):
            penalty = sum([*(one.users for one in reports), penalty_of(model.items)])
            measured: BspModel = model._replace(penalty=penalty)
            return measured
        errors, sizes = (np.sum([report[i] for report in reports], axis=0) for i in (1, 2))
        items = reports[0].items if model is None else model.items
        if model is not None and reports[0].items is not None:
            items = _merge(model.items, [one.items for one in reports])
        return BspModel(items, errors, sizes)

    def begin_from(self, users: Sequence[FactorBlock], items: Sequence[FactorBlock]) -> Saved:
        """Return what a run starts from that is to begin with these rows."""
        return Saved(BspModel(items[0], np.zeros(3), np.ones(2, np.int64)), users, [])

    def sides(self, harvest: Harvest) -> tuple[Sequence[Side], Sequence[Side]]:
        """Return users and items of a run, group by group."""
        return harvest.shards, [self.harvest_block(harvest.model.items)]


def _merge(before: FactorBlock, after: Sequence[FactorBlock]) -> FactorBlock:
    """Return `before` with the changes of all copies; a lone copy as it is, whose bits are those of rotation."""
    if len(after) == 1:
        return after[0]
    with np.errstate(over="ignore", invalid="ignore"):  # a fit that diverges ends with an error of its own
        changes = tree_sum([tuple(new - old for new, old in zip(copy[:5], before[:5], strict=True)) for copy in after])
        added = [old + change for old, change in zip(before[:5], changes, strict=True)]
        merged = before._replace(**dict(zip(FactorBlock._fields[:5], added, strict=True)))
        return merged._replace(norms=(merged.factors**2).sum(axis=1))
