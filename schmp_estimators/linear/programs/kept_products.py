"""Products of columns that are the same in all steps, if curvatures are constant."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from schmp_estimators.core.engine.dynamic import Steps, Sum
from schmp_estimators.linear.penalties.base import Floats, Indices
from schmp_estimators.linear.programs.joint_jobs import Products
from schmp_estimators.linear.programs.screening import Candidates


class KeptProducts:
    """The products of columns that have been in a model, with each other and with F.

    Parameters
    ----------
    loss : Loss
    most : int
        Number of columns from which all others are forgotten.
    """

    def __init__(self, loss: Any, most: int) -> None:
        self._loss, self._most = loss, most
        self._candidates, self._across = Candidates(), np.empty((0, 0))

    @property
    def groups(self) -> Sequence[Indices]:
        """Columns that joined together."""
        return self._candidates.groups

    def extend(self, columns: Indices, levels: Floats) -> Steps:
        """Compute the products of those columns that are new."""
        known = self._candidates.columns
        new = np.setdiff1d(columns, known)
        if len(known) + len(new) > self._most:
            self._candidates, known, new = Candidates(), known[:0], np.sort(columns)
        if len(new):
            job = Products(self._loss, np.append(known, new), len(known), levels, 0.0)
            gram, across, *_ = yield Sum(job)
            self._candidates.extend(new, gram)
            self._across = np.concatenate([self._across, across], axis=1) if len(known) else across

    def restore(self, groups: Sequence[Indices], levels: Floats) -> Steps:
        """Compute the products again, in the same groups, so that they have the same bits."""
        self._candidates = Candidates()
        for new in groups:
            yield from self.extend(new, levels)

    def of(self, columns: Indices, inner: Floats) -> Floats:
        """Return the products of some columns and F; `inner` are those of F."""
        known = self._candidates.columns
        order = np.argsort(known, kind="stable")
        at = order[np.searchsorted(known, columns, sorter=order)]
        across = self._across[:, at]
        return np.block([[self._candidates.gram[np.ix_(at, at)], across.T], [across, inner]])
