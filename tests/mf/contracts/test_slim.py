"""The item model for users: inputs, ids, recommendations, refusals, the same bits everywhere."""

import os
import pickle

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from callbacks import AfterSweeps
from checkpoints import fitted_in_spite_of_deaths, left_by
from clusters import Killer
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from schmp_estimators import DistributedSLIM, ranking
from schmp_estimators.exceptions import (
    CheckpointMismatchError,
    DuplicateRatingError,
    SpillWarning,
)
from schmp_estimators.mf import slim as module

RNG = np.random.default_rng(0)
CLICKS = sp.csr_array((RNG.random((90, 30)) < 0.5 / np.arange(1, 31) ** 0.5).astype(float))
PAIRS = np.argwhere(CLICKS.toarray() > 0)
ONES = np.ones(len(PAIRS))
NAMES = np.array([f"item {i:02}" for i in range(30)])
BY_NAME = pd.DataFrame({"user": PAIRS[:, 0], "item": PAIRS[:, 1]})


def make(**params):
    return DistributedSLIM(**{"l1_reg": 0.5, "l2_reg": 3.0, **params})


@pytest.fixture(scope="module")
def fitted():
    return make().fit(CLICKS)


@pytest.fixture
def many_portions(monkeypatch):
    monkeypatch.setattr(module, "_PORTION", 500)
    monkeypatch.setattr(module, "_SHARDS", 4)


def same(found, expected):
    """Whether two models have the same bits."""
    arrays = [
        (one.coef_.indptr, one.coef_.indices, one.coef_.data, one.dual_gap_, one.n_iter_)
        for one in (found, expected)
    ]
    return all(a.tobytes() == b.tobytes() for a, b in zip(*arrays, strict=True))


INPUTS = {
    "dense": lambda: (CLICKS.toarray(), None),
    "missing": lambda: (np.where(CLICKS.toarray() > 0, 1.0, np.nan), None),
    "csc": lambda: (CLICKS.tocsc(), None),
    "int8": lambda: (CLICKS.astype(np.int8), None),
    "pairs": lambda: (PAIRS, ONES),
    "shuffled pairs": lambda: (PAIRS[::-1], ONES),
    "frame": lambda: (BY_NAME, ONES),
    "zeros": lambda: (
        np.r_[PAIRS, np.argwhere(CLICKS.toarray() == 0)[:7]],
        np.r_[ONES, np.zeros(7)],
    ),
    "dask": lambda: (da.from_array(CLICKS.toarray(), chunks=(40, 30)), None),
    "dask pairs": lambda: (da.from_array(PAIRS, chunks=(99, 2)), da.from_array(ONES, chunks=99)),
}


@pytest.mark.covering
@pytest.mark.parametrize("name", INPUTS)
def test_all_inputs_give_the_same_bits(fitted, name, in_place):
    assert same(make().fit(*INPUTS[name]()), fitted)


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_threads_and_portions_change_nothing(fitted, many_portions, n_jobs):
    found = make(n_jobs=n_jobs).fit(CLICKS)
    assert same(found, fitted)
    assert [one["samples"] for one in found.history_] == sorted(
        one["samples"] for one in found.history_
    )
    assert found.history_[-1]["samples"] == 30
    assert found.history_[-1]["coefficients"] == found.coef_.nnz
    assert len(found.history_) > 3
    gaps, at_zero = [one["dual_gap"] for one in found.history_], CLICKS.sum() / 2
    assert gaps == sorted(gaps, reverse=True) and gaps[0] > 0.5
    assert gaps[-1] == pytest.approx(found.dual_gap_.sum() / at_zero, rel=1e-6)


def test_a_fit_that_dies_goes_on_from_its_checkpoint(fitted, many_portions, tmp_path):
    path = str(tmp_path / "kept")

    def fit():
        return make(checkpoint=path, checkpoint_every=2).fit(CLICKS)

    found, deaths = fitted_in_spite_of_deaths(fit)
    assert len(deaths) > 1
    assert same(found, fitted)
    assert same(fit(), fitted)  # all is in the file
    for change in (
        {"l2_reg": 4.0},
        {"user_weight": 0.5},
        {"max_neighbors": 3},
        {"confidence": np.log1p},
    ):
        with pytest.raises(CheckpointMismatchError, match=r"belongs to another fit|other data"):
            make(checkpoint=path, **change).fit(CLICKS)
    with pytest.raises(CheckpointMismatchError, match="data"):
        make(checkpoint=path).fit(CLICKS[::-1])
    with pytest.raises(ValueError, match="checkpoint needs a fit that starts anew"):
        make(checkpoint=path).fit(CLICKS).partial_fit(CLICKS)


