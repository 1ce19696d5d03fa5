"""How the coefficients of a penalty are put together in blocks."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import compiled_for
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.contracts import declared
from schmp_estimators.linear.kernels import blocks as kernels
from schmp_estimators.linear.penalties.base import Floats, Indices, sizes, take


class Chosen(NamedTuple):
    """Some blocks of coefficients; that of output k and the column at position t is k·q + t."""

    #: (m,) numbers of coefficients, block after block, and (c + 1,) where each begins
    places: Indices
    starts: Indices
    #: (c,) numbers of the blocks in the penalty
    numbers: Indices


class Layout(NamedTuple):
    """Penalised columns in the order of blocks: cells of a group of columns, or of one column.

    In groups all outputs of a cell are one block; of single columns each output is one.
    """

    in_blocks: bool
    n_outputs: int
    #: (q,) penalised columns, cell after cell; (B + 1,) where each begins; (B,) numbers of the
    #: cells in the penalty
    order: Indices
    starts: Indices
    numbers: Indices
    #: columns without a penalty
    free: Indices

    @classmethod
    def of(cls, penalty: Any, n_columns: int, n_outputs: int) -> "Layout":
        """Return the layout of a penalty."""
        if not declared(penalty, "in_blocks"):
            strengths = np.broadcast_to(penalty.strengths, n_columns)
            order = np.flatnonzero(strengths)
            places = np.arange(len(order) + 1), np.arange(len(order))
            return cls(False, n_outputs, order, *places, np.flatnonzero(strengths == 0.0))
        strengths = np.broadcast_to(penalty.strengths, len(penalty.starts) - 1)
        widths, of_column = np.diff(penalty.starts), np.repeat(strengths, np.diff(penalty.starts))
        numbers = np.flatnonzero(strengths)
        starts = np.append(0, np.cumsum(widths[numbers]))
        free = np.sort(penalty.columns[of_column == 0.0])
        return cls(True, n_outputs, penalty.columns[of_column > 0.0], starts, numbers, free)

    @property
    def is_plain(self) -> bool:
        """Whether all columns are in their own order, and each is a cell."""
        return not self.in_blocks and not len(self.free)

    @property
    def widths(self) -> Indices:
        """Number of columns of each cell."""
        found: Indices = np.diff(self.starts)
        return found

    def own(self, penalty: Any) -> Any:
        """Return a penalty for kernels, of penalised columns alone."""
        if self.in_blocks or not len(self.free):
            return freeze(penalty)
        return freeze(take(penalty, self.order))

    def positions(self, cells: Indices | None) -> Indices | slice:
        """Return the positions of the columns of some cells, or of all."""
        if cells is None:
            return slice(None)
        return cells if not self.in_blocks else ranges(self.starts[cells], self.widths[cells])

    def levels(self, penalty: Any, slopes: Floats, cells: Indices | None) -> Floats:
        """Return for each block in some cells the multiple of the penalty for which it may be zero.

        The shape is (cells,), or (K, cells) for single columns; `slopes` (K, positions) are those
        of these cells.
        """
        if not self.in_blocks:
            part = penalty if cells is None else take(penalty, cells)
            found: Floats = sizes(penalty, slopes) / part.strengths
            return np.maximum(found, 0.0) if penalty.positive else found
        numbers = self.numbers if cells is None else self.numbers[cells]
        widths = self.widths if cells is None else self.widths[cells]
        starts = self.n_outputs * np.append(0, np.cumsum(widths))
        each = slopes if self.n_outputs == 1 else _by_cell(slopes, widths)
        out = np.empty(len(numbers))
        levels = compiled_for(penalty, kernels.block_levels)
        levels(penalty, freeze(np.ravel(each)), freeze(starts), freeze(numbers), out)
        return out

    def support(self, coef: Floats, cells: Indices | None) -> NDArray[np.bool_]:
        """Return which blocks of some cells have coefficients (K, positions) that are not zero."""
        if not self.in_blocks:
            return coef != 0.0
        widths = self.widths if cells is None else self.widths[cells]
        starts = np.append(0, np.cumsum(widths))[:-1]
        nonzero: Any = coef.any(axis=0)
        return np.logical_or.reduceat(nonzero, starts) if len(starts) else nonzero

    def within(self, which: NDArray[np.bool_], cells: Indices | None) -> NDArray[np.bool_]:
        """Return for each position of some cells whether its cell is chosen."""
        found: NDArray[np.bool_] = np.repeat(
            which, self.widths if cells is None else self.widths[cells]
        )
        return found

    def blocks_of(self, cells: Indices) -> tuple[Indices, Indices]:
        """Return the numbers of the blocks in some cells, and how many coefficients each has."""
        if self.in_blocks:
            return cells, self.n_outputs * self.widths[cells]
        shift = len(self.order) * np.arange(self.n_outputs)[:, None]
        blocks = np.ravel(shift + cells)
        return blocks, np.broadcast_to(np.int64(1), len(blocks))

    def by_cell(self, levels: Any) -> Any:
        """Return the largest value of each cell."""
        return levels if levels.ndim == 1 else levels.max(axis=0)

    def chosen(self, blocks: Indices) -> Chosen:
        """Return blocks by numbers: of cells, or k·q + t for output k of the column at t."""
        if not self.in_blocks:
            return Chosen(blocks, np.arange(len(blocks) + 1), blocks % max(1, len(self.order)))
        widths, shift = self.widths[blocks], len(self.order) * np.arange(self.n_outputs)
        parts = [
            (shift[:, None] + np.arange(self.starts[b], self.starts[b + 1])).ravel() for b in blocks
        ]
        places = np.concatenate([np.empty(0, np.int64), *parts])
        starts = np.append(0, np.cumsum(self.n_outputs * widths))
        return Chosen(places, starts, self.numbers[blocks])


def ranges(starts: Indices, counts: Indices) -> Indices:
    """Return the concatenated ranges that begin at `starts`."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    found: Indices = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return found


def _by_cell(slopes: Floats, widths: Indices) -> Floats:
    """Return slopes (K, q) cell after cell, all outputs of a cell together."""
    cells = np.repeat(np.arange(len(widths)), widths)
    order = np.argsort(np.tile(cells, len(slopes)), kind="stable")
    return np.ravel(slopes)[order]
