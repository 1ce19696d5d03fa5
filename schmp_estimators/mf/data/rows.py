"""The ratings of an input, held in this process or in the memory of workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from sklearn.utils.validation import validate_data

from schmp_estimators.core.inputs.rows import Rows, open_rows, open_tasks
from schmp_estimators.core.inputs.validation import is_dask
from schmp_estimators.core.lanes import padded_width
from schmp_estimators.core.later import Later
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.typing import (
    Arguments,
    Binary,
    FloatPair,
    IntPair,
    Named,
)
from schmp_estimators.core.values import offsets_of
from schmp_estimators.mf.data import ids as rating_ids
from schmp_estimators.mf.data import inputs
from schmp_estimators.mf.data.ids import KINDS, NOBODY, Known, Table
from schmp_estimators.mf.data.scale import Grid, choose_grid
from schmp_estimators.mf.kernels.layout import UserRows, rated, rows_of
from schmp_estimators.mf.kernels.sgd import RatingBlock

dask: Any = Later("dask")
da: Any = Later("dask.array")
#: Rows are numbered in 32 bits.
_LARGEST_SIDE = np.iinfo(np.int32).max


class Wanted(NamedTuple):
    """What a model wants of ratings."""

    #: Numbers that it holds for each user and each item.
    width: int
    #: The parameters `n_users` and `n_items`.
    sizes: tuple[int | None, int | None]
    #: Whether ratings of weight 0 count.
    clicks: bool = False
    confidence: Any = None
    #: As the parameter of the estimator; one that ranks needs ratings above 0.
    loss: Any = "squared"


class RatingRows(NamedTuple):
    """All ratings of an input."""

    #: Partitions are `UserRows`.
    pieces: Rows
    #: The steps to which ratings are rounded where they are measured.
    grid: Grid
    #: The ids of users and items.
    known: Known
    #: Whether the input was pairs of ids.
    are_pairs: bool
    #: The smallest and the largest rating.
    range: FloatPair
    #: Whether weights are given.
    are_weighted: bool


class _Part(NamedTuple):
    """A chunk of a matrix."""

    n_rows: int
    n_columns: int
    #: Whether it may be a table of ids and ratings.
    is_table: bool
    ratings: UserRows


class _Survey(NamedTuple):
    """Facts about a part of the ratings: their number, their range, and the ids that occur."""

    size: int
    low: float
    high: float
    #: The largest weight.
    heaviest: float
    #: Ids of users and of items; empty if rows are numbered already.
    tables: tuple[Table, ...]


@contextmanager
def open_ratings(
    X: Any,
    y: Any,
    estimator: Any,
    wanted: Wanted,
    *,
    weights: Any = None,
    place: Place | None = None,
    earlier: Known | None = None,
) -> Iterator[RatingRows]:
    """Read ratings of any kind, and hold them as long as the context lasts.

    Parameters
    ----------
    X, y : as in `ModelParallelMF.fit`
    estimator : Recommender
        Its number and names of features become those of the two columns of pairs, or of the items
        of a matrix.
    wanted : Wanted
    weights : array-like, optional
        Weights of the ratings.
    place : Place, optional
        Where to hold a Dask input; by default in this process.
    earlier : Known, default=None
        The ids of the fit that this one continues.
    """
    pairs = inputs.are_pairs(X, y)
    clicks = wanted.clicks
    anew = earlier is None
    if pairs:
        # Pairs and matrices may follow each other, so only a second table of pairs has columns to
        # compare.
        if anew or estimator._fitted_on_pairs:
            check_pair_columns(X, estimator, reset=anew)
        rows = _open_pairs(X, y, weights, place, clicks)
    else:
        if earlier is not None and not all(map(rating_ids.are_positions, earlier)):
            raise ValueError(
                "earlier ratings came as pairs whose ids are no row numbers; go on with pairs, too"
            )
        inputs.check_no_text(X)
        seen_as = estimator if anew else estimator._for_matrices(X)
        whole = {} if is_dask(X) else {"X": X, "weights": weights, "clicks": clicks}
        how: Named = {"place": place, "reset": anew, "ensure_all_finite": False}
        rows = open_rows(partial(_part_of_rows, **whole), X, seen_as, **how)
    with rows:
        limits = wanted.sizes
        if not pairs:
            limits = n_rows, _ = _number_users(rows, seen_as, limits if anew else (None, None))
            inputs.warn_unused(y, n_rows)
            if weights is not None and is_dask(X):
                _weigh_chunks(rows, weights, clicks)
        if wanted.confidence is not None:
            confide = partial(inputs.confide, wanted.confidence)
            rows.partitions = rows.each(confide, "mf-confidences")
        survey = rows.reduce(partial(_survey, pairs), _merge, "mf-survey")
        n_ratings, low, high, heaviest, tables = survey
        if not n_ratings:
            raise ValueError("there are no ratings to fit; X must store, or y hold, at least one")
        if not heaviest:
            raise ValueError(
                "all weights are 0, those of sample_weight or confidence; one at least must be "
                "above 0"
            )
        inputs.check_range(low, high)
        ranks = wanted.loss != "squared"
        if ranks:
            inputs.check_taken(low)
        users, items = map(_table_of, KINDS, limits, earlier or NOBODY, tables or (None, None))
        if ranks and not pairs and n_ratings == len(users) * len(items):
            raise inputs.nothing_to_draw(wanted.loss)
        _check_size(len(users), len(items), n_ratings, wanted.width)
        tables = (np.arange(len(t)) if isinstance(t, range) else t for t in (users, items))
        known = Known(*tables)
        if pairs:
            shared = rows.place.share(known)  # the tables may be long, so they are sent only once
            given = [(piece, shared) for piece in rows.partitions]
            rows.partitions = rows.tasks(_number_piece, given, "mf-number-ids")
        grid = choose_grid(low, high, heaviest)
        yield RatingRows(rows, grid, known, pairs, (low, high), weights is not None)


def check_pair_columns(X: Any, estimator: Any, *, reset: bool) -> None:
    """Set or compare the names of the two columns of pairs.

    A list of pairs has none, and needs no warning of this.
    """
    if isinstance(X, list | tuple) and not reset:
        return
    if is_dask(X):
        X = X._meta if hasattr(X, "columns") else np.empty((0, 2))
    validate_data(estimator, X=X, reset=reset, skip_check_array=True)


def map_chunks(
    function: Binary,
    pairs: Any,
    model: Any,
    *,
    name: str,
    shape: tuple[int, ...] = (),
) -> Any:
    """Return ``function(pairs, model)``, float64 of a shape for each pair.

    It is computed at once in memory, lazily on Dask.
    """
    if not is_dask(pairs):
        return function(pairs, model)
    run = uuid4().hex
    meta = np.empty((0, *shape))
    shared = dask.delayed(model, name=f"model-{run}", traverse=False)
    if not isinstance(pairs, da.Array):
        return pairs.map_partitions(function, shared, meta=meta, enforce_metadata=False)
    pairs = pairs.rechunk({1: -1})
    sizes = {"chunks": (pairs.chunks[0], shape)} if shape else {"drop_axis": 1}
    how = {"meta": meta, "dtype": meta.dtype, "name": f"{name}-{run}", **sizes}
    return da.map_blocks(function, pairs, shared, **how)


def _part_of_rows(rows: Any, X: Any = None, weights: Any = None, clicks: bool = False) -> _Part:
    """Return the ratings of some rows of a matrix, or of all.

    `rows` is X as scikit-learn has converted it.
    """
    inputs.check_duplicates_kept(X, rows)
    if rows.shape[1] > _LARGEST_SIDE:
        raise ValueError(
            f"X has {rows.shape[1]} columns, but rows and columns are numbered in 32 bits; pass "
            "pairs of ids"
        )
    ratings = inputs.ratings_of_rows(rows)
    if weights is not None:
        ratings = inputs.weighed(ratings, inputs.weights_of(X, rows, weights), clicks=clicks)
    return _Part(rows.shape[0], rows.shape[1], inputs.is_table(rows), ratings)


def _number_users(rows: Rows, estimator: Any, asked: tuple[int | None, int | None]) -> IntPair:
    """Replace the parts of a matrix by ratings, and return the shape.

    Users are numbered on from part to part.
    """
    shapes = rows.here(rows.each(itemgetter(slice(3)), "mf-shape"))
    widths = {width for _, width, _ in shapes}
    if len(widths) != 1:
        raise ValueError(f"the chunks of X have different numbers of columns: {sorted(widths)}")
    estimator.n_features_in_ = widths.pop()
    if all(table for length, _, table in shapes if length):
        inputs.refuse_table(estimator.n_features_in_)
    offsets = offsets_of([length for length, _, _ in shapes])
    arguments = zip(rows.partitions, offsets.tolist(), strict=False)

    def numbered(part: _Part, first: int) -> UserRows:
        return part.ratings._replace(users=part.ratings.users + np.int32(first))

    rows.partitions = rows.tasks(numbered, list(arguments), "mf-number-users")
    shape = int(offsets[-1]), estimator.n_features_in_
    for kind, size, given in zip(KINDS, shape, asked, strict=True):
        if given not in (None, size):
            raise ValueError(
                f"n_{kind}s={given} is for pairs of ids, but X is a matrix of {size} {kind}s; "
                "leave it None"
            )
    return shape


def _weigh_chunks(rows: Rows, weights: Any, clicks: bool) -> None:
    """Add weights to the ratings of a matrix on Dask; both are in the order of the rows."""
    sizes = rows.here(rows.each(lambda ratings: ratings.values.size, "mf-sizes"))
    ends = offsets_of(sizes).tolist()
    column = _as_column(weights)
    if np.isnan(column.shape[0]):
        column.compute_chunk_sizes()
    inputs.check_one_for_each(column.shape[0], ends[-1])
    pieces = [(column[first:stop],) for first, stop in pairwise(ends)]
    held = open_tasks(inputs.read_weights, pieces, place=rows.place).partitions
    weigh = partial(inputs.weighed, clicks=clicks)
    rows.partitions = rows.tasks(weigh, list(zip(rows.partitions, held, strict=True)), "mf-weigh")


def _open_pairs(pairs: Any, values: Any, weights: Any, place: Place | None, clicks: bool) -> Rows:
    if not is_dask(pairs):
        if is_dask(values) or is_dask(weights):
            values, weights = dask.compute(values, weights)
        return Rows([inputs.read_ratings(pairs, values, weights, clicks=clicks)])
    columns = {"y": values} if weights is None else {"y": values, "sample_weight": weights}
    read = partial(_ratings_of_chunk, clicks)
    return open_tasks(read, _side_by_side(pairs, columns), place=place)


def _table_of(kind: str, limit: int | None, known: Table, found: Table | None) -> Table | range:
    """Return the ids of a side: numbers below a limit that is given, or else those that occur."""
    if limit is None or not rating_ids.are_positions(known):
        assert found is not None
        return rating_ids.extend(known, found, kind)
    if found is not None and rating_ids.is_text(found):
        raise ValueError(
            f"n_{kind}s={limit} needs {kind}s that are numbers from 0 on, not strings; leave it "
            "None"
        )
    if found is not None and found[-1] >= limit:
        raise ValueError(
            f"pairs holds the {kind} {found[-1]}, but n_{kind}s={limit}; raise it, or leave it None"
        )
    return range(max(limit, known.size))


def _check_size(n_users: int, n_items: int, n_ratings: int, n_components: int) -> None:
    """Raise ValueError if factors would be large, and nearly all of them without ratings.

    They are the factors of users or items.
    """
    n_rows = n_users + n_items
    row = 4 * padded_width(n_components)
    for kind, size in zip(KINDS, (n_users, n_items), strict=True):
        rated_hardly = size > 8 * n_ratings and size >= n_rows / 2
        if size > _LARGEST_SIDE or (rated_hardly and n_rows * row > 2 << 30):
            raise ValueError(
                f"the factors of {size} {kind}s would take {size * row / 2**30:.3g} GiB, "
                f"but {n_ratings} ratings are those of at most {n_ratings} {kind}s. Leave "
                f"n_{kind}s None, and pass pairs of ids: those that have no ratings take no memory "
                "then."
            )


def _side_by_side(pairs: Any, columns: Named) -> list[Arguments]:
    """Return chunks of pairs, each with the same rows of `columns`, as Delayed objects."""
    frames = [pairs, *columns.values()]
    if (
        all(hasattr(one, "map_partitions") for one in frames)
        and len({one.npartitions for one in frames}) == 1
    ):
        # In one expression: by themselves, columns read from small files come in fewer partitions
        # than X.
        joined = pairs.map_partitions(
            lambda *columns: columns,
            *frames[1:],
            meta=pairs._meta,
            enforce_metadata=False,
            align_dataframes=False,
        )
        return [(one,) for one in joined.to_delayed()]
    if hasattr(pairs, "columns"):
        lengths = (np.nan,) * pairs.npartitions
        chunks = pairs.to_delayed()
    else:
        pairs = pairs.rechunk({1: -1})
        lengths = pairs.chunks[0]
        chunks = pairs.to_delayed().ravel()
    aligned = [chunks]
    for name, column in columns.items():
        values = _as_column(column)
        n_pairs = sum(lengths)
        if not np.isnan(n_pairs + values.shape[0]):
            if n_pairs != values.shape[0]:
                raise ValueError(
                    "Found input variables with inconsistent numbers of samples: "
                    f"{[n_pairs, values.shape[0]]}"
                )
            values = values.rechunk({0: lengths})
        elif len(lengths) != values.numblocks[0]:
            raise ValueError(
                f"X has {len(lengths)} partitions and {name} {values.numblocks[0]}, of unknown "
                "lengths; take both from one data frame, or pass Dask arrays whose chunk sizes are "
                "known, for example from frame.to_dask_array(lengths=True)"
            )
        aligned.append(values.to_delayed().ravel())
    return list(zip(*aligned, strict=True))


def _as_column(values: Any) -> Any:
    """Return ratings, on Dask or not, as a Dask array of one or two dimensions.

    Its columns are undivided.
    """
    if is_dask(values) and not isinstance(values, da.Array):
        values = values.to_dask_array()
    elif not is_dask(values):
        values = da.from_array(np.asanyarray(values))  # this keeps a mask
    return values if values.ndim == 1 else values.rechunk({1: -1})


def _ratings_of_chunk(
    clicks: bool, pairs: Any, values: Any = None, weights: Any = None
) -> RatingBlock:
    if isinstance(pairs, tuple):
        pairs, values, weights = (*pairs, None)[:3]
    if len(pairs) != len(values):
        raise ValueError(
            f"a chunk of X has {len(pairs)} pairs, but that of y {len(values)} ratings; X and y "
            "must have the same length, and the same partitions if their lengths are not known"
        )
    return inputs.read_ratings(pairs, values, weights, clicks=clicks)


def _survey(are_pairs: bool, ratings: Any) -> _Survey:
    values = ratings.values.real
    tables = tuple(map(rating_ids.distinct, ratings[:2])) if are_pairs else ()
    weights = ratings.values.imag if np.iscomplexobj(ratings.values) else np.ones(1)
    low, high = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
    return _Survey(values.size, low, high, float(weights.max(initial=0.0)), tables)


def _merge(parts: list[_Survey]) -> _Survey:
    sizes, lows, highs, weights, _ = zip(*parts, strict=True)
    sides = zip(*(part.tables for part in parts), strict=True)
    tables = tuple(map(rating_ids.merge, sides, KINDS))
    return _Survey(sum(sizes), min(lows), max(highs), max(weights), tables)


def _number_piece(ratings: RatingBlock, known: Known) -> UserRows:
    """Return ratings in the rows of the users that occur."""
    users, items = map(rating_ids.number, ratings[:2], known, KINDS)
    pairs = RatingBlock(users.astype(np.int32), items.astype(np.int32), ratings.values)
    return rated(rows_of(pairs, len(known.users)))
