"""Few rows in place of many: they have the moments of the rows, and so every fit of the squared loss."""

import dask.array as da
import numpy as np
import pytest
from oracles.elastic_net import net_objective
from sklearn.linear_model import Lasso, LassoCV
from sklearn.model_selection import KFold, RepeatedKFold

from schmp_estimators import PrioritizedLasso, PrioritizedLassoCV, prioritized_lasso_path
from schmp_estimators.linear.programs import condense as condensing
from schmp_estimators.linear.programs.condense import condense, rows_left, worth_condensing
from schmp_estimators.linear.programs.input import Extent, split_rows
from schmp_estimators.linear.programs.matrix import Stacked

FORMS = {"rows": np.ascontiguousarray, "columns": np.asfortranarray}


def columns(kind, n=3000, p=12, seed=0):
    """Columns of one kind each that a factorisation may stumble over."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * np.exp(rng.normal(size=p)) + 3.0 * rng.normal(size=p)
    match kind:
        case "a constant":
            X[:, 3] = 0.1
        case "constant at first":
            X[: 2 * n // 3, 3] = 0.1
        case "copies":
            X[:, 5] = 2.0 * X[:, 2]
        case "powers":
            X = np.linspace(1.0, 2.0, n)[:, None] ** np.arange(1, p + 1)
        case "dummies":
            X = np.eye(p)[rng.integers(p, size=n)]
        case "bytes":
            X = rng.integers(0, 3, (n, p)).astype(np.int8)
        case "nothing but constants":
            X[:] = rng.normal(size=p)
    return X


KINDS = ("plain", "a constant", "constant at first", "copies", "powers", "dummies", "bytes", "nothing but constants")


def moments(rows):
    """Return weight, means and products of rows, by the definition and in long double."""
    X = rows.matrix.take_dense(np.arange(rows.matrix.n_columns)).T
    values = np.column_stack([X, rows.responses.T]).astype(np.longdouble)
    weights = rows.weights if len(rows.weights) else np.ones(len(values))
    means = weights @ values / weights.sum()
    centred = values - means
    return weights.sum(), means, centred.T @ (weights[:, None] * centred)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_same_weight_means_and_products(kind, form, weighted):
    X, rng = columns(kind), np.random.default_rng(1)
    Y = np.array([X[:, 0] - X[:, 1] + rng.normal(size=3000), rng.normal(size=3000) + 5.0])
    [rows] = split_rows(FORMS[form](X), Y, rng.random(3000) + 0.1 if weighted else np.empty(0), 1)
    few = condense(rows)
    assert few.matrix.n_rows == len(few.target) == len(few.weights) == rows_left(12)
    assert (few.weights > 0.0).all()
    np.testing.assert_array_equal(few.target, few.responses[0])
    (total, means, products), found = moments(rows), moments(few)
    lengths = np.sqrt(np.diagonal(products) + total * np.abs(means) ** 2 * 1e-6).astype(float)
    assert found[0] == pytest.approx(float(total), rel=1e-14)
    assert (np.abs(found[1] - means) <= 1e-14 * (np.abs(means) + lengths)).all()
    off = np.abs(found[2] - products) / np.outer(lengths, lengths)
    off[12, 13] = off[13, 12] = 0.0  # no fit asks for the products of two responses
    assert off.max() < 1e-13


def test_what_tells_near_copies_apart_keeps_its_digits():
    """Products know 1e-12 of their size to four digits; the factor of the rows knows its root to ten."""
    rng = np.random.default_rng(0)
    X, apart = rng.normal(size=(3000, 12)), 1e-6 * rng.normal(size=3000)
    X[:, 1] = X[:, 0] + apart
    few = condense(split_rows(X, apart * 1e6, np.empty(0), 1)[0])
    one, other = few.matrix.take_dense(np.array([0, 1]))
    assert np.var(other - one) == pytest.approx(np.var(X[:, 1] - X[:, 0]), rel=1e-8, abs=0.0)
    assert np.cov(other - one, few.target, bias=True)[0, 1] == pytest.approx(1e6 * np.var(apart), rel=1e-8, abs=0.0)


def nearly_exact(X, rng):
    return X[:, 0] - X[:, 1] + 1e-7 * rng.normal(size=len(X)), np.empty(0)


def light(X, rng):
    return X[:, 0] + rng.normal(size=len(X)), np.ldexp(rng.random(len(X)) + 0.1, -1000)


def heavy(X, rng):
    return X[:, 0] + rng.normal(size=len(X)), np.ldexp(rng.random(len(X)) + 0.1, 1000)


@pytest.mark.parametrize("case", [nearly_exact, light, heavy])
def test_what_columns_leave_of_a_response_keeps_its_digits(case):
    """Where next to nothing is left, and where products of weights would be beyond float64."""
    X = columns("plain")
    y, weights = case(X, np.random.default_rng(2))
    few = condense(split_rows(X, y, weights, 1)[0])
    assert few.matrix.n_rows == rows_left(12)

    def left(X, y, weights):
        weights = weights / weights.max()
        values = np.column_stack([X, y])
        centred = values - weights @ values / weights.sum()
        return np.linalg.qr(np.sqrt(weights)[:, None] * centred, mode="r")[-1, -1] ** 2 / weights.sum()

    expected = left(X, y, weights if len(weights) else np.ones(len(y)))
    found = left(few.matrix.take_dense(np.arange(12)).T, few.target, few.weights)
    assert found == pytest.approx(expected, rel=1e-7, abs=0.0)


def test_a_column_that_does_not_vary_has_the_same_value_in_all_rows():
    X = columns("a constant")
    few = condense(split_rows(X, X[:, 0], np.empty(0), 1)[0])
    assert (few.matrix.take_dense(np.array([3])) == 0.1).all()


def test_parts_one_below_the_other_are_rows_too():
    X, rng = columns("plain"), np.random.default_rng(0)
    y, weights = rng.normal(size=3000), rng.random(3000) + 0.1
    parts = split_rows(X, y, weights, 3)
    stacked = Stacked((condense(parts[0]).matrix, parts[1].matrix, parts[2].matrix))
    few = condense(parts[0])
    joined = few._replace(
        matrix=stacked,
        weights=np.concatenate([few.weights, parts[1].weights, parts[2].weights]),
        responses=np.concatenate([few.responses, parts[1].responses, parts[2].responses], axis=1),
    )
    found, expected = moments(condense(joined)), moments(split_rows(X, y, weights, 1)[0])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), rtol=1e-11)


def far(X, y):
    X[:, 4] += 1e7
    return X, y


def far_response(X, y):
    return X, y + 1e7


def unknown(X, y):
    X[17, 4] = np.nan
    return X, y


def tiny(X, y):
    return X * np.where(np.arange(12) == 4, 1e-150, 1.0), y


def too_large(X, y):
    X[17, 4] = 1e200
    return X, y


def few_rows(X, y):
    return X[: rows_left(12) * 2 - 1], y[: rows_left(12) * 2 - 1]


@pytest.mark.parametrize("change", [far, far_response, tiny, unknown, too_large, few_rows])
def test_rows_stay_where_new_ones_would_hold_less(change):
    X, y = change(columns("plain"), np.random.default_rng(0).normal(size=3000))
    [rows] = split_rows(X, y, np.empty(0), 1)
    found = condense(rows)
    assert found.matrix is rows.matrix
    assert (found.weights == 1.0).all()


def test_it_pays_for_dense_x_of_many_rows_and_few_columns():
    def worth(n_rows, n_columns, n_fits, *, sparse=False):
        return worth_condensing(Extent(n_rows, n_columns, n_rows * n_columns, sparse, np.dtype(float)), n_fits)

    assert worth(100_000, 50, 1)
    assert not worth(100_000, 50, 0)
    assert not worth(100_000, 50, 1, sparse=True)
    assert not worth(1000, 50, 1)
    assert not worth(100_000, 1000, 1)
    assert worth(100_000, 1000, 100)
    assert not worth(120_000, 2000, 40)  # where the path takes less time than the products
    assert not worth(3000, 1000, 100)


@pytest.fixture(scope="module")
def tall():
    """Enough rows for a single fit, too."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(9000, 30)) + rng.normal(size=30)
    X[:, 1:] += 0.7 * X[:, :-1]
    coef = np.zeros(30)
    coef[::4] = rng.normal(size=8)
    return X, X @ coef + 3.0 * rng.normal(size=9000) + 5.0, rng.random(9000) + 0.1


