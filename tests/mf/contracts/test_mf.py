"""ModelParallelMF: what it promises beyond scikit-learn's checks."""

import pickle
from contextlib import nullcontext
from functools import partial

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from mf_cases import bits, planted, stored
from oracles import mf as oracle
from scipy.optimize import nnls
from sklearn.base import clone

from schmp_estimators import ModelParallelMF
from schmp_estimators.core.lanes import LANES
from schmp_estimators.mf.kernels import layout
from schmp_estimators.mf.kernels.registers import PASSES

N_USERS, N_ITEMS = 50, 40
SOLVERS = ["sgd", "ccd"]

model = partial(ModelParallelMF, n_components=4, random_state=0, max_iter=5, tol=0.0)


@pytest.fixture(scope="module")
def ratings():
    """Planted ratings as pairs, values, a sparse matrix and a dense one."""
    truth, observed = planted()
    observed[7], observed[:, 5] = False, False
    pairs = np.argwhere(observed)
    values = truth[observed].astype(np.float32)
    dense = np.where(observed, truth, np.nan).astype(np.float32)
    return pairs, values, sp.csr_array((values, pairs.T), shape=truth.shape), dense


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
def test_planted_structure_is_found(ratings, solver):
    pairs, values, _, _ = ratings
    fitted = model(solver=solver, alpha=0.001, max_iter=200).fit(pairs, values)
    assert fitted.score(pairs, values) > 0.99
    assert fitted.history_[-1]["running_rmse"] < 0.1 * values.std()


@pytest.mark.covering
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("n_components", [1, 5, 8, 19])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_shards", [1, 3])
def test_epochs_of_coordinate_descent_equal_brute_force_on_the_dense_matrix(
    ratings, n_components, positive, weighted, n_shards
):
    """The oracle goes on after the first epoch.

    At last residuals are still what the factors leave.
    """
    dense, known = ratings[3].astype(float), ~np.isnan(ratings[3])
    weights = (
        np.where(known, np.random.default_rng(3).integers(1, 4, dense.shape), 0)
        if weighted
        else known * 1.0
    )
    given = {
        "solver": "ccd",
        "fit_bias": False,
        "penalty": "per_row",
        "alpha": 0.7,
        "positive": positive,
    }
    given |= {"n_components": n_components, "n_shards": n_shards}
    mine = {"sample_weight": weights[known]} if weighted else {}
    start, found, last = (model(**given, max_iter=n).fit(ratings[3], **mine) for n in (1, 4, 40))
    unit = start.rating_scale_
    users, items = (
        (side / np.sqrt(unit)).astype(float) for side in (start.user_factors_, start.components_.T)
    )
    matrices, penalties = (
        (np.nan_to_num(dense / unit), weights),
        [0.7 * np.ones(len(side)) for side in (users, items)],
    )
    for record in found.history_[1:]:
        oracle.epoch(*matrices, users, items, penalties, LANES, PASSES, positive, by_chunk=True)
        expected = oracle.dense_objective(*matrices, users, items, *penalties)
        assert record["objective"] == pytest.approx(expected * unit**2, rel=1e-4)
    np.testing.assert_allclose(found.user_factors_, users * np.sqrt(unit), atol=1e-3)
    np.testing.assert_allclose(found.components_.T, items * np.sqrt(unit), atol=1e-3)
    loss = np.nansum(weights * (dense - last.user_factors_ @ last.components_) ** 2)
    assert last.history_[-1]["objective"] - last.history_[-1]["penalty"] == pytest.approx(
        loss, rel=1e-3
    )


@pytest.mark.parametrize("solver", SOLVERS)
def test_stored_zeros_are_ratings(solver):
    stored = sp.csr_array(
        (np.array([0.0, 0.0, 5.0, 5.0]), (np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])))
    )
    assert model(solver=solver).fit(stored).global_mean_ == 2.5


