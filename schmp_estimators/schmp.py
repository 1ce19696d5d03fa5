"""The programming model: write an algorithm as a program, and the engine of this package runs it.

A *static* program, a `Program`, knows beforehand which shard of the data meets which block of the model.  A *dynamic*
one, a generator of jobs, decides that from what it knows so far.  `run` runs both, in this process or on the active
Dask client.
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
from schmp_estimators.core.schedules.dynamic_regression import ORDERS, DynamicRegressionSchedule, make_sampler
from schmp_estimators.core.schedules.rotation import schedule_from_costs, schedule_rotation
from schmp_estimators.core.stages import changes, each, exchanges, observes, reads

__all__ = [
    "Keeper",
    "Overlapping",
    "Program",
    "Report",
    "Save",
    "Sum",
    "changes",
    "each",
    "exchanges",
    "observes",
    "reads",
    "run",
    "saves",
    "schedule_dynamic_regression",
    "schedule_from_costs",
    "schedule_rotation",
    "tree_sum",
]

_ENGINES = ("auto", "serial")


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
    """Run a program, on the active Dask client if there is one, else in this process.

    The result is the same to the last bit for any number of threads, any cluster of like machines, and after any
    interruption, as long as the program is pure.

    Parameters
    ----------
    program : Program or callable
        A static program; or a coroutine: a function that is called with None, or with a state that it has saved, and
        returns a generator of jobs.  A job is a pure function of one piece of the data, and small, as it is sent to
        all of them.  It returns the piece with its new state, and an answer; the generator gets the answers of all
        pieces, in order.  It may also yield `Sum`, `Report`, `Save` and `Overlapping`.
    data : sequence
        The data in pieces: shards of a static program, partitions of a coroutine.  Each is an array, a number or a
        (nested) tuple of them.  A piece that is callable is called without arguments where it will live, so that data
        too large for this process can be read there; others stay with this process, too, to be sent again after the
        death of a worker.  What programs get is read-only, but for what they own.
    sweeps : int, optional
        How many sweeps of a static program to run, at least 1.  A coroutine ends by itself.
    callback : callable, optional
        Called with every record as soon as it is there.  If it returns True, a static run ends there, and a coroutine
        gets True as the answer to its `Report`.
    checkpoint : str or path-like, optional
        Where to keep what it takes to go on: a path, in which ``~`` and environment variables are replaced, or a URL
        known to fsspec; workers of a cluster write their parts in a folder beside it.  If there is one of the same run
        already, the run goes on from it.  A coroutine must yield `Save`.
    checkpoint_every : int, default=10
        Sweeps, or states that a coroutine saves, between two checkpoints.  What is there after the last sweep is kept
        in any case, and so is a state that a coroutine saves with ``last=True``.
    keeper : Keeper, optional
        For coroutines whose jobs change their pieces: how to save what they change.  A checkpoint needs it.  Without
        one, pieces that change come to the client as a whole after every 50 rounds on a cluster.
    n_jobs : int, optional
        Threads in this process: None is 1, -1 all cores.  Neither a cluster nor ``engine="serial"`` uses it.
    engine : {"auto", "serial"}, default="auto"
        "serial" runs a static program in this process with one thread, with or without a client: the easiest place to
        debug it.  It keeps no checkpoint.

    Returns
    -------
    records : list of dict
        What `Program.record` returned for each sweep, or what the coroutine reported; those before an interruption
        included.
    result : object
        Of a static program, the model and what it harvests of shards and blocks, as a named tuple ``(model, shards,
        blocks)``; of a coroutine what it returns.

    Raises
    ------
    TypeError, ValueError
        If an argument or the program's schedule makes no sense.
    CheckpointMismatchError
        If the checkpoint belongs to another run, or is damaged.
    WorkerLostError, NoWorkersError, MixedClusterError, AsynchronousClientError
        If the cluster cannot do the work.

    Examples
    --------
    Two blocks meet two shards, and take up what these hold:

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

    A quantile by bisection: each job is a threshold, each piece answers how many of its numbers are not above it.

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
    >>> records, result = run(partial(bisection, rank=3), [np.array([5.0, 9.0]), np.array([1.0, 7.0])])
    >>> round(result, 3), len(records)
    (7.0, 16)
    """
    pieces = _check_pieces(data)
    _check_count("checkpoint_every", checkpoint_every)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r} must be a function of one argument, or None")
    if engine not in _ENGINES:
        raise ValueError(f"engine={engine!r} is unknown; use one of {_ENGINES}")
    if not isinstance(program, Program):
        _check_coroutine(program, sweeps, engine)
        return run_dynamic(
            program, pieces, callback=callback, checkpoint=checkpoint, every=checkpoint_every, keeper=keeper,
            n_jobs=n_jobs,
        )  # fmt: skip
    if not isinstance(getattr(program, "name", None), str):
        raise TypeError(f'program {type(program).__name__} has no name; give the class one, as in name = "my-program"')
    _check_count("sweeps", sweeps)
    if keeper is not None:
        raise ValueError(f"keeper={keeper!r} is for coroutines; a static program has the methods save and restore")
    if engine == "serial" and checkpoint is not None:
        raise ValueError(f"checkpoint={checkpoint!r} needs engine='auto'; the serial engine keeps none")
    return run_static(
        program, pieces, sweeps=sweeps, callback=callback, checkpoint=checkpoint, every=checkpoint_every,
        n_jobs=n_jobs, engine=engine,
    )  # fmt: skip


def schedule_dynamic_regression(
    n_parameters: int,
    *,
    n_parallel: int,
    max_correlation: float | None = 0.1,
    order: str = "priority",
    pipeline_depth: int = 1,
    n_schedulers: int = 1,
    random_state: int | np.random.Generator | None = None,
) -> DynamicRegressionSchedule:
    """Return a schedule that draws parameters by priority and keeps those that depend little on each other.

    This is ``scheduleDynRegr`` of Kim et al. (EuroSys 2016, section 3.2).  Every round gives the parameters to update
    now, and candidates for the next round whose correlations it wants to know: both are one question to the data.

    Parameters
    ----------
    n_parameters : int
        Number of parameters, at least 1.
    n_parallel : int
        Most parameters in one round.
    max_correlation : float or None, default=0.1
        Largest absolute correlation of two parameters updated together.  None: they are not checked.
    order : {"priority", "random", "round_robin"}, default="priority"
        How candidates are drawn.  "priority" prefers parameters by the square of their last change, which the program
        tells ``schedule.sampler.record`` after an update and ``schedule.sampler.refresh`` for all parameters at once.
    pipeline_depth : int, default=1
        How many rounds are under way at a time; the same as that of the run.
    n_schedulers : int, default=1
        How many schedulers take turns, one round each.  Scheduler s draws from the parameters j with
        ``j % n_schedulers == s`` only, with priorities and a generator of its own, and checks its candidates against
        each other and against what the other schedulers have under way.  A draw then looks through a part of the
        parameters.  The number is part of the result.
    random_state : int or numpy.random.Generator, optional
        Source of the draws.

    Returns
    -------
    DynamicRegressionSchedule
        Call ``next_round`` for each job, and ``answer`` when the job has been aggregated.  Between rounds ``save``
        returns where it stands, as a dict for a checkpoint, and ``restore`` goes on from there.

    Raises
    ------
    ValueError
        If an argument makes no sense.

    Examples
    --------
    Of four independent pairs of like parameters, a round takes one each:

    >>> import numpy as np
    >>> from schmp_estimators.schmp import schedule_dynamic_regression
    >>> correlation = np.kron(np.eye(4), np.ones((2, 2)))
    >>> schedule = schedule_dynamic_regression(8, n_parallel=4, random_state=0)
    >>> chosen, check = schedule.next_round()
    >>> len(chosen)  # nothing has been checked yet
    0
    >>> both = np.concatenate([check.candidates, check.others])
    >>> schedule.answer(check, correlation[np.ix_(check.candidates, both)])
    >>> chosen, check = schedule.next_round()
    >>> pairs = chosen // 2
    >>> len(pairs) == len(set(pairs.tolist())) > 1
    True
    """
    _check_count("n_parameters", n_parameters)
    _check_count("n_parallel", n_parallel)
    _check_count("pipeline_depth", pipeline_depth)
    if n_parallel > n_parameters:
        raise ValueError(f"n_parallel={n_parallel} is more than n_parameters={n_parameters}; take at most all of them")
    if max_correlation is not None and not 0.0 <= max_correlation <= 1.0:
        raise ValueError(f"max_correlation={max_correlation!r} must be from 0 to 1, or None for no check")
    _check_count("n_schedulers", n_schedulers)
    if n_schedulers > n_parameters // n_parallel:
        raise ValueError(
            f"n_schedulers={n_schedulers} leaves less than n_parallel={n_parallel} of n_parameters={n_parameters} to "
            f"some; take at most {n_parameters // n_parallel}"
        )
    if order not in ORDERS:
        raise ValueError(f"order={order!r} is unknown; use one of {ORDERS}")
    sampler = make_sampler(order, n_parameters, np.random.default_rng(random_state), n_schedulers)
    return DynamicRegressionSchedule(sampler, n_parallel, max_correlation, pipeline_depth=pipeline_depth)


def _check_coroutine(program: Any, sweeps: Any, engine: str) -> None:
    if isinstance(program, type) or not callable(program):
        hint = "call it to make one" if isinstance(program, type) else "or a function that returns a generator of jobs"
        raise TypeError(f"program must be an instance of a subclass of schmp.Program, got {program!r}; {hint}")
    if sweeps is not None:
        raise ValueError(f"sweeps={sweeps!r} is for static programs; a coroutine ends by itself")
    if engine != "auto":
        raise ValueError(f"engine={engine!r} is for static programs; a coroutine takes 'auto'")


def _check_pieces(data: Any) -> Sequence[Any]:
    if isinstance(data, (str, bytes, np.ndarray)) or not isinstance(data, Sequence):
        raise TypeError(f"data must be a list of pieces, got {type(data).__name__}; put every one of them in a list")
    if not data:
        raise ValueError(f"data={data!r} is empty; at least one piece is needed")
    return data


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name}={value!r} must be an integer of at least 1")
