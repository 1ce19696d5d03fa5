"""The programming model: write an algorithm as a program, and the engines of this package run it.

A *static* program, a `Program`, knows beforehand which shard of the data meets which block of the model, and `run` runs
it.  A *dynamic* program, a `DynamicProgram`, decides that from the present model, and `run_dynamic` runs it.  Both work
in this process, or on the active Dask client.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from typing import Any, TypeVar

import numpy as np

from schmp_estimators.core.engines.dynamic import DynamicProgram, RoundRuntime, run_rounds
from schmp_estimators.core.engines.graph import check_schedule
from schmp_estimators.core.engines.rounds import Keeper, Piece, Rounds
from schmp_estimators.core.engines.serial import run_serial
from schmp_estimators.core.engines.static import Source, StaticRun
from schmp_estimators.core.places.blas import one_blas_thread
from schmp_estimators.core.places.choose import choose_runtime
from schmp_estimators.core.program import Harvest, Local, Outcome, Program, Rotation, Saved, Visit
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.schedules.automatic import schedule_from_costs
from schmp_estimators.core.schedules.dynamic_regression import Check, DynamicRegressionSchedule
from schmp_estimators.core.schedules.priority import PrioritySampler, RandomSampler, RoundRobin
from schmp_estimators.core.schedules.rotation import schedule_rotation
from schmp_estimators.core.schedules.schedulers import ORDERS, make_sampler
from schmp_estimators.core.values import freeze

__all__ = [
    "Check",
    "DaskRounds",
    "DynamicProgram",
    "DynamicRegressionSchedule",
    "Harvest",
    "Keeper",
    "Local",
    "LocalRounds",
    "Outcome",
    "Piece",
    "PrioritySampler",
    "Program",
    "RandomSampler",
    "Rotation",
    "RoundRobin",
    "RoundRuntime",
    "Saved",
    "Source",
    "StaticRun",
    "Visit",
    "choose_runtime",
    "run",
    "run_dynamic",
    "run_rounds",
    "run_serial",
    "schedule_dynamic_regression",
    "schedule_from_costs",
    "schedule_rotation",
    "tree_sum",
]

M = TypeVar("M")

_ENGINES = ("static", "serial")


def run(
    program: Program,
    shards: Sequence[Any],
    *,
    n_sweeps: int,
    engine: str = "static",
    n_jobs: int | None = None,
    callback: Callable[[dict[str, Any]], bool | None] | None = None,
) -> tuple[list[dict[str, Any]], Harvest]:
    """Run a static program, on the active Dask client if there is one, else in this process.

    The result is the same to the last bit for both engines, any number of threads, and any cluster of like machines,
    as long as the program is pure.  For a run that can be saved and resumed see `StaticRun`.

    Parameters
    ----------
    program : Program
        The algorithm with its parameters.
    shards : sequence
        The data, in the order in which `Program.aggregate` gets reports.  A shard that is callable is called without
        arguments where the shard will live, so that data too large for this process can be read there; any other is
        taken as it is.
    n_sweeps : int
        How many sweeps to run, at least 1.
    engine : {"static", "serial"}, default="static"
        "serial" runs one cell after the other in this process, with or without a client: the definition of what a
        program means, and the easiest place to debug it.
    n_jobs : int, optional
        Threads in this process: None is 1, -1 all cores.  Neither a cluster nor the serial engine uses it.
    callback : callable, optional
        Called with the record of every sweep when the sweep is done.  If it returns True, the run ends there.

    Returns
    -------
    records : list of dict
        What `Program.progress` returned, for each sweep.
    harvest : Harvest
        The model, and what the program harvested of shards and blocks.

    Raises
    ------
    TypeError, ValueError
        If an argument or the program's schedule makes no sense.
    WorkerLostError, NoWorkersError, MixedClusterError, AsynchronousClientError
        If the cluster cannot do the work.

    Examples
    --------
    Two blocks meet two shards, and take up what these hold:

    >>> import numpy as np
    >>> from schmp_estimators.schmp import Local, Outcome, Program, Rotation, run, schedule_rotation
    >>> class Collect(Program):
    ...     name = "collect"
    ...
    ...     def schedule(self, sweep, n_shards):
    ...         order = schedule_rotation(n_shards)
    ...         return Rotation("visit", order, moves=True, divided=False), Local("count")
    ...
    ...     def start(self, shard, saved, each):
    ...         return Outcome(state=(), partial=0)
    ...
    ...     def start_block(self, index, parts, saved):
    ...         return np.zeros(1) if saved is None else np.array(saved)
    ...
    ...     def update(self, visit):
    ...         if visit.stage == "count":
    ...             return Outcome(visit.state, partial=len(visit.shard))
    ...         return Outcome(visit.state, block=visit.block + visit.shard.sum())
    ...
    ...     def aggregate(self, model, partials):
    ...         return sum(partials)
    ...
    ...     def save(self, shard, state):
    ...         return state
    ...
    ...     def save_block(self, block):
    ...         return np.array(block)
    ...
    ...     def progress(self, sweep, model, shards, blocks):
    ...         return {"sweep": sweep, "numbers": model}
    ...
    ...     def harvest_block(self, block):
    ...         return float(block[0])
    >>> records, harvest = run(Collect(), [np.array([1.0, 2.0]), np.array([4.0])], n_sweeps=2)
    >>> records
    [{'sweep': 0, 'numbers': 3}, {'sweep': 1, 'numbers': 3}]
    >>> harvest.blocks
    [14.0, 14.0]
    """
    _check_program(program)
    shards = _check_pieces("shards", shards)
    _check_count("n_sweeps", n_sweeps)
    if engine not in _ENGINES:
        raise ValueError(f"engine={engine!r} is unknown; use one of {_ENGINES}")
    _check_callback(callback)
    check_schedule(program.schedule(0, len(shards)), len(shards))
    records: list[dict[str, Any]] = []
    with one_blas_thread():
        if engine == "serial":
            pieces = [_load(shard) for shard in shards]
            for record, harvest, _ in run_serial(program, pieces, n_sweeps):  # noqa: B007
                records.append(record)
                if callback is not None and callback(record):
                    break
            return records, harvest
        sources = [Source(shard) if callable(shard) else Source(_load, (shard,)) for shard in shards]
        with (
            choose_runtime(n_jobs, label=f"schmp-{program.name}") as runtime,
            StaticRun(program, sources, runtime, n_sweeps=n_sweeps) as static,
        ):
            for record in static:
                records.append(record)
                if callback is not None and callback(record):
                    break
            return records, static.harvest()


def run_dynamic(
    program: DynamicProgram,
    model: M,
    partitions: Sequence[Any],
    *,
    n_jobs: int | None = None,
    pipeline_depth: int = 1,
    callback: Callable[[M], bool | None] | None = None,
    keeper: Keeper | None = None,
) -> M:
    """Run a dynamic program until it has no further job, on the active Dask client if there is one, else here.

    What `DynamicProgram.update` gets is read-only, so that an update that is not pure raises.  What is left in the
    partitions at the end is let go: a program that wants it asks for it in a last job.

    Parameters
    ----------
    program : DynamicProgram
        The algorithm: an object with the three functions ``schedule``, ``update`` and ``aggregate``.
    model : object
        What ``schedule`` reads and ``aggregate`` changes.  It stays in this process.
    partitions : sequence
        The data with the state that belongs to it: arrays, or (nested) tuples of them.  One that is callable is called
        without arguments where the partition will live.  One given as a value stays with this process too, so that
        it can be sent again after the death of a worker.
    n_jobs : int, optional
        Threads in this process: None is 1, -1 all cores.  A cluster does not use it.
    pipeline_depth : int, default=1
        How many jobs may be under way at a time.
    callback : callable, optional
        Called with the model after every ``aggregate``.  If it returns True, no further job is scheduled.
    keeper : Keeper, optional
        How a cluster shall cut the history of the partitions.  Now and then it gathers what ``keeper.save`` returns of
        each, and needs only the rounds since then to make one again, by ``keeper.restore``, that a worker took along
        when it died.  Without a keeper all rounds are remembered, which suits short runs.

    Returns
    -------
    object
        `model`.

    Raises
    ------
    TypeError, ValueError
        If an argument makes no sense.
    WorkerLostError
        If workers kept dying, or did not come back.
    NoWorkersError, MixedClusterError, AsynchronousClientError
        If the cluster cannot be used.

    Examples
    --------
    A quantile by bisection: each job is a threshold, each partition answers how many of its numbers are not above it.

    >>> import numpy as np
    >>> from schmp_estimators.schmp import run_dynamic
    >>> class Bisection:
    ...     def schedule(self, model):
    ...         low, high = model["range"]
    ...         return (low + high) / 2 if high - low > 1e-3 else None
    ...
    ...     @staticmethod
    ...     def update(partition, job):
    ...         return partition, np.count_nonzero(partition <= job)
    ...
    ...     def aggregate(self, model, job, partials):
    ...         low, high = model["range"]
    ...         model["range"] = (job, high) if sum(partials) < model["rank"] else (low, job)
    >>> partitions = [np.array([5.0, 9.0]), np.array([1.0, 7.0])]
    >>> model = run_dynamic(Bisection(), {"range": (0.0, 64.0), "rank": 3}, partitions)
    >>> round(model["range"][1], 3)
    7.0
    """
    _check_dynamic(program)
    partitions = _check_pieces("partitions", partitions)
    _check_count("pipeline_depth", pipeline_depth)
    _check_callback(callback)
    name = type(program).__name__.lower()
    with one_blas_thread(), choose_runtime(n_jobs, label=f"schmp-{name}") as runtime:
        pieces = [Piece(partition) if callable(partition) else partition for partition in partitions]
        watched: Any = _Watched(program, callback)
        with Rounds(runtime, pieces, name, keeper) as rounds:
            run_rounds(watched, model, rounds, pipeline_depth)
    return model


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
        Call ``next_round`` for each job, and ``answer`` when the job has been aggregated.

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


class _Watched:
    """A dynamic program whose updates cannot write into what they get, and that can be stopped."""

    def __init__(self, program: DynamicProgram, callback: Callable[[Any], bool | None] | None) -> None:
        self._program, self._callback, self._stopped = program, callback, False
        self.update = partial(_update, program.update)

    def schedule(self, model: Any) -> Any:
        return None if self._stopped else self._program.schedule(model)

    def aggregate(self, model: Any, job: Any, partials: list[Any]) -> None:
        self._program.aggregate(model, job, partials)
        if self._callback is not None and self._callback(model):
            self._stopped = True


def _update(update: Callable[[Any, Any], tuple[Any, Any]], partition: Any, job: Any) -> tuple[Any, Any]:
    return update(freeze(partition), freeze(job))


def _load(piece: Any) -> Any:
    return piece() if callable(piece) else piece


def _check_program(program: Any) -> None:
    if not isinstance(program, Program):
        hint = "call it to make one" if isinstance(program, type) else "or use run_dynamic for a dynamic program"
        raise TypeError(f"program must be an instance of a subclass of schmp.Program, got {program!r}; {hint}")
    if not isinstance(getattr(program, "name", None), str):
        raise TypeError(f'program {type(program).__name__} has no name; give the class one, as in name = "my-program"')


def _check_dynamic(program: Any) -> None:
    missing = [name for name in ("schedule", "update", "aggregate") if not callable(getattr(program, name, None))]
    if missing or isinstance(program, (type, Program)):
        what = f"lacks {', '.join(missing)}" if missing else "is a class" if isinstance(program, type) else "is static"
        raise TypeError(
            f"program must be an object with the functions schedule, update and aggregate; {program!r} {what}; "
            "run static programs with run"
        )
    if inspect.ismethod(program.update) and program.update.__self__ is program:
        raise TypeError(
            f"program.update of {type(program).__name__} takes self, and would send the whole program with every job; "
            "make it a staticmethod of partition and job"
        )


def _check_pieces(name: str, pieces: Any) -> Sequence[Any]:
    if isinstance(pieces, (str, bytes, np.ndarray)) or not isinstance(pieces, Sequence):
        raise TypeError(f"{name} must be a list, got {type(pieces).__name__}; put every one of them in a list")
    if not pieces:
        raise ValueError(f"{name}={pieces!r} is empty; at least one is needed")
    return pieces


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name}={value!r} must be an integer of at least 1")


def _check_callback(callback: Any) -> None:
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r} must be a function of one argument, or None")
