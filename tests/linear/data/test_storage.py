"""Fits to a storage from outside: those of scikit-learn, or of the same values as an array."""

import numpy as np
import pytest
import scipy.sparse as sp
from clusters import at
from pages import example
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso
from sklearn.model_selection import GridSearchCV

import schmp_estimators as se
from schmp_estimators.exceptions import CheckpointMismatchError
from schmp_estimators.penalised import Storage

#: `test_storage_members` has each member; whole models are for the slow lane.
pytestmark = pytest.mark.slow

Quantised = example("plot_your_own_storage").Quantised
RNG = np.random.default_rng(0)
RAW = RNG.normal(size=(120, 60)) + RNG.normal(size=(120, 1))
X = Quantised.of(RAW)
VALUES = np.array([X.codes[j] * X.scales[j] + X.offsets[j] for j in range(60)]).T
Y = VALUES[:, :4].sum(axis=1) + RNG.normal(size=120)
LABELS = np.digitize(Y, [-1.0, 1.0])
GROUPS = np.arange(60) // 4


class Compressed(Storage):
    """Sparse columns of scipy, as an example of a storage that is sparse."""

    is_sparse = True

    def __init__(self, columns):
        self.columns, self.shape, self.dtype = columns, columns.shape, columns.dtype

    @property
    def stored(self):
        return self.columns.nnz

    def rows(self, chosen):
        return Compressed(self.columns[chosen])

    def gradient(self, vector, scope):
        return (self.columns if scope is None else self.columns[:, scope]).T @ vector

    def combine(self, columns, factors):
        return self.columns[:, columns] @ factors

    def moments(self, weights, vector):
        weights = weights if len(weights) else np.ones(self.n_rows)
        squares = self.columns.multiply(self.columns).tocsc()
        return self.columns.T @ weights, squares.T @ weights, self.columns.T @ vector

    def take_dense(self, columns, rows=None):
        taken = self.columns[:, columns].toarray().T
        return taken if rows is None else taken[:, rows]


