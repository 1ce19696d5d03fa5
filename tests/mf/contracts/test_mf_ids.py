"""Ids of users and items: any kind and size, in any table.

Their cost follows from how many there are.
"""

from functools import cache, partial

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from mf_cases import bits

from schmp_estimators import ModelParallelMF
from schmp_estimators.exceptions import CheckpointMismatchError

generator = np.random.default_rng(1)
PAIRS = np.argwhere(generator.random((30, 12)) < 0.5)
PAIRS = PAIRS[generator.permutation(len(PAIRS))]
VALUES = generator.integers(1, 6, len(PAIRS)).astype(float)
FRAME = pd.DataFrame(PAIRS, columns=["user", "item"])
#: Ascending names, so that their order is that of the numbers.
USERS = np.array([f"u{number:02d}" for number in range(30)], object)
ITEMS = np.array([f"i{number:02d}" for number in range(12)], object)
NAMED = pd.DataFrame({"user": USERS[PAIRS[:, 0]], "item": ITEMS[PAIRS[:, 1]]})
LARGE = np.arange(30, dtype=np.uint64) + np.uint64(2**63)
HASHES = np.sort(np.random.default_rng(2).integers(0, 2**62, 12))


make = partial(ModelParallelMF, n_components=3, max_iter=3, n_shards=2, random_state=0)


@cache
def numbered():
    """Return a model of the same ratings, with numbers for ids."""
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        return make().fit(PAIRS, VALUES)


@pytest.mark.parametrize(
    "convert",
    [
        lambda frame: frame.convert_dtypes(),
        lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
        lambda frame: frame.astype(float),
        lambda frame: frame.astype({"user": np.uint64, "item": np.int8}),
        lambda frame: frame.astype(np.float16),
        lambda frame: frame.astype("category"),
        lambda frame: frame.astype(object),
        pl.from_pandas,
        lambda frame: pl.from_pandas(frame).cast(pl.UInt16),
        lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    ],
)
def test_numbers_of_any_frame_give_the_same_bits(convert):
    frame = convert(FRAME)
    fitted = make().fit(frame, pl.Series(VALUES))
    assert bits(fitted) == bits(numbered())
    assert fitted.user_ids_.tolist() == list(range(30)) and fitted.n_features_in_ == 2
    if not isinstance(frame, pa.Table):  # scikit-learn knows no names of these
        assert fitted.feature_names_in_.tolist() == ["user", "item"]
    np.testing.assert_array_equal(fitted.predict(frame), numbered().predict(PAIRS))


@pytest.mark.parametrize(
    "convert",
    [
        lambda frame: frame,
        lambda frame: frame.astype("category"),
        lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
        pl.from_pandas,
        lambda frame: pl.from_pandas(frame).cast(pl.Categorical),
        lambda frame: frame.to_numpy(),
        lambda frame: frame.to_numpy().astype(str),
        lambda frame: frame.to_numpy().tolist(),
    ],
)
def test_names_are_numbered_and_come_back(convert):
    given = convert(NAMED)
    fitted = make().fit(given, VALUES)
    assert bits(fitted) == bits(numbered())
    assert (
        fitted.user_ids_.tolist() == USERS.tolist() and fitted.item_ids_.tolist() == ITEMS.tolist()
    )
    np.testing.assert_array_equal(fitted.predict(given), numbered().predict(PAIRS))
    items, scores = fitted.recommend(["u03", "nobody"], 12)
    expected, expected_scores = numbered().recommend([3, 99], 12)
    assert items.tolist() == [[None if at < 0 else ITEMS[at] for at in row] for row in expected]
    np.testing.assert_array_equal(scores, expected_scores)


