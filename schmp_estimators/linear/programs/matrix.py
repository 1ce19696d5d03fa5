"""How the rows of X in a partition are stored: the contract, and rows with shifted columns.

`stored` has the forms that arrays get.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from schmp_estimators.core.typing import Array, Floats
from schmp_estimators.core.typing import Integers as Indices
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.sparse import Columns
from schmp_estimators.linear.losses.base import weigh

#: Number of rows that are multiplied at a time, so that their copy fits in a cache.
PIECE = 1024
#: Number of columns that are copied at a time.
TOGETHER = 64
#: What a storage from outside has to define.
REQUIRED = ("shape", "dtype", "rows", "gradient", "combine", "moments", "take_dense")


class Storage:
    """Base class for an X in a form of your own, with the operations that linear models need.

    A subclass has to define the attributes below, and the methods `rows`, `gradient`, `combine`,
    `moments` and `take_dense`.  Most other methods are based on these, and may be replaced by
    faster ones.  No method may change X.  A storage must be picklable, because it may be sent to
    workers, where its arrays are read-only.

    Attributes
    ----------
    shape : tuple of (int, int)
        Number of rows and of columns.
    dtype : dtype
        Dtype of the values.  A column whose values differ by less than the rounding of this dtype
        counts as constant.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, int]: ...  # noqa: D102
        @property
        def dtype(self) -> Any: ...  # noqa: D102

    else:  # a named tuple has items of its own

        def __getitem__(self, chosen):
            return self.rows(np.arange(self.n_rows)[chosen])

    @abstractmethod
    def rows(self, chosen: Indices) -> "Storage":
        """Return some rows.

        Parameters
        ----------
        chosen : ndarray of int
            Indices of the rows, in any order.  They may be repeated.

        Returns
        -------
        Storage
        """

    @abstractmethod
    def gradient(self, vector: Floats, scope: Indices | None) -> Floats:
        """Return x_jᵀ·vector for some columns.

        Parameters
        ----------
        vector : ndarray of shape (n_rows,)
        scope : ndarray of int or None
            Indices j of the columns, in any order.  If None, all columns.

        Returns
        -------
        ndarray of float64
            A new array.
        """

    @abstractmethod
    def combine(self, columns: Indices, factors: Floats) -> Floats:
        """Return the linear combination Σ_j factors_j x_j of some columns.

        Parameters
        ----------
        columns : ndarray of int
            Indices j of the columns.  There may be none.
        factors : ndarray of shape (len(columns),)

        Returns
        -------
        ndarray of float64 of shape (n_rows,)
            A new array.
        """

    @abstractmethod
    def moments(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """Return Σ_i w_i x_ij, Σ_i w_i x_ij² and x_jᵀ·vector for all columns j.

        Parameters
        ----------
        weights : ndarray of shape (n_rows,) or (0,)
            The weights w.  The array is empty if all are one.
        vector : ndarray of shape (n_rows,)

        Returns
        -------
        tuple of three ndarrays of float64 of shape (n_columns,)
            New arrays.  If a column has NaN or infinity, its second sum must not be finite.
        """

    @abstractmethod
    def take_dense(self, columns: Indices, rows: Indices | None = None) -> Floats:
        """Return some columns.

        Parameters
        ----------
        columns : ndarray of int
            Indices of the columns.
        rows : ndarray of int, optional
            Indices of the rows.  By default, all rows.

        Returns
        -------
        ndarray of float64 of shape (len(columns), n_rows)
            A new array.  Each of its rows is a column of X.
        """

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.shape[1]

    @property
    def stored(self) -> int:
        """Number of stored values."""
        return self.n_rows * self.n_columns

    @property
    def n_floats(self) -> int:
        """Size of X in units of 8 bytes; by default X has one partition for each 2²⁸ units."""
        return self.stored

    @property
    def names(self) -> Any:
        """Names of the columns, or an empty tuple if there are none."""
        return ()

    @property
    def may_miss(self) -> bool:
        """Whether values may be missing; if True, define `missing_weights` and `filled`, too."""
        return False

    def missing_weights(self, weights: Floats) -> Floats:
        """Return for each column the sum of the weights of rows whose value is missing.

        `weights` has shape (n_rows,), and no weight is negative.
        """
        raise NotImplementedError

    def known_sums(self, weights: Floats) -> Floats:
        """Return for each column Σ w x over known values, and Σ w over missing values."""
        known = self.filled(np.zeros(self.n_columns))
        return np.stack([known.gradient(weights, None), self.missing_weights(weights)])

    def known_means(self, weights: Floats) -> Floats:
        """Return the weighted mean of known values of each column, or NaN if there are none."""
        return means_of(weights.sum(), self.n_rows, *self.known_sums(weights))

    def filled(self, values: Floats) -> "Storage":
        """Return X with ``values[j]`` in place of missing values of column j."""
        raise NotImplementedError

    @property
    def is_sparse(self) -> bool:
        """Whether few values are stored, so that solvers prefer compressed columns."""
        return False

    def __array__(self, *given: Any, **options: Any) -> Any:
        raise TypeError(
            f"{type(self).__name__} is a penalised.Storage: only linear models accept it, as an X "
            "in memory; elsewhere give its to_array()"
        )

    def __setstate__(self, state: Any) -> None:
        for part in state if isinstance(state, tuple) else (state,):
            for name, value in (part or {}).items():
                object.__setattr__(self, name, freeze(value))

    def pieces(self, columns: Indices) -> Iterator[tuple[slice, Array]]:
        """Yield a slice of rows at a time, and the values of `columns` in these rows."""
        for here in _slices(self.n_rows):
            yield here, self.take_dense(columns, np.arange(here.start, here.stop)).T

    def products(self, columns: Indices, known: int, weights: Floats) -> Floats:
        """Return Σ_i w_i x_ij x_ik for all j in `columns`, and all k in ``columns[known:]``."""
        out, roots = np.zeros((len(columns), len(columns) - known)), np.sqrt(weights)
        for here, values in self.pieces(columns):
            taken = values * roots[here, None]
            out += taken.T @ taken[:, known:]  # half the work if both are the same array
        return out

    def compressed(self, columns: Indices) -> Columns:
        """Return some columns in compressed sparse form."""
        found = sp.csr_array(self.take_dense(columns))
        rows = found.indices.astype(np.int32, copy=False)
        return freeze(Columns(found.data, rows, found.indptr.astype(np.int64)))

    def complete(self, columns: Indices) -> Array:
        """Return for each of `columns` whether it has no implicit zeros.

        Only such columns may be shifted, see `shifted`.
        """
        return np.ones(len(columns), bool)

    def shifted(self, shifts: Floats) -> "Storage":
        """Return X with ``shifts[j]`` subtracted from each column j."""
        columns = np.flatnonzero(shifts)
        values = self.take_dense(columns) - shifts[columns, None]
        return Shifted(self, columns, values, shifts)

    def to_array(self) -> Array:
        """Return X as a dense array.

        Do not write into this array, because it may share memory with X.
        """
        return self.take_dense(np.arange(self.n_columns)).T

    def identity(self) -> Iterable[Array]:
        """Return arrays that differ if X differs.

        A checkpoint recognises X by a digest of these arrays.
        """
        return (values for _, values in self.pieces(np.arange(self.n_columns)))


def means_of(total: float, n_rows: int, sums: Floats, missing: Floats) -> Floats:
    """Return the means of known values, NaN if there are none; `missing` are sums of weights."""
    known = total - missing
    known[known <= np.finfo(float).eps * n_rows * total] = np.nan
    return sums / known


def _slices(n_rows: int) -> Iterator[slice]:
    return (slice(start, min(start + PIECE, n_rows)) for start in range(0, n_rows, PIECE))


def pieces_of(rows: Array) -> Iterator[tuple[slice, Array]]:
    """Yield some rows of an array at a time, and their numbers."""
    return ((here, rows[here]) for here in _slices(len(rows)))


class _Shifted(NamedTuple):
    whole: Storage
    #: (k,) columns that are shifted, ascending, and (k, n) their values
    moved: Indices
    values: Floats
    #: (p,) numbers that are subtracted
    shifts: Floats


class Shifted(_Shifted, Storage):
    """Rows of X with a number subtracted from some columns, whose values are dense."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, int]:
        """See `Storage`."""
        return self.whole.shape

    @property
    def dtype(self) -> Any:
        """See `Storage`."""
        return self.whole.dtype

    @property
    def is_sparse(self) -> bool:
        """See `Storage`."""
        return self.whole.is_sparse

    def rows(self, chosen: Indices) -> Storage:
        """See `Storage`."""
        return self._replace(whole=self.whole.rows(chosen), values=self.values[:, chosen])

    def gradient(self, vector: Floats, scope: Indices | None) -> Floats:
        """See `Storage`."""
        out = self.whole.gradient(vector, scope)
        here, places = self._among(np.arange(self.n_columns) if scope is None else scope)
        out[here] = self.values[places] @ vector
        return out

    def combine(self, columns: Indices, factors: Floats) -> Floats:
        """See `Storage`."""
        return factors @ self.take_dense(columns)

    def moments(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """See `Storage`."""
        found = self.whole.moments(weights, vector)
        weighted = weigh(weights, self.values)
        own = (
            weighted.sum(axis=1),
            np.einsum("ij,ij->i", weighted, self.values),
            self.values @ vector,
        )
        for all_columns, part in zip(found, own, strict=True):
            all_columns[self.moved] = part
        return found

    def take_dense(self, columns: Indices, rows: Indices | None = None) -> Floats:
        """See `Storage`."""
        taken = self.whole.take_dense(columns, rows)
        (here, places) = self._among(columns)
        taken[here] = self.values[places if rows is None else np.ix_(places, rows)]
        return taken

    def pieces(self, columns: Indices) -> Iterator[tuple[slice, Array]]:
        """See `Storage`."""
        return pieces_of(self.take_dense(columns).T)

    def shifted(self, shifts: Floats) -> Storage:
        """See `Storage`."""
        return self.whole.shifted(self.shifts + shifts)

    def _among(self, columns: Indices) -> tuple[Indices, Indices]:
        """Return which of some columns are shifted, and the positions of their values."""
        here = np.flatnonzero(np.isin(columns, self.moved))
        return here, np.searchsorted(self.moved, columns[here])
