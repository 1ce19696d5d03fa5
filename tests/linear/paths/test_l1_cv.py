"""The cross-validated L1 classes beside scikit-learn's.

What they choose, and all that leads to it.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from oracles.l1 import logistic_gap, logistic_objective
from sklearn.linear_model import ElasticNetCV, LassoCV, LogisticRegression, LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
)

from schmp_estimators import (
    PrioritizedLasso,
    PrioritizedLassoCV,
    SparseLogisticRegression,
    SparseLogisticRegressionCV,
)

#: Large enough for some coefficient not to be zero: where all are, saga ends before the intercept
#: has converged.
CS = [0.5, 1.0, 2.0]


@pytest.fixture(scope="module")
def problem():
    """Samples, a response, classes of unequal size, and weights, some of them zero."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(90, 12)) + 0.5
    y = 2 * X[:, 0] - X[:, 1] + rng.normal(size=90) + 3
    weights = rng.random(90) + 0.1
    weights[::9] = 0.0
    return X, y, weights


# -- the Lasso -------------------------------------------------------------------------------------


@pytest.mark.covering
@pytest.mark.parametrize("form", [np.asfortranarray, sp.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"fit_intercept": False}, {"positive": True}, {"alphas": [0.01, 1.0, 0.1]}]
)
def test_lasso_as_scikit_learn(problem, form, weighted, options):
    X, y, weights = problem
    weights = weights if weighted else None
    grid = {} if "alphas" in options else {"alphas": 12, "eps": 1e-2}
    options = {**grid, "tol": 1e-10, "cv": list(KFold(4).split(X)), **options}
    theirs = LassoCV(max_iter=100_000, **options).fit(X, y, sample_weight=weights)
    ours = PrioritizedLassoCV(**options).fit(form(X), y, sample_weight=weights)
    np.testing.assert_allclose(ours.alphas_, theirs.alphas_, rtol=1e-12)
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-5)
    assert ours.alpha_ == pytest.approx(theirs.alpha_, rel=1e-12)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-6)
    assert 0 <= ours.dual_gap_ <= 1e-10 * np.mean((y - y.mean() * ours.fit_intercept) ** 2) * 3


def test_weights_count_in_fits_and_in_errors_of_folds(problem):
    """A sample of weight two is two samples, wherever it is: to fit, or held out."""
    X, y, _ = problem
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 4, len(y))
    fold = np.arange(len(y)) % 3
    twice = np.repeat(np.arange(len(y)), weights)

    def splits(fold):
        return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]

    once = PrioritizedLassoCV(tol=1e-11, alphas=[1.0, 0.1, 0.01], cv=splits(fold)).fit(
        X, y, sample_weight=weights
    )
    many = PrioritizedLassoCV(tol=1e-11, alphas=[1.0, 0.1, 0.01], cv=splits(fold[twice])).fit(
        X[twice], y[twice]
    )
    np.testing.assert_allclose(once.mse_path_, many.mse_path_, rtol=1e-7)
    plain = PrioritizedLassoCV(tol=1e-11, alphas=[1.0, 0.1, 0.01], cv=splits(fold)).fit(X, y)
    assert np.abs(once.mse_path_ / plain.mse_path_ - 1).min() > 1e-3


def test_the_fit_on_all_samples_is_that_of_the_model(problem):
    X, y, weights = problem
    chosen = PrioritizedLassoCV(alphas=10, cv=3).fit(X, y, sample_weight=weights)
    alone = PrioritizedLasso(chosen.alpha_).fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(chosen.coef_, alone.coef_)
    assert (chosen.intercept_, chosen.dual_gap_) == (alone.intercept_, alone.dual_gap_)


@pytest.mark.parametrize("given", [{"alphas": 8, "eps": 1e-2}, {"alphas": [1.0, 0.1, 0.02]}])
def test_l1_ratios_as_scikit_learn(problem, given):
    X, y, weights = problem
    ratios, folds = [0.2, 1.0, 0.6], list(KFold(4).split(X))
    options = {"l1_ratio": ratios, "cv": folds, "tol": 1e-10, **given}
    theirs = ElasticNetCV(max_iter=100_000, **options).fit(X, y, sample_weight=weights)
    ours = PrioritizedLassoCV(**options).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(ours.alphas_, theirs.alphas_, rtol=1e-9)
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-5)
    assert (ours.alpha_, ours.l1_ratio_) == (pytest.approx(theirs.alpha_), theirs.l1_ratio_)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    with pytest.raises(
        ValueError,
        match=r"l1_ratio=\[0.5, 2.0\]; give one number from 1e-6 to 1, or a list of them",
    ):
        PrioritizedLassoCV(l1_ratio=[0.5, 2.0]).fit(X, y)


