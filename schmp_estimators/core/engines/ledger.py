"""What a run has sent out since its last cut, what it owes, and how it goes on when work is lost: for all engines."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from schmp_estimators.core.checkpoint import Checkpoint
from schmp_estimators.core.engines.keys import Run
from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.places.place import Key, Place, Ref
from schmp_estimators.core.places.restores import Restores
from schmp_estimators.core.program import Saved

T = TypeVar("T")


def word_of(job: Any) -> str:
    """Return what the dashboard calls a job: the name of a function, or else of its type."""
    function = getattr(job, "func", job)
    name: str = getattr(function, "__name__", type(function).__name__)
    return name.strip("_").replace("_", "-").lower()


class Asked(NamedTuple):
    """A checkpoint that somebody has asked for."""

    checkpoint: Checkpoint
    done: int
    values: Callable[[Saved], Any]


@dataclass
class Owed:
    """The state at the end of a sweep, on its way to who has asked for it, while the next sweeps run."""

    sweep: int
    is_cut: bool = False
    asked: Asked | None = None
    #: Where the model, the shards and the blocks are, once they are on their way, and what workers write of them.
    saved: list[Key] = field(default_factory=list)
    parts: list[Key] = field(default_factory=list)


class Rhythm(NamedTuple):
    """After which sweeps a run is cut, and its state saved."""

    #: The first sweep, and the one before which the run stops.
    first: int
    n_sweeps: int
    cut_every: int
    save_every: int

    def last_before_cut(self, sweep: int) -> int:
        """Return the last sweep before the cut that follows `sweep`: no other may be submitted while `sweep` runs."""
        every = self.cut_every
        return min(self.n_sweeps, sweep + every - (sweep - self.first) % every if every else self.n_sweeps) - 1

    def saves(self, sweep: int) -> bool:
        """Return whether the state is saved after a sweep, even if there is no cut."""
        return self.save_every > 0 and (sweep + 1 - self.first) % self.save_every == 0

    def keeps(self, sweep: int) -> bool:
        """Return whether the state is saved after a sweep, at a cut or without one; after the last sweep it is not."""
        return sweep + 1 < self.n_sweeps and (self.saves(sweep) or sweep == self.last_before_cut(sweep))


class Ledger:
    """The keys of a run, what it has lent to the place, and its losses.

    Parameters
    ----------
    place : Place
    name : str
        What the tasks are called on the dashboard.
    begin : callable
        Sends, under fresh keys, all that leads from the last cut to where the run is.
    lose : callable
        Forgets where things were, and says from where the run will go on.
    progress : str
        What would be progress, for the error when work is lost again and again.
    """

    def __init__(
        self, place: Place, name: str, begin: Callable[[], None], lose: Callable[[], str], progress: str
    ) -> None:
        self.place, self.run = place, Run(uuid.uuid4().hex[:8])
        self._name, self._begin, self._lose = name, begin, lose
        self._restores = Restores(place, progress)
        self._begun = False
        self._lent: list[Key] = []

    def key(self, what: str, *at: int) -> Key:
        """Return the key of a task of this run."""
        return self.run.key(f"{self._name}-{what}", *at)

    def begin(self) -> None:
        """Begin anew from the last cut, without any tie to the tasks before it."""
        self.renew()
        self._begin()
        self._begun = True

    def renew(self) -> None:
        """Let later keys be others than those so far."""
        self.run = self.run._replace(number=self.run.number + 1)

    def surviving(self, action: Callable[[], T]) -> T:
        """Return what `action` returns; if work is lost on the way, begin from the last cut and try again.

        Raises
        ------
        WorkerLostError
            If workers died again and again without any progress in between.
        """
        while True:
            try:
                if not self._begun:
                    self.begin()
                return action()
            except WorkLostError as error:
                self._begun, self._lent = False, []
                self._restores.prepare(error, self._lose())

    def progress(self) -> None:
        """There has been progress."""
        self._restores.forget()

    def lend(self, what: str, place: int, value: Any, at: tuple[int, ...] = ()) -> Ref:
        """Put a value, or what a callable returns, where it is of no use after the next `collect`."""
        ref = self.place.put(self.key(what, place, *at), value, place)
        self._lent.append(ref.key)
        return ref

    def collect(self) -> None:
        """Take back what was lent."""
        self.place.drop(self._lent)
        self._lent = []
