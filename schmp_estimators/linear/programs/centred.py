"""Data of solvers that need no rounds, in one place: centred columns of X, or products of these columns.

A small X is brought to one place.  For many rows each partition computes the products of its own
rows.  Blocks of rows are centred by their own means before they are multiplied, and then combined
by the differences of their means (T.  F.  Chan, G. H. Golub and R. J. LeVeque, "Algorithms for
computing the sample variance", The American Statistician 1983).
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.lanes import at_line
from schmp_estimators.core.reduction import tree_merge
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.dense import centre_columns
from schmp_estimators.linear.losses.base import total_of, weigh
from schmp_estimators.linear.programs.jobs import SMALLEST_NORM, RowPartition, check_squares
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.offsets import REAL, SPREAD
from schmp_estimators.linear.programs.stored import as_matrix


class Rows(NamedTuple):
    """Rows in dense form."""

    #: (p, n) float64
    columns: Floats
    #: (n_targets, n)
    responses: Floats
    #: (n,), or (0,) for ones
    weights: Floats

    def part(self, chosen: Indices) -> "Rows":
        """Return copies of some rows."""
        weights = self.weights[chosen] if len(self.weights) else self.weights
        return Rows(self.columns.take(chosen, axis=1), self.responses[:, chosen], weights)

    def labelled(self, codes: Sequence[int]) -> "Rows":
        """Return rows with responses of 1 for a class and −1 for all others, for each class in `labels`."""
        if not len(codes):
            return self
        return self._replace(
            responses=np.where(self.responses[0] == np.array(codes)[:, None], 1.0, -1.0)
        )


def dense(X: Any, responses: Floats, weights: Floats) -> Rows:
    """Return rows of X, an array or a storage, in dense form."""
    values = X if isinstance(X, np.ndarray) else as_matrix(X).to_array()
    columns = at_line(values.shape[::-1])
    columns[:] = values.T
    return Rows(columns, responses, weights)


def fetch(rows: RowPartition, fill: Floats | None) -> Rows:
    """Return all rows of a partition in dense form, also those held out, with `fill` for missing values."""
    of = (rows if rows.whole is None else rows.whole).filled(fill)
    return dense(of.matrix, of.responses, of.weights)


class Fetch(NamedTuple):
    """Fetch all rows of a partition."""

    fill: Floats | None

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Rows]:
        """Return them in dense form."""
        return rows, fetch(rows, self.fill)


def joined(parts: list[Rows]) -> Rows:
    """Return the rows of all parts, concatenated."""
    if len(parts) == 1:
        return parts[0]
    columns, responses, weights = zip(*parts, strict=True)
    return Rows(
        np.concatenate(columns, axis=1), np.concatenate(responses, axis=1), np.concatenate(weights)
    )


class Summary(NamedTuple):
    """Moments of weighted rows for the squared loss: those of columns, followed by those of responses."""

    n_rows: int
    #: Σ s
    total: float
    #: (k,) weighted means
    means: Floats
    #: (k, k) Σ s (x − x̄)(x − x̄)ᵀ
    products: Floats
    #: (k,) bool, which are not constant
    varied: np.ndarray

    def united(self, other: "Summary") -> "Summary":
        """Return the summary of both."""
        total, apart = self.total + other.total, other.means - self.means
        products = self.products + other.products
        products += apart[:, None] * (apart * (self.total * (other.total / total)))
        varied: np.ndarray = self.varied | other.varied | (apart != 0.0)
        means = self.means + apart * (other.total / total)
        return Summary(self.n_rows + other.n_rows, total, means, products, varied)

    def of_target(self, number: int, n_targets: int) -> "Summary":
        """Return the summary with only one of several responses."""
        n_columns = len(self.means) - n_targets
        kept = np.append(np.arange(n_columns), n_columns + number)
        products = self.products[np.ix_(kept, kept)]
        return self._replace(means=self.means[kept], products=products, varied=self.varied[kept])


def summarise(rows: RowPartition) -> Summary:
    """Return the summary of the rows."""
    return tree_merge((_summary(block, weights) for block, weights in blocks(rows)), Summary.united)


def _summary(block: Floats, weights: Floats) -> Summary:
    first = block[0].copy()
    block -= first  # a constant column is exactly zero now
    total = total_of(weights, len(block))
    means = weights @ block / total if len(weights) else block.sum(axis=0) / total
    block -= means
    scaled = weigh(np.sqrt(weights)[:, None], block)
    products = scaled.T @ scaled
    varied = products.diagonal() != 0.0
    if not varied.all():  # squares may underflow
        varied = block.any(axis=0)
    return Summary(len(block), total, first + means, products, varied)


def blocks(rows: RowPartition) -> Iterator[tuple[Floats, Floats]]:
    """Yield some rows at a time, with their responses in the same array, and their weights."""
    n_columns = rows.matrix.n_columns
    for here, values in rows.matrix.pieces(np.arange(n_columns)):
        block = np.empty((len(values), n_columns + len(rows.responses)))
        block[:, :n_columns], block[:, n_columns:] = values, rows.responses[:, here].T
        yield block, rows.weights[here]


class Summarise(NamedTuple):
    """Compute the products of the columns of a partition."""

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Summary | None]:
        """Return the summary."""
        with np.errstate(over="ignore", invalid="ignore"):
            return rows, summarise(rows) if rows.matrix.n_rows else None


class Centred(NamedTuple):
    """Columns x̃ = √s⊙(x − x̄) and responses √s⊙(y − ȳ) with row weights s; without an intercept means are zero."""

    n_rows: int
    #: Σ s
    total: float
    #: (n_targets,) ȳ, and (p,) x̄
    levels: Floats
    means: Floats
    #: (p,) ‖x̃_j‖, and the norms of columns that are not centred
    lengths: Floats
    raw_lengths: Floats
    #: (n_targets, p) products of responses and columns, and (n_targets,) of responses with
    #: themselves
    aims: Floats
    squares: Floats
    #: (p, p) products of columns, or (0, 0)
    products: Floats
    #: (p, n) and (n_targets, n), or empty if only the products are known
    columns: Floats
    targets: Floats


def centre(rows: Rows, fit_intercept: bool, by_products: bool, eps: float) -> Centred | None:
    """Return rows minus their weighted means; None if columns vary by little more than rounding, or underflow.

    The columns of `rows` are overwritten.  Means are computed from differences to the first row,
    which are exact if the mean is large relative to the spread.  `eps` is the relative distance of
    neighbouring numbers in X.

    Raises
    ------
    SumsError
        If squares are not finite.
    """
    columns, responses, weights = rows
    total, means, squares, raw = subtract_means(rows, fit_intercept, scaled=True)
    if are_flat(columns, squares, raw, eps):
        return None
    levels = np.zeros(len(responses))
    with np.errstate(over="ignore", invalid="ignore"):
        if fit_intercept:
            levels = (responses @ weights if len(weights) else responses.sum(axis=1)) / total
        targets = weigh(np.sqrt(weights), responses - levels[:, None])
    products, lengths = (
        columns @ columns.T if by_products else np.empty((0, 0)),
        (np.sqrt(squares), np.sqrt(raw)),
    )
    own = np.einsum("ij,ij->i", targets, targets)
    aims = targets @ columns.T
    return Centred(
        columns.shape[1], total, levels, means, *lengths, aims, own, products, columns, targets
    )


def subtract_means(
    rows: Rows, fit_intercept: bool, scaled: bool = False
) -> tuple[float, Floats, Floats, Floats]:
    """Subtract the weighted means from the columns, if there is an intercept.

    Returns the weight of the rows, the means, and the weighted sums of squares after and before
    this.  Columns that should be `scaled` are multiplied by the roots of the weights.
    """
    n_columns, n_rows = rows.columns.shape
    weights, total = rows.weights, total_of(rows.weights, n_rows)
    means, squares = np.empty((2, n_columns))
    given = np.sqrt(weights), total if fit_intercept else 0.0, scaled
    weights = freeze(weights if len(weights) else np.ones(n_rows))
    centre_columns(rows.columns, weights, *given, means, squares)
    with np.errstate(over="ignore", invalid="ignore"):
        return total, means, squares, squares + total * means**2


def are_flat(columns: Floats, squares: Floats, raw: Floats, eps: float) -> bool:
    """Return whether a column varies by little more than rounding; raise SumsError if squares are not finite."""
    flat = is_flat(squares, raw, eps)
    return bool(flat.any() and columns[flat].any())


def centred_products(
    summary: Summary, n_targets: int, fit_intercept: bool, eps: float
) -> Centred | None:
    """Return the same as `centre`, without columns."""
    n_columns = len(summary.means) - n_targets
    products, means, levels = summary.products, summary.means[:n_columns], summary.means[n_columns:]
    raw = np.diagonal(products) + summary.total * summary.means**2
    if not fit_intercept:
        products = products + summary.total * np.outer(summary.means, summary.means)
        means, levels = np.zeros_like(means), np.zeros_like(levels)
    squares = np.diagonal(products)
    if (is_flat(squares, raw, eps)[:n_columns] & summary.varied[:n_columns]).any():
        return None
    lengths = np.sqrt(squares[:n_columns]), np.sqrt(raw[:n_columns])
    aims, own = products[n_columns:, :n_columns].copy(), squares[n_columns:].copy()
    inner = np.ascontiguousarray(products[:n_columns, :n_columns])
    nothing = np.empty((n_columns, 0)), np.empty((n_targets, 0))
    return Centred(
        summary.n_rows, summary.total, levels, means, *lengths, aims, own, inner, *nothing
    )


def is_flat(squares: Floats, raw: Floats, eps: float) -> np.ndarray:
    """Return which squares are only rounding errors, or too small to be reliable."""
    check_squares(raw)
    found: np.ndarray = squares < np.maximum((SPREAD * eps) ** 2 * raw, SMALLEST_NORM)
    return found


class Free(NamedTuple):
    """An orthonormal basis of the columns without a penalty, and their products with other columns and targets."""

    #: (k,) numbers of these columns, and (k, r) coefficients of the directions
    chosen: np.ndarray
    basis: Floats
    #: (r, p) and (n_targets, r) products of directions with the others, and with targets
    across: Floats
    along: Floats

    def coefficients(self, coefs: Floats, target: int) -> Floats:
        """Return the best coefficients of these columns, given those of the others, (t, p)."""
        found: Floats = (self.along[target] - coefs @ self.across.T) @ self.basis.T
        return found


def without_free(data: Centred, free: np.ndarray, eps: float) -> tuple[Centred, Free]:
    """Return columns and targets after projection off the span of the `free` columns, which become zero."""
    chosen = np.flatnonzero(free & (data.lengths > 0.0))
    vectors, basis = span_of(
        data.columns[chosen], data.lengths[chosen], data.raw_lengths[chosen], eps
    )
    across, along = vectors @ data.columns.T, data.targets @ vectors.T
    columns, targets = data.columns - across.T @ vectors, data.targets - along @ vectors
    lengths = np.sqrt(np.einsum("ij,ij->i", columns, columns))
    spanned = free | (lengths <= REAL * eps * data.raw_lengths)
    columns[spanned] = lengths[spanned] = across[:, free] = 0.0
    left = data._replace(
        columns=columns, targets=targets, lengths=lengths, aims=targets @ columns.T,
        products=columns @ columns.T if len(data.products) else data.products,
    )  # fmt: skip
    return left, Free(chosen, basis, across, along)


def span_of(
    columns: Floats, lengths: Floats, raw_lengths: Floats, eps: float
) -> tuple[Floats, Floats]:
    """Return orthonormal directions (r, n) of some columns, and their (k, r) coefficients in these columns.

    Directions that are smaller than the rounding of the columns are left out.
    """
    vectors, values, directions = np.linalg.svd((columns / lengths[:, None]).T, full_matrices=False)
    rounding = eps * (raw_lengths / lengths)
    real = values > REAL * np.linalg.norm(directions * rounding, axis=1)
    return np.ascontiguousarray(vectors[:, real].T), (
        directions[real] / values[real, None] / lengths
    ).T
