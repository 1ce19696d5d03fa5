"""Laws of ModelParallelMF.

What a second fit goes on from, when a fit stops, where it starts, what is held out.
"""

from functools import partial

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from mf_cases import bits, planted
from sklearn.metrics import ndcg_score, r2_score

from schmp_estimators import ModelParallelMF
from schmp_estimators.core.rng import stream_key
from schmp_estimators.mf.data.ratings import HoldOut, held_out_mask
from schmp_estimators.mf.kernels.sgd import RatingBlock
from schmp_estimators.mf.programs.sgd import SgdFactorization

TRUTH, OBSERVED = planted()
DENSE = np.where(OBSERVED, TRUTH, np.nan)
MATRIX = sp.csr_array((TRUTH[OBSERVED], np.nonzero(OBSERVED)), shape=TRUTH.shape)


model = partial(ModelParallelMF, n_components=4, random_state=0, max_iter=3, tol=0.0, n_shards=2)


def stopping(errors, **parameters):
    """The number of epochs after which a fit with these validation errors stops."""
    estimator = model(early_stopping=True, **parameters)
    estimator.history_ = []
    for number, error in enumerate(errors, 1):
        estimator.history_.append({"running_rmse": 1.0, "validation_rmse": error})
        if estimator._has_converged():
            return number
    return None


@pytest.mark.parametrize("patience", [1, 3])
def test_early_stopping_ends_after_so_many_epochs_without_improvement(patience):
    errors = [5.0, 4.0, 3.0, 3.5, 3.4, 3.3, 3.2, 3.1, 3.05]
    assert stopping(errors, n_iter_no_change=patience) == 3 + patience
    assert stopping([5.0, 4.0, 4.5, 3.0, 2.0, 1.0], n_iter_no_change=2) is None


def test_what_is_kept_is_the_best_of_all_epochs_not_an_improvement_on_the_last(monkeypatch):
    errors, record = [5.0, 3.0, 4.0, 3.5], SgdFactorization.record
    monkeypatch.setattr(
        SgdFactorization,
        "record",
        lambda self, sweep, *rest: record(self, sweep, *rest) | {"validation_rmse": errors[sweep]},
    )
    short, whole = (
        model(early_stopping=True, n_iter_no_change=9, max_iter=n).fit(MATRIX) for n in (2, 4)
    )
    assert whole.n_iter_ == 4
    assert bits(whole) == bits(short)


def test_an_improvement_below_tol_is_none_unless_it_adds_up():
    slow = [1.0 - 0.001 * epoch for epoch in range(30)]
    assert stopping(slow, n_iter_no_change=3) is None
    assert stopping(slow, n_iter_no_change=3, tol=0.5) == 4
    assert stopping(slow, n_iter_no_change=30, tol=0.01) is None
    # a fall by 1 % takes eleven epochs, so that within five there is always none
    assert stopping(slow, n_iter_no_change=5, tol=0.01) == 6


MONITORED = [
    ("validation_rmse", {"early_stopping": True, "evaluate_every": 1}),
    ("objective", {}),
    ("objective", {"evaluate_every": 2}),
    ("running_loss", {"loss": "bpr"}),
    ("running_rmse", {}),
]