@pytest.mark.parametrize("convert", [list, np.array, pd.Series, pl.Series])
def test_unknown_ids_are_named_and_answers_keep_their_shape(convert):
    """Some are named, each once; who is new to `recommend` gets what suits all, without a word."""
    fitted = make().fit(NAMED, VALUES)
    known = [ITEMS[1], ITEMS[3]]
    asked = convert([known[0], "pear", "fig", "pear", known[1], "nut", "kiwi"])
    many = (
        "holds 4 ids of items that were in no fit, so that nothing is known of them: "
        "'pear', 'fig', 'nut', …$"
    )
    with pytest.warns(UserWarning, match=f"^items {many}") as caught:
        similar, scores = fitted.similar_items(asked, 3)
    assert [one.filename for one in caught] == [__file__]
    assert similar.shape == scores.shape == (7, 3)
    expected, cosines = fitted.similar_items(known, 3)
    np.testing.assert_array_equal(similar[[0, 4]], expected)
    np.testing.assert_array_equal(scores[[0, 4]], cosines)
    assert (np.delete(similar, [0, 4], axis=0) == None).all()  # noqa: E711
    with pytest.warns(UserWarning, match=f"^items {many}") as caught:
        found = fitted.recommend(["u03"], 4, items=asked, exclude=None)
    assert [one.filename for one in caught] == [__file__]
    of_known = fitted.recommend(["u03"], 4, items=known, exclude=None)
    for array, other in zip(found, of_known, strict=True):
        np.testing.assert_array_equal(array, other)
    pairs = [["me", item] for item in (known[0], "pear", "fig")]
    with pytest.warns(UserWarning, match=r"^X holds 2 ids of items .*: 'pear', 'fig'$") as caught:
        matrix, users = fitted.to_matrix(pairs, [5.0, 1.0, 1.0])
    assert [one.filename for one in caught] == [__file__]
    assert users.tolist() == ["me"]
    assert matrix.nnz == 1
    with pytest.warns(UserWarning, match=r"^users holds 1 ids of users .*: 'nobody'$"):
        fitted.similar_users(["nobody"])
    fitted.recommend(["nobody"])


@pytest.mark.parametrize("largest", [2**20, 10**9, 2**40, 2**63 - 1, 2**64 - 1])
def test_one_large_id_costs_one_row(largest):
    pairs = np.array([[largest, 3], [2, 5], [largest, 7], [9, largest]], np.uint64)
    fitted = make().fit(pairs, [1.0, 2.0, 3.0, 4.0])
    assert fitted.user_ids_.tolist() == [2, 9, largest] and fitted.item_ids_.tolist() == [
        3,
        5,
        7,
        largest,
    ]
    assert fitted.user_factors_.shape == (3, 3) and fitted.components_.shape == (3, 4)
    assert sorted(fitted.recommend([9], 3)[0][0].tolist()) == [3, 5, 7]
    assert fitted.predict(np.array([[4, 4]]))[0] == fitted.global_mean_
    assert fitted.predict(pairs).std() > 0


@pytest.mark.parametrize("gaps", [3, 10**6])
@pytest.mark.parametrize("solver", ["sgd", "ccd"])
def test_numbers_with_gaps_are_numbered(gaps, solver):
    """Only what occurs has rows.

    Of a matrix, and where a size is given, all rows and columns have.
    """
    pairs = 1 + PAIRS * [gaps, 2]
    fitted = make(solver=solver).fit(pairs, VALUES)
    assert bits(fitted) == bits(make(solver=solver).fit(PAIRS, VALUES))
    assert fitted.user_ids_.tolist() == list(range(1, 30 * gaps, gaps))
    assert fitted.item_ids_.tolist() == list(range(1, 24, 2))
    found, expected = fitted.recommend([1, 1 + 7 * gaps], 4)[0], numbered().recommend([0, 7], 4)[0]
    if solver == "sgd":
        assert found.tolist() == np.where(expected < 0, -1, 1 + 2 * expected).tolist()
    sized = make(solver=solver, n_items=30).fit(pairs, VALUES)
    matrix = sp.csr_array((VALUES, (PAIRS[:, 0], pairs[:, 1])), shape=(30, 30))
    assert bits(sized) == bits(
        make(solver=solver).fit(matrix)
    ) and sized.item_ids_.tolist() == list(range(30))


DASK = {
    "hashes": lambda: da.from_array(
        np.column_stack([LARGE[PAIRS[:, 0]], HASHES[PAIRS[:, 1]].astype(np.uint64)]), chunks=(40, 2)
    ),
    "names": lambda: dd.from_pandas(NAMED, npartitions=3),
    "objects": lambda: da.from_array(NAMED.to_numpy(), chunks=(50, 2)),
}