def test_predictions_are_those_of_the_attributes(ratings):
    pairs, _, matrix, _ = ratings
    fitted = model().fit(matrix)
    table = (
        fitted.user_factors_ @ fitted.components_ + fitted.user_bias_[:, None] + fitted.item_bias_
    )
    np.testing.assert_allclose(
        fitted.predict(pairs), table[tuple(pairs.T)] + fitted.global_mean_, atol=1e-5
    )


@pytest.mark.parametrize("solver", ["sgd", "ccd"])
def test_ids_without_ratings_and_unknown_ones_get_the_mean_and_the_other_bias(solver):
    pairs = np.array([[0, 0], [0, 2], [2, 0], [2, 2], [3, 2]])
    mf = ModelParallelMF(3, solver=solver, n_users=4, n_items=3, max_iter=5, random_state=0)
    mf.fit(pairs, [1.0, 2.0, 3.0, 4.0, 5.0])
    assert not mf.user_factors_[1].any()
    assert not mf.components_[:, 1].any()
    expected = np.array([mf.item_bias_[2], mf.user_bias_[3], 0.0]) + mf.global_mean_
    np.testing.assert_allclose(mf.predict([[1, 2], [3, 1], [1, 1]]), expected, rtol=1e-6)
    np.testing.assert_allclose(
        mf.predict([[99, 2], [3, 99], [99, 99]]), expected, rtol=1e-6
    )  # not known at all
    assert mf.recommend([999], 3)[0].shape == (1, 3)
    if solver == "sgd":  # "ccd" finds users from the items it had, and item 1 was nobody's
        assert mf.partial_fit(np.array([[1, 1], [0, 1]]), [5.0, 1.0]).user_factors_[1].any()


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"fit_bias": False},
        {"penalty": "per_row", "alpha": 2.0},
        {"penalty": 0.5, "alpha": 0.5},
        {"fit_bias": False, "positive": True},
    ],
)
def test_transform_is_the_ridge_solution(ratings, parameters):
    _, _, matrix, dense = ratings
    fitted = model(**parameters).fit(matrix)
    unit = fitted.rating_scale_
    assert unit == pytest.approx(matrix.data.std(), rel=1e-6)
    features = fitted.components_.T / np.sqrt(unit)
    if fitted.fit_bias:
        features = np.hstack([features, np.ones((N_ITEMS, 1))])
    solved = fitted.transform(dense)
    np.testing.assert_array_equal(solved, fitted.transform(matrix))
    for row, found in zip(dense, solved, strict=True):
        known = ~np.isnan(row)
        power = {"per_rating": 1, "per_row": 0}.get(fitted.penalty, fitted.penalty)
        weight = fitted.alpha_ * float(known.sum()) ** power
        left = (
            row[known].astype(float) - fitted.global_mean_ - fitted.item_bias_[known].astype(float)
        ) / unit
        gram = features[known].T @ features[known] + weight * np.eye(features.shape[1])
        expected = (
            np.linalg.solve(gram, features[known].T @ left)[:4] if known.any() else np.zeros(4)
        )
        if fitted.positive:
            stacked = np.vstack([features[known], np.sqrt(weight) * np.eye(4)])
            expected, _ = nnls(stacked, np.append(left, np.zeros(4)))
        exact = 1e-6 if fitted.positive else 1e-12
        np.testing.assert_allclose(found, expected * np.sqrt(unit), rtol=1e-10, atol=exact)
    assert not solved[7].any()