@pytest.mark.parametrize("name_and_given", MONITORED, ids=str)
@pytest.mark.parametrize("patience", [None, 1, 2, 3, 9])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_tol_has_one_meaning_whatever_is_monitored(name_and_given, patience, scale):
    name, given = name_and_given
    noisy = name in ("validation_rmse", "running_loss")
    values = scale * np.array([9.0, 8.0, 8.5, 7.0, 6.9, 6.8, 6.7, 3.0])
    if name == "running_rmse":
        values = np.sqrt(values)
    every = given.get("evaluate_every", 1)
    estimator = model(tol=0.1, n_iter_no_change=patience, **given)
    estimator.history_ = []
    for epoch in range(1, every * len(values) + 1):
        monitored = {} if epoch % every else {name: values[epoch // every - 1]}
        estimator.history_.append({"objective": 9.0, "running_rmse": 9.0, **monitored})
        if name != "validation_rmse" and not monitored.get("objective"):
            del estimator.history_[-1]["objective"]
        if estimator._has_converged():
            break
    # 8 and 7 are falls by a tenth, 8.5 and what follows 7 are none, and 3 is one
    ends = {1: 3, 2: 6, 3: 7, 9: 8}[patience or (3 if noisy else 1)]
    assert epoch == every * ends


def test_users_and_items_start_from_numbers_of_their_own():
    square = sp.csr_array(np.ones((30, 30)) + np.eye(30))
    fitted = model(learning_rate=1e-12, max_iter=1).fit(square)
    first, second = fitted.user_factors_.ravel(), fitted.components_.T.ravel()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.3


@pytest.mark.parametrize("mean", [-5.0, 5.0])
def test_without_biases_first_products_are_about_the_mean(mean):
    matrix = MATRIX.copy()
    matrix.data = matrix.data - matrix.data.mean() + mean
    fitted = model(fit_bias=False, learning_rate=1e-12, max_iter=1).fit(matrix)
    products = (fitted.user_factors_ @ fitted.components_)[OBSERVED]
    assert np.mean(products) == pytest.approx(mean, rel=0.3)


def parted(matrix):
    """Return a matrix without the ratings that `score` judges, and where they are.

    They are a tenth or a hundred.
    """
    users, items = (ids.astype(np.int32) for ids in np.nonzero(~np.isnan(matrix)))
    judged = np.zeros(matrix.shape, bool)
    ratings = RatingBlock(users, items, matrix[users, items])
    share = max(0.1, min(100 / users.size, 0.5))
    judged[users, items] = held_out_mask(ratings, HoldOut(np.uint64(0), np.uint64(share * 2.0**64)))
    assert judged.sum() == pytest.approx(share * users.size, rel=0.3)
    return np.where(judged, np.nan, matrix), judged


@pytest.mark.parametrize(
    "parameters", [{}, {"fit_bias": False}, {"positive": True}, {"clip": True, "alpha": 1e-3}]
)
def test_score_of_a_matrix_is_that_of_what_it_was_not_told(parameters):
    fitted = model(max_iter=10, **parameters).fit(MATRIX)
    some = np.where(np.arange(50)[:, None] < 9, DENSE, np.nan)
    for X in (some, DENSE, np.tile(DENSE, (3, 1))):
        told, judged = parted(X)
        found, expected = fitted.predict(told)[judged], X[judged]
        assert fitted.score(X) == pytest.approx(r2_score(expected, found), rel=1e-5)
        assert fitted.score(np.where(judged, X + 1, X)) == pytest.approx(
            r2_score(expected + 1, found), rel=1e-5
        )
    score = fitted.score(DENSE)
    for X in (
        MATRIX,
        MATRIX.tocsc(),
        MATRIX.tocoo(),
        pd.DataFrame(DENSE),
        da.from_array(DENSE, chunks=(9, -1)),
    ):
        assert fitted.score(X) == score


def test_score_of_a_matrix_of_clicks_ranks_what_it_was_not_told():
    seen = np.random.default_rng(4).random((60, 40)) < 0.3 * np.linspace(0.1, 2, 40)
    seen[30:] = (
        np.arange(40) == np.arange(39, 9, -1)[:, None]
    )  # one click each, which may be the one that is judged
    seen[3], seen[:, 17] = False, False
    X = np.where(seen, 1.0, np.nan)
    X[0, :9] = 0.0  # who saw these did not want them
    fitted = model(max_iter=10, solver="ccd", unobserved_weight=0.1).fit(X)
    told, judged = parted(X)
    ranks = fitted.transform(told)
    ranks[~ranks.any(axis=1)] = fitted.user_factors_.mean(axis=0)
    ranks = ranks @ fitted.components_
    ranks[~np.isnan(told)] = ranks[:, 17] = -1e9
    wanted = judged & (X > 0)
    asked = wanted.any(axis=1)
    assert fitted.score(X) == pytest.approx(ndcg_score(wanted[asked], ranks[asked], k=10), rel=1e-6)


def test_which_ratings_are_held_out_follows_from_user_item_and_seed():
    users, items = (ids.ravel().astype(np.int32) for ids in np.indices((60, 80)))
    ratings = RatingBlock(users, items, np.ones(users.size, np.float32))
    masks = [
        held_out_mask(ratings, HoldOut(stream_key(seed, 2), np.uint64(0.2 * 2.0**64)))
        for seed in (0, 1)
    ]
    for mask in masks:
        table = mask.reshape(60, 80)
        # counts of independent draws: within five standard deviations for every user and every item
        for axis, size in ((1, 80), (0, 60)):
            assert np.abs(table.mean(axis=axis) - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / size)
    assert np.mean(masks[0] & masks[1]) == pytest.approx(0.04, abs=0.02)
    order = np.random.default_rng(0).permutation(users.size)
    shuffled = RatingBlock(*(array[order] for array in ratings))
    found = held_out_mask(shuffled, HoldOut(stream_key(0, 2), np.uint64(0.2 * 2.0**64)))
    np.testing.assert_array_equal(found, masks[0][order])


def test_another_seed_holds_out_other_ratings():
    """How many are left is a matter of chance, too.

    Five seeds that agree would hold out the same.
    """
    options = {"max_iter": 1, "early_stopping": True, "validation_fraction": 0.3}
    left = [
        model(**options | {"random_state": seed}).fit(MATRIX).history_[0]["samples"]
        for seed in range(5)
    ]
    assert len(set(left)) > 1
    assert all(0.5 * MATRIX.nnz < n < 0.9 * MATRIX.nnz for n in left)


def test_what_is_held_out_is_not_trained_on(monkeypatch):
    """Ratings without any structure.

    Those that are trained on are learnt by heart, the others cannot be learnt.
    """
    monkeypatch.setattr(ModelParallelMF, "_has_converged", lambda self: False)
    noise = MATRIX.copy()
    noise.data = np.random.default_rng(1).normal(size=noise.nnz)
    fitted = model(
        n_components=30, alpha=1e-3, max_iter=60, early_stopping=True, validation_fraction=0.3
    ).fit(noise)
    assert fitted.history_[-1]["running_rmse"] < 0.3 * fitted.history_[-1]["validation_rmse"]


def test_new_users_may_rate_an_item_once():
    fitted = model().fit(MATRIX)
    twice = sp.csr_array(
        (np.array([1.0, 2.0]), np.array([3, 3]), np.array([0, 2])), shape=(1, MATRIX.shape[1])
    )
    with pytest.raises(ValueError, match="row 0 and column 3 more than once"):
        fitted.transform(twice)
