"""Any loss with any penalty as one estimator.

It stands beside scikit-learn's, and ours that are named after a pair.
"""

import inspect
import re

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from oracles.rounds import by_rounds
from scipy.special import expit
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.linear_model import ElasticNet, Lasso, LassoCV, LogisticRegression, PoissonRegressor
from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error
from sklearn.model_selection import GridSearchCV, StratifiedKFold

import schmp_estimators as se
from schmp_estimators.penalised import L1, Huber
from schmp_estimators.penalised import ElasticNet as ElasticNet_

#: By loss: scikit-learn's deviance, or a multiple, and what it compares with responses.
DEVIANCES = {
    "squared": (mean_squared_error, np.asarray),
    "poisson": (mean_poisson_deviance, np.exp),
    "logistic": (log_loss, expit),
}
FITS = [
    name + cv
    for name in ("PrioritizedLasso", "SparseGLM", "SparseLogisticRegression")
    for cv in ("", "CV")
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
@pytest.mark.parametrize(
    ("ratio", "factors"), [(1.0, None), (0.3, None), (1.0, np.linspace(0.5, 2.0, 15))]
)
def test_pairs_of_scikit_learn(problem, form, weighted, factors, ratio):
    """A penalty factor f is a column divided by f, where the penalty is absolute values."""
    X, y, labels, weights = problem
    weights = weights if weighted else np.ones(len(y))
    options = {"penalty_factors": factors, "tol": 1e-11}
    options |= {} if ratio == 1.0 else {"penalty": "elasticnet", "l1_ratio": ratio}
    scaled = X if factors is None else X / factors
    ours = se.SparseGLM(alpha=0.07, **options).fit(form(X), y, sample_weight=weights)
    theirs = ElasticNet(0.07, l1_ratio=ratio, tol=1e-12, max_iter=100_000).fit(
        scaled, y, sample_weight=weights
    )
    np.testing.assert_allclose(
        ours.coef_ * (1.0 if factors is None else factors), theirs.coef_, atol=1e-6
    )
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-6)
    ours = se.SparseGLM("logistic", alpha=0.03, **options).fit(
        form(X), labels, sample_weight=weights
    )
    solver = {"solver": "saga", "tol": 1e-10, "max_iter": 100_000, "random_state": 0}
    theirs = LogisticRegression(C=1.0 / (0.03 * weights.sum()), l1_ratio=ratio, **solver)
    theirs.fit(scaled, labels, sample_weight=weights)
    np.testing.assert_allclose(
        ours.coef_ * (1.0 if factors is None else factors), theirs.coef_, atol=1e-5
    )
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    assert (ours.predict(form(X)) == theirs.predict(scaled)).all()


def test_it_has_the_bits_of_the_estimators_named_after_a_pair(problem):
    X, y, labels, weights = problem
    ours, named = (
        se.SparseGLM(alpha=0.1).fit(X, y, weights),
        se.PrioritizedLasso(0.1).fit(X, y, weights),
    )
    assert ours.coef_.tobytes() == named.coef_.tobytes() and ours.dual_gap_ == named.dual_gap_
    C = 1.0 / (0.03125 * 80)  # in binary α n is exact
    ours = se.SparseGLM("logistic", alpha=0.03125).fit(X, labels)
    named = se.SparseLogisticRegression(C).fit(X, labels)
    assert ours.coef_.tobytes() == named.coef_.tobytes()
    assert ours.dual_gap_[0] == pytest.approx(named.dual_gap_[0] / C / 80)
    np.testing.assert_array_equal(ours.predict_proba(X), named.predict_proba(X))
    for alphas in (4, [0.1, 0.01]):
        ours = se.SparseGLMCV(alphas=alphas).fit(X, y, weights)
        named = se.PrioritizedLassoCV(alphas=alphas).fit(X, y, weights)
        np.testing.assert_array_equal(ours.deviance_path_, named.mse_path_)
        assert ours.coef_.tobytes() == named.coef_.tobytes() and ours.alpha_1se_ == named.alpha_1se_
        paths = (
            path(X, y, alphas=alphas) for path in (se.sparse_glm_path, se.prioritized_lasso_path)
        )
        for one, other in zip(*paths, strict=True):
            np.testing.assert_array_equal(one, other)


