"""Which worker of a cluster each shard of a run is worked upon by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from schmp_estimators.core.places.cluster import Worker


class Dealt:
    """The shards of a run as they are dealt to workers.

    Parameters
    ----------
    workers : list of Worker
        Those that are there.
    """

    def __init__(self, workers: list[Worker]) -> None:
        self.workers = workers
        #: Shards of the run, where they are known.
        self.n_places = 0
        self._places: dict[int, str] = {}

    @property
    def n_threads(self) -> int:
        """Threads of all workers together."""
        return sum(worker.n_threads for worker in self.workers)

    @property
    def addresses(self) -> set[str]:
        """Workers that have shards."""
        return set(self._places.values())

    def address(self, place: int) -> str:
        """Return the worker of a shard: always the same while it lives.

        Neighbours in the ring share a worker if there are more shards than threads, so that fewer blocks travel when
        they go on.  A shard whose worker has its share, or has died, goes to the one with most threads to spare.
        """
        alive = {worker.address for worker in self.workers}
        if self._places.get(place) not in alive:
            taken = Counter(address for address in self._places.values() if address in alive)
            shares = self._shares(self.n_places)
            spare = [worker for worker in self.workers if taken[worker.address] < shares[worker.address]]
            chosen = min(spare or self.workers, key=lambda w: (taken[w.address] + 1) / w.n_threads).address
            if place < self.n_places:
                threads = [worker.address for worker in self.workers for _ in range(worker.n_threads)]
                own = threads[place * len(threads) // self.n_places]
                if taken[own] < shares[own]:
                    chosen = own
            self._places[place] = chosen
        return self._places[place]

    def members(self, n_places: int) -> dict[str, list[int]]:
        """Return the shards of each worker that has some."""
        groups: dict[str, list[int]] = {}
        for place in range(n_places):
            groups.setdefault(self.address(place), []).append(place)
        return groups

    def settle(self, wishes: Sequence[Collection[str]]) -> None:
        """Let each shard have one of the workers it wishes for, as long as no worker gets more than its share."""
        shares = self._shares(len(wishes))
        for place, found in enumerate(wishes):
            for address in sorted(address for address in found if shares.get(address)):
                self._places.setdefault(place, address)
                shares[address] -= 1
                break

    def is_even(self) -> bool:
        """Return whether no worker has more than its share, as workers are now."""
        shares = self._shares(len(self._places))
        return not any(n > shares.get(address, 0) for address, n in Counter(self._places.values()).items())

    def forget(self) -> None:
        """Forget where the shards are."""
        self._places.clear()

    def _shares(self, n_places: int) -> dict[str, int]:
        """Return how many of so many shards each worker should have at most."""
        return {worker.address: -(-n_places * worker.n_threads // self.n_threads) for worker in self.workers}
