"""Fits to packed genotypes are those to an array in which means replace missing genotypes."""

import numpy as np
import pandas as pd
import pytest
from clusters import at
from oracles.rounds import by_rounds
from plink import write_chromosomes, write_plink
from sklearn.base import clone
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline

import schmp_estimators as se
from schmp_estimators.genotypes import join, pack, read_plink

RNG = np.random.default_rng(1)
N, P = 300, 40
DOSES = RNG.binomial(2, RNG.uniform(0.1, 0.5, P), (N, P))
Y = DOSES[:, :4].sum(axis=1) + RNG.normal(size=N)
DOSES[RNG.random((N, P)) < 0.05] = -1
LABELS = np.where(np.median(Y) < Y, "case", "control")
WEIGHTS = np.arange(N) % 4 * 1.0
FOLDS = list(KFold(3).split(DOSES))


def dense(train=slice(None), weights=None):
    """Return the array with means over some rows."""
    known = np.where(DOSES < 0, np.nan, DOSES)
    rows = np.ma.masked_invalid(known[train])
    return np.where(np.isnan(known), np.ma.average(rows, axis=0, weights=weights), known)


@pytest.fixture
def G(tmp_path):
    return read_plink(write_plink(tmp_path / "study", DOSES))


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_lasso_is_that_of_scikit_learn(solved, G, fit_intercept, weights):
    X, options = dense(weights=weights), {"fit_intercept": fit_intercept}
    ours = se.PrioritizedLasso(0.1, tol=1e-10, **options).fit(G, Y, weights)
    theirs = Lasso(0.1, tol=1e-11, **options).fit(X, Y, weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.predict(G[::3]), theirs.predict(X[::3]), atol=1e-6)
    assert ours.score(G, Y) == pytest.approx(theirs.score(X, Y), abs=1e-6)
    assert ours.feature_names_in_.tolist() == G.variant_names.tolist()


def test_classifier_is_that_of_scikit_learn(solved, G):
    ours = se.SparseLogisticRegression(0.1, tol=1e-10).fit(G, LABELS)
    theirs = LogisticRegression(C=0.1, l1_ratio=1.0, solver="saga", tol=1e-9, max_iter=10_000)
    theirs.fit(dense(), LABELS)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(G), theirs.predict_proba(dense()), atol=1e-5)


