import numpy as np
import pytest
from scipy.optimize import nnls

from schmp_estimators.core.values import freeze
from schmp_estimators.mf.kernels import foldin
from schmp_estimators.mf.kernels.ccd import UserRatings


def fold_in(*arguments):
    """Fold in with constant arrays, as fits do: there is one kernel."""
    foldin.fold_in(*freeze(arguments[:-1]), arguments[-1])


def top_items(*arguments):
    foldin.top_items(*freeze(arguments[:-2]), *arguments[-2:])


def rated(dense):
    """Ratings, and as many ones."""
    observed = ~np.isnan(dense)
    indptr = np.concatenate([[0], np.cumsum(observed.sum(axis=1))])
    ratings = UserRatings(indptr, np.nonzero(observed)[1].astype(np.int32), dense[observed].astype(np.float64))
    return ratings, np.ones(ratings.values.size)


@pytest.fixture
def dense():
    generator = np.random.default_rng(0)
    dense = generator.normal(size=(12, 30)).astype(np.float32)
    dense[generator.random(dense.shape) < 0.5] = np.nan
    dense[5] = np.nan
    return dense


def test_positive_fold_in_equals_non_negative_least_squares(dense):
    features = np.random.default_rng(3).normal(size=(30, 6))
    out = np.empty((12, 6))
    fold_in(*rated(dense), features, np.full(12, 0.5), np.zeros((6, 6)), 6, True, out)
    for row, found in zip(dense, out, strict=True):
        known = ~np.isnan(row)
        stacked = np.vstack([features[known], np.sqrt(0.5) * np.eye(6)])
        expected, _ = nnls(stacked, np.concatenate([row[known], np.zeros(6)]))
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_ties_go_to_the_lower_number():
    rows = np.zeros((1, 8), np.float32)
    items, scores = np.empty((1, 3), np.int64), np.empty((1, 3), np.float32)
    nothing = np.zeros(0, np.int32)
    bias = np.zeros(6, np.float32)
    top_items(np.array([0]), rows, np.zeros((6, 8), np.float32), bias, np.zeros(2, np.int64), nothing, items, scores)
    assert items.tolist() == [[0, 1, 2]]
