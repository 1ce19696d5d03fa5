"""Folds of a cross-validation on row partitions: while a fold is fitted, a partition has only the rows of that fold.

Rows are in the same group if every fold fits them equally often, and holds them out equally often.
A partition knows the group of each of its rows, so a fold is described by one number for each
group.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.linear.contracts import is_joint, is_quadratic
from schmp_estimators.linear.losses.base import total_of, weigh
from schmp_estimators.linear.programs.centred import Summary, summarise
from schmp_estimators.linear.programs.input import (
    SavedPartition,
    partition,
    restore_partition,
    save_partition,
)
from schmp_estimators.linear.programs.jobs import RowPartition
from schmp_estimators.linear.programs.matrix import Floats, Indices

#: Largest number of groups for which products of columns are computed once for all folds, group by
#: group.
_MOST_GROUPS = 24


class Plan:
    """The folds of a cross-validation, and behind them the fold that is fitted to all rows.

    Parameters
    ----------
    folds : iterable of (ndarray, ndarray)
        Samples to fit and samples held out; one that occurs twice counts twice.
    fitted, counted : ndarray of shape (n_samples,), dtype bool
        Samples that can be fitted, and samples that are rows, which can be held out.
    weights : ndarray of shape (n_rows,) or (0,)
        Weights in scores, if they differ from those in fits.
    """

    def __init__(
        self, folds: Iterable[Any], fitted: np.ndarray, counted: np.ndarray, weights: Floats
    ) -> None:
        places = np.cumsum(counted) - 1
        n_rows = np.count_nonzero(counted)

        def rows(chosen: Any, used: np.ndarray) -> Indices:
            numbers = np.sort(np.arange(len(used))[chosen])
            return places[numbers[used[numbers]]]

        #: rows to fit and rows held out, ascending
        self.folds = [(rows(train, fitted), rows(test, counted)) for train, test in folds]
        self.weights = weights
        groups = np.zeros(n_rows, np.int64)
        for part in chain.from_iterable(self.folds):
            counts = np.bincount(part, minlength=n_rows)
            groups = np.unique(groups * (counts.max() + 1) + counts, return_inverse=True)[1]
        self._firsts = np.unique(groups, return_index=True)[1]
        self.folds.append((np.arange(n_rows), np.empty(0, np.int64)))
        #: (1 or 2, n_rows) the group of each row, and its weight in scores, if that is given
        self.beside = np.stack([groups.astype(np.float64), *([weights] if len(weights) else [])])

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self._firsts)

    def take(self, number: int) -> "Take":
        """Return the job that selects the rows of a fold."""
        n_rows = self.beside.shape[1]
        train, test = (np.bincount(part, minlength=n_rows) for part in self.folds[number])
        return Take(train[self._firsts], test[self._firsts])


class Take(NamedTuple):
    """Select the rows that a fold is fitted to; the partition keeps all rows for the scores."""

    #: (n_groups,) how often the rows of each group are fitted, and how often they are held out
    train: Indices
    test: Indices
    #: (p,) what stands for missing values of X, also in rows that are held out
    fill: Floats | None = None

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, None]:
        """Return the partition with these rows."""
        whole = (rows if rows.whole is None else rows.whole).filled(self.fill)
        return _chosen(whole, self.train)._replace(whole=whole, fold=self), None

    @property
    def united(self) -> Indices | None:
        """Which groups have these rows; None if the summary of the rows does not follow from those of few groups."""
        once = len(self.train) <= _MOST_GROUPS and self.train.max() <= 1
        return self.train if once and self.fill is None else None


def _chosen(rows: RowPartition, counts: Indices) -> RowPartition:
    """Return the rows of each group, repeated `counts` times."""
    times = counts[rows.beside[0].astype(np.int64)]
    return rows if (times == 1).all() else _rows(rows, np.repeat(np.arange(len(times)), times))


def _rows(rows: RowPartition, chosen: Indices) -> RowPartition:
    weights = rows.weights[chosen] if len(rows.weights) else rows.weights
    given = rows.responses[:, chosen], weights, rows.beside[:, chosen]
    return partition(rows.matrix.rows(chosen), *given)


class SummariseGroups(NamedTuple):
    """Compute the products of columns for each group of rows."""

    n_groups: int

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, list[Summary | None]]:
        """Return a summary for each group with rows in this partition."""
        whole = rows if rows.whole is None else rows.whole
        found = [np.flatnonzero(whole.beside[0] == number) for number in range(self.n_groups)]
        with np.errstate(over="ignore", invalid="ignore"):
            return rows, [
                summarise(_rows(whole, chosen)) if len(chosen) else None for chosen in found
            ]


def save_fold(rows: RowPartition) -> tuple[Take | None, SavedPartition]:
    """Return what `restore_fold` needs."""
    return rows.fold, save_partition(rows)


def restore_fold(rows: RowPartition, saved: tuple[Take | None, SavedPartition]) -> RowPartition:
    """Return the saved state of a partition, given its first form."""
    fold, own = saved
    return restore_partition(rows if fold is None else Take(*fold)(rows)[0], own)


# -- what is held out
# ------------------------------------------------------------------------------------------------


class Functions(NamedTuple):
    """Linear functions of the columns, k of them for each of t penalties."""

    #: (c,) columns, and the number that is subtracted from each
    columns: Indices
    means: Floats
    #: (t, k, c) and (t, k)
    coefs: Floats
    levels: Floats

    def of(self, values: Floats) -> Floats:
        """Return the functions (t, k, n) of columns (c, n)."""
        coefs = self.coefs.reshape(self.levels.size, len(self.columns))
        found = coefs @ (values - self.means[:, None])
        return found.reshape(*self.levels.shape, -1) + self.levels[..., None]

    def of_rows(self, rows: RowPartition) -> Iterator[tuple[Floats, slice]]:
        """Yield the functions of some rows at a time, and the numbers of these rows."""
        matrix = rows.matrix
        if not matrix.is_sparse:
            for here, taken in matrix.pieces(self.columns):
                yield self.of(np.ascontiguousarray(taken.T, np.float64)), here
            return
        if self.means.any():
            shifts = np.zeros(matrix.n_columns)
            shifts[self.columns] = self.means
            matrix = matrix.shifted(shifts)
        coefs = self.coefs.reshape(self.levels.size, len(self.columns))
        found = np.stack([matrix.combine(self.columns, coef) for coef in coefs])
        yield self.levels[..., None] + found.reshape(*self.levels.shape, -1), slice(len(found[0]))


#: Gets decisions (t, k, n), responses (n,) and weights (n,) or (0,) of some rows, and returns sums
#: over these rows.
Score = Callable[[Floats, Floats, Floats], Floats]


class HeldOut(NamedTuple):
    """Score the rows that a fold holds out."""

    functions: Functions
    score: Score
    #: number of the response
    target: int = 0

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, tuple[Floats, float] | None]:
        """Return the scores (t,) and the weight of the rows."""
        test = _held_out(rows)
        if test is None:
            return rows, None
        weights = test.weights if len(test.beside) < 2 else test.beside[1]
        response = test.responses[self.target]
        found = [
            self.score(values, response[here], weights[here] if len(weights) else weights)
            for values, here in self.functions.of_rows(test)
        ]
        return rows, (tree_sum(found), total_of(weights, len(response)))


class Decide(NamedTuple):
    """Evaluate functions on the rows that a fold holds out."""

    functions: Functions

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Floats | None]:
        """Return their values (t, k, n)."""
        test = _held_out(rows)
        if test is None:
            return rows, None
        return rows, np.concatenate([values for values, _ in self.functions.of_rows(test)], axis=2)


def _held_out(rows: RowPartition) -> RowPartition | None:
    found = _chosen(rows.whole, rows.fold.test)
    return found if found.matrix.n_rows else None


class Deviances(NamedTuple):
    """Twice a loss.  With several functions, the sum over classes of the loss of each class against all others."""

    loss: Any
    labels: Sequence[int]

    def __call__(self, values: Floats, response: Floats, weights: Floats) -> Floats:
        """Return the weighted sums."""
        if is_quadratic(self.loss):
            errors = (response - values[:, 0]) ** 2
            return errors @ weights if len(weights) else errors.sum(axis=1)
        return np.array([2.0 * self._loss(one, response, weights) for one in values])

    def _loss(self, values: Floats, response: Floats, weights: Floats) -> float:
        if is_joint(self.loss):
            return float(self.loss.look(values, response, weights).loss)
        targets = [np.where(response == label, 1.0, -1.0) for label in self.labels] or [response]
        found = zip(values, targets, strict=True)
        return sum(float(self.loss.derivatives(*one, weights, 0.0).level.loss) for one in found)


class Right(NamedTuple):
    """Rows whose class is predicted correctly."""

    #: numbers of the classes: two for one function, otherwise one for each
    codes: Sequence[int]

    def __call__(self, values: Floats, response: Floats, weights: Floats) -> Floats:
        """Return the sum of their weights."""
        right = (response == np.array(self.codes)[class_of(values)]).astype(np.float64)
        return weigh(weights, right).sum(axis=1)


def class_of(values: Floats) -> Indices:
    """Return the number of the class with the largest of k decision values, (n, k) or (t, k, n); one is for two."""
    return (values[:, 0] > 0.0).astype(int) if values.shape[1] == 1 else values.argmax(axis=1)
