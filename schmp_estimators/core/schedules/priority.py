"""Priorities: which parameters are worth updating next."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def _without(drawn: NDArray[np.int64], excluded: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what was drawn, each parameter once, in the order of the draw, less those excluded."""
    first = np.sort(np.unique(drawn, return_index=True)[1])
    return drawn[first[~np.isin(drawn[first], excluded)]]


class PrioritySampler:
    """Draws parameters by how much they changed when they were last updated.

    The probability of parameter j is (1 − ε)·δ_j²/Σδ² + ε/J: Lee et al., "On model parallelization and scheduling
    strategies for distributed machine learning", NIPS 2014, section 3.3, where a constant is added to δ² instead.  A
    constant ends as uniform sampling when all changes have become small; a mixture does not.

    Parameters
    ----------
    n_parameters : int
        Number J of parameters.
    random : numpy.random.Generator
        Source of the draws.
    uniform_part : float, default=0.1
        ε, the part of the draws in which every parameter is equally likely.
    """

    def __init__(self, n_parameters: int, random: np.random.Generator, uniform_part: float = 0.1) -> None:
        self.uniform_part = uniform_part
        self._random = random
        self._squares = np.ones(n_parameters)

    def save(self) -> dict[str, Any]:
        """Return the squares and the state of the generator."""
        return {"squares": self._squares, "random": self._random.bit_generator.state}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._squares[:] = saved["squares"]
        self._random.bit_generator.state = saved["random"]

    @property
    def priorities(self) -> NDArray[np.float64]:
        """Squares of the last changes, shape (J,)."""
        return self._squares

    def put_back(self, parameters: NDArray[np.int64]) -> None:
        """Do nothing: each draw is another."""

    def refresh(self, changes: NDArray[np.float64]) -> None:
        """Set all priorities, from the changes that an update of each parameter alone would make now."""
        np.square(changes, out=self._squares)

    def record(self, parameters: NDArray[np.int64], changes: NDArray[np.float64]) -> None:
        """Set the priorities of parameters that have just been updated."""
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
        drawn = _without(drawn, excluded)  # of equal priorities the one that was drawn first comes first
        return drawn[np.argsort(-self._squares[drawn], kind="stable")]


class RandomSampler:
    """Draws parameters uniformly (Shotgun: Bradley et al., ICML 2011, section 3)."""

    def __init__(self, n_parameters: int, random: np.random.Generator) -> None:
        self._random = random
        self._count = n_parameters

    def save(self) -> dict[str, Any]:
        """Return the state of the generator."""
        return {"random": self._random.bit_generator.state}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._random.bit_generator.state = saved["random"]

    def draw(self, count: int, excluded: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return at most `count` distinct parameters in random order, none of them `excluded`."""
        return _without(self._random.choice(self._count, min(count, self._count), replace=False), excluded)

    def put_back(self, parameters: NDArray[np.int64]) -> None:
        """Do nothing: each draw is another."""

    def refresh(self, changes: NDArray[np.float64]) -> None:
        """Do nothing: all parameters are equal."""

    def record(self, parameters: NDArray[np.int64], changes: NDArray[np.float64]) -> None:
        """Do nothing: all parameters are equal."""


class RoundRobin:
    """Takes parameters in turn; those that were put back are next."""

    def __init__(self, n_parameters: int) -> None:
        self._count = n_parameters
        self._next = 0
        self._waiting = np.empty(0, np.int64)

    def save(self) -> dict[str, Any]:
        """Return whose turn it is, and who waits."""
        return {"next": self._next, "waiting": self._waiting}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._next, self._waiting = int(saved["next"]), np.asarray(saved["waiting"], np.int64)

    def draw(self, count: int, excluded: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the next `count` parameters in turn, less those `excluded`."""
        waiting, self._waiting = self._waiting[:count], self._waiting[count:]
        turn = (self._next + np.arange(max(0, min(count, self._count) - len(waiting)))) % self._count
        self._next = int((self._next + len(turn)) % self._count)
        return _without(np.concatenate([waiting, turn]), excluded)

    def put_back(self, parameters: NDArray[np.int64]) -> None:
        """Let those be next that were drawn in vain: else it would be the same ones whenever the turn comes round."""
        self._waiting = np.concatenate([self._waiting, parameters])

    def refresh(self, changes: NDArray[np.float64]) -> None:
        """Do nothing: all parameters are equal."""

    def record(self, parameters: NDArray[np.int64], changes: NDArray[np.float64]) -> None:
        """Do nothing: all parameters are equal."""
