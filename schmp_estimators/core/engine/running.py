"""Runs of programs from the data to the result: where they run, and how they continue.

Their checkpoints are here, too.

A run in this process has one rank with all shards; the threads of the process work on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from types import FunctionType
from typing import Any, ClassVar

from schmp_estimators.core.engine.batch import Course, in_order
from schmp_estimators.core.engine.communicator import Alone
from schmp_estimators.core.engine.dynamic import Save, check_saves, run_coroutine
from schmp_estimators.core.engine.rounds import Keeper, Piece, Rounds
from schmp_estimators.core.engine.static import GroupRun
from schmp_estimators.core.engine.sweep import Rank
from schmp_estimators.core.io.archive import pack
from schmp_estimators.core.io.checkpoint import Checkpoint, check_sweeps, identity_of_run, settle
from schmp_estimators.core.io.slices import read_back
from schmp_estimators.core.places.place import Place, choose_place
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.core.program import (
    AnyProgram,
    Harvest,
    Parts,
    Saved,
    Source,
    check_program,
    check_saved,
)
from schmp_estimators.core.stages import checked, described, name_of
from schmp_estimators.core.typing import Function, Named, Unary
from schmp_estimators.core.values import freeze, itself

Callback = Callable[[Named], bool | None] | None
Records = list[Named]


class LocalRun:
    """A run of a program in this process: iterate over it to get the record of each sweep.

    Between two steps of the iteration the caller can ask the run for its result or for a snapshot.

    Parameters
    ----------
    program, sources, course
        As in `GroupRun`.
    place : Place
        This process.
    """

    #: Seconds of a sweep are not measured here, because each sweep is reported as soon as it ends.
    took: ClassVar[None] = None

    def __init__(
        self,
        program: AnyProgram,
        sources: Sequence[Source] | Parts,
        course: Course,
        place: Place,
    ) -> None:
        self._program = program
        if isinstance(sources, Parts):
            sizes = [sources.n_parts]
            course = course._replace(saved=course.saved and sources.cut(course.saved, sizes))
            sources = sources.shards(sizes)
        self._course = course._replace(saved=None)  # which is needed only to begin
        self._kept: Checkpoint | None = None
        self._told: list[Any] = []
        slices = course.slices
        shards = []
        for load, pieces, tells in sources:
            brought = [piece() if callable(piece) else piece for piece in pieces]
            found = freeze(
                load(*freeze(brought)) if slices is None else slices.keep(load(*freeze(brought)))
            )
            shards.append(read_back(found[0] if tells else found))
            self._told.append(found[1] if tells else None)
        course.release()
        self._n_shards = len(shards)
        alone = Alone(place.each, place.n_threads)
        self._rank = Rank(program, alone, [range(len(shards))], shards, slices)
        self._rank.begin(course.first - 1, course.saved)

    def __iter__(self) -> Iterator[Named]:
        for sweep in self._course.sweeps:
            yield self._rank.sweep(sweep, saves=self._course.saves(sweep))

    def told_by_sources(self) -> list[Any]:
        """Return, once, what each source has returned beside its shard.

        It is None for a source that returns a shard.
        """
        told = self._told
        self._told = [None] * len(self._told)
        return told

    def harvest(self) -> Harvest:
        """Return the model and the results of shards and blocks after the current sweep."""
        return Harvest(*in_order(self._rank.model, [range(self._n_shards)], [self._rank.harvest()]))

    def finish(self) -> Harvest:
        """Release the shards, and then return the harvest.

        The program must not need the shards for it.
        """
        self._rank.release_shards()
        return self.harvest()

    def save(self) -> Saved:
        """Return a snapshot of the end of the current sweep."""
        return Saved(*in_order(self._rank.model, [range(self._n_shards)], [self._rank.save()]))

    def keep(self, checkpoint: Checkpoint, done: int, values: Callable[[Saved], Any]) -> None:
        """Request a checkpoint of the current sweep; arguments as in `GroupRun.keep`."""
        self._kept = checkpoint
        checkpoint.write_behind(done, values(self.save()))

    def observe(self, stages: Unary) -> Named:
        """Return the record that the current sweep would have if it ended with stages.

        They are as in `GroupRun.observe`.
        """
        return self._rank.observe(self._rank.checked(stages(self._n_shards)))

    def __enter__(self) -> LocalRun:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Wait for a checkpoint that is being written."""
        settle(self._kept, error)


AnyRun = LocalRun | GroupRun


def static_run(
    program: AnyProgram,
    sources: Sequence[Source] | Parts,
    place: Place,
    **options: Any,
) -> AnyRun:
    """Return a run of a static program, in this process or on a cluster.

    Parameters
    ----------
    program, sources, place
        As in `GroupRun`.
    **options
        Those of `Course`.

    Returns
    -------
    LocalRun or GroupRun
        A context manager.  Both have the same results, and leave nothing in the place.
    """
    course = Course(**options)
    if place.is_local:
        return LocalRun(program, sources, course, place)
    return GroupRun(program, sources, place, course)


