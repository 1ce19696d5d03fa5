"""Pictures of paths, and the choices they mark."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Lasso
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import schmp_estimators as se

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 12))
Y = 2 * X[:, 0] - X[:, 1] + 2 * RNG.normal(size=60)

CASES = {
    "lasso": (se.PrioritizedLassoCV(alphas=15, eps=0.02, cv=4), Y, -1.0),
    "logistic": (
        se.SparseLogisticRegressionCV(Cs=np.geomspace(0.02, 5.0, 9), cv=4, scoring="neg_log_loss"),
        Y > 0,
        1.0,
    ),
}


@pytest.fixture(params=CASES, scope="module")
def fitted(request):
    """A fitted estimator, its penalties from the strongest, its values, and its two choices.

    Larger values are better.
    """
    estimator, target, sign = CASES[request.param]
    estimator.fit(X, target)
    if request.param == "lasso":
        return (
            estimator,
            estimator.alphas_,
            sign * estimator.mse_path_,
            (estimator.alpha_, estimator.alpha_1se_),
        )
    return estimator, estimator.Cs_, sign * estimator.scores_, (estimator.C_, estimator.C_1se_)


def test_the_strongest_penalty_within_one_standard_error(fitted):
    _, penalties, values, (best, simpler) = fitted
    means, count = [sum(row) / len(row) for row in values], values.shape[1]
    top = max(range(len(means)), key=means.__getitem__)
    variance = sum((one - means[top]) ** 2 for one in values[top]) / (count - 1)
    assert penalties[top] == best
    within = [
        place for place, mean in enumerate(means) if mean >= means[top] - (variance / count) ** 0.5
    ]
    assert penalties[min(within)] == simpler
    assert min(within) < top  # the choices differ here


def test_the_picture_of_a_choice(fitted):
    estimator, penalties, values, (best, simpler) = fitted
    display = se.PathDisplay.from_estimator(estimator)
    shown = np.abs(values)
    for line, fold in zip(display.lines_, shown.T, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), penalties)
        np.testing.assert_array_equal(np.abs(line.get_ydata()), fold)
    np.testing.assert_allclose(np.abs(display.mean_.get_ydata()), shown.mean(axis=1))
    assert [line.get_xdata()[0] for line in display.choices_] == [best, simpler]
    is_lasso = isinstance(estimator, se.PrioritizedLassoCV)
    assert display.ax_.xaxis_inverted() == is_lasso  # penalties get weaker to the right
    assert display.ax_.get_xscale() == "log" and display.figure_ is display.ax_.figure
    assert display.ax_.get_xlabel() == ("alpha" if is_lasso else "C")
    assert display.ax_.get_ylabel() == ("Mean squared error" if is_lasso else "Score")
    edge = display.errors_.get_paths()[0].vertices[:, 1]
    assert (
        edge.min() < display.mean_.get_ydata().min()
        and edge.max() > display.mean_.get_ydata().max()
    )


def test_the_picture_of_a_path():
    alphas, coefs, *_ = se.prioritized_lasso_path(X, Y, alphas=8, eps=0.2)
    _, ax = plt.subplots()
    display = se.PathDisplay.from_path(alphas, coefs, ax=ax, linewidth=3)
    assert (
        display.ax_ is ax
        and ax.xaxis_inverted()
        and ax.get_xlabel() == "alpha"
        and ax.get_legend() is None
    )
    assert ax.get_ylabel() == "Coefficient" and {
        line.get_linewidth() for line in display.lines_
    } == {3}
    drawn = np.array([line.get_ydata() for line in display.lines_])
    np.testing.assert_array_equal(drawn, coefs[coefs.any(axis=1)])
    assert 0 < len(drawn) < len(coefs)
    np.testing.assert_allclose(
        drawn[0, -1], Lasso(alphas[-1], tol=1e-10).fit(X, Y).coef_[0], rtol=0.02
    )
    Cs, coefs, *_ = se.sparse_logistic_path(X, Y > 0, Cs=4)
    rising = se.PathDisplay.from_path(Cs, coefs)
    assert (
        not rising.ax_.xaxis_inverted() and rising.ax_.get_xlabel() == "C" and rising.ax_ is not ax
    )
    assert rising.mean_ is None and rising.choices_ == []


def written(display):
    return {label.get_text(): label.get_color() for label in display.labels_}


def test_names_and_numbers_of_coefficients():
    names = [f"gene {j}" for j in range(12)]
    frame = pd.DataFrame(X, columns=names)
    alphas, coefs, *_ = se.prioritized_lasso_path(X, Y, alphas=30, eps=0.02)
    display = se.PathDisplay.from_path(alphas, coefs, names=names, n_named=3)
    theirs = Lasso(alphas[-1], tol=1e-10).fit(X, Y).coef_
    assert set(written(display)) == {names[j] for j in np.argsort(-np.abs(theirs))[:3]}
    for name, color in written(display).items():
        ends = [line.get_ydata()[-1] for line in display.lines_ if line.get_color() == color]
        assert min(np.abs(np.array(ends) - theirs[names.index(name)])) < 0.02
    display.figure_.canvas.draw()
    ticks = display.counts_.get_xticks()
    for tick, text in zip(ticks, display.counts_.get_xticklabels(), strict=True):
        assert int(text.get_text()) == np.count_nonzero(coefs[:, np.abs(alphas - tick).argmin()])
    assert 2 < len(ticks) <= 9
    assert set(written(se.PathDisplay.from_path(alphas, coefs, n_named=2))) <= {
        f"x{j}" for j in range(12)
    }
    scaled = make_pipeline(StandardScaler(), se.PrioritizedLassoCV(alphas=10, eps=0.02)).fit(
        frame, Y
    )
    of_pipeline = se.PathDisplay.from_estimator(scaled, kind="path", n_named=20)
    assert set(written(of_pipeline)) == {
        names[j] for j in np.flatnonzero(scaled[-1].coefs_path_[:, -1])
    }
    assert se.PathDisplay.from_estimator(scaled).ax_.get_ylabel() == "Mean squared error"
    heights = sorted(label.get_position()[1] for label in of_pipeline.labels_)
    assert np.diff(heights).min() > 0.04 and heights[-1] <= 1.0 + 1e-9


def test_errors_of_the_picture():
    with pytest.raises(ValueError, match="kind='both'; it must be 'cv' or 'path'"):
        se.PathDisplay.from_estimator(se.PrioritizedLassoCV(), kind="both")
    with pytest.raises(
        ValueError, match="names holds 2 names; give one for each of the 3 rows of coefs"
    ):
        se.PathDisplay.from_path([2.0, 1.0], np.zeros((3, 2)), names=["a", "b"])
    with pytest.raises(NotFittedError):
        se.PathDisplay.from_estimator(se.PrioritizedLassoCV())
    with pytest.raises(TypeError, match="Lasso has chosen no penalty by cross-validation"):
        se.PathDisplay.from_estimator(Lasso().fit(X, Y))
    with pytest.raises(ValueError, match="one column of coefs for each"):
        se.PathDisplay.from_path([1.0, 2.0], np.zeros((3, 4)))
    with pytest.raises(ValueError, match="name='beta'"):
        se.PathDisplay.from_path([1.0, 2.0], np.zeros((3, 2)), name="beta")
