"""Judging recommendations: measures against scikit-learn's, scorers, and splits of pairs."""

import pickle

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from schmp_estimators import ModelParallelMF, ranking
from schmp_estimators.ranking import LeaveLastOut, RankingScorer, TimeSplit, UserShareSplit

N_USERS, N_ITEMS = 30, 17
rng = np.random.default_rng(0)
RELEVANT = rng.random((N_USERS, N_ITEMS)) < 0.25
RELEVANT[3] = False  # nothing is relevant to this one
RELEVANT[4] = True  # and everything to this one
SCORES = rng.permuted(np.tile(np.arange(float(N_ITEMS)), (N_USERS, 1)), axis=1)
ITEMS = np.argsort(-SCORES, axis=1)
MATRIX = sp.csr_array(RELEVANT.astype(int))
MEASURES = ["precision", "recall", "average_precision", "ndcg", "auc"]
judged = np.flatnonzero(RELEVANT.any(axis=1))


def mean(measure):
    return np.mean([measure(RELEVANT[user], SCORES[user], ITEMS[user]) for user in judged])


def oracle(name, k):
    if name == "ndcg":
        return mean(lambda right, scores, _: ndcg_score([right], [scores], k=k))
    if name == "precision":
        return mean(lambda right, _, items: len(set(items[:k]) & set(np.flatnonzero(right))) / k)
    if name == "recall":
        return mean(
            lambda right, _, items: len(set(items[:k]) & set(np.flatnonzero(right))) / right.sum()
        )
    if name == "average_precision":
        if k == N_ITEMS:
            return mean(lambda right, scores, _: average_precision_score(right, scores))

        def precisions(right, items):
            return [right[items[: n + 1]].mean() for n in range(k) if right[items[n]]]

        return mean(lambda right, _, items: sum(precisions(right, items)) / min(k, right.sum()))

    # behind the k first all orders are alike: as if all had one score there
    def tied(scores, items):
        return np.where(np.isin(np.arange(N_ITEMS), items[:k]), scores, -1.0)

    return mean(
        lambda right, scores, items: (
            1.0 if right.all() else roc_auc_score(right, tied(scores, items))
        )
    )


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("k", [1, 5, N_ITEMS])
def test_measures_are_those_of_scikit_learn(name, k):
    measure, expected = getattr(ranking, f"{name}_at_k"), oracle(name, k)
    assert measure(ITEMS, MATRIX, k) == pytest.approx(expected)
    assert measure(ITEMS.astype(np.uint64), MATRIX.tocoo(), k) == pytest.approx(expected)
    sized = {"n_candidates": N_ITEMS} if name == "auc" else {}
    lists = [np.flatnonzero(row) for row in RELEVANT]
    assert measure(ITEMS.tolist(), lists, k, **sized) == pytest.approx(expected)
    names = np.array([f"item {n}" for n in range(N_ITEMS)])
    assert measure(
        names[ITEMS], [names[row].tolist() for row in lists], k, **sized
    ) == pytest.approx(expected)
    # what is there for no item is neither right nor wrong: each list ends behind its first two
    short, few = (
        np.where(np.arange(N_ITEMS) < 2, ITEMS, -1),
        np.where(np.arange(N_ITEMS) < 2, names[ITEMS], None),
    )
    of_two = measure(ITEMS, MATRIX, 2)
    if name in ("recall", "auc"):
        assert measure(short, MATRIX, N_ITEMS) == pytest.approx(of_two)
        assert measure(few, [names[row] for row in lists], N_ITEMS, **sized) == pytest.approx(
            of_two
        )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((ITEMS, MATRIX[:5]), r"items has shape \(30, 17\), but relevant has 5 rows"),
        (
            (ITEMS[:, :3], MATRIX),
            r"k=10, but items has 3 columns; recommend more, as recommend\(users, n=10\)",
        ),
        ((ITEMS, MATRIX * 0), "nothing is relevant to anybody"),
        ((ITEMS, [["a"]] * N_USERS), "some items are of other types than others"),
    ],
)
def test_what_cannot_be_judged_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        ranking.ndcg_at_k(*given)
    for metric, k in (("map", 10), ("ndcg", 0), ("ndcg", True)):
        with pytest.raises(ValueError, match="it is"):
            RankingScorer(metric, k)
    for k in (0, -3, 2.5, True):
        with pytest.raises(ValueError, match=r"k=.*an integer of at least 1"):
            ranking.recall_at_k(ITEMS, MATRIX, k)
    with pytest.raises(ValueError, match="n_candidates must be given"):
        ranking.auc_at_k(ITEMS, [[1]] * N_USERS)


