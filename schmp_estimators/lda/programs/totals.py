"""Tokens of each topic: counted by jobs, added up, and what kernels read of them; few arrays over topics at a time."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

#: Topics for which numbers of 64 bits are there at a time.
_AT_ONCE = 1 << 14


def totals_dtype(most: int) -> type[np.signedinteger]:
    """Return the dtype of counts that are no more than `most`: 32 bits as long as they suffice."""
    return np.int32 if most <= np.iinfo(np.int32).max else np.int64


class Totals:
    """The tokens of each topic, of jobs that may end at the same time.

    With many topics an array of them is large, so that there is one for each job that runs, and no more.

    Parameters
    ----------
    n_topics : int
    n_tokens : int
        Tokens of all jobs together.
    """

    def __init__(self, n_topics: int, n_tokens: int) -> None:
        self._n_topics, self._dtype = n_topics, totals_dtype(n_tokens)
        self._sum: NDArray[np.signedinteger] | None = None
        self._lock = Lock()

    def begin(self) -> NDArray[np.signedinteger]:
        """Return what a job shall count in, without any token yet."""
        return np.zeros(self._n_topics, self._dtype)

    def add(self, counts: NDArray[np.signedinteger]) -> None:
        """Add what a job has counted, which is no longer the job's."""
        with self._lock:
            if self._sum is None:
                self._sum = counts
            else:
                self._sum += counts

    @property
    def sum(self) -> NDArray[np.signedinteger]:
        """The tokens of each topic in all jobs that have ended."""
        return self.begin() if self._sum is None else self._sum


def sum_totals(totals: Sequence[NDArray[np.integer]]) -> NDArray[np.signedinteger]:
    """Return the sum of counts, in 32 bits if the largest ones allow it."""
    total = totals[0].astype(totals_dtype(sum([int(one.max(initial=0)) for one in totals])))
    for one in totals[1:]:
        total += one
    return total


def invert_totals(
    total: NDArray[np.integer], smooth: np.float64, of_topics: NDArray[np.float64] | None
) -> NDArray[np.float32]:
    """Return ``1 / (total + smooth)``, or with `of_topics` ``1 / (total + (smooth + of_topics))``, rounded once."""
    inverse = np.empty(len(total), np.float32)
    for first in range(0, len(total), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        inverse[some] = 1.0 / (total[some] + (smooth if of_topics is None else smooth + of_topics[some]))
    return inverse
