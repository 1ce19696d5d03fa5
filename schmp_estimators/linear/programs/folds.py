"""Row partitions of a cross-validation: which rows each fold is fitted to, and which it holds out.

Of a large partition the rows are put in order once, in pieces whose rows are in the same folds: a fold is fitted to all
pieces but those it holds out, and nothing of X is copied for it.  Where X is small, or rows are in many different folds
(repeated or random splits), the rows of a fold are copied when its turn comes, and dropped after it.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.reduction import tree_merge
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.programs.centred import Fetch, Rows, Summary, blocks, summarise
from schmp_estimators.linear.programs.input import (
    Extent,
    Label,
    Part,
    RowValues,
    SavedPartition,
    cut_rows,
    join_parts,
    restore_partition,
    save_partition,
)
from schmp_estimators.linear.programs.jobs import RowPartition
from schmp_estimators.linear.programs.matrix import Floats, Indices, Stacked

#: Stored values up to which the rows of a fold may as well be copied, and pieces above which they had better be.
_SMALL, _MOST_PIECES = 1 << 22, 24
#: Folds that are under way at a time, and stored values that their copies may have.
_AT_A_TIME, _COPIED = 16, 1 << 23


class Split(NamedTuple):
    """What a fold takes of a partition: numbers of rows, or of pieces."""

    #: None for all rows that are not held out
    train: Indices | None
    test: Indices


class Cuts(NamedTuple):
    """How a partition is cut along the folds."""

    splits: tuple[Split, ...]
    #: numbers of the first row, and of that after the last
    start: int
    stop: int
    #: rows of each piece; empty if rows are copied for each fold
    pieces: tuple[Indices, ...] = ()

    def is_fitted_to(self, number: int) -> bool:
        """Return whether a fold is fitted to some of the rows."""
        train, test = self.splits[number]
        return len(test) < self.stop - self.start if train is None else len(train) > 0

    def held_out(self, number: int) -> Indices:
        """Return which rows, of all, a fold holds out here, in the order of the partition."""
        chosen = self.splits[number].test
        if self.pieces:
            chosen = np.concatenate([np.empty(0, np.int64), *(self.pieces[piece] for piece in chosen)])
        return self.start + chosen


class Fold(NamedTuple):
    """What there is of a fold in one partition: rows to fit, if any, and rows held out, if any."""

    #: one for each fit that is under way
    train: tuple[RowPartition, ...]
    test: RowPartition | None


class FoldedRows(NamedTuple):
    """A partition, and the folds under way."""

    parts: tuple[RowPartition, ...]
    splits: tuple[Split, ...]
    by_piece: bool
    folds: tuple[Fold | None, ...]

    def fold(self, number: int) -> Fold:
        """Return a fold, as jobs have left it; the last one but for `splits` is fitted to all rows."""
        return self.folds[number] or self.fresh(number)

    def fresh(self, number: int) -> Fold:
        """Return a fold before any job."""
        if number == len(self.splits):
            return Fold(_joined(self.parts), None)
        train, test = self.splits[number]
        if train is None:
            train = np.setdiff1d(np.arange(len(self.parts[0].target)), test)
        if self.by_piece:
            found = [_joined([self.parts[i] for i in chosen]) for chosen in (train, test)]
        else:
            found = [_copied(self.parts[0], chosen) for chosen in (train, test)]
        return Fold(found[0], _for_scores(found[1]))

    def with_fold(self, number: int, fold: Fold | None) -> "FoldedRows":
        """Return the partition with a fold as it is now, or without it."""
        return self._replace(folds=(*self.folds[:number], fold, *self.folds[number + 1 :]))


def fold_rows(cuts: Cuts, rows: RowPartition) -> FoldedRows:
    """Cut a partition."""
    parts: tuple[RowPartition, ...] = (rows,)
    if cuts.pieces:
        matrices = cut_rows(rows.matrix, cuts.pieces)
        parts = tuple(_of_rows(rows, matrix, chosen) for matrix, chosen in zip(matrices, cuts.pieces, strict=True))
    return FoldedRows(parts, cuts.splits, bool(cuts.pieces), (None,) * (len(cuts.splits) + 1))


def fold_parts(cuts: Cuts, values: RowValues, *parts: Part) -> FoldedRows:
    """Make a partition of consecutive parts, and cut it."""
    return fold_rows(cuts, join_parts(values, *parts))


def _of_rows(rows: RowPartition, matrix: Any, chosen: Indices) -> RowPartition:
    target = rows.target[chosen]
    weights = rows.weights[chosen] if len(rows.weights) else rows.weights
    return RowPartition(matrix, target, weights, np.zeros_like(target), responses=rows.responses[:, chosen])


def _copied(rows: RowPartition, chosen: Indices) -> tuple[RowPartition, ...]:
    """Return the chosen rows as one partition, or none."""
    return (_of_rows(rows, cut_rows(rows.matrix, [chosen])[0], chosen),) if len(chosen) else ()


def _joined(parts: Sequence[RowPartition]) -> tuple[RowPartition, ...]:
    """Return parts as one partition, or none."""
    if len(parts) < 2:
        return tuple(parts)
    target = np.concatenate([part.target for part in parts])
    stacked = RowPartition(
        Stacked(tuple(part.matrix for part in parts)),
        target,
        np.concatenate([part.weights for part in parts]),
        np.zeros_like(target),
        responses=np.concatenate([part.responses for part in parts], axis=1),
    )
    return (stacked,)


def _for_scores(found: tuple[RowPartition, ...]) -> RowPartition | None:
    """Return rows with their weights in scores, the second response, where these are others than in fits."""
    for rows in found:
        return rows._replace(weights=rows.responses[1]) if len(rows.responses) > 1 else rows
    return None


# -- on the client -------------------------------------------------------------------------------------------------


class Plan:
    """The folds of a cross-validation.

    Parameters
    ----------
    folds : iterable of (ndarray of int, ndarray of int)
        Rows to fit and rows held out, ascending; a row that is there twice counts twice.
    n_rows : int
        Number of rows.
    """

    def __init__(self, folds: Iterable[tuple[Indices, Indices]], n_rows: int) -> None:
        self.folds, self.n_rows = list(folds), n_rows
        self._patterns = _patterns(self.folds, n_rows)

    def cuts(self, size: Extent, start: int, stop: int) -> Cuts:
        """Return how to cut the partition of these rows of an X of some extent."""
        if self.copies(size):
            found = [_split(train, test, self.n_rows, start, stop) for train, test in self.folds]
            return Cuts(tuple(found), start, stop)
        assert self._patterns is not None
        codes, members = self._patterns
        present, local = np.unique(codes[start:stop], return_inverse=True)
        pieces = tuple(np.flatnonzero(local == number) for number in range(len(present)))
        chosen = members[:, :, present]
        splits = tuple(Split(*map(np.flatnonzero, fold)) for fold in chosen)
        return Cuts(splits, start, stop, pieces)

    def n_at_a_time(self, size: Extent) -> int:
        """Return how many folds may be under way at a time; each may be a copy of most of X."""
        most = max(1, _COPIED // max(1, size.stored)) if self.copies(size) else _AT_A_TIME
        return min(len(self.folds), _AT_A_TIME, most)

    def copies(self, size: Extent) -> bool:
        """Return whether rows stay in their order, and are copied for each fold."""
        return self._patterns is None or size.stored <= _SMALL


def _split(train: Indices, test: Indices, n_rows: int, start: int, stop: int) -> Split:
    """Return what a fold takes of these rows, in few words where it is fitted to all it does not hold out."""
    others = len(train) + len(test) == n_rows and not np.intersect1d(train, test).size
    others = others and bool((np.diff(train) > 0).all() and (np.diff(test) > 0).all())
    return Split(None if others else _within(train, start, stop), _within(test, start, stop))


def _within(rows: Indices, start: int, stop: int) -> Indices:
    first, last = np.searchsorted(rows, [start, stop])
    return rows[first:last] - start


def _patterns(folds: Sequence[tuple[Indices, Indices]], n_rows: int) -> tuple[Indices, np.ndarray] | None:
    """Return for each row the number of its pattern, and (n_folds, 2, n_patterns) bool: which patterns a fold takes.

    A pattern is what folds a row is fitted to, and where it is held out.  None if there are too many.
    """
    codes = np.zeros(n_rows, np.int64)
    counts = [[np.bincount(rows, minlength=n_rows) for rows in fold] for fold in folds]
    for train, test in counts:
        if max(train.max(), test.max()) > 1:
            return None
        codes = np.unique(4 * codes + 2 * train + test, return_inverse=True)[1]
        if codes.max() >= _MOST_PIECES:
            return None
    firsts = np.unique(codes, return_index=True)[1]
    return codes, np.array([[part[firsts] > 0 for part in fold] for fold in counts])


class FetchAll(NamedTuple):
    """Bring all rows of a partition that is not cut into pieces."""

    def __call__(self, rows: FoldedRows) -> tuple[FoldedRows, Rows]:
        """Return them."""
        return rows, Fetch()(rows.parts[0])[1]


class SummariseFolds(NamedTuple):
    """Multiply the columns of what each fold is fitted to, and of all rows; pieces once for all folds."""

    def __call__(self, rows: FoldedRows) -> tuple[FoldedRows, list[Summary | None]]:
        """Return a summary for each fold that is fitted to some of the rows."""
        if rows.by_piece:
            own = [summarise(part) for part in rows.parts]
            found = [own if train is None else [own[piece] for piece in train] for train, _ in rows.splits] + [own]
        else:
            fresh = map(rows.fresh, range(len(rows.splits) + 1))
            found = [list(map(summarise, fold.train)) for fold in fresh]
        return rows, [tree_merge(one, Summary.united) if one else None for one in found]


class PathErrors(NamedTuple):
    """Predict the rows held out by rows of coefficients, (t, p) of columns less `means`, and a level."""

    coefs: Floats
    means: Floats
    level: float

    def __call__(self, fold: Fold) -> tuple[Fold, tuple[Floats, float] | None]:
        """Return the sums of the weighted squared errors, and the weight of the rows."""
        if fold.test is None:
            return fold, None
        errors, total = np.zeros(len(self.coefs)), 0.0
        for block, weights in blocks(fold.test):
            left = block[:, -1] - self.level - self.coefs @ (block[:, :-1] - self.means).T
            errors += left**2 @ weights if len(weights) else (left**2).sum(axis=1)
            total += float(weights.sum()) if len(weights) else float(len(block))
        return fold, (errors, total)


class OfFold(NamedTuple):
    """Apply a job to one of the folds."""

    number: int
    job: Any

    @property
    def func(self) -> Any:
        """What the dashboard names."""
        return getattr(self.job, "func", self.job)

    def __call__(self, rows: FoldedRows) -> tuple[FoldedRows, Any]:
        """Return the answer of the job."""
        fold, answer = self.job(rows.fold(self.number))
        return rows.with_fold(self.number, fold), answer


class Training(NamedTuple):
    """Apply a job to the rows that a fold is fitted to, as one of its fits has them; the answer is None without any."""

    job: Any
    position: int = 0

    @property
    def func(self) -> Any:
        """What the dashboard names."""
        return type(self.job)

    def __call__(self, fold: Fold) -> tuple[Fold, Any]:
        """Return the answer of the job."""
        if not fold.train:
            return fold, None
        before, after = fold.train[: self.position], fold.train[self.position + 1 :]
        train, answer = self.job(fold.train[self.position])
        return fold._replace(train=(*before, train, *after)), answer


class Multiply(NamedTuple):
    """Let there be a fit for each class; the first has begun."""

    codes: tuple[int, ...]

    def __call__(self, fold: Fold) -> tuple[Fold, None]:
        """Return the fold with a state for each fit."""
        others = [Label(code)(rows)[0] for code in self.codes[1:] for rows in fold.train]
        return fold._replace(train=(*fold.train, *others)), None


class Drop(NamedTuple):
    """Let go of a fold."""

    number: int

    def __call__(self, rows: FoldedRows) -> tuple[FoldedRows, None]:
        """Return the partition without it."""
        return rows.with_fold(self.number, None), None


class Prediction(NamedTuple):
    """A linear function of the columns, of which some are taken less a number each."""

    columns: Indices
    coef: Floats
    #: (k,) or (0,) if nothing is taken from any
    shifts: Floats
    level: float

    def of(self, rows: RowPartition) -> Floats:
        """Return its values."""
        if not len(self.shifts):
            return rows.matrix.combine(self.columns, self.coef) + self.level
        return self.coef @ (rows.matrix.take_dense(self.columns) - self.shifts[:, None]) + self.level


class SquaredErrors(NamedTuple):
    """Predict the rows held out."""

    prediction: Prediction

    def __call__(self, fold: Fold) -> tuple[Fold, tuple[float, float] | None]:
        """Return the sum of the weighted squared errors, and that of the weights."""
        test = fold.test
        if test is None:
            return fold, None
        residual = test.target - self.prediction.of(test)
        total = float(test.weights.sum()) if len(test.weights) else float(len(residual))
        return fold, (float(test.weigh(residual**2).sum()), total)


class HeldOutLoss(NamedTuple):
    """Predict the rows held out, and take the loss of that, summed over functions."""

    loss: Loss
    functions: tuple[Prediction, ...]
    #: of each function the class that it tells from all others; none if responses are numbers
    labels: Sequence[int]

    def __call__(self, fold: Fold) -> tuple[Fold, tuple[float, float] | None]:
        """Return the sum of the weighted losses, and that of the weights."""
        test, losses = fold.test, 0.0
        if test is None:
            return fold, None
        for number, function in enumerate(self.functions):
            response = test.responses[0]
            target = np.where(response == self.labels[number], 1.0, -1.0) if len(self.labels) else response
            losses += self.loss.derivatives(function.of(test), target, test.weights, 0.0).level.loss
        return fold, (losses, float(test.weights.sum()) if len(test.weights) else float(len(test.target)))


class Decisions(NamedTuple):
    """Take linear functions of the rows held out."""

    functions: tuple[Prediction, ...]

    def __call__(self, fold: Fold) -> tuple[Fold, Floats | None]:
        """Return their values, shape (n_functions, n_rows)."""
        test = fold.test
        return fold, None if test is None else np.array([function.of(test) for function in self.functions])


class Right(NamedTuple):
    """Predict the classes of the rows held out."""

    functions: tuple[Prediction, ...]
    #: numbers of the classes: two of one function, else one for each
    codes: tuple[int, ...]

    def __call__(self, fold: Fold) -> tuple[Fold, tuple[float, float] | None]:
        """Return the weight of the rows whose class is predicted, and that of all."""
        test = fold.test
        if test is None:
            return fold, None
        values = np.array([function.of(test) for function in self.functions])
        found = (values[0] > 0.0).astype(np.int64) if len(values) == 1 else values.argmax(axis=0)
        right = (test.responses[0] == np.array(self.codes)[found]).astype(np.float64)
        total = float(test.weights.sum()) if len(test.weights) else float(len(right))
        return fold, (float(test.weigh(right).sum()), total)


class SavedFold(NamedTuple):
    """What jobs have changed of a fold."""

    number: int
    train: tuple[SavedPartition, ...]


def save_folds(rows: FoldedRows) -> list[SavedFold]:
    """Return what `restore_folds` needs."""
    begun = [(number, fold.train) for number, fold in enumerate(rows.folds) if fold is not None]
    return [SavedFold(number, tuple(map(save_partition, train))) for number, train in begun]


def restore_folds(rows: FoldedRows, saved: Sequence[SavedFold]) -> FoldedRows:
    """Return a partition in its first form as it was when it was saved."""
    for number, kept in saved:
        fold = rows.fresh(number)
        train = tuple(restore_partition(fold.train[0], one) for one in kept)
        rows = rows.with_fold(number, fold._replace(train=train))
    return rows
