"""Ratings on Dask, in every form in which they may come.

The same bits as in memory, and nothing gathered.
"""

import warnings
from functools import partial

import dask
import dask.array as da
import dask.dataframe as dd
import input_cases
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from clusters import keys_left
from covering import slow_but
from mf_cases import bits, stored

from schmp_estimators import ModelParallelMF
from schmp_estimators.core.engine.static import GroupRun

N_USERS, N_ITEMS = 40, 12
generator = np.random.default_rng(0)
OBSERVED = generator.random((N_USERS, N_ITEMS)) < 0.5
OBSERVED[5], OBSERVED[-1, -1] = (
    False,
    True,
)  # a user without ratings; ids reach the end of both ranges
DENSE = np.where(OBSERVED, generator.integers(1, 6, OBSERVED.shape), np.nan).astype(np.float32)
PAIRS, VALUES = np.argwhere(OBSERVED), DENSE[OBSERVED]
WIDE = pd.DataFrame(DENSE, columns=[f"item{i}" for i in range(N_ITEMS)])
PAIR_NAMES = ["user", "item"]
LONG = pd.DataFrame({"user": PAIRS[:, 0], "item": PAIRS[:, 1], "rating": VALUES})


def masked(dtype):
    return np.ma.masked_array(np.nan_to_num(DENSE).astype(dtype), ~OBSERVED)


rows = partial(input_cases.chunked, DENSE)


def long_frame(npartitions=4):
    return dd.from_pandas(LONG, npartitions=npartitions)


MATRICES = {
    "csc": lambda: (sp.csc_matrix(stored(DENSE)),),
    "coo": lambda: (stored(DENSE).tocoo(),),
    "masked in memory": lambda: (masked(np.float64),),
    "dense": lambda: (rows(7),),
    "dense, columns divided": lambda: (rows(11, 5),),
    "dense, unknown lengths": lambda: (rows(9, has_sizes=False),),
    "sparse": lambda: (rows(13).map_blocks(stored, dtype=np.float32, meta=sp.csr_array((1, 1))),),
    "sparse, columns divided": lambda: (
        rows(13, 5).map_blocks(stored, dtype=np.float32, meta=sp.csr_array((1, 1))),
    ),
    "wide frame": lambda: (dd.from_pandas(WIDE, npartitions=3),),
    "masked": lambda: (da.from_array(masked(np.float64), chunks=(9, 5)),),
    "masked integers, which is told by no dtype": lambda: (
        da.from_array(masked(np.int8).filled(0), chunks=(9, 5)).map_blocks(
            np.ma.masked_equal, 0, dtype=np.int8, meta=np.empty((0, 0), np.int8)
        ),
    ),
    "delayed": lambda: ([dask.delayed(stored)(DENSE[:20]), dask.delayed(np.copy)(DENSE[20:])],),
}
LISTS = {
    "frame in memory": lambda: (LONG[PAIR_NAMES], LONG["rating"]),
    "small integers in another order": lambda: (
        PAIRS[::-1].astype(np.uint16),
        VALUES[::-1].astype(np.int8),
    ),
    "arrays": lambda: (da.from_array(PAIRS, chunks=(50, 2)), da.from_array(VALUES, chunks=50)),
    "arrays, chunked apart": lambda: (
        da.from_array(PAIRS, chunks=(50, 1)),
        da.from_array(VALUES, chunks=33),
    ),
    "arrays, 32 bits": lambda: (
        da.from_array(PAIRS.astype(np.int32), chunks=60),
        da.from_array(VALUES, chunks=60),
    ),
    "ratings in memory": lambda: (da.from_array(PAIRS, chunks=(50, 2)), VALUES),
    "pairs in memory": lambda: (PAIRS, da.from_array(VALUES, chunks=50)),
    "frame and series": lambda: (long_frame()[PAIR_NAMES], long_frame()["rating"]),
    "frame and frame": lambda: (long_frame()[PAIR_NAMES], long_frame()[["rating"]]),
    "frame with lengths": lambda: (long_frame()[PAIR_NAMES].to_dask_array(lengths=True), VALUES),
    "a frame with an empty partition": lambda: (with_empty()[PAIR_NAMES], with_empty()["rating"]),
}


def with_empty():
    parts = [LONG.iloc[:0], LONG.iloc[:60], LONG.iloc[60:60], LONG.iloc[60:]]
    return dd.from_map(lambda part: part, parts, meta=LONG.iloc[:0])


KINDS = [
    {"solver": "sgd"},
    {"solver": "sgd", "schedule": "bsp"},
    {"solver": "ccd", "early_stopping": True},
    {"solver": "ccd", "unobserved_weight": 0.2},
    {"loss": "logistic"},
    {"loss": "bpr"},
]


