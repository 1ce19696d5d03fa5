"""Paths that end by new data have the bits of whole paths, cut by the rule written out."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from callbacks import Recorder
from covering import slow_but
from oracles.rounds import by_rounds
from sklearn.metrics import d2_tweedie_score, log_loss, r2_score

import schmp_estimators as se
from schmp_estimators.genotypes import pack
from schmp_estimators.linear.penalties.choose import end_of
from schmp_estimators.penalised import Derivatives, Level

RNG = np.random.default_rng(0)
X = RNG.integers(0, 3, size=(180, 100))
Y = 1.0 * X[:, 0] - X[:, 1] + 2.0 * RNG.normal(size=180)
OLD, NEW = slice(120), slice(120, 180)
RESPONSES = {
    "squared": Y,
    "poisson": np.floor(np.abs(Y)),
    "logistic": np.where(Y > 0.0, "yes", "no"),
    "multinomial": np.digitize(Y, [-1.0, 1.0]),
}


@pytest.fixture(params=[False, True], ids=["one call", "rounds"])
def rounds(request, monkeypatch):
    by_rounds(monkeypatch, value=request.param)
    return request.param


def first_end(costs, most):
    """The first window of worse costs that follows the best of all before it."""
    for start in range(1, len(costs) - most + 1):
        if all(cost > min(costs[:start]) for cost in costs[start : start + most]):
            return start + most
    return len(costs)


def costs_of(loss, coefs, levels, weights):
    """How bad solutions of a path are on the new samples, by scikit-learn."""
    y, found = RESPONSES[loss][NEW], []
    for number in range(coefs.shape[-1]):
        values = X[NEW] @ coefs[..., number].T + levels[..., number]
        if loss == "squared":
            found.append(-r2_score(y, values, sample_weight=weights))
        elif loss == "poisson":
            found.append(-d2_tweedie_score(y, np.exp(values), sample_weight=weights, power=1))
        else:
            odds = np.column_stack([0.0 * values, values]) if values.ndim == 1 else values
            odds = np.exp(odds - odds.max(axis=1, keepdims=True))
            proba = odds / odds.sum(axis=1, keepdims=True)
            found.append(log_loss(y, proba, sample_weight=weights))
    return found


def test_the_rule_is_that_of_windows():
    for costs in RNG.integers(0, 4, (300, 9)).tolist():
        for most in (1, 2, 3):
            assert (end_of(costs, most) or 9) == first_end(costs, most)
        assert end_of(costs, None) is None


@pytest.mark.parametrize("loss", ["squared", "logistic", "multinomial"])
def test_equal_solutions_are_not_worse(rounds, loss):
    """Not even by rounding: penalties that select nothing end no path."""
    y, alphas = RESPONSES[loss], np.append(np.geomspace(50.0, 2.0, 12), 0.1)
    options = {"alphas": alphas, "max_worse": 1, "validation_data": (X[NEW], y[NEW])}
    _, coefs, *_ = se.sparse_glm_path(X[OLD], y[OLD], loss, **options)
    assert coefs.shape[-1] == 13 and not coefs[..., :12].any()


@pytest.mark.parametrize("loss", slow_but(["squared", "logistic"], RESPONSES))
@pytest.mark.parametrize("most", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_path_ends_by_new_data(rounds, loss, most):
    weights, y = RNG.integers(1, 4, 60).astype(float), RESPONSES[loss]
    options = {"loss": loss, "alphas": 25, "eps": 0.01}
    whole = se.sparse_glm_path(X[OLD], y[OLD], **options)
    given = X[NEW], y[NEW], weights
    part = se.sparse_glm_path(X[OLD], y[OLD], **options, max_worse=most, validation_data=given)
    count = first_end(costs_of(loss, *whole[1:3], weights), most)
    assert most < count < 25 and len(part[0]) == count
    for one, other in zip(part, whole, strict=True):
        np.testing.assert_allclose(one, other[..., :count], rtol=1e-14)
    np.testing.assert_array_equal(part[1], whole[1][..., :count])


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(sp.csr_array, id="sparse", marks=pytest.mark.slow),
        pytest.param(
            lambda rows: da.from_array(rows, chunks=(25, 100)), id="dask", marks=pytest.mark.slow
        ),
        pytest.param(pack, id="packed"),
    ],
)
def test_new_data_of_any_form(rounds, form):
    options = {"alphas": 25, "eps": 0.01, "max_worse": 2}
    for path, loss in (
        (se.prioritized_lasso_path, "squared"),
        (
            lambda *given, alphas, **more: se.sparse_logistic_path(*given, Cs=alphas, **more),
            "logistic",
        ),
    ):
        y = RESPONSES[loss]
        plain = path(X[OLD], y[OLD], **options, validation_data=(X[NEW], y[NEW]))
        found = path(form(X[OLD]), y[OLD], **options, validation_data=(form(X[NEW]), y[NEW]))
        assert len(found[0]) == len(plain[0]) < 25
        np.testing.assert_allclose(found[1], plain[1], atol=1e-2)


def test_missing_genotypes_of_new_people_are_means_of_those_fitted(rounds):
    holes = np.where(RNG.random(X.shape) < 0.1, -1, X)
    G, options = pack(holes), {"alphas": 25, "eps": 0.01, "tol": 1e-10, "max_worse": 2}
    means = np.nanmean(np.where(holes[OLD] < 0, np.nan, holes[OLD]), axis=0)
    filled = np.where(holes < 0, means, holes)
    ours, plain = (
        se.prioritized_lasso_path(x[OLD], Y[OLD], **options, validation_data=(x[NEW], Y[NEW]))
        for x in (G, filled)
    )
    assert len(ours[0]) == len(plain[0]) < 25
    np.testing.assert_allclose(ours[1], plain[1], atol=1e-6)


CASES = {
    "lasso": (se.PrioritizedLassoCV, Y, {"alphas": 25, "eps": 0.01}),
    "ratios": (se.PrioritizedLassoCV, Y, {"alphas": 25, "eps": 0.01, "l1_ratio": [0.5, 1.0]}),
    "accuracy": (se.SparseLogisticRegressionCV, RESPONSES["logistic"], {"Cs": 12}),
    "callable": (
        se.SparseLogisticRegressionCV,
        RESPONSES["logistic"],
        {"Cs": 12, "scoring": lambda model, X, y: model.score(X, y) - 1e-3 * np.log(model.C_)},
    ),
    "one by one": (
        se.SparseLogisticRegressionCV,
        RESPONSES["multinomial"],
        {"Cs": 12, "scoring": "neg_log_loss"},
    ),
    "together": (
        lambda **more: se.SparseGLMCV("multinomial", **more),
        RESPONSES["multinomial"],
        {"alphas": 20, "eps": 0.01},
    ),
}


@pytest.mark.covering
@pytest.mark.parametrize("case", slow_but(["lasso"], CASES))
def test_folds_end_together(rounds, case):
    make, y, options = CASES[case]
    if not rounds:
        options = {**options, "tol": 1e-5}
    whole = make(cv=4, **options).fit(X, y)
    found = [make(cv=4, max_worse=2, n_jobs=n, **options).fit(X, y) for n in (1, 2)]
    name, sign = next(
        (name, sign)
        for name, sign in (("mse_path_", 1), ("deviance_path_", 1), ("scores_", -1))
        if hasattr(whole, name)
    )
    values, tried = getattr(whole, name), getattr(found[0], name)
    assert tried.shape == values.shape
    np.testing.assert_array_equal(tried, getattr(found[1], name))
    np.testing.assert_array_equal(found[0].coef_, found[1].coef_)
    ends = []
    for one, part in zip(*(np.atleast_3d(x.T).T for x in (values, tried)), strict=True):
        ends.append(first_end((sign * one.mean(axis=1)).tolist(), 2))
        np.testing.assert_allclose(part[: ends[-1]], one[: ends[-1]], rtol=1e-9)
        assert np.isnan(part[ends[-1] :]).all()
    assert min(ends) < len(whole.coefs_path_.T)
    means = sign * tried.mean(axis=-1)
    chosen = found[0].alpha_ if hasattr(whole, "alpha_") else found[0].C_
    grid = whole.alphas_ if hasattr(whole, "alphas_") else whole.Cs_
    assert chosen == np.ravel(grid)[np.nanargmin(np.ravel(means))]
    row = 0 if np.ndim(values) == 2 else list(options["l1_ratio"]).index(found[0].l1_ratio_)
    if np.ndim(values) == 2 or whole.l1_ratio_ == found[0].l1_ratio_:
        np.testing.assert_array_equal(
            found[0].coefs_path_[..., : ends[row]], whole.coefs_path_[..., : ends[row]]
        )
    assert np.isnan(found[0].coefs_path_[..., ends[row] :]).all()
    assert np.isnan(found[0].intercepts_path_[..., ends[row] :]).all()
    assert not np.isnan(found[0].coef_1se_).any()


@pytest.mark.slow
def test_targets_end_by_themselves(rounds):
    both, options = np.column_stack([Y, RNG.normal(size=180)]), {"alphas": 25, "eps": 0.01, "cv": 4}
    found = se.PrioritizedLassoCV(max_worse=2, **options).fit(X, both)
    for number in range(2):
        alone = se.PrioritizedLassoCV(max_worse=2, **options).fit(X, both[:, number])
        np.testing.assert_allclose(found.mse_path_[number], alone.mse_path_, rtol=1e-9)
        np.testing.assert_allclose(found.coefs_path_[number], alone.coefs_path_, atol=1e-9)
    assert len(set(np.isnan(found.mse_path_).sum(axis=(1, 2)))) == 2


class Counting(Recorder):
    """Counts penalties, and ends no path."""

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        super().on_fit_task_end(estimator, context)


def test_no_fold_goes_on_after_the_end(monkeypatch):
    by_rounds(monkeypatch)
    recorder = Counting()
    lasso = se.PrioritizedLassoCV(alphas=25, eps=0.01, cv=4, max_worse=2).set_callbacks(recorder)
    lasso.fit(X, Y)
    done = int((~np.isnan(lasso.mse_path_)).sum())
    assert done < 60 and recorder.events.count("end penalty") == done
    assert recorder.events.count("end fold") == 4
    display = se.PathDisplay.from_estimator(lasso, kind="path")
    assert len(display.penalties) == done // 4


def test_values_that_cannot_be_used_are_named():
    new = X[NEW], Y[NEW]
    for wrong in (0, 1.5, "two"):
        with pytest.raises(ValueError, match="'max_worse' parameter of prioritized_lasso_path"):
            se.prioritized_lasso_path(X, Y, max_worse=wrong, validation_data=new)
        with pytest.raises(ValueError, match="'max_worse' parameter of PrioritizedLassoCV"):
            se.PrioritizedLassoCV(max_worse=wrong).fit(X, Y)
    for given in (
        {"max_worse": 2},
        {"validation_data": new},
        {"max_worse": 2, "validation_data": (X,)},
        {"max_worse": 2, "validation_data": (*new, None, None)},
    ):
        with pytest.raises(ValueError, match=r"max_worse needs validation_data=\(X, y\) or"):
            se.prioritized_lasso_path(X, Y, **given)
    with pytest.raises(ValueError, match="X has 99 features"):
        se.prioritized_lasso_path(X, Y, max_worse=2, validation_data=(X[NEW, 1:], Y[NEW]))
    labels = RESPONSES["logistic"]
    with pytest.raises(ValueError, match="'perhaps'"):
        se.sparse_logistic_path(
            X, labels, max_worse=2, validation_data=(X[NEW], np.full(60, "perhaps"))
        )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X[NEW], Y[NEW], -np.ones(60)), "Negative values in data passed to `sample_weight`"),
        ((X[NEW, :5], Y[NEW]), "5 features"),
        ((None, Y[NEW]), "validation_data: "),
        ((X[NEW], Y[:9]), r"numbers of samples: \[60, 9\]"),
    ],
)
def test_new_data_are_checked_before_any_work(data, message):
    with pytest.raises(ValueError, match=f"validation_data: .*{message}|^{message}"):
        se.prioritized_lasso_path(X[OLD], Y[OLD], max_worse=2, validation_data=data)


def test_unknown_classes_are_named():
    new = X[NEW], np.repeat("else", 60)
    with pytest.raises(ValueError, match=r"validation_data: y holds .*else.* no class of the fit"):
        se.sparse_logistic_path(
            X[OLD], RESPONSES["logistic"][OLD], max_worse=2, validation_data=new
        )


def test_a_constant_response_has_a_deviance():
    new = X[NEW], np.ones(60)
    for loss in ("poisson", "huber"):
        values, *_ = se.sparse_glm_path(
            X[OLD], RESPONSES["poisson"][OLD], loss, max_worse=2, validation_data=new
        )
        assert len(values) < 100


class SquaredHinge:
    """A loss that gives no probabilities."""

    smoothness, classifies, certified = 2.0, True, True

    def derivatives(self, decision, target, weights, intercept):
        missing = np.maximum(0.0, 1.0 - target * (decision + intercept))
        s = weights if len(weights) else np.ones_like(missing)
        slope, curvature = 2.0 * s * target * missing, 2.0 * s * (missing > 0.0)
        return Derivatives(Level(s @ missing**2, slope.sum(), curvature.sum()), slope, curvature)

    def dual(self, decision, target, weights, intercept, scale):
        part = scale * 2.0 * np.maximum(0.0, 1.0 - target * (decision + intercept))
        return (weights if len(weights) else np.ones_like(part)) @ (part - 0.25 * part**2)


@pytest.mark.parametrize("loss", [SquaredHinge(), "multinomial"], ids=["hinge", "two at once"])
def test_a_loss_of_classes_is_its_own_judge(loss):
    y, new = Y > 0.0, np.where(Y[NEW] > 0.0, 1.0, -1.0)
    options = {"loss": loss, "alphas": 25, "eps": 0.001}
    _, coefs, levels, _ = se.sparse_glm_path(X[OLD], y[OLD], **options)
    odds = new[:, None] * (X[NEW] @ coefs.reshape(-1, 100, 25)[0] + levels.ravel())
    if loss == "multinomial":
        found = np.log1p(np.exp(-odds)).sum(axis=0)
    else:
        found = (np.maximum(0.0, 1.0 - odds) ** 2).sum(axis=0)
    given = X[NEW], y[NEW]
    part = se.sparse_glm_path(X[OLD], y[OLD], **options, max_worse=2, validation_data=given)
    assert len(part[0]) == first_end(found.tolist(), 2) < 25
