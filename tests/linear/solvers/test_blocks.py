"""Blocks of coefficients: certificates by an outside function, for every storage of X."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from oracles.glm import Glm

import schmp_estimators as se
from schmp_estimators import penalised
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.blocks import blocks_violation
from schmp_estimators.linear.penalties.group import group_penalty
from schmp_estimators.linear.programs import choose, joint
from schmp_estimators.linear.programs.layout import Layout
from schmp_estimators.linear.programs.models import BlockModel

NAMES = ["squared", "logistic", "poisson", "huber", "multinomial"]
FORMS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "csc": sp.csc_array,
    "csr": sp.csr_array,
    "int8": lambda X: X.astype(np.int8),
    "chunks": lambda X: da.from_array(X, chunks=(-(-len(X) // 3), X.shape[1])),
}
#: Forms that are tried with every change.
QUICK = {"C", "csc", "chunks"}


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


def random_problem(seed, name, kind, form):
    """Return an oracle, its L1 factors, and arguments of ours.

    Few rows or many, correlated and constant columns.
    """
    rng = np.random.default_rng(seed)
    n, p = [(16, 8), (25, 40), (90, 12)][seed % 3]
    n_outputs = 3 if name == "multinomial" else 1
    X = rng.normal(size=(n, p))
    X[:, 1:] += rng.choice([0.0, 0.95]) * X[:, :-1]
    X = np.round(2.0 * X) if form == "int8" else X * 10.0 ** (seed % 2 * rng.integers(-2, 3, p))
    X[:, 3], X[:, 5] = X[:, 2], 3.0
    X = X * (rng.random(X.shape) < 0.4) if form in ("csc", "csr") else X
    decision = X[:, :4] @ rng.normal(size=(4, n_outputs))
    y = responses(rng, name, decision / max(1.0, np.abs(decision).max() / 3.0))
    y[:n_outputs] = np.arange(n_outputs) if n_outputs > 1 else y[:1]
    weights = rng.uniform(0.1, 2.0, n) if seed % 2 else np.ones(n)
    weights[-1] = 0.0
    options = {"fit_intercept": bool(rng.random() < 0.8), "penalty": kind}
    if kind == "group":
        labels = rng.permutation(np.arange(p) // 3)
        own = np.sqrt(np.bincount(labels)) * (np.arange(labels.max() + 1) != 1)
        groups = [
            np.ravel(np.flatnonzero(labels == g) + p * np.arange(n_outputs)[:, None])
            for g in range(len(own))
        ]
        options |= {"groups": labels, "penalty_factors": own}
        ratio = 1.0
    else:
        groups = [np.array([number]) for number in range(p * n_outputs)]
        factors = np.where(np.arange(p) == 1, 0.0, rng.uniform(0.3, 3.0, p))
        if positive := bool(seed % 2):
            factors[1] = 1.0
        ratio = 0.4 if kind == "elasticnet" else 1.0
        options |= {"penalty_factors": factors, "positive": positive}
        options |= {"l1_ratio": ratio} if kind == "elasticnet" else {}
        own = np.tile(ratio * factors, n_outputs)
    positive, ridge = options.get("positive", False), (1.0 - ratio) / ratio
    of = options["fit_intercept"], positive
    oracle = Glm(name, X, y, weights, groups, own, n_outputs, ridge, *of)
    loss = penalised.Huber(1.0) if name == "huber" else name
    return oracle, {"loss": loss, **options}, FORMS[form](X)


def is_long(name, kind, form):
    """Whether a case has the only kernels of their types."""
    return form == "csc" and (name == "huber" or kind == "elasticnet")


CASES = [
    pytest.param(
        name,
        kind,
        form,
        marks=[] if form in QUICK and not is_long(name, kind, form) else pytest.mark.slow,
    )
    for name in NAMES
    for kind in (["l1", "elasticnet", "group"] if name == "multinomial" else ["group"])
    for form in FORMS
]


@pytest.mark.parametrize(("name", "kind", "form"), CASES)
@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 6))]
)
def test_gaps_are_true(seed, name, kind, form, by_rows, monkeypatch):
    if by_rows:
        if form not in ("csc", "csr"):
            pytest.skip("models on compressed columns are for sparse X, and for very large ones")
        monkeypatch.setattr(choose, "prefer_residual", lambda size: size.sparse)
        monkeypatch.setattr(joint, "_MOST_WORK", 0)
    oracle, options, X = random_problem(seed, name, kind, form)
    total, fitted = oracle.weights.sum(), []

    def fit(alpha):
        return se.SparseGLM(alpha=alpha, tol=1e-7, **options).fit(X, oracle.y, oracle.weights)

    nothing = fit(1e9)
    largest = oracle.excess(nothing.coef_, nothing.intercept_)
    null = oracle.objective(nothing.coef_, nothing.intercept_, 0.0)
    goal = 1e-7 * null
    if name == "squared":  # what the docstring of `tol` says, without columns of no penalty
        centre = options["fit_intercept"] * np.average(oracle.y, weights=oracle.weights)
        goal = 1e-7 * oracle.weights @ (oracle.y - centre) ** 2
    if name == "logistic":
        goal = 1e-7 * total * np.log(2.0)
    assert not oracle.penalty(nothing.coef_)
    for part in (0.5, 0.1, 0.02):
        model = fit(part * largest / total)
        outside, apart = oracle.gap(model.coef_, model.intercept_, part * largest)
        assert apart < 1e-6 * max(1.0, null) and outside <= 1.02 * goal + 1e-10 * null
        assert model.dual_gap_ * total == pytest.approx(outside, abs=goal)
        fitted.append(oracle.penalty(model.coef_))
    assert fitted == sorted(fitted) and fitted[-1] > 0.0


@pytest.mark.parametrize(
    ("name", "kind"), [("multinomial", "elasticnet"), ("poisson", "group"), ("squared", "group")]
)
def test_rough_fits_have_true_gaps(name, kind):
    """A gap is at least what a better fit gains.

    It is at most that of the dual point of the coefficients.
    """
    oracle, options, X = random_problem(1, name, kind, "C")
    total = oracle.weights.sum()
    nothing = se.SparseGLM(alpha=1e9, **options).fit(X, oracle.y, oracle.weights)
    strength = 0.1 * oracle.excess(nothing.coef_, nothing.intercept_)
    rough, fine = (
        se.SparseGLM(alpha=strength / total, tol=tol, **options).fit(X, oracle.y, oracle.weights)
        for tol in (0.5, 1e-9)
    )
    reached, least = (
        oracle.objective(one.coef_, one.intercept_, strength) for one in (rough, fine)
    )
    outside, _ = oracle.gap(rough.coef_, rough.intercept_, strength)
    assert rough.dual_gap_ > 1e-3 * least / total
    assert reached - least <= rough.dual_gap_ * total <= outside * (1.0 + 1e-6)


@pytest.mark.parametrize("name", ["squared", "multinomial"])
def test_a_start_at_the_solution_takes_no_step(name):
    """Also if columns are far from zero, and some have no penalty."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 20)) + np.where(np.arange(20) % 4, 0.0, 1e6)
    y = X[:, 1] - X[:, 6] + X[:, 3] + rng.normal(size=90)
    y = y if name == "squared" else np.digitize(y, [-1.0, 1.0])
    groups = {"groups": np.arange(20) // 4, "penalty_factors": [0.0, 2.0, 2.0, 2.0, 2.0]}
    model = se.SparseGLM(name, "group", 0.05, tol=1e-6, warm_start=True, **groups).fit(X, y)
    coef = model.coef_
    assert len(model.history_) > 1 and np.max(model.fit(X, y).n_iter_) == 1
    assert len(model.history_) == 1
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", ["squared", "multinomial"])
def test_a_start_that_is_worse_than_zero_is_forgotten(name):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 12))
    y = X[:, 0] - X[:, 5] + rng.normal(size=80)
    y = y if name == "squared" else np.digitize(y, [-1.0, 1.0])
    options = {"penalty": "group", "groups": np.arange(12) // 3, "alpha": 0.05, "tol": 1e-10}
    anew = se.SparseGLM(name, **options).fit(X, y)
    far = se.SparseGLM(name, warm_start=True, **options).fit(X, y)
    far.coef_ = -1e4 * far.coef_
    far.fit(X, y)
    np.testing.assert_allclose(far.coef_, anew.coef_, atol=1e-5)
    np.testing.assert_allclose(far.intercept_, anew.intercept_, atol=1e-5)


def test_the_intercept_of_groups_is_the_mean_of_what_they_leave():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 12)) + 3.0
    y = X[:, 0] + 100.0 + rng.normal(size=60)
    model = se.SparseGLM(penalty="group", groups=np.arange(12) // 3, alpha=0.1).fit(X, y)
    assert model.intercept_ == pytest.approx(np.mean(y - X @ model.coef_), rel=1e-9)


def test_intercepts_of_classes_add_up_to_zero():
    """Without coefficients they are the logarithms of shares, less their mean."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)) + 1e5, np.repeat([0, 1, 2], [10, 20, 30])
    nothing = se.SparseGLM("multinomial", alpha=1e3, tol=1e-9).fit(X, y)
    shares = np.log([10.0, 20.0, 30.0])
    np.testing.assert_allclose(nothing.intercept_, shares - shares.mean(), atol=1e-8)
    some = se.SparseGLM("multinomial", alpha=0.01).fit(X, y)
    assert np.abs(some.coef_.sum(axis=0)).max() > 0.01
    assert abs(some.intercept_.sum()) <= 1e-12 * np.abs(some.intercept_).max()


@pytest.mark.parametrize("correlation", [0.5, 0.999])
def test_models_on_a_matrix_are_solved_to_their_goal(correlation):
    """The optimality conditions of groups, in plain NumPy.

    They hold also where descent alone would take long.
    """
    rng, width = np.random.default_rng(2), 5
    columns = rng.normal(size=(40, 60))
    for j in range(1, 40):
        columns[j] = correlation * columns[j - 1] + np.sqrt(1.0 - correlation**2) * columns[j]
    slopes = columns @ (columns[:3].sum(axis=0) + 0.1 * rng.normal(size=60))
    penalty = group_penalty(np.arange(40) // width, 40, np.full(8, 2.0))
    chosen = Layout.of(penalty, 40, 1).chosen(np.arange(8))
    gram = columns @ columns.T
    model = BlockModel(freeze(penalty), chosen, gram, slopes.copy(), np.zeros(40))

    def violation():
        point = freeze(model.slopes), freeze(model.coef), freeze(chosen.starts)
        given = freeze(chosen.numbers), freeze(model.bounds)
        return blocks_violation(freeze(penalty), *point, *given)

    assert violation() > 1.0
    model.solve(1e-10)
    assert violation() <= 1e-10
    left = (slopes - gram @ model.coef).reshape(8, width)
    coef = model.coef.reshape(8, width)
    sizes = np.linalg.norm(coef, axis=1)
    is_zero = sizes == 0.0
    assert 0 < is_zero.sum() < 8
    assert (np.linalg.norm(left[is_zero], axis=1) <= 2.0 + 1e-6).all()
    units = coef[~is_zero] / sizes[~is_zero, None]
    np.testing.assert_allclose(left[~is_zero], 2.0 * units, atol=1e-5)


def test_slopes_and_curvatures_of_groups_are_those_of_their_norm():
    """By differences of the norm, and of the slopes."""
    penalty, step = group_penalty([[0, 1, 2]], 3, [1.5]), 1e-5
    coef = np.array([0.3, -2.0, 0.7])

    def slopes(at):
        found = np.empty(3)
        penalty.block_slope(0, at, found)
        return found

    moves, curvature = step * np.eye(3), np.zeros((3, 3))
    penalty.block_curvature(0, coef, curvature)
    norms = [
        1.5 * (np.linalg.norm(coef + one) - np.linalg.norm(coef - one)) / (2 * step)
        for one in moves
    ]
    np.testing.assert_allclose(slopes(coef), norms, atol=1e-8)
    numeric = [(slopes(coef + one) - slopes(coef - one)) / (2 * step) for one in moves]
    np.testing.assert_allclose(curvature, numeric, atol=1e-8)


def test_the_violation_of_groups_is_that_of_a_step_on_each():
    """In plain NumPy.

    How far steps go in units of the objective, and the penalty times its excess.
    """
    rng, bounds, strengths = np.random.default_rng(0), np.array([2.0, 3.0]), [1.0, 0.5]
    slopes, coef, starts = rng.normal(size=5), rng.normal(size=5), np.array([0, 2, 5])
    expected, excess, cost = 0.0, 0.0, 0.0
    for b, (bound, strength) in enumerate(zip(bounds, strengths, strict=True)):
        here = slice(*starts[b : b + 2])
        aims = slopes[here] + bound * coef[here]
        new = max(0.0, 1.0 - strength / np.linalg.norm(aims)) * aims / bound
        moved, size = np.linalg.norm(new - coef[here]), np.linalg.norm(coef[here])
        expected += bound * (moved * size + 0.5 * moved**2)
        excess, cost = max(excess, bound * moved / strength), cost + strength * size
    penalty = group_penalty([[0, 1], [2, 3, 4]], 5, strengths)
    found = blocks_violation(*freeze((penalty, slopes, coef, starts, np.arange(2), bounds)))
    assert found == pytest.approx(expected + excess * cost)


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