def test_deviances_are_those_of_scikit_learn(problem):
    X, y, labels, _ = problem
    options = {"alphas": [0.2, 0.05, 0.01], "cv": 4, "tol": 1e-11}
    theirs = LassoCV(max_iter=100_000, **options).fit(X, y)
    np.testing.assert_allclose(
        se.SparseGLMCV(**options).fit(X, y).deviance_path_, theirs.mse_path_, rtol=1e-6
    )
    ours = se.SparseGLMCV("logistic", **options).fit(X, labels)
    for column, (train, test) in enumerate(StratifiedKFold(4).split(X, labels)):
        for row, alpha in enumerate(options["alphas"]):
            C = 1 / (alpha * len(train))
            model = LogisticRegression(C=C, l1_ratio=1, solver="saga", tol=1e-10, max_iter=100_000)
            found = model.fit(X[train], labels[train]).predict_proba(X[test])
            assert ours.deviance_path_[row, column] == pytest.approx(
                2 * log_loss(labels[test], found), rel=1e-5
            )
    balanced = se.SparseGLMCV("logistic", class_weight="balanced", **options).fit(X, labels)
    alone = se.SparseGLM("logistic", alpha=balanced.alpha_, class_weight="balanced", tol=1e-11).fit(
        X, labels
    )
    np.testing.assert_allclose(balanced.coef_, alone.coef_, atol=1e-6)
    assert ours.alpha_ == options["alphas"][ours.deviance_path_.mean(axis=1).argmin()]


def test_counts_and_outliers(problem):
    """They are scikit-learn's PoissonRegressor with squares alone, and its HuberRegressor.

    The latter's predictions are compared where errors are large.
    """
    X, y, _, weights = problem
    counts = np.random.default_rng(0).poisson(np.exp(0.3 * y)).astype(float)
    theirs = PoissonRegressor(alpha=0.2, tol=1e-10, max_iter=10_000).fit(X, counts, weights)
    options = {"penalty": ElasticNet_(1e-9, 1.0), "alpha": 0.2, "tol": 1e-12}
    ours = se.SparseGLM("poisson", **options).fit(X, counts, weights)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-4)
    assert ours.score(X, counts, weights) == pytest.approx(
        theirs.score(X, counts, weights), abs=1e-5
    )
    there = ours.predict(da.from_array(X, chunks=(30, 15)))
    np.testing.assert_allclose(np.asarray(there), ours.predict(X), rtol=1e-12)
    wild = y.copy()
    wild[::9] += 300.0
    robust, plain = (
        se.SparseGLM("huber", alpha=0.01).fit(X, wild),
        se.SparseGLM(alpha=0.01).fit(X, wild),
    )
    assert np.median(np.abs(robust.predict(X) - y)) < 1.5 < np.median(np.abs(plain.predict(X) - y))
    models = (se.SparseGLM(loss, alpha=0.01, tol=1e-10) for loss in (Huber(1e6), "squared"))
    np.testing.assert_allclose(*(model.fit(X, y).coef_ for model in models), atol=1e-5)


