"""Columns that have been in a model of constant curvature, with their products."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from schmp_estimators.core.engine.dynamic import Steps, Sum
from schmp_estimators.linear.kernels.smooth import FLAT
from schmp_estimators.linear.penalties.base import Floats, Indices
from schmp_estimators.linear.programs.design import NO_COLUMNS
from schmp_estimators.linear.programs.kept_jobs import Join, Products


class KeptColumns:
    """The columns, in the order in which they joined, and their products with F eliminated."""

    def __init__(self) -> None:
        self.columns: Indices = NO_COLUMNS
        #: columns that joined together, and their means
        self.groups = list[tuple[Indices, Floats]]()
        #: (capacity, capacity), of which the leading part is in use
        self._gram: Floats = np.empty((0, 0))
        #: (f, k) products with F
        self._across: Floats = np.empty((0, 0))
        #: (k, f) how much F falls when a coefficient rises
        self.away: Floats = np.empty((0, 0))

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def gram(self) -> Floats:
        """The products of the columns, (k, k)."""
        return self._gram[: len(self), : len(self)]

    def places(self, columns: Indices) -> Indices:
        """Return where some of the columns are."""
        order = np.argsort(self.columns, kind="stable")
        found: Indices = order[np.searchsorted(self.columns, columns, sorter=order)]
        return found

    def join(self, job: Join, inner: Floats) -> Steps:
        """Add columns, and return their coefficients after a trial; `inner` has products of F."""
        coef, *products = yield Sum(job)
        joined = np.flatnonzero(coef) if job.passes else np.arange(len(coef))
        means = job.means[joined] if len(job.means) else job.means
        self._extend((job.columns[joined], means), products, inner)
        return coef

    def restore(self, groups: Sequence[tuple[Indices, Floats]], inner: Floats) -> Steps:
        """Compute the products again, in the same groups, so that they have the same bits."""
        if groups:
            for group, products in zip(groups, (yield Sum(Products())), strict=True):
                self._extend(group, products, inner)

    def _extend(self, group: tuple[Indices, Floats], products: Any, inner: Floats) -> None:
        """Add columns with their products (k_old + k_new, k_new), and those with F (f, k_new)."""
        (new, means), (gram, across) = group, products
        if not len(new):
            return
        old, total = len(self), len(self) + len(new)
        if total > len(self._gram):
            grown = np.zeros((max(2 * total, 512),) * 2)
            grown[:old, :old] = self.gram
            self._gram = grown
        if not old:
            self._across, self.away = np.empty((len(inner), 0)), np.empty((0, len(inner)))
        self._across = np.concatenate([self._across, across], axis=1)
        inverse = np.linalg.pinv(inner, 1e-13, hermitian=True)
        least = FLAT * np.diagonal(gram[old:])
        gram = gram - self._across.T @ (inverse @ across)
        np.fill_diagonal(gram[old:], np.maximum(np.diagonal(gram[old:]), least))
        away = across.T @ inverse
        if means.any():
            away[:, 0] += means
        self._gram[:total, old:total] = gram
        self._gram[old:total, :old] = gram[:old].T
        self.columns, self.away = np.append(self.columns, new), np.concatenate([self.away, away])
        self.groups.append(group)
