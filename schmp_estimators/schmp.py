"""Run algorithms of your own, in this process or on a Dask cluster.

An algorithm is written as a program.  A *static* program is a subclass of `Program`.  It says
beforehand in which order parts of the data (shards) are combined with parts of the model (blocks).
A *dynamic* program, or coroutine, returns a generator of jobs, which chooses each job from earlier
results.  `run` runs both, and :doc:`/user_guide/programs` explains them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from schmp_estimators.core.engine.dynamic import Overlapping, Report, Save, Sum, saves
from schmp_estimators.core.engine.rounds import Keeper
from schmp_estimators.core.engine.running import run_dynamic, run_static
from schmp_estimators.core.program import Program
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.schedules.dynamic import Priority, Random, RoundRobin, Schedule
from schmp_estimators.core.schedules.rotation import schedule_from_costs, schedule_rotation
from schmp_estimators.core.schedules.samplers import Sampler
from schmp_estimators.core.stages import (
    changes,
    check_call,
    each,
    exchanges,
    name_of,
    observes,
    reads,
)

__all__ = [
    "Keeper",
    "Overlapping",
    "Priority",
    "Program",
    "Random",
    "Report",
    "RoundRobin",
    "Sampler",
    "Save",
    "Schedule",
    "Sum",
    "changes",
    "each",
    "exchanges",
    "observes",
    "reads",
    "run",
    "saves",
    "schedule_from_costs",
    "schedule_rotation",
    "tree_sum",
]

_ENGINES = ("auto", "serial")


def __dir__() -> list[str]:
    return __all__


def run(
    program: Any,
    data: Sequence[Any],
    *,
    sweeps: int | None = None,
    callback: Callable[[dict[str, Any]], bool | None] | None = None,
    checkpoint: Any = None,
    checkpoint_every: int = 10,
    keeper: Keeper | None = None,
    n_jobs: int | None = None,
    engine: str = "auto",
) -> tuple[list[dict[str, Any]], Any]:
    """Run a program on the active Dask client, or in this process if there is none.

    If the functions of the program are pure, the result is bit-for-bit the same for any number of
    threads, on any cluster of identical machines, and after interruptions.

    Parameters
    ----------
    program : Program or callable
        A static program (an instance of a subclass of `Program`), or a coroutine.  A coroutine is a
        function that returns a generator of jobs.  Its argument is None, or a state that an earlier
        run has saved.  A job is a pure function of one piece of the data, and is called for every
        piece.  It returns the piece, possibly changed, and an answer.  The generator receives the
        answers of all pieces, in order.  The generator may also yield `Sum`, `Report`, `Save` and
        `Overlapping`.
    data : sequence
        The pieces of the data, which are the shards of a static program.  Each is an array, a
        number or a (nested) tuple of them.  A piece may also be a function without arguments, which
        is called on the worker that keeps the piece.  Data may then be larger than the memory of
        this process.  All other pieces are kept in this process, to be sent again if a worker dies.
        Pieces are read-only, so a job returns a changed piece as a new object.
    sweeps : int, optional
        Number of sweeps of a static program, at least 1.  A sweep runs all stages.  Coroutines take
        no `sweeps`.
    callback : callable, optional
        Called with each new record.  If it returns True, a static program ends, and a coroutine
        receives True as the answer to its `Report`.
    checkpoint : str or path-like, optional
        File to which the state of the run is written.  It is a path, in which ``~`` and environment
        variables are replaced, or a URL known to fsspec.  If the file has a state of the same run,
        the run continues from there.  A coroutine must yield `Save`, and declare its states by
        `saves`.
    checkpoint_every : int, default=10
        Number of sweeps, or of times that a coroutine yields `Save`, between two checkpoints.  The
        state after the last sweep, or of a `Save` with ``last=True``, is always written.
    keeper : Keeper, optional
        Saves what the jobs of a coroutine have changed in the pieces.  If jobs change pieces,
        checkpoints need a keeper.  Without a keeper, a cluster sends all pieces to the client after
        every 50 jobs if any piece has changed.
    n_jobs : int, optional
        Number of threads in this process.  None means 1, and -1 all cores.  It is not used on a
        cluster or with ``engine="serial"``.
    engine : {"auto", "serial"}, default="auto"
        "serial" runs a static program in this process with one thread, even if a client is active.
        This is easiest to debug, but allows no checkpoint.

    Returns
    -------
    records : list of dict
        Results of `Program.record` for each sweep, or reports of the coroutine.  Records from
        before an interruption are included.
    result : object
        For a static program, a named tuple ``(model, shards, blocks)``: the model, and lists of the
        results of `Program.harvest` and `Program.harvest_block`.  For a coroutine, the value that
        it returns.

    Raises
    ------
    TypeError, ValueError
        If an argument or the schedule of the program is invalid.
    CheckpointMismatchError
        If the checkpoint belongs to another run, or is damaged.
    WorkerLostError, NoWorkersError, MixedClusterError, AsynchronousClientError
        If the cluster cannot do the work, or the active client is asynchronous.

    Examples
    --------
    Two blocks visit two shards, and each block adds up the numbers in the shards:

    >>> import numpy as np
    >>> from schmp_estimators.schmp import Program, changes, each, run, schedule_rotation
    >>> class Collect(Program):
    ...     name = "collect"
    ...
    ...     def schedule(self, sweep, n_shards):
    ...         return changes(self.visit, order=schedule_rotation(n_shards)), each(self.count)
    ...
    ...     def init(self, at):
    ...         return 0, {at.number: np.zeros(1)}
    ...
    ...     def visit(self, at, state, block):
    ...         return state, block + at.shard.sum()
    ...
    ...     def count(self, at, state):
    ...         return state + len(at.shard)
    ...
    ...     def report(self, at, state):
    ...         return state
    ...
    ...     def aggregate(self, model, reports):
    ...         return sum(reports)
    ...
    ...     def record(self, sweep, model):
    ...         return {"sweep": sweep, "numbers": model}
    ...
    ...     def harvest_block(self, block):
    ...         return float(block[0])
    >>> records, result = run(Collect(), [np.array([1.0, 2.0]), np.array([4.0])], sweeps=2)
    >>> records
    [{'sweep': 0, 'numbers': 3}, {'sweep': 1, 'numbers': 6}]
    >>> result.blocks
    [14.0, 14.0]

    A coroutine finds a quantile by bisection.  Each job has a threshold, and counts the numbers in
    a piece that are at most this threshold.

    >>> from functools import partial
    >>> from schmp_estimators.schmp import Report
    >>> def count_below(piece, threshold):
    ...     return piece, np.count_nonzero(piece <= threshold)
    >>> def bisection(state, rank):
    ...     low, high = 0.0, 64.0
    ...     while high - low > 1e-3:
    ...         middle = (low + high) / 2
    ...         counts = yield partial(count_below, threshold=middle)
    ...         low, high = (middle, high) if sum(counts) < rank else (low, middle)
    ...         yield Report({"width": high - low})
    ...     return high
    >>> pieces = [np.array([5.0, 9.0]), np.array([1.0, 7.0])]
    >>> records, result = run(partial(bisection, rank=3), pieces)
    >>> round(result, 3), len(records)
    (7.0, 16)
    """
    pieces = _check_pieces(data)
    _check_count("checkpoint_every", checkpoint_every)
    if callback is not None:
        if not callable(callback):
            raise TypeError(f"callback={callback!r} must be a function of one argument, or None")
        check_call(callback, "callback", "record")
    if engine not in _ENGINES:
        raise ValueError(f"engine={engine!r} is unknown; use one of {_ENGINES}")
    if not isinstance(program, Program):
        _check_coroutine(program, sweeps, engine)
        if keeper is not None:
            if not isinstance(keeper, Keeper):
                raise TypeError(f"keeper={keeper!r} must be a schmp.Keeper, or None")
            check_call(keeper.save, "keeper.save", "piece")
            check_call(keeper.restore, "keeper.restore", "piece", "saved")
        return run_dynamic(
            program, pieces, callback=callback, checkpoint=checkpoint, every=checkpoint_every,
            keeper=keeper, n_jobs=n_jobs,
        )  # fmt: skip
    if not isinstance(getattr(program, "name", None), str):
        raise TypeError(
            f"program {type(program).__name__} has no name; give the class one, as in "
            'name = "my-program"'
        )
    _check_count("sweeps", sweeps)
    if keeper is not None:
        raise ValueError(
            f"keeper={keeper!r} is for coroutines; a static program has the methods save and "
            "restore"
        )
    if engine == "serial" and checkpoint is not None:
        raise ValueError(
            f"checkpoint={checkpoint!r} needs engine='auto'; the serial engine keeps none"
        )
    return run_static(
        program, pieces, sweeps=sweeps, callback=callback, checkpoint=checkpoint,
        every=checkpoint_every, n_jobs=n_jobs, engine=engine,
    )  # fmt: skip


def _check_coroutine(program: Any, sweeps: Any, engine: str) -> None:
    if isinstance(program, type) or not callable(program):
        hint = (
            "call it to make one"
            if isinstance(program, type)
            else "or a function that returns a generator of jobs"
        )
        raise TypeError(
            f"program must be an instance of a subclass of schmp.Program, got {program!r}; {hint}"
        )
    if sweeps is not None:
        raise ValueError(f"sweeps={sweeps!r} is for static programs; a coroutine ends by itself")
    check_call(program, name_of(program), "state")
    if engine != "auto":
        raise ValueError(f"engine={engine!r} is for static programs; a coroutine takes 'auto'")


def _check_pieces(data: Any) -> Sequence[Any]:
    if isinstance(data, (str, bytes, np.ndarray)) or not isinstance(data, Sequence):
        raise TypeError(
            f"data must be a list of pieces, got {type(data).__name__}; put every one of them in a "
            "list"
        )
    if not data:
        raise ValueError(f"data={data!r} is empty; at least one piece is needed")
    return data


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name}={value!r} must be an integer of at least 1")
