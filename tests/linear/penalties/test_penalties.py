"""Penalties: minimisers by search, compiled and in Python alike.

One that is not of this package works, too.
"""

import numpy as np
import pytest
from pages import example

from schmp_estimators import SparseGLM
from schmp_estimators.core import jit
from schmp_estimators.core.jit import kernel
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels import blocks, dense, descent, gram, sparse
from schmp_estimators.linear.penalties import base
from schmp_estimators.linear.penalties.choose import check_factors, choose_penalty
from schmp_estimators.linear.penalties.elastic_net import L1, ElasticNet
from schmp_estimators.linear.penalties.mcp import MCP
from schmp_estimators.linear.programs.gram import GramProblem, _ActiveSet


@kernel
def _prox(penalty, j, aim, norm):
    return base.prox(penalty, j, aim, norm)


@kernel
def _value(penalty, coef):
    return base.value(penalty, coef)


EACH = base.read_only(np.array([0.0, 0.4, 2.0]))
PENALTIES = {
    "L1": L1(0.7),
    "L1, factors": L1(EACH),
    "L1, positive": L1(0.7, True),
    "net": ElasticNet(0.7, 1.3),
    "net, factors": ElasticNet(EACH, base.read_only(2.0 * EACH)),
    "net, factors, positive": ElasticNet(EACH, 0.5, True),
}


@pytest.fixture(params=PENALTIES)
def penalty(request):
    return PENALTIES[request.param]


def cost(penalty, j, b):
    """The penalty of b as coefficient j, by its definition."""
    strength, ridge = (
        np.broadcast_to(penalty.strengths, 3)[j],
        np.broadcast_to(penalty.ridges, 3)[j],
    )
    return strength * np.abs(b) + 0.5 * ridge * b * b


@pytest.mark.covering
@pytest.mark.parametrize("j", range(3))
def test_prox_is_the_minimiser(penalty, j):
    grid = np.arange(-80_000, 80_001) * 1e-4
    grid = grid[grid >= 0.0] if penalty.positive else grid
    for aim in (-3.0, -0.5, -1e-3, 0.0, 0.39, 0.7, 1.9, 2.5):
        for norm in (0.5, 3.0):
            found = penalty.prox(j, aim, norm)
            best = grid[np.argmin(0.5 * norm * grid**2 - aim * grid + cost(penalty, j, grid))]
            assert found == pytest.approx(best, abs=1.01e-4)
            assert _prox(freeze(penalty), j, aim, norm) == found
            assert found == 0.0 or found * aim > 0.0


def test_value(penalty):
    coef = np.array([0.3, 1.2 if penalty.positive else -1.2, 0.0])
    expected = sum(cost(penalty, j, coef[j]) for j in range(3))
    assert penalty.value(coef) == pytest.approx(expected, rel=1e-14)
    assert _value(freeze(penalty), coef) == pytest.approx(expected, rel=1e-14)


def test_tilt_is_the_slope_of_what_is_beside_the_absolute_values(penalty):
    coef = np.array([0.3, 1.2, 0.8])
    beside = [
        cost(penalty._replace(strengths=0.0), j, coef[j] + np.array([-1e-6, 1e-6]))
        for j in range(3)
    ]
    np.testing.assert_allclose(
        np.broadcast_to(penalty.tilt(coef), 3), [(b - a) / 2e-6 for a, b in beside], atol=1e-8
    )


def test_multiples_and_parts(penalty):
    coef = np.array([0.3, 1.2, 0.8])
    assert penalty.scaled(2.5).value(coef) == pytest.approx(2.5 * penalty.value(coef), rel=1e-14)
    for columns in (np.array([2, 0]), slice(1, 3)):
        part = base.take(penalty, columns)
        chosen = np.arange(3)[columns]
        assert part.value(coef[columns]) == pytest.approx(
            sum(cost(penalty, j, coef[j]) for j in chosen), rel=1e-14
        )
        assert part.positive is penalty.positive
        assert not any(np.ndim(field) and field.flags.writeable for field in part)
    assert not any(np.ndim(field) and field.flags.writeable for field in penalty.scaled(2.0))


def test_what_optimality_compares_with_the_strength():
    gradient = np.array([-2.0, 1.0, 0.0])
    np.testing.assert_array_equal(base.sizes(L1(1.0), gradient), [2.0, 1.0, 0.0])
    np.testing.assert_array_equal(base.sizes(L1(1.0, True), gradient), gradient)


def test_the_penalty_that_parameters_stand_for():
    coef = np.array([0.3, -1.2, 0.8])
    factors = np.array([0.0, 0.5, 3.0])
    for l1_ratio in (1.0, 0.3):
        chosen = choose_penalty(0.2, l1_ratio, check_factors(factors, 3))
        expected = (
            0.2 * (factors * (l1_ratio * np.abs(coef) + 0.5 * (1 - l1_ratio) * coef**2)).sum()
        )
        assert chosen.value(coef) == pytest.approx(expected, rel=1e-14)
        assert chosen.certified
    assert np.ndim(check_factors([2, 2, 2], 3)) == 0
    factors[0] = 9.0
    assert chosen.strengths[0] == 0.0  # a copy


