"""The L1 models on Dask.

A fixed chunking has the same bits everywhere, what comes out is lazy, X stays there.
"""

import dask
import dask.array as da
import dask.dataframe as dd
import input_cases
import numpy as np
import pandas as pd
import pytest
from checkpoints import left_by
from clusters import keys_left, kill_workers
from covering import slow_but
from oracles.rounds import by_rounds
from scipy import sparse
from untouchable import make_untouchable

from schmp_estimators import PrioritizedLasso, SparseLogisticRegression
from schmp_estimators.linear.programs import choose
from schmp_estimators.linear.programs.joint import ResolveJoint

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


def chunked(rows=20, columns=-1, form=None, values=X, **options):
    return input_cases.chunked(values, rows, columns, form, **options)


FORMS = {
    "dense": chunked,
    "Fortran": lambda: chunked(values=np.asfortranarray(X)),
    "empty chunks": lambda: chunked((0, 30, 0, 60)),
    "csr_array": lambda: chunked(form=sparse.csr_array),
    "csc_matrix": lambda: chunked(form=sparse.csc_matrix),
    "columns": lambda: chunked(20, 15),
    "unknown rows": lambda: chunked(has_sizes=False),
    "data frame": lambda: dd.from_pandas(
        pd.DataFrame(X, columns=[f"x{j}" for j in range(40)]), npartitions=3
    ),
    "delayed": lambda: [dask.delayed(X[:50]), dask.delayed(sparse.csr_array)(X[50:])],
}


def computed(result):
    assert not isinstance(result, np.ndarray)
    parts = result if isinstance(result, list) else [result]
    return np.concatenate(dask.compute(*parts, scheduler="sync"))


@pytest.mark.parametrize(
    "kind", slow_but(["csr_array", "columns", "unknown rows", "delayed"], FORMS)
)
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_every_kind_of_collection(client, kind):
    """Here and on a cluster the bits are the same; those of memory differ by rounding."""
    collection, in_memory = FORMS[kind](), lasso().fit(X, Y)
    here = lasso().fit(collection, Y)
    with client.as_current():
        there = lasso().fit(collection, Y)
        assert left_by(there) == left_by(here)
        labelled = logistic(tol=1e-3).fit(collection, Y > 0)
    assert left_by(labelled) == left_by(logistic(tol=1e-3).fit(collection, Y > 0))
    np.testing.assert_allclose(here.coef_, in_memory.coef_, atol=1e-3)
    assert here.n_features_in_ == there.n_features_in_ == 40
    assert hasattr(here, "feature_names_in_") == (kind == "data frame")
    np.testing.assert_allclose(
        computed(there.predict(collection)), there.predict(X), rtol=1e-10, atol=1e-12
    )
    assert keys_left(client) == []


def test_predictions_are_lazy():
    collection = chunked()
    fitted, several = logistic().fit(X, LABELS), lasso().fit(X, np.column_stack([Y, -Y]))
    for method in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        found, expected = getattr(fitted, method)(collection), getattr(fitted, method)(X)
        assert (
            isinstance(found, da.Array)
            and found.shape == expected.shape
            and found.dtype == expected.dtype
        )
        np.testing.assert_array_equal(found.chunks[0], collection.chunks[0])
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(computed(found), expected, rtol=1e-10, atol=1e-12)
        else:
            np.testing.assert_array_equal(computed(found), expected)
    assert several.predict(collection).shape == (90, 2)
    binary = logistic().fit(X, Y > 0)
    assert binary.decision_function(collection).shape == (90,)
    pieces = [dask.delayed(X[:9]), dask.delayed(X[9:])]
    np.testing.assert_array_equal(computed(binary.predict(pieces)), binary.predict(X))
    with pytest.raises(ValueError, match="contains NaN"):
        computed(binary.predict(chunked(values=np.where(X[70, 3] == X, np.nan, X))))


BAD = {
    "NaN": (
        lambda: (chunked(values=np.where(X[70, 3] == X, np.nan, X)), Y),
        "Input X contains NaN",
    ),
    "NaN in y": (
        lambda: (chunked(), da.from_array(np.where(Y[3] == Y, np.nan, Y), chunks=9)),
        "Input y contains NaN",
    ),
    "length": (lambda: (chunked(), Y[:-1]), r"inconsistent numbers of samples: \[90, 89\]"),
    "unknown length": (
        lambda: (chunked(has_sizes=False), Y[:-1]),
        r"inconsistent numbers of samples: \[90, 89\]",
    ),
    "no y": (lambda: (chunked(), None), "requires y to be passed"),
    "no rows": (lambda: (chunked((0,), values=X[:0]), Y[:0]), r"0 sample\(s\)"),
    "one dimension": (lambda: (da.from_array(Y, chunks=9), Y), "Expected 2D array, got 1D array"),
    "text": (lambda: (da.from_array(LABELS[:, None], chunks=9), Y), "X holds text"),
    "widths": (
        lambda: ([dask.delayed(X[:50]), dask.delayed(X[50:, 1:])], Y),
        "different numbers of columns",
    ),
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
        assert left_by(found) == left_by(expected)
        assert found.predict(collection).sum().compute() == pytest.approx(expected.predict(X).sum())
    assert keys_left(processes) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning:distributed")
@pytest.mark.parametrize("n_killed", slow_but([1], [1, 3]))
@pytest.mark.parametrize(
    "penalty",
    [
        {},
        pytest.param(
            {"l1_ratio": 0.5, "penalty_factors": np.arange(40) % 20}, marks=pytest.mark.slow
        ),
    ],
    ids=["L1", "net, two columns without penalty"],
)
def test_killed_workers_do_not_change_a_bit(monkeypatch, processes, n_killed, penalty):
    by_rounds(monkeypatch)  # so that there are rounds
    expected, seen = lasso(**penalty).fit(chunked(), Y), []

    class Killing(ResolveJoint):
        def _settle(self, columns, *given, **how):
            seen.append(columns)
            if len(seen) == 1:  # rounds follow
                kill_workers(processes, n_killed)
            found = yield from super()._settle(columns, *given, **how)
            seen.append("went on")
            return found

    monkeypatch.setattr(choose, "ResolveJoint", Killing)
    with processes.as_current():
        assert left_by(lasso(**penalty).fit(chunked(), Y)) == left_by(expected)
    assert len(seen) > 1
    assert keys_left(processes) == []
