"""No sparse input leads an estimator astray, whatever it is used for: bad arrays are refused, integers do not wrap."""

import copy

import dask
import numpy as np
import pytest
from broken_arrays import broken
from scipy import sparse

from schmp_estimators import (
    DistributedLDA,
    ModelParallelMF,
    PrioritizedLasso,
    PrioritizedLassoCV,
    SparseLogisticRegression,
    SparseLogisticRegressionCV,
)

RNG = np.random.default_rng(0)
VALUES = RNG.integers(1, 5, (30, 12)) * (RNG.random((30, 12)) < 0.6)
Y = RNG.normal(size=30)
CLASSES = (Y > 0).astype(int)
GOOD = sparse.csr_array(VALUES.astype(float))
BROKEN = [("csr", "index huge"), ("csc", "index -1"), ("bsr", "indptr ends late"), ("coo", "row -1"),
          ("csr", "data short"), ("csc", "indptr falls"), ("lil", "list: column -1")]  # fmt: skip
MODELS = {
    "lda": (DistributedLDA(3, max_iter=2), None, "fit_transform transform score perplexity coherence partial_fit"),
    "mf": (ModelParallelMF(3, max_iter=2), None, "fit_transform transform score recommend partial_fit"),
    "lasso": (PrioritizedLasso(0.1), Y, "predict score"),
    "lasso cv": (PrioritizedLassoCV(alphas=3, cv=2), Y, "predict"),
    "logistic": (
        SparseLogisticRegression(1.0),
        CLASSES,
        "predict predict_proba predict_log_proba decision_function score",
    ),
    "logistic cv": (SparseLogisticRegressionCV(Cs=2, cv=2), CLASSES, "predict_proba"),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    estimator, y, uses = MODELS[request.param]
    return estimator.fit(GOOD, y), y, ["fit", *uses.split()]


@pytest.mark.parametrize("bad", BROKEN)
def test_every_use_refuses_arrays_that_do_not_fit(fitted, bad):
    estimator, y, uses = fitted
    before = copy.deepcopy(vars(estimator))
    for method in uses:
        X = broken(VALUES.astype(float), *bad)
        given = (X, y) if method in ("fit", "partial_fit", "score") else (X,)
        with pytest.raises(ValueError, match="Build the sparse array anew"):
            estimator.recommend([0, 1], exclude=X) if method == "recommend" else getattr(estimator, method)(*given)
    assert vars(estimator).keys() == before.keys()


@pytest.mark.parametrize(
    ("dtype", "parts"), [("i4", [2**30] * 4 + [5]), ("u4", [2**31] * 2 + [5]), ("i8", [2**62] * 4)]
)
def test_duplicates_of_a_count_are_summed_without_wrapping_round(dtype, parts):
    n = len(parts)
    X = sparse.coo_array((np.array([*parts, 1], dtype), ([0] * n + [1], [0] * n + [1])), shape=(2, 2))
    with pytest.raises(ValueError, match=r"X\[0, 0\] is .*, more than a 32-bit count can hold"):
        DistributedLDA(2, max_iter=1).fit(X)


def test_duplicates_of_narrow_integers_are_summed_wherever_rows_are_used():
    first, second = RNG.integers(60, 120, (2, 40))
    place = np.tile(np.arange(40), 2), np.zeros(80, int)
    narrow = sparse.coo_array((np.concatenate([first, second]).astype(np.int8), place), shape=(40, 2))
    total = np.column_stack([first + second, np.zeros(40)])
    model = PrioritizedLasso(0.01).fit(total, first + second + RNG.normal(size=40))
    expected = total @ model.coef_ + model.intercept_
    np.testing.assert_allclose(model.predict(narrow), expected)
    [lazy] = model.predict([dask.delayed(narrow)])
    np.testing.assert_allclose(lazy.compute(scheduler="sync"), expected)
    topics = DistributedLDA(2, max_iter=1, random_state=0).fit(narrow)
    assert topics.topic_word_counts_.sum() == (first + second).sum()
