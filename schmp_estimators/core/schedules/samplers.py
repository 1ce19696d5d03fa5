"""How parameters are drawn: by priority, uniformly, in turn; and by several schedulers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from schmp_estimators.core.typing import Floats, Integers, Named

#: Returns priorities from changes, of the same shape.
Weight = Callable[[Floats], Any]


class Sampler(ABC):
    """Base class of samplers, which draw the parameters of a model that are updated next.

    Parameters are numbered from 0.  A sampler may consider how much earlier updates have changed
    each parameter.  To use your own sampler, return it from the method `sampler` of your own
    `Schedule`.
    """

    @abstractmethod
    def save(self) -> Named:
        """Return the state of the sampler, as a dict of arrays and numbers."""

    @abstractmethod
    def restore(self, saved: Named) -> None:
        """Continue from a state that `save` returned for a sampler with the same parameters."""

    @abstractmethod
    def draw(self, count: int, excluded: Integers) -> Integers:
        """Return at most `count` distinct parameters, not in `excluded`, the most urgent first."""

    def put_back(self, parameters: Integers) -> None:  # noqa: B027
        """Take back parameters that were drawn, but will not be updated in this round."""

    def refresh(self, changes: Floats) -> None:  # noqa: B027
        """Receive how much each parameter would change now if it alone were updated."""

    def record(  # noqa: B027
        self, parameters: Integers, changes: Floats
    ) -> None:
        """Receive the changes of parameters that have just been updated."""


def _without(drawn: Integers, excluded: Integers) -> Integers:
    """Return the distinct parameters that were drawn, in their order, without those excluded."""
    first = np.sort(np.unique(drawn, return_index=True)[1])
    return drawn[first[~np.isin(drawn[first], excluded)]]


class PrioritySampler(Sampler):
    """Draws parameters by how much they changed when they were last updated.

    The probability of parameter j is (1 − ε)·w_j/Σw + ε/J, with the weights w = δ² of the last
    changes δ.  Lee et al., "On model parallelization and scheduling strategies for distributed
    machine learning", NIPS 2014, section 3.3, add a constant to δ² instead.  With a constant
    sampling becomes uniform when all changes are small; with a mixture it does not.

    Parameters
    ----------
    n_parameters : int
        Number J of parameters; each begins with the weight 1.
    random : numpy.random.Generator
        Source of the draws.
    uniform_part : float, default=0.1
        ε, the part of the draws in which all parameters are equally likely.
    weight : callable, default=numpy.square
        Returns the weights ≥ 0 of an array of changes.
    """

    def __init__(
        self,
        n_parameters: int,
        random: np.random.Generator,
        uniform_part: float = 0.1,
        weight: Weight = np.square,
    ) -> None:
        self.uniform_part = uniform_part
        self._random = random
        self._weight = weight
        self._weights = np.ones(n_parameters)

    def save(self) -> Named:
        """Return the weights of the last changes, and the state of the generator."""
        return {"weights": self._weights, "random": self._random.bit_generator.state}

    def restore(self, saved: Named) -> None:
        """Continue from a saved state."""
        self._weights[:] = saved["weights"]
        self._random.bit_generator.state = saved["random"]

    def refresh(self, changes: Floats) -> None:
        """Set all weights, from the changes that an update of each parameter alone would make."""
        self._weights[:] = self._weigh(changes)

    def record(self, parameters: Integers, changes: Floats) -> None:
        """Set the weights of parameters that have just been updated."""
        self._weights[parameters] = self._weigh(changes)

    def _weigh(self, changes: Floats) -> Floats:
        """Return the weights of changes, so large at most that their sum is finite."""
        with np.errstate(over="ignore"):
            found = np.asarray(self._weight(changes.copy()))
        fits = found.shape == changes.shape and found.dtype.kind in "biuf"
        if not fits or not (found >= 0).all():
            name = getattr(self._weight, "__name__", self._weight)
            raise ValueError(
                f"weight={name} must return a number of at least 0 for each change, for changes of "
                f"shape {changes.shape}; got {str(found)[:80]} of shape {found.shape}"
            )
        most = np.finfo(np.float64).max / len(self._weights)
        weights: Floats = np.minimum(found, most).astype(np.float64, copy=False)
        return weights

    def draw(self, count: int, excluded: Integers) -> Integers:
        """Return at most `count` parameters, none of them `excluded`, the most urgent first."""
        cumulated = np.cumsum(self._weights)
        uniform = self._random.random(count) < self.uniform_part
        drawn = self._random.integers(len(self._weights), size=count)
        places = self._random.random(count)
        if cumulated[-1] > 0.0:
            by_weight = np.searchsorted(cumulated, places * cumulated[-1], side="right")
            drawn = np.where(uniform, drawn, np.minimum(by_weight, len(cumulated) - 1))
        drawn = _without(drawn, excluded)
        # among equal weights, the parameter that was drawn first comes first
        return drawn[np.argsort(-self._weights[drawn], kind="stable")]


class RandomSampler(Sampler):
    """Draws parameters uniformly (Shotgun: Bradley et al., ICML 2011, section 3)."""

    def __init__(self, n_parameters: int, random: np.random.Generator) -> None:
        self._random = random
        self._count = n_parameters

    def save(self) -> Named:
        """Return the state of the generator."""
        return {"random": self._random.bit_generator.state}

    def restore(self, saved: Named) -> None:
        """Continue from a saved state."""
        self._random.bit_generator.state = saved["random"]

    def draw(self, count: int, excluded: Integers) -> Integers:
        """Return at most `count` distinct parameters in random order, none of them `excluded`."""
        return _without(
            self._random.choice(self._count, min(count, self._count), replace=False), excluded
        )


class RoundRobinSampler(Sampler):
    """Draws parameters in turn; those that were put back come first."""

    def __init__(self, n_parameters: int) -> None:
        self._count = n_parameters
        self._next = 0
        self._waiting = np.empty(0, np.int64)

    def save(self) -> Named:
        """Return the position of the turn, and the parameters that were put back."""
        return {"next": self._next, "waiting": self._waiting}

    def restore(self, saved: Named) -> None:
        """Continue from a saved state."""
        self._next = int(saved["next"])
        self._waiting = np.asarray(saved["waiting"], np.int64)

    def draw(self, count: int, excluded: Integers) -> Integers:
        """Return the next `count` parameters in turn, less those `excluded`."""
        waiting = self._waiting[:count]
        self._waiting = self._waiting[count:]
        turn = (
            self._next + np.arange(max(0, min(count, self._count) - len(waiting)))
        ) % self._count
        self._next = int((self._next + len(turn)) % self._count)
        return _without(np.concatenate([waiting, turn]), excluded)

    def put_back(self, parameters: Integers) -> None:
        """Let these be drawn first: otherwise every turn would leave out the same ones."""
        self._waiting = np.concatenate([self._waiting, parameters])


class SlicedSampler(Sampler):
    """The samplers of several schedulers, which draw in turn.

    Kim et al. (EuroSys 2016, section 3.3.2) run "an individual scheduler instance on a partition of
    model parameters", so that no scheduler has to look through all of them.  A schedule draws from
    this sampler once per round.  It checks the candidates of one scheduler against each other, and
    against updates of the others that are still under way.

    Parameter j belongs to scheduler j mod S.  All schedulers get the same number of rounds, so
    their slices should be equally important.  Slices with a stride are, even if importance depends
    on the position, as with words in order of frequency or groups of columns side by side;
    contiguous slices are not.  Besides, neighbours, which are often correlated, are not candidates
    of the same round.

    Parameters
    ----------
    slices : sequence of Sampler
        The sampler of each scheduler s; its parameter number i is parameter s + S·i of the problem.
    """

    def __init__(self, slices: Sequence[Sampler]) -> None:
        self.slices = tuple(slices)
        self._turn = 0

    def save(self) -> Named:
        """Return the states of all samplers, and the number of the one that draws next."""
        return {"slices": [sampler.save() for sampler in self.slices], "turn": self._turn}

    def restore(self, saved: Named) -> None:
        """Continue from a saved state."""
        for sampler, one in zip(self.slices, saved["slices"], strict=True):
            sampler.restore(one)
        self._turn = int(saved["turn"])

    def draw(self, count: int, excluded: Integers) -> Integers:
        """Return at most `count` distinct parameters of the next slice, none of them `excluded`."""
        turn = self._turn
        n_slices = len(self.slices)
        self._turn = (turn + 1) % n_slices
        own = excluded[excluded % n_slices == turn] // n_slices
        return turn + n_slices * self.slices[turn].draw(count, own)

    def put_back(self, parameters: Integers) -> None:
        """Give each scheduler back those of its parameters that were drawn but not chosen."""
        numbers, owners = np.divmod(parameters, len(self.slices))
        for number, sampler in enumerate(self.slices):
            sampler.put_back(numbers[owners == number])

    def refresh(self, changes: Floats) -> None:
        """Tell each scheduler the changes that updates of its parameters would make now."""
        for number, sampler in enumerate(self.slices):
            sampler.refresh(changes[number :: len(self.slices)])

    def record(self, parameters: Integers, changes: Floats) -> None:
        """Tell each scheduler the changes of those of its parameters that were updated."""
        numbers, owners = np.divmod(parameters, len(self.slices))
        for number, sampler in enumerate(self.slices):
            own = owners == number
            sampler.record(numbers[own], changes[own])