@pytest.mark.covering
@pytest.mark.parametrize(
    "form", [np.asarray, sp.csc_array, lambda X: da.from_array(X, chunks=(30, 15))]
)
@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_all_classes_at_once_as_scikit_learn(problem, form, class_weight, fit_intercept):
    X, y, _, weights = problem
    labels = np.array(["low", "middle", "top"])[np.digitize(y, [0.3, 2.0])]
    options = {"class_weight": class_weight, "fit_intercept": fit_intercept}
    ours = se.SparseGLM("multinomial", alpha=0.03, tol=1e-10, **options).fit(
        form(X), labels, weights
    )
    C = 1.0 / (0.03 * weights.sum())  # which is also what balanced weights add up to
    theirs = LogisticRegression(
        C=C, l1_ratio=1, solver="saga", tol=1e-10, max_iter=100_000, random_state=0, **options
    )
    theirs.fit(X, labels, weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(
        np.asarray(ours.predict_proba(form(X))), theirs.predict_proba(X), atol=1e-5
    )
    np.testing.assert_allclose(np.diff(ours.intercept_), np.diff(theirs.intercept_), atol=1e-4)
    assert (
        ours.solver_ == "rounds"
        and ours.dual_gap_.shape == (1,)
        and ours.score(form(X), labels) > 0.5
    )
    two = se.SparseGLM("multinomial", alpha=0.03, tol=1e-11, **options).fit(
        form(X), labels == "top", weights
    )
    one = se.SparseGLM("logistic", alpha=0.03, tol=1e-11, **options).fit(
        X, labels == "top", weights
    )
    np.testing.assert_allclose(two.coef_, one.coef_, atol=1e-5)
    np.testing.assert_allclose(two.intercept_, one.intercept_, atol=1e-5)


@pytest.mark.parametrize("loss", ["squared", "logistic", "huber", "poisson"])
def test_groups_are_in_or_out_together(problem, loss):
    """Groups of one column are the L1 penalty.

    Of others all coefficients are zero or none, and in balance.
    """
    X, y, labels, weights = problem
    y = {"logistic": labels, "poisson": np.floor(np.abs(y))}.get(loss, y)
    single = se.SparseGLM(loss, "group", 0.05, groups=np.arange(15), tol=1e-11).fit(X, y, weights)
    lasso = se.SparseGLM(loss, alpha=0.05, tol=1e-11).fit(X, y, weights)
    np.testing.assert_allclose(single.coef_, lasso.coef_, atol=1e-5)
    groups = np.repeat(np.arange(5), 3)
    by_number = se.SparseGLM(loss, "group", 0.08, groups=groups, tol=1e-11).fit(X, y, weights)
    by_columns = se.SparseGLM(
        loss, "group", 0.08, groups=np.arange(15).reshape(5, 3), tol=1e-11
    ).fit(X, y, weights)
    np.testing.assert_array_equal(by_number.coef_, by_columns.coef_)
    coef = by_number.coef_.reshape(5, 3)
    kept = (coef != 0.0).all(axis=1)
    assert 0 < kept.sum() < 5 and not coef[~kept].any()
    if loss == "squared":
        residual = (weights * (y - by_number.predict(X))) / weights.sum()
        slopes = (X.T @ residual).reshape(5, 3)
        lengths = np.linalg.norm(coef[kept], axis=1, keepdims=True)
        np.testing.assert_allclose(
            slopes[kept], 0.08 * np.sqrt(3) * coef[kept] / lengths, atol=1e-6
        )
        assert (np.linalg.norm(slopes[~kept], axis=1) <= 0.08 * np.sqrt(3) + 1e-6).all()


@pytest.mark.covering
@pytest.mark.parametrize("form", [np.asarray, sp.csc_array])
@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson"])
def test_a_path_ends_where_enough_is_explained(problem, monkeypatch, form, loss, rounds):
    X, y, labels, weights = problem
    y = {"logistic": labels, "poisson": np.floor(np.abs(y))}.get(loss, y)
    options = {"alphas": 30, "eps": 1e-4, "sample_weight": weights, "tol": 1e-9}
    by_rounds(monkeypatch, value=rounds)
    whole, (deviance, mean) = se.sparse_glm_path(form(X), y, loss, **options), DEVIANCES[loss]
    left = [
        deviance(y, mean(X @ coef + level), sample_weight=weights)
        for coef, level in zip(whole[1].T, whole[2], strict=True)
    ]
    explained = 1.0 - np.array(left) / left[0]
    part = se.sparse_glm_path(form(X), y, loss, **options, max_explained=0.6 * explained.max())
    count = int(np.argmax(explained >= 0.6 * explained.max())) + 1
    assert 2 < count < 30 and [len(part[0]), part[1].shape[1]] == [count, count]
    np.testing.assert_allclose(part[1], whole[1][:, :count], atol=1e-4)


def test_tags_and_methods_follow_the_loss(problem):
    X, y, labels, _ = problem
    regressor, classifier = se.SparseGLM(alpha=0.1), se.SparseGLM("logistic", alpha=0.01)
    assert (
        is_regressor(regressor) and is_classifier(classifier) and is_classifier(clone(classifier))
    )
    for name in ("predict_proba", "decision_function", "predict_log_proba"):
        assert hasattr(classifier, name) and not hasattr(regressor, name)
    assert Lasso(0.1).fit(X, y).score(X, y) == pytest.approx(
        regressor.fit(X, y).score(X, y), abs=1e-4
    )
    assert classifier.fit(X, labels).score(X, labels) == np.mean(classifier.predict(X) == labels)
    assert regressor.set_params(loss="logistic").fit(X, labels).classes_.tolist() == ["no", "yes"]
    grid = {"alpha": [0.1, 0.01], "penalty": ["l1", "elasticnet"]}
    searched = GridSearchCV(se.SparseGLM("logistic"), grid).fit(X, labels)
    assert searched.scorer_(searched, X, labels) > 0.8
    targets = se.SparseGLM(alpha=0.1).fit(X, np.column_stack([y, -y]))
    np.testing.assert_array_equal(targets.coef_[0], -targets.coef_[1])


WRONG = {
    "loss": ({"loss": "l2"}, ValueError, r"loss='l2'; give one of \['huber', 'logistic'"),
    "penalty": (
        {"penalty": "tv"},
        ValueError,
        r"penalty='tv'; give one of \['elasticnet', 'group', 'l1', 'mcp'\]",
    ),
    "groups": (
        {"groups": [0] * 15},
        ValueError,
        "groups needs penalty=\"group\"; got penalty='l1'",
    ),
    "no groups": ({"penalty": "group"}, ValueError, 'penalty="group" needs groups'),
    "groups of other columns": (
        {"penalty": "group", "groups": [0] * 3},
        ValueError,
        "groups must put each of the 15",
    ),
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
    "both": (
        {"penalty": "mcp", "positive": True},
        ValueError,
        "positive=True cannot be combined with penalty='mcp'",
    ),
    "ratio": (
        {"l1_ratio": 0.3},
        ValueError,
        "l1_ratio=0.3 needs penalty=\"elasticnet\"; got penalty='l1'",
    ),
    "factors": (
        {"penalty": L1(1.0), "penalty_factors": [1.0] * 15},
        ValueError,
        "need a penalty given by name",
    ),
    "an object that is no loss": (
        {"loss": 3},
        TypeError,
        r"needs a loss with `derivatives`, `certified`; got loss=3",
    ),
    "columns": (
        {"penalty": L1(np.ones(3))},
        ValueError,
        r"penalty holds an array of shape \(3,\); .* shape \(15,\)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_go_together_is_named(problem, name):
    X, y, *_ = problem
    options, error, message = WRONG[name]
    model = se.SparseGLM().fit(X, y)
    before = model.coef_
    with pytest.raises(error, match=message):
        model.set_params(**options).fit(X, y)
    assert model.coef_ is before
    for fit in (
        lambda: se.SparseGLMCV(**options).fit(X, y),
        lambda: se.sparse_glm_path(X, y, **options),
    ):
        with pytest.raises(error, match=message):
            fit()


@pytest.mark.parametrize("name", FITS + PATHS)
def test_docstrings_tell_of_every_parameter(name):
    thing = getattr(se, name)
    lines = inspect.getdoc(thing).splitlines()
    begin = lines.index("Parameters") + 2
    entries = lines[begin : lines.index("", begin)]
    heads = [place for place, line in enumerate(entries) if not line.startswith(" ")]
    for (parameter, given), place in zip(
        inspect.signature(thing).parameters.items(), heads, strict=True
    ):
        assert re.match(rf"{parameter} : \S", entries[place]) and entries[place + 1].startswith(
            "    "
        )
        if given.default is not given.empty:
            assert re.search(
                rf"default=\"?{re.escape(str(given.default))}\"?$", entries[place]
            ) or (float(re.search("default=(.*)", entries[place])[1]) == given.default)
    if name in FITS:
        for attribute in ("coef_", "intercept_", "n_iter_", "n_features_in_", "feature_names_in_"):
            [place] = [i for i, line in enumerate(lines) if line.startswith(f"{attribute} : ")]
            assert lines[place + 1].startswith("    ")


@pytest.mark.parametrize(
    "model", [se.SparseGLM("multinomial", alpha=0.01), se.SparseGLM("logistic", alpha=0.01)]
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_logarithms_of_probabilities_are_finite_where_these_underflow(model, n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 5))
    fitted = model.fit(X, np.digitize(X[:, 0], [0.0, 1.0][: n_classes - 1]))
    np.testing.assert_allclose(
        np.exp(fitted.predict_log_proba(X)), fitted.predict_proba(X), atol=1e-12
    )
    far = fitted.predict_log_proba(1e4 * X)
    assert np.isfinite(far).all() and far.min() < -1e3
