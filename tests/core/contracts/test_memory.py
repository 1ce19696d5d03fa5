"""How much memory there is: what is asked for, or the least of all limits."""

import resource
from pathlib import Path

import dask
import numpy as np
import pytest

from schmp_estimators.core.io import slices
from schmp_estimators.core.io.slices import group_limits, memory_left


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


@pytest.mark.parametrize(
    ("groups", "files", "found"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "700", "memory.max": "900"}, [700, 900]),
        ("4:memory:/a\n3:cpu:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "5"}, [5]),
        ("0::/not/seen/here\n", {"memory.max": "11\n"}, [11]),
        ("5:pids:/a\n", {"a/memory.max": "1"}, []),
    ],
)
def test_limits_of_control_groups(groups, files, found, tmp_path):
    (tmp_path / "groups").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert list(group_limits(tmp_path / "groups", tmp_path / "mounted")) == found


def test_a_system_without_groups(tmp_path):
    assert list(group_limits(tmp_path / "none")) == []


def test_what_is_taken_is_no_longer_left():
    with dask.config.set({"schmp-estimators.memory-limit": "1 TiB"}):
        before = memory_left()
        taken = np.ones(1 << 26, np.uint8)  # more than the allocator keeps for later
        assert before - memory_left() > taken.nbytes // 2
    with dask.config.set({"schmp-estimators.memory-limit": 1}):
        assert memory_left() == 0


def test_where_the_system_does_not_tell_all_is_left(monkeypatch):
    monkeypatch.setattr(slices, "Path", lambda name: Path("/nowhere"))
    with dask.config.set({"schmp-estimators.memory-limit": 77}):
        assert memory_left() == 77
