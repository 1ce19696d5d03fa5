"""The static engine: shards stay, blocks of the model go round, and a sweep ends in one barrier.

It implements the static engine of STRADS (Kim et al., EuroSys 2016, section 3.3): a block goes on as soon as *it* is
done, and workers wait for each other only once in a sweep.  It knows neither statistics nor Dask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from schmp_estimators.core.checkpoint import Checkpoint, save_part, settle
from schmp_estimators.core.engines.graph import SweepGraph
from schmp_estimators.core.engines.keys import Keys
from schmp_estimators.core.engines.ledger import Asked, Ledger, Owed, Rhythm
from schmp_estimators.core.engines.loading import Loading
from schmp_estimators.core.engines.stretches import Ends, Stretches
from schmp_estimators.core.places.errors import SchMPError
from schmp_estimators.core.places.place import Key, Place, Ref
from schmp_estimators.core.program import AnyProgram, Harvest, Saved
from schmp_estimators.core.program import Source
from schmp_estimators.core.stages import check_stages
from schmp_estimators.core.values import freeze

T = TypeVar("T")

#: Seconds after which a state is saved that workers have come to without tasks, so that Dask could not make it again.
SAVE_AFTER = 30.0


class _Sweep(NamedTuple):
    keys: Keys
    record: Key | None


class StaticRun:
    """A run of a program: iterate over it to get the record of each sweep.

    Between two steps of the iteration the run can be asked for its harvest, or for what a restart needs.  Use it as a
    context manager: whatever happens, nothing is left in the place.

    Parameters
    ----------
    program : Program
    sources : sequence of Source
        One for each shard.
    place : Place
    n_sweeps : int
        Number of the sweep before which to stop.
    saved : Saved, optional
        What `save` returned after sweep ``first - 1``; if its model is None, it is made of the shards' reports.
    first : int, default=0
        Number of the first sweep.
    release : callable, optional
        Called as soon as the shards hold all of the input that will ever be needed.
    may_ask : callable, optional
        ``may_ask(sweep)`` says whether the caller may ask for anything but the record after a sweep, or end the run
        there; by default it may after each.  Where it does not, workers may go on without being told.
    saves : callable, optional
        ``saves(sweep)`` says whether the caller will ask for what a restart needs after a sweep, so that the program
        can be told; by default that is not known.
    ends : callable, optional
        Called before sweeps of which workers tell nothing meanwhile.  Returns a function that says of their records so
        far whether the caller will end the run there, and that can be pickled; None if it will not.

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
        place: Place,
        *,
        n_sweeps: int,
        saved: Saved | None = None,
        first: int = 0,
        release: Callable[[], None] = lambda: None,
        may_ask: Callable[[int], bool] = lambda sweep: True,
        saves: Callable[[int], bool] = lambda sweep: False,
        ends: Callable[[], Ends] = lambda: None,
    ) -> None:
        self._program, self._sources, self._place = program, sources, place
        self._will_save = saves
        place.expect(len(sources))
        self._mode, self._release, n = place.mode(len(sources)), release, len(sources)
        stages = check_stages(program, program.schedule(first, n), n, program.n_blocks(n))
        self.took: float | None = None
        #: Records of sweeps that are done, but that the caller has not got to, and their seconds.
        self._told: dict[int, tuple[dict[str, Any], float]] = {}
        self._stays = ExitStack()
        self._stretches: Stretches | None = None
        if any(stage.kind == "exchanges" for stage in stages):
            self._mode = self._mode._replace(post=place.post(n))
        self._rhythm = Rhythm(first, n_sweeps, place.cut_every, place.save_every)
        if not self._mode.post:
            self._stretches = Stretches(program, place, n, self._rhythm, may_ask, ends, self._stays)
            self._mode = self._mode._replace(hands_over=bool(self._stretches))
        self._first, self._n_sweeps = first, n_sweeps
        #: The sweep from whose end the run can be restored, and what is needed for it.
        self._cut, self._saved = first - 1, saved
        #: When that was, or when the run began from it, by the clock.
        self._cut_at = monotonic()
        #: The sweep at whose end the present tasks begin.
        self._begun = first - 1
        self._owed: Owed | None = None
        #: What this process writes itself.
        self._kept: Checkpoint | None = None
        #: The sweep that the caller has got to.
        self._current = first - 1
        #: The sweeps in flight, oldest first; the oldest is done.
        self._flight: dict[int, _Sweep] = {}
        #: What is to be dropped as soon as there is something to be sent, too.
        self._gone: list[Key] = []
        #: The last sweep whose states go as soon as there are the next ones.
        self._let_go: int | None = None
        self._shards: tuple[Key, ...] = ()
        self._loading = Loading(sources, place, self._mode.in_place)
        self._ledger = Ledger(place, program.name, self._begin, self._lose, "a sweep being finished")

    def __enter__(self) -> StaticRun:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Let a checkpoint that is on its way arrive, unless the cluster has failed, and let go of everything."""
        asked = self._owed.asked if self._owed else None
        try:
            if asked and error is None:
                self._ledger.surviving(self._settle)
            elif asked and self._owed and self._owed.saved and not isinstance(error, SchMPError):
                with suppress(Exception):
                    self._settle()
        finally:
            if asked:
                asked.checkpoint.withdraw()
            self._place.clear()
            self._stays.close()
            settle(self._kept, error)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for sweep in range(self._first, self._n_sweeps):
            record = self._ledger.surviving(partial(self._advance, sweep))
            record, self.took = self._told.pop(sweep, (record, None))
            self._current = sweep
            self._ledger.progress()
            yield record

    def start(self) -> None:
        """Load the shards and make the first states now, not with the first sweep."""
        self._ledger.surviving(lambda: None)

    def told_by_sources(self) -> list[Any]:
        """Return, once, what each source has told beside its shard; None, if it does not."""
        return self._loading.end_telling(self._ledger.surviving(self._loading.fetch_told))

    def harvest(self) -> Harvest:
        """Return the model and what the program harvests of shards and blocks after the current sweep."""
        return self._ask(lambda graph: (graph.ask_shards("harvest"), graph.harvest_blocks()), Harvest)

    def save(self) -> Saved:
        """Return all that a run needs to go on after the current sweep."""
        if self._cut == self._current and self._saved:
            return self._saved

        def add(graph: SweepGraph) -> tuple[list[Key], list[Key]]:
            blocks = graph.keys.blocks if self._program.saves_blocks else ()
            return graph.ask_shards("save"), graph.copy_blocks("save-block", list(map(Ref, blocks)))

        return self._ask(add, Saved)

    def keep(self, checkpoint: Checkpoint, done: int, values: Callable[[Saved], Any]) -> None:
        """Write a checkpoint of the current sweep; workers write theirs while the next sweeps run.

        Parameters
        ----------
        checkpoint : Checkpoint
        done : int
            As in `Checkpoint.write`.
        values : callable
            ``values(saved)`` returns what to write, where parts stand for what workers have written.
        """
        if self._mode.in_place:
            self._kept = checkpoint
            checkpoint.write_behind(done, values(self.save()))
            return
        asked = Asked(checkpoint, done, values)

        def action() -> None:
            self._advance(self._current)
            self._owe(self._current).asked = asked
            self._send_owed()

        self._ledger.surviving(action)

    def observe(self, stages: Any) -> dict[str, Any]:
        """Return the record that the current sweep would have if these stages were its last ones."""

        def action() -> dict[str, Any]:
            graph = self._graph_now()
            graph.add_after(stages)
            key = graph.record()
            self._place.submit(graph.tasks, [key])
            [found] = self._place.fetch([key])
            self._place.drop([key])
            return dict(found)

        return self._ledger.surviving(action)

    def _graph_now(self) -> SweepGraph:
        self._advance(self._current)
        return SweepGraph(self._program, self._mode, self._ledger.run, self._current, self._flight[self._current].keys)

    def _ask(
        self, add: Callable[[SweepGraph], tuple[list[Key], list[Key]]], make: Callable[[Any, list[Any], list[Any]], T]
    ) -> T:
        def ask() -> T:
            graph = self._graph_now()
            shards, blocks = add(graph)
            self._place.submit(graph.tasks, shards + blocks)
            model, *values = self._place.fetch([graph.keys.model, *shards, *blocks])
            self._place.drop(shards + blocks)
            return make(model, values[: len(shards)], values[len(shards) :])

        return self._ledger.surviving(ask)

    def _lose(self) -> str:
        if self._stretches:
            self._stretches.give_up()
        self._flight.clear()
        self._gone, self._shards = [], ()
        if self._owed:
            self._owed = Owed(self._owed.sweep, asked=self._owed.asked) if self._owed.asked else None
        return f"going on from the end of sweep {self._cut}"

    def _advance(self, sweep: int) -> dict[str, Any]:
        """Run to the end of `sweep`, keep what belongs to it, and return its record (empty if it was there already)."""
        record: dict[str, Any] = {}
        while (done := min(self._flight)) < sweep:
            if self._owed and self._owed.sweep == done and not self._owed.saved:  # it was lost
                self._send_owed()
            if self._begun < done == self._rhythm.last_before_cut(done):
                self._renew(done)
            elif self._cut < done and (self._rhythm.saves(done) or self._is_late()):
                self._owe(done).is_cut = True
                self._send_owed()
            if len(self._flight) == 1 and self._go_together(done):
                continue
            while max(self._flight) < min(done + 1 + self._place.lookahead, self._rhythm.last_before_cut(done + 1)):
                self._let_go_of_states(done)  # before the next sweep is made: that takes a while
                self._submit(max(self._flight) + 1)
            self._let_go_of_states(done)
            if self._owed and self._owed.saved and self._place.has([*self._owed.saved, *self._owed.parts]):
                self._settle()
            [record] = self._place.fetch([key for key in [self._flight[done + 1].record] if key])
            self._ledger.collect()
            self._forget(done)
        return record

    def _saves(self, sweep: int) -> bool:
        """Return whether it is known that the state after a sweep will be saved."""
        return self._rhythm.keeps(sweep) or self._will_save(sweep)

    def _is_late(self) -> bool:
        """Return whether so much work would be lost with a worker that the state should be saved."""
        return bool(self._stretches) and monotonic() > self._cut_at + SAVE_AFTER

    def _go_together(self, done: int) -> bool:
        """Let workers do the next sweeps among themselves, and return whether there are any that they do."""
        if not (self._stretches and (n_sweeps := self._stretches.length(done + 1))):
            return False
        graph = SweepGraph(self._program, self._mode, self._ledger.run, done + 1, self._flight[done].keys)
        owed = self._owed.saved if self._owed and self._owed.sweep == done else []
        begun = self._stretches.begin(graph, n_sweeps, owed[1 : 1 + len(self._sources)], self._saves(done + n_sweeps))
        if owed:  # so that it is not lost with a worker
            self._settle()
        self._place.drop(self._gone)
        told, keys = self._stretches.end(begun)
        self._told.update(enumerate(told, done + 1))
        self._flight[done + len(told)] = _Sweep(keys, None)
        self._ledger.collect()
        # Dropped now, they would keep what is sent next waiting: a client sends once in ten milliseconds.
        self._gone = [*begun.told, *self._remove(done)]
        return True

    def _owe(self, sweep: int) -> Owed:
        """Return what is owed to those who ask for the state at the end of a sweep, the oldest in flight."""
        if self._owed and self._owed.sweep != sweep:
            self._settle()
        self._owed = self._owed or Owed(sweep)
        return self._owed

    def _send_owed(self) -> None:
        """Let the state that is owed be made, and workers write their parts of it."""
        owed = self._owed
        assert owed is not None
        graph = SweepGraph(self._program, self._mode, self._ledger.run, owed.sweep, self._flight[owed.sweep].keys)
        if not owed.saved:
            blocks = list(map(Ref, graph.keys.blocks)) if self._program.saves_blocks else []
            model, at = graph.copy_blocks("save-model", [Ref(graph.keys.model)]), (1,)  # beside what `save` asks for
            owed.saved = [*model, *graph.ask_shards("save", at), *graph.copy_blocks("save-block", blocks, at)]
        self._submit_made(graph, owed.saved)
        if owed.asked and not owed.parts and (where := owed.asked.checkpoint.invite()):
            write, n_shards = self._place.aside(save_part), len(self._sources)
            owed.parts = [
                graph.add("write-part", n % n_shards, write, *where, n, Ref(key), at=(n,))
                for n, key in enumerate(owed.saved[1:])
            ]
            # a thread that does sweeps first would write only after them
            self._submit_made(graph, owed.parts, soon=True)

    def _submit_made(self, graph: SweepGraph, wanted: Sequence[Key], *, soon: bool = False) -> None:
        """Submit the tasks of a graph, if there are any, and keep what is wanted of them."""
        made = {task.key for task in graph.tasks}
        if made:
            self._place.submit(graph.tasks, [key for key in wanted if key in made], soon=soon)
            graph.tasks = []

    def _settle(self) -> None:
        """Wait for what is owed, if there is something, and hand it over."""
        owed = self._owed
        if owed is None:
            return
        if not owed.saved:
            self._advance(owed.sweep)
            self._send_owed()
        n, n_parts = 1 + len(self._sources), len(owed.parts)
        # all at once what will be needed, if workers could write their parts
        found = self._place.fetch([*owed.parts, *(owed.saved[:1] if n_parts and not owed.is_cut else owed.saved)])
        parts, saved = found[:n_parts], found[n_parts:]
        written = owed.asked is not None and n_parts > 0 and owed.asked.checkpoint.has(parts)
        if len(saved) < len(owed.saved) and not written:
            saved = self._place.fetch(owed.saved)
        self._place.drop([*owed.saved, *owed.parts])
        self._owed = None
        if owed.is_cut:
            self._saved, self._cut = Saved(saved[0], saved[1:n], saved[n:]), owed.sweep
            self._cut_at = monotonic()
        if owed.asked:
            values = [saved[0], *parts] if written else saved
            owed.asked.checkpoint.write(owed.asked.done, owed.asked.values(Saved(values[0], values[1:n], values[n:])))

    def _renew(self, sweep: int) -> None:
        """Go on from the end of a sweep without any tie to the tasks before it.  What was saved follows later."""
        self._owe(sweep).is_cut = True
        self._send_owed()
        if self._place.deal():  # workers have come: load the shards anew, where they belong now
            self._settle()
            self._place.drop(self._shards)
            self._shards = ()
            self._ledger.begin()
            return
        keys, record = self._flight[sweep]
        self._ledger.renew()
        kept = dict.fromkeys([*keys.states, *keys.blocks, keys.model])
        fresh = {old: self._ledger.key("kept", number) for number, old in enumerate(kept)}
        self._place.rename(fresh)
        self._place.drop([record] if record else [])
        states, blocks = (tuple(map(fresh.__getitem__, old)) for old in (keys.states, keys.blocks))
        kept_keys = keys._replace(states=states, blocks=blocks, model=fresh[keys.model])
        self._flight[sweep] = _Sweep(kept_keys, None)
        self._begun = sweep

    def _submit(self, sweep: int) -> None:
        n = len(self._sources)
        place = self._place
        shared = place.homes(n), place.shards_of_a_task(n), place.shards_of_a_thread(n)
        graph = SweepGraph(self._program, self._mode, self._ledger.run, sweep, self._flight[sweep - 1].keys, *shared)
        graph.saves = self._saves(sweep)
        graph.sweep(is_last=sweep == self._n_sweeps - 1)
        record = graph.record()
        made = {task.key for task in graph.tasks}  # blocks that rest are there already
        wanted = [*graph.keys.states, *graph.keys.blocks, graph.keys.model, record]
        self._place.submit(graph.tasks, [key for key in wanted if key in made])
        self._flight[sweep] = _Sweep(graph.keys, record)

    def _let_go_of_states(self, sweep: int) -> None:
        """Let each state of a sweep go once the next one has used it: not all are waited for, they are large."""
        asked = self._owed if self._owed and self._owed.sweep == sweep else None
        if sweep == self._let_go or sweep + 1 not in self._flight:
            return
        if asked and (not asked.saved or self._begun == sweep):  # what a cut begins with is needed until it counts
            return
        self._let_go = sweep
        after = self._flight[sweep + 1].keys
        known = asked.saved[-1] if asked else after.model  # what is sent last of all that uses the states
        self._place.drop_after(set(self._flight[sweep].keys.states).difference(after.states), known)

    def _forget(self, sweep: int) -> None:
        """Drop what belongs to `sweep`, except what later sweeps use unchanged."""
        self._place.drop([*self._remove(sweep), *self._gone])
        self._gone = []

    def _remove(self, sweep: int) -> set[Key]:
        """Return what belongs to `sweep`, and to no later one, which is in flight no longer."""
        keys, record = self._flight.pop(sweep)
        kept = {key for later in self._flight.values() for key in (*later.keys.blocks, *later.keys.states)}
        return {*keys.states, *keys.blocks, keys.model, *([record] if record else [])} - kept

    def _begin(self) -> None:
        """Start from the last cut under fresh keys, without any tie to the tasks before it."""
        self._cut_at = monotonic()
        saved, n = self._saved, range(len(self._sources))
        graph = SweepGraph(self._program, self._mode, self._ledger.run, self._cut, Keys((), (), (), ()))
        shards = self._shards or self._loading.load(graph, self._ledger)
        graph.keys = Keys(shards, (), (), ())
        n_blocks = self._program.n_blocks(len(shards))
        kept = [self._ledger.lend("saved", p, (saved.shards[p],)) for p in n] if saved else []
        model, known = None, None
        if saved and saved.model is not None:
            known = self._place.put(self._ledger.key("saved-model", 0), freeze(saved.model), 0)
            model = known.key
        states = graph.start(kept or [None] * len(shards), n_blocks, known)
        if saved and self._program.saves_blocks:
            brought = [self._ledger.lend("saved-block", b, block) for b, block in enumerate(saved.blocks)]
            blocks = tuple(graph.copy_blocks("restore-block", brought))
        else:
            blocks = graph.combine(states, n_blocks)
        begun: list[Key] = []
        if model is None:
            model = graph.aggregate(states, None)
            begun = [model]
        self._place.submit(graph.tasks, list({*states, *blocks, *begun}))
        if self._mode.in_place:  # the input has been read, and shall not use memory beside the shards
            self._ledger.collect()
            self._release()
        for sweep in list(self._flight):
            self._forget(sweep)
        self._shards = shards
        self._flight = {self._cut: _Sweep(Keys(shards, states, blocks, model), None)}
        self._begun = self._cut
        self._let_go = None
