"""The shards of a rank: their states, the calls of functions on them, and their reports.

Threads of the rank work on all shards together.  If data are in files, the rank works on one shard
after the other.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import zip_longest
from threading import Lock
from time import time
from typing import Any, TypeVar

from schmp_estimators.core.engine.communicator import Alone, Communicator
from schmp_estimators.core.io.slices import Slices, read_back
from schmp_estimators.core.program import AnyProgram, Groups
from schmp_estimators.core.reduction import Nodes, add_up
from schmp_estimators.core.stages import At, Stage, in_turn, name_of, naming
from schmp_estimators.core.typing import Binary, Named, Numbered
from schmp_estimators.core.values import freeze, own_views

T = TypeVar("T")


def made_anew(rank_of: Sequence[int], n_blocks: int) -> tuple[int, ...]:
    """Return the rank that holds each block after all blocks have been made from parts."""
    return tuple([rank_of[block % len(rank_of)] for block in range(n_blocks)])


class Reports:
    """Reports of a rank's shards to `Program.aggregate`.

    They may be large, so they are merged early if allowed.
    """

    def __init__(
        self,
        n_shards: int,
        merge: Binary | None,
        sweep: int = -1,
        *,
        are_lists: bool = False,
    ) -> None:
        self.nodes: Nodes = {}
        self.merge = None if merge is None else partial(_merged, merge, sweep)
        #: Whether each shard has a list of reports.
        self.are_lists = are_lists
        self._n_shards = n_shards
        self._lock = Lock()

    def add(self, number: int, report: Any) -> None:
        """Add the report of a shard."""
        with self._lock:
            self.nodes[0, number] = freeze(report)
            if self.merge:
                self.nodes = add_up(self.nodes, self._n_shards, self.merge, least=2)


def _merged(merge: Any, sweep: int, left: Any, right: Any) -> Any:
    with naming(merge.__self__, name_of(merge), sweep):
        return freeze(merge(freeze(left), freeze(right)))


class Shards:
    """The shards of a rank, with their states, the blocks that the rank holds, and the model.

    Parameters
    ----------
    program : Program
    communicator : Communicator
    groups : sequence of sequences of int
        The shards of each rank.
    shards : sequence
        The data of this rank's shards.
    slices : Slices, optional
        Files for what does not fit into memory: states, blocks, and what shards exchange.  The rank
        then works on one shard after the other.

    Attributes
    ----------
    states : list
        The state of each shard of this rank; functions change it in place.
    blocks : dict of int
        The blocks that this rank holds, by number.
    holders : tuple of int
        The rank that holds each block.
    model : object
        The last result of `Program.aggregate`; the same on all ranks.
    """

    def __init__(
        self,
        program: AnyProgram,
        communicator: Communicator,
        groups: Groups,
        shards: Sequence[Any],
        slices: Slices | None = None,
    ) -> None:
        self._program = program
        self._communicator = communicator
        self._groups = groups
        self.slices = slices
        self._n_shards = sum(map(len, groups))
        rank_of = {p: rank for rank, group in enumerate(groups) for p in group}
        self._rank_of = tuple([rank_of[p] for p in range(self._n_shards)])
        self._n_blocks = program.n_blocks(self._n_shards)
        numbered = zip(shards, groups[communicator.rank], strict=True)
        shared: Named = {"n_blocks": self._n_blocks, "each": communicator.each}
        self._ats = [At(shard, None, -1, p, self._n_shards, **shared) for shard, p in numbered]
        self._position = {at.number: i for i, at in enumerate(self._ats)}
        self.states: list[Any] = [None] * len(self._ats)
        self.blocks: Numbered = {}
        self.holders = made_anew(self._rank_of, self._n_blocks)
        self.model: Any = None

    def release_shards(self) -> None:
        """Forget the data of the shards, but not their states."""
        self._ats = [at._replace(shard=None) for at in self._ats]

    def ask(self, name: str) -> list[Any]:
        """Call a method of the program on each shard, and return the results."""
        method = getattr(self._program, name)

        def answer(i: int, at: At) -> Any:
            with self._named(name, at):
                return self.kept(own_views(method(at, freeze(self.states[i]))))

        return self._for_each(answer, self.model)

    def join(self, communicator: Communicator, shards: Sequence[Any]) -> None:
        """Continue with another communicator of the same ranks, and this rank's shards."""
        self._communicator = communicator
        found = self.kept(
            list(map(read_back, shards))
        )  # Dask may have moved them to its disk and back
        given = zip(self._ats, freeze(found), strict=True)
        self._ats = [at._replace(each=communicator.each, shard=shard) for at, shard in given]

    def leave(self) -> None:
        """Drop the communicator and the data, so that the rank can be kept or pickled."""
        self._communicator = Alone()
        self._ats = [at._replace(each=in_turn, shard=None) for at in self._ats]

    def kept(self, value: T) -> T:
        """Return a value; if there are `slices`, its arrays are moved to files."""
        return value if self.slices is None else self.slices.keep(value)

    def _for_each(
        self, function: Callable[[int, At], T], model: Any, some: Sequence[int] | None = None
    ) -> list[T]:
        """Call a function on the shards of this rank, or on `some` of them; return results.

        The rank's threads call it.
        """
        ats = [at._replace(model=model) for at in self._ats]
        which = range(len(ats)) if some is None else some
        if self.slices is None:
            return self._communicator.each(lambda i: function(i, ats[i]), which)
        found = []
        for i, following in zip_longest(which, which[1:]):
            if following is not None:
                self.slices.read_ahead((ats[following].shard, self.states[following]))
            found.append(function(i, ats[i]))
            self.slices.leave()
        return found

    @contextmanager
    def _timed(self, stage: Stage, at: At) -> Iterator[None]:
        """Record the time of a call of a stage's function.

        Say in an error where it was raised.
        """
        began = time()
        with self._named(name_of(stage.function), at):
            yield
        self._communicator.note(self._word(stage), began, at.sweep, at.block)

    def _word(self, stage: Stage) -> str:
        """Return the name of a stage on the dashboard."""
        return f"{self._program.name}-{stage.name}"

    def _named(self, method: str, at: At) -> AbstractContextManager[None]:
        """Say in an error of a method of the program where it was raised."""
        where = f"shard {at.number}" + (f" and block {at.block}" if at.block >= 0 else "")
        return naming(self._program, method, at.sweep, where)

    def _turns(self) -> list[range]:
        """Return positions of the shards that exchange at a time.

        They are all, or one of each rank if data are in files.
        """
        most = max(map(len, self._groups))
        return [range(most)] if self.slices is None else [range(j, j + 1) for j in range(most)]