make = partial(ModelParallelMF, n_components=3, n_shards=3, max_iter=3, tol=0.0, random_state=0)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of pandas to Dask
def test_columns_of_small_files_come_together(tmp_path):
    """Dask reads the pairs of such files in other partitions than their ratings."""
    for number, part in enumerate(np.array_split(np.arange(len(LONG)), 6)):
        LONG.iloc[part].assign(text="t" * 20, number=number).to_parquet(
            tmp_path / f"{number}.parquet", index=False
        )
    frame = dd.read_parquet(tmp_path)
    assert len(frame["rating"].to_delayed()) < len(frame[PAIR_NAMES].to_delayed())
    weights = {"sample_weight": frame["rating"]}
    for kind, options in (({"solver": "sgd"}, {}), ({"solver": "ccd"}, weights)):
        expected = make(**kind).fit(
            LONG[PAIR_NAMES], LONG["rating"], **dict.fromkeys(options, LONG["rating"])
        )
        assert bits(make(**kind).fit(frame[PAIR_NAMES], frame["rating"], **options)) == bits(
            expected
        )


@pytest.mark.covering
# Every other one with each change, all of them in the slow lane.
@pytest.mark.parametrize(
    "form", slow_but([*[*MATRICES][1::2], *[*LISTS][1::2]], [*MATRICES, *LISTS])
)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_form_gives_the_same_bits(in_place, form, kind):
    given = {**MATRICES, **LISTS}[form]()
    sizes = {"n_users": N_USERS} if form in LISTS else {}  # one has no ratings
    fitted = make(**kind, **sizes, n_jobs=2).fit(*given)
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        assert bits(fitted) == bits(make(**kind).fit(sp.csr_array(stored(DENSE))))
    assert fitted.n_features_in_ == (2 if form in LISTS else N_ITEMS)
    framed = (
        "frame in memory",
        "frame and series",
        "frame and frame",
        "a frame with an empty partition",
    )
    of_frames = dict.fromkeys(framed, PAIR_NAMES)
    names = {"wide frame": list(WIDE.columns)} | of_frames
    assert list(getattr(fitted, "feature_names_in_", [])) == names.get(form, [])


@pytest.mark.covering
@pytest.mark.parametrize("form", MATRICES)
def test_every_matrix_is_folded_in(in_place, form):
    told = WIDE if form == "wide frame" else DENSE  # names of items must match
    fitted, [given] = make().fit(told), MATRICES[form]()
    folded = fitted.transform(given)
    values = (
        np.concatenate(dask.compute(*folded))
        if isinstance(folded, list)
        else dask.compute(folded)[0]
    )
    np.testing.assert_array_equal(values, fitted.transform(told))


def chunked(pairs=PAIRS, values=VALUES):
    return da.from_array(pairs, chunks=(50, 2)), da.from_array(values, chunks=50)


NAMED = pd.DataFrame({"a": ["x", "y"], "b": ["u", "v"]})
BAD = {
    "infinite": (
        lambda: (da.from_array(np.where(OBSERVED, np.inf, np.nan), chunks=(9, 12)),),
        "rating inf",
    ),
    "not a number": (
        lambda: chunked(values=np.where(VALUES > 4, np.nan, VALUES)),
        "y holds the rating nan",
    ),
    "masked ids in memory": (
        lambda: (np.ma.masked_equal(PAIRS, 3), VALUES),
        "is missing. Drop these rows",
    ),
    "masked ratings in memory": (
        lambda: (chunked()[0], np.ma.masked_equal(VALUES, 4)),
        "y has masked entries",
    ),
    "negative": (
        lambda: chunked(PAIRS - [0, 1]),
        "the item -1 in row .*, which is negative; ids count from 0",
    ),
    "too short": (lambda: chunked(values=VALUES[:-1]), r"inconsistent numbers of samples: \["),
    "frames of other partitions": (
        lambda: (long_frame(4)[PAIR_NAMES], long_frame(3)["rating"]),
        "X has 4 partitions and y 3, of unknown lengths; take both from one",
    ),
    "frames of other lengths": (
        lambda: (
            long_frame(4)[PAIR_NAMES],
            dd.from_pandas(LONG.iloc[:-9], npartitions=4)["rating"],
        ),
        "the same partitions if their lengths are not known",
    ),
    "twice": (lambda: chunked(PAIRS[[0, 1, 0]], VALUES[:3]), "user 0 rated item .* more than once"),
    "nothing": (lambda: (da.full((9, 3), np.nan, chunks=(4, 3)),), "no ratings to fit"),
    "text": (
        lambda: (dd.from_pandas(NAMED, npartitions=1),),
        "the column 'a' of X holds .*, which is no rating",
    ),
}


@pytest.mark.covering
@pytest.mark.parametrize("kind", BAD)
def test_bad_ratings_are_refused_before_work(in_place, kind):
    (given, message), estimator = BAD[kind], make()
    with pytest.raises(ValueError, match=message):
        estimator.fit(*given())
    assert not hasattr(estimator, "components_") and not hasattr(estimator, "history_")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64, object])
def test_masked_entries_of_a_matrix_are_missing(dtype):
    X, expected = masked(dtype), make().fit(DENSE)
    for given in (X, list(X)):
        assert bits(make().fit(given)) == bits(expected)
    assert bits(make().partial_fit(X[:9])) == bits(make().partial_fit(DENSE[:9]))
    for method in ("transform", "predict", "score"):
        np.testing.assert_array_equal(
            getattr(expected, method)(X), getattr(expected, method)(DENSE)
        )


