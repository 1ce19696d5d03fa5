"""Losses that rank: what `loss` promises, and what is refused.

An oracle makes the same draws; then there are laws.
"""

import math
from typing import NamedTuple

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from mf_cases import bits
from oracles import mf as oracle
from oracles.lda_warp import bits_at
from sklearn.base import clone
from sklearn.utils import get_tags

from schmp_estimators import ModelParallelMF
from schmp_estimators.core.jit import kernel
from schmp_estimators.core.lanes import pad_rows
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.kernels import sgd as kernels
from schmp_estimators.mf.kernels.sgd import FactorBlock, RatingBlock, StepSizes
from schmp_estimators.mf.kernels.steps import numbers_of
from schmp_estimators.mf.losses import RANKING
from schmp_estimators.ranking import RankingScorer, auc_at_k

both_losses = pytest.mark.parametrize("loss", ["logistic", "bpr"])
losses = pytest.mark.parametrize("loss", [pytest.param("logistic", marks=pytest.mark.slow), "bpr"])
N_USERS, N_ITEMS = 120, 50
rng = np.random.default_rng(2)
POPULAR = 3 / (np.arange(N_ITEMS) + 4.0)
LIKING = np.exp(1.5 * rng.normal(size=(N_USERS, 2)) @ rng.normal(size=(2, N_ITEMS))) * POPULAR
SEEN = rng.random(LIKING.shape) < np.minimum(LIKING, 0.9)
SEEN[7], SEEN[:, 5] = False, False
TEST = SEEN & (rng.random(SEEN.shape) < 0.25)
PAIRS, LATER = np.argwhere(SEEN & ~TEST), np.argwhere(TEST)
ONES = np.ones(len(PAIRS))
ROWS = np.where(SEEN & ~TEST, 1.0, np.nan)


def model(loss, **parameters):
    shape = {"n_components": 4, "n_shards": 3, "n_users": N_USERS, "n_items": N_ITEMS}
    return ModelParallelMF(
        **shape | {"loss": loss, "random_state": 0, "max_iter": 6, "tol": 0.0} | parameters
    )


@kernel
def pull_each(loss, taken, drawn, out):
    for n in range(taken.size):
        out[n, 0], out[n, 1], out[n, 2] = kernels.pull(loss, taken[n], drawn[n])


@both_losses
def test_pulls_are_the_derivatives_of_the_loss(loss):
    scores, ends = (
        rng.normal(size=(2, 500)) * 4,
        np.array([[0.0, 900.0, -900.0, 40.0], [0.0, -900.0, 900.0, 40.0]]),
    )

    def found(taken, drawn):
        out = np.empty((taken.size, 3))
        pull_each(RANKING[loss], taken, drawn, out)
        return out.T

    step = 1e-6
    value, up, down = found(*scores)
    for slope, move in zip((up, down), step * np.eye(2)[:, :, None], strict=True):
        fall = found(*(scores - move))[0] - found(*(scores + move))[0]
        np.testing.assert_allclose(slope, fall / (2 * step), atol=1e-8)
    for some in (scores, ends):
        np.testing.assert_allclose(
            found(*some), oracle.rank_pull(loss, *some), rtol=1e-12, atol=1e-300
        )
    assert np.isfinite(value).all() and (value > 0).all()