def expected_alpha(dense, penalty):
    """The formula of the user guide, by NumPy on the dense matrix."""
    table = dense.astype(float) - np.nanmean(dense.astype(float))
    known = ~np.isnan(table)
    table, free = (
        np.nan_to_num(table),
        1 - known.sum() / known.any(axis=1).sum() / known.any(axis=0).sum(),
    )
    n, (of_users, of_items) = known.sum(), (known.sum(axis=axis) for axis in (1, 0))
    n_users, n_items = (np.count_nonzero(side) for side in (of_users, of_items))
    squares = [
        np.sum(table.sum(axis=axis) ** 2 / np.maximum(known.sum(axis=axis), 1)) for axis in (1, 0)
    ]
    expected = [
        [n, n_users * free, n_users],
        [n_items * free, n, n_items],
        [n, n, n],
    ]  # of users, items and noise
    noise = np.linalg.solve(expected, [*squares, np.sum(table**2)])[2] / np.mean(table[known] ** 2)
    roots = np.sqrt([n / n_users, n / n_items])
    power = {"per_rating": 1, "per_row": 0}.get(penalty, penalty)
    return 0.55 * np.sqrt(noise) * roots.sum() / roots.prod() ** power


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("penalty", ["per_rating", "per_row", 0.5])
def test_alpha_follows_from_the_ratings(ratings, solver, penalty, place):
    pairs, values, _, dense = ratings
    fitted = model(solver=solver, penalty=penalty).fit(pairs, values)
    assert fitted.alpha == "auto" and fitted.alpha_ == pytest.approx(
        expected_alpha(dense, penalty), rel=1e-5
    )
    given = model(solver=solver, penalty=penalty, alpha=fitted.alpha_).fit(pairs, values)
    assert bits(given) == bits(fitted) and given.alpha_ == fitted.alpha_
    chunks = da.from_array(dense, chunks=(13, N_ITEMS))
    assert model(solver=solver, penalty=penalty).fit(chunks).alpha_ == fitted.alpha_
    fitted.partial_fit(pairs[:20] + np.array([N_USERS, 0]), values[:20])
    assert fitted.alpha_ == given.alpha_


def test_alpha_tells_noise_from_biases():
    generator = np.random.default_rng(1)
    biases = generator.normal(size=(60, 1)) + generator.normal(size=50)
    for share in (0.2, 0.7):
        dense = biases + share * generator.normal(size=biases.shape)
        noise = share / dense.std()
        found = model(max_iter=1).fit(dense).alpha_ / (0.55 * (60**-0.5 + 50**-0.5))
        assert found == pytest.approx(noise, rel=0.05)


def test_recommendations_leave_out_what_was_rated(ratings):
    _, _, matrix, dense = ratings
    fitted = model().fit(matrix)
    users = np.array([3, 0, 49])
    items, scores = fitted.recommend(users, 6)
    for user, chosen, score in zip(users, items, scores, strict=True):
        assert np.isnan(dense[user, chosen]).all()
        np.testing.assert_allclose(
            score, fitted.predict(np.column_stack([np.full(6, user), chosen])), atol=1e-5
        )
    anything, _ = fitted.recommend(users, N_ITEMS, exclude=None)
    assert (
        np.sort(anything, axis=1) == np.delete(np.arange(-1, N_ITEMS), 6)
    ).all()  # nobody has rated item 5
    np.testing.assert_array_equal(fitted.recommend(users, 6, exclude=matrix[users])[0], items)
    assert fitted.recommend([0], N_ITEMS + 5)[0][0, -1] == -1
    fitted.components_, fitted.item_bias_ = 0 * fitted.components_, 0 * fitted.item_bias_
    assert fitted.recommend([0], 6, exclude=None)[0].tolist() == [
        [0, 1, 2, 3, 4, 6]
    ]  # ties: lower numbers first


GAPS = np.array([3, 101, 205, 309, 412, 577, 640, 890])
CLICKS = {"solver": "ccd", "unobserved_weight": 0.1}
KINDS = [{}, {"solver": "ccd"}, {"fit_bias": False}, CLICKS, {"early_stopping": True}]


