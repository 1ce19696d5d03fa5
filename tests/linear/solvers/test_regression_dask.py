"""What rounds of regression cost.

How many there are on a cluster, and how many threads they take.
"""

import threading

import numpy as np

from schmp_estimators.core.engine.dynamic import run_coroutine
from schmp_estimators.core.engine.rounds import Rounds
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.linear.losses.squared import Squared
from schmp_estimators.linear.penalties.elastic_net import L1
from schmp_estimators.linear.programs.design import Design
from schmp_estimators.linear.programs.input import split_rows
from schmp_estimators.linear.programs.joint import ResolveJoint


def test_few_rounds(client):
    rng = np.random.default_rng(0)
    X, coef = rng.normal(size=(400, 1000)), np.zeros(1000)
    coef[:50] = rng.normal(size=50)
    parts = split_rows(np.asfortranarray(X), X @ coef + rng.normal(size=400), np.empty(0), 4)
    given = L1(0.02 * 400), Design(400, 4), 5e-7, 100
    program = ResolveJoint(*given, loss=Squared(), n_columns=1000)
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
