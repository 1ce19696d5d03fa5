"""Checkpoints of L1 fits: what they belong to, what they hold, and what is to be made of the values in one.

A checkpoint holds the state of the coroutine, what each partition has that X does not tell, the models of targets that
have ended, and the history.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators import __version__
from schmp_estimators.core.engine.dynamic import Save
from schmp_estimators.core.io.checkpoint import Checkpoint, check_array, check_sweeps
from schmp_estimators.linear.programs.input import Description, Identify, SavedPartition
from schmp_estimators.linear.programs.model import ARRAYS, BOUNDS, COUNTS, FLAGS, NUMBERS, Model
from schmp_estimators.linear.programs.resolve import Seen

logger = logging.getLogger(__name__)

_RECORD = {"iterations", "seconds", "objective", "dual_gap", "support", "scope", "samples"}


class Resumed(NamedTuple):
    """Where a fit goes on; `target` is the target or class under way, −1 if the fit begins."""

    target: int = -1
    #: states of the models of the targets before
    finished: Sequence[Mapping[str, Any]] = ()
    state: Any = None
    partitions: Sequence[SavedPartition] = ()
    history: Sequence[dict[str, float]] = ()


class Checkpointing:
    """Keeps a fit in its checkpoint, if it has one.

    Parameters
    ----------
    estimator : PrioritizedLasso or SparseLogisticRegression
        Has the parameters, and the history.
    problem : Problem
        The partitions.
    identity : mapping of str to JSON values
        What else must be alike besides data and schedule.
    n_targets : int
        Targets or classes fitted one after the other.
    """

    def __init__(self, estimator: Any, problem: Any, identity: Mapping[str, Any], n_targets: int) -> None:
        self._estimator, self._rounds = estimator, problem.rounds
        self.resumed = Resumed()
        if estimator.checkpoint is None:
            return
        described: list[Description] = problem.do(Identify())
        url, max_iter = estimator.checkpoint, int(estimator.max_iter)
        # a target that has ended does not go on: several of them make one fit of the same max_iter
        identity = {**identity, **_schedule(estimator), "max_iter": max_iter if n_targets > 1 else None}
        self._checkpoint = Checkpoint(url, fingerprint(type(estimator).__name__, described, identity))
        found = self._checkpoint.read(
            partial(
                restore,
                url=url,
                max_iter=max_iter,
                n_targets=n_targets,
                scheduled=estimator.schedule != "resolve",
                rows=[one.n_rows for one in described],
                n_columns=problem.extent.n_columns,
            )
        )
        if found is not None:
            logger.info("going on after certificate %d from %s", len(found.history), url)
            self.resumed = found
            self._rounds.restore(found.partitions)
            estimator.history_ = list(found.history)

    def saver(self, models: Sequence[Model]) -> Callable[[Save], None] | None:
        """Return what writes the checkpoint while the last of `models` is fitted, if there is one to write."""
        return partial(self._save, models) if self._estimator.checkpoint is not None else None

    def _save(self, models: Sequence[Model], saved: Save) -> None:
        history = self._estimator.history_
        if saved.last or len(history) % self._estimator.checkpoint_every == 0:
            *finished, _ = models
            values = Resumed(
                len(finished), [model.state() for model in finished], saved.state, self._rounds.save(), history
            )
            self._checkpoint.write(len(history), values._asdict())


def check_parameters(estimator: Any) -> None:
    """Raise ValueError if a checkpoint could not know the fit again."""
    if estimator.checkpoint is None:
        return
    if estimator.schedule in ("priority", "random") and not isinstance(estimator.random_state, Integral):
        raise ValueError(
            f"checkpoint needs an int as random_state, to recognise its own fit, with schedule={estimator.schedule!r}; "
            f"got {estimator.random_state!r}"
        )
    if estimator.warm_start and hasattr(estimator, "coef_"):
        raise ValueError("checkpoint goes with a fit that starts anew; set checkpoint=None for warm_start")


def _schedule(estimator: Any) -> dict[str, Any]:
    """Return what bits depend on of the parameters that both estimators have."""
    used = {
        "fit_intercept": bool(estimator.fit_intercept),
        "schedule": estimator.schedule,
        "tol": float(estimator.tol),
    }
    if estimator.schedule != "resolve":
        limit = estimator.max_correlation
        used["n_parallel"] = int(estimator.n_parallel)
        used["max_correlation"] = None if limit is None else float(limit)
        used["pipeline_depth"] = int(estimator.pipeline_depth)
        used["n_schedulers"] = int(estimator.n_schedulers)
    if estimator.schedule in ("priority", "random"):
        used["random_state"] = int(estimator.random_state)
    return used


def fingerprint(estimator: str, described: Sequence[Description], identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be alike for a checkpoint to be a fit's own."""
    return {
        "estimator": estimator,
        "version": __version__,
        "data": hashlib.sha256("".join(one.digest for one in described).encode()).hexdigest(),
        "rows": [one.n_rows for one in described],
        **identity,
    }


