"""The scheduler's side: it opens the page, keeps what fits tell, and what workers do while somebody looks."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dask.utils import key_split
from distributed import Scheduler, SchedulerPlugin
from distributed.protocol.pickle import dumps
from tornado.ioloop import IOLoop

from schmp_estimators.core.dashboard.telling import SPANS, TOPIC

#: Points of a curve; of more than that every second one is left out.
POINTS = 2000
#: How many fits that have ended are still shown, and for how many seconds.
ENDED, FOR_SECONDS = 8, 900.0
#: Stretches of work that are kept while somebody looks, and seconds of them.
STRETCHES, WINDOW = 5000, 30.0
#: Seconds after which workers have told of all that they gave.
HEARTBEATS = 1.5

#: What stands in every record, whatever the model.
_COUNTED = {"event", "time", "iterations", "seconds", "samples", "sweep"}


@dataclass
class Fit:
    """A fit as it has told of itself."""

    name: str
    client: str
    label: str
    estimator: str = ""
    #: what the records call what the fit improves
    objective: str = ""
    shards: int = 0
    total: int = 0
    began: float = 0.0
    ended: float = 0.0
    state: str = "runs"
    restarts: int = 0
    #: bytes that workers had given each other when it began, and when it ended
    moved: list[int] = field(default_factory=lambda: [0, 0])
    #: the last known values of records, and of what callbacks have measured
    last: dict[str, Any] = field(default_factory=dict)
    measured: dict[str, Any] = field(default_factory=dict)
    n_records: int = 0
    #: rows of sweeps, seconds, samples, objective; NaN where there is none
    points: list[tuple[float, float, float, float]] = field(default_factory=list)

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return not self.ended

    def add(self, record: dict[str, Any]) -> None:
        """Take a record."""
        numbers = {key: float(value) for key, value in record.items() if isinstance(value, (int, float))}
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
        """Return samples per second over the last few records; NaN if it counts none."""
        if len(self.points) < 2:
            return math.nan
        before, now = self.points[-min(6, len(self.points))], self.points[-1]
        return (now[2] - before[2]) / max(now[1] - before[1], 1e-9)


#: Tasks of ranks, and what these call it when they wait for each other.
_OF_RANKS, WAIT = ("-sweeps", "-rounds"), "wait"


class Stretch(NamedTuple):
    """A stretch of time in which a worker did something."""

    worker: str
    thread: int
    name: str
    is_transfer: bool
    start: float
    stop: float


class Strips(SchedulerPlugin):
    """Notes who worked on what when; on the scheduler only while somebody looks."""

    name = "schmp-strips"

    def __init__(self) -> None:
        self.stretches: deque[Stretch] = deque(maxlen=STRETCHES)
        #: how many have come altogether
        self.count = 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Note a task that is done; what ranks did in theirs they tell themselves."""
        if start != "processing" or finish not in ("memory", "erred") or key_split(key).endswith(_OF_RANKS):
            return
        for one in kwargs.get("startstops") or ():
            if one["action"] in ("compute", "transfer"):
                is_transfer = one["action"] == "transfer"
                where, what = (kwargs["worker"], kwargs.get("thread") or 0), key_split(key)
                self.stretches.append(Stretch(*where, what, is_transfer, one["start"], one["stop"]))
                self.count += 1

    def add(self, msg: dict[str, Any]) -> None:
        """Note what a rank did."""
        for what, _, _, thread, start, stop in msg["spans"]:
            self.stretches.append(Stretch(msg["worker"], thread, what, what == WAIT, start, stop))
            self.count += 1

    def since(self, moment: float) -> list[Stretch]:
        """Return what was done after a moment."""
        return [one for one in self.stretches if one.stop > moment]