@pytest.mark.parametrize("form", [np.asarray, sp.csc_array])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_path_of_all_samples_is_kept(problem, form, fit_intercept):
    """The simpler model is there without another fit."""
    X, y, weights = problem
    y = y + 2.0 * np.random.default_rng(5).normal(size=90)
    options = {"tol": 1e-11, "fit_intercept": fit_intercept}
    ours = PrioritizedLassoCV(alphas=12, l1_ratio=[1.0, 0.5], cv=4, **options).fit(
        form(X), y, sample_weight=weights
    )
    penalties = ours.alphas_[[1.0, 0.5].index(ours.l1_ratio_)]
    for place, alpha in enumerate(penalties):
        alone = PrioritizedLasso(alpha, l1_ratio=ours.l1_ratio_, **options).fit(
            X, y, sample_weight=weights
        )
        np.testing.assert_allclose(ours.coefs_path_[:, place], alone.coef_, atol=1e-6)
        if alpha == ours.alpha_1se_:
            np.testing.assert_array_equal(ours.coef_1se_, ours.coefs_path_[:, place])
            assert ours.intercept_1se_ == pytest.approx(alone.intercept_, abs=1e-6)
    assert ours.alpha_1se_ > ours.alpha_ and {ours.alpha_1se_, ours.alpha_} <= set(penalties)
    labels = np.digitize(y, [2, 4])
    chosen = SparseLogisticRegressionCV(Cs=[0.1, 1.0], cv=3, **options).fit(
        form(X), labels, sample_weight=weights
    )
    assert chosen.coefs_path_.shape == (3, 12, 2) and chosen.intercepts_path_.shape == (3, 2)
    simple = SparseLogisticRegression(chosen.C_1se_, **options).fit(
        X, labels, sample_weight=weights
    )
    np.testing.assert_allclose(chosen.coef_1se_, simple.coef_, atol=1e-4)
    np.testing.assert_allclose(chosen.intercept_1se_, simple.intercept_, atol=1e-4)


def test_each_target_has_its_own_choice(problem):
    X, y, weights = problem
    targets, folds = np.column_stack([y, X[:, 3] + 0.1 * y, -y]), iter(list(KFold(3).split(X)))
    ours = PrioritizedLassoCV(alphas=6, cv=folds).fit(X, targets, sample_weight=weights)
    assert (
        ours.coef_.shape == (3, 12)
        and ours.mse_path_.shape == (3, 6, 3)
        and ours.alphas_.shape == (3, 6)
    )
    for number, target in enumerate(targets.T):
        alone = PrioritizedLassoCV(alphas=6, cv=list(KFold(3).split(X))).fit(
            X, target, sample_weight=weights
        )
        assert ours.alpha_[number] == alone.alpha_ and ours.n_features_in_ == 12
        np.testing.assert_array_equal(ours.coef_[number], alone.coef_)
        np.testing.assert_array_equal(ours.coefs_path_[number], alone.coefs_path_)
    assert ours.predict(X).shape == (90, 3) and ours.score(X, targets) > 0.5


# -- logistic regression ---------------------------------------------------------------------------


@pytest.mark.covering
@pytest.mark.parametrize("class_weight", [None, "balanced", {"no": 2.0, "yes": 1.0}])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_logistic_as_scikit_learn(problem, class_weight, weighted, fit_intercept):
    X, y, weights = problem
    weights = weights if weighted else None
    labels = np.where(y + np.sin(7 * y) > 4.5, "yes", "no")
    options = {
        "Cs": CS,
        "cv": list(StratifiedKFold(3).split(X, labels)),
        "scoring": "neg_log_loss",
        "class_weight": class_weight,
        "fit_intercept": fit_intercept,
    }
    solver = {"solver": "saga", "max_iter": 100_000} if fit_intercept else {"solver": "liblinear"}
    theirs = LogisticRegressionCV(
        l1_ratios=(1,), tol=1e-8, use_legacy_attributes=False, random_state=0, **solver, **options
    ).fit(X, labels, sample_weight=weights)
    ours = SparseLogisticRegressionCV(**options).fit(X, labels, sample_weight=weights)
    np.testing.assert_allclose(ours.scores_, theirs.scores_[:, 0].T, rtol=1e-5)
    assert (ours.C_, ours.Cs_.tolist(), ours.classes_.tolist()) == (theirs.C_, CS, ["no", "yes"])
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-5)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)