def test_masks_of_what_is_no_matrix_are_refused():
    fitted, clicks = make().fit(PAIRS, VALUES), make(solver="ccd", unobserved_weight=0.1)
    ratings = np.ma.masked_equal(VALUES, 4)
    for name, attempt in (
        ("y", lambda: fitted.score(PAIRS, ratings)),
        ("y", lambda: fitted.score(PAIRS, da.from_array(ratings, chunks=50))),
        ("sample_weight", lambda: clicks.fit(PAIRS, np.ones(len(PAIRS)), sample_weight=ratings)),
        ("users", lambda: fitted.recommend(np.ma.masked_equal(np.arange(3), 1))),
        ("pairs holds the user nan", lambda: fitted.predict(np.ma.masked_equal(PAIRS, 3))),
    ):
        with pytest.raises(ValueError, match=f"^{name}"):
            attempt()


def test_lists_of_pairs_need_no_names():
    frame = pd.DataFrame(
        {"user": ["ada", "bob", "ada", "cy"], "item": ["Emma", "Dune", "Dune", "Emma"]}
    )
    ratings = [5.0, 3.0, 4.0, 1.0]
    mf = ModelParallelMF(2, max_iter=2, random_state=0).fit(frame, ratings)
    pairs = frame.to_numpy().tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(mf.predict(pairs), mf.predict(frame))
        np.testing.assert_array_equal(mf.transform(pairs), mf.transform(frame))
        assert mf.score(pairs, ratings) == mf.score(frame, ratings)
        mf.to_matrix(pairs, ratings)


# Shards that workers make, and fits that workers find to have converged.


large = partial(ModelParallelMF, n_components=9, max_iter=8, tol=0.0, n_shards=4, random_state=0)


@pytest.fixture(scope="module")
def ratings():
    generator = np.random.default_rng(0)
    observed = np.argwhere(generator.random((200, 90)) < 0.3)
    return observed, generator.integers(1, 6, len(observed)).astype(np.float32)


@pytest.mark.parametrize(
    "parameters", [{"solver": "sgd"}, {"solver": "ccd", "early_stopping": True}]
)
def test_workers_make_the_shards_of_ratings_in_memory(client, ratings, parameters):
    """What the client does not make itself it hears of.

    Who has rated what, and which rating is given twice.
    """
    pairs, values = ratings
    expected = large(**parameters).fit(pairs, values)
    with client.as_current():
        found = large(**parameters).fit(pairs, values)
        assert bits(found) == bits(expected)
        np.testing.assert_array_equal(found.recommend([0, 7])[0], expected.recommend([0, 7])[0])
        twice = np.vstack([pairs, pairs[5:6]]), np.append(values, 3)
        before = dict(vars(found))
        with pytest.raises(
            ValueError, match=f"user {pairs[5, 0]} rated item {pairs[5, 1]} more than once"
        ):
            found.fit(*twice)
        assert vars(found).keys() == before.keys()
        assert found.history_ == before["history_"]
        named = np.char.add("n", pairs.astype(str))
        with pytest.raises(
            ValueError, match=f"user n{pairs[5, 0]} rated item n{pairs[5, 1]} more than once"
        ):
            large(**parameters).fit(np.vstack([named, named[5:6]]), twice[1])
    assert client.nthreads()
    assert keys_left(client) == []


@pytest.mark.parametrize(
    "parameters",
    [
        {"solver": "sgd", "tol": 0.01},
        {"solver": "ccd", "tol": 0.02},
        {"solver": "ccd", "tol": 0.02, "unobserved_weight": 0.2},
        {"solver": "sgd", "tol": 0.02, "evaluate_every": 3},
        {"solver": "sgd", "tol": 1e-9, "max_iter": 12},
        {"solver": "ccd", "tol": 0.99},  # ends with the first record of the second batch
    ],
)
def test_workers_find_that_a_fit_has_converged(client, ratings, parameters, monkeypatch):
    pairs, values = ratings
    parameters = {"max_iter": 60, **parameters}
    expected = large(**parameters).fit(pairs, values)
    lengths, work = [], GroupRun._work

    def noting(run, n_sweeps):
        lengths.append(n_sweeps)
        work(run, n_sweeps)

    monkeypatch.setattr(GroupRun, "_work", noting)
    monkeypatch.setattr(
        "schmp_estimators.core.engine.static.LONGEST_BATCH", 60.0
    )  # however slow the machine is
    with client.as_current():
        found = large(**parameters).fit(pairs, values)
    assert bits(found) == bits(expected)
    n_iter = expected.n_iter_
    assert found.n_iter_ == len(found.history_) == n_iter
    assert (n_iter == 12) == (parameters["max_iter"] == 12) and (n_iter == 2) == (
        parameters["tol"] == 0.99
    )
    assert len(lengths) <= 3 and sum(lengths) >= n_iter
