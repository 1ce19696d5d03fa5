"""Laws of ModelParallelMF: what a second fit goes on from, when a fit stops, where it starts, what is held out."""

import numpy as np
import pytest
import scipy.sparse as sp
from definition import run_serial
from sklearn.metrics import r2_score

from schmp_estimators import ModelParallelMF
from schmp_estimators.core.rng import stream_key
from schmp_estimators.mf.data.ratings import (
    HoldOut,
    ShardPlan,
    count_and_measure,
    held_out_mask,
    make_shard,
    split_ratings,
)
from schmp_estimators.mf.data.scale import Grid
from schmp_estimators.mf.kernels.layout import deal
from schmp_estimators.mf.kernels.sgd import RatingBlock
from schmp_estimators.mf.programs.bsp import BspFactorization
from schmp_estimators.mf.programs.sgd import SgdFactorization

generator = np.random.default_rng(0)
TRUTH = generator.normal(size=(50, 1)) + generator.normal(size=(50, 3)) @ generator.normal(size=(3, 40)) + 3.0
OBSERVED = generator.random(TRUTH.shape) < 0.4
DENSE = np.where(OBSERVED, TRUTH, np.nan)
MATRIX = sp.csr_array((TRUTH[OBSERVED], np.nonzero(OBSERVED)), shape=TRUTH.shape)


def model(**parameters):
    return ModelParallelMF(
        **{"n_components": 4, "random_state": 0, "max_iter": 3, "tol": 0.0, "n_shards": 2} | parameters
    )


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
    short, whole = (model(early_stopping=True, n_iter_no_change=9, max_iter=n).fit(MATRIX) for n in (2, 4))
    assert whole.n_iter_ == 4
    np.testing.assert_array_equal(whole.components_, short.components_)


def test_an_improvement_below_tol_is_none_unless_it_adds_up():
    slow = [1.0 - 0.001 * epoch for epoch in range(30)]
    assert stopping(slow, n_iter_no_change=3) is None
    assert stopping(slow, n_iter_no_change=3, tol=0.5) == 4
    assert stopping(slow, n_iter_no_change=30, tol=0.01) is None
    # a fall by 1 % takes eleven epochs, so that within five there is always none
    assert stopping(slow, n_iter_no_change=5, tol=0.01) == 6


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_without_evaluation_squared_errors_on_the_way_must_fall_by_tol(scale):
    estimator = model(tol=0.1)
    for last, stops in ((0.5, False), (0.9, False), (0.96, True), (1.1, True)):
        estimator.history_ = [{"running_rmse": 3 * scale}, {"running_rmse": scale}, {"running_rmse": last * scale}]
        assert estimator._has_converged() == stops


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


def test_score_of_a_matrix_is_that_of_its_predictions():
    fitted = model(max_iter=10).fit(MATRIX)
    predicted = fitted.predict(DENSE)
    assert fitted.score(DENSE) == pytest.approx(r2_score(TRUTH[OBSERVED], predicted[OBSERVED]), rel=1e-5)
    assert fitted.score(MATRIX) == pytest.approx(fitted.score(DENSE), rel=1e-5)


def test_which_ratings_are_held_out_follows_from_user_item_and_seed():
    users, items = (ids.ravel().astype(np.int32) for ids in np.indices((60, 80)))
    ratings = RatingBlock(users, items, np.ones(users.size, np.float32))
    masks = [held_out_mask(ratings, HoldOut(stream_key(seed, 2), np.uint64(0.2 * 2.0**64))) for seed in (0, 1)]
    for mask in masks:
        table = mask.reshape(60, 80)
        # counts of independent draws: within five standard deviations for every user and every item
        for axis, size in ((1, 80), (0, 60)):
            assert np.abs(table.mean(axis=axis) - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / size)
    assert np.mean(masks[0] & masks[1]) == pytest.approx(0.04, abs=0.02)
    order = np.random.default_rng(0).permutation(users.size)
    shuffled = RatingBlock(*(array[order] for array in ratings))
    np.testing.assert_array_equal(
        held_out_mask(shuffled, HoldOut(stream_key(0, 2), np.uint64(0.2 * 2.0**64))), masks[0][order]
    )


def test_another_seed_holds_out_other_ratings():
    """How many are left is a matter of chance, too: five seeds that agree would hold out the same."""
    options = {"max_iter": 1, "early_stopping": True, "validation_fraction": 0.3}
    left = [model(**options | {"random_state": seed}).fit(MATRIX).history_[0]["samples"] for seed in range(5)]
    assert len(set(left)) > 1
    assert all(0.5 * MATRIX.nnz < n < 0.9 * MATRIX.nnz for n in left)


def test_what_is_held_out_is_not_trained_on(monkeypatch):
    """Ratings without any structure: those that are trained on are learnt by heart, the others cannot be learnt."""
    monkeypatch.setattr(ModelParallelMF, "_has_converged", lambda self: False)
    noise = MATRIX.copy()
    noise.data = np.random.default_rng(1).normal(size=noise.nnz)
    fitted = model(n_components=30, alpha=1e-3, max_iter=60, early_stopping=True, validation_fraction=0.3).fit(noise)
    assert fitted.history_[-1]["running_rmse"] < 0.3 * fitted.history_[-1]["validation_rmse"]


def shards_of_three(kind):
    """Three shards of the ratings, as `kind` wants them."""
    users, items = (ids.astype(np.int32) for ids in np.nonzero(OBSERVED))
    ratings, nothing = (
        RatingBlock(users, items, TRUTH[OBSERVED].astype(np.float32)),
        HoldOut(np.uint64(0), np.uint64(0)),
    )
    counts = count_and_measure(ratings, *TRUTH.shape, nothing, Grid(0.0, 1.0)).counts
    placed = deal(counts[:50], 3), deal(counts[50:], 3 if kind is SgdFactorization else 1)
    plan = ShardPlan(*placed, counts[50:], nothing, blocks=True, keep_seen=False)
    return [make_shard(number, plan, [split_ratings(ratings, placed[0])[number]]).shard for number in range(3)]


@pytest.mark.parametrize("kind", [SgdFactorization, BspFactorization])
def test_lengths_of_rows_stay_true(kind):
    program = kind(n_components=5, mean=3.0, scale=1.0, penalty=0.05, learning_rate=0.02)
    *_, (_, _, saved) = run_serial(program, shards_of_three(kind), 3)
    blocks = [*saved.shards, *(saved.blocks or [saved.model.items])]
    for block in blocks:
        np.testing.assert_allclose(block.norms, (block.factors**2).sum(axis=1), rtol=1e-3, atol=1e-5)


def test_new_users_may_rate_an_item_once():
    fitted = model().fit(MATRIX)
    twice = sp.csr_array((np.array([1.0, 2.0]), np.array([3, 3]), np.array([0, 2])), shape=(1, MATRIX.shape[1]))
    with pytest.raises(ValueError, match="row 0 and column 3 more than once"):
        fitted.transform(twice)
