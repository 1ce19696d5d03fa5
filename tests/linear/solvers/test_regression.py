"""Regression kernels against NumPy."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.lanes import dot
from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.gram import gram_passes
from schmp_estimators.linear.kernels.newton import Blocks
from schmp_estimators.linear.kernels.sparse import Quadratic, sparse_passes
from schmp_estimators.linear.penalties.elastic_net import L1
from schmp_estimators.linear.programs.input import split_rows
from schmp_estimators.linear.programs.jobs import stacked
from schmp_estimators.linear.programs.kept import Join, KeptColumns
from schmp_estimators.linear.programs.residual import NewtonSystem
from schmp_estimators.linear.programs.stored import as_matrix


@kernel
def _dot(left, right):
    return dot(left, right)


def test_dot_adds_in_the_order_that_is_written_down():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=100), rng.normal(size=100)
    lanes = np.zeros(32)
    for start in range(0, 96, 32):
        lanes += left[start : start + 32] * right[start : start + 32]
    vectors = lanes.reshape(4, 8)
    folded = (vectors[0] + vectors[1]) + (vectors[2] + vectors[3])
    pairs = folded[::2] + folded[1::2]
    total = (pairs[0] + pairs[1]) + (pairs[2] + pairs[3])
    for index in range(96, 100):
        total += left[index] * right[index]
    assert _dot(left, right) == total


@pytest.fixture(
    params=[
        *("by columns", "by rows", "int8 by columns", "float32", "csc", "csr", "int64 indices"),
        pytest.param("int8 by rows", marks=pytest.mark.slow),
    ]
)
def stored(request):
    rng = np.random.default_rng(1)
    X = rng.poisson(0.5, (37, 101)).astype(float)
    forms = {
        "by columns": lambda: np.asfortranarray(X),
        "by rows": lambda: X,
        "int8 by columns": lambda: np.asfortranarray(X.astype(np.int8)),
        "int8 by rows": lambda: X.astype(np.int8),
        "float32": lambda: X.astype(np.float32),
        "csc": lambda: sp.csc_array(X),
        "csr": lambda: sp.csr_matrix(X),
        "int64 indices": lambda: sp.csc_array(
            (
                sp.csc_array(X).data,
                sp.csc_array(X).indices.astype(np.int64),
                sp.csc_array(X).indptr.astype(np.int64),
            ),
            shape=X.shape,
        ),
    }
    return X, as_matrix(forms[request.param]())


def test_matrix_operations(stored):
    X, matrix = stored
    rng = np.random.default_rng(2)
    vector, weights, chosen = rng.normal(size=37), rng.random(37), np.array([3, 7, 50, 99])
    assert (matrix.n_rows, matrix.n_columns) == X.shape
    np.testing.assert_allclose(matrix.gradient(vector, None), X.T @ vector, atol=1e-12)
    for scope in (chosen, np.arange(1, 101, 2)):
        np.testing.assert_allclose(matrix.gradient(vector, scope), X.T[scope] @ vector, atol=1e-12)
    np.testing.assert_allclose(
        matrix.combine(chosen, vector[:4]), X[:, chosen] @ vector[:4], atol=1e-12
    )
    sums, squares, products = matrix.moments(weights, vector)
    np.testing.assert_allclose(sums, weights @ X)
    np.testing.assert_allclose(squares, weights @ X**2)
    np.testing.assert_allclose(products, X.T @ vector, atol=1e-12)
    np.testing.assert_array_equal(matrix.take_dense(chosen), X[:, chosen].T)
    whole, _ = stacked([(matrix.compressed(chosen), np.zeros(37))] * 2)
    twice = sp.csc_array((whole.values, whole.rows, whole.starts), shape=(74, 4)).toarray()
    np.testing.assert_array_equal(twice, np.vstack([X[:, chosen]] * 2))


def test_unsorted_and_duplicate_entries_are_summed_in_a_copy():
    X = sp.csc_array(
        (np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(3, 1)
    )
    before = X.data.copy()
    np.testing.assert_array_equal(as_matrix(X).take_dense(np.array([0])), [[2.0, 0.0, 4.0]])
    np.testing.assert_array_equal(X.data, before)


def _system(rng, X, weighted, intercept, response=0.0):
    """Return centred columns, weights, columns and constants of kernels, and a response.

    The response is noisy.
    """
    n = len(X)
    weights = rng.random(n) + 0.1 if weighted else np.ones(n)
    means = weights @ X / weights.sum() if intercept else np.zeros(X.shape[1])
    centred, used = X - means, weights if weighted else np.empty(0)
    constants = Quadratic(weights @ centred**2, means, means * weights.sum(), used, np.empty(0))
    response = response + rng.normal(size=n)
    response -= np.average(response, weights=weights) if intercept else 0.0
    return centred, weights, as_matrix(sp.csc_array(X)).columns, freeze(constants), response


def _counts(weighted, intercept):
    rng = np.random.default_rng(3)
    return _system(rng, rng.poisson(0.4, (60, 20)).astype(float), weighted, intercept)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_sparse_pass_is_coordinate_descent_on_centred_columns(weighted, intercept):
    centred, weights, block, constants, target = _counts(weighted, intercept)
    coef, residual = np.zeros(20), weights * target
    sparse_passes(block, constants, coef, residual, L1(0.5), False, 3, 0)
    expected, left = np.zeros(20), target.copy()
    for _ in range(3):
        for j in range(20):
            norm = weights @ centred[:, j] ** 2
            aim = centred[:, j] @ (weights * left) + norm * expected[j]
            new = np.sign(aim) * max(abs(aim) - 0.5, 0) / norm
            left -= centred[:, j] * (new - expected[j])
            expected[j] = new
    np.testing.assert_allclose(coef, expected, atol=1e-10)
    np.testing.assert_allclose(residual, weights * left, atol=1e-10)


@pytest.mark.parametrize("ridges", [np.empty(0), np.linspace(0.0, 30.0, 20)], ids=["L1", "ridges"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_conjugate_gradients_solve_the_normal_equations(weighted, intercept, ridges):
    centred, weights, block, constants, target = _counts(weighted, intercept)
    constants = freeze(constants._replace(ridges=ridges))
    chosen = np.array([0, 3, 4, 10, 19])
    part = centred[:, chosen]
    gradient = np.zeros(20)
    gradient[chosen] = part.T @ (weights * target)
    free = np.isin(np.arange(20), chosen)
    step, moved, _ = NewtonSystem.of(block, constants, 60).solve(gradient, free, 50, 1e-20)
    hessian = part.T @ (weights[:, None] * part) + np.diag(
        ridges[chosen] if len(ridges) else np.zeros(5)
    )
    np.testing.assert_allclose(hessian @ step[chosen], gradient[chosen], atol=1e-9)
    np.testing.assert_allclose(moved, part @ step[chosen], atol=1e-9)
    assert not step[~free].any()


def _with_copies(weighted, intercept):
    """Return such a system whose columns 5–7 are nearly 0–2, and 8 and 9 nearly 5."""
    rng = np.random.default_rng(5)
    X = rng.random((300, 10)) * (rng.random((300, 10)) < 0.1)
    X[:, 5:8] = 0.9 * X[:, :3] + 0.1 * rng.random((300, 3)) * (X[:, :3] > 0)
    X[:, 8:] = 0.9 * X[:, [5]] + 0.1 * rng.random((300, 2)) * (X[:, [5]] > 0)
    return _system(rng, X, weighted, intercept, X[:, 5])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_near_copies_are_grouped_and_precondition_each_other(weighted, intercept):
    centred, weights, block, constants, response = _with_copies(weighted, intercept)
    system = NewtonSystem.of(block, constants, 300)
    members, starts, grams, factors = system.blocks
    groups = [members[start:stop].tolist() for start, stop in itertools.pairwise(starts)]
    assert groups == [[1, 6], [2, 7], [0, 5, 8, 9]]
    last = centred[:, groups[2]]
    expected = last.T @ (weights[:, None] * last)
    np.testing.assert_allclose(grams[8:].reshape(4, 4), expected, atol=1e-12)
    lower = np.tril(factors[8:].reshape(4, 4))
    np.testing.assert_allclose(lower @ lower.T, expected, rtol=1e-6)
    ridges = np.arange(10.0)
    factors_with = NewtonSystem.of(
        block, freeze(constants._replace(ridges=ridges)), 300
    ).blocks.factors
    lower = np.tril(factors_with[8:].reshape(4, 4))
    np.testing.assert_allclose(lower @ lower.T, expected + np.diag(ridges[groups[2]]), rtol=1e-6)
    gradient, free = centred.T @ (weights * response), np.ones(10, bool)
    plain = NewtonSystem(
        block, system.quadratic, Blocks(members[:0], starts[:1], grams[:0], factors[:0])
    )
    goal = 1e-12 * float(gradient @ (gradient / constants.norms))
    exact = np.linalg.solve(centred.T @ (weights[:, None] * centred), gradient)
    for steps, solved in (
        (7, system),
        (200, NewtonSystem(block, system.quadratic, freeze(plain.blocks))),
    ):
        np.testing.assert_allclose(
            solved.solve(gradient, free, steps, goal)[0], exact, atol=1e-3 * abs(exact).max()
        )


def test_gram_passes_keep_gradient_and_coefficients_together():
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(50, 30)), rng.normal(size=50)
    gram = X.T @ X
    gradient, coef = X.T @ y, np.zeros(30)
    gram_passes(freeze(gram), gradient, coef, L1(2.0), False, 200, 5)
    np.testing.assert_allclose(gradient, X.T @ y - gram @ coef, atol=1e-8)
    assert np.abs(gradient).max() <= 2.0 + 1e-5
    np.testing.assert_allclose(gradient[coef != 0], 2.0 * np.sign(coef[coef != 0]), atol=1e-5)


def test_arrays_at_odd_addresses_are_brought_to_even_ones():
    """So they arrive from other processes.

    NumPy copies all of them to take a column, numba compiles for them anew.
    """
    X = np.random.default_rng(0).normal(size=(7, 5))
    odd = np.frombuffer(b"?" + X.tobytes(), np.uint8)[1:].view(np.float64).reshape(X.shape)
    assert not odd.flags.aligned
    for form in (odd, odd.T):
        values = as_matrix(form).values
        assert values.flags.aligned
        np.testing.assert_array_equal(as_matrix(form).take_dense(np.arange(form.shape[1])), form.T)
    assert freeze(odd).flags.aligned
    np.testing.assert_array_equal(freeze(odd), X)


@pytest.mark.parametrize("is_centred", [True, False])
def test_products_of_columns_that_join_are_those_of_what_f_leaves(is_centred):
    """Of least squares on F in plain NumPy.

    The room for products grows, and columns can be forgotten.
    """
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(40, 700)) + 2.0, rng.uniform(0.5, 2.0, 40)
    y, extra = rng.normal(size=40), np.stack([np.ones(40), rng.normal(size=40)])
    [rows] = split_rows(X, y, weights, 1)
    rows, levels = rows._replace(extra=extra, state=np.zeros((1, 40))), np.array([[0.3, -0.2]])
    inner, means = (extra * weights) @ extra.T, np.average(X, axis=0, weights=weights)
    coef = np.linalg.solve(inner, (extra * weights) @ X)
    left, residual = X - extra.T @ coef, y - levels[0] @ extra
    kept = KeptColumns()
    for part in np.split(rng.permutation(700), [100, 600]):
        if len(kept) == 600:
            kept = KeptColumns()
        given = means[part] if is_centred else np.empty(0)
        steps = kept.join(Join(part, given, levels, None, anew=not len(kept)), inner)
        rows, answer = next(steps).job(rows)
        with pytest.raises(StopIteration) as end:
            steps.send(answer)
        if is_centred:
            slopes = (weights * residual) @ (X[:, part] - means[part])
            np.testing.assert_allclose(end.value.value[1], slopes, atol=1e-10)
        here = left[:, kept.columns]
        np.testing.assert_allclose(kept.gram, (here.T * weights) @ here, atol=1e-10)
        np.testing.assert_allclose(kept.away, coef[:, kept.columns].T, atol=1e-10)
    assert len(kept) == 100
