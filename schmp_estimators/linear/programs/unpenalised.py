"""Columns without a penalty: at every certificate the fit over them is exact, as it is over the intercept.

A dual point bounds the objective only if it is orthogonal to these columns.  With squared loss the residual is
projected off their span, in closed form; with another loss Newton steps lead there.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.engines.dynamic import Sum
from schmp_estimators.linear.programs import jobs
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.model import NO_COLUMNS, Model

#: Singular values of the correlations among such columns, below which they say the same.
_DEPENDENT = 1e-10


class Cross(NamedTuple):
    """Multiply some columns with all of X."""

    columns: Indices
    means: Floats

    def __call__(self, rows: jobs.RowPartition) -> tuple[jobs.RowPartition, tuple[Floats, Floats]]:
        """Return Σ s (x_k − x̄_k) x_j, shape (len(columns), p), and Σ s (x_k − x̄_k)."""
        taken = rows.matrix.take_dense(self.columns) - self.means[self.columns, None]
        weighed = [rows.weigh(column) for column in taken]
        products = np.array([rows.matrix.gradient(column, None) for column in weighed])
        return rows, (products, np.array([column.sum() for column in weighed]))


@dataclass
class Unpenalised:
    """The columns without a penalty, and their products with all columns, less the means."""

    columns: Indices
    products: Floats
    inverse: Floats

    @classmethod
    def find(cls, model: Model) -> Generator[Any, Any, "Unpenalised | None"]:
        """Ask for the products of the columns that are not penalised, if there are any."""
        columns = unpenalised(model)
        if not len(columns):
            return None
        raw, balances = yield Sum(Cross(columns, model.means))
        products = raw - np.outer(balances, model.means)
        return cls(columns, products, inverse(products[:, columns], model.norms[columns]))

    def project(self, model: Model, slopes: jobs.Slopes) -> Generator[Any, Any, jobs.Slopes]:
        """Fit the residual to the columns, and return the slopes without what they explain."""
        scope = model.scope_columns()
        gradient = slopes.gradient - slopes.balance * model.means[scope]
        change = self.inverse @ gradient[np.searchsorted(scope, self.columns)]
        model.coef[self.columns] += change
        offset = float(model.means[self.columns] @ change)
        moved: jobs.Slopes = yield Sum(jobs.Advance(self.columns, change, offset, NO_COLUMNS))
        return jobs.Slopes(moved.energy, 0.0, gradient - change @ self.products[:, scope])


def unpenalised(model: Model) -> Indices:
    """Return the columns that vary and are not penalised."""
    strengths = model.penalty.strengths
    return np.flatnonzero((strengths == 0.0) & (model.norms > 0.0)) if np.ndim(strengths) else NO_COLUMNS


def inverse(gram: Floats, norms: Floats) -> Floats:
    """Return the pseudo-inverse of a matrix of products, which does not depend on the units of the columns."""
    units = 1.0 / np.sqrt(norms)
    scaled = gram * np.outer(units, units)
    return np.linalg.pinv(scaled, rcond=_DEPENDENT, hermitian=True) * np.outer(units, units)
