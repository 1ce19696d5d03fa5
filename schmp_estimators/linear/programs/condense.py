"""Few rows in place of many: all that the squared loss knows of a partition are its weight, its means and its products.

Where rows are many more than columns, p + 2 rows have the same: those of the triangular factor R of the centred
columns, with RᵀR = Σ s (x − x̄)(x − x̄)ᵀ, turned so that they add up to zero, and the means.  Whatever is fitted to
them, and every duality gap, is what the rows themselves have; and so are squared errors of predictions.  Many fits to
the same rows, along a path or for the folds of a cross-validation, then share one pass over X.

Blocks of rows are centred by their own means before they are multiplied, and united by what their means differ (T. F.
Chan, G. H. Golub and R. J. LeVeque, "Algorithms for computing the sample variance", The American Statistician 1983).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack, solve_triangular

from schmp_estimators.core.values import freeze
from schmp_estimators.linear.programs.input import Extent, Part, RowValues, join_parts
from schmp_estimators.linear.programs.jobs import SMALLEST_NORM, RowPartition
from schmp_estimators.linear.programs.matrix import DenseByColumns, Floats, arrays_of

#: Entries of X from which it pays, columns up to which it does for one fit, how many more for each further one, and
#: columns up to which there is room: a partition is multiplied with itself once, a fit goes through it a few times.
_MUCH, _FOR_A_FIT, _FURTHER, _MOST = 1 << 18, 200, 25, 4096
#: Rows of a block, which stays in a cache while it is centred and multiplied.
_BLOCK = 1024
#: Rows for each that is left, from which it pays for a partition, and for all of X.
_LEAST, _LEAST_OF_ALL = 2, 4
#: Norm of the inverse factor, of columns of length one, up to which products decide: beyond that they have lost digits
#: that R has if it is made of the rows themselves.
_WORST = 100.0
#: Part of a squared norm that centring may leave: of less, new values could not hold what the old ones do.
_OFFSET = 1e-6
#: Part of a squared norm that the columns may leave of a response: of less, a difference of products has lost digits.
_UNEXPLAINED = 1e-6


class Summary(NamedTuple):
    """What the squared loss knows of weighted rows."""

    #: Σ s
    total: float
    #: (k,) weighted means of columns and responses
    means: Floats
    #: (k, k) Σ s (x − x̄)(x − x̄)ᵀ
    products: Floats

    def united(self, other: "Summary") -> "Summary":
        """Return the summary of both."""
        total = self.total + other.total
        apart = other.means - self.means
        products = self.products + other.products
        products += np.outer(apart, apart * (self.total * (other.total / total)))
        return Summary(total, self.means + apart * (other.total / total), products)


def rows_left(n_columns: int) -> int:
    """Return how many rows a condensed partition has."""
    return n_columns + 2


def worth_condensing(size: Extent, n_fits: int) -> bool:
    """Return whether so many fits of the squared loss to the same rows are better made on condensed partitions."""
    most = min(_FOR_A_FIT + _FURTHER * (n_fits - 1), _MOST)
    enough = size.n_rows >= _LEAST_OF_ALL * rows_left(size.n_columns) and size.n_rows * size.n_columns >= _MUCH
    return n_fits > 0 and not size.sparse and enough and size.n_columns <= most


def condense(rows: RowPartition) -> RowPartition:
    """Return few rows that the squared loss does not tell from those of a partition in its first form.

    Where that would not gain, or would lose digits to large means, and where something is not finite, the rows are
    returned as they are.  They have weights in any case.
    """
    n_columns = rows.matrix.n_columns
    if rows.matrix.n_rows >= _LEAST * rows_left(n_columns):
        scaled, scale = _scaled(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            summary = summarise(scaled)
            faithful = _is_faithful(summary)
        if faithful:
            found = _like(summary, _root(scaled, summary), n_columns)
            return found._replace(weights=np.ldexp(found.weights, scale))
    return rows._replace(weights=rows.weights if len(rows.weights) else np.ones(rows.matrix.n_rows))


def _scaled(rows: RowPartition) -> tuple[RowPartition, int]:
    """Return rows whose weights, the largest near one, are the given ones but for a power of two, and its exponent.

    It is a power of four, so that roots of weights have the bits that they would have.
    """
    if not len(rows.weights):
        return rows, 0
    exponent = 2 * (int(np.frexp(rows.weights.max())[1]) // 2)
    return rows._replace(weights=np.ldexp(rows.weights, -exponent)), exponent


def join_condensed(values: RowValues, *parts: Part) -> RowPartition:
    """Make a condensed partition of consecutive parts."""
    return condense(join_parts(values, *parts))


def summarise(rows: RowPartition) -> Summary:
    """Return the summary of columns, and after them responses."""
    found: Summary | None = None
    for block, weights in _blocks(rows):
        first = block[0].copy()
        taken = block - first  # a column that does not vary is zero now, to the last bit
        total = float(weights.sum()) if len(weights) else float(len(block))
        means = weights @ taken / total if len(weights) else taken.sum(axis=0) / total
        taken -= means
        if len(weights):
            taken *= np.sqrt(weights)[:, None]
        part = Summary(total, first + means, taken.T @ taken)
        found = part if found is None else found.united(part)
    assert found is not None
    return found


def _is_faithful(summary: Summary) -> bool:
    """Return whether rows made of a summary hold it."""
    squares = np.diagonal(summary.products)
    raw = squares + summary.total * summary.means**2
    least = np.maximum(_OFFSET * raw, SMALLEST_NORM)
    return bool(np.isfinite(raw.sum()) and ((squares >= least) | (squares == 0.0)).all())


def _blocks(rows: RowPartition) -> Iterator[tuple[Floats, Floats]]:
    """Give rows of X and of the responses side by side, a few at a time, and their weights."""
    n_columns, begun = rows.matrix.n_columns, 0
    buffer = np.empty((_BLOCK, n_columns + len(rows.responses)))
    for values in arrays_of(rows.matrix):
        for start in range(0, len(values), _BLOCK):
            part = values[start : start + _BLOCK]
            block, here = buffer[: len(part)], slice(begun + start, begun + start + len(part))
            block[:, :n_columns], block[:, n_columns:] = part, rows.responses[:, here].T
            yield block, rows.weights[here]
        begun += len(values)


def _root(rows: RowPartition, summary: Summary) -> Floats:
    """Return p + 1 rows whose products with each other are those of the summary, but for those among responses."""
    n_columns = rows.matrix.n_columns
    root = _root_of_products(summary, n_columns)
    return _root_of_rows(rows, summary) if root is None else root


def _root_of_products(summary: Summary, n_columns: int) -> Floats | None:
    """Return the root by Cholesky's factorisation, or None if digits would be lost."""
    products = summary.products
    lengths = np.sqrt(np.diagonal(products)[:n_columns])
    live = np.flatnonzero(lengths)
    root = np.zeros((n_columns + 1, len(products)))
    squares = np.diagonal(products)[n_columns:]
    if not len(live):
        root[-1, n_columns:] = np.sqrt(squares)
        return root
    scaled = products[np.ix_(live, live)] / np.outer(lengths[live], lengths[live])
    factor, failed = lapack.dpotrf(scaled, lower=0, clean=1)
    if failed or not _inverse_norm(factor) <= _WORST:
        return None
    given = products[live, n_columns:] / lengths[live, None]
    responses = solve_triangular(factor, given, trans="T", check_finite=False)
    root[np.ix_(np.arange(len(live)), live)] = factor * lengths[live]
    root[: len(live), n_columns:] = responses
    left = squares - (responses**2).sum(axis=0)
    if (left < _UNEXPLAINED * squares).any():
        return None
    root[-1, n_columns:] = np.sqrt(left)
    return root