class Fits(SchedulerPlugin):
    """Hears what fits tell, and keeps what the page shows of it.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    """

    name = "schmp-fits"

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.fits: dict[str, Fit] = {}
        self.strips = Strips()
        self._watchers: set[object] = set()

    def log_event(self, topic: str, msg: Any) -> None:
        """Take events of a fit, and, if somebody looks, what ranks did."""
        if topic == SPANS and self._watchers:
            self.strips.add(msg)
        if topic != TOPIC or not isinstance(msg, dict) or "fit" not in msg:
            return
        fit = self.fits.setdefault(msg["fit"], Fit(msg["fit"], msg["client"], msg["label"]))
        for event in msg["events"]:
            self._take(fit, event)
        self.tidy()

    def _take(self, fit: Fit, event: dict[str, Any]) -> None:
        match event["event"]:
            case "begin":  # of the whole, of a part of it, or once more
                if not fit.began:
                    fit.began, fit.moved = event["time"], [self.moved(), 0]
                for name in ("estimator", "objective", "shards", "total"):
                    setattr(fit, name, getattr(fit, name) or event.get(name, getattr(fit, name)))
            case "record":
                fit.add(event)
            case "measured":
                fit.measured.update({key: value for key, value in event.items() if key not in _COUNTED})
            case "restart":
                fit.restarts += 1
            case "failed":
                self._end(fit, f"failed: {event.get('error', '')}", event["time"])
            case "end":
                self._end(fit, "done", event["time"])

    def _end(self, fit: Fit, state: str, moment: float) -> None:
        if fit.runs:
            fit.state, fit.ended, fit.moved[1] = state, moment, self.moved()
            self.scheduler.loop.call_later(HEARTBEATS, self._settle, fit)

    def _settle(self, fit: Fit) -> None:
        fit.moved[1] = self.moved()

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """End the fits of a client that is gone."""
        for fit in self.fits.values():
            if fit.client == client:
                self._end(fit, "client gone", time.time())

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Let a worker that has come count what it gives to others."""
        self.scheduler.loop.add_callback(self.count_moved, [worker])

    def tidy(self) -> None:
        """Forget fits that ended long ago, and all but the last few of the others that have ended."""
        ended = sorted((fit for fit in self.fits.values() if not fit.runs), key=lambda fit: fit.ended)
        for place, fit in enumerate(reversed(ended)):
            if place >= ENDED or fit.ended < time.time() - FOR_SECONDS:
                del self.fits[fit.name]

    def moved(self) -> int:
        """Return how many bytes workers have given each other, as of their last heartbeats."""
        return sum(state.metrics.get("schmp-moved") or 0 for state in self.scheduler.workers.values())

    def moved_by(self, fit: Fit) -> int:
        """Return how many bytes workers gave each other while a fit ran."""
        return max(0, (self.moved() if fit.runs else fit.moved[1]) - fit.moved[0])

    async def count_moved(self, workers: list[str] | None = None) -> None:
        """Let workers count what they give to others."""
        message = {"op": "run", "function": dumps(_counting())}
        await self.scheduler.broadcast(msg=message, workers=workers, on_error="ignore")

    def watch(self, watcher: object) -> None:
        """Somebody looks: note what workers do."""
        if not self._watchers:
            self.scheduler.add_plugin(self.strips)
        self._watchers.add(watcher)

    def leave(self, watcher: object) -> None:
        """Somebody looks no longer; with the last one the noting ends."""
        self._watchers.discard(watcher)
        if not self._watchers and Strips.name in self.scheduler.plugins:
            self.scheduler.remove_plugin(Strips.name)
            self.strips.stretches.clear()


def _counting() -> Callable[..., Any]:
    """Return a function that lets a worker tell what it has given; it travels as its code."""

    def count(dask_worker: Any) -> None:
        def moved(worker: Any) -> int:
            return int(worker.transfer_outgoing_bytes_total + getattr(worker, "schmp_said", 0))

        dask_worker.metrics["schmp-moved"] = moved

    return count


async def open_page(scheduler: Scheduler) -> str:
    """Open the page, unless it is open; returns why that is impossible, nothing if it is open."""
    if Fits.name in scheduler.plugins:
        return ""
    try:
        from distributed.dashboard.core import BokehApplication  # noqa: PLC0415  (bokeh is optional)
        from distributed.dashboard.scheduler import template_variables  # noqa: PLC0415

        from schmp_estimators.core.dashboard.page import PAGE, show  # noqa: PLC0415
    except ImportError as error:
        return f"the scheduler has no dashboard ({error})"
    served = [app for app in scheduler.http_application.applications if "/status" in getattr(app, "app_paths", ())]
    if not served:
        return "the scheduler has no dashboard"
    fits = Fits(scheduler)
    variables = template_variables(scheduler)
    application = BokehApplication({f"/{PAGE}": show}, scheduler, prefix=served[0].prefix, template_variables=variables)
    scheduler.http_application.add_application(application)
    application.initialize(IOLoop.current())
    application.start()
    if PAGE not in variables["pages"]:
        variables["pages"].append(PAGE)
    scheduler.add_plugin(fits)
    await fits.count_moved()
    return ""
