"""Runs of static programs on a cluster: ranks do batches of sweeps, and the client hears of each batch.

It implements the static engine of STRADS (Kim et al., EuroSys 2016, section 3.3).  Shards stay with their rank, blocks
of the model go round, and ranks send each other what they need; the client only says for how many sweeps they may go
on.  Now and then it keeps a snapshot of the state, from which the run goes on if a worker is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from operator import attrgetter, getitem
from time import monotonic, perf_counter
from typing import Any, NamedTuple, TypeVar

from schmp_estimators.core.engine import batch
from schmp_estimators.core.engine.shards import made_anew
from schmp_estimators.core.errors import WorkLostError
from schmp_estimators.core.io.checkpoint import Checkpoint, settle
from schmp_estimators.core.io.slices import Slices, read_back
from schmp_estimators.core.places.place import Restores
from schmp_estimators.core.program import AnyProgram, Harvest, Saved, Source
from schmp_estimators.core.stages import check_stages

T = TypeVar("T")

#: Seconds after which a batch should end, so that the client hears of it.
LONGEST_BATCH = 2.0
#: Seconds between two snapshots, at least, and how many times longer than the last one took.
SNAPSHOT_EVERY, SNAPSHOT_SHARE = 5.0, 50.0


#: A checkpoint that somebody has asked for: see `GroupRun.keep`.
_Asked = tuple[Checkpoint, int, Callable[[Saved], Any]]


class _Pending(NamedTuple):
    """A state on its way to the client while the next sweeps run."""

    sweep: int
    #: Of each rank, what `batch.save` returns.
    saved: list[Any]
    began: float
    asked: _Asked | None = None


class GroupRun:
    """A run of a program on a cluster: iterate over it to get the record of each sweep.

    Between two steps of the iteration the run can be asked for its harvest, or for what a restart needs.  Use it as a
    context manager: whatever happens, nothing is left on the cluster.

    Parameters
    ----------
    program : Program
    sources : sequence of Source
        One for each shard.
    place : DaskPlace
    n_sweeps : int
        Number of the sweep before which to stop.
    saved : Saved, optional
        What `save` returned after sweep ``first - 1``; if its model is None, it is made of the shards' reports.
    first : int, default=0
        Number of the first sweep.
    may_ask : callable, optional
        ``may_ask(sweep)`` says whether the caller may ask for anything but the record after a sweep, or end the run
        there; by default it may after each.  Where it does not, the sweep may be in the middle of a batch.
    saves : callable, optional
        ``saves(sweep)`` says whether the caller will ask for what a restart needs after a sweep, so that the program
        can be told; by default that is not known.
    slices : Slices, optional
        Files of what does not fit into memory, of the client; workers have theirs.
    ends : callable, optional
        Called before each batch.  Returns a function that says of the records of the batch so far whether the caller
        will end the run there, and that can be pickled; None if it will not.

    Attributes
    ----------
    took : float or None
        Seconds of the current sweep, where several came at the same time.

    Raises
    ------
    WorkerLostError
        If workers died again and again without any progress in between.
    """

    def __init__(
        self,
        program: AnyProgram,
        sources: Sequence[Source],
        place: Any,
        *,
        n_sweeps: int,
        saved: Saved | None = None,
        first: int = 0,
        may_ask: Callable[[int], bool] = lambda sweep: True,
        saves: Callable[[int], bool] = lambda sweep: False,
        slices: Slices | None = None,
        ends: Callable[[], batch.Ends] = lambda: None,
    ) -> None:
        self._program, self._sources, self._place, self._slices = program, sources, place, slices
        self._sweeps, self._may_ask, self._will_save, self._ends = range(first, n_sweeps), may_ask, saves, ends
        self._restores = Restores(place, "a sweep being done")
        self.took: float | None = None
        #: Records of sweeps that are done, among them all that the caller has not got to, and their seconds.
        self._told: dict[int, tuple[dict[str, Any], float]] = {}
        #: Number of the sweep that the caller has got to.
        self._current = first - 1
        #: The last snapshot, the sweep after which it was taken, and when the next one is due.
        self._saved, self._cut, self._due = saved, first - 1, monotonic() + SNAPSHOT_EVERY
        self._pending: _Pending | None = None
        self._kept: Checkpoint | None = None
        #: Whether the last snapshot has come since somebody looked who has come to the cluster.
        self._has_news = False
        #: A checkpoint that was asked for after a sweep, and was not made when work was lost.
        self._unmade: tuple[int, _Asked] | None = None
        self._groups: list[list[int]] = []
        self._shards: list[Any] = []
        #: What sources tell beside their shards, until somebody has asked for it.
        self._telling: dict[int, Any] = {}
        self._was_asked = not any(source.tells for source in sources)
        #: Each rank as it is after sweep `_done`, or what it begins with; nothing, if the run has lost its ranks.
        self._ranks: list[Any] = []
        #: What each rank needs of the snapshot, if it has still to begin.
        self._given: list[Any] = []
        self._done = first - 1
        self._pace: float | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for sweep in self._sweeps:
            self._surviving(partial(self._advance, sweep))
            record, self.took = self._told.pop(sweep)
            self._current = sweep
            self._restores.forget()
            yield record

    def told_by_sources(self) -> list[Any]:
        """Return, once, what each source has told beside its shard; None, if it does not."""
        told = self._surviving(
            lambda: {p: self._place.results([one])[0] for p, one in sorted(self._telling.items())}
        )  # one by one: the first is brought while others are made
        self._place.release(list(self._telling.values()))
        self._telling, self._was_asked = {}, True
        return [told.get(p) for p in range(len(self._sources))]

    def harvest(self) -> Harvest:
        """Return the model and what the program harvests of shards and blocks after the current sweep."""
        found = self._at_current(lambda: self._call("harvest", batch.harvest, self._args()))
        return Harvest(*batch.in_order(found[0][0], self._groups, [of_rank for _, of_rank in found]))

    def save(self) -> Saved:
        """Return all that a run needs to go on after the current sweep."""
        if self._cut == self._current and self._saved and self._saved.model is not None:
            return self._saved

        def action() -> Saved:
            pending = self._send_saved()
            try:
                return self._collected(pending)
            finally:
                self._place.release(pending.saved)

        return self._at_current(action)

    def keep(self, checkpoint: Checkpoint, done: int, values: Callable[[Saved], Any]) -> None:
        """Let a checkpoint of the current sweep be written while the next sweeps run.

        Parameters
        ----------
        checkpoint : Checkpoint
        done : int
            As in `Checkpoint.write`.
        values : callable
            ``values(saved)`` returns what to write.
        """

        def action() -> None:
            self._settle()
            self._pending = self._send_saved((checkpoint, done, values))

        self._at_current(action)

    def observe(self, stages: Any) -> dict[str, Any]:
        """Return the record that the current sweep would have if these stages, which observe, were its last ones."""
        n = len(self._sources)
        checked = check_stages(self._program, stages, n, self._program.n_blocks(n))
        records = self._at_current(lambda: self._call("observe", batch.observe, self._args(checked)))
        return dict(records[0])

    def __enter__(self) -> GroupRun:
        """Load the shards now, not with the first sweep."""
        try:
            self._surviving(lambda: None)
        except BaseException:
            self._forget()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Finish a checkpoint that is being written, and let go of everything."""
        try:
            if error is None and self._pending:
                self._surviving(self._settle)
            elif self._pending and self._pending.asked:
                with suppress(Exception):  # what the run ends with is the error that counts
                    self._settle()
        finally:
            self._forget()
            settle(self._kept, error)

    def _surviving(self, action: Callable[[], T]) -> T:
        """Return what `action` returns; if work is lost on the way, go on from the last snapshot and try again."""
        while True:
            try:
                if not self._ranks:
                    self._begin()
                return action()
            except WorkLostError as error:
                self._forget()
                if self._place.are_gone(piece for source in self._sources for piece in source.pieces):
                    raise  # only who has brought the input can bring it again
                self._restores.prepare(error, f"going on from the end of sweep {self._cut}")

    def _at_current(self, action: Callable[[], T]) -> T:
        """Return what `action` returns when ranks are at the end of the current sweep; after a loss, again."""

        def reached() -> T:
            self._reach(self._current)
            return action()

        return self._surviving(reached)

    def _forget(self) -> None:
        """Let go of all that is on the cluster; a checkpoint that was asked for will have to be made again."""
        pending, self._pending = self._pending, None
        if pending and pending.asked:
            self._unmade = pending.sweep, pending.asked
        sent = pending.saved if pending else []
        self._place.release([*self._ranks, *self._given, *self._shards, *self._telling.values(), *sent])
        self._ranks, self._given, self._shards, self._telling = [], [], [], {}

    def _begin(self) -> None:
        """Load the shards, and say what ranks begin with in their first batch: the last snapshot, if there is one."""
        self._groups = self._place.groups(len(self._sources))
        self._load()
        for group in self._groups:
            self._given.append(self._place.bring(self._needed(group), group[0]) if self._saved else None)
        self._place.wait(self._shards)  # ranks wait for each other: what they need has to be there
        beginning = batch.Beginning(self._program, self._groups, self._cut, self._slices)
        self._ranks = [beginning] * len(self._groups)
        self._done = self._cut
        if self._unmade:
            self._reach(self._unmade[0])
            self._pending, self._unmade = self._send_saved(self._unmade[1]), None

    def _needed(self, group: Sequence[int]) -> tuple[Any, Any, Any]:
        """Return what the rank with these shards needs of the last snapshot."""
        assert self._saved is not None
        n, blocks = len(self._sources), dict[int, Any]()
        if self._program.saves_blocks:
            owners = made_anew(range(n), self._program.n_blocks(n))  # the shard whose rank begins with each block
            blocks = {b: self._saved.blocks[b] for b, p in enumerate(owners) if p in group}
        return self._saved.model, {p: self._saved.shards[p] for p in group}, blocks

    def _load(self) -> None:
        """Let the shards be loaded, those of each rank in turn: workers begin while the client sends others."""
        shards = self._shards = [None] * len(self._sources)  # whatever happens, what is there is let go of
        for p in [p for some in zip_longest(*self._groups) for p in some if p is not None]:
            function, pieces, tells = self._sources[p]
            shards[p] = self._place.load(self._word("load"), batch.load, pieces, p, function, self._slices)
            if tells:
                loaded, needed = shards[p], range(1 if self._was_asked else 2)
                found = [self._place.call(self._word("load"), getitem, (loaded, at), p) for at in needed]
                shards[p] = found[0]
                if not self._was_asked:
                    self._telling[p] = found[1]
                self._place.release([loaded])

    def _word(self, what: str) -> str:
        return f"{self._program.name}-{what}"

    def _call(
        self, what: str, function: Callable[..., Any], args: Sequence[tuple[Any, ...]], *, keep: bool = False
    ) -> Any:
        """Let all ranks call a function together; return the results, or what `keep` keeps there and what it tells."""
        told = attrgetter("told") if keep else None
        return self._place.call_ranks(self._word(what), function, args, self._groups, told)

    def _args(self, *more: Any) -> list[tuple[Any, ...]]:
        """Return the arguments of each rank: where it is, what else all need, and its shards."""
        return [
            (self._place.in_place(rank), *more, *[self._shards[p] for p in group])
            for rank, group in zip(self._ranks, self._groups, strict=True)
        ]

    def _reach(self, sweep: int) -> None:
        """Let ranks have begun, and after a loss be at the end of a sweep that the caller has got to."""
        while self._done < sweep or self._given:
            self._work(min(sweep - self._done, self._length(self._done + 1)))

    def _advance(self, sweep: int) -> None:
        """Let ranks go on until the record of a sweep is there."""
        while sweep not in self._told:
            if self._has_news and self._place.deal():  # workers have come: shards go where they belong now
                self._forget()
                self._begin()
            self._has_news = False
            if self._done < sweep - 1:
                self._reach(sweep - 1)
            if self._pending is None and self._done > self._cut and monotonic() > self._due:
                self._pending = self._send_saved()
            self._work(self._length(self._done + 1))

    def _length(self, first: int) -> int:
        """Return how many sweeps to do in a batch that begins with sweep `first`."""
        most = 1 if self._pace is None else max(1, int(LONGEST_BATCH / self._pace))
        for sweep in range(first, min(first + most, self._sweeps.stop)):
            if self._may_ask(sweep) or self._will_save(sweep):
                return sweep + 1 - first
        return min(most, self._sweeps.stop - first)

    def _work(self, n_sweeps: int) -> None:
        """Let ranks do a batch of sweeps; of none, if they shall only begin."""
        first, began = self._done + 1, perf_counter()
        saves = self._will_save(first + n_sweeps - 1) or monotonic() + LONGEST_BATCH > self._due
        job = batch.Batch(first, n_sweeps, self._ends() if n_sweeps else None, saves)
        saving = (
            self._pending.saved if self._pending and self._pending.sweep == self._done else [None] * len(self._ranks)
        )
        given = zip(self._args(), self._given or saving, strict=True)
        args = [(held, job, saved, *shards) for (held, *shards), saved in given]
        before = [] if self._given else self._ranks
        self._ranks, told = self._call("sweeps", batch.advance, args, keep=True)
        self._place.release([*before, *self._given])
        self._given = []
        [records, seconds, to_begin] = told[0]
        scale = (perf_counter() - began) / max(to_begin + sum(seconds), 1e-9)
        for sweep, (record, one) in enumerate(zip(records, seconds, strict=True), first):
            self._told[sweep] = record, scale * one
        if records:
            self._pace = scale * sum(seconds) / len(records)
        self._done += len(records)
        self._settle()

    def _send_saved(self, asked: Any = None) -> _Pending:
        """Let ranks make what a restart needs; a checkpoint that is asked for is made of it, too."""
        saved = []
        for rank, (held, group) in enumerate(zip(self._ranks, self._groups, strict=True)):
            args = not rank, held, *(self._shards[p] for p in group)
            saved.append(self._place.call(self._word("save"), batch.save, args, group[0], pinned=True))
        return _Pending(self._done, saved, monotonic(), asked)

    def _settle(self) -> None:
        """Bring a snapshot to the client, and finish a checkpoint, if one is under way."""
        pending = self._pending
        if pending is None:
            return
        saved = self._collected(pending)
        self._place.release(pending.saved)
        self._pending = None
        now = monotonic()
        self._saved, self._cut, self._has_news = saved, pending.sweep, True
        self._due = now + max(SNAPSHOT_EVERY, SNAPSHOT_SHARE * (now - pending.began))
        if pending.asked:
            checkpoint, done, values = pending.asked
            self._kept = checkpoint
            checkpoint.write_behind(done, values(saved))

    def _collected(self, pending: _Pending) -> Saved:
        if self._slices is None:
            found = self._place.results(pending.saved)
        else:  # one by one, as they are large
            found = [self._slices.keep(read_back(self._place.results([one])[0])) for one in pending.saved]
        return Saved(*batch.in_order(found[0][0], self._groups, [of_rank for _, of_rank in found]))
