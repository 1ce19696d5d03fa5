"""Parameters: what is refused, and that penalties have parameters like all others."""

from functools import partial

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.utils._param_validation import validate_parameter_constraints

import schmp_estimators as se

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6))
Y = X[:, 0] + 0.3 * RNG.normal(size=40)
KINDS = {"Lasso": (se.PrioritizedLasso, Y), "logistic": (se.SparseLogisticRegression, Y > 0)}


@pytest.fixture(params=KINDS)
def kind(request):
    """An estimator of the kind on its data: a function that makes and fits it."""
    make, y = KINDS[request.param]
    return lambda X=X, **parameters: make(**parameters).fit(X, y)


def test_factors_by_name_of_column(kind):
    """As they are by position; columns that are not named have factor 1."""
    names = list("abcdef")
    frame, by_position = (
        pd.DataFrame(X, columns=names),
        kind(penalty_factors=[0.0, 1, 3, 1, 1, 0.5]),
    )
    named = {"f": 0.5, "a": 0, "c": 3}
    frames = (frame, pl.from_pandas(frame), dd.from_pandas(frame, npartitions=1))
    for given in (named, pd.Series(named)):
        for one in frames:
            found = kind(one, penalty_factors=given)
            np.testing.assert_allclose(found.coef_, by_position.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(
        kind(penalty_factors=pd.Series([0.0, 1, 3, 1, 1, 0.5])).coef_, by_position.coef_
    )
    with pytest.raises(
        ValueError, match=r"penalty_factors names columns that X does not have: 'z', 'A'$"
    ):
        kind(frame, penalty_factors={"z": 1.0, "a": 2.0, "A": 1.0})
    with pytest.raises(ValueError, match="penalty_factors names a column more than once"):
        kind(frame, penalty_factors=pd.Series([1.0, 2.0], index=["a", "a"]))
    with pytest.raises(
        ValueError, match="penalty_factors names columns, but X has no names; give a data frame"
    ):
        kind(penalty_factors={"a": 1.0})


NAMES = [
    "PrioritizedLasso",
    "PrioritizedLassoCV",
    "SparseLogisticRegression",
    "SparseLogisticRegressionCV",
]
TAKERS = {
    **{name: lambda name=name, **given: getattr(se, name)(**given).fit(X, Y > 0) for name in NAMES},
    "prioritized_lasso_path": partial(se.prioritized_lasso_path, X, Y > 0),
    "sparse_logistic_path": partial(se.sparse_logistic_path, X, Y > 0),
    "stability_selection": partial(se.stability_selection, se.PrioritizedLasso(), X, Y),
}
REFUSED = {
    "PrioritizedLasso": {"alpha": [0.0, -1], "schedule": ["fast"], "tol": [-1]},
    "PrioritizedLassoCV": {
        "tol": [-1.0],
        "max_iter": [0],
        "verbose": ["much"],
        "n_jobs": [1.5],
        "cv": ["five"],
    },
    "SparseLogisticRegression": {"C": [0.0, 5e-324, 1e-301, 1e301, np.inf]},
    "SparseLogisticRegressionCV": {"scoring": ["beauty"], "max_iter": [0], "cv": ["five"]},
    "prioritized_lasso_path": {
        **{
            "eps": [0.0, 2.0],
            "alphas": [0],
            "tol": [-1.0],
            "max_iter": [0],
            "positive": [3],
            "fit_intercept": ["n"],
        },
    },
    "sparse_logistic_path": {
        "eps": [2.0],
        "Cs": [0],
        "tol": [-1.0],
        "class_weight": ["heavy"],
        "max_iter": [0],
    },
    "stability_selection": {"threshold": [0.5], "n_halves": [0], "random_state": ["x"]},
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_parameters_are_named(name):
    for parameter, values in REFUSED[name].items():
        for value in values:
            with pytest.raises(ValueError, match=f"'{parameter}' parameter of {name}"):
                TAKERS[name](**{parameter: value})


@pytest.mark.parametrize(
    "wrong", [[], [0.0, 1.0], [1.0, np.nan], [np.inf], ["a"], [[0.1, 1.0]], [None]]
)
@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        *(
            ("PrioritizedLassoCV", "alphas"),
            ("SparseLogisticRegressionCV", "Cs"),
            ("prioritized_lasso_path", "alphas"),
        ),
        *(("sparse_logistic_path", "Cs"), ("stability_selection", "penalties")),
    ],
)
def test_bad_penalties_are_named(name, parameter, wrong):
    with pytest.raises(ValueError, match=rf"{parameter}=.*give numbers from 1e-300 to 1e\+300"):
        TAKERS[name](**{parameter: wrong})