@pytest.fixture
def done(monkeypatch):
    """The partitions that have been condensed in this process."""
    count = []

    def counted(summary, root, n_columns):
        count.append(n_columns)
        return like(summary, root, n_columns)

    like = condensing._like
    monkeypatch.setattr(condensing, "_like", counted)
    return count


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"positive": True}, {"n_shards": 3}])
def test_a_fit_is_that_of_scikit_learn_and_its_gap_is_true(tall, done, form, options):
    X, y, weights = tall
    ours = PrioritizedLasso(0.05, tol=1e-12, **options).fit(FORMS[form](X), y, sample_weight=weights)
    assert len(done) == options.pop("n_shards", 1)
    theirs = Lasso(0.05, tol=1e-12, max_iter=10_000, **options).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-7)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-7)
    found, least = (
        net_objective(X, y, model.coef_, model.intercept_, 0.05, 1.0, np.ones(30), weights) for model in (ours, theirs)
    )
    assert found - least <= ours.dual_gap_ + 1e-13 * np.mean(y**2)
    assert ours.history_[-1]["objective"] == pytest.approx(found, rel=1e-12)


def test_several_responses_share_the_rows(tall, done):
    X, y, _ = tall
    Y = np.column_stack([y, X[:, 3] - y, np.zeros(len(y))])
    ours = PrioritizedLasso(0.05, tol=1e-12).fit(X, Y)
    assert len(done) == 1
    for number in range(3):
        alone = Lasso(0.05, tol=1e-12, max_iter=10_000).fit(X, Y[:, number])
        np.testing.assert_allclose(ours.coef_[number], alone.coef_, atol=1e-7)


