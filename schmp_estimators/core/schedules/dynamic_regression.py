"""The dynamic schedule of regression programs: draw candidates, check them against each other, and keep some.

Priorities say which parameters to update next, dependencies which may be updated together.  There may be several
schedulers: each has a slice of the parameters, and they take turns round by round.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_NONE = np.empty(0, np.int64)


class Sampler(ABC):
    """Draws parameters.  Subclasses may use the changes made by updates, as `PrioritySampler` does."""

    @abstractmethod
    def save(self) -> dict[str, Any]:
        """Return the state of the sampler, as arrays and plain numbers."""

    @abstractmethod
    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from the state of a sampler with the same parameters."""

    @abstractmethod
    def draw(self, count: int, excluded: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return at most `count` distinct parameters, the most urgent first."""

    def put_back(self, parameters: NDArray[np.int64]) -> None:  # noqa: B027
        """Take back parameters that were drawn but not chosen."""

    def refresh(self, changes: NDArray[np.float64]) -> None:  # noqa: B027
        """Use the changes that an update of each parameter alone would make now."""

    def record(self, parameters: NDArray[np.int64], changes: NDArray[np.float64]) -> None:  # noqa: B027
        """Use the changes of parameters that have just been updated."""


class Check(NamedTuple):
    """A request for the correlations of candidates with each other and with other parameters."""

    candidates: NDArray[np.int64]
    #: candidates of earlier rounds, among them the parameters in flight
    others: NDArray[np.int64]


class DynamicRegressionSchedule:
    """Chooses the parameters of each round: `schedule_dynamic_regression` of Kim et al., EuroSys 2016, section 3.2.

    Candidates are drawn one round ahead.  Their correlations are computed together with the updates of that round, so
    the check costs no round of its own.  If rounds overlap, candidates are also checked against all parameters whose
    updates are under way: without this check, pipelined updates of correlated columns diverge.

    Parameters
    ----------
    sampler : Sampler
        Draws the candidates.
    n_parallel : int
        Number of parameters in one round.
    max_correlation : float or None
        Largest absolute correlation of parameters updated together; None: no check.
    oversample : float, default=2.0
        Number of candidates for each parameter that is wanted.
    pipeline_depth : int, default=1
        Number of rounds under way at a time.
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
        self._n_candidates = (
            int(np.ceil(oversample * n_parallel)) if max_correlation is not None else n_parallel
        )
        self._asked: deque[Check] = deque()
        self._answered: deque[tuple[Check, NDArray[np.float64]]] = deque()
        self._in_flight: deque[NDArray[np.int64]] = deque()

    def save(self) -> dict[str, Any]:
        """Return the state of the schedule as arrays and plain numbers; no round may be under way."""
        if self._in_flight:
            raise RuntimeError("a schedule is saved between rounds, not with rounds under way")
        return {"sampler": self.sampler.save(), "answered": list(self._answered)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from the state of a schedule with the same parameters."""
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
        pending = [check.candidates for check in self._asked] + [
            check.candidates for check, _ in self._answered
        ]
        others = np.unique(np.concatenate([_NONE, *pending, *self._in_flight]))
        check = Check(self.sampler.draw(self._n_candidates, others), others)
        self._asked.append(check)
        return chosen, check

    def _pick(self, flying: NDArray[np.int64]) -> NDArray[np.int64]:
        check, correlations = self._answered.popleft()
        count = len(check.candidates)
        guarded = correlations[:, count + np.flatnonzero(np.isin(check.others, flying))]
        assert self.max_correlation is not None
        kept = independent_set(
            correlations[:, :count], self.max_correlation, self.n_parallel, guarded
        )
        self.sampler.put_back(np.delete(check.candidates, kept))
        return check.candidates[kept]

    def answer(self, check: Check | None, correlations: NDArray[np.float64] | None) -> None:
        """Use the correlations of the oldest round under way, of shape (candidates, candidates + others)."""
        if check is not None and correlations is not None:
            n = len(check.candidates)
            if np.shape(correlations) != (n, n + len(check.others)):
                raise ValueError(
                    f"correlations of shape {np.shape(correlations)} must have the shape "
                    f"{(n, n + len(check.others))}: (candidates, candidates + others)"
                )
        self._in_flight.popleft()
        if check is not None and correlations is not None:
            self._asked.popleft()
            self._answered.append((check, correlations))


def independent_set(
    correlations: NDArray[np.float64],
    max_correlation: float,
    most: int,
    guarded: NDArray[np.float64] | None = None,
) -> NDArray[np.int64]:
    """Return a set of candidates no two of which are correlated above a threshold, chosen greedily in their order.

    This is the dependency check of Lee et al., NIPS 2014, section 3.3, with the highest priority first.

    Parameters
    ----------
    correlations : ndarray of shape (n_candidates, n_candidates)
        Correlations of the candidates, in the order of falling priority.
    max_correlation : float
        Largest absolute correlation allowed.
    most : int
        Largest number of candidates to choose.
    guarded : ndarray of shape (n_candidates, n_in_flight), default=None
        Correlations with parameters whose update is under way: a candidate correlated with one of them is left out.

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


def _without(drawn: NDArray[np.int64], excluded: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct parameters that were drawn, in the order of the draw, without those excluded."""
    first = np.sort(np.unique(drawn, return_index=True)[1])
    return drawn[first[~np.isin(drawn[first], excluded)]]


def _check_changes(changes: NDArray[np.float64]) -> None:
    """Raise ValueError if a change is NaN, which would make all later draws uniform."""
    if np.isnan(changes).any():
        raise ValueError(
            "changes holds NaN; pass finite numbers, 0 for a parameter without a change"
        )


class PrioritySampler(Sampler):
    """Draws parameters by how much they changed when they were last updated.

    The probability of parameter j is (1 − ε)·δ_j²/Σδ² + ε/J.  Lee et al., "On model parallelization and scheduling
    strategies for distributed machine learning", NIPS 2014, section 3.3, add a constant to δ² instead.  With a constant
    sampling becomes uniform when all changes are small; with a mixture it does not.

    Parameters
    ----------
    n_parameters : int
        Number J of parameters.
    random : numpy.random.Generator
        Source of the draws.
    uniform_part : float, default=0.1
        ε, the part of the draws in which all parameters are equally likely.
    """

    def __init__(
        self, n_parameters: int, random: np.random.Generator, uniform_part: float = 0.1
    ) -> None:
        self.uniform_part = uniform_part
        self._random = random
        self._squares = np.ones(n_parameters)

    def save(self) -> dict[str, Any]:
        """Return the squares of the last changes, and the state of the generator."""
        return {"squares": self._squares, "random": self._random.bit_generator.state}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        self._squares[:] = saved["squares"]
        self._random.bit_generator.state = saved["random"]

    @property
    def priorities(self) -> NDArray[np.float64]:
        """Squares of the last changes, shape (J,)."""
        return self._squares

    def refresh(self, changes: NDArray[np.float64]) -> None:
        """Set all priorities, from the changes that an update of each parameter alone would make now."""
        _check_changes(changes)
        np.square(changes, out=self._squares)

    def record(self, parameters: NDArray[np.int64], changes: NDArray[np.float64]) -> None:
        """Set the priorities of parameters that have just been updated."""
        _check_changes(changes)
        self._squares[parameters] = np.square(changes)

    def draw(self, count: int, excluded: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return at most `count` distinct parameters, none of them `excluded`, the highest priority first."""
        cumulated = np.cumsum(self._squares)
        uniform = self._random.random(count) < self.uniform_part
        drawn = self._random.integers(len(self._squares), size=count)
        places = self._random.random(count)
        if cumulated[-1] > 0.0:
            by_priority = np.searchsorted(cumulated, places * cumulated[-1], side="right")
            drawn = np.where(uniform, drawn, np.minimum(by_priority, len(cumulated) - 1))
        drawn = _without(
            drawn, excluded
        )  # among equal priorities, the parameter that was drawn first comes first
        return drawn[np.argsort(-self._squares[drawn], kind="stable")]


class RandomSampler(Sampler):
    """Draws parameters uniformly (Shotgun: Bradley et al., ICML 2011, section 3)."""

    def __init__(self, n_parameters: int, random: np.random.Generator) -> None:
        self._random = random
        self._count = n_parameters

    def save(self) -> dict[str, Any]:
        """Return the state of the generator."""
        return {"random": self._random.bit_generator.state}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        self._random.bit_generator.state = saved["random"]

    def draw(self, count: int, excluded: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return at most `count` distinct parameters in random order, none of them `excluded`."""
        return _without(
            self._random.choice(self._count, min(count, self._count), replace=False), excluded
        )


class RoundRobin(Sampler):
    """Draws parameters in turn; those that were put back come first."""

    def __init__(self, n_parameters: int) -> None:
        self._count = n_parameters
        self._next = 0
        self._waiting = np.empty(0, np.int64)

    def save(self) -> dict[str, Any]:
        """Return the position of the turn, and the parameters that were put back."""
        return {"next": self._next, "waiting": self._waiting}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        self._next, self._waiting = int(saved["next"]), np.asarray(saved["waiting"], np.int64)

    def draw(self, count: int, excluded: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the next `count` parameters in turn, less those `excluded`."""
        waiting, self._waiting = self._waiting[:count], self._waiting[count:]
        turn = (
            self._next + np.arange(max(0, min(count, self._count) - len(waiting)))
        ) % self._count
        self._next = int((self._next + len(turn)) % self._count)
        return _without(np.concatenate([waiting, turn]), excluded)

    def put_back(self, parameters: NDArray[np.int64]) -> None:
        """Let these parameters be drawn first: otherwise every turn would leave out the same ones."""
        self._waiting = np.concatenate([self._waiting, parameters])


_ORDERS: dict[str, Callable[[int, np.random.Generator], Sampler]] = {
    "priority": PrioritySampler,
    "random": RandomSampler,
    "round_robin": lambda n_parameters, random: RoundRobin(n_parameters),
}
ORDERS = tuple(_ORDERS)


class SlicedSampler(Sampler):
    """The samplers of several schedulers, which draw in turn.

    Kim et al. (EuroSys 2016, section 3.3.2) run "an individual scheduler instance on a partition of model parameters",
    so that no scheduler has to look through all of them.  A schedule draws from this sampler once per round.  It checks
    the candidates of one scheduler against each other, and against updates of the others that are still under way.

    Parameter j belongs to scheduler j mod S.  All schedulers get the same number of rounds, so their slices should be
    equally important.  Slices with a stride are, even if importance depends on the position, as with words in order of
    frequency or groups of columns side by side; contiguous slices are not.  Besides, neighbours, which are often
    correlated, are not candidates of the same round.

    Parameters
    ----------
    slices : sequence of Sampler
        The sampler of each scheduler s; its parameter number i is parameter s + S·i of the problem.
    """

    def __init__(self, slices: Sequence[Sampler]) -> None:
        self.slices = tuple(slices)
        self._turn = 0

    def save(self) -> dict[str, Any]:
        """Return the states of all samplers, and the number of the one that draws next."""
        return {"slices": [sampler.save() for sampler in self.slices], "turn": self._turn}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        for sampler, one in zip(self.slices, saved["slices"], strict=True):
            sampler.restore(one)
        self._turn = int(saved["turn"])

    def draw(self, count: int, excluded: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return at most `count` distinct parameters of the next slice, none of them `excluded`."""
        turn, n_slices = self._turn, len(self.slices)
        self._turn = (turn + 1) % n_slices
        own = excluded[excluded % n_slices == turn] // n_slices
        return turn + n_slices * self.slices[turn].draw(count, own)

    def put_back(self, parameters: NDArray[np.int64]) -> None:
        """Give each scheduler back those of its parameters that were drawn but not chosen."""
        numbers, owners = np.divmod(parameters, len(self.slices))
        for number, sampler in enumerate(self.slices):
            sampler.put_back(numbers[owners == number])

    def refresh(self, changes: NDArray[np.float64]) -> None:
        """Tell each scheduler the changes that updates of its parameters would make now."""
        for number, sampler in enumerate(self.slices):
            sampler.refresh(changes[number :: len(self.slices)])

    def record(self, parameters: NDArray[np.int64], changes: NDArray[np.float64]) -> None:
        """Tell each scheduler the changes of those of its parameters that have just been updated."""
        numbers, owners = np.divmod(parameters, len(self.slices))
        for number, sampler in enumerate(self.slices):
            own = owners == number
            sampler.record(numbers[own], changes[own])


def make_sampler(
    order: str, n_parameters: int, random: np.random.Generator, n_schedulers: int = 1
) -> Sampler:
    """Return the sampler of an order, one of `ORDERS`; several schedulers draw independently."""
    if n_schedulers == 1:
        return _ORDERS[order](n_parameters, random)
    seeds = random.integers(
        2**63, size=(n_schedulers, 2)
    )  # not by `spawn`, which some generators refuse
    sizes = [len(range(number, n_parameters, n_schedulers)) for number in range(n_schedulers)]
    return SlicedSampler(
        [
            _ORDERS[order](size, np.random.default_rng(seed))
            for size, seed in zip(sizes, seeds, strict=True)
        ]
    )
