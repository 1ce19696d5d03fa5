"""Columns without a penalty: at every certificate the fit over them is exact, as it is over the intercept.

A dual point bounds the objective only if it is orthogonal to these columns.  With squared loss the residual is
projected off their span, in closed form; with another loss Newton steps lead there.  Both go along an orthonormal basis
of the span: covariates may be powers of a year, which as columns are all but the same.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.engine.dynamic import Sum
from schmp_estimators.linear.programs import jobs
from schmp_estimators.linear.programs.centred import REAL
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.model import NO_COLUMNS, Model

#: Times that products are taken to find a basis: each shows directions down to the root of `_SHOWN` beside those that
#: are known already, and the last makes what the second has found orthonormal.
_ROUNDS, _SHOWN = 3, 1e-13


class Span(NamedTuple):
    """An orthonormal basis of some columns less their means."""

    #: (k,) columns, and their means
    columns: Indices
    means: Floats
    #: (k, r) coefficients of the columns in each direction
    basis: Floats

    def take(self, rows: jobs.RowPartition) -> Floats:
        """Return the directions on the rows of a partition, shape (r, n_p)."""
        taken: Floats = self.basis.T @ (rows.matrix.take_dense(self.columns) - self.means[:, None])
        return taken

    def coordinates(self, coef: Floats) -> Floats:
        """Return coefficients of the columns (k,) as those of the directions (r,)."""
        units = 1.0 / np.abs(self.basis).max(axis=1)
        return np.linalg.lstsq(self.basis * units[:, None], coef * units)[0]


class Squares(NamedTuple):
    """Multiply directions with each other."""

    span: Span

    def __call__(self, rows: jobs.RowPartition) -> tuple[jobs.RowPartition, Floats]:
        """Return the weighted products, shape (r, r)."""
        taken = self.span.take(rows)
        return rows, rows.weigh(taken) @ taken.T


class Cross(NamedTuple):
    """Multiply directions with all of X."""

    span: Span

    def __call__(self, rows: jobs.RowPartition) -> tuple[jobs.RowPartition, tuple[Floats, Floats]]:
        """Return Σ s w_k x_j of directions w, shape (r, p), and Σ s w_k."""
        weighed = rows.weigh(self.span.take(rows))
        products = np.array([rows.matrix.gradient(direction, None) for direction in weighed])
        return rows, (products, weighed.sum(axis=1))


def find_span(model: Model) -> Generator[Any, Any, Span | None]:
    """Ask for a basis of the columns that vary and are not penalised, if there are any.

    A matrix of products shows no direction shorter than the root of its rounding.  So those that are too short are made
    longer, and products are taken again: T. Fukaya et al., "Shifted Cholesky QR for computing the QR factorization of
    ill-conditioned matrices", SIAM J. Sci. Comput. 2020.
    """
    columns = unpenalised(model)
    if not len(columns):
        return None
    norms, means = model.norms[columns], model.means[columns]
    away = means + model.shifts[columns] if len(model.shifts) else means
    rounding = model.eps * np.sqrt(norms + model.total_weight * away**2)
    span, known, added = Span(columns, means, np.diag(1.0 / np.sqrt(norms))), 0, 0
    for _ in range(_ROUNDS):
        gram = yield Sum(Squares(span))
        known += added
        basis, added = _improved(span.basis, gram, known, rounding)
        span = span._replace(basis=basis)
    return span._replace(basis=np.ascontiguousarray(span.basis[:, :known]))


def _improved(basis: Floats, gram: Floats, known: int, rounding: Floats) -> tuple[Floats, int]:
    """Return a better basis, and how many of the directions after those `known`, the first, are now known, too.

    `gram` (r, r) holds the products of the directions; `rounding` (k,) is the length of the rounding of each column.
    """
    inverse = np.linalg.inv(np.linalg.cholesky(gram[:known, :known]))
    across = inverse @ gram[:known, known:]
    first = basis[:, :known] @ inverse.T
    rest = basis[:, known:] - first @ across
    gram = gram[known:, known:] - across.T @ across
    lengths = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
    real = lengths > REAL * np.linalg.norm(rest * rounding[:, None], axis=0)
    rest = rest[:, real] / lengths[real]
    values, vectors = np.linalg.eigh(gram[np.ix_(real, real)] / np.outer(lengths[real], lengths[real]))
    values, vectors = values[::-1], vectors[:, ::-1]
    rest = rest @ vectors / np.sqrt(np.maximum(values, _SHOWN))
    return np.hstack([first, rest]), int(np.count_nonzero(values > _SHOWN))


@dataclass
class Unpenalised:
    """The columns without a penalty, and the products of their directions with all columns, less the means."""

    span: Span
    products: Floats

    @property
    def columns(self) -> Indices:
        """The columns without a penalty."""
        return self.span.columns

    @classmethod
    def find(cls, model: Model) -> Generator[Any, Any, "Unpenalised | None"]:
        """Ask for the columns that are not penalised, if there are any."""
        span = yield from find_span(model)
        if span is None:
            return None
        raw, balances = yield Sum(Cross(span))
        return cls(span, raw - np.outer(balances, model.means))

    def project(self, model: Model, slopes: jobs.Slopes) -> Generator[Any, Any, jobs.Slopes]:
        """Fit the residual to the columns, and return the slopes without what they explain."""
        scope = model.scope_columns()
        gradient = slopes.gradient - slopes.balance * model.means[scope]
        along = gradient[np.searchsorted(scope, self.columns)] @ self.span.basis
        change = self.span.basis @ along
        model.coef[self.columns] += change
        offset = float(self.span.means @ change)
        moved: jobs.Slopes = yield Sum(jobs.Advance(self.columns, change, offset, NO_COLUMNS))
        return jobs.Slopes(moved.energy, 0.0, gradient - along @ self.products[:, scope])


def unpenalised(model: Model) -> Indices:
    """Return the columns that vary and are not penalised."""
    strengths = model.penalty.strengths
    return np.flatnonzero((strengths == 0.0) & (model.norms > 0.0)) if np.ndim(strengths) else NO_COLUMNS
