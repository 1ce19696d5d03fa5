"""The page of fits while a fit goes on, and schedulers that lack what it needs."""

import logging
import threading
import time
from contextlib import closing

import numpy as np
import pytest
from bokeh.client import pull_session
from callbacks import AfterSweeps
from corpora import SMALL, assert_same_bits
from schedulers import cluster_lacking

from schmp_estimators import DistributedLDA
from schmp_estimators.core.dashboard.fits import Fits, has_page


def make(**parameters):
    return DistributedLDA(**{"n_components": 4, "max_iter": 6, "init": "uniform", "random_state": 7} | parameters)


class Held(AfterSweeps):
    """Lets a fit go on sweep by sweep."""

    def __init__(self, n_sweeps):
        super().__init__(self.hold)
        self.n_sweeps, self.done, self.may = n_sweeps, threading.Event(), threading.Event()

    def hold(self, estimator, context):
        if estimator.n_iter_ == self.n_sweeps:
            self.done.set()
            assert self.may.wait(120)


def soon(question, seconds=60):
    """The answer, once it is true."""
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < deadline, f"it is still {answer!r}"
        time.sleep(0.05)
    return answer


def begun(client, action):
    """A thread in which the action goes on with this client."""

    def act():
        with client.as_current():
            action()

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def address_of(client):
    return f"http://localhost:{client.cluster.scheduler.http_server.port}/schmp"


@pytest.fixture
def half_done(client):
    """Address of the page, the scheduler, and a fit that is held in the middle: callable, it goes on to its end."""
    held = Held(6)
    lda = make(n_shards=2, max_iter=12, evaluate_every=1).set_callbacks(held)
    fit = begun(client, lambda: lda.fit(SMALL))
    assert held.done.wait(60)

    def go_on():
        held.may.set()
        fit.join(60)
        assert lda.n_iter_ == 12

    yield address_of(client), client.cluster.scheduler, go_on
    go_on()


@pytest.mark.slow
def test_the_document_grows_with_the_fit(half_done):
    address, scheduler, go_on = half_done
    with closing(pull_session(url=address)) as session:

        def model(name):
            # what the same document is now; a session that pulls it once more would push what it has changed back
            with closing(pull_session(session_id=session.id, url=address)) as again:
                return again.document.get_model_by_name(name)

        def points():
            return [len(values) for values in model("curves").data["objective"]][:1]

        soon(lambda: points() == [5])
        assert scheduler.plugins[Fits.name].watchers
        go_on()
        soon(lambda: points() == [12])
        np.testing.assert_array_equal(model("curves").data["sweeps"][0], np.arange(1, 13))
        soon(lambda: "done" in model("fits").text)
        assert "lda-sample-documents" in set(model("strips").data["name"])


@pytest.mark.slow
def test_a_scheduler_that_lacks_what_the_page_needs(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "schmp_estimators.core.dashboard"), cluster_lacking("bokeh", tmp_path) as client:
        with client.as_current():
            ldas = [make(n_shards=2).fit(SMALL) for _ in range(2)]
        events = client.get_events("schmp")
    assert_same_bits(ldas[0], make(n_shards=2).fit(SMALL))
    [said] = [one.message for one in caplog.records if one.name == "schmp_estimators.core.dashboard.fits"]
    assert "no page of fits on the dashboard" in said
    assert "bokeh" in said
    assert not events
    log = (tmp_path / "without" / "distributed.cli.dask_scheduler.log").read_text()
    assert "ModuleNotFoundError" not in log


@pytest.mark.slow
def test_a_scheduler_without_this_package_only_says_so(tmp_path, caplog):
    """Dask reads graphs on the scheduler, so no fit could run there, with a page or without."""
    with caplog.at_level(logging.INFO), cluster_lacking("schmp_estimators", tmp_path, n_workers=1) as client:
        assert not client.sync(has_page, client)
    assert "No module named 'schmp_estimators" in caplog.text
    assert "ModuleNotFoundError" not in (tmp_path / "without" / "distributed.cli.dask_scheduler.log").read_text()
