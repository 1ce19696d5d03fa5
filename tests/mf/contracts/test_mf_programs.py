"""Programs of matrix factorisation: numbers that an oracle confirms."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from oracles import mf as oracle

from schmp_estimators import ModelParallelMF
from schmp_estimators.core.rng import stream_key
from schmp_estimators.mf.data.ratings import HoldOut, held_out_mask
from schmp_estimators.mf.kernels.sgd import RatingBlock
from schmp_estimators.mf.kernels.steps import NORM
from schmp_estimators.mf.programs.sgd import SgdFactorization

MATRIX = sp.random_array((60, 45), density=0.3, rng=np.random.default_rng(0)).tocsr()
MATRIX.data = np.rint(4 * MATRIX.data - 1.6)
RATINGS = RatingBlock(*(ids.astype(np.int32) for ids in MATRIX.tocoo().coords), MATRIX.data)
KINDS = {
    "sgd": {},
    "bsp": {"schedule": "bsp", "learning_rate": 0.03},
    "ccd": {"solver": "ccd", "evaluate_every": 0},
}

make = partial(
    ModelParallelMF, 11, max_iter=4, tol=0.0, random_state=0, alpha=0.05, evaluate_every=1
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("penalty", ["per_rating", "per_row", 0.5])
@pytest.mark.parametrize("fit_bias", [True, False])
def test_recorded_objective_is_that_of_the_factors(kind, penalty, fit_bias):
    mf = make(n_shards=3, penalty=penalty, fit_bias=fit_bias, early_stopping=True)
    mf.set_params(**KINDS[kind], n_iter_no_change=9, validation_fraction=0.2).fit(MATRIX)
    record, unit = min(mf.history_, key=lambda one: one["validation_rmse"]), mf.rating_scale_
    held_out = held_out_mask(RATINGS, HoldOut(stream_key(0, 2), np.uint64(0.2 * 2.0**64)))
    standard = RATINGS._replace(values=(RATINGS.values - mf.global_mean_) / unit)
    judged, told = (
        RatingBlock(*(array[mask] for array in standard)) for mask in (held_out, ~held_out)
    )
    counts = np.bincount(told.users, minlength=60), np.bincount(told.items, minlength=45)
    # rows without ratings are as they were
    power = {"per_rating": 1, "per_row": 0}.get(penalty, penalty)
    weights = [0.05 * (n > 0) * n.astype(float) ** power for n in counts]
    factors = (side / np.sqrt(unit) for side in (mf.user_factors_, mf.components_.T))
    model = *factors, mf.user_bias_ / unit, mf.item_bias_ / unit, 0.0
    loss, penalties = oracle.objective(told, *model, *weights)
    assert record["objective"] == pytest.approx(unit**2 * (loss + penalties), rel=1e-4)
    assert record["train_rmse"] == pytest.approx(unit * np.sqrt(loss / told.values.size), rel=1e-4)
    loss, _ = oracle.objective(judged, *model, *weights)
    assert record["validation_rmse"] == pytest.approx(
        unit * np.sqrt(loss / judged.values.size), rel=1e-4
    )
    assert mf.user_bias_.any() == mf.item_bias_.any() == fit_bias


def last(n_shards, **parameters):
    return make(n_shards=n_shards, **parameters).fit(MATRIX).history_[-1]["objective"]


@pytest.mark.parametrize(
    "changes", [{}, {"positive": True}, {"fit_bias": False}, {"penalty": "per_row"}], ids=str
)
def test_gradient_descent_falls_and_hardly_depends_on_shards(changes):
    assert last(1, **changes) < last(1, max_iter=1, **changes)
    assert last(1, **changes) == pytest.approx(last(8, **changes), rel=0.03)


@pytest.mark.parametrize("kind", ["sgd", "bsp"])
def test_lengths_of_rows_stay_true(kind, monkeypatch):
    harvest, seen = SgdFactorization.harvest_block, []
    monkeypatch.setattr(
        SgdFactorization, "harvest_block", lambda self, one: seen.append(one) or harvest(self, one)
    )
    make(**KINDS[kind], n_shards=3).fit(MATRIX)
    for block in seen:
        np.testing.assert_allclose(
            block.numbers[:, NORM], (block.factors**2).sum(axis=1), rtol=1e-3, atol=1e-5
        )
    assert seen


def test_copies_need_a_smaller_step_than_rotation():
    assert last(15, learning_rate=0.4) < 1.05 * last(1, learning_rate=0.4)
    with pytest.raises(ValueError, match=r"learning_rate=0\.4 is too large for 15 copies"):
        last(15, learning_rate=0.4, schedule="bsp")
    assert last(15, learning_rate=0.05, schedule="bsp") < 1.05 * last(15, learning_rate=0.05)