def restore(
    values: Any,
    *,
    url: str | os.PathLike[str],
    max_iter: int,
    n_targets: int,
    scheduled: bool,
    rows: Sequence[int],
    n_columns: int,
) -> Resumed:
    """Check what was read.

    Parameters
    ----------
    values : nested lists and dicts
        Those of a fit, through a file.
    url : str or path-like
        That of the checkpoint, for messages.
    max_iter, n_targets : int
        Of this fit.
    scheduled : bool
        Whether it has another schedule than "resolve".
    rows : sequence of int
        Rows of each partition.
    n_columns : int
        Columns of X.

    Raises
    ------
    CheckpointMismatchError
        If more steps have been made than this fit is to have.
    Exception
        If the values are not those of such a fit.
    """
    target, finished, state, partitions, history = (values[name] for name in Resumed._fields)
    if type(target) is not int or not 0 <= target < n_targets or len(finished) != target:
        raise ValueError(f"target {target!r} of {n_targets}")
    _check_history(history)
    for model in (*finished, state["model"]):
        _check_model(model, n_columns)
    check_sweeps(url, state["model"]["n_iter"], max_iter)
    scope = state["model"]["scope"]
    seen = Seen(*state["seen"])
    check_array("gradient", seen.gradient, (n_columns if scope is None else len(scope),), np.float64)
    _check_number("scale", seen.scale)
    _check_bound("slack", seen.slack)
    groups = state.get("candidates", [])
    for group in groups:
        check_array("candidates", group, (np.size(group),), np.int64, 0, n_columns - 1)
    if groups and len(np.unique(np.concatenate(groups))) != sum(map(len, groups)):
        raise ValueError("candidates that are not distinct")
    if type(state.get("descends", True)) is not bool:
        raise ValueError("whether descent is worth trying is not known")
    if scheduled:
        _check_count("updates", state["updates"])
        _check_schedule(state["schedule"], n_columns)
    kept = [_partition(one, n, n_columns, groups) for one, n in zip(partitions, rows, strict=True)]
    for one in kept:
        check_array("shifts", one.shifts, state["model"]["shifts"].shape, np.float64)
        if not np.array_equal(one.shifts, state["model"]["shifts"]):
            raise ValueError("columns of partitions are shifted otherwise than those of the model")
    return Resumed(target, finished, state, kept, history)


def _check_history(history: Any) -> None:
    if type(history) is not list or not history:
        raise ValueError("no history")
    for record in history:
        if set(record) != _RECORD or not all(
            type(value) in (int, float) and not math.isnan(value) for value in record.values()
        ):
            raise ValueError("the history holds what is no certificate")
        if not 0 <= record["seconds"] < math.inf:
            raise ValueError("seconds of no clock")