def files_in(folder):
    """Return how many files of a folder this process maps; they have no names any more."""
    with open("/proc/self/maps") as maps:
        return len({line.split()[4] for line in maps if f"{folder}{os.sep}" in line})


def files_of_worker(dask_worker):
    return files_in(dask_worker.local_directory)


@pytest.fixture
def large(many_portions, monkeypatch):
    """Clicks whose arrays are beyond the limit that is set in this process."""
    monkeypatch.setattr(module, "_SMALL", 1 << 16)
    return sp.csr_array((np.random.default_rng(1).random((3000, 30)) < 0.3).astype(float))


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="asks the system for maps")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_what_is_beyond_the_limit_is_in_files_while_the_fit_lasts(large, n_jobs, tmp_path):
    expected, seen = make().fit(large), []
    look = AfterSweeps(lambda estimator, context: seen.append(files_in(tmp_path)))
    config = {"temporary-directory": str(tmp_path), "schmp-estimators.memory-limit": 1}
    with dask.config.set(config), pytest.warns(SpillWarning, match=f"GiB.*{tmp_path}"):
        found = make(n_jobs=n_jobs).set_callbacks(look).fit(large)
    assert same(found, expected)
    assert set(seen) == {1}
    assert files_in(tmp_path) == 0
    assert not list(tmp_path.iterdir())
    with dask.config.set(config | {"schmp-estimators.memory-limit": "1 TB"}):
        assert same(make().fit(large), expected)


@pytest.mark.slow
def test_each_worker_has_one_file_of_what_is_beyond_its_limit(large, processes, monkeypatch):
    expected, seen = make().fit(large), []

    def look(estimator, context):
        seen.extend(processes.run(files_of_worker).values())

    monkeypatch.setattr(module, "memory_of_workers", lambda place: [1 << 40, 1])
    with processes.as_current(), pytest.warns(SpillWarning, match="local_directory"):
        found = make().set_callbacks(AfterSweeps(look)).fit(large)
    assert same(found, expected)
    assert set(seen) == {1}
    assert set(processes.run(files_of_worker).values()) == {0}


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(fitted, many_portions, processes, snapshots):
    killer = Killer(processes, at=1)
    with processes.as_current():
        found = make().set_callbacks(killer).fit(CLICKS)
    assert killer.killed
    assert same(found, fitted)


def test_callbacks_see_the_model_grow_and_may_end_the_fit(many_portions):
    seen = []

    def look(estimator, context):
        seen.append(estimator.history_[-1]["coefficients"])
        return len(seen) == 3

    found = make().set_callbacks(AfterSweeps(look)).fit(CLICKS)
    assert seen == sorted(seen)
    assert found.coef_.nnz == seen[-1] > seen[0]
    unsolved = found.n_iter_ == 0
    assert unsolved.any()
    squares = CLICKS.power(2).sum(axis=0)
    np.testing.assert_array_equal(found.dual_gap_[unsolved], squares[unsolved] / 2)


def scores_of(model, rows):
    return rows.toarray() @ model.coef_.toarray().astype(float)


def test_recommendations_are_the_best_scores_of_items_not_taken(fitted):
    scores = np.where(CLICKS.toarray() > 0, -np.inf, scores_of(fitted, CLICKS))
    users = [3, 80, 3, 11]
    items, found = fitted.recommend(users, 5)
    np.testing.assert_array_equal(items, np.argsort(-scores[users], axis=1, kind="stable")[:, :5])
    np.testing.assert_allclose(found, np.take_along_axis(scores[users], items, 1), rtol=1e-6)
    np.testing.assert_array_equal(fitted.recommend(CLICKS[users], 5)[0], items)
    every, _ = fitted.recommend(users, 30, exclude=None)
    assert (np.sort(every, axis=1) == np.arange(30)).all()
    assert set(fitted.recommend([3], 30)[0][0]) == {-1, *np.flatnonzero(CLICKS[[3]].toarray() == 0)}
    with pytest.warns(UserWarning, match="items holds 1 ids of items that were in no fit.*: 999$"):
        some, _ = fitted.recommend(users, 2, items=[29, 28, 999])
    assert np.isin(some, [-1, 28, 29]).all()


def test_who_is_not_known_gets_what_suits_all(fitted):
    usual = np.argsort(-scores_of(fitted, CLICKS).mean(axis=0), kind="stable")[:4]
    for users in ([10**6], sp.csr_array((1, 30))):
        items, scores = fitted.recommend(users, 4)
        np.testing.assert_array_equal(items[0], usual)
        assert (scores > 0).all()


