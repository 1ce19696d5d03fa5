"""The door for regression: what is left out, what is refused, and that no chunk of X hides anything."""

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Lasso

from schmp_estimators import PrioritizedLasso, SparseLogisticRegression
from schmp_estimators.core.door.inputs import read_chunk
from schmp_estimators.linear.data.samples import check_length, drop_weightless, read_samples

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 5))
Y = X[:, 0] + 0.1 * rng.normal(size=30)
WEIGHTS = np.where(np.arange(30) % 3 == 1, 0.0, 1.0 + np.arange(30) / 30)
FORMS = {"dense": np.asarray, "sparse": sp.csc_array, "Dask": lambda X: da.from_array(X, chunks=(7, 5))}
ESTIMATORS = {"Lasso": (PrioritizedLasso(0.01), Y), "logistic": (SparseLogisticRegression(), Y > 0)}


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_rows_without_weight_are_left_out(form):
    kept, y, weights = drop_weightless(FORMS[form](X), Y, WEIGHTS)
    used = WEIGHTS > 0
    kept = kept.toarray() if sp.issparse(kept) else kept
    np.testing.assert_array_equal(kept, X[used])
    np.testing.assert_array_equal(y, Y[used])
    np.testing.assert_array_equal(weights, WEIGHTS[used])


def test_rows_of_chunks_without_weight_are_named():
    samples = read_samples(PrioritizedLasso(), FORMS["Dask"](X), Y, WEIGHTS, y_numeric=True)
    np.testing.assert_array_equal(samples.used, WEIGHTS > 0)
    np.testing.assert_array_equal(samples.y, Y[WEIGHTS > 0])
    np.testing.assert_array_equal(samples.weights, WEIGHTS[WEIGHTS > 0])


@pytest.mark.parametrize("form", FORMS)
def test_a_row_without_weight_has_no_influence(form):
    wild = X.copy()
    wild[WEIGHTS == 0] = 1e6
    ours = PrioritizedLasso(0.01, tol=1e-12).fit(FORMS[form](wild), Y, sample_weight=WEIGHTS)
    used = WEIGHTS > 0
    theirs = Lasso(0.01, tol=1e-12, max_iter=100_000).fit(X[used], Y[used], sample_weight=WEIGHTS[used])
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_is_not_finite_is_refused_with_and_without_weight(name, form, value):
    estimator, y = ESTIMATORS[name]
    for row in (1, 2):  # without weight, and with one
        broken = X.copy()
        broken[row, 3] = value
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            estimator.fit(FORMS[form](broken), y, sample_weight=WEIGHTS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_lengths_and_weights_that_make_no_sense_are_refused(name, form):
    estimator, y = ESTIMATORS[name]
    with pytest.raises(ValueError, match="inconsistent"):
        estimator.fit(FORMS[form](X), y[:-1])
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        estimator.fit(FORMS[form](X), y, sample_weight=np.where(np.arange(30) == 4, -1.0, 1.0))
    with pytest.raises(ValueError, match="30"):
        estimator.fit(FORMS[form](X), y, sample_weight=np.ones(29))


def test_chunks_of_unknown_length_are_counted_before_work():
    chunks = [dask.delayed(np.asarray)(part) for part in np.array_split(X, 4)]
    with pytest.raises(ValueError, match=r"\[30, 31\]"):
        PrioritizedLasso().fit(chunks, np.append(Y, 0.0))
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[3, 4\]"):
        check_length(3, 4)


def test_the_values_of_a_frame_lie_by_columns_wherever_it_comes_from():
    pd = pytest.importorskip("pandas")
    frames = [
        pd.DataFrame(np.ascontiguousarray(X)),
        pd.DataFrame(np.asfortranarray(X)),
        pd.DataFrame(dict(enumerate(X.T))),
    ]
    for frame in frames:
        assert read_chunk(frame).flags.f_contiguous
        np.testing.assert_array_equal(read_chunk(frame), X)
