"""Inputs of regression.

What is left out, what is refused, and that no chunk of X hides anything.
"""

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Lasso
from sklearn.model_selection import GroupKFold

import schmp_estimators as se
from schmp_estimators.core.inputs.validation import read_chunk
from schmp_estimators.linear.samples import check_length
from schmp_estimators.penalised import L1, Squared

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 5))
Y = X[:, 0] + 0.1 * rng.normal(size=30)
WEIGHTS = np.where(np.arange(30) % 3 == 1, 0.0, 1.0 + np.arange(30) / 30)
FORMS = {
    "dense": np.asarray,
    "sparse": sp.csc_array,
    "Dask": lambda X: da.from_array(X, chunks=(7, 5)),
}
ESTIMATORS = {
    "Lasso": (se.PrioritizedLasso(0.01), Y),
    "logistic": (se.SparseLogisticRegression(), Y > 0),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_row_without_weight_has_no_influence(form):
    wild = X.copy()
    wild[WEIGHTS == 0] = 1e6
    ours = se.PrioritizedLasso(0.01, tol=1e-12).fit(FORMS[form](wild), Y, sample_weight=WEIGHTS)
    used = WEIGHTS > 0
    theirs = Lasso(0.01, tol=1e-12, max_iter=100_000).fit(
        X[used], Y[used], sample_weight=WEIGHTS[used]
    )
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    labels = np.where(used, Y > 0, 2)
    assert se.SparseLogisticRegression().fit(
        FORMS[form](X), labels, sample_weight=WEIGHTS
    ).classes_.tolist() == [0, 1]


@pytest.mark.covering
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_is_not_finite_is_refused_with_and_without_weight(name, form, value):
    estimator, y = ESTIMATORS[name]
    for row in (1, 2):  # without weight, and with one
        broken = X.copy()
        broken[row, 3] = value
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            estimator.fit(FORMS[form](broken), y, sample_weight=WEIGHTS)


@pytest.mark.covering
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_lengths_and_weights_that_make_no_sense_are_refused(name, form):
    estimator, y = ESTIMATORS[name]
    with pytest.raises(ValueError, match="inconsistent"):
        estimator.fit(FORMS[form](X), y[:-1])
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        estimator.fit(FORMS[form](X), y, sample_weight=np.where(np.arange(30) == 4, -1.0, 1.0))
    with pytest.raises(ValueError, match="non-zero"):
        estimator.fit(FORMS[form](X), y, sample_weight=np.zeros(30))
    with pytest.raises(ValueError, match="30"):
        estimator.fit(FORMS[form](X), y, sample_weight=np.ones(29))


def test_chunks_of_unknown_length_are_counted_before_work():
    chunks = [dask.delayed(np.asarray)(part) for part in np.array_split(X, 4)]
    with pytest.raises(ValueError, match=r"\[30, 31\]"):
        se.PrioritizedLasso().fit(chunks, np.append(Y, 0.0))
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[3, 4\]"):
        check_length(3, 4)


def test_the_values_of_a_frame_lie_by_columns_wherever_it_comes_from():
    pd = pytest.importorskip("pandas")
    frames = [
        pd.DataFrame(np.ascontiguousarray(X), copy=False),
        pd.DataFrame(np.asfortranarray(X)),
        pd.DataFrame(dict(enumerate(X.T))),
    ]
    for frame in frames:
        assert read_chunk(frame).flags.f_contiguous
        np.testing.assert_array_equal(read_chunk(frame), X)


def lasso(X=X, y=Y, **given):
    return se.PrioritizedLasso(0.01).fit(X, y, **given)


def logistic(X=X, y=Y > 0, **given):
    return se.SparseLogisticRegression().fit(X, y, **given)


def lasso_cv(X=X, y=Y, alphas=2, cv=2, **given):
    return se.PrioritizedLassoCV(alphas=alphas, cv=cv).fit(X, y, **given)


def logistic_cv(X=X, y=Y > 0, Cs=2, **given):
    return se.SparseLogisticRegressionCV(Cs=Cs, cv=2).fit(X, y, **given)


def lasso_path(X=X, y=Y, alphas=2, **given):
    return se.prioritized_lasso_path(X, y, alphas=alphas, **given)


def logistic_path(X=X, y=Y > 0, **given):
    return se.sparse_logistic_path(X, y, Cs=2, **given)


def minimised(X=X, y=Y, penalty=1.0, **given):
    return se.SparseGLM(Squared(), L1(penalty)).fit(X, y, **given)


def lasso_score(X=X, y=Y, **given):
    return lasso().score(X, y, **given)


def logistic_score(X=X, y=Y > 0, **given):
    return logistic().score(X, y, **given)


#: Whatever takes samples.
USES = [
    lasso,
    logistic,
    lasso_cv,
    logistic_cv,
    lasso_path,
    logistic_path,
    minimised,
    lasso_score,
    logistic_score,
]


def with_mask(values):
    """Return values of which the second is masked."""
    return np.ma.masked_array(values, (np.arange(np.size(values)) == 1).reshape(np.shape(values)))


@pytest.mark.covering
@pytest.mark.parametrize("name", ["X", "y", "sample_weight"])
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_masks_are_refused_unless_they_are_empty(use, name):
    values = {
        "X": X,
        "y": Y > 0 if "logistic" in use.__name__ else Y,
        "sample_weight": np.ones(30),
    }[name]
    on_dask = da.from_array(values, chunks=(7, *values.shape[1:]))
    meta = np.empty((0,) * values.ndim, values.dtype)
    forms = [with_mask(values), list(with_mask(values)), on_dask.map_blocks(with_mask, meta=meta)]
    if name != "X" or "score" not in use.__name__:  # what is predicted of a list is another one
        forms.append(
            [dask.delayed(part) for part in (with_mask(values)[:10], with_mask(values)[10:])]
        )
    for masked in forms:
        with pytest.raises(
            ValueError,
            match=rf"^(in partition 0 .*: )?{name} has masked entries, the first of them in row",
        ):
            use(**{name: masked})
    use(**{name: np.ma.masked_array(values)})


@pytest.mark.parametrize(
    ("use", "name", "values"),
    [
        (
            lambda given: se.PrioritizedLasso(penalty_factors=given).fit(X, Y),
            "penalty_factors",
            np.ones(5),
        ),
        (lambda given: minimised(penalty=given), "penalty", np.ones(5)),
        (lambda given: lasso_cv(alphas=given), "alphas", np.array([0.1, 0.2])),
        (lambda given: lasso_path(alphas=given), "alphas", np.array([0.1, 0.2])),
        (lambda given: logistic_cv(Cs=given), "Cs", np.array([0.1, 0.2])),
        (lambda given: lasso_cv(cv=GroupKFold(2), groups=given), "groups", np.arange(30) % 3),
        (lambda given: lasso_cv(cv=[(given, np.arange(20, 30))]), "cv", np.arange(20)),
        (lambda given: lasso().predict(given), "X", X),
        (lambda given: lasso().predict(da.from_array(given, chunks=(7, 5))).compute(), "X", X),
        (lambda given: logistic().predict_proba(given), "X", X),
    ],
    ids=[
        "factors",
        "penalty",
        "alphas of CV",
        "alphas of a path",
        "Cs",
        "groups",
        "cv",
        "X",
        "X on Dask",
        "proba",
    ],
)
def test_masks_of_other_arrays_are_refused_unless_they_are_empty(use, name, values):
    with pytest.raises(
        ValueError,
        match=rf"^(in partition 0 .*: )?{name} has masked entries, the first of them in row",
    ):
        use(with_mask(values))
    use(np.ma.masked_array(values))


DATES = np.datetime64("2020-01-01") + (np.arange(30) % 2).astype("m8[D]")


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_dates_are_neither_responses_nor_classes(use):
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    series = pd.Series(DATES)
    others = pl.Series(DATES), da.from_array(DATES, chunks=7)
    mixed = ["day", *DATES[1:].tolist()]
    for y in (DATES - DATES[0], DATES.astype(object), series.dt.tz_localize("UTC"), *others, mixed):
        with pytest.raises(
            ValueError,
            match=r"^y holds dates or times.*\(y - y.min\(\)\).*; of labels give the tex",
        ):
            use(y=y)


@pytest.mark.parametrize(
    "use", [*USES, lambda X: lasso().predict(X), lambda X: logistic().decision_function(X)]
)
def test_dates_are_no_columns(use):
    columns = np.tile(DATES[:, None], 5)
    for dates in (columns, columns - DATES[0], da.from_array(columns, chunks=(7, 5))):
        with pytest.raises(
            ValueError, match=r"^(in partition 0 .*: )?X holds dates or times.*choose a unit"
        ):
            dask.compute(use(X=dates))


def test_scores_and_fits_name_a_y_of_texts():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 4)), rng.normal(size=30)
    model = se.PrioritizedLasso(0.1).fit(X, y)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        model.score(X, np.where(y > 0, np.nan, y))
    with pytest.raises(ValueError, match="y has an entry that is no number"):
        model.score(X, ["a"] * 30)
    for name in (["a"] * 30, da.from_array(np.array(["a"] * 30))):
        with pytest.raises(
            ValueError, match=r"y has an entry that is no number: 'a'; give numbers.*classes"
        ):
            model.fit(X if isinstance(name, list) else da.from_array(X), name)


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA])
@pytest.mark.parametrize("fit", [lasso, logistic])
def test_missing_labels_are_named(fit, gap):
    rows, labels = np.arange(10.0).reshape(5, 2), np.array(["a", gap, "b", gap, "a"], object)
    for X in (rows, da.from_array(rows, chunks=(3, 2))):
        with pytest.raises(ValueError, match=r"^y is missing in 2 of 5 rows, the first .* row 1; "):
            fit(X, labels)
