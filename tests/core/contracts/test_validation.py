"""Errors about entries that are no finite numbers name the column, and how many there are."""

import datetime
from fractions import Fraction

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from schmp_estimators import DistributedLDA, ModelParallelMF, PrioritizedLasso

GOOD = pd.DataFrame(np.random.default_rng(0).poisson(2.0, (12, 3)) + 1.0, columns=["a", "b", "c"])
Y = GOOD["a"] - GOOD["b"]


def spoilt(value):
    found = GOOD.copy()
    found.loc[3:5, "b"] = value
    return found


KINDS = {
    "frame": lambda found: found,
    "array": pd.DataFrame.to_numpy,
    "csr": lambda found: sparse.csr_array(found.to_numpy()),
    "csc": lambda found: sparse.csc_array(found.to_numpy()),
    "list": lambda found: found.to_numpy().tolist(),
    "nullable": lambda found: found.astype("Float64"),
    "Dask": lambda found: da.from_array(found.to_numpy(), (5, 3)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_with_its_column(kind, value):
    column = "'b'" if kind in ("frame", "nullable") else "1"
    count = r"\d" if kind == "Dask" else 3  # there a partition is looked at
    said = "NaN" if np.isnan(value) else "infinity or a value too large"
    for fit in (
        PrioritizedLasso(0.1).fit,
        lambda X, y: (
            PrioritizedLasso(0.1).fit(KINDS[kind](GOOD), y).predict(X).sum().compute()
            if kind == "Dask"
            else PrioritizedLasso(0.1).fit(KINDS[kind](GOOD), y).predict(X)
        ),
    ):
        with pytest.raises(
            ValueError, match=rf"X contains {said}.*: {count} in column {column}; replace"
        ) as caught:
            fit(KINDS[kind](spoilt(value)), Y)
        assert "HistGradientBoosting" not in str(caught.value)


def test_responses_that_are_not_finite_are_counted():
    with pytest.raises(ValueError, match="y contains NaN: 2 of 12, the first in row 4; leave"):
        PrioritizedLasso(0.1).fit(GOOD, Y.where(~np.isin(np.arange(12), [4, 7])))


@pytest.mark.parametrize("model", [DistributedLDA(2), PrioritizedLasso(0.1)])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("S0", r"no number: could not convert string to float: 'S0' \(column 'd'\)"),
        (pd.Timestamp("2020-01-01"), r"X\['d'\] holds dates or times \(Timestamp\).*choose a unit"),
        (datetime.date(2020, 1, 1), r"X\['d'\] holds dates or times \(date\).*choose a unit"),
    ],
)
def test_a_column_that_holds_no_numbers_is_named(model, value, said):
    with pytest.raises((TypeError, ValueError), match=said):
        model.fit(GOOD.assign(d=value), Y if isinstance(model, PrioritizedLasso) else None)


def entry(value):
    rows = GOOD.to_numpy().tolist()
    rows[3][1] = value
    return rows


TEXTS = [["u", "v"][number % 2] for number in range(12)]
NO_NUMBERS = {
    "categories": (GOOD.assign(b=pd.Categorical(TEXTS)), r"no number.*'u' \(column 'b'\)"),
    "texts": (pl.DataFrame({"a": GOOD["a"], "b": TEXTS}), r"no number.*'u' \(column 'b'\)"),
    "lists": (pl.DataFrame({"a": [[1.0]] * 12}), r"no number.*\(column 'a'\)"),
    "a dict": (entry({"a": 1}), r"no number.*'dict' \(column 1\)"),
    "a large integer": (entry(10**400), r"no number.*too large.*\(column 1\)"),
    "a large fraction": (entry(Fraction(10**400)), r"no number.*too large.*\(column 1\)"),
    "no columns": (pd.DataFrame(index=range(12)), "0 feature"),
    "complex": (GOOD.to_numpy() + 1j, r"X holds complex numbers. Pass X.real"),
    "sparse complex": (sparse.csr_array(GOOD.to_numpy() + 1j), "X holds complex numbers"),
    "one name twice": (GOOD.set_axis(["a", "b", "a"], axis=1), "X has several columns.*'a'"),
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
@pytest.mark.parametrize(
    "model",
    [DistributedLDA(2), PrioritizedLasso(0.1), ModelParallelMF(2)],
    ids=["lda", "linear", "mf"],
)
def test_what_holds_no_numbers_is_refused_by_a_value_error_that_names_it(model, kind):
    X, said = NO_NUMBERS[kind]
    if isinstance(model, ModelParallelMF) and kind in ("categories", "texts"):
        said = "the column 'b' of X holds 'u', which is no rating"
    with pytest.raises(ValueError, match=said):
        model.fit(X, Y if isinstance(model, PrioritizedLasso) else None)
