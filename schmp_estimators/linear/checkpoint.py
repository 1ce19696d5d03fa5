"""Checkpoints of L1 fits: what they belong to, and what they hold.

A checkpoint holds the state of the coroutine, what each partition has that X does not tell, the models of targets that
have ended, and the history.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.engine.dynamic import Save
from schmp_estimators.core.io.checkpoint import Checkpoint, check_sweeps, identity_of
from schmp_estimators.core.io.files import located
from schmp_estimators.linear.penalties.base import Penalty, fields_of
from schmp_estimators.linear.programs.input import Description, Identify, SavedPartition
from schmp_estimators.linear.programs.model import Model

logger = logging.getLogger(__name__)


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
    estimator : SparseModel
        Has the parameters, and the history.
    problem : Problem
        The partitions.
    penalty : Penalty
        That of the fit, which must be alike besides data and schedule.
    n_targets : int
        Targets or classes fitted one after the other.
    """

    def __init__(self, estimator: Any, problem: Any, penalty: Penalty, n_targets: int) -> None:
        self._estimator, self._rounds = estimator, problem.rounds
        self.resumed = Resumed()
        if estimator.checkpoint is None:
            return
        described: list[Description] = problem.do(Identify())
        max_iter = int(estimator.max_iter)
        # a target that has ended does not go on: several of them make one fit of the same max_iter
        identity = {**_identity(estimator, problem, penalty), "max_iter": max_iter if n_targets > 1 else None}
        digests, rows = [one.digest for one in described], [one.n_rows for one in described]
        self._checkpoint = Checkpoint(estimator.checkpoint, identity_of(estimator, digests, rows=rows, **identity))
        found: Resumed | None = self._checkpoint.read()
        if found is not None:
            check_sweeps(self._checkpoint.url, found.state["model"]["n_iter"], max_iter)
            logger.info("going on after certificate %d from %s", len(found.history), self._checkpoint.url)
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
            before = [model.state() for model in finished]
            values = Resumed(len(finished), before, saved.state, self._rounds.save(), history)
            self._checkpoint.write(len(history), values)


def check_checkpoint(estimator: Any) -> None:
    """Raise ValueError if a checkpoint could not know the fit again."""
    if estimator.checkpoint is None:
        return
    located(estimator.checkpoint)  # raises if it is nowhere
    if estimator.schedule in ("priority", "random") and not isinstance(estimator.random_state, Integral):
        raise ValueError(
            f"checkpoint needs an int as random_state, to recognise its own fit, with schedule={estimator.schedule!r}; "
            f"got {estimator.random_state!r}"
        )
    if estimator.warm_start and hasattr(estimator, "coef_"):
        raise ValueError("checkpoint goes with a fit that starts anew; set checkpoint=None for warm_start")


def _identity(estimator: Any, problem: Any, penalty: Penalty) -> dict[str, Any]:
    """Return what bits depend on besides data: of parameters those that the schedule uses, and the penalty."""
    used = {"alpha", "C", "loss", "l1_ratio", "positive", "fit_intercept", "schedule", "tol"}
    if estimator.schedule != "resolve":
        used |= {"n_parallel", "max_correlation", "pipeline_depth", "n_schedulers"}
    if estimator.schedule in ("priority", "random"):
        used.add("random_state")
    named = {name: repr(value) for name, value in estimator.get_params(deep=False).items() if name in used}
    fields = b"".join(np.asarray(value, np.float64).tobytes() for value in fields_of(penalty))
    return {**named, "penalty": hashlib.sha256(fields).hexdigest(), "dtype": str(problem.extent.dtype)}