@both_losses
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("n_components", [5, 40])
def test_a_block_is_that_of_an_oracle_with_the_same_draws(loss, positive, n_components):
    """One user has taken all that may be drawn, others nearly all.

    Pairs without a draw are left out.
    """
    generator = np.random.default_rng(n_components)
    seen = generator.random((12, 9)) < np.linspace(0.1, 0.95, 12)[:, None]
    seen[0] = True
    counts = seen.sum(axis=0)
    counts[3] = 0  # as if nobody had it in other shards: it is in no draw
    turn = generator.permutation(int(seen.sum()))
    users, items = (ids[turn].astype(np.uint16) for ids in np.nonzero(seen))
    pairs = RatingBlock(users, items, np.ones(users.size, np.float32))
    taken = np.concatenate([[0], np.cumsum(seen.sum(axis=1))]), np.nonzero(seen)[1].astype(np.int32)
    user_ids, key, candidates = (
        generator.permutation(99)[:12],
        np.uint64(2**63 + 5),
        kernels.candidates_of(counts),
    )
    assert set(candidates) == set(np.flatnonzero(counts))

    def side(n):
        factors = pad_rows(np.abs(generator.normal(size=(n, n_components))) * 0.3)
        return FactorBlock(factors, numbers_of(factors, 0.05), np.ones(n, np.int32))

    steps = StepSizes(*np.float32([0.1, 0.1, 1 / n_components]))
    sides = side(12), side(9)
    expected = tuple(FactorBlock(*(array.copy() for array in one)) for one in sides)
    given = freeze((pairs, taken, candidates, user_ids))
    total = kernels.rank_block(RANKING[loss], *given, key, *sides, steps, positive)
    own = [set(np.flatnonzero(row)) for row in seen]
    theirs = oracle.rank_block(
        loss, pairs, own, candidates, user_ids, key, *expected, steps, positive, kernels.ATTEMPTS
    )
    assert total == pytest.approx(theirs, rel=1e-5)
    for one, other in zip(sides, expected, strict=True):
        for array, wanted in zip(one, other, strict=True):
            np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-6)
    assert not sides[0].biases.any() and sides[1].biases.any()


@kernel
def draw_for(candidates, taken, keys, out):
    for n in range(out.size):
        out[n] = kernels.draw_item(candidates, taken, 0, taken.size, keys[n], n % 7, n % 5)


def test_draws_follow_the_roots_of_counts_among_what_was_not_taken():
    counts, taken = np.array([0, 1, 4, 100, 17, 10_000, 9]), np.array([2, 5], np.int32)
    found, n = np.empty(60_000, np.int64), 60_000
    draw_for(kernels.candidates_of(counts), taken, np.arange(n, dtype=np.uint64), found)
    shares = np.where(np.isin(np.arange(7), taken), 0, np.ceil(np.sqrt(counts)))
    missed = (1 - shares.sum() / np.ceil(np.sqrt(counts)).sum()) ** kernels.ATTEMPTS
    assert abs(np.mean(found < 0) - missed) < 5 * np.sqrt(missed / n)
    kept = np.bincount(found[found >= 0], minlength=7)
    expected = shares / shares.sum() * kept.sum()
    assert (np.abs(kept - expected) <= 5 * np.sqrt(expected)).all()


@pytest.mark.covering
@losses
@pytest.mark.parametrize(
    "parameters", [{}, {"fit_bias": False}, {"positive": True}, {"schedule": "bsp"}], ids=str
)
def test_rankings_beat_popularity(loss, parameters):
    fitted = model(loss, max_iter=40, **parameters).fit(PAIRS, ONES)
    running = [record["running_loss"] for record in fitted.history_]
    assert running[0] == pytest.approx(np.log(2) * (2 if loss == "logistic" else 1), rel=0.1)
    assert running[-1] < 0.9 * running[0]
    assert fitted.alpha_ == 0.05 and not fitted.user_bias_.any() and fitted.global_mean_ == 0
    assert (
        fitted.item_bias_.any() == fitted.fit_bias
        and (fitted.components_.min() >= 0) == fitted.positive
    )
    users = np.unique(LATER[:, 0])
    wanted = sp.csr_array((np.ones(len(LATER)), LATER.T), shape=SEEN.shape)[users]
    popular = np.where(SEEN & ~TEST, -1, (SEEN & ~TEST).sum(axis=0))[users]
    items, _ = fitted.recommend(users, N_ITEMS)
    aucs = [
        auc_at_k(ranked, wanted, N_ITEMS)
        for ranked in (items, np.argsort(-popular, axis=1, kind="stable"))
    ]
    assert aucs[0] > aucs[1] + 0.01


@losses
def test_each_epoch_has_draws_of_its_own(loss):
    """With steps of nothing the loss of two epochs differs by what was drawn, and only a little."""
    fitted = model(loss, learning_rate=1e-30, max_iter=3).fit(PAIRS, ONES)
    still = [record["running_loss"] for record in fitted.history_]
    assert len(set(still)) == 3 and np.ptp(still) < 0.01 * still[0]