tastes = np.exp(2 * rng.normal(size=(60, 2)) @ rng.normal(size=(2, 25)))
PAIRS = rng.permutation(np.argwhere(rng.random(tastes.shape) < 0.4 * tastes / (1 + tastes)))
ONES = np.ones(len(PAIRS))
TIMES = rng.integers(0, 40, len(PAIRS))


def model(**parameters):
    given = {"n_components": 3, "unobserved_weight": 0.1, "max_iter": 5, "random_state": 0}
    return ModelParallelMF(**given | parameters)


@pytest.mark.parametrize("kind", [{}, {"unobserved_weight": 0.0}])
@pytest.mark.parametrize("name", MEASURES)
def test_scorers_judge_what_is_recommended(name, kind):
    """By what `recommend` returns, and in the whole ranking.

    An unknown item is relevant, but never found.
    """
    half = rng.random(len(PAIRS)) < 0.6
    ratings = rng.integers(1, 6, len(PAIRS)).astype(float)
    fitted = model(**kind).fit(PAIRS[half], ratings[half])
    rest, values = (
        np.vstack([PAIRS[~half], [[2, 999], [999, 3]]]),
        np.append(ratings[~half], [5.0, 5.0]),
    )
    users = np.unique(rest[values > 3, 0])
    relevant = [rest[(rest[:, 0] == user) & (values > 3), 1] for user in users]
    items, _ = fitted.recommend(users, 4)
    known = np.unique(PAIRS[half, 1])
    candidates = [
        known.size - np.isin(known, PAIRS[half & (PAIRS[:, 0] == user), 1]).sum() for user in users
    ]
    unknown = [(~np.isin(one, known)).sum() for one in relevant]
    sized = {"n_candidates": np.add(candidates, unknown)} if name == "auc" else {}
    expected = getattr(ranking, f"{name}_at_k")(items, relevant, 4, **sized)
    scorer = pickle.loads(pickle.dumps(RankingScorer(name, 4, threshold=3)))
    assert scorer(fitted, rest, values) == pytest.approx(expected)
    assert scorer(
        fitted, pd.DataFrame(rest).to_numpy(), da.from_array(values, chunks=9)
    ) == pytest.approx(expected)


def test_score_is_one_thing_for_each_model():
    fitted, ratings = model().fit(PAIRS[::2], ONES[::2]), np.arange(len(PAIRS)) % 5.0
    assert fitted.score(PAIRS[1::2], ONES[1::2]) == RankingScorer("ndcg", 10)(
        fitted, PAIRS[1::2], ONES[1::2]
    )
    assert fitted.score(sp.csr_array((ONES, PAIRS.T))) == RankingScorer()(
        fitted, sp.csr_array((ONES, PAIRS.T))
    )
    explicit = model(unobserved_weight=0.0).fit(PAIRS, ratings)
    assert explicit.score(PAIRS, ratings) != RankingScorer()(explicit, PAIRS, ratings)


