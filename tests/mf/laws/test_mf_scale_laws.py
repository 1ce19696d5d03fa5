"""Laws of matrix factorisation: what must hold whatever the ratings are."""

from math import fsum

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from mf_cases import bits

from schmp_estimators import ModelParallelMF

generator = np.random.default_rng(3)
N_USERS, N_ITEMS = 70, 45
PAIRS = np.argwhere(generator.random((N_USERS, N_ITEMS)) < 0.4)
PAIRS = PAIRS[generator.permutation(len(PAIRS))]
USERS, ITEMS = PAIRS.T
TRUTH = generator.normal(size=(N_USERS, 3)) @ generator.normal(
    size=(3, N_ITEMS)
) + generator.normal(size=N_ITEMS)
RATINGS = TRUTH[USERS, ITEMS] + 0.3 * generator.normal(size=len(PAIRS))
CASES = [
    {"solver": "sgd"},
    {"solver": "ccd"},
    {"solver": "sgd", "fit_bias": False},
    {"solver": "ccd", "fit_bias": False, "positive": True},
    {"solver": "ccd", "penalty": "per_row"},
    {"solver": "sgd", "schedule": "bsp", "learning_rate": 0.05},
]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))


def fit(ratings=RATINGS, pairs=PAIRS, **parameters):
    shape = {"n_components": 5, "n_shards": 2, "max_iter": 8, "tol": 0.0, "random_state": 0}
    return ModelParallelMF(**shape | parameters).fit(pairs, ratings)


@pytest.mark.covering
@cases
@pytest.mark.parametrize("power", [-100, -40, -2, 2, 40, 100])
def test_ratings_times_a_power_of_four_scale_the_model_to_the_bit(case, power):
    """The root of the unit is then a power of two: nothing is rounded another way."""
    base, scaled = fit(**case), fit(RATINGS * 2.0**power, **case)
    factor = 2.0**power
    assert (
        scaled.global_mean_ == base.global_mean_ * factor
        and scaled.rating_scale_ == base.rating_scale_ * factor
    )
    np.testing.assert_array_equal(
        scaled.components_, base.components_ * np.float32(2.0 ** (power // 2))
    )
    np.testing.assert_array_equal(
        scaled.user_factors_, base.user_factors_ * np.float32(2.0 ** (power // 2))
    )
    np.testing.assert_array_equal(scaled.item_bias_, base.item_bias_ * np.float32(factor))
    errors = [[record["running_rmse"] for record in one.history_] for one in (base, scaled)]
    np.testing.assert_array_equal(errors[1], np.multiply(errors[0], factor))


@pytest.mark.covering
@pytest.mark.parametrize("solver", ["sgd", "ccd"])
@pytest.mark.parametrize("shift", [-7.0, 1e3, 1e6, 1e8])
def test_predictions_shift_with_the_ratings(solver, shift):
    base, shifted = fit(solver=solver), fit(RATINGS + shift, solver=solver)
    assert np.abs(shifted.predict(PAIRS) - shift - base.predict(PAIRS)).max() < 1e-3 * RATINGS.std()
    assert shifted.score(PAIRS, RATINGS + shift) == pytest.approx(
        base.score(PAIRS, RATINGS), abs=1e-3
    )
    matrix = sp.csr_array((RATINGS, PAIRS.T), shape=(N_USERS, N_ITEMS))
    moved = matrix.copy()
    moved.data = moved.data + shift
    np.testing.assert_allclose(shifted.transform(moved), base.transform(matrix), atol=2e-3)


def test_moments_are_those_of_the_ratings():
    for ratings in (
        RATINGS,
        RATINGS * 1e-9 + 1e3,
        np.rint(3 * RATINGS),
        np.append(RATINGS[:-1], 1e5),
    ):
        fitted = fit(ratings, max_iter=1)
        rounding = 1e-8 * ratings.std() + 1e-15 * abs(ratings).max()
        assert abs(fitted.global_mean_ - fsum(ratings) / len(ratings)) < rounding
        assert fitted.rating_scale_ == pytest.approx(ratings.std(), rel=1e-7)


@pytest.mark.covering
@pytest.mark.filterwarnings("ignore:all .* ratings are:UserWarning")
@pytest.mark.parametrize("value", [0.0, 1e-20, -3.0, 1e20])
@pytest.mark.parametrize("solver", ["sgd", "ccd"])
def test_equal_ratings_are_predicted(value, solver):
    fitted = fit(np.full(len(RATINGS), value), solver=solver, max_iter=30)
    assert np.abs(fitted.predict(PAIRS) - value).max() <= 0.05 * (abs(value) or 1)
    assert fitted.global_mean_ == value


@pytest.mark.parametrize("solver", ["sgd", "ccd"])
def test_one_rating_cannot_be_held_out(solver, in_place):
    estimator = ModelParallelMF(solver=solver, early_stopping=True, random_state=0)
    given = (
        [PAIRS[:1], RATINGS[:1]]
        if in_place is None
        else [da.from_array(PAIRS[:1]), da.from_array(RATINGS[:1])]
    )
    with pytest.raises(
        ValueError, match="fewer than two; pass more, or fit with early_stopping=False"
    ):
        estimator.fit(*given)
    assert not [name for name in vars(estimator) if name.endswith("_")]


@pytest.mark.parametrize(
    ("ratings", "message"),
    [
        (
            [1e37, 1.0],
            "y holds the rating 1e.37 in row ., but ratings must be finite numbers of at most "
            "1e.36",
        ),
        ([1.0, 1j], "omplex"),
        (
            [0.0, 1e-31],
            "ratings differ by 1e-31 at most, too little for float32; multiply them, for example "
            "by 1e.31",
        ),
    ],
)
def test_ratings_that_float32_cannot_take_are_refused(ratings, message):
    with pytest.raises(ValueError, match=message):
        fit(np.array(ratings), PAIRS[:2])


@pytest.mark.filterwarnings("ignore:all 2 ratings are 3:UserWarning")
@pytest.mark.parametrize("first", [[3.0, 3.0], [1.0, 2.0]])
def test_more_ratings_on_another_scale_are_named_as_the_cause(first):
    fitted = fit(np.array(first), PAIRS[:2])
    before = bits(fitted)
    with pytest.raises(
        ValueError,
        match=r"not on the scale of the first fit, whose mean was .*; begin anew with fit",
    ):
        fitted.partial_fit(PAIRS, RATINGS * 1e6)
    assert bits(fitted) == before


def test_partial_fit_keeps_mean_and_scale():
    fitted = fit(RATINGS * 50 + 200)
    mean, scale = fitted.global_mean_, fitted.rating_scale_
    others = PAIRS + np.array([N_USERS, 0])
    before = fitted.score(others, RATINGS * 60 + 190)
    fitted.partial_fit(others[100:], RATINGS[100:] * 60 + 190)
    assert (fitted.global_mean_, fitted.rating_scale_) == (mean, scale)
    assert fitted.score(others, RATINGS * 60 + 190) > before
    fitted.partial_fit(others[:100], RATINGS[:100] * 60 + 190)
    assert (fitted.global_mean_, fitted.rating_scale_) == (mean, scale)