@losses
def test_what_is_predicted_recommended_and_scored(loss):
    fitted = model(loss).fit(PAIRS, ONES)
    table = fitted.user_factors_ @ fitted.components_ + fitted.item_bias_
    np.testing.assert_allclose(fitted.predict(PAIRS), table[tuple(PAIRS.T)], atol=1e-5)
    items, scores = fitted.recommend([3], 5)
    ranked = np.where(SEEN[3] & ~TEST[3] | ~(SEEN & ~TEST).any(axis=0), -np.inf, table[3])
    np.testing.assert_array_equal(items[0], np.argsort(-ranked)[:5])
    np.testing.assert_allclose(scores[0], np.sort(ranked)[::-1][:5], atol=1e-5)
    mean = table.mean(axis=0)
    mean[5] = -np.inf
    items, scores = fitted.recommend([7, 999], 3)
    assert items.tolist() == [np.argsort(-mean)[:3].tolist()] * 2
    np.testing.assert_allclose(scores, [np.sort(mean)[::-1][:3]] * 2, atol=1e-5)
    assert fitted.score(LATER, np.ones(len(LATER))) == RankingScorer()(
        fitted, LATER, np.ones(len(LATER))
    )
    assert fitted.score(ROWS) == RankingScorer()(fitted, ROWS)


def folded(loss, fitted, row, n_epochs=6):
    """Where the steps of one user go from zero, by loops in float64."""
    items, bias = fitted.components_.T.astype(float), fitted.item_bias_.astype(float)
    counts, own = (SEEN & ~TEST).sum(axis=0), set(np.flatnonzero(row > 0))
    candidates, w, square = kernels.candidates_of(counts), np.zeros(items.shape[1]), 1.0
    for epoch in range(n_epochs):
        for i in sorted(own):
            j = oracle.draw_item(candidates, own, bits_at(0, epoch + 1), 0, i, kernels.ATTEMPTS)
            _, up, down = oracle.rank_pull(loss, bias[i] + w @ items[i], bias[j] + w @ items[j])
            gradient = up * items[i] + down * items[j] - 2 * fitted.alpha_ * w
            w = w + fitted.learning_rate / np.sqrt(square) * gradient
            w = np.maximum(w, 0) if fitted.positive else w
            square += np.mean(gradient**2)
    return w


@losses
@pytest.mark.parametrize("parameters", [{}, {"positive": True, "fit_bias": False}], ids=str)
def test_new_users_take_the_steps_of_the_fit(loss, parameters):
    fitted = model(loss, **parameters).fit(PAIRS, ONES)
    found = fitted.transform(ROWS)
    for user in (0, 7, 30):
        np.testing.assert_allclose(
            found[user], folded(loss, fitted, np.nan_to_num(ROWS[user])), rtol=1e-8, atol=1e-12
        )
        np.testing.assert_array_equal(fitted.transform(ROWS[user : user + 1])[0], found[user])
    np.testing.assert_array_equal(
        fitted.transform(da.from_array(ROWS, chunks=(50, -1))).compute(), found
    )
    np.testing.assert_array_equal(fitted.transform(PAIRS, ONES), found[PAIRS[:, 0]])
    np.testing.assert_allclose(
        fitted.predict(ROWS), found @ fitted.components_ + fitted.item_bias_, atol=1e-6
    )
    some, rest = (
        fitted.recommend(ROWS[:7], 4),
        np.where(np.isnan(ROWS[:7]), fitted.predict(ROWS[:7]), -np.inf),
    )
    rest[:, 5] = -np.inf
    np.testing.assert_array_equal(some[0], np.argsort(-rest, axis=1)[:, :4])


class Steep(NamedTuple):
    """ln(1 + e^(steepness·(t − s)))."""

    steepness: float = 1.0

    def pull(self, taken, drawn):
        x = self.steepness * (drawn - taken)
        small = math.exp(-abs(x))
        share = (1.0 if x > 0.0 else small) / (1.0 + small)
        value = math.log1p(small) + max(x, 0.0)
        return value, self.steepness * share, -self.steepness * share


class Hinge(NamedTuple):
    def pull(self, taken, drawn):
        missing = 1.0 - (taken - drawn)
        up = 1.0 if missing > 0.0 else 0.0
        return missing * up, up, -up