def _inverse_norm(factor: Floats) -> float:
    """Return an estimate of the 1-norm of the inverse."""
    reciprocal, _ = lapack.dtrcon(factor, norm="1", uplo="U")
    return np.inf if reciprocal == 0.0 else float(1.0 / (reciprocal * np.abs(factor).sum(axis=0).max()))


def _root_of_rows(rows: RowPartition, summary: Summary) -> Floats:
    """Return the root by the QR factorisation of the rows, which takes longer and loses nothing."""
    n_columns = rows.matrix.n_columns
    root = np.zeros((0, len(summary.means)))
    for block, weights in _blocks(rows):
        taken = block - summary.means
        if len(weights):
            taken *= np.sqrt(weights)[:, None]
        root = np.asarray(np.linalg.qr(np.concatenate([root, taken]), mode="r"))
    found = np.zeros((n_columns + 1, root.shape[1]))
    found[: min(n_columns, len(root))] = root[:n_columns]
    found[-1, n_columns:] = np.sqrt((root[n_columns:, n_columns:] ** 2).sum(axis=0))
    return found


def _like(summary: Summary, root: Floats, n_columns: int) -> RowPartition:
    """Return rows of equal weight with the means of a summary, and the products of its root.

    A reflection that takes the first unit vector to (1, …, 1)/√m takes rows below a row of zeros to rows that add up to
    zero.
    """
    count = len(root) + 1
    turned = np.concatenate([np.zeros((1, root.shape[1])), root])
    along = root.sum(axis=0) / np.sqrt(count)
    turned[0] = along
    turned[1:] -= along / (np.sqrt(count) - 1.0)
    values = summary.means + np.sqrt(count / summary.total) * turned
    matrix = DenseByColumns(freeze(np.ascontiguousarray(values[:, :n_columns].T)))
    responses = np.ascontiguousarray(values[:, n_columns:].T)
    target = responses[0].copy()
    weights = np.full(count, summary.total / count)
    return RowPartition(matrix, target, weights, np.zeros_like(target), responses=responses)
