import numpy as np
import pytest
from oracles import mf as oracle
from scipy.optimize import nnls

from schmp_estimators.core.lanes import pad_rows
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.kernels import foldin
from schmp_estimators.mf.kernels.ccd import UserRatings
from schmp_estimators.mf.kernels.foldin import predict_pairs


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


@pytest.mark.parametrize("n_features", [1, 7, 40])
@pytest.mark.parametrize("penalty", [1e-2, 5.0])
def test_fold_in_equals_the_closed_form(dense, n_features, penalty):
    features = np.random.default_rng(1).normal(size=(30, n_features))
    out = np.empty((12, n_features))
    fold_in(*rated(dense), features, np.full(12, penalty), np.zeros((n_features, n_features)), n_features, False, out)
    expected = [oracle.ridge(row.astype(float), features, penalty) for row in dense]
    np.testing.assert_allclose(out, expected, atol=1e-6)
    assert not out[5].any()


def test_fold_in_without_penalty_fits_what_it_can(dense):
    features = np.random.default_rng(2).normal(size=(30, 40))
    features[:, 1] = features[:, 0]
    out = np.empty((12, 40))
    fold_in(*rated(dense), features, np.zeros(12), np.zeros((40, 40)), 40, False, out)
    fitted = out @ features.T
    assert np.isfinite(out).all()
    np.testing.assert_allclose(fitted[~np.isnan(dense)], dense[~np.isnan(dense)], atol=1e-5)


def test_positive_fold_in_equals_non_negative_least_squares(dense):
    features = np.random.default_rng(3).normal(size=(30, 6))
    out = np.empty((12, 6))
    fold_in(*rated(dense), features, np.full(12, 0.5), np.zeros((6, 6)), 6, True, out)
    for row, found in zip(dense, out, strict=True):
        known = ~np.isnan(row)
        stacked = np.vstack([features[known], np.sqrt(0.5) * np.eye(6)])
        expected, _ = nnls(stacked, np.concatenate([row[known], np.zeros(6)]))
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_predictions_and_recommendations_equal_the_dense_product():
    generator = np.random.default_rng(4)
    users, items = generator.normal(size=(6, 10)), generator.normal(size=(15, 10))
    user_bias, item_bias = generator.normal(size=6).astype(np.float32), generator.normal(size=15).astype(np.float32)
    scores = item_bias + users @ items.T
    rows, columns = (grid.ravel() for grid in np.meshgrid(np.arange(8), np.arange(17), indexing="ij"))
    out = np.empty(rows.size)
    predict_pairs(rows, columns, pad_rows(users), pad_rows(items), user_bias, item_bias, 3.0, out)
    expected = np.full((8, 17), 3.0)
    expected[:6] += user_bias[:, None]
    expected[:, :15] += item_bias
    expected[:6, :15] += users @ items.T
    np.testing.assert_allclose(out.reshape(8, 17), expected, atol=1e-5)

    seen = [[0, 3], [], list(range(15)), [7]]
    ptr = np.concatenate([[0], np.cumsum([len(s) for s in seen])])
    chosen, best = np.empty((4, 5), np.int64), np.empty((4, 5), np.float32)
    flat = np.array([item for items in seen for item in items], np.int32)
    top_items(np.array([0, 1, 2, 5]), pad_rows(users), pad_rows(items), item_bias, ptr, flat, chosen, best)
    for number, user in enumerate([0, 1, 2, 5]):
        left = [item for item in np.argsort(-scores[user]) if item not in seen[number]][:5]
        assert list(chosen[number]) == left + [-1] * (5 - len(left))
        np.testing.assert_allclose(best[number][: len(left)], scores[user][left], atol=1e-5)


def test_ties_go_to_the_lower_number():
    rows = np.zeros((1, 8), np.float32)
    items, scores = np.empty((1, 3), np.int64), np.empty((1, 3), np.float32)
    nothing = np.zeros(0, np.int32)
    bias = np.zeros(6, np.float32)
    top_items(np.array([0]), rows, np.zeros((6, 8), np.float32), bias, np.zeros(2, np.int64), nothing, items, scores)
    assert items.tolist() == [[0, 1, 2]]
