"""Columns that have been in a model of constant curvature, with their products.

Partitions keep dense columns; sparse ones remain in X.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.engine.dynamic import Steps, Sum
from schmp_estimators.core.jit import compiled_for
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.dense import column_passes
from schmp_estimators.linear.kernels.smooth import FLAT
from schmp_estimators.linear.losses.base import weigh
from schmp_estimators.linear.programs.design import NO_COLUMNS
from schmp_estimators.linear.programs.jobs import RowPartition, scaled_columns
from schmp_estimators.linear.programs.joint_jobs import decision_of
from schmp_estimators.linear.programs.matrix import Floats, Indices


class Join(NamedTuple):
    """Keep further columns, perhaps only those that descent makes nonzero.

    Such a trial needs all rows in one partition.
    """

    #: (c,) columns that are not kept, and their means; without means they remain in X
    columns: Indices
    means: Floats
    #: (1, f) coefficients of F
    levels: Floats
    #: of these columns
    penalty: Any
    #: number of passes over them; zero keeps all
    passes: int = 0
    #: whether earlier ones are forgotten
    anew: bool = False

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[Floats, ...]]:
        """Return their coefficients after the trial, and their slopes before it.

        Also returns the products of all columns, and of F, with new ones.
        """
        if self.anew:
            rows = rows._replace(gathered=(), members=())
        scaled, coef = scaled_columns(rows, self.columns, self.means), np.zeros(len(self.columns))
        residual = rows.target - decision_of(rows, self.levels)[0]
        residual = weigh(np.sqrt(rows.weights), residual)
        slopes, new = scaled @ residual, (self.columns, self.means)
        if self.passes:
            norms, penalty = np.einsum("ij,ij->i", scaled, scaled), freeze(self.penalty)
            descend = compiled_for(self.penalty, column_passes)
            descend(freeze(scaled), freeze(norms), coef, residual, penalty, self.passes)
            joined = np.flatnonzero(coef)
            scaled, new = scaled[joined], (self.columns[joined], self.means[joined])
        if not len(new[0]):
            return rows, (coef, slopes, np.empty((0, 0)), np.empty((0, 0)))
        members = (*rows.members, new)
        rows = rows._replace(gathered=(*rows.gathered, scaled), members=members)
        return rows, (coef, slopes, *_products(rows, len(members)))


class Products(NamedTuple):
    """Compute the products again, in the same pieces as before, so that they have the same bits."""

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[Any, ...]]:
        """Return for each group of columns that joined together what `Join` has returned."""
        counts = range(1, len(rows.gathered) + 1)
        return rows, tuple(_products(rows, count) for count in counts)


def _products(rows: RowPartition, count: int) -> tuple[Floats, Floats]:
    """Return the products of the last of some groups with all columns of these, and with F."""
    *_, new = gathered = rows.gathered[:count]
    *earlier, (last, means) = rows.members[:count]
    if len(means):
        gram = np.concatenate([block @ new.T for block in gathered])
        return gram, weigh(np.sqrt(rows.weights), rows.extra) @ new.T
    columns = np.concatenate([*(one for one, _ in earlier), last])
    weights = rows.weights if len(rows.weights) else np.ones(rows.matrix.n_rows)
    gram = rows.matrix.products(columns, len(columns) - len(last), weights)
    across = [rows.matrix.gradient(weights * one, last) for one in rows.extra]
    return gram, np.array(across).reshape(-1, len(last))


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
        """Add columns; returns coefficients and slopes of those that have joined.

        `inner` has products of F.
        """
        coef, slopes, *products = yield Sum(job)
        joined = np.flatnonzero(coef) if job.passes else np.arange(len(coef))
        means = job.means[joined] if len(job.means) else job.means
        self._extend((job.columns[joined], means), products, inner)
        return coef[joined], slopes[joined] if len(slopes) else slopes

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