def test_a_click_that_speaks_for_nothing_is_as_good_as_none():
    alone = np.zeros((91, 31))
    alone[:90, :30] = CLICKS.toarray()
    alone[90, 30] = 1  # nobody else took this item, and its user took no other
    model = make().fit(alone)
    np.testing.assert_array_equal(model.recommend([90], 4)[0], model.recommend([10**6], 4)[0])
    assert (model.similar_items([30], 3)[0] == -1).all()


def test_items_are_excluded_by_ids_or_pairs(fitted):
    before, _ = fitted.recommend([3, 4], 30, exclude=None)
    items, _ = fitted.recommend([3, 4], 28, exclude=[before[0, 0], 12, 999])
    assert not np.isin(items, [before[0, 0], 12]).any()
    pairs = [[3, before[0, 0]], [4, before[1, 1]], [999, 1], [3, 999]]
    items, _ = fitted.recommend([4, 3], 29, exclude=pairs)
    assert items[0].tolist() == [*before[1, :1], *before[1, 2:]]
    assert items[1].tolist() == [*before[0, 1:]]
    with pytest.raises(
        ValueError, match=r"exclude is of type list, .* pairs of ids of known users"
    ):
        fitted.recommend(CLICKS[:2], exclude=pairs)


def test_similar_items_are_those_a_click_speaks_for(fitted):
    rows = fitted.coef_.toarray()
    with pytest.warns(UserWarning, match="999"):
        items, scores = fitted.similar_items([5, 999], 30)
    order = np.argsort(-rows[5], kind="stable")
    n_spoken = np.count_nonzero(rows[5])
    np.testing.assert_array_equal(items[0, :n_spoken], order[:n_spoken])
    np.testing.assert_allclose(scores[0, :n_spoken], rows[5][order[:n_spoken]])
    assert (items[0, n_spoken:] == -1).all()
    assert (items[1] == -1).all()
    assert (scores[1] == -np.inf).all()


def test_an_explanation_adds_up_to_the_score(fitted):
    [[best]], [[score]] = fitted.recommend([7], 1)
    for user in (7, CLICKS[[7]]):
        items, parts = fitted.explain(user, best, 30)
        assert set(items) <= set(CLICKS[[7]].indices)
        assert (np.diff(parts) <= 0).all()
        np.testing.assert_allclose(parts.sum(), score, rtol=1e-6)
    assert fitted.explain(7, best, 2)[0].tolist() == items[:2].tolist()


def test_predictions_are_scores(fitted):
    scores = scores_of(fitted, CLICKS)
    np.testing.assert_allclose(fitted.predict(CLICKS.toarray()), scores, rtol=1e-6)
    of_pairs = make().fit(PAIRS, ONES)
    asked = np.array([[3, 4], [80, 29], [999, 1], [1, 999]])
    expected = [scores[3, 4], scores[80, 29], 0, 0]
    np.testing.assert_allclose(of_pairs.predict(asked), expected, rtol=1e-6)
    lazy = of_pairs.predict(da.from_array(asked, chunks=(3, 2)))
    np.testing.assert_array_equal(lazy.compute(), of_pairs.predict(asked))
    with pytest.raises(ValueError, match="not a sparse one, whose scores are X @ coef_"):
        fitted.predict(CLICKS)


def test_it_is_judged_searched_and_pickled_as_other_models():
    named = np.column_stack([NAMES[PAIRS[:, 0] % 30] + "u", NAMES[PAIRS[:, 1]]])
    named[:, 0] = [f"user {u}" for u in PAIRS[:, 0]]
    search = GridSearchCV(
        make(), {"l2_reg": [1.0, 30.0]}, cv=3, scoring=ranking.RankingScorer(), error_score="raise"
    )
    search.fit(named, ONES)
    best = search.best_estimator_
    assert 0 < search.best_score_ < 1
    loaded = pickle.loads(pickle.dumps(best))
    assert left_by(loaded) == left_by(best)
    users = ["user 3", "user 70"]
    np.testing.assert_array_equal(loaded.recommend(users, 3)[0], best.recommend(users, 3)[0])
    assert same(clone(best).fit(named, ONES), best)


