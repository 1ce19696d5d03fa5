"""The contract between an algorithm and the engine that runs it.

A program is scheduled model parallelism in three functions, after Kim et al. (EuroSys 2016,
sections 2 and 3):

- *schedule* says in which order the shards of the data meet the blocks of the model in one sweep.
- *update* works on one shard and perhaps one block: the functions that `schedule` names.
- *aggregate* computes the new shared part of the model from the reports of all shards.

A shard *meets* a block when an update is called with both.  `Program` describes the shards, states,
blocks and models that a program works on, each a NumPy array, a number or a (nested) tuple of them.

Programs are pure functions on these values.  They know neither Dask nor threads nor files, and hold
parameters only: a program is pickled, and each rank has its own copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from inspect import isfunction, signature
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from schmp_estimators.core.stages import (
    At,
    Stage,
    check_call,
    check_signatures,
    check_stages,
    naming,
)
from schmp_estimators.core.typing import Arguments, Function, Named
from schmp_estimators.core.values import own

State = TypeVar("State")
Block = TypeVar("Block")
Model = TypeVar("Model")
Report = TypeVar("Report")


class Source(NamedTuple):
    """The source of a shard: ``function(*pieces)``, called on the worker that will hold the shard.

    A piece is a callable that returns a value, or something that the place already holds.
    """

    function: Function
    pieces: Arguments = ()
    #: Whether the function returns the shard and a second value, which `told_by_sources` of the run
    #: returns.
    tells: bool = False


class Parts(ABC):
    """Data in consecutive parts, for a program whose results do not depend on how data are divided.

    The parts of a rank are joined to one shard: shards of one process would exchange what is in its
    memory already.
    """

    #: Into how many parts the data are divided, at least one for each rank.
    n_parts: int
    #: What the place holds of them.
    held: Sequence[Any] = ()

    @abstractmethod
    def shards(self, sizes: Sequence[int]) -> Sequence[Source]:
        """Return the sources of shards of so many parts each."""

    @abstractmethod
    def cut(self, saved: Saved, sizes: Sequence[int]) -> Saved:
        """Return what was saved of shards of any sizes, as if it had been saved of these."""


class Saved(NamedTuple):
    """All that a run needs to continue from the end of a sweep."""

    #: None: it is made from the reports of all shards.
    model: Any
    shards: Sequence[Any]
    #: Empty if `Program.restore` returns the parts from which blocks are made again.
    blocks: Sequence[Any]


def check_saved(saved: Saved, program: AnyProgram, n_shards: int) -> Saved:
    """Return what a checkpoint holds.

    Raise ValueError if it is not for so many shards of this program.
    """
    n_blocks = program.n_blocks(n_shards) if program.saves_blocks else 0
    _, shards, blocks = saved
    if (len(shards), len(blocks)) != (n_shards, n_blocks):
        raise ValueError(f"it has {len(shards)} shards and {len(blocks)} blocks")
    return saved


def check_program(program: AnyProgram, n_shards: int, sweeps: Sequence[int]) -> None:
    """Check the methods of a program, and its stages in some sweeps.

    Raises
    ------
    TypeError, ValueError
        If a method cannot be called with the arguments that it gets, or if a stage is wrong; the
        message says which.
    """
    for name, of_base in vars(Program).items():
        if isfunction(of_base) and name[0] != "_":
            what = f"{type(program).__name__}.{name}"
            check_call(getattr(program, name), what, *[*signature(of_base).parameters][1:])
    with naming(program, "n_blocks", -1):
        n_blocks = program.n_blocks(n_shards)
    for sweep in sweeps:
        with naming(program, "schedule", sweep):
            stages = check_stages(program, program.schedule(sweep, n_shards), n_shards, n_blocks)
        check_signatures(program, stages)
    with naming(program, "harvesting", -1):
        if (last := program.harvesting(n_shards)) is not None:
            [stage] = check_stages(program, last, n_shards, n_blocks)
            if stage.kind != "observes":
                raise ValueError(f"harvesting: the stage must be observes, not {stage.kind}")
            check_signatures(program, [stage])


class Harvest(NamedTuple):
    """The result of a run: the model, and what the program returns for shards and blocks."""

    model: Any
    shards: list[Any]
    blocks: list[Any]


class Program(ABC, Generic[State, Block, Model, Report]):
    """Base class of static programs, in which the order of all work is known beforehand.

    The data are divided into shards, which never change.  Each shard has a state, which changes.
    Large parts of a model are divided into blocks, which are sent from shard to shard.  The small
    rest, which most functions can read, is called the model here.  A sweep runs the stages that
    `schedule` returns.  A stage calls a function of the program for every shard.

    A subclass must define a string `name`, the methods `schedule`, `init`, `report` and
    `aggregate`, and the functions that `schedule` names.  Results may depend only on arguments and
    on constant attributes.

    Notes
    -----
    Most functions of a program have a first argument ``at``, with these attributes:

    ``at.shard``
        The data of the shard, read-only.
    ``at.model``
        What `aggregate` returned last, read-only.  It is None before the first call.  In `restore`
        it is the saved model, if there is one.
    ``at.sweep``, ``at.number``, ``at.n_shards``
        Index of the sweep, index of the shard, and number of shards.  In `init` and `restore`,
        ``at.sweep`` is one less than in the first sweep that follows.
    ``at.block``, ``at.n_blocks``
        Index of the current block, or -1 if there is none, and number of blocks.
    ``at.is_last``
        Whether this is the last block of the shard in this stage.  With the order of
        `schedule_rotation`, and as many blocks as shards, the first block of a shard has
        ``at.block == at.number``.
    ``at.each(function, jobs)``
        Returns ``[function(job) for job in jobs]``, perhaps computed by several threads.
    """

    #: The algorithm in a word or two; tasks on the dashboard are called ``<name>-<stage>``.
    name: ClassVar[str]
    #: Whether a checkpoint holds the blocks; otherwise `restore` returns parts from which they are
    #: made again.
    saves_blocks: ClassVar[bool] = True
    #: Whether functions that meet blocks read ``at.model``; if not, it is None there.
    meets_model: ClassVar[bool] = True

    @abstractmethod
    def schedule(self, sweep: int, n_shards: int) -> Stage | Sequence[Stage]:
        """Return the stages of one sweep, of which the last is made by `each` or `observes`."""

    @abstractmethod
    def init(self, at: At) -> tuple[State, Mapping[int, Any]]:
        """Return the first state of a shard, and a dict of its parts of blocks.

        The keys are the indices of the blocks.  The dict is empty if the shard has no parts.
        """

    @abstractmethod
    def report(self, at: At, state: State) -> Report:
        """Return the report of a shard, from which `aggregate` makes the model.

        `report` is called before the first sweep, and at the end of a stage made by `each` without
        `reports`.
        """

    @abstractmethod
    def aggregate(self, model: Model | None, reports: Sequence[Report]) -> Model:
        """Return the new model, made from the reports of all shards, in shard order.

        `model` is the previous model, or None before the first sweep.

        Both arguments are read-only.
        """

    def n_blocks(self, n_shards: int) -> int:
        """Return the number of blocks of the model, 0 if there are none; by default `n_shards`."""
        return n_shards

    def combine(self, index: int, parts: Sequence[Any]) -> Block:
        """Return block `index`, made from the parts that shards have of it, in shard order.

        By default, a block must have exactly one part.
        """
        if len(parts) != 1:
            raise NotImplementedError(
                f"{len(parts)} shards made parts of block {index}; write "
                f"{type(self).__name__}.combine, let one shard make it, or let n_blocks return 0 "
                "if the model has no blocks"
            )
        block: Block = parts[0]
        return block

    def save(self, at: At, state: State) -> Any:
        """Return what `restore` needs to recover the state at the end of a sweep.

        By default, this is the whole state.
        """
        return state

    def restore(self, at: At, saved: Any) -> tuple[State, Mapping[int, Any]]:
        """Return a state and parts of blocks, as `init` does, from what `save` returned.

        The run then continues as if it had not been interrupted.

        `saved` is read-only.
        """
        return own(saved), {}

    def record(self, sweep: int, model: Model) -> Named:
        """Return the record of a sweep, a dict of numbers by name."""
        return {}

    def harvest(self, at: At, state: State) -> Any:
        """Return the result of this shard at the end of the run."""
        return None

    def harvesting(self, n_shards: int) -> Stage | None:
        """Return None, or a final stage made by `observes` for a program without blocks.

        `run` returns the reports of this stage as the results of blocks.
        """
        return None

    def harvest_block(self, block: Block) -> Any:
        """Return the result of this block at the end of the run."""
        return None


AnyProgram = Program[Any, Any, Any, Any]
#: Numbers of the shards of each rank.
Groups = Sequence[Sequence[int]]


def identity(program: AnyProgram, names: Mapping[str, str]) -> Named:
    """Return the class and parameters of a dataclass program on which results depend.

    `names` has the user's names of those parameters that are called otherwise in the program.
    """
    kind = type(program)
    found = {"program": f"{kind.__module__}.{kind.__qualname__}"}
    names_of = (one.name for one in fields(program) if one.compare)  # type: ignore[arg-type]
    found |= {name: getattr(program, name) for name in names_of if name != "evaluate_every"}
    return {names.get(key, key): value for key, value in found.items()}
