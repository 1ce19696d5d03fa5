"""What the L1-penalised estimators share: constraints of parameters, and following a fit certificate by certificate."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

from sklearn.utils._param_validation import Interval, StrOptions

from schmp_estimators.core.engine.dynamic import PlaceOfRounds
from schmp_estimators.core.following import FollowedEstimator, without_itself
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.voice import FitBar, Voice
from schmp_estimators.linear.penalties.choose import STRONGEST, WEAKEST

logger = logging.getLogger(__name__)

SCHEDULES = ("resolve", "priority", "random", "round_robin")


class _Wide(Interval):
    """An interval whose ends a number of another type, float32, need not be able to hold."""

    def __contains__(self, value: Any) -> bool:
        return bool(super().__contains__(float(value) if isinstance(value, Real) else value))


STRENGTH = [_Wide(Real, WEAKEST, STRONGEST, closed="both")]

_COUNT = [Interval(Integral, 1, None, closed="left")]

#: Constraints of the parameters that each of the four classes has.
CONSTRAINTS: dict[str, list[Any]] = {
    "fit_intercept": ["boolean"],
    "max_iter": _COUNT,
    "tol": [Interval(Real, 0, None, closed="left")],
    "n_jobs": [Integral, None],
}
#: Constraints of the parameters that shape the penalty.
PENALTY_CONSTRAINTS: dict[str, list[Any]] = {
    "l1_ratio": [Interval(Real, 1e-6, 1, closed="both")],
    "penalty_factors": ["array-like", None],
}
#: Constraints of the parameters of those that take a schedule.
SCHEDULED_CONSTRAINTS: dict[str, list[Any]] = {
    **CONSTRAINTS,
    "schedule": [StrOptions(set(SCHEDULES))],
    "warm_start": ["boolean"],
    "n_parallel": _COUNT,
    "max_correlation": [Interval(Real, 0, 1, closed="both"), None],
    "pipeline_depth": _COUNT,
    "n_schedulers": _COUNT,
    "n_shards": [*_COUNT, None],
    "checkpoint": [None, str, os.PathLike],
    "checkpoint_every": _COUNT,
    "verbose": ["verbose"],
    "random_state": ["random_state"],
}


class CertifiedEstimator(FollowedEstimator):
    """Base of estimators whose fits write a record with each certificate."""

    _objective = "objective"
    _bar = FitBar

    @contextmanager
    def _followed(self, X: Any, y: Any, place: Place) -> Iterator[Follower]:
        """Give what makes programs tell the callbacks, and who watches the place; X and y are for callbacks."""
        with self._progress_bar():
            self.history_ = []
            context = self._init_callback_context(max_subtasks=None)
            follower = Follower(self, context, {"estimator": self, "X": X, "y": y}, place)
            context.call_on_fit_task_begin(**follower.data)
            yield follower
            follower.voice.end()
            context.call_on_fit_task_end(**follower.data, reconstruction_attributes=self._snapshot)


class Follower:
    """Follows the programs of one fit, a task named "step" for each certificate."""

    def __init__(self, estimator: CertifiedEstimator, context: Any, data: dict[str, Any], place: Place) -> None:
        self.estimator, self.context, self.data = estimator, context, data
        self.voice = Voice(estimator, place, step="step", every=1)
        self._step: Any = None
        #: whether a callback has ended the fit
        self.stopped = False

    def watch(self, rounds: PlaceOfRounds, snapshot: Callable[[], dict[str, Any]]) -> Followed:
        """Return rounds the first of which after a certificate begins a step; `snapshot` is for callbacks."""
        self.estimator._snapshot = without_itself(snapshot)
        return Followed(rounds, self)

    @property
    def is_heard(self) -> bool:
        """Whether anybody wants to hear of steps while they are made."""
        return bool(getattr(self.estimator, "_skl_callbacks", ())) or hasattr(self.estimator, "_parent_callback_ctx")

    def begin(self) -> None:
        """Begin a step, unless one has been begun."""
        if self._step is None:
            self._step = self.context.subcontext(task_name="step").call_on_fit_task_begin(**self.data)

    def end(self, record: dict[str, Any]) -> bool:
        """End the step with its certificate; returns whether the fit is to end."""
        self.begin()
        self.estimator.history_.append(record)
        logger.debug("%s: %s", type(self.estimator).__name__, record)
        step, self._step = self._step, None
        if step.call_on_fit_task_end(**self.data, reconstruction_attributes=self.estimator._snapshot):
            self.stopped = True
        self.voice.record()
        return self.stopped


class Followed:
    """Rounds with a follower."""

    def __init__(self, rounds: PlaceOfRounds, follower: Follower) -> None:
        self._rounds, self._follower = rounds, follower
        self.collect, self.report, self.is_heard = rounds.collect, follower.end, follower.is_heard

    @property
    def stopped(self) -> bool:
        """Whether a callback has ended the fit."""
        return self._follower.stopped

    def submit(self, function: Callable[..., Any], job: Any, *, is_sum: bool = False) -> Any:
        """Apply function(partition, job) to every partition, as a part of a step."""
        self._follower.begin()
        return self._rounds.submit(function, job, is_sum=is_sum)
