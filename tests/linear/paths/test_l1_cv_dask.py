"""Cross-validation of L1 models on Dask.

The bits of this process, any folds, and nothing is left.
"""

import dask.array as da
import input_cases
import numpy as np
import pytest
from clusters import keys_left
from covering import slow_but
from oracles.rounds import by_rounds
from scipy import sparse
from sklearn.model_selection import GroupKFold, KFold, RepeatedKFold, ShuffleSplit

from schmp_estimators import PrioritizedLassoCV, SparseLogisticRegressionCV, prioritized_lasso_path

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 10)) * (RNG.random((80, 10)) < 0.6)
Y = X[:, 0] - X[:, 1] + 0.3 * RNG.normal(size=80) + 2
LABELS = np.where(Y > 2.3, "up", np.where(Y < 1.4, "down", "level"))
WEIGHTS = RNG.integers(0, 3, 80).astype(float)
WEIGHTS[20:40] = 0.0  # a whole chunk
GROUPS = np.arange(80) // 16


def chunked(form=None):
    return input_cases.chunked(X, 20, form=form)


def lasso(**parameters):
    return PrioritizedLassoCV(**{"alphas": 5, "eps": 0.05, "cv": 3, "tol": 1e-8} | parameters)


def logistic(**parameters):
    return SparseLogisticRegressionCV(**{"Cs": [0.3, 3.0], "cv": 3, "tol": 1e-4} | parameters)


def values(estimator):
    return estimator.mse_path_ if isinstance(estimator, PrioritizedLassoCV) else estimator.scores_


def assert_same_bits(one, other):
    np.testing.assert_array_equal(values(one), values(other))
    for name in ("coef_", "intercept_", "dual_gap_", "n_iter_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def assert_same_choice(one, other):
    exact = isinstance(one, PrioritizedLassoCV)
    np.testing.assert_allclose(values(one), values(other), rtol=1e-5 if exact else 0.02)
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-5 if exact else 0.1)


@pytest.fixture(params=[pytest.param(False, marks=pytest.mark.slow), True], ids=["here", "there"])
def cut(request, monkeypatch):
    """Whether rows are brought to one place, or folds are solved for where they are."""
    by_rounds(monkeypatch, value=request.param)


# -- the same bits ---------------------------------------------------------------------------------

CASES = {
    "lasso": (lasso, Y, None),
    "weights": (lasso, Y, WEIGHTS),
    "logistic": (logistic, LABELS == "up", None),
    "classes": (lambda: logistic(class_weight="balanced", Cs=[1.0], tol=0.01), LABELS, WEIGHTS),
    "worse": (
        lambda: logistic(Cs=np.geomspace(0.01, 100.0, 12), max_worse=2, scoring="neg_log_loss"),
        LABELS == "up",
        None,
    ),
    "log loss": (lambda: logistic(scoring="neg_log_loss"), LABELS, WEIGHTS),
    "callable": (lambda: logistic(scoring=lambda model, X, y: model.score(X, y)), LABELS, None),
}


@pytest.mark.parametrize("case", slow_but(["weights"], CASES))
def test_same_bits_in_any_place(client, cut, case):
    make, target, weights = CASES[case]
    form = sparse.csr_array if case in ("weights", "logistic") else None
    given, lazy = chunked(form=form), da.from_array(target, chunks=17)
    here = make().fit(given, target, sample_weight=weights)
    with client.as_current():
        there = make().fit(
            given,
            lazy,
            sample_weight=None if weights is None else da.from_array(weights, chunks=31),
        )
    assert_same_bits(there, here)
    assert_same_choice(here, make().fit(X, target, sample_weight=weights))
    assert keys_left(client) == []


@pytest.mark.parametrize(
    "splitter",
    [
        KFold(4),  # each fold is a chunk
        KFold(5, shuffle=True, random_state=0),
        ShuffleSplit(3, random_state=0),  # some rows are never held out, some more than once
        RepeatedKFold(n_splits=2, n_repeats=5, random_state=0),  # too many patterns for pieces
        [
            (np.arange(79, 19, -1), np.arange(20)),
            (RNG.integers(0, 80, 80), RNG.integers(0, 80, 30)),
        ],
        GroupKFold(3),
    ],
    ids=["chunks", "shuffled", "random", "repeated", "unsorted and twice", "groups"],
)
def test_any_folds(cut, splitter):
    """The errors are those of fits in memory to the rows that the splitter gives."""
    routed = {"groups": GROUPS} if isinstance(splitter, GroupKFold) else {}
    found = lasso(cv=splitter).fit(chunked(), Y, **routed)
    one_by_one = (
        list(splitter) if isinstance(splitter, list) else list(splitter.split(X, Y, **routed))
    )
    for number, (train, test) in enumerate(one_by_one):
        _, coefs, levels, _ = prioritized_lasso_path(
            X[train], Y[train], alphas=found.alphas_, tol=1e-8
        )
        errors = ((Y[test, None] - X[test] @ coefs - levels) ** 2).mean(axis=0)
        np.testing.assert_allclose(
            found.mse_path_[:, number], errors, rtol=2e-4
        )  # √tol of the first penalty