BAD = {
    "too few": (
        [1.0] * 5,
        r"penalty_factors must hold 6 numbers >= 0, one for each column.* got shape \(5,\)",
    ),
    "none": ([], r"0 sample|penalty_factors"),
    "a number": (2.0, "penalty_factors.* must be an array-like, an instance of 'dict' or None"),
    "two dimensions": (
        np.ones((1, 6)),
        r"penalty_factors must hold 6 numbers.* got shape \(1, 6\)",
    ),
    "negative": ([1, 1, -0.5, 1, 1, 1], r"penalty_factors .* >= 0.* with values from -0.5 to 1"),
    "all zero": (np.zeros(6), "penalty_factors .* not all of them zero"),
    "NaN": ([1, 1, np.nan, 1, 1, 1], "penalty_factors contains NaN"),
    "infinite": ([1, 1, np.inf, 1, 1, 1], "penalty_factors contains infinity"),
    "huge": ([1, 1, 10**400, 1, 1, 1], "penalty_factors has an entry that is no number: .*large"),
    "text": (["a"] * 6, "could not convert string to float|penalty_factors"),
    "complex": (np.ones(6) * 1j, "Complex data not supported"),
    "overflow": (
        [1, 1, 1e301, 1, 1, 1],
        r"penalty_factors .* make penalties .* give factors near 1, and 0",
    ),
    "underflow": (
        [1, 1, 1e-310, 1, 1, 1],
        r"penalty_factors .* make penalties .* give factors near 1, and 0",
    ),
    "overflow of all": ([1e305] * 6, r"penalty_factors .* make penalties"),
}


@pytest.mark.parametrize("name", BAD)
def test_factors_that_are_refused(kind, name):
    factors, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        kind(penalty_factors=factors)
    chunks = da.from_array(X, chunks=(20, 6))
    with pytest.raises(ValueError, match=message):
        kind(chunks, penalty_factors=factors)


@pytest.mark.parametrize("ratio", [-0.1, 0.0, 1e-7, 1.1, np.nan, "half", None, [0.5]])
def test_ratios_that_are_refused(kind, ratio):
    with pytest.raises(
        ValueError, match=r"'l1_ratio' parameter .* must be a float in the range \[1e-06, 1.*Got "
    ):
        kind(l1_ratio=ratio)


def test_a_column_is_either_free_or_restricted():
    message = "penalty_factors holds zeros, which cannot be combined with positive=True.*small"
    with pytest.raises(ValueError, match=message):
        se.PrioritizedLasso(penalty_factors=[0, 1, 1, 1, 1, 1], positive=True).fit(X, Y)


@pytest.mark.parametrize(
    "name", [name for name in se.__all__ if hasattr(getattr(se, name), "_defaults")]
)
def test_defaults_are_valid_as_only_other_values_are_checked(name):
    kind = getattr(se, name)
    assert kind()._validate_params() is None
    validate_parameter_constraints(kind._parameter_constraints, kind().get_params(deep=False), name)
    for parameter in ("max_iter", "tol"):
        with pytest.raises(ValueError, match=f"'{parameter}' parameter of {name}"):
            kind().set_params(**{parameter: -1})._validate_params()
