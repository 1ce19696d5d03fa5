"""The events of fits, and who receives them.

A fit sends events to a topic of the scheduler, and must not be disturbed by this.  The thread of
the fit appends an event to a list; the event loop of the client sends all events of the list, a few
times a second at most.  An error there stops the sending, never the fit.  The scheduler serves the
page.  It keeps the events of fits, and the work of ranks while somebody views the page.
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4
from weakref import WeakKeyDictionary

import numpy as np
from distributed import Client, Scheduler, SchedulerPlugin
from tornado.ioloop import IOLoop

from schmp_estimators.core.typing import Function, Named

logger = logging.getLogger(__name__)

#: The topic of events of fits.
TOPIC = "schmp"
#: The topic of the work of ranks: messages with the name of the run, the address of the worker, and
#: `spans`, lists of a name, the numbers of the sweep and of the block (-1 if there is none; of a
#: wait, the rank that was awaited) and of the thread, start and stop in seconds since the epoch.
SPANS = "schmp-spans"

#: Seconds between two messages of a fit.
EVERY = 0.25
#: Seconds that the end of a fit waits until its last message is sent.
PATIENCE = 1.0

#: Whether the scheduler of a client has the page.
_pages: WeakKeyDictionary[Client, bool] = WeakKeyDictionary()

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
            fit.state, fit.ended = state, moment

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


async def open_page(scheduler: Scheduler) -> str:
    """Open the page, unless it is open; return why that is impossible, or an empty string."""
    if Fits.name in scheduler.plugins:
        return ""
    try:
        # bokeh is optional
        from distributed.dashboard.core import BokehApplication  # noqa: PLC0415
        from distributed.dashboard.scheduler import template_variables  # noqa: PLC0415

        from schmp_estimators.core.dashboard.page import PAGE, show  # noqa: PLC0415
    except ImportError as error:
        return f"the scheduler has no dashboard ({error})"
    served = [
        app
        for app in scheduler.http_application.applications
        if "/status" in getattr(app, "app_paths", ())
    ]
    if not served:
        return "the scheduler has no dashboard"
    variables = template_variables(scheduler)
    application = BokehApplication(
        {f"/{PAGE}": show}, scheduler, prefix=served[0].prefix, template_variables=variables
    )
    scheduler.http_application.add_application(application)
    application.initialize(IOLoop.current())
    application.start()
    if PAGE not in variables["pages"]:
        variables["pages"].append(PAGE)
    scheduler.add_plugin(Fits(scheduler))
    return ""


class Teller:
    """Sends the events of one fit, if the scheduler has the page.

    Parameters
    ----------
    client : distributed.Client
    label : str
        Name of the fit on the dashboard.
    """

    def __init__(self, client: Client, label: str) -> None:
        self._client = client
        self._label = label
        self._loop: Any = client.loop
        self._fit = uuid4().hex
        self._begun = self._ended = False
        self._unsent: list[Named] = []
        self._lock = threading.Lock()
        #: sends messages in their order
        self._turn = asyncio.Lock()
        #: whether a message will be sent soon, and when the next one may be
        self._is_due, self._next = False, 0.0
        self._has_page: bool | None = None

    def tell(self, event: str, details: Named) -> None:
        """Send an event with the plain values among the details.

        Nothing is sent before the first "begin".
        """
        self._begun = self._begun or event == "begin"
        if not self._begun or self._ended or self._has_page is False:
            return
        try:
            plain = {
                str(key): value
                for key, given in details.items()
                if (value := _plain(given)) is not None
            }
        except Exception:  # the record of a user's program may be anything
            plain = {}
        with self._lock:
            self._unsent.append({**plain, "event": event, "time": time.time()})
            is_due = self._is_due
            self._is_due = True
        if not is_due:
            with suppress(Exception):  # the client may be closing
                wait = max(0.0, self._next - time.monotonic())
                self._loop.add_callback(self._loop.call_later, wait, self._send)

    def close(self, *, waits: bool = True) -> None:
        """Send the event that the fit has ended, and perhaps wait until it is sent."""
        self.tell("end", {})
        if (
            not self._begun
            or self._ended
            or self._has_page is False
            or self._client.status != "running"
        ):
            return
        self._ended = True
        with suppress(Exception):
            sent = asyncio.run_coroutine_threadsafe(self._send(), self._loop.asyncio_loop)
            if waits:
                sent.result(PATIENCE)

    async def _send(self) -> None:
        async with self._turn:
            try:
                if self._has_page is None:
                    self._has_page = await has_page(self._client)
                with self._lock:
                    events = self._unsent
                    self._unsent = []
                    self._is_due = False
                    self._next = time.monotonic() + EVERY
                if events and self._has_page:
                    message = {
                        "fit": self._fit,
                        "client": self._client.id,
                        "label": self._label,
                        "events": events,
                    }
                    await self._client.scheduler.log_event(  # type: ignore[union-attr]
                        topic=TOPIC, msg=message
                    )
            except Exception as error:  # an error of the dashboard must not end the fit
                logger.debug("events of the fit are no longer sent: %r", error)
                self._has_page = False


def _plain(value: Any) -> Any:
    """Return a number or a text that any scheduler can read; None for all other values."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, (bool, int, float, str)) else None


async def has_page(client: Client) -> bool:
    """Let the scheduler open the page when first asked; return whether the page is there."""
    if client not in _pages:
        try:
            reason: str = await client.run_on_scheduler(_asking(), asynchronous=True)
        except Exception as error:  # it may refuse to run functions, or be gone
            reason = repr(error)
        if reason:
            logger.info("no page of fits on the dashboard: %s", reason)
        _pages[client] = not reason
    return _pages[client]


def _asking() -> Function:
    """Return a function that is pickled by its code.

    A scheduler with another version, or without Bokeh, can run it.
    """

    async def ask(dask_scheduler: Any) -> str:
        try:
            # there, not here
            from schmp_estimators.core.dashboard.fits import open_page  # noqa: PLC0415
        except ImportError as error:
            return f"the scheduler has no such page ({error})"
        return str(await open_page(dask_scheduler))

    return ask
