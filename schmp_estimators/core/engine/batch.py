"""The tasks of a run on a cluster.

A rank begins, does a batch of sweeps, and returns its results.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

from schmp_estimators.core.engine.communicator import Alone, Communicator
from schmp_estimators.core.engine.sweep import Rank
from schmp_estimators.core.errors import WorkLostError
from schmp_estimators.core.io.slices import Filed, Slices, read_back
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.core.program import AnyProgram, Groups, Saved
from schmp_estimators.core.typing import Function, Named, Numbered
from schmp_estimators.core.values import claim, freeze, nbytes

#: Gets the records of a batch so far, and says whether the run ends there; all ranks get the same
#: records.
Ends = Callable[[Sequence[Named]], bool] | None


class Batch(NamedTuple):
    """Consecutive sweeps that ranks do without asking the client."""

    first: int
    n_sweeps: int
    ends: Ends = None
    #: Whether the state after the last sweep will be saved, as far as that is known.
    saves: bool = False


class Course(NamedTuple):
    """What a run does, apart from its program and data."""

    #: The run stops before the sweep with this number.
    n_sweeps: int
    #: What `save` returned after sweep ``first - 1``.  If its model is None, it is made from the
    #: shards' reports.
    saved: Saved | None = None
    #: Number of the first sweep.
    first: int = 0
    #: ``may_ask(sweep)`` says whether after this sweep the caller may end the run, or ask for more
    #: than the record.  If it may not, the sweep may be in the middle of a batch; a run in this
    #: process does not ask.
    may_ask: Callable[[int], bool] = lambda sweep: True
    #: ``saves(sweep)`` says whether the caller will ask for a snapshot after this sweep, so that
    #: the program can prepare it; by default this is not known.
    saves: Callable[[int], bool] = lambda sweep: False
    #: Files of the client for what does not fit into memory, shards, and all that `Rank` keeps in
    #: files; workers have their own.
    slices: Slices | None = None
    #: Called before each batch, on a cluster.  Returns a function that can be pickled, or None.
    #: The function gets the records of the batch so far, and says whether the run ends there.
    ends: Callable[[], Ends] = lambda: None
    #: Called when all shards have been loaded in this process.
    release: Callable[[], None] = lambda: None

    @property
    def sweeps(self) -> range:
        """Numbers of the sweeps."""
        return range(self.first, self.n_sweeps)


class BatchReport(NamedTuple):
    """What the client learns from a batch."""

    records: list[Named]
    #: Seconds of each sweep.
    seconds: list[float]
    #: Seconds that it took to begin.
    to_begin: float


@dataclass(frozen=True, eq=False)
class Beginning:
    """What a rank begins with in its first batch, at the end of sweep `sweep`."""

    program: AnyProgram
    #: The shards of each rank.
    groups: Groups
    sweep: int
    slices: Slices | None

    def start(
        self, communicator: Communicator, saved: tuple[Any, Any, Any] | None, shards: Sequence[Any]
    ) -> Rank:
        """Return the rank; `saved` is the part of a snapshot that it needs."""
        given = freeze(list(map(read_back, shards)))
        rank = Rank(self.program, communicator, self.groups, given, slices=self.slices)
        rank.begin(self.sweep, None if saved is None else Saved(*saved))
        return rank


class PausedRank:
    """A rank between two tasks.

    The next batch takes the rank out, and changes its states in place.

    Dask may move the object to disk and back; the states are then writable copies.  Once a batch
    has taken the rank, the object is empty, so Dask never writes states to disk while they change.
    """

    def __init__(self, rank: Rank, sweep: int, told: BatchReport | None = None) -> None:
        rank.leave()
        self.rank: Rank | None = rank
        self.sweep = sweep
        self.told = told or BatchReport([], [], 0.0)

    def __setstate__(self, state: Named) -> None:
        self.__dict__.update(state)
        if self.rank is not None:
            self.rank.states = [self.rank.kept(claim(state)) for state in self.rank.states]
            self.rank.blocks = self.rank.kept(claim(self.rank.blocks))
            self.rank.model = freeze(self.rank.model)

    def __sizeof__(self) -> int:
        """Return the bytes of states and blocks in memory."""
        held = [] if self.rank is None or self.rank.slices else [self.rank.states, self.rank.blocks]
        return object.__sizeof__(self) + nbytes(held)

    def take(self, sweep: int) -> Rank:
        """Return the rank at the end of `sweep`; it can be taken only once."""
        rank = self.rank
        self.rank = None
        if rank is None or self.sweep != sweep:
            raise WorkLostError("a rank has gone on already")
        return rank

    @contextmanager
    def at_work(self, communicator: Communicator, shards: Sequence[Any]) -> Iterator[Rank]:
        """Lend the rank, with a communicator and its shards, to a caller who does not change it."""
        if self.rank is None:
            raise WorkLostError("a rank has gone on already")
        self.rank.join(communicator, shards)
        try:
            yield self.rank
        finally:
            self.rank.leave()


@one_blas_thread()
def load(function: Function, slices: Slices | None, *pieces: Any) -> Any:
    """Call the function of a source with its pieces, and return the result; see `filed`."""
    return filed(slices, freeze(function(*freeze(list(pieces)))))


def filed(slices: Slices | None, value: Any) -> Any:
    """Return a result of a task, which `read_back` reads.

    With `slices`, its arrays are moved to files.
    """
    return value if slices is None else Filed(slices.keep(value))


@one_blas_thread()
def advance(
    communicator: Communicator, held: PausedRank | Beginning, batch: Batch, saved: Any, *shards: Any
) -> PausedRank:
    """Let a rank do the sweeps of a batch.

    Parameters
    ----------
    communicator : Communicator
    held : PausedRank or Beginning
        The rank after its last batch, or what it begins with.
    batch : Batch
    saved : object
        For a rank that begins, its part of a snapshot; otherwise something that has to be computed
        before this task.
    *shards : object
        The data of its shards.
    """
    started = perf_counter()
    if isinstance(held, Beginning):
        rank = held.start(communicator, saved, shards)
    else:
        rank = held.take(batch.first - 1)
        rank.join(communicator, shards)
    began = perf_counter()
    to_begin = began - started
    records = list[Named]()
    seconds = list[float]()
    sweep = last = batch.first + batch.n_sweeps - 1
    for sweep in range(batch.first, last + 1):
        records.append(rank.sweep(sweep, saves=batch.saves and sweep == last))
        before = began
        began = perf_counter()
        seconds.append(began - before)
        if batch.ends and batch.ends(records):
            break
    return PausedRank(
        rank, sweep, None if communicator.rank else BatchReport(records, seconds, to_begin)
    )


@one_blas_thread()
def observe(
    communicator: Communicator, held: PausedRank, stages: Sequence[Any], *shards: Any
) -> Named:
    """Return the record that the last sweep would have if it ended with these stages."""
    with held.at_work(communicator, shards) as rank:
        return rank.observe(stages)


@one_blas_thread()
def harvest(
    communicator: Communicator, held: PausedRank, *shards: Any
) -> tuple[Any, tuple[list[Any], Numbered]]:
    """Return the model, on rank 0, and the results of this rank's shards and blocks."""
    with held.at_work(communicator, shards) as rank:
        return None if communicator.rank else rank.model, rank.harvest()


@one_blas_thread()
def save(is_first: bool, held: PausedRank, *shards: Any) -> tuple[Any, float]:
    """Return the model, on the first rank, this rank's part of a snapshot, and the seconds.

    The seconds are those that this took.

    `read_back` gives model and part.
    """
    began = perf_counter()
    with held.at_work(Alone(), shards) as rank:
        saved = filed(rank.slices, (rank.model if is_first else None, rank.save()))
    return saved, perf_counter() - began


def in_order(
    model: Any,
    groups: Groups,
    of_ranks: Sequence[tuple[list[Any], Numbered]],
) -> tuple[Any, list[Any], list[Any]]:
    """Return the model, the values of all shards and those of all blocks, by their numbers."""
    shards: Numbered = {}
    blocks: Numbered = {}
    for group, (of_shards, of_blocks) in zip(groups, of_ranks, strict=True):
        shards |= zip(group, of_shards, strict=True)
        blocks |= of_blocks
    return model, [shards[p] for p in sorted(shards)], [blocks[b] for b in sorted(blocks)]