@pytest.mark.covering
@pytest.mark.parametrize("form", DASK)
@pytest.mark.parametrize("solver", ["sgd", "ccd"])
def test_ids_on_dask_give_the_same_bits_and_predictions_are_lazy(form, solver, in_place):
    given = DASK[form]()
    values = dd.from_pandas(pd.Series(VALUES), npartitions=3) if form == "names" else VALUES
    fitted = make(solver=solver).fit(given, values)
    assert bits(fitted) == bits(make(solver=solver).fit(PAIRS, VALUES))
    lazy = fitted.predict(given)
    assert isinstance(lazy, da.Array) and lazy.ndim == 1 and lazy.dtype == np.float64
    assert len(lazy.chunks[0]) == (given.npartitions if form == "names" else given.numblocks[0])
    np.testing.assert_array_equal(lazy.compute(), fitted.predict(given.compute()))


def test_swapped_columns_are_refused():
    fitted = make().fit(FRAME, VALUES)
    for call in (
        fitted.predict,
        lambda X: fitted.score(X, VALUES),
        lambda X: fitted.partial_fit(X, VALUES),
    ):
        with pytest.raises(ValueError, match="feature names should match"):
            call(FRAME[["item", "user"]])
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(dd.from_pandas(FRAME[["item", "user"]], npartitions=2))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        fitted.predict(PAIRS)


@pytest.mark.covering
@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize(
    "kind", [np.array, pd.DataFrame, lambda t: pd.DataFrame(t).astype(float), list, "dask"]
)
def test_tables_are_not_taken_for_matrices(width, kind):
    table = np.column_stack([PAIRS, VALUES])[:, :width].astype(int)
    given = da.from_array(table, chunks=(40, width)) if kind == "dask" else kind(table)
    for y in (None, VALUES) if width == 3 else (None,):
        with pytest.raises(ValueError, match=r"fit\(df\[\['user', 'item'\]\], df\['rating'\]\)"):
            make().fit(given, y)
    assert make().fit(sp.csr_array(table)).components_.shape == (3, width)


def test_a_table_of_names_is_not_taken_for_a_matrix():
    table = NAMED.assign(rating=VALUES)
    for given in (table, NAMED, pl.from_pandas(table), table.to_numpy(), table.to_numpy().tolist()):
        with pytest.raises(ValueError, match=r"the column .* of X holds .*, which is no rating"):
            make().fit(given)


@pytest.mark.parametrize(
    "form", [np.asarray, np.ndarray.tolist, lambda X: da.from_array(X, chunks=(4, 2))]
)
def test_two_columns_without_y_are_pairs_but_floats_of_two_items(form):
    whole, parts = np.argwhere(np.ones((5, 2))), np.random.default_rng(0).random((10, 2))
    of_matrix, of_pairs = make().fit(parts), make().fit(whole, parts[:, 0])
    for fitted, X, shape in (
        (of_matrix, parts, (10, 2)),
        (of_matrix, whole, (10,)),
        (of_pairs, whole * 1.0, (10,)),
    ):
        assert fitted.predict(form(X)).shape == shape
    with pytest.raises(ValueError, match=r"pairs holds the user .* no whole number"):
        dask.compute(of_pairs.predict(form(parts)))


def test_a_model_of_pairs_folds_in_matrices():
    rows = np.where(generator.random((4, 12)) < 0.5, generator.random((4, 12)), np.nan)
    named = make().fit(NAMED, VALUES)
    np.testing.assert_array_equal(
        named.transform(pd.DataFrame(rows, columns=ITEMS)), numbered().transform(rows)
    )
    with pytest.raises(ValueError, match="feature names should match"):
        named.transform(pd.DataFrame(rows, columns=ITEMS[::-1]))
    with pytest.raises(ValueError, match="X has 5 features, but ModelParallelMF is expecting 12"):
        numbered().transform(rows[:, :5])
    for use in (numbered().transform, numbered().predict):
        np.testing.assert_array_equal(use(da.from_array(rows, chunks=(2, 12))).compute(), use(rows))


