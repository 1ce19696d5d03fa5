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

from schmp_estimators.core.program import Harvest, Local, Outcome, Saved, Stage, Visit
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.values import own
from schmp_estimators.mf.data.ratings import RatingShard
from schmp_estimators.mf.kernels.sgd import FactorBlock, StepSizes, sgd_block
from schmp_estimators.mf.programs.sgd import Each, SgdFactorization, Side, error_record, penalty_of, report


class BspModel(NamedTuple):
    """What every update reads, the items among it, and what the shards reported last."""

    steps: StepSizes
    #: (3,) sums of squared errors, as in `SgdState`.
    errors: NDArray[np.float64]
    #: (2,) number of ratings, and of held-out ratings.
    sizes: NDArray[np.int64]
    items: FactorBlock


class BspReport(NamedTuple):
    """What a shard reports at a barrier."""

    errors: NDArray[np.float64]
    sizes: NDArray[np.int64]
    #: The shard's copy of the items after its steps; None if it has not changed them.
    items: FactorBlock | None


class BspFactorization(SgdFactorization):
    """Matrix factorisation by stochastic gradient descent on copies of the items that are merged once per epoch.

    Parameters, steps and storage order are those of `SgdFactorization`; shards are made with a single item block.  With
    one shard both are the same, to the bit.
    """

    name: ClassVar[str] = "mf-bsp"

    def has_blocks(self, n_shards: int) -> bool:
        """Return False: the items are part of the model."""
        return False

    def schedule(self, sweep: int, n_shards: int) -> tuple[Stage, ...]:
        """Return one stage, and one more where errors are wanted; each ends in a barrier."""
        return (Local("update"), Local("evaluate")) if self.validates or self.measures(sweep) else (Local("update"),)

    def start(self, shard: RatingShard, saved: FactorBlock | None, each: Each) -> Outcome:
        """Return the shard's users; the first shard also reports the items to start from."""
        outcome = super().start(shard, saved, each)
        items = outcome.parts[0] if shard.number == 0 else None
        errors, sizes = outcome.partial
        return Outcome(outcome.state, partial=BspReport(errors, sizes, items))

    def update(self, visit: Visit) -> Outcome:
        """Take the steps of the shard's ratings on a copy of the items, or measure errors."""
        shard, state, items = visit.shard, visit.state, None
        if visit.stage == "update":
            items = own(visit.model.items)
            state.errors[0, 0] = sgd_block(shard.train.block(0), state.users, items, visit.model.steps, self.positive)
        else:
            self._evaluate(visit, 0, visit.model.items)
        errors, sizes = report(shard, state)
        return Outcome(state, partial=BspReport(errors, sizes, items))

    def aggregate(self, model: Any, partials: Sequence[Any]) -> Any:
        """Add up errors, and what the shards did to the items."""
        steps, errors, sizes = super().aggregate(None, partials)
        items = partials[0].items if model is None else model.items
        if model is not None and partials[0].items is not None:
            items = _merge(model.items, [one.items for one in partials])
        return BspModel(steps, errors, sizes, items)

    def unpack(self, saved: Sequence[Any]) -> Saved:
        """Return what `Saved` was before it went through a file."""
        (_, errors, sizes, items), shards, _ = saved
        model = BspModel(self._steps(), errors, sizes, FactorBlock(*items))
        return Saved(model, [FactorBlock(*users) for users in shards], [])

    def begin_from(self, users: Sequence[FactorBlock], items: Sequence[FactorBlock]) -> Saved:
        """Return what a run starts from that is to begin with these rows."""
        return Saved(BspModel(self._steps(), np.zeros(3), np.ones(2, np.int64), items[0]), users, [])

    def progress(self, sweep: int, model: Any, shards: Sequence[Any], blocks: Sequence[Any]) -> dict[str, Any]:
        """Return root mean squared errors, and the objective where it was measured."""
        penalty = sum([*shards, penalty_of(model.items)]) if shards else None
        return error_record(model.errors, model.sizes, penalty, self.unit)

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
