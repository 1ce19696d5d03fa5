"""Runs of static programs on a cluster: ranks do batches of sweeps.

The client gets the records of each batch.

It implements the static engine of STRADS (Kim et al., EuroSys 2016, section 3.3).  Each shard stays
with its rank, and ranks send blocks and messages to each other.  The client only decides how many
sweeps they do next.  From time to time it keeps a snapshot; if a worker is lost, the run continues
from the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from operator import attrgetter
from time import monotonic, perf_counter
from typing import Any, NamedTuple, TypeVar

from schmp_estimators.core.engine import batch
from schmp_estimators.core.engine.shards import made_anew
from schmp_estimators.core.errors import WorkLostError
from schmp_estimators.core.io.checkpoint import Checkpoint, settle
from schmp_estimators.core.io.slices import read_back
from schmp_estimators.core.places.place import Load, Restores
from schmp_estimators.core.program import AnyProgram, Harvest, Parts, Saved, Source
from schmp_estimators.core.stages import check_stages
from schmp_estimators.core.typing import Arguments, Function, Named, Numbered, Unary

T = TypeVar("T")

#: Seconds that a batch should take at most, so that the client gets records that often.
LONGEST_BATCH = 2.0
#: Smallest time between two snapshots: in seconds, and as a multiple of the time for which the last
#: one kept ranks from their sweeps.
SNAPSHOT_EVERY, SNAPSHOT_SHARE = 5.0, 50.0


#: A requested checkpoint: the arguments of `GroupRun.keep`.
_Asked = tuple[Checkpoint, int, Callable[[Saved], Any]]


class _Pending(NamedTuple):
    """A snapshot that ranks have made; the client collects it after the next batch."""

    sweep: int
    #: The result of `batch.save` on each rank.
    saved: list[Any]
    asked: _Asked | None = None


class GroupRun:
    """A run of a program on a cluster: iterate over it to get the record of each sweep.

    Between two steps of the iteration the caller can ask the run for its result or for a snapshot.
    Use it as a context manager: it leaves nothing on the cluster, even after an error.

    Parameters
    ----------
    program : Program
    sources : sequence of Source, or Parts
        One for each shard, or parts of which each rank makes one shard.
    place : DaskPlace
    course : Course

    Attributes
    ----------
    took : float or None
        Seconds of the current sweep; None before the first one.

    Raises
    ------
    WorkerLostError
        If workers died again and again without any progress in between.
    """

    def __init__(
        self,
        program: AnyProgram,
        sources: Sequence[Source] | Parts,
        place: Any,
        course: batch.Course,
    ) -> None:
        self._program = program
        self._parts = sources if isinstance(sources, Parts) else None
        self._sources: Sequence[Source] = () if isinstance(sources, Parts) else sources
        self._place = place
        self._course = course._replace(saved=None)  # which a later snapshot replaces
        self._slices = course.slices
        self._restores = Restores(place, "a further sweep was recorded")
        self.took: float | None = None
        #: Records and seconds of sweeps that are done: of all that the caller has not reached, and
        #: perhaps of others.
        self._told: dict[int, tuple[Named, float]] = {}
        #: Number of the sweep that the caller has reached.
        self._current = course.first - 1
        #: The last snapshot, the sweep after which it was taken, and the time at which the next one
        #: is due.
        self._saved = course.saved
        self._cut = course.first - 1
        self._due = monotonic() + SNAPSHOT_EVERY
        self._pending: _Pending | None = None
        self._kept: Checkpoint | None = None
        #: Whether a snapshot has come since the run last looked for new workers.
        self._has_news = False
        #: A requested checkpoint that was lost before it was made, and the sweep that it belongs
        #: to.
        self._unmade: tuple[int, _Asked] | None = None
        self._groups: list[list[int]] = []
        #: For each shard the number by which the place knows its worker: its own, or that of its
        #: first part.
        self._near: Sequence[int] = ()
        self._shards: list[Any] = []
        #: What sources return beside their shards, until the caller has asked for it.
        self._telling: Numbered = {}
        self._was_asked = not any(source.tells for source in self._sources)
        #: Each rank after sweep `_done`, or what it begins with; empty if the run has lost its
        #: ranks.
        self._ranks: list[Any] = []
        #: What each rank needs of the snapshot, until it has begun.
        self._given: list[Any] = []
        self._done = course.first - 1
        self._pace: float | None = None

    def __iter__(self) -> Iterator[Named]:
        for sweep in self._course.sweeps:
            self._surviving(partial(self._advance, sweep))
            record, self.took = self._told.pop(sweep)
            self._current = sweep
            self._restores.forget()
            yield record

    def told_by_sources(self) -> list[Any]:
        """Return, once, what each source has returned beside its shard.

        It is None for a source that returns a shard.
        """
        told = self._surviving(
            lambda: dict(
                zip(self._telling, self._place.results([*self._telling.values()]), strict=True)
            )
        )
        self._place.release(list(self._telling.values()))
        self._telling = {}
        self._was_asked = True
        return [told.get(p) for p in range(len(self._sources))]

    def harvest(self) -> Harvest:
        """Return the model and the results of shards and blocks after the current sweep."""
        found = self._at_current(lambda: self._call("harvest", batch.harvest, self._args()))
        return Harvest(
            *batch.in_order(found[0][0], self._groups, [of_rank for _, of_rank in found])
        )

    #: The workers release the shards with the run.
    finish = harvest

    def save(self) -> Saved:
        """Return a snapshot of the end of the current sweep."""
        if self._cut == self._current and self._saved and self._saved.model is not None:
            return self._saved

        def action() -> Saved:
            pending = self._send_saved()
            try:
                return self._collected(pending)[0]
            finally:
                self._place.release(pending.saved)

        return self._at_current(action)

    def keep(self, checkpoint: Checkpoint, done: int, values: Callable[[Saved], Any]) -> None:
        """Request a checkpoint of the current sweep; it is written while the next sweeps run.

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

    def observe(self, stages: Unary) -> Named:
        """Return the record that the current sweep would have if it ended with these stages.

        They are ``stages(n_shards)``.

        These are made by `observes`.
        """

        def action() -> list[Named]:
            n = len(self._sources)
            checked = check_stages(self._program, stages(n), n, self._program.n_blocks(n))
            found: list[Named] = self._call("observe", batch.observe, self._args(checked))
            return found

        return dict(self._at_current(action)[0])

    def __enter__(self) -> GroupRun:
        """Load the shards now, not with the first sweep."""
        try:
            self._surviving(lambda: None)
        except BaseException:
            self._forget()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Finish a checkpoint that is being written, and release everything."""
        try:
            if error is None and self._pending:
                self._surviving(self._settle)
            elif self._pending and self._pending.asked:
                with suppress(Exception):  # the caller gets the error that ended the run
                    self._settle()
        finally:
            self._forget()
            settle(self._kept, error)

    def _surviving(self, action: Callable[[], T]) -> T:
        """Return what `action` returns.

        If work is lost, restart from the last snapshot and try again.
        """
        while True:
            try:
                if not self._ranks:
                    self._begin()
                return action()
            except WorkLostError as error:
                self._forget()
                going_on = (
                    f"going on after sweep {self._cut + 1}" if self._cut >= 0 else "starting again"
                )
                needed = [piece for source in self._sources for piece in source.pieces]
                self._restores.prepare(error, going_on, self._parts.held if self._parts else needed)

    def _at_current(self, action: Callable[[], T]) -> T:
        """Return what `action` returns when the ranks are at the end of the current sweep.

        Repeat it after a loss.
        """

        def reached() -> T:
            self._reach(self._current)
            return action()

        return self._surviving(reached)

    def _forget(self) -> None:
        """Release everything on the cluster; a requested checkpoint will have to be made again."""
        pending = self._pending
        self._pending = None
        if pending and pending.asked:
            self._unmade = pending.sweep, pending.asked
        sent = pending.saved if pending else []
        self._place.release(
            [*self._ranks, *self._given, *self._shards, *self._telling.values(), *sent]
        )
        self._ranks = []
        self._given = []
        self._shards = []
        self._telling = {}

    def _begin(self) -> None:
        """Load the shards, and set what ranks begin with in their first batch.

        That is the last snapshot, if there is one.
        """
        self._divide()
        self._load()
        for group in self._groups:
            near = self._near[group[0]]
            self._given.append(
                self._place.bring(self._needed(group), near) if self._saved else None
            )
        self._place.wait(
            self._shards
        )  # ranks wait for each other, so all shards have to be there first
        beginning = batch.Beginning(self._program, self._groups, self._cut, self._slices)
        self._ranks = [beginning] * len(self._groups)
        self._done = self._cut
        if self._unmade:
            self._reach(self._unmade[0])
            self._pending = self._send_saved(self._unmade[1])
            self._unmade = None

    def _divide(self) -> None:
        """Choose the shards of each rank; of parts, make one shard for each rank."""
        if self._parts is None:
            self._groups = self._place.groups(len(self._sources))
            self._near = range(len(self._sources))
            return
        members = self._place.groups(self._parts.n_parts)
        sizes = list(map(len, members))
        self._sources = self._parts.shards(sizes)
        self._saved = self._saved and self._parts.cut(self._saved, sizes)
        self._groups = [[rank] for rank in range(len(members))]
        self._near = [parts[0] for parts in members]

    def _needed(self, group: Sequence[int]) -> tuple[Any, Any, Any]:
        """Return the part of the last snapshot that the rank with these shards needs."""
        assert self._saved is not None
        n = len(self._sources)
        blocks = Numbered()
        if self._program.saves_blocks:
            owners = made_anew(
                range(n), self._program.n_blocks(n)
            )  # the shard whose rank begins with each block
            blocks = {b: self._saved.blocks[b] for b, p in enumerate(owners) if p in group}
        return self._saved.model, {p: self._saved.shards[p] for p in group}, blocks

    def _load(self) -> None:
        """Start loading the shards, in turn for each rank.

        Workers begin while the client sends other shards.
        """
        in_turn = [p for some in zip_longest(*self._groups) for p in some if p is not None]
        n_asked = 1 if self._was_asked else 2

        def loads() -> Iterator[Load]:
            for p in in_turn:
                function, pieces, tells = self._sources[p]
                call = partial(batch.load, function, self._slices)
                yield Load(call, pieces, self._near[p], n_asked if tells else 0)

        self._shards = [None] * len(self._sources)
        made = self._place.load(self._word("load"), loads())
        for p, found in zip(in_turn, made, strict=True):
            self._shards[p] = found[0]
            if len(found) > 1:
                self._telling[p] = found[1]

    def _word(self, what: str) -> str:
        return f"{self._program.name}-{what}"

    def _call(
        self,
        what: str,
        function: Function,
        args: Sequence[Arguments],
        *,
        keep: bool = False,
    ) -> Any:
        """Let all ranks call a function together; return the results.

        With `keep` these are futures, and what rank 0 tells.
        """
        told = attrgetter("told") if keep else None
        near = [self._near[group[0]] for group in self._groups]
        return self._place.call_ranks(self._word(what), function, args, near, told)

    def _args(self, *more: Any) -> list[Arguments]:
        """Return the arguments of each rank.

        They are the rank itself, further arguments common to all, and its shards.
        """
        return [
            (self._place.in_place(rank), *more, *[self._shards[p] for p in group])
            for rank, group in zip(self._ranks, self._groups, strict=True)
        ]

    def _reach(self, sweep: int) -> None:
        """Start the ranks if they have not begun; after a loss repeat sweeps up to `sweep`."""
        while self._done < sweep or self._given:
            self._work(min(sweep - self._done, self._length(self._done + 1)))

    def _advance(self, sweep: int) -> None:
        """Let ranks do batches until the record of a sweep is there."""
        while sweep not in self._told:
            if (
                self._has_news and self._place.deal()
            ):  # workers have joined: shards are distributed anew
                self._forget()
                self._begin()
            self._has_news = False
            if self._done < sweep - 1:
                self._reach(sweep - 1)
            if self._pending is None and self._done > self._cut and monotonic() > self._due:
                self._pending = self._send_saved()
            self._work(self._length(self._done + 1))

    def _length(self, first: int) -> int:
        """Return the number of sweeps in a batch that begins with sweep `first`."""
        most = 1 if self._pace is None else max(1, int(LONGEST_BATCH / self._pace))
        for sweep in range(first, min(first + most, self._course.n_sweeps)):
            if self._course.may_ask(sweep) or self._course.saves(sweep):
                return sweep + 1 - first
        return min(most, self._course.n_sweeps - first)

    def _work(self, n_sweeps: int) -> None:
        """Let ranks do a batch of `n_sweeps` sweeps; if there are none, ranks only begin."""
        first = self._done + 1
        began = perf_counter()
        saves = self._course.saves(first + n_sweeps - 1) or monotonic() + LONGEST_BATCH > self._due
        job = batch.Batch(first, n_sweeps, self._course.ends() if n_sweeps else None, saves)
        saving = (
            self._pending.saved
            if self._pending and self._pending.sweep == self._done
            else [None] * len(self._ranks)
        )
        given = zip(self._args(), self._given or saving, strict=True)
        args = [(held, job, saved, *shards) for (held, *shards), saved in given]
        before = [] if self._given else self._ranks
        self._ranks, told = self._call("sweeps", batch.advance, args, keep=True)
        self._place.release([*before, *self._given])
        self._given = []
        records, seconds, to_begin = told
        scale = (perf_counter() - began) / max(to_begin + sum(seconds), 1e-9)
        for sweep, (record, one) in enumerate(zip(records, seconds, strict=True), first):
            self._told[sweep] = record, scale * one
        if records:
            self._pace = scale * sum(seconds) / len(records)
        self._done += len(records)
        self._settle()

    def _send_saved(self, asked: Any = None) -> _Pending:
        """Let ranks make a snapshot.

        If a checkpoint is requested, it is written from this snapshot.
        """
        saved = []
        for rank, (held, group) in enumerate(zip(self._ranks, self._groups, strict=True)):
            args = not rank, held, *(self._shards[p] for p in group)
            near = self._near[group[0]]
            saved.append(self._place.call(self._word("save"), batch.save, args, near))
        return _Pending(self._done, saved, asked)

    def _settle(self) -> None:
        """If a snapshot is pending, bring it to the client.

        Write the checkpoint that was requested with it.
        """
        pending = self._pending
        if pending is None:
            return
        began = monotonic()
        saved, seconds = self._collected(pending)
        self._place.release(pending.saved)
        self._pending = None
        now = monotonic()
        self._saved = saved
        self._cut = pending.sweep
        self._has_news = True
        self._due = now + max(SNAPSHOT_EVERY, SNAPSHOT_SHARE * (seconds + now - began))
        if pending.asked:
            checkpoint, done, values = pending.asked
            if self._kept is not checkpoint:
                settle(self._kept, None)  # what another file still writes
            self._kept = checkpoint
            checkpoint.write_behind(done, values(saved))

    def _collected(self, pending: _Pending) -> tuple[Saved, float]:
        """Bring a snapshot to the client; return it, and the seconds that ranks took to make it."""
        if self._slices is None:
            found = self._place.results(pending.saved)
        else:  # one by one, because they are large
            one_by_one = (self._place.results([future])[0] for future in pending.saved)
            found = [(self._slices.keep(read_back(one)), took) for one, took in one_by_one]
        parts, seconds = zip(*found, strict=True)
        return Saved(
            *batch.in_order(parts[0][0], self._groups, [of_rank for _, of_rank in parts])
        ), max(seconds)
