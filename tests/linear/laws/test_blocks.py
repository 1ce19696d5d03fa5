"""Blocks of coefficients: certificates by an outside function."""

import numpy as np
import pytest
from oracles.glm import Glm

from schmp_estimators.linear.losses.huber import Huber
from schmp_estimators.linear.losses.logistic import Logistic
from schmp_estimators.linear.losses.multinomial import Multinomial
from schmp_estimators.linear.losses.poisson import Poisson
from schmp_estimators.linear.losses.squared import Squared
from schmp_estimators.linear.penalties.base import read_only
from schmp_estimators.linear.penalties.elastic_net import L1, ElasticNet
from schmp_estimators.linear.penalties.group import group_penalty
from schmp_estimators.linear.programs.blocks import BlockProblem
from schmp_estimators.linear.programs.centred import Rows

EPS = float(np.finfo(np.float64).eps)
LOSSES = {"squared": Squared(), "logistic": Logistic(), "poisson": Poisson(), "huber": Huber(1.0)}


def problem_of(X, y, loss, penalty, weights=None, fit_intercept=True):
    weights = np.empty(0) if weights is None else weights
    rows = Rows(np.array(X.T, np.float64, order="C"), np.atleast_2d(y).astype(float), weights)
    return BlockProblem(rows, fit_intercept, loss, penalty, EPS)


def responses(rng, name, decision):
    v = decision[:, 0]
    match name:
        case "squared":
            return v + rng.normal(size=len(v))
        case "logistic":
            return np.where(v + rng.logistic(size=len(v)) > 0.0, 1.0, -1.0)
        case "poisson":
            return rng.poisson(np.exp(np.clip(v, -8.0, 5.0))).astype(float)
        case "huber":
            return v + rng.standard_t(1.5, size=len(v))
    return (decision + rng.gumbel(size=decision.shape)).argmax(axis=1).astype(float)


def random_problem(seed, name, kind):
    """Return an oracle and our problem: few rows or many, correlated, equal and constant columns, weights, factors."""
    rng = np.random.default_rng(seed)
    n, p = [(12, 8), (25, 40), (90, 12)][seed % 3]
    n_outputs = int(rng.integers(2, 5)) if name == "multinomial" else 1
    X = rng.normal(size=(n, p))
    X[:, 1:] += rng.choice([0.0, 0.95]) * X[:, :-1]
    X[:, 3], X[:, 5] = X[:, 2], 3.0
    y = responses(rng, name, X[:, :4] @ rng.normal(size=(4, n_outputs)))
    X = X * 10.0 ** rng.integers(-3, 4, p) if seed % 2 else X
    weights = rng.uniform(0.1, 2.0, n) if rng.random() < 0.5 else np.ones(n)
    weights[0] = 0.0
    intercept = bool(rng.random() < 0.8)
    factors, ridge = np.where(np.arange(p) == 1, 0.0, rng.uniform(0.3, 3.0, p)), 0.0
    groups = [np.array([number]) for number in range(p * n_outputs)]
    if kind == "group":
        labels = rng.permutation(np.arange(p) // 3)
        factors = np.sqrt(np.bincount(labels)) * np.where(
            np.arange(labels.max() + 1) == 1, 0.0, 1.0
        )
        penalty = group_penalty(labels, p, factors)
        groups = [
            np.ravel(np.flatnonzero(labels == g) + p * np.arange(n_outputs)[:, None])
            for g in np.unique(labels)
        ]
        own = factors
    else:
        ridge, own = (0.5 if kind == "net" else 0.0), np.tile(factors, n_outputs)
        penalty = (
            ElasticNet(read_only(factors), read_only(ridge * factors))
            if ridge
            else L1(read_only(factors))
        )
    oracle = Glm(name, X, y, weights, groups, own, n_outputs, ridge, intercept)
    loss = Multinomial(n_outputs) if name == "multinomial" else LOSSES[name]
    return oracle, problem_of(X, y, loss, penalty, weights, intercept)


@pytest.mark.parametrize(
    ("seed", "name", "kind"),
    [
        pytest.param(seed, name, kind, marks=[] if (seed + n + k) % 3 == 0 else pytest.mark.slow)
        for seed in (0, 1, 2)
        for n, name in enumerate([*LOSSES, "multinomial"])
        for k, kind in enumerate(["l1", "net", "group"])
    ],
)
def test_gaps_are_true(seed, name, kind):
    oracle, ours = random_problem(seed, name, kind)
    largest, null = ours.largest(0), ours.null_objective(0)
    points = ours.path(0, largest * np.array([1.0, 0.3, 0.05]), 1e-8 * null, 200)
    alone = ours.fit(0, 0.05 * largest, 1e-8 * null, 200, np.zeros(1))
    for penalty, coef, level, gap, objective in [
        *zip(*points[:5], strict=True),
        *zip(*alone[:5], strict=True),
    ]:
        intercept = level - coef @ ours.means
        assert gap <= 1e-8 * null
        assert objective == pytest.approx(oracle.objective(coef, intercept, penalty), rel=1e-10)
        outside, apart = oracle.gap(coef, intercept, penalty)
        assert apart < 1e-6 * null and outside <= 1.01e-8 * null + 1e-10 * null
    assert alone.objectives[0] == pytest.approx(points.objectives[-1], abs=2e-8 * null)


def test_groups_are_checked_and_valued():
    penalty = group_penalty([[0, 2], [1]], 3)
    assert penalty.value(np.array([3.0, -2.0, 4.0])) == pytest.approx(5.0 * np.sqrt(2.0) + 2.0)
    assert penalty.scaled(2.0).value(np.array([[3.0, 0.0, 0.0], [0.0, 0.0, 4.0]])) == pytest.approx(
        10.0 * np.sqrt(2.0)
    )
    by_label = group_penalty(["b", "a", "b"], 3, [2.0, 5.0])
    assert by_label.value(np.array([3.0, -2.0, 4.0])) == pytest.approx(2.0 * 2.0 + 5.0 * 5.0)
    by_name = group_penalty(["b", "a", "b"], 3, {"a": 2.0})
    assert by_name.strengths.tolist() == [2.0, np.sqrt(2.0)]
    assert group_penalty([3, 7, 3], 3, {7: 0.0, 3: 1.5}).strengths.tolist() == [1.5, 0.0]
    for groups in ([[0, 1]], [[0, 1], [1, 2]], [[0, 1, 2], []], ["a", "b"], [[0, 1, 3]]):
        with pytest.raises(
            ValueError, match="groups must put each of the 3 columns of X into one group"
        ):
            group_penalty(groups, 3)
    for factors in ([1.0], [1.0, -1.0], [1.0, np.nan]):
        with pytest.raises(ValueError, match=r"penalty_factors.*(one for each group|contains NaN)"):
            group_penalty([[0, 2], [1]], 3, factors)
