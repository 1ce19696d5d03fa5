"""Several schedulers: each owns a slice of the parameters, and they take turns round by round."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.schedules.dynamic_regression import PrioritySampler, RandomSampler, RoundRobin, Sampler

_ORDERS: dict[str, Callable[[int, np.random.Generator], Sampler]] = {
    "priority": PrioritySampler,
    "random": RandomSampler,
    "round_robin": lambda n_parameters, random: RoundRobin(n_parameters),
}
ORDERS = tuple(_ORDERS)


class SlicedSampler:
    """The samplers of several schedulers, of which each draw asks the next one.

    Kim et al. (EuroSys 2016, section 3.3.2) run "an individual scheduler instance on a partition of model parameters",
    so that no scheduler has to look through all of them.  A schedule that draws from this sampler once per round checks
    the candidates of one scheduler against each other, and guards them against what the others have under way.

    Parameter j belongs to scheduler j mod S.  All schedulers get as many rounds, so slices should have as much to do:
    those of a stride do, also where importance depends on position, as with words in order of frequency or groups of
    columns side by side; contiguous slices do not.  And neighbours, which are often correlated, are not candidates of
    the same round.

    Parameters
    ----------
    slices : sequence of Sampler
        The sampler of each scheduler s.  It calls parameter s + S·i by the number i.
    """

    def __init__(self, slices: Sequence[Sampler]) -> None:
        self.slices = tuple(slices)
        self._turn = 0

    def save(self) -> dict[str, Any]:
        """Return the states of all samplers, and whose turn it is."""
        return {"slices": [sampler.save() for sampler in self.slices], "turn": self._turn}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
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
        """Give back to every scheduler those of its parameters that were drawn but not chosen."""
        numbers, owners = np.divmod(parameters, len(self.slices))
        for number, sampler in enumerate(self.slices):
            sampler.put_back(numbers[owners == number])

    def refresh(self, changes: NDArray[np.float64]) -> None:
        """Tell every scheduler what updates of its parameters would change now."""
        for number, sampler in enumerate(self.slices):
            sampler.refresh(changes[number :: len(self.slices)])

    def record(self, parameters: NDArray[np.int64], changes: NDArray[np.float64]) -> None:
        """Tell every scheduler by how much those of its parameters changed that have just been updated."""
        numbers, owners = np.divmod(parameters, len(self.slices))
        for number, sampler in enumerate(self.slices):
            own = owners == number
            sampler.record(numbers[own], changes[own])


def make_sampler(order: str, n_parameters: int, random: np.random.Generator, n_schedulers: int = 1) -> Sampler:
    """Return the sampler of an order, one of `ORDERS`, for one scheduler or several with draws of their own."""
    if n_schedulers == 1:
        return _ORDERS[order](n_parameters, random)
    seeds = random.integers(2**63, size=(n_schedulers, 2))  # not `spawn`, which some generators refuse
    sizes = [len(range(number, n_parameters, n_schedulers)) for number in range(n_schedulers)]
    return SlicedSampler(
        [_ORDERS[order](size, np.random.default_rng(seed)) for size, seed in zip(sizes, seeds, strict=True)]
    )
