"""Any loss with any penalty as one estimator, beside scikit-learn's, and ours that are named after a pair."""

import inspect
import re

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.linear_model import ElasticNet, Lasso, LassoCV, LogisticRegression, PoissonRegressor
from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold

import schmp_estimators
from schmp_estimators import (
    PrioritizedLasso,
    PrioritizedLassoCV,
    SparseGLM,
    SparseGLMCV,
    SparseLogisticRegression,
    prioritized_lasso_path,
    sparse_glm_path,
)
from schmp_estimators.linear.programs import choose
from schmp_estimators.penalised import L1, Huber
from schmp_estimators.penalised import ElasticNet as ElasticNet_

#: By loss: scikit-learn's deviance, or a multiple, and what it compares with responses.
DEVIANCES = {
    "squared": (mean_squared_error, np.asarray),
    "poisson": (mean_poisson_deviance, np.exp),
    "logistic": (log_loss, expit),
}
FITS = [
    "PrioritizedLasso",
    "PrioritizedLassoCV",
    "SparseGLM",
    "SparseGLMCV",
    "SparseLogisticRegression",
    "SparseLogisticRegressionCV",
]
PATHS = ["prioritized_lasso_path", "sparse_glm_path", "sparse_logistic_path"]


@pytest.fixture(scope="module")
def problem():
    """Samples, a response, two classes and weights."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 15)) + 0.5
    y = 2.0 * X[:, 0] - X[:, 1] + rng.normal(size=80) + 1.0
    return X, y, np.where(y > 1.2, "yes", "no"), rng.integers(1, 4, 80).astype(float)


@pytest.mark.covering
@pytest.mark.parametrize("form", [np.asarray, sp.csc_array])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("ratio", "factors"), [(1.0, None), (0.3, None), (1.0, np.linspace(0.5, 2.0, 15))])
def test_pairs_of_scikit_learn(problem, form, weighted, factors, ratio):
    """A penalty factor f is a column divided by f, where the penalty is absolute values."""
    X, y, labels, weights = problem
    weights = weights if weighted else np.ones(len(y))
    options = {"penalty_factors": factors, "tol": 1e-11}
    options |= {} if ratio == 1.0 else {"penalty": "elasticnet", "l1_ratio": ratio}
    scaled = X if factors is None else X / factors
    ours = SparseGLM(alpha=0.07, **options).fit(form(X), y, sample_weight=weights)
    theirs = ElasticNet(0.07, l1_ratio=ratio, tol=1e-12, max_iter=100_000).fit(scaled, y, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_ * (1.0 if factors is None else factors), theirs.coef_, atol=1e-6)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-6)
    ours = SparseGLM("logistic", alpha=0.03, **options).fit(form(X), labels, sample_weight=weights)
    solver = {"solver": "saga", "tol": 1e-10, "max_iter": 100_000, "random_state": 0}
    theirs = LogisticRegression(C=1.0 / (0.03 * weights.sum()), l1_ratio=ratio, **solver)
    theirs.fit(scaled, labels, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_ * (1.0 if factors is None else factors), theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    assert (ours.predict(form(X)) == theirs.predict(scaled)).all()


def test_it_has_the_bits_of_the_estimators_named_after_a_pair(problem):
    X, y, labels, weights = problem
    ours, named = SparseGLM(alpha=0.1).fit(X, y, weights), PrioritizedLasso(0.1).fit(X, y, weights)
    assert ours.coef_.tobytes() == named.coef_.tobytes() and ours.dual_gap_ == named.dual_gap_
    C = 1.0 / (0.03125 * 80)  # in binary α n is exact
    ours, named = SparseGLM("logistic", alpha=0.03125).fit(X, labels), SparseLogisticRegression(C).fit(X, labels)
    assert ours.coef_.tobytes() == named.coef_.tobytes()
    assert ours.dual_gap_[0] == pytest.approx(named.dual_gap_[0] / C / 80)
    np.testing.assert_array_equal(ours.predict_proba(X), named.predict_proba(X))
    for alphas in (4, [0.1, 0.01]):
        ours, named = (
            SparseGLMCV(alphas=alphas).fit(X, y, weights),
            PrioritizedLassoCV(alphas=alphas).fit(X, y, weights),
        )
        np.testing.assert_array_equal(ours.deviance_path_, named.mse_path_)
        assert ours.coef_.tobytes() == named.coef_.tobytes() and ours.alpha_1se_ == named.alpha_1se_
        for one, other in zip(
            sparse_glm_path(X, y, alphas=alphas), prioritized_lasso_path(X, y, alphas=alphas), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_deviances_are_those_of_scikit_learn(problem):
    X, y, labels, _ = problem
    options = {"alphas": [0.2, 0.05, 0.01], "cv": 4, "tol": 1e-11}
    theirs = LassoCV(max_iter=100_000, **options).fit(X, y)
    np.testing.assert_allclose(SparseGLMCV(**options).fit(X, y).deviance_path_, theirs.mse_path_, rtol=1e-6)
    ours = SparseGLMCV("logistic", **options).fit(X, labels)
    for column, (train, test) in enumerate(StratifiedKFold(4).split(X, labels)):
        for row, alpha in enumerate(options["alphas"]):
            model = LogisticRegression(
                C=1 / (alpha * len(train)), l1_ratio=1, solver="saga", tol=1e-10, max_iter=100_000
            )
            found = model.fit(X[train], labels[train]).predict_proba(X[test])
            assert ours.deviance_path_[row, column] == pytest.approx(2 * log_loss(labels[test], found), rel=1e-5)
    balanced = SparseGLMCV("logistic", class_weight="balanced", **options).fit(X, labels)
    alone = SparseGLM("logistic", alpha=balanced.alpha_, class_weight="balanced", tol=1e-11).fit(X, labels)
    np.testing.assert_allclose(balanced.coef_, alone.coef_, atol=1e-6)
    assert ours.alpha_ == options["alphas"][ours.deviance_path_.mean(axis=1).argmin()]


def test_counts_and_outliers(problem):
    """scikit-learn's PoissonRegressor with squares alone, its HuberRegressor's predictions where errors are large."""
    X, y, _, weights = problem
    counts = np.random.default_rng(0).poisson(np.exp(0.3 * y)).astype(float)
    theirs = PoissonRegressor(alpha=0.2, tol=1e-10, max_iter=10_000).fit(X, counts, weights)
    options = {"penalty": ElasticNet_(1e-9, 1.0), "alpha": 0.2, "tol": 1e-12}
    ours = SparseGLM("poisson", **options).fit(X, counts, weights)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-4)
    assert ours.score(X, counts, weights) == pytest.approx(theirs.score(X, counts, weights), abs=1e-5)
    there = ours.predict(da.from_array(X, chunks=(30, 15)))
    np.testing.assert_allclose(np.asarray(there), ours.predict(X), rtol=1e-12)
    chosen = SparseGLMCV("poisson", alphas=[0.5, 0.05], cv=3).fit(X, counts)
    for column, (train, test) in enumerate(KFold(3).split(X)):
        model = SparseGLM("poisson", alpha=0.05, tol=1e-10).fit(X[train], counts[train])
        expected = mean_poisson_deviance(counts[test], model.predict(X[test]))
        assert chosen.deviance_path_[1, column] == pytest.approx(expected, rel=0.02)
    wild = y.copy()
    wild[::9] += 300.0
    robust, plain = SparseGLM("huber", alpha=0.01).fit(X, wild), SparseGLM(alpha=0.01).fit(X, wild)
    assert np.median(np.abs(robust.predict(X) - y)) < 1.5 < np.median(np.abs(plain.predict(X) - y))
    assert SparseGLM(Huber(1e6), alpha=0.01, tol=1e-10).fit(X, y).coef_ == pytest.approx(
        SparseGLM(alpha=0.01, tol=1e-10).fit(X, y).coef_, abs=1e-5
    )


@pytest.mark.covering
@pytest.mark.parametrize("form", [np.asarray, sp.csc_array, lambda X: da.from_array(X, chunks=(30, 15))])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_all_classes_at_once_as_scikit_learn(problem, form, class_weight, fit_intercept):
    X, y, _, weights = problem
    labels = np.array(["low", "middle", "top"])[np.digitize(y, [0.3, 2.0])]
    options = {"class_weight": class_weight, "fit_intercept": fit_intercept}
    ours = SparseGLM("multinomial", alpha=0.03, tol=1e-10, **options).fit(form(X), labels, weights)
    C = 1.0 / (0.03 * weights.sum())  # which is also what balanced weights add up to
    theirs = LogisticRegression(C=C, l1_ratio=1, solver="saga", tol=1e-10, max_iter=100_000, random_state=0, **options)
    theirs.fit(X, labels, weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(np.asarray(ours.predict_proba(form(X))), theirs.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(np.diff(ours.intercept_), np.diff(theirs.intercept_), atol=1e-4)
    assert ours.solver_ == "blocks" and ours.dual_gap_.shape == (1,) and ours.score(form(X), labels) > 0.5
    two = SparseGLM("multinomial", alpha=0.03, tol=1e-11, **options).fit(form(X), labels == "top", weights)
    one = SparseGLM("logistic", alpha=0.03, tol=1e-11, **options).fit(X, labels == "top", weights)
    np.testing.assert_allclose(two.coef_, one.coef_, atol=1e-5)
    np.testing.assert_allclose(two.intercept_, one.intercept_, atol=1e-5)


@pytest.mark.parametrize("loss", ["squared", "logistic", "huber", "poisson"])
def test_groups_are_in_or_out_together(problem, loss):
    """Groups of one column are the L1 penalty; of others all coefficients are zero or none, and in balance."""
    X, y, labels, weights = problem
    y = {"logistic": labels, "poisson": np.floor(np.abs(y))}.get(loss, y)
    single = SparseGLM(loss, "group", 0.05, groups=np.arange(15), tol=1e-11).fit(X, y, weights)
    lasso = SparseGLM(loss, alpha=0.05, tol=1e-11).fit(X, y, weights)
    np.testing.assert_allclose(single.coef_, lasso.coef_, atol=1e-5)
    groups = np.repeat(np.arange(5), 3)
    by_number = SparseGLM(loss, "group", 0.08, groups=groups, tol=1e-11).fit(X, y, weights)
    by_columns = SparseGLM(loss, "group", 0.08, groups=np.arange(15).reshape(5, 3), tol=1e-11).fit(X, y, weights)
    np.testing.assert_array_equal(by_number.coef_, by_columns.coef_)
    coef = by_number.coef_.reshape(5, 3)
    kept = (coef != 0.0).all(axis=1)
    assert 0 < kept.sum() < 5 and not coef[~kept].any()
    if loss == "squared":
        residual = (weights * (y - by_number.predict(X))) / weights.sum()
        slopes = (X.T @ residual).reshape(5, 3)
        lengths = np.linalg.norm(coef[kept], axis=1, keepdims=True)
        np.testing.assert_allclose(slopes[kept], 0.08 * np.sqrt(3) * coef[kept] / lengths, atol=1e-6)
        assert (np.linalg.norm(slopes[~kept], axis=1) <= 0.08 * np.sqrt(3) + 1e-6).all()


def test_paths_and_choices_of_blocks(problem):
    X, y, *_ = problem
    classes = np.digitize(y, [0.3, 2.0])
    alphas, coefs, intercepts, gaps = sparse_glm_path(X, classes, "multinomial", alphas=4, tol=1e-8)
    assert coefs.shape == (3, 15, 4) and intercepts.shape == (3, 4) and not coefs[..., 0].any() and (gaps < 1e-7).all()
    single = SparseGLM("multinomial", alpha=alphas[2], tol=1e-8).fit(X, classes)
    np.testing.assert_allclose(coefs[..., 2], single.coef_, atol=1e-3)
    folds = list(StratifiedKFold(3).split(X, classes))
    ours = SparseGLMCV("multinomial", alphas=[0.1, 0.02], cv=folds, tol=1e-9).fit(X, classes)
    for row, alpha in enumerate([0.1, 0.02]):
        for column, (train, test) in enumerate(folds):
            solver = {"solver": "saga", "tol": 1e-9, "max_iter": 100_000}
            theirs = LogisticRegression(C=1 / (alpha * len(train)), l1_ratio=1, **solver).fit(X[train], classes[train])
            expected = 2.0 * log_loss(classes[test], theirs.predict_proba(X[test]))
            assert ours.deviance_path_[row, column] == pytest.approx(expected, rel=1e-4)
    assert ours.coefs_path_.shape == (3, 15, 2) and ours.coef_1se_.shape == (3, 15)
    grouped = SparseGLMCV(penalty="group", groups=np.repeat(np.arange(5), 3), alphas=6, cv=3).fit(X, y)
    fold = SparseGLM(penalty="group", groups=np.repeat(np.arange(5), 3), alpha=grouped.alphas_[3], tol=1e-8)
    [(train, test), *_] = KFold(3).split(X)
    error = np.mean((y[test] - fold.fit(X[train], y[train]).predict(X[test])) ** 2)
    assert grouped.deviance_path_[3, 0] == pytest.approx(error, rel=1e-3)
    with pytest.raises(ValueError, match="leaves 2 of 3 classes to fit a fold to; give a splitter that spreads"):
        SparseGLMCV("multinomial", alphas=[0.1], cv=KFold(3)).fit(X[np.argsort(y)], np.sort(classes))


@pytest.mark.covering
@pytest.mark.parametrize("form", [np.asarray, sp.csc_array])
@pytest.mark.parametrize("factors", [None, np.where(np.arange(15) == 2, 0.0, 1.0)])
@pytest.mark.parametrize(
    ("loss", "penalty"), [("squared", "l1"), ("logistic", "l1"), ("poisson", "l1"), ("squared", "group")]
)
def test_a_path_ends_where_enough_is_explained(problem, monkeypatch, form, factors, loss, penalty):
    X, y, labels, weights = problem
    y = {"logistic": labels, "poisson": np.floor(np.abs(y))}.get(loss, y)
    options = {"alphas": 30, "eps": 1e-4, "sample_weight": weights, "tol": 1e-9, "penalty_factors": factors}
    options |= {"penalty": penalty, "groups": None if penalty == "l1" else np.arange(15) // 3}
    if penalty == "group":
        options["penalty_factors"] = None if factors is None else [0.0, 1, 1, 1, 1]
    for most_at_hand in (1 << 22, 0) if penalty == "l1" else (1 << 22,):
        monkeypatch.setattr(choose, "_MOST_AT_HAND", most_at_hand)
        whole = sparse_glm_path(form(X), y, loss, **options)
        free = np.zeros(15, bool) if factors is None else factors == 0.0
        free = np.arange(15) < 3 if penalty == "group" and factors is not None else free
        deviance, mean = DEVIANCES[loss]
        start = SparseGLM(loss, alpha=1e9, penalty_factors=np.where(free, 0.0, 1.0), tol=1e-11).fit(X, y, weights)
        null = deviance(y, mean(X @ np.ravel(start.coef_) + np.ravel(start.intercept_)), sample_weight=weights)
        explained = [
            1.0 - deviance(y, mean(X @ coef + level), sample_weight=weights) / null
            for coef, level in zip(whole[1].T, whole[2], strict=True)
        ]
        limit = 0.6 * max(explained)
        part = sparse_glm_path(form(X), y, loss, **options, max_explained=limit)
        count = int(np.argmax(np.array(explained) >= limit)) + 1
        assert 2 < count < 30 and [len(part[0]), part[1].shape[1]] == [count, count]
        np.testing.assert_allclose(part[1], whole[1][:, :count], atol=1e-4)


def test_tags_and_methods_follow_the_loss(problem):
    X, y, labels, _ = problem
    regressor, classifier = SparseGLM(alpha=0.1), SparseGLM("logistic", alpha=0.01)
    assert is_regressor(regressor) and is_classifier(classifier) and is_classifier(clone(classifier))
    for name in ("predict_proba", "decision_function", "predict_log_proba"):
        assert hasattr(classifier, name) and not hasattr(regressor, name)
    assert Lasso(0.1).fit(X, y).score(X, y) == pytest.approx(regressor.fit(X, y).score(X, y), abs=1e-4)
    assert classifier.fit(X, labels).score(X, labels) == np.mean(classifier.predict(X) == labels)
    assert regressor.set_params(loss="logistic").fit(X, labels).classes_.tolist() == ["no", "yes"]
    searched = GridSearchCV(SparseGLM("logistic"), {"alpha": [0.1, 0.01], "penalty": ["l1", "elasticnet"]}).fit(
        X, labels
    )
    assert searched.scorer_(searched, X, labels) > 0.8
    targets = SparseGLM(alpha=0.1).fit(X, np.column_stack([y, -y]))
    np.testing.assert_array_equal(targets.coef_[0], -targets.coef_[1])


def test_groups_are_scored_for_each_class_against_all_others(problem):
    X, y, *_ = problem
    codes, folds = np.digitize(y, np.quantile(y, [0.3, 0.7])), list(KFold(3).split(X))
    options = {"groups": np.arange(X.shape[1]) // 4, "alphas": [0.1, 0.02], "cv": folds, "tol": 1e-9}
    found = SparseGLMCV("logistic", "group", **options).fit(X, codes)
    alone = [SparseGLMCV("logistic", "group", **options).fit(X, codes == k) for k in range(3)]
    np.testing.assert_allclose(found.deviance_path_, sum(one.deviance_path_ for one in alone), rtol=1e-5)
    for one, coefs in zip(alone, found.coefs_path_, strict=True):
        np.testing.assert_allclose(coefs, one.coefs_path_, atol=1e-4)


WRONG = {
    "loss": ({"loss": "l2"}, ValueError, r"loss='l2'; give one of \['huber', 'logistic'"),
    "penalty": ({"penalty": "tv"}, ValueError, r"penalty='tv'; give one of \['elasticnet', 'group', 'l1', 'mcp'\]"),
    "groups": ({"groups": [0] * 15}, ValueError, "groups needs penalty=\"group\"; got penalty='l1'"),
    "no groups": ({"penalty": "group"}, ValueError, 'penalty="group" needs groups'),
    "groups of other columns": ({"penalty": "group", "groups": [0] * 3}, ValueError, "groups must put each of the 15"),
    "groups by name": (
        {"penalty": "group", "groups": ["a"] * 15, "penalty_factors": {"a": 1.0, "b": 0.0}},
        ValueError,
        "penalty_factors names groups that groups does not have: 'b'",
    ),
    "groups without names": (
        {"penalty": "group", "groups": [[j] for j in range(15)], "penalty_factors": {0: 1.0}},
        ValueError,
        "penalty_factors names groups, but groups has no names",
    ),
    "both": ({"penalty": "mcp", "positive": True}, ValueError, "positive=True cannot be combined with penalty='mcp'"),
    "ratio": ({"l1_ratio": 0.3}, ValueError, "l1_ratio=0.3 needs penalty=\"elasticnet\"; got penalty='l1'"),
    "factors": ({"penalty": L1(1.0), "penalty_factors": [1.0] * 15}, ValueError, "need a penalty given by name"),
    "an object that is no loss": ({"loss": 3}, TypeError, "needs a loss with a method `derivatives`"),
    "columns": ({"penalty": L1(np.ones(3))}, ValueError, r"penalty holds an array of shape \(3,\); .* shape \(15,\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_go_together_is_named(problem, name):
    X, y, *_ = problem
    options, error, message = WRONG[name]
    model = SparseGLM().fit(X, y)
    before = model.coef_
    with pytest.raises(error, match=message):
        model.set_params(**options).fit(X, y)
    assert model.coef_ is before
    for fit in (lambda: SparseGLMCV(**options).fit(X, y), lambda: sparse_glm_path(X, y, **options)):
        with pytest.raises(error, match=message):
            fit()


@pytest.mark.parametrize("name", FITS + PATHS)
def test_docstrings_tell_of_every_parameter(name):
    thing = getattr(schmp_estimators, name)
    lines = inspect.getdoc(thing).splitlines()
    begin = lines.index("Parameters") + 2
    entries = lines[begin : lines.index("", begin)]
    heads = [place for place, line in enumerate(entries) if not line.startswith(" ")]
    for (parameter, given), place in zip(inspect.signature(thing).parameters.items(), heads, strict=True):
        assert re.match(rf"{parameter} : \S", entries[place]) and entries[place + 1].startswith("    ")
        if given.default is not given.empty:
            assert re.search(rf"default=\"?{re.escape(str(given.default))}\"?$", entries[place]) or (
                float(re.search("default=(.*)", entries[place])[1]) == given.default
            )
    if name in FITS:
        for attribute in ("coef_", "intercept_", "n_iter_", "n_features_in_", "feature_names_in_"):
            [place] = [i for i, line in enumerate(lines) if line.startswith(f"{attribute} : ")]
            assert lines[place + 1].startswith("    ")


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_the_concave_penalty_keeps_its_shape_at_every_strength(loss):
    """No step of a coefficient lowers the mean loss plus α|b| − b²/6 up to 3α: γ is 3 for each unit of weight."""
    rng = np.random.default_rng(5)
    X, weights = rng.normal(size=(150, 12)), rng.uniform(0.5, 2.0, 150)
    signal = X[:, :3] @ [0.9, -0.7, 0.2]
    y = signal + rng.normal(size=150) if loss == "squared" else rng.poisson(np.exp(signal)).astype(float)
    steps = np.linspace(-2.0, 2.0, 81)

    def objective(coef, intercept, alpha):
        v, size = X @ coef + intercept, np.minimum(np.abs(coef), 3.0 * alpha)
        of_rows = 0.5 * (y - v) ** 2 if loss == "squared" else np.exp(v) - y * v
        return np.average(of_rows, weights=weights) + (alpha * size - size**2 / 6.0).sum()

    alphas, coefs, intercepts, _ = sparse_glm_path(
        X, y, loss, "mcp", alphas=[0.3, 0.1], tol=1e-9, sample_weight=weights
    )
    for alpha, coef, intercept in zip(alphas, coefs.T, intercepts, strict=True):
        alone = SparseGLM(loss, "mcp", alpha=alpha, tol=1e-9).fit(X, y, weights)
        for found, level in ((coef, intercept), (alone.coef_, alone.intercept_)):
            here = objective(found, level, alpha)
            for j in range(12):
                least = min(objective(found + step * (np.arange(12) == j), level, alpha) for step in steps)
                assert least >= here - 1e-7 * abs(here)
    assert np.isnan(alone.dual_gap_) and np.abs(alone.coef_[:2]).min() > 3.0 * 0.1


@pytest.mark.parametrize("model", [SparseGLM("multinomial", alpha=0.01), SparseGLM("logistic", alpha=0.01)])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_logarithms_of_probabilities_are_finite_where_these_underflow(model, n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 5))
    fitted = model.fit(X, np.digitize(X[:, 0], [0.0, 1.0][: n_classes - 1]))
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(X)), fitted.predict_proba(X), atol=1e-12)
    far = fitted.predict_log_proba(1e4 * X)
    assert np.isfinite(far).all() and far.min() < -1e3
