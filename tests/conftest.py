"""Lanes, kernels and fixtures of all tests."""

import fcntl
import gc
import os
import re
import sys
import time
from contextlib import ExitStack

import clusters
import kernel_cache
import pytest
from covering import mark_the_rest_slow
from distributed.client import _global_clients
from hypothesis import settings

from schmp_estimators.core.engine import static
from schmp_estimators.core.places import place as places

os.environ.setdefault("MPLBACKEND", "Agg")

# The first example of a test may compile kernels; that is no reason to call it slow.
# The same examples in every run: a change is judged by what it changed.
settings.register_profile("schmp", deadline=None, derandomize=True)
settings.load_profile("schmp")

#: Lost work is begun again at once.
places.PAUSE = 0.0

kernel_cache.compile_once()
clusters.keep_quiet()
clusters.fork_workers()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Leave slow tests out of every lane that does not name them."""
    lane = config.option.markexpr
    if not re.search(r"\bslow\b", lane):
        config.option.markexpr = f"({lane}) and not slow" if lane else "not slow"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Let one process import a module, and write the bytecode of what is new.

    The others read it.
    """
    if not isinstance(collector, pytest.Module):
        return (yield)
    with open(collector.path) as module:
        fcntl.flock(module, fcntl.LOCK_EX)
        return (yield)


#: Samplers that are no default of any corpus, in names of tests and of cases: their kernels are
#: long in compilation.
NEVER_DEFAULT = re.compile(r"hybrid|data.?parallel|fplus|\[light", re.IGNORECASE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what asks for a cluster by a fixture, or starts its own.

    And what other cases of a test cover.

    Who asks for worker processes comes first, and so in one process of xdist: the other one starts
    none.
    """
    mark_the_rest_slow(items)
    for item in items:
        if NEVER_DEFAULT.search(item.nodeid):
            item.add_marker("slow")
    items.sort(key=lambda item: "processes" not in item.fixturenames)
    for item in items:
        asked = {*item.fixturenames, *getattr(getattr(item.obj, "__code__", None), "co_names", ())}
        if {"client", "processes", "apart", "own_cluster", "LocalCluster"} & asked:
            item.add_marker("cluster")


def pytest_collection_finish():
    """What imports and thousands of tests are made of stays until the end.

    No garbage collection looks at it again.
    """
    gc.freeze()


@pytest.fixture(autouse=True)
def no_default_client():
    """A worker of this process that asks Dask for a client makes it the default one.

    Later tests would use that.
    """
    yield
    _global_clients.clear()


@pytest.fixture(autouse=True)
def no_open_figures():
    """Close what a test has drawn."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(scope="session")
def client():
    """A Dask client of a small cluster in this process."""
    with clusters.own_cluster(set_as_default=False, dashboard_address=":0") as client:
        yield client


class Processes:
    """The one cluster of worker processes of a session, or another.

    It is another where Dask has not replaced workers that were killed.

    A nanny whose worker dies while it registers may wait for it for ever.
    """

    def __init__(self):
        self._stack, self._client = ExitStack(), None

    def ready(self):
        """Return the client once all workers answer."""
        if self._client is None or not clusters.wait_for_processes(
            self._client, clusters.N_PROCESSES
        ):
            self.close()
            started = clusters.worker_processes(clusters.N_PROCESSES, set_as_default=False)
            self._client = self._stack.enter_context(started)
            self._client.register_plugin(kernel_cache.CompileOnce())
        return self._client

    def close(self):
        self._stack.close()


@pytest.fixture(scope="session")
def started_processes():
    """What tests ask for by `processes`."""
    started = Processes()
    yield started
    started.close()


@pytest.fixture
def processes(started_processes):
    """A Dask client of three workers that are processes with memory of their own.

    A test may kill workers.
    """
    return started_processes.ready()


@pytest.fixture
def snapshots(monkeypatch):
    """Let a snapshot be taken whenever that can be."""
    monkeypatch.setattr(static, "SNAPSHOT_EVERY", 0.0)
    monkeypatch.setattr(static, "SNAPSHOT_SHARE", 0.0)


@pytest.fixture
def apart(processes, tmp_path):
    """A path that is another folder for each process, and these folders.

    The processes are this one and three workers.
    """
    if not os.path.exists("/proc/self/cwd"):
        pytest.skip("needs a path that each process understands in its own way")
    with clusters.hosts_apart(processes, tmp_path) as found:
        yield found


@pytest.fixture(params=["here", pytest.param("cluster", marks=pytest.mark.cluster)])
def place(request):
    """None, or the client of a cluster, on which nothing may be left."""
    if request.param == "here":
        yield None
        return
    client = request.getfixturevalue("client")
    tasks = client.cluster.scheduler.tasks
    before = set(tasks)
    yield client
    deadline = time.monotonic() + 60
    while set(tasks) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(tasks) - before


@pytest.fixture
def in_place(place):
    """A place in which the test runs."""
    with clusters.at(place):
        yield place