MODELS = {
    "huber": (se.SparseGLM("huber", alpha=0.05, tol=1e-9), Y),
    "groups": (se.SparseGLM(penalty="group", groups=np.arange(P) // 4, alpha=0.05, tol=1e-9), Y),
    "classes": (se.SparseGLM("multinomial", alpha=0.02, tol=1e-9), np.digitize(Y, [1.0, 3.0])),
    "free": (se.SparseLogisticRegression(0.1, tol=1e-9, penalty_factors={"rs3": 0.0}), LABELS),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_any_model_is_that_of_the_array(solved, G, name):
    model, y = MODELS[name]
    names = {"penalty_factors": (np.arange(P) != 3) * 1.0} if name == "free" else {}
    there = clone(model).set_params(**names).fit(dense(), y)
    np.testing.assert_allclose(model.fit(G, y).coef_, there.coef_, atol=1e-6)


def test_folds_have_the_means_of_what_they_fit(solved, G):
    ours = se.PrioritizedLassoCV(alphas=4, cv=FOLDS, tol=1e-9).fit(G, Y)
    for fold, (train, test) in enumerate(FOLDS):
        X = dense(train)
        for alpha, found in zip(ours.alphas_, ours.mse_path_[:, fold], strict=True):
            lasso = Lasso(alpha, tol=1e-9).fit(X[train], Y[train])
            assert found == pytest.approx(np.mean((lasso.predict(X[test]) - Y[test]) ** 2))
    again = se.PrioritizedLasso(ours.alpha_, tol=1e-9).fit(G, Y)
    np.testing.assert_allclose(ours.coef_, again.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.fill_values_, np.nanmean(G.to_array(), axis=0))


def test_scores_of_any_scorer_use_the_means_of_the_fold(G):
    def score(model, X, y):
        return model.score(X, y)

    options = {"Cs": 3, "cv": FOLDS, "tol": 1e-6}
    found = [
        se.SparseLogisticRegressionCV(scoring=one, **options).fit(G, LABELS).scores_
        for one in (None, score)
    ]
    np.testing.assert_array_equal(*found)


def test_scikit_learn_selects_rows(G):
    pipeline = make_pipeline(se.PrioritizedLasso(0.1, tol=1e-8))
    found = cross_val_score(pipeline, G, Y, cv=FOLDS)
    expected = [
        Lasso(0.1).fit(dense(train)[train], Y[train]).score(dense(train)[test], Y[test])
        for train, test in FOLDS
    ]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    grid = GridSearchCV(pipeline, {"prioritizedlasso__alpha": [0.03, 0.3]}, cv=FOLDS).fit(G, Y)
    assert grid.best_params_ == {"prioritizedlasso__alpha": 0.03}


def test_paths_and_halves_are_those_of_the_array(G):
    here, there = (se.prioritized_lasso_path(X, Y, alphas=[0.3, 0.1]) for X in (G, dense()))
    np.testing.assert_allclose(here[1], there[1], atol=1e-6)
    halves = se.stability_selection(se.PrioritizedLasso(0.1), G, Y, n_halves=3, random_state=0)
    assert halves.selected[:4].all()


@pytest.mark.parametrize("n_shards", [1, 3])
def test_threads_and_workers_do_not_change_bits(G, n_shards, client, monkeypatch):
    monkeypatch.setattr("schmp_estimators.linear.programs.packed._TOGETHER", 7)
    by_rounds(monkeypatch)
    lasso, other = se.PrioritizedLasso(0.05, tol=1e-10, n_shards=n_shards), pack(DOSES)
    found = clone(lasso).fit(G, Y).coef_
    for threads in 2, 3:
        again = clone(lasso).set_params(n_jobs=threads).fit(G, Y).coef_
        np.testing.assert_array_equal(again, found)
    with at(client):
        for X in G, other:
            np.testing.assert_array_equal(clone(lasso).fit(X, Y).coef_, found)


@pytest.mark.parametrize("kind", ["files", "memory", "both"])
def test_chromosomes_have_the_bits_of_one_file(tmp_path, kind, client, monkeypatch):
    """Also on workers, and with covariates."""
    monkeypatch.setattr("schmp_estimators.linear.programs.packed._TOGETHER", 7)
    by_rounds(monkeypatch)
    prefixes, whole = write_chromosomes(tmp_path, DOSES)
    parts, whole = list(map(read_plink, prefixes)), read_plink(whole)
    if kind != "files":
        from_files = 1 if kind == "both" else 0
        held = zip(np.array_split(DOSES, 3, axis=1), parts, strict=True)
        held = [pack(one, variant_names=G.variant_names) for one, G in held]
        parts = [*parts[:from_files], *held[from_files:]]
    covariates = pd.DataFrame({"age": AGE, "sex": SEX})
    lasso = se.PrioritizedLasso(0.05, tol=1e-9, n_shards=3, penalty_factors={"age": 0.0})
    covariates.index = [f"i{i}" for i in range(N)]
    expected = clone(lasso).fit(join(whole, covariates), TRAIT)
    X = join(*parts, covariates if kind != "memory" else covariates.reset_index(drop=True))
    found = clone(lasso).fit(X, TRAIT)
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    np.testing.assert_array_equal(found.predict(X[5:9]), expected.predict(X)[5:9])
    np.testing.assert_array_equal(
        clone(lasso).set_params(n_jobs=3).fit(X, TRAIT).coef_, found.coef_
    )
    with at(client):
        np.testing.assert_array_equal(clone(lasso).fit(X, TRAIT).coef_, found.coef_)


def test_columns_without_genotypes_are_named(G):
    given = DOSES.copy()
    given[:, [2, 30]] = -1
    given[FOLDS[0][0], 5] = -1  # a fold may have none
    X = pack(given, variant_names=[f"v{j}" for j in range(P)])
    with pytest.raises(ValueError, match="columns 'v2', 'v30' of X have no value"):
        se.PrioritizedLasso().fit(X, Y)
    given[:, [2, 30]] = 0  # constant columns have no coefficient
    X = pack(given, variant_names=[f"v{j}" for j in range(P)])
    lasso = se.PrioritizedLassoCV(alphas=3, cv=FOLDS).fit(X, Y)
    assert lasso.coef_[[2, 30]].tolist() == [0.0, 0.0]
    assert np.isfinite(lasso.mse_path_).all()


def test_names_are_compared(G):
    lasso = se.PrioritizedLasso(0.1).fit(G, Y)
    with pytest.raises(ValueError, match="or in another order"):
        lasso.predict(G[:, ::-1])
    with pytest.raises(ValueError, match=r"there is no \['rs1', 'rs3'\]"):
        lasso.predict(G[:, [0, 2, *range(4, P)]])


def test_a_model_of_an_array_needs_all_genotypes():
    X = pack(DOSES)
    lasso = se.PrioritizedLasso(0.1).fit(X, Y).fit(dense(), Y)
    with pytest.raises(ValueError, match="X contains NaN"):
        lasso.predict(X)
    complete = (DOSES[:, lasso.coef_ != 0] >= 0).all(axis=1)
    np.testing.assert_allclose(lasso.predict(X[complete]), lasso.predict(dense()[complete]))


AGE, SEX = RNG.uniform(20.0, 80.0, N), RNG.integers(0, 2, N) * 1.0
TRAIT = Y + 0.05 * AGE - SEX
IDS = [(f"f{i // 2}", f"i{i}") for i in range(N)]


@pytest.mark.parametrize("index", ["families and people", "people", "none", "list"])
def test_covariates_are_matched_and_have_no_penalty(solved, G, index):
    frame = pd.DataFrame({"age": AGE, "sex": SEX})
    given, is_named = frame.to_numpy(), "people" in index
    if index == "list":
        given = given.tolist()
    if is_named:
        people = pd.MultiIndex.from_tuples(IDS)
        frame.index = people if index[0] == "f" else people.get_level_values(1)
        given = frame.sample(frac=1.0, random_state=0)
    X, names = join(G, given), {"age": 0, "sex": 0}
    factors = np.append(np.ones(P), [0.0, 0.0])
    there = np.column_stack([dense(), AGE, SEX])
    for model, y in (
        (se.PrioritizedLasso(0.1, tol=1e-10), TRAIT),
        (se.SparseLogisticRegression(0.1, tol=1e-10), LABELS),
    ):
        expected = clone(model).set_params(penalty_factors=factors).fit(there, y)
        found = clone(model).set_params(penalty_factors=names if is_named else factors).fit(X, y)
        np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-6)
        assert found.score(X[::2], y[::2]) == pytest.approx(expected.score(there[::2], y[::2]))


def test_missing_covariates_are_means_of_what_is_fitted(solved):
    table = np.column_stack([np.where(AGE < 30.0, np.nan, AGE), SEX])
    X = join(pack(DOSES), table)
    ours = se.PrioritizedLassoCV(alphas=3, cv=FOLDS, tol=1e-9).fit(X, TRAIT)
    for fold, (train, test) in enumerate(FOLDS):
        filled = np.where(np.isnan(table), np.nanmean(table[train], axis=0), table)
        there = np.column_stack([dense(train), filled])
        lasso = Lasso(ours.alphas_[2], tol=1e-10).fit(there[train], TRAIT[train])
        error = np.mean((lasso.predict(there[test]) - TRAIT[test]) ** 2)
        assert ours.mse_path_[2, fold] == pytest.approx(error)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda frame: frame.iloc[5:], r"no row for 'i0', 'i1', 'i2', 'i3', 'i4'; its index"),
        (lambda frame: frame.reset_index(drop=True), r"'i4' and 295 more"),
        (lambda frame: pd.concat([frame, frame.iloc[:1]]), "has twice 'i0'"),
        (lambda frame: frame.assign(rs3=1.0), "two columns with the name 'rs3'"),
        (lambda frame: frame.assign(site="S0"), r"no number: .*'S0' \(column 'site'\)"),
        (lambda frame: frame.assign(age=np.inf), "table of finite numbers"),
        (lambda frame: frame["age"], r"table of finite numbers; got an array of shape \(300,\)"),
        (lambda frame: frame.to_numpy()[1:], "covariates has 299 rows for 300 people"),
    ],
)
def test_covariates_that_cannot_be_joined_are_named(G, change, said):
    frame = pd.DataFrame({"age": AGE, "sex": SEX}, index=[i for _, i in IDS])
    with pytest.raises(ValueError, match=said):
        join(G, change(frame))
