"""Matrix factorisation by data-parallel stochastic gradient descent, with which rotation is compared.

Bulk synchronous (BSP): in each epoch, every shard takes the steps of all its ratings on a copy of all items, as they
were at the last barrier.  At the next barrier the changes of all shards are added up.  There is one barrier per epoch,
and another one if errors are measured.  An item takes as many steps from one starting point as there are shards, so the
steps must be smaller if there are more shards; and each worker holds all items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from schmp_estimators.core.program import Harvest
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.stages import At, Stage, each
from schmp_estimators.core.values import own
from schmp_estimators.mf.kernels.sgd import FactorBlock
from schmp_estimators.mf.kernels.steps import NORM
from schmp_estimators.mf.programs.factors import Side
from schmp_estimators.mf.programs.sgd import SgdFactorization, SgdModel, SgdReport, SgdState, penalty_of


class BspFactorization(SgdFactorization):
    """Matrix factorisation by stochastic gradient descent on copies of the items that are merged once per epoch.

    Parameters, steps and storage order are those of `SgdFactorization`; shards have a single item block.  With one
    shard the results of both are bit-for-bit the same.
    """

    name: ClassVar[str] = "mf-bsp"

    def n_blocks(self, n_shards: int) -> int:
        """Return 0: the items are part of the model, and the block that `init` returns is not used."""
        return 0

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return one stage, and another one if errors are wanted; each ends with a barrier."""
        stages = [each(self.update_copy, reports=True, merge=self.merge)]
        if self.validates or self.measures(sweep):
            stages.append(each(self.measure_copy))
        return stages

    def report(self, at: At, state: SgdState) -> SgdReport:
        """Return the errors of the shard; at the start, the first shard also reports the first items."""
        is_first = at.model is None and at.number == 0
        found: SgdReport = super().report(at, state)
        return found._replace(items=super().init(at)[1][0]) if is_first else found

    def update_copy(self, at: At, state: SgdState) -> tuple[SgdState, SgdReport]:
        """Take the steps of the shard's ratings on a copy of the items."""
        items = own(at.model.items)
        self.visit(at, state, 0, items)
        moved = items if at.n_shards == 1 else _change(at.model.items, items)  # a single copy has the bits of rotation
        return state, self.report(at, state)._replace(items=moved)

    def measure_copy(self, at: At, state: SgdState) -> SgdState:
        """Measure the errors on the shard's ratings."""
        self.note_errors(at, state, 0, at.model.items)
        return state

    def merge(self, report: SgdReport, other: SgdReport) -> SgdReport:
        """Add up changes of the items; errors of shards stay separate, because their sum has an order of its own."""
        errors = np.vstack([report.errors, other.errors])
        return SgdReport(errors, report.sizes + other.sizes, _add_up([report.items, other.items]))  # no penalty yet

    def aggregate(self, model: Any, reports: Sequence[Any]) -> SgdModel:
        """Add up errors, the changes that the shards made to the items, and penalties."""
        errors, sizes = (np.vstack(parts).sum(axis=0) for parts in list(zip(*reports, strict=True))[:2])
        items = reports[0].items if model is None else model.items
        if model is not None and reports[0].items is not None:
            items = _merge(model.items, [one.items for one in reports])
        found = [one.penalty[0] for one in reports if one.penalty is not None]
        return SgdModel(errors, sizes, sum([*found, penalty_of(items)]) if found else None, items)

    def sides(self, harvest: Harvest) -> tuple[Sequence[Side], Sequence[Side]]:
        """Return users and items of a run, group by group."""
        return harvest.shards, [self.harvest_block(harvest.model.items)]


def _change(before: FactorBlock, after: FactorBlock) -> tuple[Any, ...]:
    """Return the changes that a shard has made to its copy of the items."""
    with np.errstate(over="ignore", invalid="ignore"):  # a fit that diverges raises an error of its own
        return tuple(new - old for new, old in zip(after[:2], before[:2], strict=True))


def _add_up(changes: Sequence[tuple[Any, ...]]) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        return tree_sum(changes)


def _merge(before: FactorBlock, after: Sequence[Any]) -> FactorBlock:
    """Return `before` with the changes of all copies, or a single copy as it is."""
    if len(after) == 1:
        lone: FactorBlock = after[0]
        return lone
    with np.errstate(over="ignore", invalid="ignore"):
        factors, numbers = (old + change for old, change in zip(before[:2], _add_up(after), strict=True))
        numbers[:, NORM] = (factors**2).sum(axis=1)
        return FactorBlock(factors, numbers, before.counts)
