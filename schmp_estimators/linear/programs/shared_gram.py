"""Moving along the candidates where there are several partitions: each has their columns at hand already."""

from typing import NamedTuple

import numpy as np

from schmp_estimators.linear.programs.jobs import Advance, RowPartition, Slopes
from schmp_estimators.linear.programs.matrix import Floats, Indices

_NO_COLUMNS, _NO_CHANGE = np.empty(0, np.int64), np.empty(0)
#: Part of the candidates that must move, so that a product with all of them takes less than to take those out of X,
#: and entries that these have, below which it does not matter.
_MANY, _LARGE = 0.2, 1 << 22


def many_move(change: Floats, n_rows: int) -> bool:
    """Return whether `AdvanceCandidates` is worth while, for all rows of X."""
    moved = np.count_nonzero(change)
    return bool(moved > _MANY * len(change) and moved * n_rows >= _LARGE)


class AdvanceCandidates(NamedTuple):
    """Move the residual along a change of the candidates, then take the gradient; see `Advance`."""

    #: one number for each candidate, in the order in which they joined
    change: Floats
    scope: Indices | None

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Slopes]:
        """Return Σ s r², Σ s r and the gradient over the scope."""
        image, begun = np.zeros(len(rows.state)), 0
        for block in rows.gathered:
            image += self.change[begun : begun + len(block)] @ block
            begun += len(block)
        if len(rows.weights):
            image /= np.sqrt(rows.weights)
        moved = rows._replace(state=rows.state - image)
        return Advance(_NO_COLUMNS, _NO_CHANGE, 0.0, self.scope)(moved)