@pytest.mark.covering
@pytest.mark.parametrize("scoring", [None, "neg_log_loss"])
@pytest.mark.parametrize("weighted", [False, True])
def test_several_classes_as_one_versus_rest(problem, scoring, weighted):
    X, y, weights = problem
    weights = weights if weighted else np.ones(len(y))
    labels = np.digitize(y, [2, 4])
    folds = list(StratifiedKFold(3).split(X, labels))
    ours = SparseLogisticRegressionCV(Cs=CS, cv=folds, scoring=scoring).fit(
        X, labels, sample_weight=weights
    )

    def score(C, train, test):
        model = LogisticRegression(
            C=C, l1_ratio=1.0, solver="saga", tol=1e-9, max_iter=100_000, random_state=0
        )
        # OneVsRestClassifier has no weights: each class on its own
        found = [
            model.fit(X[train], labels[train] == k, sample_weight=weights[train]).predict_proba(
                X[test]
            )[:, 1]
            for k in range(3)
        ]
        odds = np.array(found).T
        if scoring is None:
            right = odds.argmax(axis=1) == labels[test]
        else:
            right = np.log(
                (odds / odds.sum(axis=1, keepdims=True))[np.arange(len(test)), labels[test]]
            )
        return np.average(right, weights=weights[test])

    expected = np.array([[score(C, train, test) for train, test in folds] for C in CS])
    np.testing.assert_allclose(ours.scores_, expected, rtol=1e-5)
    assert CS[expected.mean(axis=1).argmax()] == ours.C_
    if not weighted:
        whole = LogisticRegression(
            C=ours.C_, l1_ratio=1.0, solver="saga", tol=1e-9, max_iter=100_000, random_state=0
        )
        whole = OneVsRestClassifier(whole).fit(X, labels)
        np.testing.assert_allclose(ours.predict_proba(X), whole.predict_proba(X), atol=1e-5)


# -- large C ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"Cs": 3}, marks=pytest.mark.slow),
        pytest.param({"Cs": 3, "fit_intercept": False}, marks=pytest.mark.slow),
        pytest.param({"Cs": 3, "class_weight": "balanced"}, marks=pytest.mark.slow),
        pytest.param({"Cs": [1e6]}, marks=pytest.mark.slow),
        {"Cs": [0.3, 30.0], "scoring": "neg_log_loss"},
    ],
)
def test_weights_are_repetitions_where_c_is_large(options):
    """The classes are separated there, and the objective is small.

    It is so small that the one at zero is no measure for the gap.
    """
    for check in (
        check_sample_weight_equivalence_on_dense_data,
        check_sample_weight_equivalence_on_sparse_data,
    ):
        check("SparseLogisticRegressionCV", SparseLogisticRegressionCV(**options))


# -- what the guide promises -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_where_classes_are_separated_the_gap_is_small_beside_the_objective_reached(seed):
    """That is some ten-thousandths of the one at zero.

    Scores of folds are those of solutions, too.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 8))
    y, C, folds = X[:, 0] > X[:, 1], 1e4, StratifiedKFold(3)
    options = {"cv": folds, "scoring": "neg_log_loss", "fit_intercept": False}
    ours = SparseLogisticRegressionCV(Cs=[C], **options).fit(X, y)
    given = X, np.where(y, 1.0, -1.0), ours.coef_[0], 0.0, C
    reached = logistic_objective(*given)
    assert reached < 1e-3 * C * 60 * np.log(2)
    assert logistic_gap(*given) <= 1e-7 * reached
    alone = SparseLogisticRegression(C, tol=1e-7, fit_intercept=False).fit(X, y)
    assert alone.dual_gap_[0] <= 1e-7 * C * 60 * np.log(
        2
    )  # the tolerance of the model, which need not be enough
    theirs = LogisticRegression(
        l1_ratio=1, C=C, solver="liblinear", fit_intercept=False, tol=1e-10, max_iter=100_000
    )
    for score, (train, test) in zip(ours.scores_[0], folds.split(X, y), strict=True):
        expected = log_loss(y[test], theirs.fit(X[train], y[train]).predict_proba(X[test]))
        assert -score == pytest.approx(expected, rel=2e-3, abs=1e-6)


def test_of_equals_the_strongest_penalty_is_taken(problem):
    """Above the largest useful penalty all fits are the same.

    Of many C the same samples are right.
    """
    X, y, _ = problem
    splits = list(KFold(3).split(X))
    alphas = np.array([30.0, 90.0, 50.0])
    lasso = PrioritizedLassoCV(alphas=alphas, cv=splits).fit(X, y)
    assert np.ptp(lasso.mse_path_, axis=0).max() == 0.0
    assert (
        lasso.alpha_
        == lasso.alpha_1se_
        == LassoCV(alphas=alphas, cv=splits).fit(X, y).alpha_
        == 90.0
    )
    Cs = np.array([3e-4, 1e-4, 2e-4])
    logistic = SparseLogisticRegressionCV(Cs=Cs, cv=splits).fit(X, y > 3)
    assert np.ptp(logistic.scores_, axis=0).max() == 0.0
    assert logistic.C_ == logistic.C_1se_ == 1e-4
