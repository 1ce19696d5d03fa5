"""How much memory there is: what is asked for, or the least of all limits."""

import resource
from pathlib import Path

import dask
import numpy as np
import pytest

from schmp_estimators.core.places import memory
from schmp_estimators.core.places.memory import group_limits, memory_left, memory_limit


@pytest.mark.parametrize(("asked", "found"), [(12345, 12345), ("2 GiB", 2 << 30), ("100 kB", 100_000)])
def test_what_is_asked_for_counts(asked, found):
    with dask.config.set({"schmp-estimators.memory-limit": asked}):
        assert memory_limit() == found


@pytest.mark.parametrize("asked", [0, -5, "much"])
def test_nonsense_is_refused(asked):
    with (
        dask.config.set({"schmp-estimators.memory-limit": asked}),
        pytest.raises(ValueError, match=r"memory-limit|much"),
    ):
        memory_limit()


def test_a_limit_of_the_process_counts():
    before = memory_limit()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (before - 4096, hard))
    try:
        assert memory_limit() == before - 4096
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


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
        taken = np.ones(1 << 25, np.uint8)
        assert before - memory_left() > taken.nbytes // 2
    with dask.config.set({"schmp-estimators.memory-limit": 1}):
        assert memory_left() == 0


def test_where_the_system_does_not_tell_all_is_left(monkeypatch):
    monkeypatch.setattr(memory, "Path", lambda name: Path("/nowhere"))
    with dask.config.set({"schmp-estimators.memory-limit": 77}):
        assert memory_left() == 77