SPLITS = [
    LeaveLastOut(),
    LeaveLastOut(2, 2),
    TimeSplit(),
    TimeSplit(3, 0.1),
    UserShareSplit(2, 0.3, random_state=1),
]
FORMS = [
    np.asarray,
    np.ndarray.tolist,
    lambda pairs: pd.DataFrame(pairs, columns=["user", "item"]).astype({"user": str}),
    lambda pairs: pl.DataFrame(pairs, schema=["user", "item"]),
]


@pytest.mark.parametrize("splitter", SPLITS, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_splits_are_those_that_loops_find(splitter, form):
    users = np.array(PAIRS[:, 0])
    found = list(splitter.split(form(PAIRS), groups=TIMES))
    assert len(found) == splitter.get_n_splits()
    for number, (fitted, judged) in enumerate(found):
        assert not set(fitted) & set(judged)
        if isinstance(splitter, LeaveLastOut):
            n, expected = splitter.n_last, ([], [])
            for user in np.unique(users):
                rows = sorted(np.flatnonzero(users == user), key=lambda row: (TIMES[row], row))
                rows = rows[: len(rows) - number * n] if number else rows
                expected[0].extend(rows[:-n] if len(rows) > n else rows)
                expected[1].extend(rows[-n:] if len(rows) > n else [])
            assert [sorted(rows) for rows in expected] == [fitted.tolist(), judged.tolist()]
        elif isinstance(splitter, TimeSplit):
            assert TIMES[fitted].max() < TIMES[judged].min()
            later = np.setdiff1d(np.arange(len(PAIRS)), np.union1d(fitted, judged))
            assert not later.size or TIMES[judged].max() < TIMES[later].min()
            assert later.size == sum(len(one[1]) for one in found[:number])
            assert len(judged) / len(PAIRS) == pytest.approx(splitter.test_size, abs=0.06)
        else:
            sizes, of_judged = (
                np.bincount(users),
                np.bincount(users[judged], minlength=users.max() + 1),
            )
            assert (np.abs(of_judged - splitter.test_size * sizes) < 1).all() and (
                of_judged < sizes
            )[sizes > 0].all()
            assert np.array_equal(np.union1d(fitted, judged), np.arange(len(PAIRS)))
    if isinstance(splitter, UserShareSplit):
        assert not np.array_equal(found[0][1], found[1][1])
        assert abs(sum(len(one[1]) for one in found) / 2 / len(PAIRS) - 0.3) < 0.03
    dates = np.datetime64("2024-01-01") + TIMES
    for one, other in zip(found, splitter.split(form(PAIRS), groups=pd.Series(dates)), strict=True):
        np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (
            lambda: list(LeaveLastOut().split(sp.csr_array(np.eye(3)))),
            "pairs must have two columns.*as_pairs",
        ),
        (
            lambda: list(TimeSplit().split(PAIRS, groups=TIMES[1:])),
            "inconsistent numbers of samples",
        ),
        (
            lambda: list(TimeSplit().split(PAIRS, groups=np.where(TIMES == 3, np.nan, TIMES))),
            "holds nan in row",
        ),
        (
            lambda: list(TimeSplit(5, 0.2).split(PAIRS)),
            "n_splits=5 of test_size=0.2 leave nothing to fit on",
        ),
        (lambda: list(TimeSplit().split(PAIRS, groups=0 * TIMES)), "0 are left to fit on"),
        (lambda: list(LeaveLastOut().split([[1, 2], [3, 4]])), "and 0 to judge by"),
        (lambda: LeaveLastOut(0), "n_last=0"),
        (lambda: UserShareSplit(test_size=1.0), "test_size=1.0"),
        (
            lambda: RankingScorer()(model().fit(PAIRS, ONES), PAIRS, 0 * ONES),
            "no rating that is judged is above 0",
        ),
        (
            lambda: RankingScorer()(make_pipeline(Normalizer(), model()), PAIRS, ONES),
            "RankingScorer judges a fitted",
        ),
    ],
)
def test_what_cannot_be_split_or_judged_is_refused(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt()
