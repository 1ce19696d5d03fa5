"""Clicks as an item model uses them: by users, by items, and products of frequent items."""

from collections.abc import Callable
from functools import partial
from math import frexp, ldexp
from typing import Any

import numpy as np
from scipy import sparse

from schmp_estimators.core.stages import Each
from schmp_estimators.core.typing import Array, Floats, Floats32, Integers
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.data.inputs import clicks_of
from schmp_estimators.mf.data.ratings import ratings_of
from schmp_estimators.mf.data.rows import RatingRows
from schmp_estimators.mf.data.scale import AS_THEY_ARE
from schmp_estimators.mf.data.seen import DuplicateRatingError
from schmp_estimators.mf.kernels.columns import Clicks, count_candidates, multiply
from schmp_estimators.mf.kernels.layout import deal, sort_items
from schmp_estimators.mf.kernels.lists import Lists

#: The table of inner products takes at most this many bytes.
_MOST_BYTES = 1 << 30
#: About the work on a column, measured in readings of one click: how often each click of a
#: candidate is read, and the work of an entry of the table in all changes of a coefficient, and in
#: all gradients of a rare item.
_READINGS, _CHANGED, _READ = 8.0, 0.3, 0.8
#: Number of columns whose candidates are counted to choose how many items are frequent.
_SAMPLE = 256
#: Frequent items per job.
_PER_JOB = 64


def read_clicks(ratings: RatingRows, earlier: Any) -> Any:
    """Return a CSR array of all clicks, those of earlier fits included; equal pairs are added up.

    Raises
    ------
    DuplicateRatingError
        If a pair occurs twice in this input.
    ValueError
        If a value is below 0, or none is above 0.
    """
    amounts_of(np.array(ratings.range), None)
    if ratings.range[1] <= 0:
        raise ValueError(
            "no value is above 0: there are no clicks to fit; "
            "pass 1, or a count, for what a user took"
        )
    users, items = ratings.known
    shape = len(users), len(items)
    pieces = ratings.pieces.here(ratings.pieces.partitions)
    ratings.pieces.partitions = []
    rows = ratings_of(0, deal(np.zeros(shape[0]), 1), shape[1], AS_THEY_ARE, pieces)
    rows, pair = sort_items(rows, shape[1])
    if pair:
        raise DuplicateRatingError(users[pair[0]], items[pair[1]])
    _, indptr, columns, values = rows
    found = sparse.csr_array((values, columns, indptr), shape)
    if earlier is not None:
        grown = sparse.csr_array(earlier, copy=True)
        grown.resize(shape)
        found = grown + found
    found.eliminate_zeros()
    return found


def amounts_of(values: Array, confidence: Callable[[Array], Any] | None) -> Array:
    """Return what is predicted: the values of clicks, or what `confidence` makes of them."""
    if values.size and (lowest := values.min()) < 0:
        raise ValueError(
            f"Negative values in data passed to DistributedSLIM: {lowest:g} is no click. It "
            "predicts what happened; for ratings of any sign take ModelParallelMF"
        )
    return values if confidence is None else clicks_of(values, confidence)[1]


def with_values(rows: Any, values: Array) -> Any:
    """Return a CSR array with the same entries, but for their values."""
    return sparse.csr_array((values, rows.indices, rows.indptr), rows.shape)


def in_units(amounts: Any) -> tuple[Any, float]:
    """Return a matrix whose largest value is in [1, 2), and the power of two it was divided by.

    Products of its columns are neither too large nor too small for float32.
    """
    unit = ldexp(1.0, frexp(float(amounts.data.max(initial=1e-38)))[1] - 1)
    return with_values(amounts, amounts.data / np.float32(unit)), unit


def weigh_users(amounts: Any, power: float) -> Any:
    """Return a matrix whose rows are divided by their numbers of entries to the power `power`."""
    lengths = np.diff(amounts.indptr)
    factors = np.repeat(np.maximum(lengths, 1.0) ** -power, lengths)
    return with_values(amounts, (amounts.data * factors).astype(np.float32))


def lists_of(rows: Any) -> Lists:
    """Return the entries of a CSR array, or those of a CSC array column by column."""
    plain = bool((rows.data == 1).all())
    values = np.empty(0, np.float32) if plain else rows.data.astype(np.float32, copy=False)
    return Lists(
        rows.indptr.astype(np.int64),
        rows.indices.astype(np.int32, copy=False).view(np.uint32),
        values,
    )


def arrange(amounts: Any, l1: float, most: int, each: Each) -> Clicks:
    """Return a matrix as the solver reads it, with a table of products of frequent items."""
    columns = amounts.tocsc()
    squares = columns.astype(np.float64).power(2).sum(axis=0)
    n_items = amounts.shape[1]
    none = np.full(n_items, -1, np.int32)
    clicks = Clicks(
        lists_of(amounts), lists_of(columns), squares, none, np.empty((n_items, 0), np.float32)
    )  # fmt: skip
    frequent = _choose_frequent(clicks, l1, most)
    if not frequent.size:
        return clicks
    none[frequent] = np.arange(frequent.size)
    products = np.empty((n_items, frequent.size), np.float32)
    shared = freeze((clicks, frequent))
    jobs = range(0, frequent.size, _PER_JOB)
    each(partial(_fill, *shared, products), jobs)
    return clicks._replace(products=products)


def _fill(clicks: Clicks, frequent: Integers, products: Floats32, first: int) -> None:
    some = frequent[first : first + _PER_JOB]
    found = np.zeros((some.size, len(products)))
    multiply(*freeze((clicks, some)), found)
    products[:, first : first + some.size] = found.T


def _choose_frequent(clicks: Clicks, l1: float, most: int) -> Integers:
    """Return the items that get a column in the table, so that work is least, in ascending order.

    A rare item costs its clicks in each reading.  A frequent one makes every reading of a rare item
    and every change of a coefficient longer by an entry of the table.
    """
    lengths = np.diff(clicks.by_item.offsets)
    n_items = lengths.size
    sample = np.arange(0, n_items, max(1, n_items // _SAMPLE))
    counted = np.zeros(n_items)
    count_candidates(*freeze((sample, clicks)), l1, most, counted)
    order = np.argsort(-lengths, kind="stable")
    taken = counted[order]
    read = _following(taken * lengths[order])
    n_rare = _following(taken)
    largest = min(n_items, _MOST_BYTES // (4 * n_items))
    sizes = np.arange(largest + 1)
    # the table is made once, but only a part of the columns was counted
    making = np.append(0.0, np.cumsum(lengths[order][:largest])) * sample.size / n_items
    mean_length = lengths.sum() / max(1, np.diff(clicks.by_user.offsets).size)
    cost = _READINGS * read[sizes] + making * mean_length
    cost += sizes * (_CHANGED * n_rare[0] + _READ * n_rare[sizes])
    return np.sort(order[: int(np.argmin(cost))])


def _following(values: Floats) -> Floats:
    """Return the sums of all values from each one on, and 0 behind the last one."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)
