"""Regression programs on Dask: the bits are those of the same partitions in this process."""

import time

import numpy as np
import pytest
import scipy.sparse as sp

from schmp_estimators.engines.dynamic import run_rounds
from schmp_estimators.programs.regression_input import split_rows
from schmp_estimators.programs.regression_lasso import ResolveLasso
from schmp_estimators.programs.regression_logistic import LogisticModel, ResolveLogistic
from schmp_estimators.programs.regression_model import Model
from schmp_estimators.programs.regression_scheduled import SquaredLoss, scheduled_program
from schmp_estimators.runtime.dask_rounds import DaskRounds
from schmp_estimators.runtime.rounds import LocalRounds

PROGRAMS = {
    "Gram": (lambda: ResolveLasso(sparse=False), False),
    "residual": (lambda: ResolveLasso(sparse=True), False),
    "priority": (lambda: scheduled_program(SquaredLoss(), "priority", 4, 0.3, 0, 2), False),
    "logistic Gram": (lambda: ResolveLogistic(sparse=False), True),
    "logistic residual": (lambda: ResolveLogistic(sparse=True), True),
}


def solve(program, logistic, runtime, depth):
    kind = LogisticModel if logistic else Model
    penalty = 1.0 if logistic else 0.01
    model = kind(penalty=penalty, tolerance=1e-7, max_iter=500, n_partitions=3, n_rows=150)
    program.init(model)
    with runtime:
        run_rounds(program, model, runtime, depth)
    return model


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("form", [np.ascontiguousarray, np.asfortranarray, sp.csc_array])
def test_same_bits_and_nothing_left_behind(client, name, form):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 60)) * (rng.random((150, 60)) < 0.5)
    make, logistic = PROGRAMS[name]
    y = X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=150)
    parts = split_rows(form(X), np.sign(y) if logistic else y, np.empty(0), 3)
    depth = 2 if name == "priority" else 1
    local = solve(make(), logistic, LocalRounds(parts), depth)
    futures = client.scatter(parts, hash=False)
    on_dask = solve(make(), logistic, DaskRounds(client, futures), depth)
    assert local.gap <= local.tolerance
    np.testing.assert_array_equal(local.coef, on_dask.coef)
    assert local.level == on_dask.level
    del futures
    deadline = time.monotonic() + 10
    while client.futures and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not client.futures


def test_few_rounds(client):
    rng = np.random.default_rng(0)
    X, coef = rng.normal(size=(400, 1000)), np.zeros(1000)
    coef[:50] = rng.normal(size=50)
    parts = split_rows(np.asfortranarray(X), X @ coef + rng.normal(size=400), np.empty(0), 4)
    model = Model(penalty=0.02, tolerance=5e-7, max_iter=100, n_partitions=4, n_rows=400)
    program = ResolveLasso()
    program.init(model)
    runtime = DaskRounds(client, client.scatter(parts, hash=False))
    with runtime:
        run_rounds(program, model, runtime)
    assert model.gap <= model.tolerance
    assert model.n_iter <= 12
    assert runtime._round <= 45
