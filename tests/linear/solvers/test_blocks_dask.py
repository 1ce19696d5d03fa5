"""Groups and several classes on Dask have the bits of the same partitions in memory."""

import dask.array as da
import numpy as np
import pytest
from checkpoints import left_by
from clusters import keys_left
from scipy import sparse

from schmp_estimators import SparseGLM, SparseGLMCV, sparse_glm_path
from schmp_estimators.linear.programs import choose, joint

RNG = np.random.default_rng(0)
X = RNG.normal(size=(105, 60))
Y = X[:, :6] @ RNG.normal(size=(6, 3)) + 0.5 * RNG.normal(size=(105, 3))
LABELS = np.array(["down", "level", "up"])[Y.argmax(axis=1)]
WEIGHTS = RNG.uniform(0.5, 2.0, 105)
GROUPS = {"penalty": "group", "groups": np.arange(60) // 5, "alpha": 0.05, "tol": 1e-8}
CASES = {
    "groups": (GROUPS, X, Y[:, 0]),
    "Poisson groups": ({"loss": "poisson", **GROUPS}, X, np.floor(np.abs(Y[:, 0]))),
    "classes": ({"loss": "multinomial", "alpha": 0.02, "tol": 1e-8}, X, LABELS),
    "groups of classes": ({"loss": "multinomial", **GROUPS}, X, LABELS),
    "sparse classes": (
        {"loss": "multinomial", "alpha": 0.02, "tol": 1e-8},
        sparse.csr_array(X * (RNG.random(X.shape) < 0.4)),
        LABELS,
    ),
}


@pytest.fixture(params=CASES)
def case(request, monkeypatch):
    monkeypatch.setattr(choose, "prefer_residual", lambda size: size.sparse)
    monkeypatch.setattr(joint, "_MOST_WORK", 0)
    return CASES[request.param]


def chunked(values, count):
    dense = values.toarray() if sparse.issparse(values) else values
    found = da.from_array(dense, chunks=(105 // count, 60))
    return found.map_blocks(sparse.csr_array) if sparse.issparse(values) else found


@pytest.mark.parametrize("count", [1, 3, 7])
def test_partitions_alone_determine_the_bits(case, count, client):
    options, values, y = case
    here = left_by(SparseGLM(n_shards=count, **options).fit(values, y, WEIGHTS))
    threads = SparseGLM(n_shards=count, n_jobs=2, **options).fit(values, y, WEIGHTS)
    assert left_by(threads) == here
    there = SparseGLM(**options).fit(chunked(values, count), y, WEIGHTS)
    assert left_by(there) == here
    assert not keys_left(client)


def test_paths_and_folds_are_those_of_memory(case, client):
    options, values, y = case
    options = {name: value for name, value in options.items() if name != "alpha"}
    grid = {**options, "alphas": [0.3, 0.1, 0.03]}
    if options.get("loss") != "multinomial":
        one, other = (sparse_glm_path(given, y, **grid) for given in (values, chunked(values, 1)))
        for ours, theirs in zip(one, other, strict=True):
            assert np.array_equal(ours, theirs)
    ours = SparseGLMCV(cv=3, **grid).fit(values, y)
    theirs = SparseGLMCV(cv=3, **grid).fit(chunked(values, 1), y)
    assert ours.alpha_ == theirs.alpha_ and np.array_equal(ours.coef_, theirs.coef_)
    single = SparseGLM(alpha=ours.alpha_, **options).fit(values, y)
    assert np.array_equal(single.coef_, ours.coef_)
