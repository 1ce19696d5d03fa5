"""Fixtures for all tests."""

import pytest
from distributed import Client, LocalCluster
from hypothesis import settings

# The first example of a test may compile kernels; that is no reason to call it slow.
settings.register_profile("schmp", deadline=None)
settings.load_profile("schmp")


@pytest.fixture(scope="session")
def client():
    """A Dask client of a small cluster in this process."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
