"""No sparse input leads an estimator astray, whatever it is used for.

Bad arrays are refused, integers do not wrap.
"""

import copy

import numpy as np
import pytest
from broken_arrays import broken
from scipy import sparse

import schmp_estimators as se

RNG = np.random.default_rng(0)
VALUES = RNG.integers(1, 5, (30, 12)) * (RNG.random((30, 12)) < 0.6)
Y = RNG.normal(size=30)
CLASSES = (Y > 0).astype(int)
GOOD = sparse.csr_array(VALUES.astype(float))
BROKEN = [("csr", "index huge"), ("csc", "index -1"), ("bsr", "indptr ends late"),
          ("coo", "row -1"), ("csr", "data short"), ("csc", "indptr falls"),
          ("lil", "list: column -1")]  # fmt: skip
MODELS = {
    "lda": (
        se.DistributedLDA(3, max_iter=2),
        None,
        "fit_transform transform score perplexity coherence partial_fit",
    ),
    "mf": (
        se.ModelParallelMF(3, max_iter=2),
        None,
        "fit_transform transform score recommend partial_fit",
    ),
    "lasso": (se.PrioritizedLasso(0.1), Y, "predict score"),
    "lasso cv": (se.PrioritizedLassoCV(alphas=3, cv=2), Y, "predict"),
    "logistic": (
        se.SparseLogisticRegression(1.0),
        CLASSES,
        "predict predict_proba predict_log_proba decision_function score",
    ),
    "logistic cv": (se.SparseLogisticRegressionCV(Cs=2, cv=2), CLASSES, "predict_proba"),
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
            estimator.recommend(
                range(len(VALUES)), exclude=X
            ) if method == "recommend" else getattr(estimator, method)(*given)
    assert vars(estimator).keys() == before.keys()
