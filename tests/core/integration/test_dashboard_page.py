"""The page of fits on schedulers of their own, and as a browser shows it."""

import logging
import threading
import time
from contextlib import closing
from urllib.request import urlopen

import browser
import dask
import numpy as np
import pytest
from bokeh.client import pull_session
from clusters import Killer
from corpora import SMALL, assert_same_bits
from distributed import Client, LocalCluster
from matplotlib import image
from schedulers import cluster_lacking

from schmp_estimators import DistributedLDA
from schmp_estimators.core.dashboard.fits import Fits, Strips, has_page
from schmp_estimators.exceptions import SchMPError


def make(**parameters):
    return DistributedLDA(**{"n_components": 4, "max_iter": 6, "init": "uniform", "random_state": 7} | parameters)


class Held:
    """A callback that lets a fit go on sweep by sweep."""

    def __init__(self, n_sweeps):
        self.n_sweeps, self.done, self.may = n_sweeps, threading.Event(), threading.Event()

    def setup(self, estimator, context): ...
    def teardown(self, estimator, context): ...
    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context):
        if context.task_name == "sweep" and estimator.n_iter_ == self.n_sweeps:
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
        assert Strips.name in scheduler.plugins
        go_on()
        soon(lambda: points() == [12])
        np.testing.assert_array_equal(model("curves").data["sweeps"][0], np.arange(1, 13))
        soon(lambda: "done" in model("fits").text)
        assert "lda-sample-documents" in set(model("strips").data["name"])


@pytest.mark.slow
@pytest.mark.skipif(browser.BINARY is None, reason="no Chromium here; apt-get install chromium")
def test_a_browser_shows_the_curve_growing(half_done, tmp_path):
    address, _, go_on = half_done
    documents = "Bokeh.documents[0].get_model_by_name"
    points = f"{documents}('curves').data.objective[0].length"
    with browser.browser(tmp_path / "profile") as page:
        page.open(address)
        page.wait(f"{points} == 5")
        assert "5 of 12" in page.evaluate(f"{documents}('fits').text")
        page.screenshot(tmp_path / "before.png")
        go_on()
        page.wait(f"{points} == 12")
        page.wait(f"{documents}('fits').text.includes('done')")
        time.sleep(1)
        page.screenshot(tmp_path / "after.png")
        links = page.evaluate("[...document.querySelectorAll('.navbar a')].map(link => link.textContent).join()")
        assert "Schmp" in links.split(",")
    before, after = (image.imread(tmp_path / f"{name}.png")[:, :, :3] for name in ("before", "after"))
    coloured = before[60:].max(axis=2) - before[60:].min(axis=2) > 0.2
    assert coloured.sum() > 200  # the curves of a fit that runs, its bar, and what workers did
    assert (np.abs(after - before).max(axis=2) > 0.2).sum() > 200


@pytest.mark.slow
def test_restarts_are_shown(processes):
    assert processes.cluster.scheduler is not None
    with processes.as_current():
        killer = Killer(processes, at=2)
        lda = make(n_shards=3, max_iter=8).set_callbacks(killer).fit(SMALL)
    assert_same_bits(lda, make(max_iter=8).fit(SMALL))
    fit = list(processes.cluster.scheduler.plugins[Fits.name].fits.values())[-1]
    assert (fit.state, fit.points[-1][0]) == ("done", 8)


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


@pytest.mark.slow
def test_two_clients_a_restart_and_a_prefix():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with dask.config.set({"distributed.scheduler.dashboard.status.task-stream-length": 100}):
        cluster = LocalCluster(**options, scheduler_kwargs={"http_prefix": "/behind"})
    with cluster, Client(cluster, set_as_default=False) as one, Client(cluster, set_as_default=False) as other:
        plugin = None
        for client in (one, other):
            with client.as_current():
                make(n_shards=2).fit(SMALL)
            plugin = plugin or cluster.scheduler.plugins[Fits.name]
        assert cluster.scheduler.plugins[Fits.name] is plugin
        one.restart()
        with one.as_current():
            make(n_shards=2).fit(SMALL)
        assert [(fit.client, fit.state) for fit in plugin.fits.values()] == [
            (client.id, "done") for client in (one, other, one)
        ]
        with urlopen(f"http://localhost:{cluster.scheduler.http_server.port}/behind/schmp") as answer:
            assert b"Schmp" in answer.read()


@pytest.mark.slow
def test_a_client_that_ends_in_the_middle(client):
    with Client(client.cluster, set_as_default=False) as short:
        held, errors = Held(2), []
        lda, name = make(n_shards=2).set_callbacks(held), short.id

        def act():
            try:
                lda.fit(SMALL)
            except SchMPError as error:
                errors.append(error)

        def states():
            plugin = client.cluster.scheduler.plugins.get(Fits.name)
            return [one.state for one in plugin.fits.values() if one.client == name] if plugin else []

        fit = begun(short, act)
        assert held.done.wait(60)
        soon(lambda: states() == ["runs"])
    soon(lambda: states() == ["client gone"])
    held.may.set()
    fit.join(60)
    assert "cannot be reached" in str(errors)
