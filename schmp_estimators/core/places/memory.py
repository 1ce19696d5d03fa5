"""How much memory this process may use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import dask
from dask.utils import parse_bytes
from distributed import system

if sys.platform != "win32":
    import resource

#: In the second version of cgroups and in the first: where they are mounted, and what the file of the limit is called.
_CGROUPS = {"": ("", "memory.max"), "memory": ("memory", "memory.limit_in_bytes")}


def memory_limit() -> int:
    """Return how many bytes this process may use.

    It is the ``dask.config`` key ``schmp-estimators.memory-limit``, a number or a text such as "4 GiB"; without one the
    least of the memory of the machine, the limits of this process and those of its control groups.
    """
    asked = dask.config.get("schmp-estimators.memory-limit", None)
    if asked is None:
        return min([int(system.memory_limit()), *_process_limits(), *group_limits()])
    found = int(parse_bytes(asked))
    if found < 1:
        raise ValueError(f"dask.config schmp-estimators.memory-limit is {asked!r}; it must be more than nothing")
    return found


def memory_left() -> int:
    """Return how much of `memory_limit` this process has not taken yet: by arrays, libraries, and what it runs in."""
    return max(0, memory_limit() - _taken())


def _taken() -> int:
    """Return the bytes that this process holds and that no file backs; 0 where the system does not tell."""
    try:
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    except OSError:
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _process_limits() -> Iterator[int]:
    if sys.platform != "win32":
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
            limit = resource.getrlimit(kind)[0]
            if limit != resource.RLIM_INFINITY:
                yield limit


def group_limits(groups: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """Yield the limits of this process's control groups, and of those that they are in."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:  # no Linux
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers not in _CGROUPS:
            continue
        folder, name = _CGROUPS[controllers]
        parts = Path(group).parts[1:]
        for depth in range(len(parts), -1, -1):
            try:
                text = mounted.joinpath(folder, *parts[:depth], name).read_text().strip()
            except OSError:  # a container sees no groups above its own, or calls its own by another name
                continue
            if text.isdecimal():  # else it is "max"
                yield int(text)
