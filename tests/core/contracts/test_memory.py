"""How much memory there is: what is asked for, or the least of all limits."""

import resource

import dask
import pytest

from schmp_estimators.core.io import slices
from schmp_estimators.core.io.slices import memory_left


@pytest.fixture
def nothing_taken(monkeypatch):
    monkeypatch.setattr(slices, "_taken", lambda: (0, 0, 0))


@pytest.mark.parametrize(("asked", "found"), [(12345, 12345), ("2 GiB", 2 << 30), ("100 kB", 100_000)])
def test_what_is_asked_for_counts(asked, found, nothing_taken):
    with dask.config.set({"schmp-estimators.memory-limit": asked}):
        assert memory_left() == found


@pytest.mark.parametrize("asked", [0, -5, "much"])
def test_nonsense_is_refused(asked):
    config = dask.config.set({"schmp-estimators.memory-limit": asked})
    with config, pytest.raises(ValueError, match=r"memory-limit|much"):
        memory_left()


@pytest.mark.parametrize("kind", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_a_limit_of_the_process_counts(kind, nothing_taken):
    before = memory_left()
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (before - 4096, hard))
    try:
        assert memory_left() == before - 4096
    finally:
        resource.setrlimit(kind, (soft, hard))


def test_each_limit_is_for_something_else(monkeypatch):
    monkeypatch.setattr(slices, "_process_limits", lambda: (1000, 600))
    for taken, left in (((100, 50, 10), 550), ((700, 50, 10), 300), ((2000, 50, 10), 0), ((100, 590, 10), 10)):
        monkeypatch.setattr(slices, "_taken", lambda taken=taken: taken)
        assert memory_left() == left
