"""The page of fits: what the scheduler hears, keeps and forgets, and what is shown of it."""

import logging
import math
import sys
import time
from collections import Counter
from functools import partial
from types import SimpleNamespace
from urllib.request import urlopen

import dask
import dask.array as da
import numpy as np
import pytest
from bokeh.document import Document
from clusters import keys_left, own_cluster
from corpora import SMALL, assert_same_bits
from distributed.dashboard.scheduler import template_variables
from scipy.sparse import csr_array

from schmp_estimators import DistributedLDA, ModelParallelMF, PrioritizedLasso
from schmp_estimators.core.dashboard import fits as fits_module
from schmp_estimators.core.dashboard import tables, teller
from schmp_estimators.core.dashboard.fits import (
    ENDED,
    FOR_SECONDS,
    POINTS,
    SPANS,
    TOPIC,
    WAIT,
    Fit,
    Fits,
)
from schmp_estimators.core.dashboard.page import _strips, show
from schmp_estimators.core.dashboard.teller import EVERY

make = partial(DistributedLDA, n_components=4, max_iter=6, init="uniform", random_state=7)


@pytest.fixture
def told(client, monkeypatch):
    """The fits of a test that the scheduler of `client` knows, all of which it has told."""
    monkeypatch.setattr(
        teller, "PATIENCE", 60.0
    )  # else a fit on a busy machine may leave its last message behind
    plugins = client.cluster.scheduler.plugins
    if Fits.name in plugins:
        plugins[Fits.name].fits.clear()
        for watcher in list(
            plugins[Fits.name].watchers
        ):  # pages of tests before, which are still open
            plugins[Fits.name].leave(watcher)
    with client.as_current():
        yield lambda: list(plugins[Fits.name].fits.values())
    assert not keys_left(client)


def test_a_fit_tells_how_many_workers_it_uses_if_not_all(told, client):
    make().fit(SMALL)
    [fit] = told()
    assert fit.workers == f"1 of {len(client.nthreads())} workers"


def test_a_fit_tells_of_itself_from_its_beginning_to_its_end(told, client):
    lda = make(n_shards=2, evaluate_every=2).fit(SMALL)
    [fit] = told()
    assert (fit.estimator, fit.objective, fit.shards, fit.total) == (
        "DistributedLDA",
        "log_likelihood",
        2,
        6,
    )
    assert (fit.state, fit.runs, fit.restarts, fit.client) == ("done", False, 0, client.id)
    assert fit.began < fit.ended
    expected = [[one[key] for key in ("iterations", "seconds", "samples")] for one in lda.history_]
    assert [list(point[:3]) for point in fit.points] == expected
    values = [one.get("log_likelihood", math.nan) for one in lda.history_]
    np.testing.assert_array_equal([point[3] for point in fit.points], values)
    messages = [
        message["events"] for _, message in client.get_events(TOPIC) if message["fit"] == fit.name
    ]
    events = [event["event"] for message in messages for event in message]
    assert events == ["begin", *["record"] * 6, "end"]
    assert (
        len(messages) <= 2 + (fit.ended - fit.began) / EVERY
    )  # the first, the last, and what comes together


CLICKS = np.random.default_rng(0).integers(0, 3, (40, 30))
SMALL_FITS = [
    lambda **more: make(**more).fit(SMALL),
    lambda **more: ModelParallelMF(2, max_iter=3, random_state=0, **more).fit(csr_array(CLICKS)),
    lambda **more: PrioritizedLasso(0.1, **more).fit(CLICKS[:, 1:], CLICKS[:, 0]),
]


@pytest.mark.parametrize("fit", SMALL_FITS)
def test_a_small_fit_is_told_of_though_no_worker_does_anything(told, client, fit):
    scheduler = client.cluster.scheduler
    with dask.config.set({"schmp-estimators.small-fit": 1}):
        began = scheduler.transition_counter
        one = fit()
        assert scheduler.transition_counter == began
        fit(n_shards=2)
        at_hand = type(one) is PrioritizedLasso  # workers were looked for, and had nothing to do
        assert at_hand or scheduler.transition_counter > began
    deadline = time.monotonic() + 60
    while [found.state for found in told()] != ["done"] * 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert {found.estimator for found in told()} == {type(one).__name__}


