"""Implicit feedback: what `unobserved_weight` and confidences promise."""

from functools import partial

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from clusters import at
from covering import slow_but
from mf_cases import bits
from oracles import mf as oracle
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold

from schmp_estimators import ModelParallelMF
from schmp_estimators.core.errors import CheckpointMismatchError
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.exceptions import DuplicateRatingError
from schmp_estimators.mf.kernels.registers import PASSES
from schmp_estimators.mf.kernels.sgd import draw_factors

N_USERS, N_ITEMS = 41, 30
generator = np.random.default_rng(3)
TASTES = np.exp(1.5 * generator.normal(size=(N_USERS, 3)) @ generator.normal(size=(3, N_ITEMS)))
SEEN = generator.random(TASTES.shape) < 0.25 * TASTES / (1 + TASTES)
SEEN[7], SEEN[:, 5] = False, False
SEEN[0, 0] = SEEN[-1, -1] = True
PAIRS = np.argwhere(SEEN)
ONES = np.ones(len(PAIRS))
MATRIX = sp.csr_array((ONES, PAIRS.T), shape=SEEN.shape)
TARGETS, CONFIDENCES = (generator.integers(low, 4, len(PAIRS)).astype(float) for low in (-1, 0))
#: What occurs has rows, and nothing else.
NUMBERED = {"n_users": None, "n_items": None}


model = partial(
    ModelParallelMF, n_components=11, solver="ccd", unobserved_weight=0.2, random_state=0, tol=0.0,
    max_iter=3, n_users=N_USERS, n_items=N_ITEMS,
)  # fmt: skip


def dense(values, missing):
    out = np.full(SEEN.shape, missing, float)
    out[tuple(PAIRS.T)] = values
    return out


def penalties_of(alpha, penalty="per_rating", u=0.2):
    """Weights of the penalty of users and of items; a number also counts the missing pairs."""
    sides = (SEEN.sum(axis=1), N_ITEMS), (SEEN.sum(axis=0), N_USERS)
    if isinstance(penalty, str):
        return [alpha * (n if penalty == "per_rating" else np.ones(n.size)) for n, _ in sides]
    return [alpha * (n + u * others) ** penalty for n, others in sides]


