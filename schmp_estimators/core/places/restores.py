"""How often lost work is begun again before a run is given up: the one rule, for engines and for the input."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from schmp_estimators.core.errors import WorkerLostError, WorkLostError

if TYPE_CHECKING:
    from schmp_estimators.core.places.place import Place

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: How often work is begun again without any progress in between.
MAX_RESTORES = 5
#: Seconds to wait before work is begun again, but for the first time, and how much longer each time than before.
PAUSE, LONGER = 0.5, 2.0


class Restores:
    """Count losses of work since the last progress.

    Parameters
    ----------
    place : Place
    progress : str
        What would have been progress, for the error.
    """

    def __init__(self, place: Place, progress: str) -> None:
        self._place, self._progress = place, progress
        self._n = 0

    def forget(self) -> None:
        """There has been progress."""
        self._n = 0

    def prepare(self, error: WorkLostError, going_on: str) -> None:
        """Make the place ready to begin again after a loss.

        Raises
        ------
        WorkerLostError
            If work has been lost too often.
        NoWorkersError, SchedulerLostError
            If there is nobody to begin with.
        """
        if self._n == MAX_RESTORES:
            raise WorkerLostError(
                f"work was lost {MAX_RESTORES + 1} times without {self._progress} in between (last: {error}); look at "
                "the logs and the memory of the workers, use more or larger workers, and give a checkpoint, where "
                "there is one, so that a later fit can go on from there"
            ) from error
        if self._n:
            time.sleep(PAUSE * LONGER ** (self._n - 1))
        self._n += 1
        logger.warning("%s; %s", error, going_on)
        self._place.tell("restart")
        self._place.reset()


def begun_anew(place: Place, action: Callable[[], T]) -> T:
    """Return what `action` returns, which lets an input in; begin it anew if that is lost on the way."""
    restores = Restores(place, "the input being read")
    while True:
        try:
            return action()
        except WorkLostError as error:
            restores.prepare(error, "reading the input again")