@pytest.mark.parametrize("has_shape", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_small_collection_is_fitted_by_one_worker(told, client, has_shape):
    X = da.from_array(SMALL, chunks=(7, -1))
    X = X if has_shape else X[da.ones(len(SMALL), chunks=7) > 0]
    with dask.config.set({"schmp-estimators.small-fit": 1}):
        found = make(sampler="fplus", max_iter=3).fit(X)
        assert "lda-sweeps" in client.cluster.scheduler.task_prefixes
    assert_same_bits(found, make(sampler="fplus", max_iter=3).fit(SMALL))


def test_the_page_is_opened_once_and_listed(told, client):
    scheduler = client.cluster.scheduler
    for _ in range(2):
        make(max_iter=1).fit(SMALL)
    served = [
        app
        for app in scheduler.http_application.applications
        if "/schmp" in getattr(app, "app_paths", ())
    ]
    assert len(served) == 1
    with urlopen(f"http://localhost:{scheduler.http_server.port}/status") as answer:
        assert '<a href="schmp">Schmp</a>' in answer.read().decode()
    assert template_variables(scheduler)["pages"].count("schmp") == 1
    assert len(told()) == 2


# What the scheduler keeps.


@pytest.fixture
def plugin():
    loop = SimpleNamespace(call_later=lambda *args: None, add_callback=lambda *args: None)
    return Fits(SimpleNamespace(workers={}, loop=loop))


def say(plugin, name, *events, client="a"):
    told = [{"time": time.time(), **event} for event in events]
    plugin.log_event(TOPIC, {"fit": name, "client": client, "label": "schmp-lda", "events": told})


def test_fits_that_have_ended_are_forgotten_in_the_end(plugin, monkeypatch):
    now = time.time()
    for number in range(ENDED + 3):
        say(
            plugin,
            f"{number}",
            {"event": "begin", "time": now + number},
            {"event": "end", "time": now + number},
        )
    say(plugin, "its", {"event": "begin"}, client="gone")
    say(plugin, "runs", {"event": "begin"}, client="stays")
    assert list(plugin.fits) == [*(f"{number}" for number in range(3, ENDED + 3)), "its", "runs"]
    plugin.remove_client(None, "gone")
    assert [fit.state for fit in plugin.fits.values()] == ["done"] * ENDED + ["client gone", "runs"]
    monkeypatch.setattr(fits_module.time, "time", lambda: now + FOR_SECONDS + ENDED + 3)
    plugin.tidy()
    assert list(plugin.fits) == ["runs"]


def test_a_curve_has_a_bounded_number_of_points_and_keeps_both_ends():
    fit = Fit("", "", "", objective="value")
    for sweep in range(3 * POINTS):
        fit.add(
            {
                "time": 0.0,
                "iterations": sweep,
                "seconds": sweep / 2,
                "samples": 10 * sweep,
                "value": -sweep,
            }
        )
        assert len(fit.points) <= POINTS
    last = 3 * POINTS - 1
    assert (fit.points[0][0], fit.points[-1]) == (0, (last, last / 2, 10 * last, -last))
    assert fit.rate() == pytest.approx(20.0)


def test_who_looks_is_known_until_the_document_goes(told, client):
    make(max_iter=4, n_shards=2, evaluate_every=1).fit(SMALL)
    scheduler, document = client.cluster.scheduler, Document()
    show(scheduler, {}, document)
    assert scheduler.plugins[Fits.name].watchers
    curves, heads = (document.get_model_by_name(name).data for name in ("curves", "heads"))
    assert [len(values) for values in curves["objective"]] == [4]
    drawn = ("sweeps", "seconds", "objective", "later", "rate")
    assert all(heads[name] == [values[-1] for values in curves[name]] for name in drawn)
    [goes] = document.session_destroyed_callbacks
    goes(None)
    assert not scheduler.plugins[Fits.name].watchers


def test_spans_of_ranks_reach_who_looks_and_metrics_of_dask(told, client):
    mf = ModelParallelMF(2, n_shards=2, max_iter=3, random_state=0)
    mf.fit(SMALL.astype(float))
    scheduler, n_before = client.cluster.scheduler, len(client.get_events(SPANS))
    plugin, watcher = scheduler.plugins[Fits.name], object()
    assert not plugin.spans  # nobody has looked
    plugin.watch(watcher)
    try:
        mf.fit(SMALL.astype(float))
        told = [
            message for _, message in client.get_events(SPANS)[n_before:]
        ]  # before tasks are said to be done
        spans = [
            (span[0], message["worker"], *span[-2:])
            for message in told
            for span in message["spans"]
        ]
        names = {name for name, *_ in spans}
        noted = [one for one in plugin.spans if one.name in names]
        assert sorted((one.name, one.worker, one.start, one.stop) for one in noted) == sorted(spans)
        waits = [one for one in noted if one.name == WAIT]
        assert {one.block for one in waits} <= {0, 1}
        bars = _strips(waits, {one.worker: 1 for one in waits}, {}, time.time())
        assert {*bars["name"]} <= {"wait for rank 0", "wait for rank 1"}
        assert (
            Counter(name for name, *_ in spans)["mf-sgd-update"] == 3 * 2 * 2
        )  # sweeps, shards, blocks
    finally:
        plugin.leave(watcher)
    assert not plugin.spans
    metrics, deadline = scheduler.cumulative_worker_metrics, time.monotonic() + 20
    seconds = [(name, "seconds") for name in ("mf-sgd-update", "mf-sgd-report", "wait")]
    for measured in (*seconds, ("sent to other ranks", "bytes")):
        while ("execute", "mf-sgd-sweeps", *measured) not in metrics:
            assert time.monotonic() < deadline, metrics
            client.run(beat)


async def beat(dask_worker):
    """Let a worker tell its metrics now."""
    await dask_worker.heartbeat()


# Where there is no page.


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        (None, "the scheduler has no dashboard"),
        ("distributed.dashboard.core", "the scheduler has no dashboard"),  # without bokeh
        ("schmp_estimators.core.dashboard.teller", "the scheduler has no such page"),
    ],
)
def test_a_scheduler_that_cannot_have_the_page_changes_no_fit_and_says_so_once(
    caplog, monkeypatch, lacks, reason
):
    kwargs = {} if lacks else {"dashboard": False}
    with own_cluster(1, 2, dashboard_address=":0", scheduler_kwargs=kwargs) as client:
        if lacks:
            monkeypatch.setitem(sys.modules, lacks, None)
        with caplog.at_level(logging.INFO, "schmp_estimators.core.dashboard"):
            one, two = make(n_shards=2).fit(SMALL), make(n_shards=2).fit(SMALL)
        assert Fits.name not in client.cluster.scheduler.plugins
    assert (one.topic_word_counts_ != two.topic_word_counts_).nnz == 0
    [said] = [
        one.message
        for one in caplog.records
        if one.name.startswith("schmp_estimators.core.dashboard")
    ]
    assert reason in said


# What is shown.


def test_the_table_has_a_row_for_each_fit_and_lets_no_text_through():
    one = Fit(
        "1",
        "",
        "schmp-lda",
        "<script>",
        "log_loss",
        3,
        10,
        began=1.0,
        last={"log_loss": -1234567.0},
    )
    one.measured["auc"] = 0.75
    one.workers = "3 of 8 workers"
    over = Fit("2", "", "schmp-mf", "", began=1.0, ended=4.0, state="failed: Error", restarts=2)
    one.points.append((5.0, 1.0, 10.0, -1234567.0))
    text = tables.of_fits([one, over], {"1": "red", "2": "blue"}, 11.0)
    assert text.count("<tr") == 3
    assert "<script>" not in text
    said = (
        "5 of 10",
        "−1,234,567 <small>log loss<",
        "3 shards · 3 of 8 workers, as more would take longer",
        "10.00 s",
        "failed: Error",
        "0.75 <small>auc",
    )
    names = "<b>&lt;script&gt;</b>", "<b>schmp-mf</b>"  # of an estimator, or of a program
    assert all(what in text for what in (*said, *names))
    assert text.count("<tr class='over'>") == 1
