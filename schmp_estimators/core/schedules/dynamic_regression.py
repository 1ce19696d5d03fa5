"""The dynamic schedule of regression programs: draw candidates, check them, and keep some.

Priorities say which parameters to update next, dependencies which may be updated together.
"""

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.schedules.samplers import Sampler
from schmp_estimators.core.typing import Floats, Integers, Named

_NONE = np.empty(0, np.int64)


class RowSample(NamedTuple):
    """Rows drawn at random, with replacement; each is a function of the key and of its number."""

    key: int
    n_drawn: int

    def within(self, n_rows: int, start: int, stop: int) -> Integers:
        """Return which of `n_rows` rows were drawn from `start` to before `stop`, less `start`."""
        draws = np.random.Generator(np.random.Philox(key=self.key))
        drawn = draws.integers(n_rows, size=self.n_drawn)
        return drawn[(drawn >= start) & (drawn < stop)] - start


class Check(NamedTuple):
    """A request for the correlations of candidates with each other and with other parameters."""

    candidates: Integers
    #: candidates of earlier rounds, among them the parameters in flight
    others: Integers
    #: the rows that suffice; None for all
    rows: RowSample | None = None

    @property
    def both(self) -> Integers:
        """The candidates, and behind them the others."""
        return np.concatenate([self.candidates, self.others])


class Moves(NamedTuple):
    """What a schedule has recorded of each parameter."""

    #: (J,) number of updates
    n_updates: Integers
    #: (J,) passes over all parameters after which it last changed by more than `moved_above`
    last_moved: Floats


