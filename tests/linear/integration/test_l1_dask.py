"""The L1 models on Dask: a fixed chunking has the same bits everywhere, what comes out is lazy, X stays there."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import keys_left, kill_workers
from scipy import sparse
from untouchable import make_untouchable

from schmp_estimators import PrioritizedLasso, SparseLogisticRegression
from schmp_estimators.linear.programs import choose
from schmp_estimators.linear.programs.quadratic import ResolveQuadratic

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 40)) * (RNG.random((90, 40)) < 0.6)
Y = X[:, 0] - X[:, 1] + 0.3 * RNG.normal(size=90)
LABELS = np.where(Y > 0.3, "up", np.where(Y < -0.6, "down", "level"))
WEIGHTS = RNG.integers(0, 3, 90).astype(float)
WEIGHTS[20:40] = 0.0  # a whole chunk


def lasso(**parameters):
    return PrioritizedLasso(**{"alpha": 0.02, "tol": 1e-8} | parameters)


def logistic(**parameters):
    return SparseLogisticRegression(**{"C": 2.0, "tol": 1e-8} | parameters)


def chunked(chunks=(20, 40), form=None, values=X):
    array = da.from_array(values, chunks=chunks)
    return array if form is None else array.map_blocks(form, dtype=values.dtype, meta=form((1, 1), dtype=values.dtype))


def unknown(chunks=(20, 40)):
    return chunked(chunks)[da.from_array(np.ones(len(X), bool), chunks=chunks[0])]


FORMS = {
    "dense": chunked,
    "Fortran": lambda: chunked(values=np.asfortranarray(X)),
    "empty chunks": lambda: chunked(((0, 30, 0, 60), (40,))),
    "csr_array": lambda: chunked(form=sparse.csr_array),
    "csc_matrix": lambda: chunked(form=sparse.csc_matrix),
    "columns": lambda: chunked((20, 15)),
    "unknown rows": unknown,
    "data frame": lambda: dd.from_pandas(pd.DataFrame(X, columns=[f"x{j}" for j in range(40)]), npartitions=3),
    "delayed": lambda: [dask.delayed(X[:50]), dask.delayed(sparse.csr_array)(X[50:])],
}


def assert_same_bits(one, other):
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert without_times(one.history_) == without_times(other.history_)
    np.testing.assert_array_equal(one.intercept_, other.intercept_)
    np.testing.assert_array_equal(one.dual_gap_, other.dual_gap_)
    assert one.n_iter_ == other.n_iter_ if isinstance(one.n_iter_, int) else list(one.n_iter_) == list(other.n_iter_)


def without_times(history):
    return [without_times(one) if isinstance(one, list) else {**one, "seconds": 0.0} for one in history]


def computed(result):
    assert not isinstance(result, np.ndarray)
    parts = result if isinstance(result, list) else [result]
    return np.concatenate(dask.compute(*parts, scheduler="sync"))


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind, marks=[] if kind in ("csr_array", "columns", "unknown rows", "delayed") else [pytest.mark.slow]
        )
        for kind in FORMS
    ],
)
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_every_kind_of_collection(client, kind):
    """Here and on a cluster the bits are the same; those of memory differ by rounding."""
    collection, in_memory = FORMS[kind](), lasso().fit(X, Y)
    here = lasso().fit(collection, Y)
    with client.as_current():
        there = lasso().fit(collection, Y)
        assert_same_bits(there, here)
        assert_same_bits(
            logistic(tol=1e-3).fit(collection, Y > 0), with_local_runtime(logistic(tol=1e-3), collection, Y > 0)
        )
    np.testing.assert_allclose(here.coef_, in_memory.coef_, atol=1e-3)
    assert here.n_features_in_ == there.n_features_in_ == 40
    assert hasattr(here, "feature_names_in_") == (kind == "data frame")
    np.testing.assert_allclose(computed(there.predict(collection)), there.predict(X), rtol=1e-10, atol=1e-12)
    assert keys_left(client) == []


def with_local_runtime(estimator, *arguments):
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        return estimator.fit(*arguments)


def test_predictions_are_lazy():
    collection = chunked()
    fitted, several = logistic().fit(X, LABELS), lasso().fit(X, np.column_stack([Y, -Y]))
    for method in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        found, expected = getattr(fitted, method)(collection), getattr(fitted, method)(X)
        assert isinstance(found, da.Array) and found.shape == expected.shape and found.dtype == expected.dtype
        np.testing.assert_array_equal(found.chunks[0], collection.chunks[0])
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(computed(found), expected, rtol=1e-10, atol=1e-12)
        else:
            np.testing.assert_array_equal(computed(found), expected)
    assert several.predict(collection).shape == (90, 2)
    binary = logistic().fit(X, Y > 0)
    assert binary.decision_function(collection).shape == (90,)
    np.testing.assert_array_equal(
        computed(binary.predict([dask.delayed(X[:9]), dask.delayed(X[9:])])), binary.predict(X)
    )
    with pytest.raises(ValueError, match="contains NaN"):
        computed(binary.predict(chunked(values=np.where(X[70, 3] == X, np.nan, X))))


BAD = {
    "NaN": (lambda: (chunked(values=np.where(X[70, 3] == X, np.nan, X)), Y), "Input X contains NaN"),
    "NaN in y": (lambda: (chunked(), da.from_array(np.where(Y[3] == Y, np.nan, Y), chunks=9)), "Input y contains NaN"),
    "length": (lambda: (chunked(), Y[:-1]), r"inconsistent numbers of samples: \[90, 89\]"),
    "unknown length": (lambda: (unknown(), Y[:-1]), r"inconsistent numbers of samples: \[90, 89\]"),
    "no y": (lambda: (chunked(), None), "requires y to be passed"),
    "no rows": (lambda: (chunked(((0,), (40,)), values=X[:0]), Y[:0]), r"0 sample\(s\)"),
    "one dimension": (lambda: (da.from_array(Y, chunks=9), Y), "Expected 2D array, got 1D array"),
    "text": (lambda: (da.from_array(LABELS[:, None], chunks=9), Y), "X holds text"),
    "widths": (lambda: ([dask.delayed(X[:50]), dask.delayed(X[50:, 1:])], Y), "different numbers of columns"),
}


@pytest.mark.covering
@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_named_before_work(in_place, kind):
    arguments, message = BAD[kind]
    with pytest.raises(ValueError, match=message):
        lasso().fit(*arguments())


def test_the_client_never_has_x(processes):
    collection = chunked().map_blocks(make_untouchable, dtype=float, meta=sparse.csr_array((1, 1)))
    expected = lasso().fit(chunked(form=sparse.csr_array), Y)
    with processes.as_current():
        with pytest.raises(AssertionError, match="the client has got a chunk"):
            collection[:5].compute()  # so it would be noticed
        found = lasso().fit(collection, Y)
        assert_same_bits(found, expected)
        assert found.predict(collection).sum().compute() == pytest.approx(expected.predict(X).sum())
    assert keys_left(processes) == []


@pytest.mark.filterwarnings("ignore::RuntimeWarning:distributed")
@pytest.mark.parametrize("n_killed", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "penalty",
    [{}, pytest.param({"l1_ratio": 0.5, "penalty_factors": np.arange(40) % 20}, marks=pytest.mark.slow)],
    ids=["L1", "net, two columns without penalty"],
)
def test_killed_workers_do_not_change_a_bit(monkeypatch, processes, n_killed, penalty):
    monkeypatch.setattr(choose, "_MOST_AT_HAND", 0)  # so that there are rounds
    monkeypatch.setattr(choose, "_ROWS", 1 << 30)
    expected, seen = lasso(**penalty).fit(chunked(), Y), []

    class Killing(ResolveQuadratic):
        def _look(self, slopes):
            seen.append(slopes)
            if len(seen) == 1:
                kill_workers(processes, n_killed)
            yield from super()._look(slopes)

    monkeypatch.setattr(choose, "ResolveQuadratic", Killing)
    with processes.as_current():
        assert_same_bits(lasso(**penalty).fit(chunked(), Y), expected)
    assert len(seen) > 1
    assert keys_left(processes) == []
