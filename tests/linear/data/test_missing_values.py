"""Missing values and standardised columns are those of scikit-learn's pipelines."""

import pickle
import warnings
from fractions import Fraction

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_selection import SelectFromModel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

import schmp_estimators as se
from schmp_estimators.exceptions import CheckpointMismatchError
from schmp_estimators.genotypes import pack
from schmp_estimators.linear.programs.columns import Fill
from schmp_estimators.linear.programs.input import restore_partition, save_partition, split_rows

RNG = np.random.default_rng(0)
N, P = 210, 24
WHOLE = RNG.normal(size=(N, P)) * np.geomspace(0.1, 10.0, P) + 3.0 * RNG.normal(size=P)
Y = (WHOLE[:, :3] / WHOLE[:, :3].std(axis=0)).sum(axis=1) + RNG.normal(size=N)
Y -= Y.mean()
X = np.where(RNG.random((N, P)) < 0.1, np.nan, WHOLE)
WEIGHTS = RNG.integers(0, 4, N) * 1.0
NAMES = [f"x{j}" for j in range(P)]
CODED = np.where(np.isnan(X), -9.9, X)
FOLDS = list(KFold(3).split(X))


def filled(values, train=slice(None), weights=None):
    """Return values with means over some rows."""
    known = np.ma.masked_invalid(values[train])
    return np.where(np.isnan(values), np.ma.average(known, axis=0, weights=weights), values)


def spread(values, weights=None):
    """Return weighted standard deviations."""
    return np.sqrt(np.cov(values.T, aweights=weights, ddof=0).diagonal())


def lasso(**parameters):
    defaults = {"alpha": 0.1, "tol": 1e-11, "missing_values": np.nan, "standardize": True}
    return se.PrioritizedLasso(**defaults | parameters)


FORMS = {
    "by rows": lambda: X,
    "by columns": lambda: np.asfortranarray(X),
    "list": X.tolist,
    "frame": lambda: pd.DataFrame(X, columns=NAMES),
    "nullable": lambda: pd.DataFrame(X, columns=NAMES).convert_dtypes(),
    "masked": lambda: np.ma.masked_invalid(X),
    "csr": lambda: sparse.csr_array(X),
    "csc": lambda: sparse.csc_matrix(X),
    "Dask": lambda: da.from_array(X, chunks=(50, 20)),
    "sparse chunks": lambda: [dask.delayed(sparse.csr_array(part)) for part in np.split(X, 3)],
}


@pytest.mark.covering
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
def test_lasso_is_that_of_a_pipeline(solved, form, weights):
    there = filled(X, weights=weights)
    units = spread(there, weights)
    theirs = Lasso(0.1, tol=1e-12).fit(there / units, Y, weights)
    given = FORMS[form]()
    ours = lasso().fit(given, Y, weights)
    np.testing.assert_allclose(ours.coef_ * units, theirs.coef_, atol=1e-6)
    means = np.ma.average(np.ma.masked_invalid(X), axis=0, weights=weights)
    np.testing.assert_allclose(ours.fill_values_, means)
    found = ours.predict(given)
    found = np.concatenate(dask.compute(*found)) if isinstance(found, list) else np.asarray(found)
    np.testing.assert_allclose(found, theirs.predict(there / units), atol=1e-5)
    assert hasattr(ours, "feature_names_in_") == (form in {"frame", "nullable"})


@pytest.mark.parametrize(
    "options", [{}, {"fit_intercept": False}, {"l1_ratio": 0.4}, {"n_shards": 3}]
)
@pytest.mark.parametrize("form", ["by rows", "by columns", "csc"])
def test_options_are_those_of_scikit_learn(solved, form, options):
    theirs = {name: value for name, value in options.items() if name != "n_shards"}
    scaler = StandardScaler(with_mean=options.get("fit_intercept", True))
    there = make_pipeline(
        SimpleImputer(),
        scaler,
        ElasticNet(0.1, **{"l1_ratio": 1.0} | theirs, tol=1e-12, max_iter=100_000),
    )
    there.fit(X, Y)
    ours = lasso(**options).fit(FORMS[form](), Y)
    np.testing.assert_allclose(ours.coef_ * scaler.scale_, there[-1].coef_, atol=1e-6)
    np.testing.assert_allclose(ours.predict(X), there.predict(X), atol=1e-5)


