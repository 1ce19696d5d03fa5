"""The static engine: shards stay, blocks of the model go round, and a sweep ends in one barrier.

It implements the static engine of STRADS (Kim et al., EuroSys 2016, section 3.3): a block goes on as soon as *it* is
done, and workers wait for each other only once in a sweep.  It knows neither statistics nor Dask.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from schmp_estimators.core.engines import cells
from schmp_estimators.core.engines.graph import Keys, Run, SweepGraph
from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.places.place import Key, Ref, Runtime
from schmp_estimators.core.places.restores import Restores
from schmp_estimators.core.program import Harvest, Program, Saved

T = TypeVar("T")


class Source(NamedTuple):
    """Where a shard comes from: ``function(*pieces)``, on the worker that will hold the shard.

    A piece is a callable that returns a value, or something that the runtime holds already.
    """

    function: Callable[..., Any]
    pieces: tuple[Any, ...] = ()


class _Sweep(NamedTuple):
    keys: Keys
    record: Key | None


class StaticRun:
    """A run of a program: iterate over it to get the record of each sweep.

    Between two steps of the iteration the run can be asked for its harvest, or for what a restart needs.  Use it as a
    context manager: whatever happens, nothing is left in the runtime.

    Parameters
    ----------
    program : Program
    sources : sequence of Source
        One for each shard.
    runtime : Runtime
    n_sweeps : int
        Number of the sweep before which to stop.
    saved : Saved, optional
        What `save` returned after sweep ``first - 1``; if its model is None, the model is made of the shards' reports.
    first : int, default=0
        Number of the first sweep.

    Raises
    ------
    WorkerLostError
        If workers died again and again without any progress in between.
    """

    def __init__(
        self,
        program: Program,
        sources: Sequence[Source],
        runtime: Runtime,
        *,
        n_sweeps: int,
        saved: Saved | None = None,
        first: int = 0,
    ) -> None:
        self._program, self._sources, self._runtime = program, sources, runtime
        self._mode = runtime.mode(len(sources))
        self._first, self._n_sweeps = first, n_sweeps
        self._run = Run(uuid.uuid4().hex[:8])
        #: The sweep from whose end the run can be restored, and what is needed for it.
        self._cut, self._saved = first - 1, saved
        #: The sweep that the caller has got to.
        self._current = first - 1
        #: The sweeps in flight, oldest first; the oldest is done.
        self._flight: dict[int, _Sweep] = {}
        self._shards: tuple[Key, ...] = ()
        self._inputs: list[Key] = []
        self._restores = Restores(runtime, "a sweep being finished")

    def __enter__(self) -> StaticRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._runtime.clear()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for sweep in range(self._first, self._n_sweeps):
            record = self._surviving(partial(self._advance, sweep))
            self._current = sweep
            self._restores.forget()
            yield record
            if sweep == self._last_before_cut(sweep) < self._n_sweeps - 1:
                self._saved, self._cut = self.save(), sweep
                self._surviving(self._begin)

    def start(self) -> None:
        """Load the shards and make the first states now, not with the first sweep."""
        self._surviving(lambda: None)

    def harvest(self) -> Harvest:
        """Return the model and what the program harvests of shards and blocks after the current sweep."""
        return Harvest(*self._ask("harvest", "harvest_shard", "harvest_block"))

    def save(self) -> Saved:
        """Return all that a run needs to go on after the current sweep."""
        if self._cut == self._current and self._saved:
            return self._saved
        return Saved(*self._ask("save", "save", "save_block"))

    def measure(self) -> dict[str, Any]:
        """Return the record of the current sweep, with all that the program can measure."""
        return self._program.progress(self._current, *self._ask("measure", "measure_shard", "measure_block"))

    def _ask(self, what: str, of_shard: str, of_block: str) -> tuple[Any, list[Any], list[Any]]:
        def ask() -> tuple[Any, list[Any], list[Any]]:
            self._advance(self._current)
            keys = self._flight[self._current].keys
            graph = SweepGraph(self._program, self._mode, self._run, self._current, keys)
            shards = graph.ask(f"{what}-shard", of_shard, zip(keys.shards, keys.states, strict=True))
            blocks = graph.ask(f"{what}-block", of_block, ((block,) for block in keys.blocks))
            self._runtime.submit(graph.tasks, shards + blocks)
            model, *values = self._runtime.fetch([keys.model, *shards, *blocks])
            self._runtime.drop(shards + blocks)
            return model, values[: len(shards)], values[len(shards) :]

        return self._surviving(ask)

    def _surviving(self, action: Callable[[], T]) -> T:
        """Return what `action` returns; if work is lost on the way, restore the last cut and try again."""
        while True:
            try:
                if not self._flight:
                    self._begin()
                return action()
            except WorkLostError as error:
                self._flight.clear()
                self._shards = ()
                self._restores.prepare(error, f"going on from the end of sweep {self._cut}")

    def _advance(self, sweep: int) -> dict[str, Any]:
        """Run to the end of `sweep`, keep what belongs to it, and return its record (empty if it was there already)."""
        record: dict[str, Any] = {}
        while (done := min(self._flight)) < sweep:
            while max(self._flight) < min(done + 1 + self._runtime.lookahead, self._last_before_cut(done + 1)):
                self._submit(max(self._flight) + 1)
            [record] = self._runtime.fetch([key for key in [self._flight[done + 1].record] if key])
            self._drop_inputs()
            self._forget(done)
        return record

    def _last_before_cut(self, sweep: int) -> int:
        """Return the last sweep before the cut that follows `sweep`: no other may be submitted while `sweep` runs."""
        every = self._runtime.cut_every
        return min(self._n_sweeps, sweep + every - (sweep - self._first) % every if every else self._n_sweeps) - 1

    def _submit(self, sweep: int) -> None:
        graph = SweepGraph(self._program, self._mode, self._run, sweep, self._flight[sweep - 1].keys)
        graph.sweep()
        record = graph.record()
        made = {task.key for task in graph.tasks}  # blocks that rest are there already
        wanted = [*graph.keys.states, *graph.keys.blocks, graph.keys.model, record]
        self._runtime.submit(graph.tasks, [key for key in wanted if key in made])
        self._flight[sweep] = _Sweep(graph.keys, record)

    def _forget(self, sweep: int) -> None:
        """Drop what belongs to `sweep`, except what later sweeps use unchanged."""
        keys, record = self._flight.pop(sweep)
        kept = {key for later in self._flight.values() for key in (*later.keys.blocks, *later.keys.states)}
        self._runtime.drop({*keys.states, *keys.blocks, keys.model, *([record] if record else [])} - kept)

    def _begin(self) -> None:
        """Start from the last cut under fresh keys, without any tie to the tasks before it."""
        if self._shards and self._runtime.deal():  # workers have come: load the shards anew, where they belong now
            self._runtime.drop(self._shards)
            self._shards = ()
        self._run = self._run._replace(number=self._run.number + 1)
        graph = SweepGraph(self._program, self._mode, self._run, self._cut, Keys((), (), (), ()))
        saved, n = self._saved, range(len(self._sources))
        shards = self._shards or tuple(self._load(graph, p) for p in n)
        head = (self._program, self._mode)
        states = [self._bring("saved", p, saved.shards[p]) if saved else None for p in n]
        outcomes = [graph.add("start", p, cells.start_shard, *head, Ref(shards[p]), states[p]) for p in n]
        total = graph.aggregate(outcomes, None)
        blocks: tuple[Key, ...] = ()
        if self._program.has_blocks(len(shards)):
            pieces = [self._bring("saved-block", p, saved.blocks[p]) if saved else None for p in n]
            blocks = graph.blocks("start-block", cells.start_block, outcomes, pieces)
        wanted = {*outcomes, *blocks, total, *shards} - set(self._shards)
        self._runtime.submit(graph.tasks, list(wanted))
        if self._mode.in_place:  # the input has been read, and shall not use memory beside the shards
            self._drop_inputs()
        model = total
        if saved and saved.model is not None:
            model = self._bring("saved-model", 0, saved.model, passing=False).key
        for sweep in list(self._flight):
            self._forget(sweep)
        self._shards = shards
        self._flight = {self._cut: _Sweep(Keys(shards, tuple(outcomes), blocks, model), total if saved else None)}

    def _drop_inputs(self) -> None:
        self._runtime.drop(self._inputs)
        self._inputs = []

    def _load(self, graph: SweepGraph, p: int) -> Key:
        source = self._sources[p]
        pieces = [self._bring(f"input-{i}", p, piece) for i, piece in enumerate(source.pieces)]
        return graph.add("load", p, cells.load_shard, source.function, *pieces)

    def _bring(self, what: str, p: int, piece: Any, passing: bool = True) -> Ref:
        """Put a value into the runtime; one that is `passing` is dropped as soon as the first sweep is done."""
        ref = self._runtime.put(self._run.key(f"{self._program.name}-{what}", p), piece, p)
        if passing:
            self._inputs.append(ref.key)
        return ref
