"""How much memory is left for this process."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schmp_estimators.core.later import Later, setting

if sys.platform != "win32":
    import resource

if TYPE_CHECKING:
    from distributed import Worker

dask: Any = Later("dask")
distributed: Any = Later("distributed")

#: In the second version of cgroups and in the first: where they are mounted, and what the file of the limit is called.
_CGROUPS = {"": ("", "memory.max"), "memory": ("memory", "memory.limit_in_bytes")}


def memory_left() -> int:
    """Return how many bytes this process may still take, beside its arrays, libraries, and what it runs in.

    The limit is the ``dask.config`` key ``schmp-estimators.memory-limit``, a number or a text such as "4 GiB"; without
    one, the least is taken that is left of the memory of the machine, and of the limits of this process and of its
    control groups.
    """
    space, data, held = _taken()
    asked = setting("schmp-estimators.memory-limit")
    if asked is None:
        of_all = min([int(distributed.system.memory_limit()), *group_limits()])
        of_addresses, of_data = _process_limits()
        return max(0, int(min(of_all - held, of_addresses - space, of_data - data)))
    found = int(dask.utils.parse_bytes(asked))
    if found < 1:
        raise ValueError(f"dask.config schmp-estimators.memory-limit is {asked!r}; it must be more than nothing")
    return max(0, found - held)


def memory_left_of_worker(dask_worker: Worker) -> tuple[int, int]:
    """Return the same for a worker of a cluster, first by its own memory limit, then without it.

    Dask counts all that is resident, files in memory, too; and it lets a worker write results to disk, then pause, long
    before its limit.  What is left is what is left until then.
    """
    manager, here = dask_worker.memory_manager, memory_left()
    if not manager.memory_limit or setting("schmp-estimators.memory-limit") is not None:
        return here, here
    most = float(manager.memory_spill_fraction or manager.memory_pause_fraction or 1) * manager.memory_limit
    return max(0, int(most) - dask_worker.monitor.get_process_memory()), here


def _taken() -> tuple[int, int, int]:
    """Return the bytes of this process's addresses, of what it may write to, and of what is there without a file.

    Where the system does not tell, they are 0.
    """
    try:
        size, resident, shared, _, _, data, *_ = map(int, Path("/proc/self/statm").read_text().split())
    except OSError:
        return 0, 0, 0
    page = os.sysconf("SC_PAGE_SIZE")
    return size * page, data * page, (resident - shared) * page


def _process_limits() -> tuple[float, float]:
    """Return the limits of addresses, and of memory that may be written to."""
    if sys.platform == "win32":
        return math.inf, math.inf
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    space, data = (math.inf if limit == resource.RLIM_INFINITY else limit for limit in limits)
    return space, data


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