def _check_model(state: Any, n_columns: int) -> None:
    for name in (*NUMBERS, "seconds"):
        _check_number(name, state[name])
    for name in BOUNDS:
        _check_bound(name, state[name])
    for name in COUNTS:
        _check_count(name, state[name])
    for name in FLAGS:
        if type(state[name]) is not bool:
            raise ValueError(f"{name}: {state[name]!r}")
    if not (state["tolerance"] >= 0.0 and state["total_weight"] > 0.0):
        raise ValueError("a tolerance or weight that is not positive")
    for field in state["penalty"]:
        if isinstance(field, np.ndarray):
            check_array("penalty", field, (n_columns,), np.float64, 0.0)
        elif type(field) is not bool and not (type(field) is float and 0.0 <= field < math.inf):
            raise ValueError(f"a penalty of {field!r}")
    pace = state["pace"]
    for name in ("max_steps", "_back_off", "_waiting", "cuts"):
        _check_count(name, pace[name])
    for name in ("accuracy", "toil"):
        _check_number(name, pace[name])
    if type(pace["second_order"]) is not bool or pace["toil"] < 0.0:
        raise ValueError("a pace that is none")
    _check_arrays(state, n_columns)


def _check_arrays(state: Any, n_columns: int) -> None:
    for name in ARRAYS:
        array = state[name]
        if name in ("dropped", "scope"):
            if name == "scope" and array is None:
                continue
            check_array(name, array, (np.size(array),), np.int64, 0, n_columns - 1)
            if (np.diff(array) <= 0).any():
                raise ValueError(f"{name}: not ascending")
        else:
            expected = np.shape(array) if name == "shifts" and np.shape(array) == (0,) else (n_columns,)
            check_array(name, array, expected, np.float64, 0.0 if name == "norms" else None)


def _check_schedule(saved: Any, n_columns: int) -> None:
    _check_sampler(saved["sampler"], n_columns)
    for candidates, others, correlations in saved["answered"]:
        for columns in (candidates, others):
            check_array("columns of a check", columns, (np.size(columns),), np.int64, 0, n_columns - 1)
        check_array("correlations", correlations, (len(candidates), len(candidates) + len(others)), np.float64)


def _check_sampler(saved: Any, n_columns: int) -> None:
    if "slices" in saved:
        _check_count("turn", saved["turn"])
        for number, one in enumerate(saved["slices"]):
            _check_sampler(one, len(range(number, n_columns, len(saved["slices"]))))
        return
    if "squares" in saved:
        check_array("priorities", saved["squares"], (n_columns,), np.float64, 0.0)
    if "random" in saved:
        np.random.default_rng(0).bit_generator.state = saved["random"]  # raises if it is no state
    else:
        _check_count("next", saved["next"])
        check_array("columns that wait", saved["waiting"], (np.size(saved["waiting"]),), np.int64, 0, n_columns - 1)


def _partition(values: Any, n_rows: int, n_columns: int, groups: Sequence[Any]) -> SavedPartition:
    target, state, members, shifts = values
    check_array("target", target, (n_rows,), np.float64)
    check_array("state", state, (n_rows,), np.float64)
    for (columns, means), group in zip(members, groups, strict=True):
        check_array("candidates", columns, group.shape, np.int64)
        if not np.array_equal(columns, group):
            raise ValueError("partitions have gathered other columns than the candidates")
        check_array("means", means, (len(group),), np.float64)
    return SavedPartition(target, state, tuple((columns, means) for columns, means in members), shifts)


def _check_number(name: str, value: Any) -> None:
    if type(value) is not float or not math.isfinite(value):
        raise ValueError(f"{name}: {value!r}")


def _check_bound(name: str, value: Any) -> None:
    if type(value) is not float or math.isnan(value):
        raise ValueError(f"{name}: {value!r}")


def _check_count(name: str, value: Any) -> None:
    if type(value) is not int or value < 0:
        raise ValueError(f"{name}: {value!r}")