def test_partial_fit_adds_ids_behind():
    fitted = make().fit(NAMED, VALUES)
    expected = (
        make()
        .fit(PAIRS, VALUES)
        .partial_fit(np.array([[30, 12], [0, 0], [30, 0]]), [1.0, 5.0, 2.0])
    )
    more = pd.DataFrame(
        {"user": ["a new one", "u00", "a new one"], "item": ["also new", "i00", "i00"]}
    )
    fitted.partial_fit(more, [1.0, 5.0, 2.0])
    assert fitted.user_ids_.tolist() == [*USERS, "a new one"] and fitted.item_ids_.tolist() == [
        *ITEMS,
        "also new",
    ]
    assert bits(fitted) == bits(expected)
    assert "also new" not in fitted.recommend(["a new one"], 11)[0]
    with pytest.raises(ValueError, match="go on with pairs, too"):
        fitted.partial_fit(sp.csr_array((3, 13)))


def test_a_later_matrix_may_have_fewer_users():
    fitted = make().fit(sp.csr_array((VALUES, PAIRS.T)))
    new = np.setdiff1d(range(12), PAIRS[PAIRS[:, 0] == 0, 1])[0]
    fitted.partial_fit(sp.csr_array(([3.0], ([0], [new])), shape=(1, 12)))
    assert fitted.user_ids_.tolist() == list(range(30))


def test_duplicates_are_named_by_their_ids(in_place):
    frame = pd.concat([NAMED, NAMED.iloc[:1]], ignore_index=True)
    values = np.append(VALUES, 1.0)
    given = (
        (frame, values)
        if in_place is None
        else (dd.from_pandas(frame, 3), dd.from_pandas(pd.Series(values), 3))
    )
    message = f"user {frame.user[0]} rated item {frame.item[0]} more than once"
    with pytest.raises(ValueError, match=message):
        make().fit(*given)


BAD = [
    (
        [["a", "b"], [1, 2]],
        {},
        "users of the types int, str; ids are whole numbers or strings, and all alike",
    ),
    (
        pd.DataFrame({"a": ["x", None], "b": ["u", "v"]}),
        {},
        "the user (in row 1|None in row 1, which) is missing",
    ),
    (pl.DataFrame({"a": ["x", "z"], "b": [None, "v"]}), {}, "the item in row 0 is missing"),
    (
        pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [1, 2]}),
        {},
        "the user in row 1 is missing",
    ),
    (
        np.array([[2**70, 1], [3, 4]], object),
        {},
        "users of more than 64 bits; pass them as strings",
    ),
    (
        pd.DataFrame({"a": pd.to_datetime(["2020", "2021"]), "b": [1, 2]}),
        {},
        "ids are whole numbers or strings",
    ),
    (NAMED[:2], {"n_items": 5}, "n_items=5 needs items that are numbers"),
    (
        PAIRS[:2],
        {"n_items": 2**40},
        "the factors of 1099511627776 items would take 3.28e.04 GiB, but 2 ratings",
    ),
    (
        PAIRS[:2],
        {"n_users": 2**30},
        "the factors of 1073741824 users would take 32 GiB, but 2 ratings",
    ),
]


@pytest.mark.parametrize(("pairs", "parameters", "message"), BAD)
def test_bad_ids_are_refused_with_a_remedy(pairs, parameters, message):
    given = np.array(pairs, object) if isinstance(pairs, list) else pairs
    estimator = make(**parameters)
    with pytest.raises(ValueError, match=message):
        estimator.fit(given, [1.0, 2.0])
    assert not [name for name in vars(estimator) if name.endswith("_")]


def changed(row, value, dtype=float):
    """Return pairs of which one user is something else."""
    ids = PAIRS.astype(dtype)
    ids[row, 0] = value
    return ids


NO_PAIRS = [
    (changed(17, 0.5), "user 0.5 in row 17, which is no whole number"),
    (changed(17, np.nan), "user nan in row 17, which is missing"),
    (changed(17, np.inf), "user inf in row 17, which is no whole number"),
    (changed(17, -3, int), "user -3 in row 17, which is negative"),
    (changed(17, "x", object), "user 'x' in row 17, and users of the types int, str"),
    (changed(17, True, object), "user True in row 17, and users of the types bool, int"),
    (changed(17, 0.5, object), "user 0.5 in row 17, which is no whole number"),
    (PAIRS / 10, "user .* in row [01], which is no whole number"),
    (PAIRS > 5, "user .* in row 0, which has the dtype bool"),
    (PAIRS.astype("M8[D]"), r"user 1970-.* in row 0, which has the dtype datetime64"),
]


