"""What the scheduler keeps for the page: fits, as their events describe them.

It keeps the work of ranks, too, while somebody views the page.
"""

import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from distributed import Scheduler, SchedulerPlugin

from schmp_estimators.core.typing import Named

#: The topic of events of fits.
TOPIC = "schmp"
#: The topic of the work of ranks: messages with the name of the run, the address of the worker, and
#: `spans`, lists of a name, the numbers of the sweep and of the block (-1 if there is none; of a
#: wait, the rank that was awaited) and of the thread, start and stop in seconds since the epoch.
SPANS = "schmp-spans"

#: Largest number of points of a curve; beyond it every second point is dropped.
POINTS = 2000
#: Number of ended fits that are still shown, and seconds for which they are.
ENDED, FOR_SECONDS = 8, 900.0
#: Seconds for which the work of ranks is shown.
WINDOW = 30.0

#: Entries of records that are no objectives.
_COUNTED = {"event", "time", "iterations", "seconds", "samples", "sweep"}


@dataclass
class Fit:
    """A fit as its events describe it."""

    name: str
    client: str
    label: str
    estimator: str = ""
    #: name of the objective in the records
    objective: str = ""
    shards: int = 0
    total: int = 0
    began: float = 0.0
    ended: float = 0.0
    state: str = "runs"
    restarts: int = 0
    #: last values of records, and of measurements by callbacks
    last: Named = field(default_factory=dict)
    measured: Named = field(default_factory=dict)
    n_records: int = 0
    #: rows of sweeps, seconds, samples, objective; NaN for a value that is missing
    points: list[tuple[float, float, float, float]] = field(default_factory=list)
    #: how many of the workers it uses, if not all
    workers: str = ""

    @property
    def runs(self) -> bool:
        """Whether the fit has not ended."""
        return not self.ended

    def add(self, record: Named) -> None:
        """Add a record."""
        numbers = {
            key: float(value) for key, value in record.items() if isinstance(value, (int, float))
        }
        if not self.objective:
            self.objective = next((key for key in numbers if key not in _COUNTED), "")
        self.last.update(record)
        self.n_records += 1
        done = numbers.get("iterations", numbers.get("sweep", self.n_records - 1) + 1)
        seconds = numbers.get("seconds", record["time"] - self.began)
        samples, value = (numbers.get(name, math.nan) for name in ("samples", self.objective))
        self.points.append((done, seconds, samples, value))
        if len(self.points) > POINTS:
            del self.points[1:-1:2]

    def rate(self) -> float:
        """Return samples per second over the last few records; NaN if this is not known."""
        if len(self.points) < 2:
            return math.nan
        before = self.points[-min(6, len(self.points))]
        now = self.points[-1]
        return (now[2] - before[2]) / max(now[1] - before[1], 1e-9)


#: Name of the spans in which a rank waits for another one.
WAIT = "wait"


class Span(NamedTuple):
    """A span of time in which a rank did something."""

    worker: str
    thread: int
    name: str
    start: float
    stop: float
    #: The block, or the rank that was awaited; -1 if there is none.
    block: int = -1


class Fits(SchedulerPlugin):
    """Receives the events of fits, and keeps what the page shows.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    """

    name = "schmp-fits"

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.fits: dict[str, Fit] = {}
        #: the latest work of ranks, while somebody views the page
        self.spans: deque[Span] = deque(maxlen=5000)
        self.watchers: set[object] = set()

    def log_event(self, topic: str, msg: Any) -> None:
        """Process the events of a fit, and the work of ranks if somebody views the page."""
        if topic == SPANS and self.watchers:
            for what, _, block, thread, start, stop in msg["spans"]:
                self.spans.append(Span(msg["worker"], thread, what, start, stop, block))
        if topic != TOPIC or not isinstance(msg, dict) or "fit" not in msg:
            return
        fit = self.fits.setdefault(msg["fit"], Fit(msg["fit"], msg["client"], msg["label"]))
        for event in msg["events"]:
            self._take(fit, event)
        self.tidy()

    def _take(self, fit: Fit, event: Named) -> None:
        match event["event"]:
            case "begin":  # the fit begins, or a part of it, or the fit begins again
                if not fit.began:
                    fit.began = event["time"]
                for name in ("estimator", "objective", "shards", "workers", "total"):
                    setattr(fit, name, getattr(fit, name) or event.get(name, getattr(fit, name)))
            case "record":
                fit.add(event)
            case "measured":
                fit.measured.update(
                    {key: value for key, value in event.items() if key not in _COUNTED}
                )
            case "restart":
                fit.restarts += 1
            case "failed":
                self._end(fit, f"failed: {event.get('error', '')}", event["time"])
            case "end":
                self._end(fit, "done", event["time"])

    def _end(self, fit: Fit, state: str, moment: float) -> None:
        if fit.runs:
            fit.state = state
            fit.ended = moment

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """End the fits of a client that is gone."""
        for fit in self.fits.values():
            if fit.client == client:
                self._end(fit, "client gone", time.time())

    def tidy(self) -> None:
        """Forget fits that ended long ago, and all ended fits but the last few."""
        ended = sorted(
            (fit for fit in self.fits.values() if not fit.runs), key=lambda fit: fit.ended
        )
        for place, fit in enumerate(reversed(ended)):
            if place >= ENDED or fit.ended < time.time() - FOR_SECONDS:
                del self.fits[fit.name]

    def watch(self, watcher: object) -> None:
        """Add a viewer; while there are viewers, the work of ranks is kept."""
        self.watchers.add(watcher)

    def leave(self, watcher: object) -> None:
        """Remove a viewer; after the last one, the work of ranks is no longer kept."""
        self.watchers.discard(watcher)
        if not self.watchers:
            self.spans.clear()
