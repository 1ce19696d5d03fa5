"""Laws of `ModelParallelMF.partial_fit`.

What earlier ratings go on to say, and which ratings are refused.
"""

import pickle
from functools import partial

import dask.array as da
import numpy as np
import pytest
from clusters import at
from mf_cases import bits
from oracles import mf as oracle

from schmp_estimators import ModelParallelMF
from schmp_estimators.exceptions import DuplicateRatingError

N_USERS, N_ITEMS = 40, 25
generator = np.random.default_rng(1)
OBSERVED = generator.random((N_USERS, N_ITEMS)) < 0.5
#: New users are the last eight, new items the last three; known users rate new items, and a known
#: one, later.
NOW = np.add.outer(np.arange(N_USERS) >= 32, np.arange(N_ITEMS) >= 22).astype(bool)
NOW[:5, :5] = True
OLD, NEW = np.argwhere(OBSERVED & ~NOW), np.argwhere(OBSERVED & NOW)
VALUES = (
    3
    + generator.normal(size=(N_USERS, 2)) @ generator.normal(size=(2, N_ITEMS))
    + 0.3 * generator.normal(size=OBSERVED.shape)
)
CONFIDENCES = generator.integers(1, 5, OBSERVED.shape).astype(float)
SOLVERS = [
    {"solver": "sgd"},
    {"solver": "ccd"},
    {"solver": "ccd", "unobserved_weight": 0.1},
    {"solver": "ccd", "unobserved_weight": 0.1, "penalty": 0.5},
]
solvers = pytest.mark.parametrize("solver", SOLVERS, ids=["sgd", "ccd", "clicks", "number"])


make = partial(ModelParallelMF, n_components=3, random_state=0, n_shards=1)


def values_of(pairs, parameters):
    return np.ones(len(pairs)) if "unobserved_weight" in parameters else VALUES[tuple(pairs.T)]


def call(model, pairs, **given):
    return model.partial_fit(
        pairs, values_of(pairs, model.get_params() if model.unobserved_weight else {}), **given
    )


def two_sides(model, n):
    """Vectors of users and items with biases behind them, in units of standardised ratings.

    There are zeros up to `n` rows.
    """
    root = np.sqrt(model.rating_scale_)
    sides = (model.user_factors_, model.user_bias_), (model.components_.T, model.item_bias_)
    padded = [np.zeros((rows, model.components_.shape[0] + 1)) for rows in n]
    for out, (factors, bias) in zip(padded, sides, strict=True):
        out[: len(bias)] = np.column_stack([factors / root, bias / root**2])
    return padded


