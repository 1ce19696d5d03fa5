"""Fits led by a worker: they have the bits of rounds through the client, and are the client's where nobody can lead."""

import os
import threading

import dask.array as da
import numpy as np
import pytest
from clusters import keys_left
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from schmp_estimators import PrioritizedLasso, SparseLogisticRegression, prioritized_lasso_path, sparse_logistic_path
from schmp_estimators.core.engine.rounds import Rounds
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.linear.programs import choose
from schmp_estimators.linear.programs.input import Extent, worth_leading
from schmp_estimators.linear.programs.quadratic import ResolveQuadratic

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 40)) * (RNG.random((90, 40)) < 0.6)
Y = X[:, 0] - X[:, 1] + 0.3 * RNG.normal(size=90)


def chunked(form=None):
    array = da.from_array(X, chunks=(20, 40))
    return array if form is None else array.map_blocks(form, dtype=float, meta=form((1, 1), dtype=float))


@pytest.fixture
def led(monkeypatch):
    """What came of each fit that was to be led."""
    found, lead = [], Rounds.lead

    def told(*arguments):
        found.append(lead(*arguments))
        return found[-1]

    monkeypatch.setattr(Rounds, "lead", told)
    return found


def assert_same(one, other):
    for name in ("coef_", "intercept_", "dual_gap_", "n_iter_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    records = [[{**record, "seconds": 0.0} for record in fit.history_] for fit in (one, other)]
    assert records[0] == records[1]
    assert np.all(np.diff([record["seconds"] for record in one.history_]) >= 0.0)


CASES = {
    "lasso": (lambda: PrioritizedLasso(0.02, tol=1e-8), Y, None),
    "sparse": (lambda: PrioritizedLasso(0.02, tol=1e-8), Y, sparse.csr_array),
    "rounds under way": (
        lambda: PrioritizedLasso(0.02, schedule="round_robin", n_parallel=2, pipeline_depth=3, tol=1e-3), Y, None
    ),
    "logistic": (lambda: SparseLogisticRegression(C=2.0, tol=1e-6), Y > 0, None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_same_bits_and_records(client, processes, led, case):
    make, y, form = CASES[case]
    here = make().fit(chunked(form), y)
    assert all(one is None for one in led)  # in this process nobody is asked
    for where in (client, processes):
        led.clear()
        with where.as_current():
            found = make().fit(chunked(form), y)
        assert len(led) == 1 and led[0] is not None and led[0].n_rounds > 2
        assert_same(found, here)
        assert keys_left(where) == []


PATHS = {
    "lasso": lambda X, **more: prioritized_lasso_path(X, Y, alphas=3, eps=0.1, tol=1e-8, **more),
    "logistic": lambda X, **more: sparse_logistic_path(X, Y > 0, Cs=3, tol=1e-6, **more),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind == "logistic" else kind for kind in PATHS]
)
def test_a_path_is_led_as_a_whole(monkeypatch, client, led, kind):
    here = PATHS[kind](chunked(sparse.csr_array))
    led.clear()
    with client.as_current():
        there = PATHS[kind](chunked(sparse.csr_array))
        with pytest.warns(ConvergenceWarning, match="at (alpha|C)=.* stopped after max_iter=1 with"):
            short = PATHS[kind](chunked(sparse.csr_array), max_iter=1)
        assert len(led) == 2 and all(one is not None and one.n_rounds > 6 for one in led)
        monkeypatch.setattr(DaskPlace, "has_threads_to_spare", lambda _: False)
        alone = PATHS[kind](chunked(sparse.csr_array))
    assert led[2:] == [None]
    for one, other, third in zip(here, there, alone, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)
    assert short[3].max() > here[3].max()
    assert keys_left(client) == []


def test_the_client_leads_where_somebody_listens(client, led, tmp_path):
    with client.as_current():
        PrioritizedLasso(0.02, checkpoint=tmp_path / "fit").fit(chunked(), Y)
        PrioritizedLasso(0.02).fit(chunked(), np.column_stack([Y, -Y]))
    assert led == []


OVER = threading.Event()


def keep_busy():
    OVER.wait(60)


def test_nobody_waits_for_busy_workers(monkeypatch, client, led):
    here = PrioritizedLasso(0.02).fit(chunked(), Y)
    led.clear()
    OVER.clear()
    place = DaskPlace(client)
    place._dealt.workers.append(
        place._dealt.workers[0]._replace(address="tcp://127.0.0.1:9")
    )  # it has died since the last look
    assert place.has_threads_to_spare()
    busy = client.submit(keep_busy, pure=False)
    while place.has_threads_to_spare():  # the scheduler has not heard of it yet
        pass
    OVER.set()
    busy.result()
    busy.release()
    OVER.clear()
    own = place.map(keep_busy, [()] * 4, "own")
    while not any(client.processing().values()):
        pass
    assert place.has_threads_to_spare()  # what a fit has begun itself is no other work
    OVER.set()
    client.gather(own)
    place.close()
    monkeypatch.setattr(DaskPlace, "has_threads_to_spare", lambda _: False)
    with client.as_current():
        assert_same(PrioritizedLasso(0.02).fit(chunked(), Y), here)
    assert led == [None]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning:distributed")
@pytest.mark.parametrize("dies", ["leader", "other", "nobody"])
def test_a_member_that_dies_costs_no_bit(monkeypatch, processes, led, dies):
    here, client_process = PrioritizedLasso(0.02, tol=1e-8).fit(chunked(), Y), os.getpid()
    led.clear()

    class Dying(ResolveQuadratic):  # which is pickled as it is, being no module's
        def _certify(self, slopes):
            if os.getpid() != client_process and dies == "leader" and len(self.model.history) == 1:
                os._exit(1)
            return super()._certify(slopes)

        def step(self, seen):
            def die(rows):
                if os.getpid() != leader and os.getpid() != client_process:
                    os._exit(1)
                return rows, None

            leader = os.getpid()
            if leader != client_process and dies == "other":
                yield die
            return (yield from super().step(seen))

    monkeypatch.setattr(choose, "ResolveQuadratic", Dying)
    with processes.as_current():
        assert_same(PrioritizedLasso(0.02, tol=1e-8).fit(chunked(), Y), here)
    assert [one is None for one in led] == [dies != "nobody"]  # so the class can travel
    assert keys_left(processes) == []


def test_leading_is_for_little_work_few_members_and_enough_memory():
    small = Extent(200_000, 100_000, 2_500_000, True, np.dtype(float))
    assert worth_leading(small, 2, 4 << 30) and worth_leading(small, 2, 0)
    assert not worth_leading(small, 100, 0)
    assert not worth_leading(small, 2, 100 << 20)
    assert not worth_leading(small._replace(stored=1 << 28), 2, 0)
    dense = Extent(20_000, 5_000, 10**8, False, np.dtype(float))
    assert worth_leading(dense, 2, 8 << 30) and not worth_leading(dense, 2, 2 << 30)
