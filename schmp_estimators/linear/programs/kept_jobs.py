"""The jobs of partitions that keep dense columns, because their products remain as they are."""

from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.jit import compiled_for
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.dense import column_passes
from schmp_estimators.linear.losses.base import weigh
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
