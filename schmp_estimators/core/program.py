"""The contract between an algorithm and the engines that run it.

A program is scheduled model parallelism in three functions, after Kim et al. (EuroSys 2016, sections 2 and 3):

=========  ==========================================================================================
schedule   says in which order the shards of the data meet the blocks of the model in one sweep
update     works on one shard, and in a rotation on the one block that this shard holds at that moment
aggregate  turns what all the shards report into the new shared part of the model
=========  ==========================================================================================

What a program handles comes in four kinds, each a NumPy array, a number or a (nested) tuple of them:

=========  ==========================================================================================
shard      the data of one worker; never changes
state      what belongs to one shard and changes: topic assignments, user factors
block      a piece of the model that belongs to no shard: the word rows of some words, some item factors
model      the small part of the model that every update reads: topic totals, step sizes
=========  ==========================================================================================

Programs are pure functions on these values.  They know neither Dask nor threads nor files, and hold parameters only:
a program is pickled into every task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from schmp_estimators.core.places.place import Each


class Rotation(NamedTuple):
    """A stage in which every shard meets every block once, no two shards the same block at the same time."""

    name: str
    #: ``order[step][shard]`` is the block that the shard meets in this step.
    order: tuple[tuple[int, ...], ...]
    #: Whether the update changes the block.  A changed block goes on to the next shard that wants it, as soon as it is
    #: ready; blocks that are only read need not wait for each other.
    moves: bool
    #: Whether an update gets only the piece of the state that belongs to the block (`Program.split`).
    divided: bool
    #: Whether every step ends in `Program.aggregate`: a barrier, after which all shards read the new model.
    synced: bool = False


class Local(NamedTuple):
    """A stage in which every shard works on its own, and which ends in `Program.aggregate`: a barrier."""

    name: str
    #: Whether the updates return parts, from which `Program.combine` makes all blocks anew.
    parts: bool = False


Stage = Rotation | Local


class Visit(NamedTuple):
    """What one call of `Program.update` sees."""

    stage: str
    sweep: int
    model: Any
    shard: Any
    #: The state of the shard, or its piece for this block.  The update owns it and may write into it.
    state: Any
    #: Number of the block, -1 in a local stage.
    block_index: int
    #: The block.  In a stage that moves blocks the update owns it and may write into it; elsewhere it is read-only.
    block: Any
    #: ``each(function, jobs)`` returns ``[function(job) for job in jobs]``, perhaps with several threads.
    each: Each


class Outcome(NamedTuple):
    """What `Program.start` and `Program.update` return."""

    state: Any
    #: The changed block, in a stage that moves blocks.
    block: Any = None
    #: One part for each block, in a stage that returns parts.
    parts: Sequence[Any] = ()
    #: The report of this shard to `Program.aggregate`, in a local stage or a synced rotation.
    partial: Any = None


class Saved(NamedTuple):
    """All that a run needs to go on from the end of a sweep."""

    model: Any
    shards: Sequence[Any]
    blocks: Sequence[Any]


class Program(ABC):
    """An algorithm for the static engine.  Subclasses hold parameters only, and all their methods are pure."""

    #: The algorithm in a word or two; tasks on the dashboard are called ``<name>-<stage>``.
    name: ClassVar[str]

    def has_blocks(self, n_shards: int) -> bool:
        """Return whether the model is divided into blocks, as many as shards."""
        return True

    @abstractmethod
    def schedule(self, sweep: int, n_shards: int) -> tuple[Stage, ...]:
        """Return the stages of one sweep.  The last one must be local, so that a sweep ends in `aggregate`."""

    @abstractmethod
    def start(self, shard: Any, saved: Any, each: Each) -> Outcome:
        """Return the first state of a shard, with its parts for the blocks and its report to `aggregate`.

        `saved` is None, or what `save` returned at the end of a sweep: the run then goes on as if it had never stopped.
        """

    def start_block(self, index: int, parts: Sequence[Any], saved: Any) -> Any:
        """Return the first value of block `index`, from the parts of all shards or from what `save_block` returned."""
        return self.combine(index, parts)

    @abstractmethod
    def update(self, visit: Visit) -> Outcome:
        """Do the work of one cell: one shard, and in a rotation one block."""

    @abstractmethod
    def aggregate(self, model: Any, partials: Sequence[Any]) -> Any:
        """Return the new model from the reports of all shards, in shard order; `model` is None at the start.

        `model` itself is read-only.
        """

    def combine(self, index: int, parts: Sequence[Any]) -> Any:
        """Return block `index` from the parts that all shards, in shard order, made for it."""
        raise NotImplementedError(f"{type(self).__name__} has no blocks made of parts")

    def split(self, shard: Any, state: Any, index: int) -> Any:
        """Return the piece of the state that belongs to block `index`, as views, not copies."""
        raise NotImplementedError(f"{type(self).__name__} does not divide its state")

    def join(self, shard: Any, pieces: Sequence[Any]) -> Any:
        """Return a state made of the pieces of all blocks, in block order; it shares no memory with them."""
        raise NotImplementedError(f"{type(self).__name__} does not divide its state")

    @abstractmethod
    def save(self, shard: Any, state: Any) -> Any:
        """Return the least from which `start` can restore this state at the end of a sweep."""

    def save_block(self, block: Any) -> Any:
        """Return what `start_block` needs beyond the parts to restore this block at the end of a sweep."""
        return None

    def unpack(self, saved: Sequence[Any]) -> Saved:
        """Return what `Saved` was before it went through a file, where named tuples became lists."""
        return Saved(*saved)

    def measures(self, sweep: int) -> bool:
        """Return whether `measure_shard` and `measure_block` are wanted after this sweep."""
        return False

    def measure_shard(self, shard: Any, state: Any) -> Any:
        """Return what `progress` must know of this shard."""
        return None

    def measure_block(self, block: Any) -> Any:
        """Return what `progress` must know of this block."""
        return None

    @abstractmethod
    def progress(self, sweep: int, model: Any, shards: Sequence[Any], blocks: Sequence[Any]) -> dict[str, Any]:
        """Return the record of a sweep: plain numbers by name.  `shards` and `blocks` are measures, or empty."""

    def harvest_shard(self, shard: Any, state: Any) -> Any:
        """Return what the caller gets of this shard in the end."""
        return None

    def harvest_block(self, block: Any) -> Any:
        """Return what the caller gets of this block in the end."""
        return None


class Harvest(NamedTuple):
    """What is left of a run: the model, and what the program harvests of shards and blocks."""

    model: Any
    shards: list[Any]
    blocks: list[Any]
