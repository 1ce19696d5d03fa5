"""How the work of a shard is divided among threads."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


def cut_jobs(ptr: NDArray[Any], least: int, most: int) -> list[tuple[int, int]]:
    """Cut words or documents with these offsets into consecutive jobs of equal weight.

    Parameters
    ----------
    ptr : array of shape (n + 1,)
        Offsets in tokens.
    least, most : int
        The fewest tokens of a job, and the largest number of jobs.

    Returns
    -------
    list of pairs
        Where each job begins and ends.
    """
    first, last = int(ptr[0]), int(ptr[-1])
    n_jobs = max(1, min(most, (last - first) // least))
    if n_jobs == 1:
        return [(0, len(ptr) - 1)]
    cuts = np.searchsorted(ptr, np.linspace(first, last, n_jobs + 1)[1:-1])
    ends = np.unique(np.concatenate([[0], cuts, [len(ptr) - 1]])).tolist()
    return list(pairwise(ends))


def put_together(weights: Iterable[float], most: float) -> list[list[int]]:
    """Return the numbers of things with these weights, in groups of neighbours, which weigh no more than `most`.

    What is heavier stays alone.  So light things can be dealt with by one call of a kernel, at the price of a copy.
    """
    groups, total = list[list[int]](), 0.0
    for number, weight in enumerate(weights):
        total += weight
        if groups and total <= most:
            groups[-1].append(number)
        else:
            groups.append([number])
            total = weight
    return groups