class DynamicRegressionSchedule:
    """Chooses the parameters of each round, as ``scheduleDynRegr`` of Kim et al., EuroSys 2016.

    See section 4.1 there.  Candidates are drawn one round ahead.  Their correlations are computed
    together with the updates of that round, so the check costs no round of its own.  If rounds
    overlap, candidates are also checked against all parameters whose updates are under way: without
    this check, pipelined updates of correlated columns diverge.

    `Schedule.start` makes one.

    Parameters
    ----------
    how : Schedule
        Says how many parameters a round has, and what is checked and recorded.
    sampler : Sampler
        Draws the candidates.
    n_parameters : int
    key : int, default=0
        That of the draws of rows.

    Attributes
    ----------
    n_parallel : int
        Maximum number of parameters in one round.
    max_correlation : float or None
        Largest absolute correlation of parameters updated together; None: no check.
    pipeline_depth : int
        Number of rounds under way at a time.
    moves : Moves or None
        Where changes above `moved_above` are recorded.
    """

    def __init__(self, how: Any, sampler: Sampler, n_parameters: int, key: int = 0) -> None:
        self.sampler = sampler
        self.n_parallel = min(how.n_parallel or 64, n_parameters)
        self.max_correlation: float | None = how.max_correlation
        self.pipeline_depth = how.pipeline_depth
        self.moves: Moves | None = None
        if how.moved_above is not None:
            self.moves = Moves(np.zeros(n_parameters, np.int64), np.zeros(n_parameters))
        self._how = how
        self._n_parameters = n_parameters
        self._key = key
        self._n_checks = 0
        self._asked: deque[Check] = deque()
        self._answered: deque[tuple[Check, Floats]] = deque()
        self._in_flight: deque[Integers] = deque()

    def save(self) -> Named:
        """Return the state as arrays and plain numbers; no round may be under way."""
        if self._in_flight:
            raise RuntimeError("a schedule is saved between rounds, not with rounds under way")
        return {
            "sampler": self.sampler.save(),
            "answered": list(self._answered),
            "n_checks": self._n_checks,
            "sizes": (self.n_parallel, self.pipeline_depth),
            "moves": self.moves,
        }

    def restore(self, saved: Named) -> None:
        """Continue from the state of a schedule with the same parameters."""
        self.sampler.restore(saved["sampler"])
        self._answered = deque(saved["answered"])
        self._n_checks = int(saved["n_checks"])
        self.n_parallel, self.pipeline_depth = saved["sizes"]
        if self.moves is not None:
            self.moves.n_updates[:], self.moves.last_moved[:] = saved["moves"]

    @property
    def rounds_between(self) -> int | None:
        """Number of rounds between two gradients of all parameters; None: no limit."""
        if self._how.refresh == "auto":
            return max(10, self._n_parameters // (2 * self.n_parallel))
        return None if self._how.refresh is None else int(self._how.refresh)

    def halve(self) -> bool:
        """Choose half as many parameters in a round, or run half as many rounds of one at a time.

        Returns whether this is possible.
        """
        if self._how.n_parallel is not None or self.n_parallel == self.pipeline_depth == 1:
            return False
        if self.n_parallel > 1:
            self.n_parallel //= 2
        else:
            self.pipeline_depth //= 2
        return True

    def refresh(self, changes: Floats) -> None:
        """Use the changes, shape (J,), that an update of each parameter alone would make now."""
        self.sampler.refresh(_numbers(changes, (self._n_parameters,)))

    def record(self, parameters: Integers, changes: Floats) -> None:
        """Use the changes of parameters that have just been updated, one for each."""
        changes = _numbers(changes, parameters.shape)
        self.sampler.record(parameters, changes)
        if self.moves is not None:
            counts, last = self.moves
            counts[parameters] += 1
            moved = parameters[np.abs(changes) > self._how.moved_above]
            last[moved] = counts.sum() / len(counts)

    def next_round(self) -> tuple[Integers, Check | None]:
        """Return the parameters to update now, and the check to make in the same round."""
        flying = np.concatenate([_NONE, *self._in_flight])
        if self.max_correlation is None:
            chosen = self.sampler.draw(self.n_parallel, flying)
            self._in_flight.append(chosen)
            return chosen, None
        chosen = self._pick(flying) if self._answered else _NONE
        self._in_flight.append(chosen)
        pending = [check.candidates for check in self._asked] + [
            check.candidates for check, _ in self._answered
        ]
        others = np.unique(np.concatenate([_NONE, *pending, *self._in_flight]))
        n_candidates = int(np.ceil(self._how.oversample * self.n_parallel))
        check = Check(self.sampler.draw(n_candidates, others), others, self._draw_rows())
        self._asked.append(check)
        return chosen, check

    def _draw_rows(self) -> RowSample | None:
        if self._how.correlation_rows is None:
            return None
        self._n_checks += 1
        return RowSample(int(stream_key(self._key, self._n_checks)), self._how.correlation_rows)

    def _pick(self, flying: Integers) -> Integers:
        check, correlations = self._answered.popleft()
        count = len(check.candidates)
        guarded = correlations[:, count + np.flatnonzero(np.isin(check.others, flying))]
        assert self.max_correlation is not None
        kept = independent_set(
            correlations[:, :count], self.max_correlation, self.n_parallel, guarded
        )
        self.sampler.put_back(np.delete(check.candidates, kept))
        return check.candidates[kept]

    def answer(self, check: Check | None, correlations: Floats | None) -> None:
        """Use the correlations of the oldest round under way, of shape (candidates, both)."""
        wanted = None if check is None else (len(check.candidates), len(check.both))
        found = None if correlations is None else np.shape(correlations)
        if found != wanted:
            raise ValueError(
                f"correlations of shape {found} do not answer the check, which wants {wanted}: "
                "those of check.candidates with check.both"
            )
        self._in_flight.popleft()
        if check is not None and correlations is not None:
            self._asked.popleft()
            self._answered.append((check, correlations))


def _numbers(changes: Any, shape: tuple[int, ...]) -> Floats:
    """Return changes as floats; raise ValueError if they are not one number for each parameter."""
    found = np.asarray(changes, np.float64)
    if found.shape != shape or np.isnan(found).any():
        raise ValueError(
            f"changes must be numbers of shape {shape}; got shape {found.shape}, "
            f"{np.count_nonzero(np.isnan(found))} of them NaN"
        )
    return found


def independent_set(
    correlations: Floats,
    max_correlation: float,
    most: int,
    guarded: Floats | None = None,
) -> Integers:
    """Return candidates no two of which are correlated above a threshold, greedily in their order.

    This is the dependency check of Lee et al., NIPS 2014, section 3.3, with the highest priority
    first.

    Parameters
    ----------
    correlations : ndarray of shape (n_candidates, n_candidates)
        Correlations of the candidates, in the order of falling priority.
    max_correlation : float
        Largest absolute correlation allowed.
    most : int
        Largest number of candidates to choose.
    guarded : ndarray of shape (n_candidates, n_in_flight), default=None
        Correlations with parameters whose update is under way: a candidate correlated with one of
        them is left out.

    Returns
    -------
    ndarray of int64
        Positions of the chosen candidates, ascending.
    """
    conflicts = np.abs(correlations) > max_correlation
    np.fill_diagonal(conflicts, True)
    free = np.ones(len(conflicts), bool)
    if guarded is not None and guarded.size:
        free &= (np.abs(guarded) <= max_correlation).all(axis=1)
    chosen: list[int] = []
    for candidate in range(len(conflicts)):
        if free[candidate]:
            chosen.append(candidate)
            free &= ~conflicts[candidate]
            if len(chosen) == most:
                break
    return np.array(chosen, dtype=np.int64)