def test_columns_without_penalty(tall, done):
    X, y, _ = tall
    factors = np.ones(30)
    factors[:2] = 0.0
    ours = PrioritizedLasso(1.0, penalty_factors=factors, tol=1e-12).fit(X, y)
    assert done
    residual = y - X @ ours.coef_ - ours.intercept_
    slopes = (X - X.mean(axis=0)).T @ residual / len(y)
    np.testing.assert_allclose(slopes[:2], 0.0, atol=1e-9)
    assert np.abs(slopes[2:]).max() <= 1.0 + 1e-6


def test_a_path_is_that_of_single_fits(tall, done, monkeypatch):
    X, y, weights = tall
    alphas, coefs, intercepts, gaps = prioritized_lasso_path(X, y, alphas=6, tol=1e-12, sample_weight=weights)
    assert len(done) == 1
    monkeypatch.setattr(condensing, "_MUCH", np.inf)
    whole = prioritized_lasso_path(X, y, alphas=6, tol=1e-12, sample_weight=weights)
    assert len(done) == 1
    np.testing.assert_allclose(alphas, whole[0], rtol=1e-12)
    np.testing.assert_allclose(coefs, whole[1], atol=1e-6)
    np.testing.assert_allclose(intercepts, whole[2], atol=1e-6)
    assert (np.abs(gaps) <= 1e-12 * np.var(y) * 3).all()


@pytest.mark.parametrize(
    "cv", [KFold(4, shuffle=True, random_state=0), RepeatedKFold(n_splits=3, n_repeats=4, random_state=0)]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_validation_is_that_of_scikit_learn(tall, done, cv, weighted):
    """Many different splits are condensed fold by fold, few in pieces that folds share."""
    X, y, weights = tall
    folds, weights = list(cv.split(X)), weights if weighted else None
    options = {"alphas": 8, "eps": 1e-2, "cv": folds}
    ours = PrioritizedLassoCV(tol=1e-10, **options).fit(X, y, sample_weight=weights)
    pieces = 4 if len(folds) == 4 else 0
    assert len(done) == pieces + len(folds) + 1 + 1  # and all rows, for the largest alpha and for the fit in the end
    # A gap of 1e-10 leaves a coefficient at the largest alpha room for 1e-4, and so an error of 1e-6.
    theirs = LassoCV(tol=1e-14, max_iter=100_000, **options).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(ours.alphas_, theirs.alphas_, rtol=1e-11)
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-6)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)


def test_same_bits_for_any_number_of_threads(tall):
    X, y, weights = tall
    fits = [PrioritizedLassoCV(alphas=5, n_jobs=n).fit(X, y, sample_weight=weights) for n in (None, 2)]
    np.testing.assert_array_equal(fits[0].mse_path_, fits[1].mse_path_)
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)


def test_on_dask_as_here(tall, done, client):
    X, y, weights = tall
    chunks = da.from_array(X, chunks=(2500, 30)), da.from_array(y, chunks=2500)
    there = PrioritizedLassoCV(alphas=5, tol=1e-10).fit(*chunks, sample_weight=weights)
    here = PrioritizedLassoCV(alphas=5, tol=1e-10).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(there.mse_path_, here.mse_path_, rtol=1e-7)
    path, expected = prioritized_lasso_path(*chunks, alphas=5, tol=1e-10), prioritized_lasso_path(X, y, alphas=5)
    np.testing.assert_allclose(path[0], expected[0], rtol=1e-11)
    lasso = PrioritizedLasso(0.05, tol=1e-10).fit(*chunks)
    np.testing.assert_allclose(lasso.coef_, PrioritizedLasso(0.05, tol=1e-10).fit(X, y).coef_, atol=1e-6)


def test_what_is_not_finite_is_named_as_ever(tall):
    X, y, _ = tall
    X = X.copy()
    X[17, 3] = np.inf
    for fit in (PrioritizedLasso().fit, PrioritizedLassoCV().fit, prioritized_lasso_path):
        with pytest.raises(ValueError, match="X contains infinity"):
            fit(X, y)


def test_a_checkpoint_is_one_of_the_rows_themselves(tall, done, tmp_path):
    X, y, _ = tall
    PrioritizedLasso(0.05, checkpoint=tmp_path / "fit").fit(X, y)
    assert not done


def test_a_path_begins_where_all_coefficients_are_zero_whatever_the_weights(tall):
    X, y, weights = tall
    found = prioritized_lasso_path(X[:400], y[:400], alphas=2, sample_weight=np.ldexp(weights[:400], 600))
    expected = prioritized_lasso_path(X[:400], y[:400], alphas=2, sample_weight=weights[:400])
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    assert not found[1][:, 0].any()