@pytest.mark.parametrize(
    "parameters", [{}, {"fit_bias": False}, {"unobserved_weight": 0.2}, {"positive": True}], ids=str
)
@pytest.mark.parametrize(
    "form", [np.asarray, lambda rows: sp.csr_array(np.nan_to_num(rows))], ids=["dense", "sparse"]
)
def test_new_users_get_the_best_predictions_of_their_rows(ratings, parameters, form):
    _, _, _, dense = ratings
    fitted = model(**parameters).fit(dense[:40])
    rows = dense[40:].copy()
    rows[3] = np.nan  # nothing is known of this one
    predicted = fitted.predict(rows)
    if "unobserved_weight" in parameters:
        predicted[3] = (
            fitted.predict(np.argwhere(np.ones((40, N_ITEMS)))).reshape(40, N_ITEMS).mean(0)
        )
    predicted[:, ~np.isfinite(dense[:40]).any(0)] = -np.inf
    open_pairs = np.where(np.isnan(rows), predicted, -np.inf)
    for exclude, among in (("fitted", open_pairs), (None, predicted)):
        items, scores = fitted.recommend(form(rows), 6, exclude=exclude)
        np.testing.assert_allclose(scores, -np.sort(-among, axis=1)[:, :6], rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(
            np.take_along_axis(among, items, 1), scores, rtol=2e-5, atol=2e-5
        )


def test_only_candidates_are_recommended(ratings):
    pairs, values, *_ = ratings
    fitted = model().fit(pairs, values)
    candidates = [3, 17, 5, 29, 31, 10**6]  # nobody has rated 5
    with pytest.warns(
        UserWarning, match="items holds 2 ids of items that were in no fit.*: 5, 1000000$"
    ):
        found, scores = fitted.recommend([0, 1, 999], N_ITEMS, items=candidates)
    every, all_scores = fitted.recommend([0, 1, 999], N_ITEMS)
    for row, (some, those) in enumerate(zip(every, all_scores, strict=True)):
        kept = np.isin(some, candidates)
        n = kept.sum()
        np.testing.assert_array_equal(found[row, :n], some[kept])
        np.testing.assert_array_equal(scores[row, :n], those[kept])
        assert (found[row, n:] == -1).all()
    with pytest.raises(ValueError, match="items must be a list or array of ids"):
        fitted.recommend([0], items=3)


@pytest.mark.covering
@pytest.mark.parametrize("form", ["pairs", "wide", "csr", "dense", "dask", "dask csr"])
@pytest.mark.parametrize("parameters", KINDS)
def test_only_what_occurs_is_recommended(parameters, form):
    """Numbers that leave gaps, columns without entries, room for more.

    These are rows of the factors that are nobody's.
    """
    generator = np.random.default_rng(1)
    pairs = np.array(
        [
            (7 * user, item)
            for user in range(1, 31)
            for item in generator.choice(GAPS, 5, replace=False)
        ]
    )
    values = generator.normal(size=150) - 2  # many are below the mean
    matrix = sp.csr_array((values, pairs.T), shape=(300, 1000))
    dense = np.where(matrix.toarray(), matrix.toarray(), np.nan)
    lazy = da.from_array(dense, chunks=(100, 1000))
    given = {
        "pairs": (pairs, values),
        "wide": (pairs, values),
        "csr": (matrix,),
        "dense": (dense,),
        "dask": (da.from_array(pairs, chunks=(40, 2)), values),
        "dask csr": (lazy.map_blocks(stored, dtype=float, meta=sp.csr_array((1, 1))),),
    }[form]
    sizes = {"n_users": 2000, "n_items": 1500} if form == "wide" else {}
    fitted = pickle.loads(pickle.dumps(model(**parameters, **sizes, n_shards=2).fit(*given)))
    _check_what_occurs(fitted, pairs, GAPS)
    more = np.array([[7, 950], [3, 960], [3, 101]])
    fitted.partial_fit(more, [1.0, 2.0, 3.0])
    _check_what_occurs(fitted, np.vstack([pairs, more]), [*GAPS, 950, 960])


def _check_what_occurs(fitted, pairs, items):
    users = np.unique(pairs[:, 0])
    predicted = fitted.predict(
        np.array([(user, item) for user in users for item in items])
    ).reshape(len(users), -1)
    found, scores = fitted.recommend(users, len(items) + 2, exclude=None)
    assert (found[:, -2:] == -1).all() and np.isneginf(scores[:, -2:]).all()
    assert (np.sort(found[:, :-2], axis=1) == np.sort(items)).all()
    sides = (fitted.user_ids_, fitted.user_factors_), (fitted.item_ids_, fitted.components_.T)
    alive_users, alive_items = (ids[rows.any(axis=1)] for ids, rows in sides)
    known = np.isin(users, alive_users) | (
        fitted.unobserved_weight == 0
    )  # of clicks the others get a mean
    np.testing.assert_allclose(scores[known, :-2], -np.sort(-predicted[known], axis=1), atol=1e-4)
    assert set(fitted.recommend([10**6], 20, exclude=None)[0][0]) == {-1, *items}
    asks = (fitted.similar_items, alive_items), (fitted.similar_users, alive_users)
    for (ask, asked), (ids, _) in zip(asks, sides[::-1], strict=True):
        for one, found in zip(asked, ask(asked, len(asked) + 1)[0], strict=True):
            assert set(found) == {-1, *asked} - {one}
        unknown = pytest.warns(UserWarning, match="holds 2 ids of .*: 1, 2$")
        with nullcontext() if 2 in ids else unknown:
            assert (ask([1, 2], 3)[0] == -1).all()  # who is nobody has nobody like it


@pytest.mark.parametrize("solver", SOLVERS)
def test_partial_fit_goes_on_and_grows(ratings, solver):
    pairs, values, _, _ = ratings
    later = pairs[:, 0] >= 40
    fitted = model(solver=solver).partial_fit(pairs[~later], values[~later])
    first = fitted.score(pairs, values)
    assert bits(fitted) == bits(model(solver=solver).fit(pairs[~later], values[~later]))
    fitted.partial_fit(pairs[later], values[later])
    assert fitted.score(pairs, values) > first
    chosen = fitted.recommend([0, N_USERS + 3], N_ITEMS)[0]
    assert not {*chosen[0]} & {*pairs[pairs[:, 0] == 0, 1]}  # rated in the first call
    fitted.partial_fit(np.array([[N_USERS + 3, N_ITEMS + 1]]), [4.0])
    again = fitted.recommend([0, N_USERS + 3], N_ITEMS + 2)[0]
    assert set(again[0]) - set(chosen[0]) == {N_ITEMS + 1}  # what was rated before stays left out
    assert N_ITEMS + 1 not in again[1]
    # one user and one item are in no pair
    assert fitted.user_factors_.shape[0] == N_USERS and fitted.user_ids_[-1] == N_USERS + 3
    assert fitted.components_.shape == (4, N_ITEMS) and fitted.n_features_in_ == 2


def test_copies_of_the_items_or_blocks_of_them(ratings):
    pairs, values, _, _ = ratings
    parameters = {"evaluate_every": 2, "early_stopping": True, "max_iter": 6}
    alone = [model(schedule=schedule, n_shards=1, **parameters) for schedule in ("rotation", "bsp")]
    assert bits(alone[0].fit(pairs, values)) == bits(alone[1].fit(pairs, values))
    shared = model(schedule="bsp", n_shards=4, learning_rate=0.05, max_iter=40, alpha=0.07)
    assert bits(shared.fit(pairs, values)) == bits(
        clone(shared).set_params(n_jobs=3).fit(pairs, values)
    )
    assert shared.score(pairs, values) > 0.8
    with pytest.raises(ValueError, match="schedule='bsp' needs solver='sgd'"):
        model(solver="ccd", schedule="bsp").fit(pairs, values)


@pytest.mark.parametrize(
    ("parameters", "given", "message"),
    [
        (
            {},
            (sp.csr_array([[1.0, np.inf]]),),
            "rating inf in row 0 and column 1, but ratings must be finite",
        ),
        (
            {},
            (sp.csr_array([[1.0, np.nan]]),),
            "rating nan in row 0 and column 1, but ratings must be finite",
        ),
        ({}, ([[0, 1], [0, 2]], [1.0, np.nan]), "y holds the rating nan"),
        (
            {},
            ([[0, 1], [0, -2]], [1.0, 2.0]),
            "the item -2 in row 1, which is negative; ids count from 0",
        ),
        ({"n_users": 3}, ([[0, 1], [5, 2]], [1.0, 2.0]), "the user 5, but n_users=3"),
        ({}, ([[0, 1], [0, 1]], [1.0, 2.0]), "user 0 rated item 1 more than once"),
        ({}, (sp.coo_array(([1.0, 2.0], ([0, 0], [1, 1]))),), "stores 1 entries more than once"),
        ({}, ([[0, 1], [0, 2]], [1.0]), "inconsistent numbers of samples"),
        ({}, ([[0, 1], [0, 2]], ["good", "bad"]), "y holds a rating that is no number: .*'good'"),
        ({}, (np.full((3, 2), np.nan),), "no ratings to fit"),
        ({}, (sp.csr_array((3, 2)),), "no ratings to fit"),
        ({"n_components": 0}, (np.ones((3, 2)),), "'n_components' parameter"),
        ({"alpha": -1.0}, (np.ones((3, 2)),), "'alpha' parameter"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(parameters, given, message):
    given = tuple(np.array(part) if isinstance(part, list) else part for part in given)
    with pytest.raises(ValueError, match=message):
        model(**parameters).fit(*given)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: m.set_params(n_components=7).partial_fit([[0, 0]], [1.0]),
            "n_components=7, but the earlier fit had 4",
        ),
        (
            lambda m: m.recommend([0], exclude=sp.csr_array((30, 3))),
            r"exclude has shape \(30, 3\), .* of the 40 items",
        ),
        (
            lambda m: m.predict([[0.5, 1.0]]),
            "pairs holds the user 0.5 in row 0, which is no whole number",
        ),
        (lambda m: m.predict([[0, -1]]), "the item -1"),
        (lambda m: m.predict(sp.csr_array((3, N_ITEMS))), "not a sparse one"),
        (
            lambda m: m.recommend([0.5]),
            "users holds the user 0.5 in row 0, which is no whole number",
        ),
        (lambda m: m.recommend("7"), "users must be a list or array of ids; got '7'"),
        (
            lambda m: m.recommend(["7"]),
            "users holds users that are strings, but in fit they were whole numbers",
        ),
        (lambda m: m.recommend([0], 0), "n=0; it is a number of items"),
        (lambda m: m.similar_users([0], 0), "n=0; it is a number of users"),
        (
            lambda m: m.recommend([0], exclude="nothing"),
            "exclude is of type str, 'nothing'; it must be",
        ),
        (
            lambda m: m.recommend([[0], [1]]),
            r"users has shape \(2, 1\), .* of the 40 items, .*; give ids as a list",
        ),
    ],
)
def test_bad_questions_are_refused_with_a_remedy(ratings, call, message):
    with pytest.raises(ValueError, match=message):
        call(model().fit(ratings[2]))


def test_blocks_are_cut_for_the_length_of_rows(ratings, monkeypatch):
    widths, cut = [], layout.cut_blocks

    def watched(part, items, width):
        widths.append(width)
        return cut(part, items, width)

    monkeypatch.setattr(layout, "cut_blocks", watched)
    model(n_components=20, max_iter=1).fit(*ratings[:2])
    assert set(widths) == {24}


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_shard_is_made_that_would_be_empty(solver):
    X = np.random.default_rng(0).integers(1, 6, (9, 4)).astype(float)
    X[::2, 1] = np.nan
    many, enough = (
        model(solver=solver, n_shards=n).fit(X) for n in (1000, {"sgd": 4, "ccd": 9}[solver])
    )
    assert many.n_shards_ == enough.n_shards_ == enough.n_shards
    assert bits(many) == bits(enough)
