"""Moving along the candidates where there are several partitions: each has their columns at hand already."""

from typing import NamedTuple

import numpy as np

from schmp_estimators.linear.programs.jobs import Advance, RowPartition, Slopes
from schmp_estimators.linear.programs.matrix import Floats, Indices

_NO_COLUMNS, _NO_CHANGE = np.empty(0, np.int64), np.empty(0)
#: Part of the candidates that must move, so that a product with all of them takes less than to take those out of X.
_MANY = 0.2


class AdvanceCandidates(NamedTuple):
    """Move the residual along a change of the candidates, then take the gradient; see `Advance`."""

    #: one number for each candidate, in the order in which they joined
    change: Floats
    scope: Indices | None

    @property
    def worthwhile(self) -> bool:
        """Whether many move."""
        return np.count_nonzero(self.change) > _MANY * len(self.change)

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
