"""Inputs of strangers: each is used as it is meant, or refused by name, and never in silence."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from dask import dataframe as dd
from mf_cases import bits
from scipy import sparse
from sklearn.metrics import ndcg_score, recall_score, roc_auc_score
from sklearn.metrics.pairwise import cosine_similarity

from schmp_estimators import ModelParallelMF, ranking
from schmp_estimators.ranking import LeaveLastOut, RankingScorer, TimeSplit, UserShareSplit

_RNG = np.random.default_rng(0)
SEEN = _RNG.random((30, 12)) < 0.4
SEEN[6] = False  # so ids of users are not their rows
PAIRS = np.argwhere(SEEN)
RATINGS = np.clip(np.round(3 + _RNG.normal(size=len(PAIRS))), 1, 5)
MATRIX = sparse.csr_array((RATINGS, PAIRS.T), shape=SEEN.shape)


def make(**given):
    return ModelParallelMF(**{"n_components": 3, "max_iter": 3, "random_state": 0, **given})


@pytest.fixture(scope="module")
def fitted():
    return make().fit(PAIRS, RATINGS)


# Rows of `exclude` are those of the users asked for.


def all_in_one(rows):
    """Return the same entries, some of them twice and in no order."""
    entries = rows.tocoo()
    order = np.r_[entries.nnz - 1 : -1 : -1, 0]
    coords = entries.coords[0][order], entries.coords[1][order]
    return sparse.coo_array((np.zeros(order.size), coords), shape=rows.shape)


@pytest.mark.parametrize(
    "form", [sparse.csc_array, sparse.csr_matrix, all_in_one, lambda rows: (rows > 0).tolil()]
)
@pytest.mark.parametrize("users", [[7], [9, 7, 9, 0]], ids=str)
def test_rows_of_exclude_belong_to_the_users_asked_for(fitted, form, users):
    expected = fitted.recommend(users, 5)
    found = fitted.recommend(users, 5, exclude=form(MATRIX[users]))
    np.testing.assert_array_equal(found[0], expected[0])
    of_pairs, rows = fitted.to_matrix(PAIRS[::-1], RATINGS[::-1])
    np.testing.assert_array_equal(
        fitted.recommend(rows, 5, exclude=of_pairs)[0], fitted.recommend(rows, 5)[0]
    )
    new = fitted.recommend(MATRIX[users], 5, exclude=form(MATRIX[users]))
    np.testing.assert_array_equal(new[0], fitted.recommend(MATRIX[users], 5)[0])


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        (MATRIX, "exclude has 30 rows, but users has 1"),
        (MATRIX[:0], "exclude has 0 rows, but users has 1"),
        (MATRIX[[7], :11], r"exclude has shape \(1, 11\)"),
        *[(MATRIX[[7]].toarray().astype(dtype), "exclude is of type ndarray") for dtype in "di?"],
        ([[3]], "exclude is of type list, .* matrix, users = to_matrix"),
        (pd.DataFrame(MATRIX[[7]].toarray()), "exclude is of type DataFrame"),
        ({7: [3]}, "exclude is of type dict"),
    ],
)
def test_any_other_exclude_is_refused(fitted, exclude, message):
    with pytest.raises(ValueError, match=message):
        fitted.recommend([7], exclude=exclude)


# Ids.


@pytest.mark.parametrize(
    "ids",
    [
        {1, 2}, [[1, 2]], [[1], [2, 3]], {1: 2}, {1: 2}.keys(), 3, "3", np.array(3), [(1, 2)],
        np.array([[1], [2]], object), pd.DataFrame({"i": [1]}), None, [1, "a"], [1, True], [2**70],
        pl.Series([1, None]), pd.Series([1, None], dtype="Int64"), np.ma.array([1, 2], mask=[0, 1]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("use", ["items", "similar"])
def test_ids_that_are_no_list_are_refused(fitted, ids, use):
    if ids is None and use == "items":
        return
    with pytest.raises(ValueError, match=r"^items (must be a list|holds|has masked entries)"):
        fitted.similar_items(ids) if use == "similar" else fitted.recommend([7], items=ids)


@pytest.mark.parametrize(
    "form", [tuple, pd.Series, pl.Series, pd.Index, lambda ids: np.array(ids, np.uint8)]
)
def test_lists_of_ids_may_be_of_any_library(fitted, form):
    ids = [4, 1, 9]
    found = fitted.recommend([7], 3, items=form(ids), exclude=None)[0]
    assert set(found[0]) == set(ids)
    np.testing.assert_array_equal(
        fitted.similar_items(form(ids), 2)[0], fitted.similar_items(ids, 2)[0]
    )


# Measures, against scikit-learn's.

LISTS, WANTED = [[0, 3, 1], [2, 4, 0]], [[3, 4], [2]]
TRUTH = np.array([[0, 0, 0, 1, 1], [0, 0, 1, 0, 0]])
SCORES = np.array([[3, 1, 0, 2, 0], [1, 0, 3, 0, 2]], float)
AT_3 = np.array([[1, 1, 0, 1, 0], [1, 0, 1, 0, 1]])
LETTERS = np.array(list("abcde"))


@pytest.mark.parametrize("dtype", list("bhilqBHILQfd"))
def test_measures_take_every_dtype_of_ids(dtype):
    items, lists = np.array(LISTS).astype(dtype), [np.array(one).astype(dtype) for one in WANTED]
    assert ranking.ndcg_at_k(items, lists, 3) == pytest.approx(ndcg_score(TRUTH, SCORES, k=3))
    expected = recall_score(TRUTH, AT_3, average="samples")
    for relevant in (WANTED, lists, [set(one) for one in WANTED], sparse.csr_array(TRUTH)):
        assert ranking.recall_at_k(items, relevant, 3) == expected
        assert ranking.recall_at_k(pd.DataFrame(items), relevant, 3) == expected
        assert ranking.recall_at_k(pl.DataFrame(items), relevant, 3) == expected


def test_the_largest_id_of_a_dtype_is_an_id():
    for dtype in "BHI":
        largest = np.iinfo(dtype).max
        assert ranking.recall_at_k(np.array([[largest]], dtype), [[largest]], 1) == 1


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA, -1])
def test_places_may_be_empty_and_an_id_may_be_wanted_twice(nothing):
    items = np.append(LETTERS[LISTS].astype(object), [[nothing] * 3] * 2, axis=1)
    wanted = [[*LETTERS[one], LETTERS[one[0]]] for one in WANTED]
    expected = recall_score(TRUTH, AT_3, average="samples")
    for given in (wanted, pd.Series(wanted, index=[7, 3]), pl.Series([*map(list, wanted)])):
        assert ranking.recall_at_k(items, given, 6) == expected
        assert ranking.recall_at_k(items.tolist(), given, 6) == expected


@pytest.mark.parametrize("measure", ["precision", "recall", "average_precision", "ndcg", "auc"])
@pytest.mark.parametrize(
    ("items", "relevant", "message"),
    [
        ([[1, 1]], [[1]], "items holds 1 more than once in row 0"),
        ([["b", "c"], ["a", "a"]], [["b"], ["b"]], "items holds a more than once in row 1"),
        *[([["ab", "c"]] * 2, relevant, "a list of ids for each user")
          for relevant in (["ab", "c"], pd.Series(["ab", "c"]), pl.Series(["ab", "c"]),
                           {"x": ["ab"], "y": ["c"]}, [{"ab": 1}, {"c": 1}], "ab",
                           {("ab",), ("c",)},
                           pd.DataFrame({"item": ["ab", "c"]}), pl.DataFrame({"i": ["ab", "c"]}),
                           [["ab"], None], [["ab"], np.nan], None)],
        *[([[1, 2]] * 2, relevant, "a list of ids for each user")
          for relevant in ([1, 2], np.array([1, 2]), 3, {1: [1], 2: [2]})],
        ([[1, 2]] * 2, [[1, 0, 0], [0, 1, 0]], r"zeros and ones.*csr_array\(relevant\)"),
        ([[1, 2]] * 2, np.eye(2, 3, dtype=bool), "types bool"),
        (np.ma.array([[1, 2]], mask=[[0, 1]]), [[1]], "items has masked entries"),
        ([[1, 2]], np.ma.array([[1]], mask=[[1]]), "relevant has masked entries"),
        ([[1.5, 2]], [[1]], "items holds the item 1.5"),
        ([[1, 2]], np.array([[1.5]]), "relevant holds the item 1.5"),
        ([[1, 2]], [np.array([[1]])], "types ndarray"),
        ([["a", 1]], [["a"]], "items of the types int, str"),
        ([["a", "b"]], [["a", 1]], "items of the types int, str"),
        ([["a", "b"]], [[b"a"]], "all be whole numbers, or all strings"),
        ([["a"], ["b", "c"]], [["a"], ["b"]], "items must be a table"),
        (["a", "b"], [["a"], ["b"]], "items must be a table"),
        ([[1, -5]], [[1]], "items holds the item -5"),
    ],
)  # fmt: skip
def test_lists_that_cannot_be_judged_are_refused(measure, items, relevant, message):
    sized = {"n_candidates": 9} if measure == "auc" else {}
    with pytest.raises(ValueError, match=message):
        getattr(ranking, f"{measure}_at_k")(items, relevant, 2, **sized)


def test_the_number_of_candidates_is_possible():
    lists, wanted = [[9, 8, 7], [1, 9, 8]], [[1, 2], [1]]
    sizes = [np.array([5, 3], np.uint8), pd.Series([5, 3])]
    # who was recommended nothing right has both relevant items behind all others
    whole = roc_auc_score([0, 0, 0, 1, 1], [3, 2, 1, 0, 0])
    for n_candidates in sizes:
        found = ranking.auc_at_k(lists, wanted, 3, n_candidates=n_candidates)
        assert found == pytest.approx((whole + 1) / 2)
    for n_candidates in (4, [5, 2], 0, -1):
        with pytest.raises(ValueError, match=r"n_candidates is .* candidates at least"):
            ranking.auc_at_k(lists, wanted, 3, n_candidates=n_candidates)
    for n_candidates in (5.0, "5", True, np.nan, [5], [5, 5, 5], 2**70):
        with pytest.raises(ValueError, match=r"n_candidates=.* one for each of the 2 users"):
            ranking.auc_at_k(lists, wanted, 3, n_candidates=n_candidates)
    for metric in (["ndcg"], None, np.array(["ndcg"])):
        with pytest.raises(ValueError, match=r"metric=.*it is one of precision, "):
            RankingScorer(metric)
    for threshold in ("3", None, np.nan, [1]):
        with pytest.raises(ValueError, match=r"threshold=.*it is a number"):
            RankingScorer(threshold=threshold)


# Splitters.

ROWS = [[row % 2, row] for row in range(8)]
#: Times through the night in which clocks go back, in no order.
NIGHT = pd.Series(pd.date_range("2024-10-26 22:30", periods=8, freq="30min", tz="UTC"))
NIGHT = NIGHT.iloc[[7, 1, 4, 6, 0, 5, 2, 3]].reset_index(drop=True)
PLAIN = NIGHT.dt.tz_localize(None)
RANK = NIGHT.rank().astype(int)
LAST = [0, 3]
TIMES = {
    "UTC": NIGHT,
    "a zone": NIGHT.dt.tz_convert("Europe/Berlin"),
    "an index with a zone": pd.DatetimeIndex(NIGHT.dt.tz_convert("Europe/Berlin")),
    "a list with a zone": list(NIGHT.dt.tz_convert("Europe/Berlin")),
    "datetimes": [time.to_pydatetime() for time in PLAIN],
    "dates": [dt.date(2024, 1, 1) + dt.timedelta(int(n)) for n in RANK],
    "polars": pl.Series(PLAIN.to_list()).dt.replace_time_zone("UTC"),
    "a column": PLAIN.to_frame(),
    "periods": PLAIN.dt.to_period("s"),
    "durations": PLAIN - PLAIN.min(),
    "decimals": [Decimal(int(n)) for n in RANK],
    "large numbers": [2**70 + int(n) for n in RANK],
    "small numbers": RANK.to_numpy().astype(np.float16),
    "categories": pd.Categorical(RANK),
}


def row_lacks(position, values):
    return [None if row == position else value for row, value in enumerate(values)]


@pytest.mark.parametrize("kind", TIMES)
def test_dates_of_every_kind_are_in_the_order_of_time(kind):
    ((_, judged),) = TimeSplit(test_size=0.25).split(ROWS, groups=TIMES[kind])
    assert judged.tolist() == LAST
    ((_, judged),) = LeaveLastOut().split(ROWS, groups=TIMES[kind])
    frame = pd.DataFrame({"user": np.array(ROWS)[:, 0], "time": RANK})
    assert judged.tolist() == sorted(frame.groupby("user")["time"].idxmax())


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (NIGHT.astype(str), r"holds str, .* pandas.to_datetime\(groups"),
        (["1"] * 8, "cannot be put in the order"),
        (pl.Series(["a"] * 8), "cannot be put in the order"),
        ([1, "2", *range(6)], "cannot be put in the order"),
        ([NIGHT[0], *PLAIN[1:]], "with or all without a time zone"),
        ([dt.date(2024, 1, 1), *TIMES["datetimes"][1:]], "holds date, datetime"),
        (np.arange(8) > 3, "holds bool"),
        (PLAIN.mask(RANK == 2), "time in row 1 is missing"),
        (NIGHT.mask(RANK == 2), "time in row 1 is missing"),
        (row_lacks(2, TIMES["datetimes"]), "holds None in row 2"),
        (np.array(row_lacks(2, TIMES["datetimes"]), "M8[us]"), "holds NaT in row 2"),
        (pl.Series(row_lacks(2, TIMES["datetimes"])), "time in row 2 is missing"),
        (np.ma.array(np.arange(8), mask=np.arange(8) == 2), "groups has masked entries"),
        (np.ones((8, 2)), "groups should be a 1d array"),
    ],
)
def test_what_has_no_order_in_time_is_refused(times, message):
    for splitter in (TimeSplit(), LeaveLastOut()):
        with pytest.raises(ValueError, match=message):
            list(splitter.split(ROWS, groups=times))


@pytest.mark.parametrize(
    ("splitter", "rows", "message"),
    [
        (TimeSplit(test_size=0.05), ROWS, "of 8 pairs 8 are left to fit on, and 0 to judge by"),
        (TimeSplit(test_size=1e-300), ROWS, "of 8 pairs 8 are left"),
        (TimeSplit(), ROWS[:1], "of 1 pairs 1 are left"),
        (TimeSplit(9, 0.1), ROWS, "of 8 pairs 6 are left to fit on, and 0"),
        (TimeSplit(5, 0.2), ROWS, "leave nothing to fit on, of 8 pairs"),
        (LeaveLastOut(99), ROWS, r"LeaveLastOut\(n_last=99, n_splits=1\): of 8 pairs 8"),
        (LeaveLastOut(1, 9), ROWS, "of 8 pairs 2 are left to fit on, and 0"),
        (UserShareSplit(1, 1e-9, 0), ROWS, "of 8 pairs 8 are left"),
        *[(splitter, np.empty((0, 2), int), "0 pairs")
          for splitter in (TimeSplit(), LeaveLastOut(), UserShareSplit(random_state=0))],
    ],
)  # fmt: skip
def test_a_split_that_leaves_nobody_is_refused_with_the_numbers(splitter, rows, message):
    with pytest.raises(ValueError, match=message):
        list(splitter.split(rows))


@pytest.mark.parametrize("share", ["0.2", None, np.nan, 0, 1, True, [0.2]])
def test_a_share_is_a_number_between_0_and_1(share):
    with pytest.raises(ValueError, match=r"test_size=.*it is a share"):
        TimeSplit(test_size=share)


# Functions of users.


def in_place(counts):
    counts[:] = np.log1p(counts)
    return counts


def zeroed(counts):
    found = np.log1p(counts)
    counts[:] = 0
    return found


CLICKS = np.arange(len(PAIRS)) % 7 + 1.0


@pytest.mark.parametrize(
    "confidence",
    [in_place, zeroed, lambda c: np.log1p(c).tolist(), lambda c: pd.Series(np.log1p(c))],
)
def test_functions_may_change_what_they_are_given(confidence):
    clicks = make(unobserved_weight=0.1, confidence=np.log1p)
    expected = bits(clicks.fit(PAIRS, CLICKS))
    vectors = clicks.transform(PAIRS, CLICKS)
    for X, y in ((PAIRS, CLICKS.copy()), (sparse.csr_array((CLICKS, PAIRS.T)), None)):
        before = X.copy(), None if y is None else y.copy()
        own = make(unobserved_weight=0.1, confidence=confidence).fit(X, y)
        if y is not None:
            assert bits(own) == expected
            np.testing.assert_array_equal(own.transform(X, y), vectors)
            np.testing.assert_array_equal(y, before[1])
        else:
            own.transform(X), own.recommend(X), own.score(X)
            assert (before[0] != X).nnz == 0


@pytest.mark.parametrize(
    ("confidence", "message"),
    [
        (lambda c: None, "confidence returned NoneType"),
        (lambda c: c[1:], r"confidence returned ndarray of shape \(\d+,\), not"),
        (lambda c: c[:, None], r"of shape \(\d+, 1\)"),
        (lambda c: 1.0, "confidence returned float"),
        (lambda c: sparse.csr_array(c[None]), "confidence returned csr_array"),
        (lambda c: (one for one in c), "confidence returned generator"),
        (lambda c: c * np.nan, "confidence holds nan in row 0"),
        (lambda c: -c, "confidence holds -1.0 in row 0"),
        (lambda c: c * 1e40, "confidence holds 1e.40 in row 0"),
        (lambda c: c * 1j, "confidence holds complex weights"),
        (lambda c: c.astype(str), "confidence holds a weight that is no number: .*'1.0'"),
        (lambda c: c.astype(str).astype(object), "confidence holds a weight that is no number"),
        (lambda c: np.full(c.size, None), "confidence holds a weight that is no number: None"),
        (lambda c: c.astype("M8[D]"), "confidence holds dates"),
        (lambda c: np.ma.array(c, mask=c > 3), "confidence has masked entries"),
        (lambda c: 0 * c, "all weights are 0, those of sample_weight or confidence"),
    ],
)
def test_results_that_cannot_be_used_are_refused(confidence, message):
    model = make(unobserved_weight=0.1, confidence=confidence)
    with pytest.raises(ValueError, match=message):
        model.fit(PAIRS, CLICKS)
    assert not hasattr(model, "components_")


@pytest.mark.parametrize(
    "form",
    [
        lambda y: y.astype(str),
        lambda y: y.astype(str).astype(object),
        lambda y: [str(y[0]), *y[1:]],
        lambda y: pl.Series(y.astype(str)),
        lambda y: pd.Categorical(y.astype(str)),
        lambda y: y.astype(object) * 1j,
    ],
)
def test_strings_are_no_numbers(form):
    with pytest.raises(ValueError, match="y holds a rating that is no number"):
        make().fit(PAIRS, form(RATINGS))
    with pytest.raises(ValueError, match="sample_weight holds a weight that is no number"):
        make().fit(PAIRS, RATINGS, sample_weight=form(RATINGS))
    exact = [Decimal(float(value)) for value in RATINGS]
    assert bits(make().fit(PAIRS, exact)) == bits(make().fit(PAIRS, RATINGS))


# Tables that are no matrices.

DAYS = pd.date_range("2024-01-01", periods=5)
LOG = pd.DataFrame(
    {"ts": DAYS, "user": ["a", None, "b", "c", None], "item": list("xyzxy"), "n": range(5)}
)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (LOG, r"column 'ts' of X holds Timestamp.*fit\(df\[\['user', 'item'\]\]"),
        (pl.from_pandas(LOG), "column 'ts' of X holds datetime"),
        (dd.from_pandas(LOG, npartitions=2), "column 'ts' of X holds"),
        (LOG[["n", "user", "ts"]], "column 'user' of X holds 'a'"),
        (LOG[["user", "item"]], "column 'user' of X holds 'a'.*; 2 of its 5 entries are missing"),
        (LOG[["user", "item"]][1:], "column 'user' of X holds 'b'.*; 2 of its 4 entries"),
        (LOG[["n", "n", "item", "n"]].set_axis(list("pqrs"), axis=1), "column 'r' of X holds 'x'"),
        (np.array([[1, 2, 3, "4"]] * 3, object), "column 3 of X holds '4'"),
        (np.array([["1", "2", "3", "4"]] * 3), "column 0 of X holds .*'1'"),
        ([["1", "2", "3", "4"]] * 3, "column 0 of X holds .*'1'"),
        (np.zeros((3, 4), "M8[D]"), "column 0 of X holds .*1970"),
    ],
)
def test_the_column_that_holds_no_ratings_is_named(table, message):
    with pytest.raises(ValueError, match=message) as error:
        make().fit(table)
    assert "no entry is missing" not in str(error.value)


@pytest.mark.parametrize("use", ["transform", "predict", "score", "recommend", "partial_fit"])
def test_matrices_of_strings_are_refused_in_every_use(use):
    mf = make().fit(np.where(SEEN, 1.0 + np.arange(12), np.nan)[:, :4])
    with pytest.raises(ValueError, match="column 0 of X holds '1'"):
        getattr(mf, use)(np.array([["1", "2", "3", "4"]] * 3, object))


@pytest.mark.parametrize("use", ["fit", "transform", "predict", "score"])
@pytest.mark.parametrize(
    "X", [{(1, 2)}, {1: 2}, "ab", b"ab", ["ab"], [1, 2], [[1, 2], [3]], None, 3]
)
def test_what_is_no_table_is_refused_in_every_use(fitted, use, X):
    with pytest.raises(ValueError, match=r"^X is .*; pass a matrix of ratings .*, or pairs"):
        getattr(make() if use == "fit" else fitted, use)(X)


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_array, np.asarray, pd.DataFrame])
def test_the_place_of_a_rating_that_is_not_finite_is_named(form):
    nothing = np.nan if form in (np.asarray, pd.DataFrame) else 0.0
    X = np.where(SEEN, 3.0 + SEEN.cumsum(1), nothing)
    user, item = PAIRS[7]
    X[user, item] = np.inf
    with pytest.raises(
        ValueError, match=f"X holds the rating inf in row {user} and column {item},"
    ):
        make().fit(form(X))
    with pytest.raises(ValueError, match="y holds the rating inf in row 7,"):
        make().fit(PAIRS, X[SEEN])


@pytest.mark.parametrize("side", ["n_users", "n_items"])
def test_a_size_that_is_not_that_of_the_matrix_is_refused(side):
    X = np.where(SEEN, 3.0 + SEEN.cumsum(1), np.nan)
    with pytest.raises(ValueError, match=rf"{side}=99 is for pairs .* matrix of (30|12)"):
        make(**{side: 99}).fit(X)
    assert bits(make(n_users=30, n_items=12).fit(X)) == bits(make().fit(X))


# Neighbours.


@pytest.mark.parametrize("alpha", ["auto", 0.0])
@pytest.mark.parametrize("kind", [{"confidence": np.log1p}, {}])
def test_what_is_zero_but_for_rounding_is_nobodys_neighbour(alpha, kind):
    """Nobody clicked on items 3 and 4: the best vector is zero, whatever its last bits are."""
    clicks = np.where(np.isin(PAIRS[:, 1], [3, 4]), 0.0, 1.0)
    mf = make(n_components=4, alpha=alpha, unobserved_weight=0.1, max_iter=30, **kind)
    mf.fit(PAIRS, clicks)
    assert np.linalg.norm(mf.components_[:, [3, 4]]) < 1e-6
    similar, cosines = mf.similar_items(range(12), 11)
    assert (similar[[3, 4]] == -1).all() and not np.isin(similar, [3, 4]).any()
    others = np.delete(np.arange(12), [3, 4])
    expected = -np.sort(-cosine_similarity(mf.components_.T[others]), axis=1)[:, 1:]
    np.testing.assert_allclose(cosines[others, :9], expected, atol=1e-5)


def test_without_a_penalty_few_ratings_do_not_say_where_a_vector_points():
    """As many ratings as entries are solved exactly by vectors in many directions."""
    few = np.arange(3)
    kept = (PAIRS[:, 1] != 5) | np.isin(PAIRS[:, 0], np.flatnonzero(SEEN[:, 5])[few])
    given = PAIRS[kept], RATINGS[kept]
    free, held = (
        make(solver="ccd", n_components=4, alpha=alpha).fit(*given) for alpha in (0.0, 0.1)
    )
    assert (free.similar_items([5], 11)[0] == -1).all()
    assert not (free.similar_items(range(12), 11)[0] == 5).any()
    assert (held.similar_items([5], 11)[0] >= 0).all()