def test_classifiers_are_those_of_a_pipeline(solved):
    for labels in Y > 0.0, np.digitize(Y, [-1.0, 1.0]):
        many = len(set(labels)) > 2
        theirs = LogisticRegression(C=0.1, l1_ratio=1.0, solver="saga", tol=1e-10, max_iter=20_000)
        there = make_pipeline(SimpleImputer(), StandardScaler(), theirs).fit(X, labels)
        ours = (
            se.SparseGLM("multinomial", alpha=10.0 / N, tol=1e-10)
            if many
            else se.SparseLogisticRegression(0.1, tol=1e-10)
        ).set_params(missing_values=np.nan, standardize=True)
        np.testing.assert_allclose(
            ours.fit(X, labels).coef_ * there[1].scale_, theirs.coef_, atol=1e-5
        )
        np.testing.assert_allclose(ours.predict_proba(X), there.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        se.SparseGLM(penalty="mcp", alpha=0.1, tol=1e-12),
        se.SparseGLM("multinomial", "group", alpha=0.02, tol=1e-10),
        se.SparseGLM("huber", "elasticnet", alpha=0.1, tol=1e-10),
        se.PrioritizedLasso(0.1, tol=1e-12, schedule="round_robin"),
        se.PrioritizedLasso(0.1, tol=1e-10, penalty_factors=np.arange(P) % 4),
    ],
    ids=["MCP", "classes", "Huber", "scheduled", "factors"],
)
def test_any_penalty_is_that_of_standardised_columns(model):
    y = np.digitize(Y, [-1.0, 1.0]) if model.get_params().get("loss") == "multinomial" else Y
    units = spread(WHOLE)
    there = clone(model).fit(WHOLE / units, y)
    here = clone(model).set_params(standardize=True).fit(WHOLE, y)
    assert there.coef_.any()
    np.testing.assert_allclose(here.coef_ * units, there.coef_, atol=1e-5)


def test_paths_are_those_of_standardised_columns(solved):
    there = filled(X)
    units = spread(there)
    for path, y in (
        (se.prioritized_lasso_path, Y),
        (se.sparse_logistic_path, Y > 0),
        (se.sparse_glm_path, Y),
    ):
        options = {"tol": 1e-10, "eps": 0.1, ("Cs" if "logistic" in path.__name__ else "alphas"): 4}
        penalties, coefs, *_ = path(X, y, missing_values=np.nan, standardize=True, **options)
        expected = path(there / units, y, **options)
        np.testing.assert_allclose(penalties, expected[0])
        np.testing.assert_allclose(coefs * units[:, None], expected[1], atol=1e-5)


def test_folds_learn_from_what_they_fit(solved):
    ours = se.PrioritizedLassoCV(
        alphas=4, cv=FOLDS, tol=1e-10, missing_values=np.nan, standardize=True
    ).fit(X, Y, WEIGHTS)
    for fold, (train, test) in enumerate(FOLDS):
        there = filled(X, train, WEIGHTS[train])
        there = there / spread(there[train], WEIGHTS[train])
        for alpha, found in zip(ours.alphas_, ours.mse_path_[:, fold], strict=True):
            model = Lasso(alpha, tol=1e-10).fit(there[train], Y[train], WEIGHTS[train])
            errors = (model.predict(there[test]) - Y[test]) ** 2
            assert found == pytest.approx(np.average(errors, weights=WEIGHTS[test]), rel=1e-5)
    again = lasso(alpha=ours.alpha_).fit(X, Y, WEIGHTS)
    np.testing.assert_allclose(ours.coef_, again.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.predict(X), again.predict(X), atol=1e-5)


def test_scorers_see_missing_values():
    options = {"Cs": 3, "cv": FOLDS, "tol": 1e-6, "missing_values": np.nan, "standardize": True}
    found = [
        se.SparseLogisticRegressionCV(scoring=scoring, **options).fit(X, Y > 0).scores_
        for scoring in ("accuracy", lambda model, X, y: np.mean(model.predict(X) == y))
    ]
    np.testing.assert_array_equal(*found)