@pytest.mark.parametrize("n_shards", [1, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_lasso_is_that_of_scikit_learn(solved, in_place, n_shards, fit_intercept):
    options = {"fit_intercept": fit_intercept, "tol": 1e-10}
    ours = se.PrioritizedLasso(0.1, n_shards=n_shards, **options).fit(X, Y)
    theirs = Lasso(0.1, **options, max_iter=100_000).fit(VALUES, Y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(VALUES), atol=1e-5)
    assert ours.n_features_in_ == 60
    assert not hasattr(ours, "feature_names_in_")


@pytest.mark.parametrize("n_shards", [1, 2])
def test_sparse_columns_are_those_of_scikit_learn(solved, n_shards):
    columns = sp.csc_array(RAW * (np.abs(RAW) > 1.0))
    ours = se.PrioritizedLasso(0.05, tol=1e-10, n_shards=n_shards).fit(Compressed(columns), Y)
    theirs = Lasso(0.05, tol=1e-10, max_iter=100_000).fit(columns.toarray(), Y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    model = se.SparseLogisticRegression(tol=1e-9, n_shards=n_shards)
    here, there = clone(model).fit(Compressed(columns), LABELS), model.fit(columns, LABELS)
    np.testing.assert_allclose(here.coef_, there.coef_, atol=1e-5)


MODELS = {
    "groups": (se.SparseGLM(penalty="group", groups=GROUPS, alpha=0.1, tol=1e-9), Y),
    "classes and groups": (se.SparseGLM("multinomial", "group", alpha=0.05, tol=1e-9), LABELS),
    "Poisson": (se.SparseGLM("poisson", alpha=0.05, tol=1e-9), np.abs(np.rint(Y))),
    "MCP": (se.SparseGLM(penalty="mcp", alpha=0.2, tol=1e-9), Y),
    "two targets": (se.PrioritizedLasso(0.1, tol=1e-9), np.column_stack([Y, RAW[:, 7] - Y])),
    "three classes": (se.SparseLogisticRegression(tol=1e-9), LABELS),
    "free columns": (
        se.SparseLogisticRegression(tol=1e-9, penalty_factors=np.append([0.0, 0.0], np.ones(58))),
        LABELS > 0,
    ),
    "in turn": (se.PrioritizedLasso(0.1, tol=1e-6, schedule="priority", random_state=0), Y),
    "no rounds": (se.PrioritizedLassoCV(alphas=5, cv=3, tol=1e-9), Y),
    "folds": (se.SparseLogisticRegressionCV(Cs=4, cv=3), LABELS),
    "folds of log loss": (se.SparseLogisticRegressionCV(Cs=4, cv=3, scoring="neg_log_loss"), Y > 0),
    "folds of groups": (
        se.SparseGLMCV(penalty="group", groups=GROUPS, alphas=4, cv=3, tol=1e-9),
        Y,
    ),
}


#: These compile further kernels, or take many rounds.
SLOW = {"in turn", "folds", "folds of log loss", "MCP", "three classes"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.slow if one in SLOW else []) for one in MODELS],
)
def test_any_model_is_that_of_the_same_array(solved, name):
    model, y = MODELS[name]
    weights = np.arange(120) % 4 * 1.0
    for given in (None, weights):
        here = clone(model).fit(X, y, sample_weight=given)
        there = clone(model).fit(VALUES, y, sample_weight=given)
        near = 1e-3 if name == "in turn" else 1e-5
        np.testing.assert_allclose(here.coef_, there.coef_, atol=near)
        np.testing.assert_allclose(here.intercept_, there.intercept_, atol=near)
        assert here.score(X, y) == pytest.approx(there.score(VALUES, y), abs=1e-3)
        if hasattr(here, "predict_proba"):
            np.testing.assert_allclose(
                here.predict_proba(X), here.predict_proba(VALUES), atol=1e-12
            )


@pytest.mark.parametrize("n_shards", [1, 2])
def test_columns_far_from_zero_are_shifted(solved, n_shards):
    """Groups need the products of shifted columns on more rows than are multiplied at a time."""
    offset = np.where(np.arange(12) % 5 == 0, 2.0**30, 0.0)
    plain = RNG.integers(0, 64, (2500, 12)) * 1.0
    given = Quantised(plain.T.astype(np.uint8), np.ones(12), offset)
    y = plain[:, :3] @ [0.1, -0.2, 0.1] + RNG.normal(size=2500)
    for model in (
        se.PrioritizedLasso(0.05, tol=1e-9, n_shards=n_shards),
        se.SparseGLM("huber", alpha=0.05, tol=1e-9, n_shards=n_shards),
        se.SparseGLM(penalty="group", groups=np.arange(12) // 3, alpha=0.05, n_shards=n_shards),
    ):
        expected = clone(model).fit(plain, y).coef_
        for form in given, plain + offset:
            np.testing.assert_allclose(clone(model).fit(form, y).coef_, expected, atol=1e-5)


def test_a_cluster_gives_the_same_bits(solved, client):
    model = se.SparseLogisticRegression(tol=1e-8, n_shards=3)
    here = clone(model).fit(X, LABELS).coef_
    with at(client):
        np.testing.assert_array_equal(model.fit(X, LABELS).coef_, here)


def test_paths_and_searches_and_halves():
    here, there = (se.sparse_glm_path(form, Y, alphas=[0.3, 0.1], tol=1e-9) for form in (X, VALUES))
    np.testing.assert_allclose(here[1], there[1], atol=1e-5)
    grid = {"alpha": [0.03, 0.1, 0.3]}
    found = [GridSearchCV(se.PrioritizedLasso(), grid, cv=3).fit(form, Y) for form in (X, VALUES)]
    assert found[0].best_params_ == found[1].best_params_
    np.testing.assert_allclose(*[one.cv_results_["mean_test_score"] for one in found], atol=1e-3)
    halves = [
        se.stability_selection(se.PrioritizedLasso(0.3), form, Y, n_halves=5, random_state=0)
        for form in (X, VALUES)
    ]
    np.testing.assert_array_equal(halves[0].probabilities, halves[1].probabilities)


def test_a_checkpoint_knows_its_storage(tmp_path):
    path, options = tmp_path / "fit", {"tol": 1e-9, "checkpoint_every": 1}
    model = se.PrioritizedLasso(0.1, checkpoint=path, max_iter=1, **options)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, Y)
    with pytest.raises(CheckpointMismatchError):
        clone(model).fit(X.rows(np.arange(120)[::-1]), Y)
    resumed = clone(model).set_params(max_iter=1000).fit(X, Y)
    whole = se.PrioritizedLasso(0.1, checkpoint=tmp_path / "other", **options).fit(X, Y)
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)