@pytest.mark.covering
@pytest.mark.parametrize(
    "form", [np.asarray, pd.DataFrame, lambda ids: da.from_array(ids, chunks=(31, 2))]
)
@pytest.mark.parametrize(("ids", "message"), NO_PAIRS)
def test_two_columns_with_y_are_pairs_or_an_error(ids, message, form):
    for call in (make().fit, numbered().partial_fit, numbered().score):
        with pytest.raises(
            ValueError, match=f"with y, two columns are pairs: X holds the {message}"
        ):
            call(form(ids), VALUES)


def test_a_row_of_a_chunk_is_named_with_its_chunk():
    with pytest.raises(ValueError, match=r"in partition 1 of .*user 0\.5 in row 9"):
        make().fit(da.from_array(changed(40, 0.5), chunks=(31, 2)), VALUES)


WIDE = np.where(
    np.random.default_rng(3).random((20, 12)) < 0.5,
    np.random.default_rng(4).random((20, 12)),
    np.nan,
)
NOT_PAIRS = {
    "dense": WIDE,
    "frame": pd.DataFrame(WIDE, columns=ITEMS),
    "sparse": sp.csr_array(np.nan_to_num(WIDE)),
    "sparse, two columns": sp.coo_array(np.nan_to_num(WIDE[:, :2])),
    "dask": da.from_array(WIDE, chunks=(7, 12)),
}


@pytest.mark.covering
@pytest.mark.parametrize("form", NOT_PAIRS)
@pytest.mark.parametrize(
    "of_y", [list, lambda y: da.from_array(y, chunks=9), lambda y: pd.DataFrame({"y": y})]
)
def test_y_beside_a_matrix_is_not_used_and_that_is_said(form, of_y):
    X, y = NOT_PAIRS[form], of_y(np.arange(20))
    expected = make().fit(X)
    for call in ("fit", "partial_fit", "fit_transform", "score"):
        fitted = make() if call == "partial_fit" else make().fit(X)
        with pytest.warns(UserWarning, match="y is not used: X is a matrix") as caught:
            found = getattr(fitted, call)(X, y)
        assert len(caught) == 1
        if call == "score":
            assert found == fitted.score(X)
        if call.startswith("fit"):
            assert bits(fitted) == bits(expected)
        with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[20, 19\]"):
            getattr(fitted, call)(X, of_y(np.arange(19)))


DAYS = np.arange(len(VALUES)).astype("M8[D]")
DATES = {
    "spans": DAYS - DAYS[0],
    "pandas, with a zone": pd.Series(DAYS.astype("M8[ns]")).dt.tz_localize("UTC"),
    "polars": pl.Series(DAYS),
    "objects": DAYS.astype(object),
    "dask": da.from_array(DAYS, chunks=50),
    "dask series": dd.from_pandas(pd.Series(DAYS.astype("M8[s]")), npartitions=3),
}


@pytest.mark.parametrize("form", DATES)
def test_dates_are_no_ratings(form):
    y = DATES[form]
    X = dd.from_pandas(FRAME, npartitions=3) if form == "dask series" else PAIRS
    for call, given in ((make().fit, X), (make().partial_fit, X), (numbered().score, PAIRS)):
        with pytest.raises(
            ValueError, match=r"y holds dates or times \(.*\), not numbers; .* by \(y - y.min\(\)\)"
        ):
            call(given, y)
    if form != "dask series":
        with pytest.raises(ValueError, match="sample_weight holds dates or times"):
            make(solver="ccd", unobserved_weight=0.1).fit(X, VALUES, sample_weight=y)


def test_a_checkpoint_knows_ids_and_scale(tmp_path):
    make(checkpoint=tmp_path / "state").fit(NAMED, VALUES)
    renamed = NAMED.assign(user="x" + NAMED.user)
    for given in ((renamed, VALUES), (NAMED, VALUES * 2), (NAMED, VALUES + 1), (PAIRS, VALUES)):
        with pytest.raises(CheckpointMismatchError, match="data"):
            make(checkpoint=tmp_path / "state").fit(*given)
    again = make(checkpoint=tmp_path / "state").fit(pl.from_pandas(NAMED), VALUES)
    assert bits(again) == bits(numbered())
