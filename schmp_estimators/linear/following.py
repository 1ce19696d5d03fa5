"""What the L1-penalised estimators share: following a fit certificate by certificate."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from schmp_estimators.core.engine.dynamic import PlaceOfRounds
from schmp_estimators.core.following import FollowedEstimator, without_itself
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.voice import FitBar, Voice

logger = logging.getLogger(__name__)


class CertifiedEstimator(FollowedEstimator):
    """Base of estimators whose fits write a record with each certificate."""

    _objective = "objective"
    _bar = FitBar

    @contextmanager
    def _followed(
        self, X: Any, y: Any, place: Place, rounds: PlaceOfRounds, snapshot: Callable[[], dict[str, Any]]
    ) -> Iterator[Followed]:
        """Give rounds that tell the callbacks, and who watches the place; X, y and `snapshot` are for callbacks."""
        with self._progress_bar():
            self.history_, self._snapshot = [], without_itself(snapshot)
            context = self._init_callback_context(max_subtasks=None)
            followed = Followed(self, context, {"estimator": self, "X": X, "y": y}, place, rounds)
            context.call_on_fit_task_begin(**followed.data)
            yield followed
            followed.voice.end()
            context.call_on_fit_task_end(**followed.data, reconstruction_attributes=self._snapshot)


class Followed:
    """Rounds that are followed, a task named "step" for each certificate; the first after one begins a step."""

    def __init__(
        self, estimator: CertifiedEstimator, context: Any, data: dict[str, Any], place: Place, rounds: PlaceOfRounds
    ) -> None:
        self.estimator, self.context, self.data = estimator, context, data
        self.voice = Voice(estimator, place, step="step", every=1)
        self._rounds, self.collect = rounds, rounds.collect
        self._step: Any = None
        #: whether a callback has ended the fit
        self.stopped = False

    def submit(self, function: Callable[..., Any], job: Any, *, is_sum: bool = False) -> Any:
        """Apply function(partition, job) to every partition, as a part of a step."""
        self.begin()
        return self._rounds.submit(function, job, is_sum=is_sum)

    def begin(self) -> None:
        """Begin a step, unless one has been begun."""
        if self._step is None:
            self._step = self.context.subcontext(task_name="step").call_on_fit_task_begin(**self.data)

    def report(self, record: dict[str, Any]) -> bool:
        """End the step with its certificate; returns whether the fit is to end."""
        self.begin()
        self.estimator.history_.append(record)
        logger.debug("%s: %s", type(self.estimator).__name__, record)
        step, self._step = self._step, None
        if step.call_on_fit_task_end(**self.data, reconstruction_attributes=self.estimator._snapshot):
            self.stopped = True
        self.voice.record()
        return self.stopped


def warn_of_gap(gap: float, tolerance: float, weight: float, n_iter: int, max_iter: int, what: str) -> None:
    """Warn of a fit that stopped for another reason than its gap; both are those of rows of this weight."""
    reason = f"stopped after max_iter={max_iter}" if n_iter >= max_iter else f"ended in step {n_iter}"
    warnings.warn(
        f"{what} {reason} with a duality gap of {gap / weight:.3g}, above the tolerance of {tolerance / weight:.3g}. "
        "Increase max_iter or tol, or scale the columns of X; with fewer updates at a time (n_parallel) random "
        "schedules do not diverge.",
        ConvergenceWarning,
        stacklevel=3,
    )
