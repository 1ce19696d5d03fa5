"""The dynamic schedule of regression programs: draw candidates, check them against each other, and keep some."""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.schedules.dependency import independent_set

_NONE = np.empty(0, np.int64)


class Sampler(Protocol):
    """Draws parameters; see `schedules.priority`."""

    def save(self) -> dict[str, Any]:
        """Return where the sampler stands, as arrays and plain numbers."""

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from where a sampler with the same parameters stood."""

    def draw(self, count: int, excluded: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return at most `count` distinct parameters, the most urgent first."""

    def put_back(self, parameters: NDArray[np.int64]) -> None:
        """Take parameters back that were drawn but not chosen."""

    def refresh(self, changes: NDArray[np.float64]) -> None:
        """Take the changes in that an update of each parameter alone would make now."""

    def record(self, parameters: NDArray[np.int64], changes: NDArray[np.float64]) -> None:
        """Take the changes in of parameters that have just been updated."""


class Check(NamedTuple):
    """A question to the data: the correlations of candidates, with each other and with others."""

    candidates: NDArray[np.int64]
    #: candidates of the rounds before, from which parameters in flight may come
    others: NDArray[np.int64]


class DynamicRegressionSchedule:
    """Chooses the parameters of each round: `schedule_dynamic_regression` of Kim et al., EuroSys 2016, section 3.2.

    Candidates are drawn one round ahead, and their correlations are asked for together with the updates of that
    round, so that the check costs no round of its own.  With rounds in flight, candidates are also checked against all
    parameters whose updates are under way: without this guard, pipelined updates of correlated columns diverge.

    Parameters
    ----------
    sampler : Sampler
        Draws the candidates.
    n_parallel : int
        Parameters of one round.
    max_correlation : float or None
        Largest absolute correlation of parameters updated together; None: no check.
    oversample : float, default=2.0
        Candidates drawn per parameter wanted.
    pipeline_depth : int, default=1
        Rounds under way at a time.
    """

    def __init__(
        self,
        sampler: Sampler,
        n_parallel: int,
        max_correlation: float | None,
        oversample: float = 2.0,
        pipeline_depth: int = 1,
    ) -> None:
        self.sampler = sampler
        self.n_parallel = n_parallel
        self.max_correlation = max_correlation
        self.pipeline_depth = pipeline_depth
        self._n_candidates = int(np.ceil(oversample * n_parallel)) if max_correlation is not None else n_parallel
        self._asked: deque[Check] = deque()
        self._answered: deque[tuple[Check, NDArray[np.float64]]] = deque()
        self._in_flight: deque[NDArray[np.int64]] = deque()

    def save(self) -> dict[str, Any]:
        """Return where the schedule stands, while no round is under way: arrays and plain numbers."""
        if self._in_flight:
            raise RuntimeError("a schedule is saved between rounds, not with rounds under way")
        return {"sampler": self.sampler.save(), "answered": list(self._answered)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from where a schedule with the same parameters stood."""
        self.sampler.restore(saved["sampler"])
        self._answered = deque(saved["answered"])

    def next_round(self) -> tuple[NDArray[np.int64], Check | None]:
        """Return the parameters to update now, and the check to make in the same round."""
        flying = np.concatenate([_NONE, *self._in_flight])
        if self.max_correlation is None:
            chosen = self.sampler.draw(self.n_parallel, flying)
            self._in_flight.append(chosen)
            return chosen, None
        chosen = self._pick(flying) if self._answered else _NONE
        self._in_flight.append(chosen)
        pending = [check.candidates for check in self._asked] + [check.candidates for check, _ in self._answered]
        others = np.unique(np.concatenate([_NONE, *pending, *self._in_flight]))
        check = Check(self.sampler.draw(self._n_candidates, others), others)
        self._asked.append(check)
        return chosen, check

    def _pick(self, flying: NDArray[np.int64]) -> NDArray[np.int64]:
        check, correlations = self._answered.popleft()
        count = len(check.candidates)
        guarded = correlations[:, count + np.flatnonzero(np.isin(check.others, flying))]
        assert self.max_correlation is not None
        kept = independent_set(correlations[:, :count], self.max_correlation, self.n_parallel, guarded)
        self.sampler.put_back(np.delete(check.candidates, kept))
        return check.candidates[kept]

    def answer(self, check: Check | None, correlations: NDArray[np.float64] | None) -> None:
        """Take the end of the oldest round in: its correlations, shape (candidates, candidates + others)."""
        self._in_flight.popleft()
        if check is not None and correlations is not None:
            self._asked.popleft()
            self._answered.append((check, correlations))