def test_columns_that_do_not_vary_in_a_fold_keep_their_units():
    """As in `StandardScaler`; without an intercept they may have a coefficient."""
    rare = np.where((np.arange(N) < 140)[:, None] & (np.arange(P) > 20), 2.0, WHOLE)
    options = {"alphas": [0.3, 0.1], "cv": FOLDS, "fit_intercept": False, "tol": 1e-10}
    model = se.PrioritizedLassoCV(standardize=True, **options).fit(rare, Y + 1.0)
    for fold, (train, test) in enumerate(FOLDS):
        for alpha, found in zip(model.alphas_, model.mse_path_[:, fold], strict=True):
            lasso = Lasso(alpha, fit_intercept=False, tol=1e-10, max_iter=100_000)
            there = make_pipeline(StandardScaler(with_mean=False), lasso)
            there.fit(rare[train], Y[train] + 1.0)
            errors = (there.predict(rare[test]) - Y[test] - 1.0) ** 2
            assert found == pytest.approx(np.mean(errors), rel=1e-5)


@pytest.mark.parametrize("kind", [np.float32, np.float64, sparse.csr_array])
def test_a_number_may_stand_for_missing_values(kind):
    there = lasso(missing_values=np.nan).fit(X, Y)
    given = kind(CODED) if kind is sparse.csr_array else CODED.astype(kind)
    here = lasso(missing_values=-9.9, tol=1e-7 if kind is np.float32 else 1e-11).fit(given, Y)
    np.testing.assert_allclose(here.coef_, there.coef_, rtol=1e-3, atol=1e-5)
    assert here.coef_.dtype == (np.float32 if kind is np.float32 else np.float64)
    np.testing.assert_allclose(here.predict(given), there.predict(X), atol=1e-3)


DOSES = RNG.integers(-1, 3, (N, P)).astype(np.int8)


def test_int8_genotypes_are_those_that_are_packed(solved, tmp_path):
    np.save(tmp_path / "doses.npy", DOSES)
    mapped = np.load(tmp_path / "doses.npy", mmap_mode="r")
    packed = lasso(missing_values=None).fit(pack(DOSES), Y)
    for given in DOSES, np.asfortranarray(DOSES), mapped, da.from_array(DOSES, chunks=(50, -1)):
        found = lasso(missing_values=-1).fit(given, Y)
        np.testing.assert_allclose(found.coef_, packed.coef_, atol=1e-7)
        np.testing.assert_allclose(found.predict(given), packed.predict(pack(DOSES)), atol=1e-6)
    np.testing.assert_allclose(found.predict(pack(DOSES)), packed.predict(pack(DOSES)), atol=1e-6)


@pytest.mark.parametrize("make", [np.asarray, lambda X: da.from_array(X, chunks=(50, -1))])
def test_int8_values_that_look_like_genotypes_warn_once(make):
    for model in se.PrioritizedLasso(), se.PrioritizedLassoCV(alphas=2, cv=2):
        with pytest.warns(UserWarning, match=r"from -1 to 2.*give missing_values=-1\.$") as seen:
            model.fit(make(DOSES), Y)
        assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (
            np.maximum(DOSES, 0),
            np.minimum(DOSES, 1),
            np.where(DOSES == 2, 3, DOSES).astype(np.int8),
            np.where(DOSES == 2, -2, DOSES).astype(np.int8),
            DOSES.astype(np.int16),
        ):
            se.PrioritizedLasso().fit(make(given), Y)
        se.PrioritizedLasso(missing_values=np.nan).fit(make(DOSES), Y)


def holed(*columns, value=np.nan, rows=slice(None)):
    """Return X with one value in some columns."""
    found = X.copy()
    found[rows, list(columns)] = value
    return found