def run_static(
    program: AnyProgram,
    pieces: Sequence[Any],
    *,
    sweeps: Any,
    callback: Callback,
    checkpoint: Any,
    every: int,
    n_jobs: int | None,
    engine: str,
) -> tuple[Records, Harvest]:
    """Run a static program; continue from its checkpoint if there is one."""
    check_program(program, len(pieces), (0, sweeps - 1))
    records: Records = []
    kept, saved = None, None
    if checkpoint is not None:
        kept = Checkpoint(checkpoint, identity_of_run(program.name, vars(program), pieces))

        def go_on(found: Named) -> tuple[Records, Saved]:
            check_sweeps(kept.url, len(found["records"]), sweeps, "sweeps")
            return found["records"], check_saved(found["saved"], program, len(pieces))

        records, saved = kept.read(go_on) or (records, saved)
    sources = [Source(piece) if callable(piece) else Source(itself, (piece,)) for piece in pieces]

    def saves(sweep: int) -> bool:
        return kept is not None and ((sweep + 1) % every == 0 or sweep + 1 == sweeps)

    def may_ask(sweep: int) -> bool:
        return callback is not None or sweep + 1 == sweeps or saves(sweep)

    with (
        one_blas_thread(),
        closing(Place())
        if engine == "serial"
        else choose_place(n_jobs, label=f"schmp-{program.name}") as place,
        static_run(
            program,
            sources,
            place,
            may_ask=may_ask,
            saves=saves,
            n_sweeps=sweeps,
            saved=saved,
            first=len(records),
        ) as static,
    ):
        if kept and not records:
            pack({}, static.save())  # raises if a checkpoint cannot hold it
        place.tell("begin", {"estimator": program.name, "total": sweeps})
        for record in static:
            records.append(_checked_record(record, program))
            place.tell("record", record)
            stop = callback is not None and callback(record)
            if kept and (stop or saves(len(records) - 1)):
                static.keep(kept, len(records), partial(_values, list(records)))
            if stop:
                break
        return records, static.harvest()


def run_dynamic(
    program: Any,
    pieces: Sequence[Any],
    *,
    callback: Callback,
    checkpoint: Any,
    every: int,
    keeper: Keeper | None,
    n_jobs: int | None,
) -> tuple[Records, Any]:
    """Run a coroutine with the dynamic engine; continue from its checkpoint if there is one."""
    call = getattr(program, "func", program)
    name = name_of(program)
    records: Records = []
    kept = None
    found = Named()
    if checkpoint is not None:
        check_saves(program)
        own = {} if isinstance(call, FunctionType) else getattr(call, "__dict__", {})
        arguments = {
            "args": getattr(program, "args", ()),
            **getattr(program, "keywords", {}),
            **own,
        }
        found = identity_of_run(name, arguments, pieces)
        kept = Checkpoint(checkpoint, {**found, "keeps_partitions": keeper is not None})
        found = kept.read(_found) or {}
        records = found.get("records", records)
    made = [Piece(piece) if callable(piece) else piece for piece in pieces]
    with (
        one_blas_thread(),
        choose_place(n_jobs, label=f"schmp-{name}") as place,
        Rounds(
            place, made, name, keeper, partial(_guarded, kept is not None and keeper is None)
        ) as rounds,
    ):
        if found.get("partitions"):
            rounds.restore(found["partitions"])
        n_saved = found.get("saves", 0)
        place.tell("begin", {"estimator": name})

        # Reports after the last job before the state was saved: the coroutine may yield them again.
        n_again = found.get("fresh", 0)
        n_fresh = 0
        n_rounds = 0

        def report(record: Named) -> bool | None:
            nonlocal n_again, n_fresh, n_rounds
            _checked_record(record, program)
            if n_again and not rounds.n_rounds and repr(record) == repr(records[-n_again]):
                n_again = n_again - 1
                n_fresh = n_fresh + 1
                return None
            n_fresh = n_fresh + 1 if n_rounds == rounds.n_rounds else 1
            n_again = 0
            n_rounds = rounds.n_rounds
            records.append(record)
            place.tell("record", record)
            return callback(record) if callback is not None else None

        def save(saved: Save) -> None:
            nonlocal n_saved
            n_saved += 1
            pack({}, saved.state)  # raises if a checkpoint cannot hold it, also without one
            if kept and (n_saved % every == 0 or saved.last):
                fresh = n_fresh if n_rounds == rounds.n_rounds else 0
                values = {
                    "saves": n_saved,
                    "records": records,
                    "state": saved.state,
                    "fresh": fresh,
                }
                kept.write(n_saved, {**values, "partitions": rounds.save() if keeper else []})

        return records, run_coroutine(program, rounds, found.get("state"), report=report, save=save)


def _found(found: Named) -> Named:
    """Return what is in the checkpoint of a coroutine; raise an error if something is missing."""
    _ = found["saves"] + len(found["records"]) + found["fresh"], found["partitions"], found["state"]
    return found


def _guarded(unchanged: bool, function: Function, partition: Any, job: Any) -> tuple[Any, Any]:
    """Apply a function to a partition and a job, both read-only, and return its results."""
    given = freeze(partition)
    after, partial_result = checked(function(given, freeze(job)), function, job)
    if unchanged and after is not given:
        raise ValueError(
            "checkpoint needs a keeper, as the jobs of this program change their pieces of the "
            "data: give keeper=schmp.Keeper(save, restore), or return the piece as it is"
        )
    return partition if after is given else after, partial_result


def _checked_record(record: Any, program: Any) -> Named:
    """Return a record; raise TypeError if it is no dict, or holds what a checkpoint cannot."""
    if not isinstance(record, dict):
        raise TypeError(
            f"the record of {name_of(program)} is {described(record)}; it must be a dict of "
            "numbers by name"
        )
    pack({}, {"record": record})
    return record


def _values(records: Records, saved: Saved) -> Named:
    return {"records": records, "saved": saved}
