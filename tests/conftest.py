"""Fixtures for all tests."""

import time

import pytest
from clusters import worker_processes
from distributed import Client, LocalCluster
from hypothesis import settings

# The first example of a test may compile kernels; that is no reason to call it slow.
# The same examples in every run: a change is judged by what it changed.
settings.register_profile("schmp", deadline=None, derandomize=True)
settings.load_profile("schmp")


@pytest.fixture(scope="session")
def client():
    """A Dask client of a small cluster in this process."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def processes():
    """A Dask client of three workers that are processes with memory of their own."""
    with worker_processes(3, set_as_default=False) as client:
        yield client


@pytest.fixture(params=["here", "cluster"])
def place(request):
    """None, or the client of a cluster, on which nothing may be left."""
    if request.param == "here":
        yield None
        return
    client = request.getfixturevalue("client")
    tasks = client.cluster.scheduler.tasks
    before = set(tasks)
    yield client
    deadline = time.monotonic() + 10
    while set(tasks) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(tasks) - before