FAR = np.where(np.arange(P) == 6, 1e9 + 0.1, WHOLE)
ROUNDED = np.where(np.arange(P) == 6, 1.0 + np.finfo(float).eps * (np.arange(N) == 9)[:, None], X)
CONSTANT = np.where(np.isnan(X), X, 0.1)
BAD = {
    "nothing known": (
        lambda: lasso().fit(holed(3, 7), Y),
        r"columns 3, 7 of X have no value that is not missing \(missing_values=nan\); leave them",
    ),
    "names": (
        lambda: lasso().fit(pd.DataFrame(holed(3), columns=NAMES), Y),
        "columns 'x3' of X have no value",
    ),
    "weight zero": (
        lambda: lasso().fit(np.where((WEIGHTS > 0.0)[:, None], holed(5), X), Y, WEIGHTS),
        "columns 5 of X have no value",
    ),
    "on Dask": (
        lambda: lasso().fit(da.from_array(holed(*range(8)), chunks=(99, -1)), Y),
        "columns 0, 1, 2, 3, 4 and 3 more of X have no value",
    ),
    "sparse": (
        lambda: lasso().fit(sparse.csc_array(holed(4)), Y),
        "columns 4 of X have no value",
    ),
    "constant": (
        lambda: lasso().fit(np.where(np.arange(P) == 6, CONSTANT, X), Y),
        r"columns 6 of X are constant in its 210 samples \(standardize=True\); leave them out",
    ),
    "rounding": (lambda: lasso().fit(ROUNDED, Y), "columns 6 of X are constant"),
    "constant, cross-validated": (
        lambda: se.PrioritizedLassoCV(standardize=True).fit(FAR, Y),
        "columns 6 of X are constant",
    ),
    "implicit zeros": (
        lambda: lasso(missing_values=0).fit(sparse.csc_array(WHOLE), Y),
        "missing_values=0 would make all zeros of a sparse X missing; give another number, NaN or",
    ),
    "infinite": (lambda: lasso(missing_values=np.inf).fit(X, Y), r"missing_values.*\(-inf, inf\)"),
    "huge": (lambda: lasso(missing_values=10**400).fit(X, Y), r"missing_values.*\(-inf, inf\)"),
    "NaN, too": (lambda: lasso(missing_values=-9.9).fit(X, Y), "Input X contains NaN"),
    "NaN, too, in sparse": (
        lambda: lasso(missing_values=-9.9).fit(sparse.csc_array(X), Y),
        "Input X contains NaN",
    ),
    "NaN in chunks": (
        lambda: lasso(missing_values=-9.9).fit(da.from_array(X, chunks=(50, -1)), Y),
        "Input X contains NaN",
    ),
    "infinity": (
        lambda: lasso().fit(holed(2, value=np.inf, rows=9), Y),
        "Input X contains infinity.*1 in column 2",
    ),
    "infinity, weighted": (
        lambda: lasso().fit(holed(2, value=np.inf, rows=9), Y, WEIGHTS),
        "Input X contains infinity.*1 in column 2",
    ),
    "infinity in predict": (
        lambda: lasso().fit(X, Y).predict(holed(2, value=np.inf, rows=9)),
        "Input X contains infinity.*1 in column 2",
    ),
    "text": (lambda: lasso(missing_values="?").fit(X, Y), "'missing_values' parameter of"),
    "no flag": (lambda: lasso(standardize=3).fit(X, Y), "'standardize' parameter of"),
    "groups": (
        lambda: se.SparseGLM(penalty="group", groups=np.arange(P) // 2, standardize=True).fit(X, Y),
        "standardize=True cannot be combined with groups.*put a StandardScaler before",
    ),
    "an object": (
        lambda: se.SparseGLM(penalty=se.penalised.L1(1.0), standardize=True).fit(X, Y),
        "standardize=True cannot be combined with .* a penalty given as an object",
    ),
    "not by default": (lambda: se.PrioritizedLasso().fit(X, Y), "Input X contains NaN"),
    "set after the fit": (
        lambda: (
            se.PrioritizedLasso(0.01).fit(WHOLE, Y).set_params(missing_values=np.nan).predict(X)
        ),
        "Input X contains NaN",
    ),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_cannot_be_is_named(kind):
    act, said = BAD[kind]
    with pytest.raises(ValueError, match=said):
        act()


def test_a_storage_knows_itself_what_is_missing():
    class Plain(type(pack(DOSES))):
        may_miss = False

    plain = Plain(
        *(
            getattr(pack(np.maximum(DOSES, 0)), name)
            for name in ("sources", "people", "chosen", "first_allele")
        )
    )
    lasso(missing_values=None).fit(plain, Y)
    with pytest.raises(ValueError, match=r"missing_values=-1 is for arrays.*X=Plain has to know"):
        lasso(missing_values=-1).fit(plain, Y)
    lasso(missing_values=-1).fit(pack(DOSES), Y)


@pytest.mark.parametrize("offset", [1e6, 1e9])
@pytest.mark.parametrize(
    "make", [np.asarray, sparse.csc_array, lambda X: X.astype(np.float64, "F")]
)
def test_columns_far_from_zero_keep_their_spread(make, offset):
    near, far = lasso().fit(filled(X), Y), lasso().fit(make(X + offset), Y)
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-4, atol=1e-5)


def test_units_do_not_matter():
    """A standardised fit has the same predictions whatever the units of columns are."""
    units = np.geomspace(1e-6, 1e6, P)
    found = lasso().fit(X, Y).predict(X), lasso().fit(X * units, Y).predict(X * units)
    np.testing.assert_allclose(*found, atol=1e-6)


def test_weights_of_classes_are_those_of_samples():
    labels = Y > 0.5
    options = {"C": 0.1, "tol": 1e-10, "missing_values": np.nan, "standardize": True}
    one = se.SparseLogisticRegression(class_weight={False: 1.0, True: 3.0}, **options)
    other = se.SparseLogisticRegression(**options)
    one.fit(X, labels)
    other.fit(X, labels, np.where(labels, 3.0, 1.0))
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-7)
    np.testing.assert_allclose(one.fill_values_, other.fill_values_)