@pytest.mark.parametrize("name", ["L1", "L1, positive", "net", "net, positive", "net, factors"])
def test_the_gap_is_primal_less_dual(name):
    """The dual of ½‖t − Xb‖² + Σλ|b| + ½Σρb² at a point θ.

    It is ½‖t‖² − ½‖t − θ‖² − ½Σ(excess of |Xᵀθ| over λ)²/ρ.
    """
    rng = np.random.default_rng(0)
    X, target, coef = rng.normal(size=(9, 4)), rng.normal(size=9), np.array([0.2, 0.0, 0.4, -0.3])
    positive = "positive" in name
    coef = np.abs(coef) if positive else coef
    strengths = base.read_only(np.array([0.3, 0.1, 2.0, 0.5])) if "factors" in name else 0.4
    penalty = (
        L1(strengths, positive) if name.startswith("L1") else ElasticNet(strengths, 0.8, positive)
    )
    residual = target - X @ coef
    gradient = X.T @ residual
    scale = base.dual_scale(penalty, coef, gradient)
    assert 0.0 < scale < 1.0
    energy = residual @ residual
    primal = 0.5 * energy + penalty.value(coef)
    dual = 0.5 * target @ target - 0.5 * np.sum((target - scale * residual) ** 2)
    ridges = np.broadcast_to(penalty.ridges, 4)
    dual -= (
        0.5 * (ridges * (scale * coef) ** 2).sum()
    )  # θ with −√ρ·b beside it, as on rows augmented by √ρ
    slopes = scale * (gradient - ridges * coef)
    assert np.max((slopes if positive else np.abs(slopes)) / strengths) == pytest.approx(1.0)
    gap = base.duality_gap(penalty, coef, gradient, energy, scale)
    assert gap == pytest.approx(primal - dual, rel=1e-12)
    assert base.gap_or_merit(penalty, coef, gradient, energy, (X**2).sum(axis=0)) == gap
    assert base.merit(penalty, coef, gradient, (X**2).sum(axis=0)) > 0.0


def test_gaps_of_candidates_count_what_columns_without_penalty_could_gain():
    X, target = np.random.default_rng(1).normal(size=(9, 3)), np.arange(9.0)
    gradient, energy, norms = X.T @ target, target @ target, (X**2).sum(axis=0)
    penalty = L1(base.read_only(np.array([1e6, 0.0, 1e6])))
    gained = 0.5 * gradient[1] ** 2 / norms[1]
    assert base.gap_or_merit(penalty, np.zeros(3), gradient, energy, norms) == pytest.approx(
        gained, rel=1e-12
    )
    assert base.dual_scale(penalty, np.zeros(3), gradient) == 1.0
    assert base.dual_scale(penalty, np.zeros(0), np.zeros(0)) == 1.0


class Own(MCP):
    """A penalty that is not of this package."""


def test_kernels_for_such_a_penalty_are_kept_in_this_process_alone():
    on_sparse = sparse.sparse_passes, descent.shuffled_passes
    for compiled in (gram.gram_passes, *on_sparse, dense.proximal_steps):
        own = jit.compiled_for(Own(0.1, 3.0), compiled)
        assert own is not compiled and own is jit.compiled_for(Own(0.2, 5.0), compiled)
        assert type(own._cache).__name__ == "NullCache"
        assert own.py_func is compiled.py_func
        assert jit.compiled_for(L1(1.0), compiled) is compiled
        assert jit.compiled_for(ElasticNet(1.0, 1.0), compiled) is compiled


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_penalty_of_the_guide_is_fitted_as_that_of_the_package(loss):
    rng, alpha = np.random.default_rng(3), 0.1
    X = rng.normal(size=(100, 60))
    y = X[:, 4] - 2.0 * X[:, 7] + 0.5 * rng.normal(size=100)
    guide = example("plot_your_own_penalty").MCP(1.0, gamma=3.0 * alpha)
    own, ours = (
        SparseGLM(loss, one, alpha, tol=1e-10).fit(X, y if loss == "squared" else y > 0)
        for one in (guide, "mcp")
    )
    np.testing.assert_allclose(own.coef_, ours.coef_, atol=1e-6)
    assert np.isnan(own.dual_gap_).all()


@pytest.mark.parametrize("penalty", [L1(0.5), ElasticNet(0.5, 20.0)], ids=["L1", "elastic net"])
def test_a_newton_step_on_a_gram_matrix_ends_at_the_least_point(penalty):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(50, 8))
    gram, products = X.T @ X, X.T @ (X @ np.linspace(2.0, 4.0, 8))
    coef = np.linspace(1.0, 3.0, 8)
    problem = GramProblem(gram, products - gram @ coef, coef, 1.0, penalty)
    active = _ActiveSet.of(problem, np.arange(8))
    assert active._newton_step() == 0
    slope = products - gram @ active.coef - 0.5 - penalty.tilt(active.coef)
    np.testing.assert_allclose(slope, 0.0, atol=1e-6)


def test_single_coefficients_pay_in_blocks_what_they_pay_alone():
    rng = np.random.default_rng(0)
    net = ElasticNet(freeze(rng.random(5)), freeze(rng.random(5)), False)
    coef, numbers = rng.normal(size=5), np.arange(5)
    given = net, freeze(coef), freeze(np.arange(6)), freeze(numbers)
    assert blocks.blocks_value(*given) == pytest.approx(net.value(coef), rel=1e-14)