def test_without_clicks_it_serves_users_whose_clicks_are_given(fitted):
    smaller = fitted.without_clicks()
    assert len(pickle.dumps(smaller)) < len(pickle.dumps(fitted))
    np.testing.assert_array_equal(smaller.recommend(CLICKS[:9])[0], fitted.recommend(range(9))[0])
    for asks in (
        lambda: smaller.recommend([1]),
        lambda: smaller.explain(1, 2),
        lambda: smaller.partial_fit(CLICKS),
    ):
        with pytest.raises(ValueError, match=r"without|has none"):
            asks()
    assert fitted.clicks_ is not None


def test_new_items_end_the_names_of_columns():
    names = [f"item {number}" for number in range(30)]
    model = make().fit(pd.DataFrame(CLICKS.toarray(), columns=names))
    assert model.feature_names_in_.tolist() == names
    model.partial_fit([[3, 30]], [1])
    assert model.n_features_in_ == 31
    assert not hasattr(model, "feature_names_in_")


def test_new_users_and_items_are_appended():
    first = PAIRS[PAIRS[:, 1] < 25]
    model = make(tol=1e-6).fit(first, np.ones(len(first)))
    more = np.r_[PAIRS[PAIRS[:, 1] >= 25], [[500, 3], [500, 29]]]
    model.partial_fit(more, np.ones(len(more)))
    every = make(tol=1e-6).fit(np.r_[first, more], np.ones(len(first) + len(more)))
    order = np.argsort(model.item_ids_)
    np.testing.assert_allclose(
        model.coef_.toarray()[order][:, order], every.coef_.toarray(), atol=2e-3
    )
    assert model.user_ids_[-1] == 500
    assert (model.recommend([500], 3)[0] == every.recommend([500], 3)[0]).all()


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: make(l1_reg=0, l2_reg=0).fit(CLICKS), "l1_reg and l2_reg are both 0"),
        (lambda: make().fit(PAIRS, -ONES), "Negative values in data .* -1 is no click"),
        (lambda: make().fit(PAIRS, 0 * ONES), "no value is above 0"),
        (lambda: make(tol=1e-9).fit(CLICKS), "'tol' parameter"),
        (lambda: make(confidence=np.negative).fit(CLICKS), "confidence holds -1"),
        (lambda: make(confidence=np.zeros_like).fit(CLICKS), "confidence is 0 for all clicks"),
        (lambda: make(n_items=4).fit(PAIRS, ONES), "item 29, but n_items=4"),
        (lambda: make().fit(CLICKS).recommend(-CLICKS), "Negative values in data"),
        (lambda: make().fit(CLICKS).explain(999, 1), "user=999 is not among the users"),
        (lambda: make().fit(CLICKS).explain(1, 999), "item=999 is not among the items"),
        (lambda: make().fit(CLICKS).explain(CLICKS[:2], 1), "user has 2 rows"),
        (lambda: make().fit(CLICKS).partial_fit(CLICKS[:, :9]), "30 features"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_name(fit, message):
    with pytest.raises(ValueError, match=message):
        fit()


def test_what_fails_leaves_the_model_as_it_was(fitted):
    model = make().fit(CLICKS)
    with pytest.raises(TypeError, match="sample_weight; weights of clicks are their values y"):
        model.fit(CLICKS, sample_weight=ONES)
    with pytest.raises(DuplicateRatingError):
        model.partial_fit(np.r_[PAIRS[:3], PAIRS[:1]], np.ones(4))
    assert same(model, fitted)


def test_columns_that_are_not_solved_are_counted():
    with pytest.warns(ConvergenceWarning, match=r"\d+ of 30 columns are not within tol=1e-06"):
        model = make(max_iter=1, tol=1e-6).fit(CLICKS)
    assert (model.n_iter_ <= 1).all()
    assert (model.dual_gap_ > 0).any()


def test_zeros_of_a_dense_matrix_are_no_clicks_anywhere():
    dense = (np.random.default_rng(0).random((80, 20)) < 0.2).astype(np.int64)
    slim = DistributedSLIM(l2_reg=5.0).fit(dense)
    rows = sp.csr_array(dense)
    np.testing.assert_array_equal(slim.recommend(dense, 3)[0], slim.recommend(rows, 3)[0])
    assert slim.score(dense) == slim.score(rows)


def test_matrices_of_the_user_stay_as_they_are():
    slim = DistributedSLIM(l2_reg=5.0).fit(np.eye(10) + np.ones((10, 10)) * (np.arange(10) < 4))
    given = np.array([10.0, 20.0]), np.array([7, 2]), np.array([0, 2])
    exclude = sp.csr_array(given, (1, 10))
    before = exclude.toarray()
    slim.recommend([0], 3, exclude=exclude)
    np.testing.assert_array_equal(exclude.toarray(), before)