CASES = [
    {"solver": "sgd"},
    {"solver": "ccd", "n_components": 11, "n_shards": 3},
    {"solver": "ccd", "penalty": "per_row", "alpha": 1.0},
    {"solver": "sgd", "fit_bias": False, "n_components": 1, "penalty": "per_row"},
    {"solver": "ccd", "fit_bias": False, "positive": True},
    {"solver": "sgd", "penalty": 0.5},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_rows_settle_at_ridge_regressions_around_their_earlier_vectors(case):
    """The oracle solves for each row with the other side fixed.

    It moves no coordinate that is at the limit.
    """
    model = make(**case).fit(OLD, values_of(OLD, case))
    before, shape = two_sides(model, OBSERVED.shape), OBSERVED.shape
    call(model.set_params(max_iter=150, tol=0.0), NEW)
    now, old_counts = (
        two_sides(model, shape),
        [np.bincount(OLD[:, side], minlength=shape[side]) for side in (0, 1)],
    )
    standard = (VALUES - model.global_mean_) / model.rating_scale_
    biased, penalties = model.fit_bias, 0.0
    power = {"per_rating": 1, "per_row": 0}.get(model.penalty, model.penalty)

    def strength(n):
        return model.alpha_ * n**power if n else 0

    for side in (0, 1):
        squares = np.average(before[1 - side] ** 2, axis=0, weights=old_counts[1 - side])
        squares[-1] = 1.0
        for row in range(shape[side]):
            rated = NEW[NEW[:, side] == row, 1 - side]
            if not rated.size:
                np.testing.assert_array_equal(now[side][row], before[side][row])
                continue
            other = now[1 - side][rated]
            features = np.column_stack([other[:, :-1], np.ones(rated.size)])
            targets = (standard if side == 0 else standard.T)[row, rated] - other[:, -1]
            n = old_counts[side][row]
            penalty = strength(n + rated.size) - strength(n)
            pull = n * squares + strength(n)
            gradient = oracle.anchored_gradient(
                features, targets, penalty, now[side][row], before[side][row], pull
            )
            moved = now[side][row] - before[side][row]
            penalties += np.sum(penalty * now[side][row] ** 2 + pull * moved**2)
            free = (now[side][row] > 0) | ~np.full(gradient.size, model.positive)
            free[-1] = biased
            assert np.abs(gradient[free]).max() < 2e-3
            if model.positive:
                assert (gradient[:-1][~free[:-1]] > -2e-3).all()
    recorded = model.history_[-1]["penalty"] / model.rating_scale_**2
    assert recorded == pytest.approx(penalties, rel=1e-3)


@pytest.mark.parametrize(
    ("u", "weighted", "n_shards", "penalty", "again"),
    [
        *((0.05, False, 1, "per_rating", 0), (0.3, True, 3, 0.6, 40)),
        pytest.param(0.3, True, 3, "per_rating", 40, marks=pytest.mark.slow),
        pytest.param(0.3, False, 3, 0.6, 9, marks=pytest.mark.slow),
        pytest.param(0.3, True, 2, 1, 0, marks=pytest.mark.slow),
    ],
)
def test_clicks_settle_where_all_pairs_and_earlier_clicks_leave_no_gradient(
    u, weighted, n_shards, penalty, again
):
    """Pairs of both calls count as two clicks, whose confidences add up."""
    more = np.vstack([NEW, OLD[:again]])
    weights = [
        {"sample_weight": CONFIDENCES[tuple(pairs.T)]} if weighted else {} for pairs in (OLD, more)
    ]
    model = make(solver="ccd", unobserved_weight=u, n_components=9, n_shards=n_shards, max_iter=5)
    model.set_params(penalty=penalty).fit(OLD, np.ones(len(OLD)), **weights[0])
    sizes = len(model.item_ids_), len(model.user_ids_)

    def strength(counts, others):
        named = isinstance(penalty, str)
        return model.alpha_ * (counts if named else (counts + u * others) ** penalty)[:, None]

    before = [side[:, :-1] for side in two_sides(model, OBSERVED.shape)]
    alpha = model.alpha_
    call(model.set_params(max_iter=200, tol=0.0), more, **weights[1])
    assert model.alpha_ == alpha
    now = [side[:, :-1] for side in two_sides(model, OBSERVED.shape)]
    seen = np.zeros(OBSERVED.shape)
    seen[tuple(more.T)] = CONFIDENCES[tuple(more.T)] if weighted else 1
    clicked, confidences = (
        OBSERVED & ~NOW,
        np.where(OBSERVED & ~NOW, CONFIDENCES if weighted else 1, 0),
    )
    called = [np.isin(np.arange(N_USERS), more[:, 0]), np.ones(N_ITEMS, bool)]
    for side in (0, 1):
        here, there, new = now[side], now[1 - side], (seen, seen.T)[side]
        counts, sums = (np.sum(array, axis=1 - side) for array in (clicked, confidences))
        weight = np.sum(confidences, axis=side)
        squares = np.average(before[1 - side] ** 2, axis=0, weights=weight)
        known, predicted = before[side], here @ there.T
        # all missing pairs, then what the clicks of this call change, what is left of earlier ones,
        # and the penalty
        gradient = u * here @ (there.T @ there) - u * known @ (
            before[1 - side].T @ before[1 - side]
        )
        gradient += np.where(new > 0, new * (predicted - 1) - u * predicted, 0) @ there
        pull = 4 * np.maximum(sums - u * counts, 0)[:, None] * squares
        gradient += pull * (here - known) - strength(counts, sizes[side]) * known
        gradient += strength(counts + (new > 0).sum(axis=1), OBSERVED.shape[1 - side]) * here
        assert np.abs(gradient[called[side]]).max() < 2e-3
        np.testing.assert_array_equal(here[~called[side]], known[~called[side]])


@pytest.mark.slow
@solvers
def test_more_ratings_have_the_same_bits_anywhere(solver, place):
    shape = {"n_shards": 3, "n_components": 9, "max_iter": 4} | solver
    expected = call(make(**shape).fit(OLD, values_of(OLD, solver)), NEW)
    assert bits(call(make(n_jobs=2, **shape).fit(OLD, values_of(OLD, solver)), NEW)) == bits(
        expected
    )
    given = [
        (da.from_array(pairs, chunks=(70, 2)), da.from_array(values_of(pairs, solver), chunks=70))
        for pairs in (OLD, NEW)
    ]
    turned = [array[::-1].rechunk(50) for array in given[1]]
    with at(place):
        found = pickle.loads(pickle.dumps(make(**shape).fit(*given[0]))).partial_fit(*given[1])
        assert bits(found) == bits(expected)
        if "unobserved_weight" not in solver:
            assert bits(found.partial_fit(*turned)) == bits(expected)
            with pytest.raises(
                ValueError, match=r"are those of an earlier one|in an earlier call; leave"
            ):
                found.partial_fit(turned[0], turned[1] + 1)
    assert bits(found) == bits(expected)


@solvers
def test_the_objective_never_rises(solver):
    model = make(n_components=9, **solver).fit(OLD, values_of(OLD, solver)).set_params(tol=0.0)
    objective = [record["objective"] for record in call(model, NEW).history_]
    assert (np.diff(objective) <= 1e-6 * objective[0]).all()


def test_clicks_of_a_whole_call_that_comes_again_add_up():
    model = make(solver="ccd", unobserved_weight=0.1).fit(OLD, np.ones(len(OLD)))
    before = model._counts[0].copy()
    for count in (1, 2):
        model.partial_fit(OLD[:1], [1.0])
        assert model._counts[0][OLD[0, 0], 0] == before[OLD[0, 0], 0] + count


@pytest.mark.parametrize("solver", SOLVERS[:2], ids=["sgd", "ccd"])
def test_pairs_of_an_earlier_call_are_refused_and_nothing_changes(solver):
    model = make(**solver).fit(OLD, values_of(OLD, solver))
    call(model, NEW)
    before = {name: pickle.dumps(value) for name, value in vars(model).items()}
    call(model, NEW)
    call(model, OLD[::-1])
    assert {name: pickle.dumps(value) for name, value in vars(model).items()} == before
    for pairs in (NEW, np.vstack([[[50, 30]], OLD[-1:]])):
        user = pairs[-1 if len(pairs) == 2 else 0][0]
        message = f"user {user} rated item .* in an earlier call; leave the pairs"
        with pytest.raises(DuplicateRatingError, match=message):
            model.partial_fit(pairs, np.full(len(pairs), 2.5))
        assert {name: pickle.dumps(value) for name, value in vars(model).items()} == before
    names = ModelParallelMF(2, random_state=0).fit(np.array([["a", "x"], ["b", "y"]]), [1.0, 2.0])
    with pytest.raises(DuplicateRatingError, match="user b rated item y in an earlier call"):
        names.partial_fit(np.array([["c", "x"], ["b", "y"]]), [1.0, 2.0])


@solvers
def test_items_of_earlier_calls_are_still_found(solver):
    model = call(make(**solver, max_iter=2).fit(OLD, values_of(OLD, solver)), NEW[:1])
    assert {0, *model.similar_items([0], N_ITEMS)[0][0]} >= {*OLD[:, 1], NEW[0, 1]}


@solvers
def test_what_is_kept_between_calls_is_that_of_the_present_fit(solver):
    """Tables are made at the first call, and anew after a fit, more ratings or other arrays.

    No pickle has them.
    """

    def answers(model):
        users, items = np.arange(len(model.user_bias_)), np.arange(len(model.item_bias_))
        pairs = np.argwhere(np.ones((len(users), len(items)), bool))
        ranked = (
            model.recommend(users, 4),
            model.similar_items(model.item_ids_, 3),
            model.similar_users(model.user_ids_, 3),
        )
        return [array.tobytes() for array in (model.predict(pairs), *map(np.concatenate, ranked))]

    model = make(**solver, max_iter=3)
    seen = []
    for change in (
        lambda: call(model, OLD),
        lambda: call(model, NEW),
        lambda: model.fit(NEW, values_of(NEW, solver)),
    ):
        change()
        size = len(pickle.dumps(model))
        seen.append(answers(model))
        assert answers(model) == seen[-1] == answers(pickle.loads(pickle.dumps(model)))
        assert len(pickle.dumps(model)) == size
    assert len({tuple(one) for one in seen}) == 3
    with pytest.raises(ValueError, match="read-only"):
        model.components_ *= 2
    model.components_ = -model.components_
    assert answers(model)[0] != seen[-1][0]
