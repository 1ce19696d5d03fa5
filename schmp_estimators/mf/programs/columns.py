"""The columns of an item model, divided among shards: each portion of them is a sweep.

Every column is a problem of its own, so it does not matter which shard solves it, nor when.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from schmp_estimators.core.program import Harvest, Program
from schmp_estimators.core.stages import At, Stage, each
from schmp_estimators.core.typing import Floats, Integers, Integers32, Named, Numbered
from schmp_estimators.core.values import freeze, offsets_of
from schmp_estimators.mf.kernels.columns import Clicks, Columns, solve_columns


class ColumnShard(NamedTuple):
    """The columns that a shard solves."""

    clicks: Clicks
    #: Columns to begin with, of all items; none in a first fit.
    earlier: Columns
    #: Numbers of the items, those with the most work first.
    items: Integers


class Solved(NamedTuple):
    """What is known of the columns that are solved."""

    n_columns: int
    n_coefficients: int
    #: What gaps leave of their objectives at zero, as a share of the objectives of all columns.
    certified: float


NOTHING_SOLVED = Solved(0, 0, 0.0)
#: Columns that are solved, portion by portion.
_State = tuple[Columns, ...]


@dataclass(frozen=True)
class ItemColumns(Program[_State, None, Solved, Solved]):
    """Sparse linear models of items.

    Parameters
    ----------
    l1, l2, most, tol, max_passes
        As in `solve_columns`.
    unit : float
        What values were divided by.
    n_portions : int
        Number of sweeps.
    """

    l1: float
    l2: float
    most: int
    tol: float
    max_passes: int
    unit: float
    n_portions: int

    name: ClassVar[str] = "slim"

    def n_blocks(self, n_shards: int) -> int:
        """Return 0: the model has no blocks."""
        return 0

    def schedule(self, sweep: int, n_shards: int) -> Stage:
        """Return the stage in which each shard solves its next portion of columns."""
        return each(self.solve, reports=True)

    def init(self, at: At) -> tuple[_State, Numbered]:
        """Return that no column is solved."""
        return (), {}

    def solve(self, at: At, state: _State) -> tuple[_State, Solved]:
        """Solve a portion of the columns."""
        items = _portion(at, self.n_portions)
        clicks, earlier, _ = at.shard
        found = solve_columns(
            *freeze((items, clicks, chosen(earlier, items))),
            self.l1 / self.unit**2,
            self.l2 / self.unit**2,
            self.most,
            self.tol,
            self.max_passes,
        )
        certified = (clicks.squares[items] - 2 * found.gaps).sum() / clicks.squares.sum()
        return (*state, found), Solved(items.size, found.items.size, float(certified))

    def report(self, at: At, state: _State) -> Solved:
        """Return that nothing is new."""
        return NOTHING_SOLVED

    def aggregate(self, model: Solved | None, reports: Sequence[Solved]) -> Solved:
        """Return what is known of all columns so far."""
        return Solved(*map(sum, zip(model or NOTHING_SOLVED, *reports, strict=True)))

    def record(self, sweep: int, model: Solved) -> Named:
        """Return numbers of columns and coefficients, and the gap of all, unsolved ones at zero."""
        return {
            "samples": model.n_columns,
            "coefficients": model.n_coefficients,
            "dual_gap": 1.0 - model.certified,
        }

    def harvest(self, at: At, state: _State) -> tuple[Integers, Columns]:
        """Return the items whose columns are solved, and these."""
        done = [_portion(at._replace(sweep=sweep), self.n_portions) for sweep in range(len(state))]
        return np.concatenate([np.empty(0, np.int64), *done]), joined(state)


def _portion(at: At, n_portions: int) -> Integers:
    items: Integers = np.ascontiguousarray(at.shard.items[at.sweep :: n_portions])
    return items


#: Columns of no item.
NO_COLUMNS = Columns(
    np.zeros(1, np.int64),
    np.empty(0, np.int32),
    np.empty(0, np.float32),
    np.empty(0),
    np.empty(0, np.int32),
)


def joined(parts: Sequence[Columns]) -> Columns:
    """Return columns one after the other."""
    _, *others = map(np.concatenate, zip(NO_COLUMNS, *parts, strict=True))
    lengths = [np.diff(one.offsets) for one in (NO_COLUMNS, *parts)]
    return Columns(offsets_of(np.concatenate(lengths)), *others)


def chosen(columns: Columns, items: Integers) -> Columns:
    """Return the coefficients of some columns; those beyond the last one have none."""
    known = items < columns.offsets.size - 1
    lengths = np.zeros(items.size, np.int64)
    begins = columns.offsets[items[known]]
    lengths[known] = columns.offsets[items[known] + 1] - begins
    offsets = offsets_of(lengths)
    starts = np.zeros(items.size, np.int64)
    starts[known] = begins
    at = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return NO_COLUMNS._replace(offsets=offsets, items=columns.items[at], values=columns.values[at])


def columns_of(coefficients: Any) -> Columns:
    """Return the columns of a CSR array of coefficients."""
    columns = coefficients.tocsc()
    return NO_COLUMNS._replace(
        offsets=columns.indptr.astype(np.int64),
        items=columns.indices.astype(np.int32),
        values=columns.data,
    )


def assembled(harvest: Harvest, at_zero: Floats, unit: float) -> tuple[Any, Floats, Integers32]:
    """Return coefficients, gaps and numbers of passes of all columns; unsolved ones are zero.

    `at_zero` are the objectives of such columns; values were divided by `unit`.
    """
    n_items = at_zero.size
    items = np.concatenate([of_shard for of_shard, _ in harvest.shards])
    columns = joined([found for _, found in harvest.shards])
    where = np.full(n_items, items.size)
    where[items] = np.arange(items.size)
    gaps = at_zero.copy()
    n_iter = np.zeros(n_items, np.int32)
    gaps[items], n_iter[items] = unit**2 * columns.gaps, columns.n_passes
    ends = np.append(
        columns.offsets, columns.offsets[-1]
    )  # the last column stands for unsolved ones
    found = sparse.csc_array((columns.values, columns.items, ends), (n_items, items.size + 1))
    return found[:, where].tocsr(), gaps, n_iter
