"""Regression programs on Dask: the bits are those of the same partitions in this process."""

import threading
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from schmp_estimators.core.engine import rounds as rounds_module
from schmp_estimators.core.engine.dynamic import run_coroutine
from schmp_estimators.core.engine.rounds import Keeper, Rounds
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.linear.losses.logistic import Logistic
from schmp_estimators.linear.penalties.elastic_net import L1
from schmp_estimators.linear.programs.design import Design
from schmp_estimators.linear.programs.input import restore_partition, save_partition, split_rows
from schmp_estimators.linear.programs.quadratic import ResolveQuadratic
from schmp_estimators.linear.programs.rounds import ScheduledLasso, make_schedule
from schmp_estimators.linear.programs.smooth import ResolveSmooth

KEEPER = Keeper(save_partition, restore_partition)


def scheduled(*given):
    return ScheduledLasso(*given, rounds=make_schedule(60, "priority", 4, 0.3, 0, 2), pipeline_depth=2)


PROGRAMS = {
    "Gram": (ResolveQuadratic, False),
    "residual": (partial(ResolveQuadratic, sparse=True), False),
    "priority": (scheduled, False),
    "logistic Gram": (partial(ResolveSmooth, loss=Logistic()), True),
    "logistic residual": (partial(ResolveSmooth, loss=Logistic(), sparse=True), True),
}
#: With the check that nothing is left there.
ON_A_CLUSTER = pytest.mark.parametrize("place", [pytest.param("cluster", marks=pytest.mark.cluster)], indirect=True)


def problem(form=np.asarray, logistic=False):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 60)) * (rng.random((150, 60)) < 0.5)
    y = X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=150)
    return split_rows(form(X), np.sign(y) if logistic else y, np.empty(0), 3)


def solve(make, logistic, rounds, tolerance):
    program = make(L1(1.0 if logistic else 0.01 * 150), Design(150, 3), tolerance, 500)
    with rounds, one_blas_thread():
        run_coroutine(program, rounds)
    return program


def assert_same_bits(found, expected):
    assert expected.certificate.gap <= expected.certificate.tolerance
    np.testing.assert_array_equal(found.point.coef, expected.point.coef)
    assert found.point.level == expected.point.level


@pytest.mark.covering
@ON_A_CLUSTER
@pytest.mark.parametrize("keep_every", [50, 3])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    "form", [np.ascontiguousarray, pytest.param(np.asfortranarray, marks=pytest.mark.slow), sp.csc_array]
)
def test_same_bits_and_nothing_left_behind(place, name, form, keep_every, monkeypatch):
    make, logistic = PROGRAMS[name]
    monkeypatch.setattr(rounds_module, "KEEP_EVERY", keep_every)
    parts, tolerance = problem(form, logistic), 1e-2 if name == "priority" else 1e-7
    expected = solve(make, logistic, Rounds(Place(), parts), tolerance)
    rounds = Rounds(DaskPlace(place), parts, keeper=KEEPER)
    assert_same_bits(solve(make, logistic, rounds, tolerance), expected)


def test_few_rounds(client):
    rng = np.random.default_rng(0)
    X, coef = rng.normal(size=(400, 1000)), np.zeros(1000)
    coef[:50] = rng.normal(size=50)
    parts = split_rows(np.asfortranarray(X), X @ coef + rng.normal(size=400), np.empty(0), 4)
    program = ResolveQuadratic(L1(0.02 * 400), Design(400, 4), 5e-7, 100)
    rounds = Rounds(DaskPlace(client), parts)
    with rounds:
        run_coroutine(program, rounds)
    assert program.certificate.gap <= program.certificate.tolerance
    assert program.work.n_iter <= 12
    assert rounds.n_rounds <= 45


def test_blas_keeps_to_one_thread_until_the_last_has_left():
    from threadpoolctl import threadpool_info

    def most():
        return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")

    before, inside, leave = most(), threading.Event(), threading.Event()

    def stay():
        with one_blas_thread():
            inside.set()
            leave.wait(60)

    with one_blas_thread():
        thread = threading.Thread(target=stay)
        thread.start()
        inside.wait(60)
    assert most() == 1
    leave.set()
    thread.join()
    assert most() == before
