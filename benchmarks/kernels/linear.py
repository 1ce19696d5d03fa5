"""L1 models: gradients of all columns, and coordinate descent.

Coordinate descent is on sparse columns and on a Gram matrix.
"""

from functools import cache

import numpy as np
import scipy.sparse as sp

from schmp_estimators.core.values import freeze, own
from schmp_estimators.linear.kernels.dense import column_gradient
from schmp_estimators.linear.kernels.gram import gram_passes
from schmp_estimators.linear.kernels.sparse import Columns, Quadratic, sparse_passes
from schmp_estimators.linear.penalties.elastic_net import L1

from .one_kernel import OneKernel


@cache
def problem(n_rows, n_columns, density):
    """Return X, in part a common factor, and y, which twenty of its columns make."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(n_rows, n_columns)) + rng.normal(size=(n_rows, 1))
    dense[rng.random(dense.shape) >= density] = 0.0
    return dense, dense[:, :20].sum(axis=1) + rng.normal(size=n_rows)


class ColumnGradient(OneKernel):
    """The gradient of 4,000 dense columns of 500 rows."""

    kernel = staticmethod(column_gradient)

    @staticmethod
    @cache
    def given():
        dense, target = problem(500, 4000, 1.0)
        return freeze((np.ascontiguousarray(dense.T), np.arange(4000), target))

    def fresh(self):
        return *self.given(), np.zeros(4000)


class SparsePasses(OneKernel):
    """Five passes over 2,000 columns of 2,000 rows, from zero, with an intercept.

    A fiftieth of the entries is not zero.
    """

    kernel = staticmethod(sparse_passes)

    @staticmethod
    @cache
    def given():
        dense, target = problem(2000, 2000, 0.02)
        stored, means = sp.csc_array(dense), dense.mean(axis=0)
        columns = Columns(
            stored.data, stored.indices.astype(np.int32), stored.indptr.astype(np.int64)
        )
        quadratic = Quadratic(
            ((dense - means) ** 2).sum(axis=0), means, dense.sum(axis=0), np.empty(0), np.empty(0)
        )
        residual = target - target.mean()
        return *freeze((columns, quadratic)), residual, 0.05 * np.abs(dense.T @ residual).max()

    def fresh(self):
        columns, quadratic, residual, penalty = self.given()
        return columns, quadratic, np.zeros(2000), own(residual), L1(penalty), False, 5, 0


class GramPasses(OneKernel):
    """Eleven passes with extrapolation over 1,000 candidates, from zero."""

    kernel = staticmethod(gram_passes)

    @staticmethod
    @cache
    def given():
        dense, target = problem(500, 4000, 1.0)
        candidates = dense[:, :1000] - dense[:, :1000].mean(axis=0)
        gradient = candidates.T @ target
        return freeze(candidates.T @ candidates), gradient, 0.02 * np.abs(gradient).max()

    def fresh(self):
        gram, gradient, penalty = self.given()
        return gram, own(gradient), np.zeros(1000), L1(penalty), False, 11, 5
