"""Fixtures for all tests."""

import pytest
from distributed import Client, LocalCluster


@pytest.fixture(scope="session")
def client():
    """A Dask client of a small cluster in this process."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client