def test_a_loss_of_ones_own_has_the_bits_of_the_same_named_loss(in_place):
    """As a fit, for new users, and with clicks that come later."""
    named, own = (model(loss).fit(PAIRS, ONES) for loss in ("bpr", Steep()))
    assert bits(own) == bits(named) != bits(model(Steep(2.0)).fit(PAIRS, ONES))
    np.testing.assert_array_equal(own.transform(ROWS), named.transform(ROWS))
    assert bits(grown(Steep())) == bits(grown("bpr"))
    assert bits(clone(own).fit(PAIRS, ONES)) == bits(named)
    for cached in (kernels.rank_block, kernels.fold_in_drawn):
        assert "Steep" not in str(cached.signatures)
    with pytest.raises(ValueError, match=r"loss=Steep.*=2.0.*, but Steep.*=1.0"):
        own.set_params(loss=Steep(2.0)).partial_fit(PAIRS, ONES)
    other = model(Hinge()).fit(PAIRS, ONES).set_params(loss=RANKING["bpr"])  # equal as tuples
    with pytest.raises(ValueError, match=r"loss=Bpr\(\), but Hinge\(\) in the earlier fit"):
        other.partial_fit(PAIRS, ONES)
    with pytest.raises(ValueError, match=r"loss=Hinge\(\) leave it 'auto'"):
        model(Hinge(), solver="ccd").fit(PAIRS, ONES)
    with pytest.raises(ValueError, match="Steep'> is a class; give an object"):
        model(Steep).fit(PAIRS, ONES)
    for wrong in (3, object(), "hinge", (1.0,)):
        with pytest.raises(ValueError, match=r"'loss' parameter .* 'pull'"):
            model(wrong).fit(PAIRS, ONES)


def test_a_loss_may_become_zero():
    """Two users with an item each: the margin is soon kept."""
    fitted = model(Hinge(), n_users=2, n_items=2, n_shards=1, max_iter=60, alpha=0.0)
    losses = [record["running_loss"] for record in fitted.fit([[0, 0], [1, 1]], [1, 1]).history_]
    assert losses[0] > 0 and losses[-1] == 0
    assert fitted.recommend([0, 1], 1, exclude=None)[0].tolist() == [[0], [1]]


FIRST = PAIRS[:, 0] < 100


def grown(loss, pairs=PAIRS[~FIRST], ones=ONES[~FIRST], **parameters):
    """Fit the clicks of the first users in six epochs, and then others in three."""
    fitted = model(loss, **parameters).fit(PAIRS[FIRST], ONES[FIRST])
    return fitted.set_params(max_iter=3).partial_fit(pairs, ones)


@losses
def test_later_clicks_are_fitted_with_all_earlier_ones(loss, in_place):
    """Known pairs count once, and in any chunks; a call with nothing else changes nothing."""
    again = np.r_[PAIRS[100:300], PAIRS[~FIRST][::-1]]
    ones = np.ones(len(again))
    chunks = da.from_array(again, chunks=(90, 2)), da.from_array(ones, chunks=90)
    fitted, on_dask = grown(loss), grown(loss, *chunks)
    assert [one["samples"] for one in fitted.history_] == [len(PAIRS) * n for n in (1, 2, 3)]
    for found in (grown(loss, again, ones), on_dask, grown(loss, n_jobs=2)):
        assert bits(found) == bits(fitted)
    np.testing.assert_allclose(
        fitted.transform(ROWS[:1])[0], folded(loss, fitted, np.nan_to_num(ROWS[0]), 9), rtol=1e-8
    )
    before = bits(fitted)
    assert bits(fitted.partial_fit(again, ones)) == before
    if in_place is not None:
        with pytest.raises(ValueError, match=r"has kept none.*on Dask; fit anew"):
            on_dask.partial_fit(PAIRS[:1], [1.0])


def test_later_fits_are_about_as_good_as_a_fit_of_all_clicks():
    later = LATER, np.ones(len(LATER))
    fitted = model("bpr", max_iter=40).fit(PAIRS[FIRST], ONES[FIRST])
    before = fitted.score(*later)
    after = fitted.set_params(max_iter=3).partial_fit(PAIRS[~FIRST], ONES[~FIRST]).score(*later)
    anew = model("bpr", max_iter=40).fit(PAIRS, ONES).score(*later)
    assert before + 0.03 < 0.97 * anew < after