@pytest.mark.covering
@pytest.mark.parametrize("u", [0.05, 1.0, 3.0])
@pytest.mark.parametrize(
    ("weighted", "positive", "penalty"),
    [
        (False, False, "per_rating"),
        (True, True, "per_row"),
        (True, False, "per_rating"),
        (True, False, 0.5),
        (False, True, 1.1),
    ],
)
def test_epochs_equal_brute_force_on_all_pairs(u, weighted, positive, penalty):
    """The oracle visits every pair, missing ones as zeros; it goes on after the first epoch."""
    alpha, targets, confidences = (
        0.02,
        TARGETS if weighted else ONES,
        CONFIDENCES if weighted else ONES,
    )
    given = {"unobserved_weight": u, "positive": positive, "penalty": penalty, "alpha": alpha}
    weights = {"sample_weight": confidences} if weighted else {}
    penalties = penalties_of(alpha, penalty, u)
    matrices = dense(targets, 0.0), dense(confidences, u)
    start, found = (
        model(**given, max_iter=max_iter, n_shards=2).fit(PAIRS, targets, **weights)
        for max_iter in (1, 5)
    )
    users, items = start.user_factors_.astype(float), start.components_.T.astype(float)
    for record in found.history_[1:]:
        oracle.epoch(*matrices, users, items, penalties, 8, PASSES, positive)
        expected = oracle.dense_objective(*matrices, users, items, *penalties)
        assert record["objective"] == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(found.user_factors_, users, atol=2e-3)
    np.testing.assert_allclose(found.components_.T, items, atol=2e-3)
    errors = targets - (found.user_factors_ @ found.components_)[tuple(PAIRS.T)]
    assert found.history_[-1]["train_rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-4)


@pytest.mark.parametrize("n_shards", [1, 3])
def test_items_start_where_clicks_take_them(n_shards):
    """The first epoch is that of an oracle.

    Its random items have been through one centred power iteration.
    """
    fitted = model(n_shards=n_shards, max_iter=1, alpha=0.02).fit(
        PAIRS, TARGETS, sample_weight=CONFIDENCES
    )
    drawn = np.zeros((N_ITEMS, 11), np.float32)
    width = np.float32(11**-0.5)
    ids = freeze(np.arange(N_ITEMS))
    draw_factors(ids, 0, 11, stream_key(0, 1), np.float32(0), width, drawn)
    users, items = (
        np.zeros((N_USERS, 11)),
        oracle.turned(SEEN, drawn.astype(float), 8, width / 3**0.5),
    )
    matrices, penalties = (dense(TARGETS, 0.0), dense(CONFIDENCES, 0.2)), penalties_of(0.02)
    oracle.epoch(*matrices, users, items, penalties, 8, PASSES, False)
    np.testing.assert_allclose(fitted.user_factors_, users, atol=2e-3)
    np.testing.assert_allclose(fitted.components_.T, items, atol=2e-3)


def test_alpha_of_clicks_is_a_constant():
    assert model().fit(MATRIX).alpha_ == 0.07


@pytest.mark.parametrize("penalty", slow_but([0.5], [0.0, 0.5, 1.0]))
def test_a_number_is_a_penalty_of_fits_and_of_new_users(penalty):
    """By default it is as strong in sum as that of counts.

    A user's own vector is what folding in finds again.
    """
    fitted = model(n_components=4, penalty=penalty, max_iter=300).fit(MATRIX)
    strengths = [sum(map(np.sum, penalties_of(1.0, one))) for one in (penalty, "per_rating")]
    assert fitted.alpha_ == pytest.approx(0.07 * strengths[1] / strengths[0])
    penalties = penalties_of(fitted.alpha_, penalty)
    items = fitted.components_.T.astype(float)
    weights = np.where(SEEN, 1.0, 0.2)
    expected = [
        oracle.implicit_fold_in(*one, items, p)
        for *one, p in zip(SEEN, weights, penalties[0], strict=True)
    ]
    folded = fitted.transform(MATRIX)
    np.testing.assert_allclose(folded, expected, atol=1e-8)
    np.testing.assert_allclose(fitted.user_factors_, folded, atol=2e-3)
    found, scores = fitted.recommend(MATRIX, n=3)
    np.testing.assert_allclose(
        scores[:7], np.take_along_axis(folded @ items.T, found, axis=1)[:7], atol=1e-5
    )
    names = dict.fromkeys(("per_row", "per_rating"), 0.02)
    same = [model(penalty=one, alpha=names[one]).fit(MATRIX) for one in names]
    assert bits(same[0]) == bits(model(penalty=0.0, alpha=0.02).fit(MATRIX))
    assert bits(same[1]) != bits(model(penalty=1.0, alpha=0.02).fit(MATRIX))


@pytest.mark.parametrize(
    ("nu", "weighted"), [(1.0, True), pytest.param(0.0, False, marks=pytest.mark.slow)]
)
def test_the_objective_of_the_revisited_ials_is_one_of_ours(nu, weighted):
    """Its missing pairs are all pairs.

    Clicks have other weights and targets, or vectors another length.
    """
    u, alpha = 0.2, 0.02
    fitted = model(penalty=nu, alpha=alpha, max_iter=400, n_components=3)
    if weighted:
        fitted.fit(PAIRS, ONES / (1 + u), sample_weight=ONES * (1 + u))
    else:
        fitted.set_params(unobserved_weight=u / (1 + u)).fit(PAIRS, ONES)
    length = 1 if weighted else (1 + u) ** -0.5
    users, items = (
        length * side.astype(float) for side in (fitted.user_factors_, fitted.components_.T)
    )
    scores = users @ items.T
    pull = SEEN * (scores - 1) + u * scores
    for gradient, own, penalty in zip(
        (pull @ items, pull.T @ users), (users, items), penalties_of(alpha, nu), strict=True
    ):
        np.testing.assert_allclose(gradient, -penalty[:, None] * own, atol=1e-3)


def test_a_search_tries_penalties():
    grid = GridSearchCV(
        model(n_components=4, max_iter=5),
        {"penalty": ["per_rating", 0.5, 1]},
        cv=KFold(2, shuffle=True, random_state=0),
    ).fit(PAIRS, ONES)
    assert len(set(grid.cv_results_["mean_test_score"])) == 3
    found = grid.best_estimator_
    assert bits(clone(found).fit(PAIRS, ONES)) == bits(found)
    assert clone(found).penalty == grid.best_params_["penalty"]


def test_a_weight_like_that_of_clicks_is_a_decomposition_of_the_whole_matrix():
    fitted = model(n_components=5, unobserved_weight=1.0, alpha=0.0, max_iter=300).fit(MATRIX)
    values = np.linalg.svd(dense(1.0, 0.0), compute_uv=False)
    assert fitted.history_[-1]["objective"] == pytest.approx(np.sum(values[5:] ** 2), rel=1e-3)


def test_similar_rows_have_the_largest_cosines():
    fitted = model(max_iter=10).fit(MATRIX)
    for factors, ask in (
        (fitted.components_.T, fitted.similar_items),
        (fitted.user_factors_, fitted.similar_users),
    ):
        lengths = np.linalg.norm(factors, axis=1)
        with np.errstate(invalid="ignore"):
            cosines = factors @ factors.T / np.outer(lengths, lengths)
        found, scores = ask([3, 2, 5 if len(factors) == N_ITEMS else 7], n=4)
        for row, asked in enumerate([3, 2]):
            expected = np.where(lengths > 0, cosines[asked], -np.inf)
            expected[asked] = -np.inf
            np.testing.assert_array_equal(found[row], np.argsort(-expected)[:4])
            np.testing.assert_allclose(scores[row], np.sort(expected)[::-1][:4], rtol=1e-5)
        assert (found[2] == -1).all()  # nothing is known of it
    with pytest.raises(ValueError, match=r"Pass \[3\] for one item"):
        fitted.similar_items(3)


COUNTS = np.where(SEEN, np.random.default_rng(5).integers(1, 30, SEEN.shape), 0)


def half_again(values):
    return 1 + 0.5 * values


@pytest.mark.parametrize("confidence", [np.log1p, half_again])
def test_confidences_follow_from_values(confidence):
    counts, pairs = sp.csr_array(COUNTS), np.argwhere(SEEN)
    values = COUNTS[SEEN]
    fitted = model(max_iter=4, confidence=confidence).fit(counts)
    given = model(max_iter=4).fit(pairs, np.ones(len(pairs)), sample_weight=confidence(values))
    told = model(max_iter=4, confidence=confidence).fit(pairs, values)
    lazy = da.from_array(np.where(SEEN, COUNTS, np.nan), chunks=(20, N_ITEMS))
    for other in (given, told, model(max_iter=4, confidence=confidence).fit(lazy)):
        assert bits(fitted) == bits(other)
    items, weights = fitted.components_.T.astype(float), np.where(SEEN, confidence(COUNTS), 0.2)
    penalties = penalties_of(fitted.alpha_)[0]
    expected = [
        oracle.implicit_fold_in(*one, items, p)
        for *one, p in zip(SEEN, weights, penalties, strict=True)
    ]
    np.testing.assert_allclose(fitted.transform(counts), expected, atol=1e-8)
    np.testing.assert_allclose(fitted.transform(lazy).compute(), expected, atol=1e-8)
    assert fitted.rating_range_ == (0.0, 1.0)


FORMS = {
    "csr": lambda values: sp.csr_array((values, PAIRS.T), shape=SEEN.shape),
    "csc": lambda values: sp.csr_array((values, PAIRS.T), shape=SEEN.shape).tocsc(),
    "coo": lambda values: sp.coo_array((values[::-1], PAIRS[::-1].T), shape=SEEN.shape),
    "dense": lambda values: dense(values, np.nan),
}


@pytest.mark.covering
@pytest.mark.parametrize("u", [0.0, 0.2])
@pytest.mark.parametrize("form", FORMS)
def test_weights_of_a_matrix_are_those_of_its_entries(form, u):
    X, weights = FORMS[form](TARGETS + 2), FORMS[form](CONFIDENCES)
    given = weights[SEEN] if form == "dense" else weights.data
    of_matrix = model(unobserved_weight=u, max_iter=40).fit(X, sample_weight=given)
    of_pairs = model(unobserved_weight=u, max_iter=40).fit(
        PAIRS, TARGETS + 2, sample_weight=CONFIDENCES
    )
    assert bits(of_matrix) == bits(of_pairs)
    users = np.unique(PAIRS[:, 0], return_index=True)
    found = of_matrix.transform(X, sample_weight=given)
    expected = of_pairs.transform(PAIRS, TARGETS + 2, sample_weight=CONFIDENCES)
    np.testing.assert_array_equal(found[users[0]], expected[users[1]])
    np.testing.assert_array_equal(of_pairs.fit_transform(X, sample_weight=given), found)


@pytest.mark.covering
@pytest.mark.parametrize("penalty", ["per_rating", "per_row", 0.5])
@pytest.mark.parametrize("fit_bias", [True, False])
@pytest.mark.parametrize("n_shards", [1, 3])
def test_weighted_ratings_are_weighted_least_squares(penalty, fit_bias, n_shards):
    """The oracle knows of weights only that an integral one says how often an entry is there."""
    weights = np.where(PAIRS[:, 0] == PAIRS[0, 0], 0, CONFIDENCES)  # one user is as if absent
    alpha = 0.2 if penalty == "per_rating" else 1.0
    power = {"per_rating": 1, "per_row": 0}.get(penalty, penalty)
    given = {
        "penalty": penalty,
        "fit_bias": fit_bias,
        "alpha": alpha,
        "n_components": 3,
        "unobserved_weight": 0.0,
    }
    fitted = model(**given, **NUMBERED, solver="auto", n_shards=n_shards, max_iter=400)
    fitted.fit(PAIRS, TARGETS, sample_weight=weights)
    often = np.repeat(np.arange(len(PAIRS)), weights.astype(int))
    users, items = (
        np.searchsorted(ids, PAIRS[often, side])
        for side, ids in enumerate((fitted.user_ids_, fitted.item_ids_))
    )
    mean, scale = TARGETS[often].mean() if fit_bias else 0.0, TARGETS[often].std()
    assert fitted.solver_ == "ccd" and fitted.global_mean_ == pytest.approx(mean, abs=1e-7)
    assert fitted.rating_scale_ == pytest.approx(scale, rel=1e-7)
    assert set(fitted.user_ids_) == set(PAIRS[weights > 0, 0])  # what has no weight is not there
    sides = (fitted.user_factors_, fitted.user_bias_), (fitted.components_.T, fitted.item_bias_)
    (w, b), (h, c) = (
        (factors.astype(float) / scale**0.5, bias.astype(float) / scale) for factors, bias in sides
    )
    errors = (
        (TARGETS[often] - mean) / scale - b[users] - c[items] - np.sum(w[users] * h[items], axis=1)
    )
    n_users, n_items = (
        np.bincount(rows, minlength=n) ** power for rows, n in ((users, len(w)), (items, len(h)))
    )
    of_users, of_items = np.zeros_like(w), np.zeros_like(h)
    np.add.at(of_users, users, errors[:, None] * h[items])
    np.add.at(of_items, items, errors[:, None] * w[users])
    np.testing.assert_allclose(of_users, alpha * n_users[:, None] * w, atol=2e-3)
    np.testing.assert_allclose(of_items, alpha * n_items[:, None] * h, atol=2e-3)
    penalty_of = alpha * (
        n_users @ ((w**2).sum(axis=1) + b**2) + n_items @ ((h**2).sum(axis=1) + c**2)
    )
    assert fitted.history_[-1]["objective"] == pytest.approx(
        scale**2 * (errors @ errors + penalty_of), rel=1e-5
    )
    assert fitted.history_[-1]["train_rmse"] == pytest.approx(
        scale * np.sqrt(np.mean(errors**2)), rel=1e-5
    )
    folded = fitted.transform(PAIRS, TARGETS, sample_weight=weights)[weights > 0]
    np.testing.assert_allclose(folded, fitted.transform(PAIRS[weights > 0]), atol=2e-3)


@pytest.mark.covering
@pytest.mark.parametrize("u", [0.0, 0.2])
@pytest.mark.parametrize("lazy", [False, True])
def test_weights_of_a_matrix_on_dask_are_row_by_row(place, lazy, u):
    expected = model(unobserved_weight=u).fit(FORMS["csr"](TARGETS + 2), sample_weight=CONFIDENCES)
    X = da.from_array(
        dense(TARGETS + 2, np.nan), chunks=((7, 1, 33), N_ITEMS)
    )  # row 7 has no ratings
    weights = da.from_array(CONFIDENCES, chunks=40) if lazy else CONFIDENCES
    with at(place):
        assert bits(model(unobserved_weight=u).fit(X, sample_weight=weights)) == bits(expected)
        with pytest.raises(ValueError, match="sample_weight holds -"):
            model(unobserved_weight=u).fit(X, sample_weight=-weights - 1)


def test_weights_are_the_same_for_any_chunks_and_hold_out(place):
    given = {
        "unobserved_weight": 0.0,
        "solver": "auto",
        "early_stopping": True,
        "n_shards": 2,
        "max_iter": 6,
    }
    ratings = TARGETS + generator.normal(size=len(PAIRS))
    weights = np.exp(3 * generator.normal(size=len(PAIRS)))
    expected = model(**given).fit(PAIRS, ratings, sample_weight=weights)
    chunked = da.from_array(PAIRS, chunks=(17, 2)), da.from_array(ratings, chunks=23)
    with at(place):
        fitted = model(**given, n_jobs=2).fit(
            *chunked, sample_weight=da.from_array(weights, chunks=40)
        )
    assert bits(fitted) == bits(expected)
    assert (fitted.global_mean_, fitted.rating_scale_) == (
        expected.global_mean_,
        expected.rating_scale_,
    )
    mean = np.average(ratings, weights=weights)  # held-out ones are not in it
    assert fitted.global_mean_ == pytest.approx(mean, rel=0.1)
    assert [one["validation_rmse"] for one in fitted.history_] == [
        one["validation_rmse"] for one in expected.history_
    ]


def test_equal_weights_say_nothing():
    """All are multiplied by a power of two, so that no bit changes but in the objective."""
    given = {"unobserved_weight": 0.0, "early_stopping": True, "max_iter": 6, "alpha": 0.1}
    ratings = TARGETS + np.random.default_rng(0).normal(size=len(PAIRS))
    plain, weighted = (
        model(**given).fit(PAIRS, ratings),
        model(**given).fit(PAIRS, ratings, sample_weight=4 * ONES),
    )
    assert bits(weighted) == bits(plain)
    for one, other in zip(weighted.history_, plain.history_, strict=True):
        for name in ("train_rmse", "validation_rmse", "running_rmse"):
            assert one[name] == pytest.approx(other[name], rel=1e-12)
        assert one["objective"] == pytest.approx(4 * other["objective"], rel=1e-12)
    for part in (plain, weighted):
        part.set_params(early_stopping=False)
    more = PAIRS[:40] + np.array([N_USERS, 0])
    plain.set_params(n_users=None).partial_fit(more, ratings[:40])
    weighted.set_params(n_users=None, solver="sgd").partial_fit(
        more, ratings[:40], sample_weight=4 * ONES[:40]
    )
    assert bits(weighted) == bits(plain)


@pytest.mark.covering
@pytest.mark.parametrize("u", [0.0, 0.2])
@pytest.mark.parametrize("names", [False, True])
def test_users_of_pairs_have_their_vectors(u, names):
    pairs = np.char.add("x", PAIRS.astype(str)) if names else PAIRS
    fitted = model(**NUMBERED, unobserved_weight=u, max_iter=400, n_components=3, alpha=0.2).fit(
        pairs, TARGETS
    )
    vectors = fitted.transform(pairs)
    assert vectors.dtype == np.float64
    rows = np.searchsorted(fitted.user_ids_.astype(str if names else int), pairs[:, 0])
    np.testing.assert_array_equal(vectors, fitted.user_factors_[rows])
    np.testing.assert_array_equal(
        fitted.transform(da.from_array(pairs, chunks=(30, 2))).compute(), vectors
    )
    np.testing.assert_array_equal(fitted.fit_transform(pairs, TARGETS), vectors)
    new = np.array([["y", "x3"], ["x0", "y"]]) if names else np.array([[999, 3], [0, 999]])
    np.testing.assert_array_equal(fitted.transform(new)[0], 0)
    # from the same ratings under other names come the same vectors; ratings of unknown items say
    # nothing
    other = pairs.astype(object if names else int)
    other[:, 0] = np.char.add("new", PAIRS[:, 0].astype(str)) if names else 1000 - PAIRS[:, 0]
    told = np.vstack([new[1:], other]), np.append(3.0, TARGETS)
    with pytest.warns(UserWarning, match=f"X holds 1 ids of items that .*: {new[1, 1].item()!r}$"):
        found = fitted.transform(*told)
    np.testing.assert_array_equal(found[0], 0)
    np.testing.assert_allclose(found[1:], vectors, atol=2e-3)
    # the same as a matrix with the columns of the model
    with pytest.warns(UserWarning, match=f"X holds 1 ids of items that .*: {new[1, 1].item()!r}$"):
        matrix, users = fitted.to_matrix(*told)
    of_rows = dict(zip(users, fitted.transform(matrix), strict=True))
    np.testing.assert_array_equal([of_rows[user] for user in told[0][:, 0]], found)
    best = dict(zip(users, fitted.recommend(matrix, 3)[0], strict=True))
    for user in users:
        assert not set(best[user]) & set(told[0][told[0][:, 0] == user, 1])
    with pytest.raises(
        DuplicateRatingError, match=f"user {pairs[0, 0]} rated item {pairs[0, 1]} more than once"
    ):
        fitted.transform(np.vstack([pairs, pairs[:1]]), np.append(TARGETS, 1))


def test_the_checkpoint_of_other_confidences_is_refused(tmp_path):
    model(max_iter=2, checkpoint=tmp_path / "state").fit(PAIRS, TARGETS, sample_weight=CONFIDENCES)
    with pytest.raises(CheckpointMismatchError, match="data"):
        model(checkpoint=tmp_path / "state").fit(PAIRS, TARGETS, sample_weight=CONFIDENCES + 1)


@pytest.mark.parametrize(
    ("parameters", "given", "message"),
    [
        (
            {"solver": "sgd"},
            {},
            "solver='sgd' needs unobserved_weight=0; with unobserved_weight=0.2",
        ),
        (
            {"early_stopping": True},
            {},
            "early_stopping=True needs .* leave it False: errors of ratings",
        ),
        ({"unobserved_weight": -1.0}, {}, "'unobserved_weight' parameter"),
        ({"penalty": -0.5}, {}, "'penalty' parameter .* or a float in the range"),
        ({"penalty": 3}, {}, "'penalty' parameter"),
        ({"penalty": 0.5, "alpha": 0.0}, {}, "penalty=0.5 needs an alpha above 0"),
        ({"unobserved_weight": np.inf}, {}, "'unobserved_weight' parameter"),
        (
            {"unobserved_weight": 0.0, "solver": "sgd"},
            {"sample_weight": ONES},
            'needs solver="auto" or "ccd"',
        ),
        (
            {"unobserved_weight": 0.0, "solver": "auto", "schedule": "bsp"},
            {"sample_weight": ONES},
            "needs solver",
        ),
        (
            {"unobserved_weight": 0.0, "solver": "auto"},
            {"sample_weight": 0 * ONES},
            "no ratings to fit",
        ),
        (
            {},
            {"sample_weight": np.where(ONES.cumsum() == 3, np.nan, 1)},
            "sample_weight holds nan in row 2",
        ),
        ({}, {"sample_weight": -ONES}, "sample_weight holds -1.0 in row 0"),
        ({"confidence": np.negative}, {}, "confidence holds -.* in row 0"),
        ({"confidence": np.sum}, {}, r"confidence returned float64 of shape \(\)"),
        ({"confidence": np.log1p}, {"sample_weight": ONES}, "give no sample_weight beside it"),
        (
            {"confidence": np.log1p, "unobserved_weight": 0.0},
            {},
            "confidence=.* needs unobserved_weight above 0",
        ),
        ({}, {"sample_weight": ONES[1:]}, "inconsistent numbers of samples"),
        ({}, {"sample_weight": np.ones((len(PAIRS), 2))}, "1d array"),
        ({"unobserved_weight": 1e20}, {"sample_weight": 1e36 * ONES}, "lower unobserved_weight"),
        (
            {"unobserved_weight": 1e300, "n_shards": 2},
            {},
            r"lower unobserved_weight=1e\+300, or scale",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_remedy(parameters, given, message):
    with pytest.raises(ValueError, match=message):
        model(**parameters).fit(PAIRS, TARGETS, **given)


def test_weights_that_fit_no_matrix_are_refused():
    with pytest.raises(
        ValueError, match=f"sample_weight has {N_USERS} entries, but X holds {len(PAIRS)} ratings"
    ):
        model().fit(MATRIX, sample_weight=np.ones(N_USERS))
    with pytest.raises(
        ValueError, match=f"sample_weight has {N_USERS} entries, but X holds {len(PAIRS)} ratings"
    ):
        model().fit(
            da.from_array(np.where(SEEN, 1.0, np.nan), chunks=20), sample_weight=np.ones(N_USERS)
        )
    with pytest.raises(
        ValueError, match="transform takes y and sample_weight with X in memory only"
    ):
        model().fit(MATRIX).transform(da.from_array(PAIRS, chunks=50), ONES)
    with pytest.raises(TypeError, match="not weight"):
        model().fit(PAIRS, ONES, weight=ONES)
    fitted = model().fit(MATRIX).set_params(unobserved_weight=0.0)
    with pytest.raises(
        ValueError, match=r"unobserved_weight=0, but 0.2 in the earlier fit; begin anew with fit"
    ):
        fitted.partial_fit(MATRIX)


def test_equal_ratings_are_pointed_out():
    with pytest.warns(
        UserWarning, match=r"all \d+ ratings are 1, .* set unobserved_weight, for example to 0.1"
    ):
        model(unobserved_weight=0.0).fit(PAIRS, ONES)


@pytest.mark.parametrize("solver", ["sgd", "ccd"])
def test_clipping_changes_predictions_only(solver):
    given = {
        "solver": solver,
        "unobserved_weight": 0.0,
        "alpha": 1e-3,
        "max_iter": 20,
        "n_users": None,
    }
    plain, clipped = (model(**given, clip=clip).fit(PAIRS, TARGETS) for clip in (False, True))
    assert bits(plain) == bits(clipped)
    assert plain.rating_range_ == (-1, 3)
    everything = np.argwhere(np.ones_like(SEEN))
    free = plain.predict(everything)
    assert free.max() > 3
    np.testing.assert_array_equal(clipped.predict(everything), np.clip(free, -1, 3))
    rows = dense(TARGETS, np.nan)
    np.testing.assert_array_equal(clipped.predict(rows), np.clip(plain.predict(rows), -1, 3))
    np.testing.assert_array_equal(clipped.recommend([1])[1], plain.recommend([1])[1])