def test_parameters_are_like_others(tmp_path):
    model = lasso()
    assert get_tags(model).input_tags.allow_nan
    assert not get_tags(model.set_params(missing_values=-1.0)).input_tags.allow_nan
    model = clone(lasso().fit(X, Y))
    grid = GridSearchCV(model, {"standardize": [False, True]}, cv=FOLDS).fit(X, Y)
    assert grid.best_params_ == {"standardize": True}
    again = pickle.loads(pickle.dumps(grid.best_estimator_))
    np.testing.assert_array_equal(again.predict(X), grid.predict(X))
    assert SelectFromModel(model).fit(X, Y).transform(X).shape[1] < P
    warm = lasso(warm_start=True, alpha=0.5).fit(X, Y).set_params(alpha=0.1).fit(X, Y)
    np.testing.assert_allclose(warm.coef_, lasso().fit(X, Y).coef_, atol=1e-6)
    assert not hasattr(model.set_params(missing_values=None).fit(WHOLE, Y), "fill_values_")


def test_checkpoints_belong_to_these_parameters(tmp_path):
    options = {"checkpoint": tmp_path / "state", "n_shards": 2, "checkpoint_every": 1}
    whole = lasso(**options).fit(X, Y)
    (tmp_path / "state").unlink()
    with pytest.warns(UserWarning, match="max_iter=1"):
        lasso(max_iter=1, tol=0.0, **options).fit(X, Y)
    with pytest.warns(UserWarning, match="rounding|max_iter|ended"):
        resumed = lasso(tol=0.0, **options).fit(X, Y)
    np.testing.assert_allclose(resumed.coef_, whole.coef_, atol=1e-6)
    for other in {"standardize": False}, {"missing_values": -3.0}:
        with pytest.raises(CheckpointMismatchError, match=f"{next(iter(other))[1:]}: "):
            lasso(tol=0.0, **options | other).fit(X if "standardize" in other else WHOLE, Y)


def test_partitions_are_restored_with_what_stands_for_missing_values():
    [first] = split_rows(X, Y, np.empty(0), 1, missing=np.nan)
    rows, _ = Fill(np.arange(P) * 1.0)(first)
    again = restore_partition(first, save_partition(rows))
    np.testing.assert_array_equal(again.matrix.to_array(), np.where(np.isnan(X), np.arange(P), X))


def test_a_marker_is_found_in_sparse_float32():
    """-99.9 is another number there."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)).astype(np.float32)
    X[rng.random(X.shape) < 0.2] = -99.9
    y = rng.normal(size=60)
    models = [
        se.PrioritizedLasso(0.01, missing_values=-99.9).fit(form, y)
        for form in (X, sparse.csc_array(X))
    ]
    np.testing.assert_allclose(models[0].fill_values_, models[1].fill_values_, rtol=1e-6)


@pytest.mark.parametrize("marker", [Fraction(-99, 10), 10**30, 1e39])
@pytest.mark.parametrize("made", [np.asarray, sparse.csc_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_real_number_may_mark_missing_values(marker, made, dtype):
    """Also one that float32 cannot hold, which then stands for no value."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)).astype(dtype), rng.normal(size=60)
    if marker < 1e39:
        X[rng.random(X.shape) < 0.2] = float(marker)
    found = se.PrioritizedLasso(0.01, missing_values=marker).fit(made(X), y).fill_values_
    expected = np.ma.masked_equal(X, dtype(float(min(marker, 1e30)))).mean(axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_rare_columns_are_no_error_in_halves():
    X = np.random.default_rng(0).normal(size=(100, 6))
    X[:, 5] = np.arange(100) == 3
    found = se.stability_selection(
        se.PrioritizedLasso(0.1, standardize=True), X, X[:, 0], n_halves=5, random_state=0
    )
    assert found.selected[0]