@losses
@pytest.mark.parametrize("schedule", ["rotation", "bsp"])
def test_later_fits_begin_with_the_earlier_factors(loss, schedule):
    """With steps of nothing those of known users and items stay, and others are drawn."""
    known = model(loss, schedule=schedule).fit(PAIRS[FIRST], ONES[FIRST])
    before = known.user_factors_, known.components_.T, known.item_bias_
    later = known.set_params(learning_rate=1e-30).partial_fit(PAIRS, ONES)
    for now, then in zip(
        (later.user_factors_, later.components_.T, later.item_bias_), before, strict=True
    ):
        old = then.reshape(len(then), -1).any(axis=1)
        np.testing.assert_array_equal(now[old], then[old])
    new = np.unique(PAIRS[~FIRST][:, 0])
    assert not before[0][new].any() and later.user_factors_[new].any(axis=1).all()


def test_where_nothing_can_be_drawn_that_is_said():
    for pairs in ([[0, 0]], [[0, 0], [0, 1]], np.argwhere(np.ones((9, 20)))):
        with pytest.raises(
            ValueError, match=r"loss='bpr' no item can be drawn beside any pair.* rank more items"
        ):
            model("bpr", n_users=None, n_items=None).fit(np.array(pairs), np.ones(len(pairs)))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, da.from_array])
def test_a_matrix_of_all_items_is_refused_before_the_first_epoch(form, monkeypatch):
    monkeypatch.setattr(ModelParallelMF, "_follow", None)
    ranks = model("bpr", n_users=None, n_items=None)
    assert get_tags(ranks).input_tags.positive_only
    assert not get_tags(model("squared")).input_tags.positive_only
    with pytest.raises(ValueError, match=r"no item can be drawn.*mark in a dense matrix as NaN"):
        ranks.fit(form(np.ones((9, 20))))


@losses
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"solver": "ccd"},
            "solver='ccd' needs loss='squared'; with loss=.* leave it 'auto': coordinate descent",
        ),
        ({"unobserved_weight": 0.1}, "unobserved_weight=0.1 needs loss='squared'"),
        ({"confidence": np.log1p}, "confidence=<ufunc 'log1p'> needs"),
        ({"penalty": "per_row"}, "penalty='per_row' needs"),
        ({"penalty": 0.5}, "penalty=0.5 needs .* leave it 'per_rating': it is carried by"),
        ({"clip": True}, "clip=True needs"),
        (
            {"early_stopping": True},
            "early_stopping=True needs .* max_iter by a search with ranking.RankingScorer",
        ),
        ({"evaluate_every": 2}, "evaluate_every=2 needs .* history_ has the loss"),
    ],
)
def test_what_does_not_go_with_a_ranking_is_refused(loss, parameters, message):
    with pytest.raises(ValueError, match=message):
        model(loss, **parameters).fit(PAIRS, ONES)


@losses
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda mf: mf.fit(PAIRS, ONES - (np.arange(len(ONES)) == 3)),
            r"a value is 0, .*fit\(pairs\[y > 0\]",
        ),
        (lambda mf: mf.transform(np.where(SEEN, 1.0, 0.0)), "a value is 0, but with this loss"),
        (lambda mf: mf.fit(PAIRS, ONES, sample_weight=ONES), "sample_weight needs loss='squared'"),
        (
            lambda mf: mf.transform(PAIRS, ONES, sample_weight=ONES),
            "sample_weight needs loss='squared'",
        ),
        (
            lambda mf: mf.set_params(loss="squared").partial_fit(PAIRS, ONES),
            "but '.*' in the earlier fit",
        ),
        (
            lambda mf: mf.set_params(learning_rate=1e30).fit(PAIRS, ONES),
            "beyond all bounds .* learning_rate=1e.30",
        ),
    ],
)
def test_calls_that_a_ranking_cannot_answer_are_refused(loss, call, message):
    fitted = model(loss, max_iter=2).fit(PAIRS, ONES)
    before = bits(fitted)
    with pytest.raises(ValueError, match=message):
        call(fitted)
    assert bits(fitted) == before
