"""The sender of the events of a fit.

A fit sends events to a topic of the scheduler, and must not be disturbed by this.  The thread of
the fit appends an event to a list; the event loop of the client sends all events of the list, a few
times a second at most.  An error there stops the sending, never the fit.  The scheduler serves the
page.
"""

import asyncio
import logging
import threading
import time
from contextlib import suppress
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import numpy as np
from distributed import Client, Scheduler
from tornado.ioloop import IOLoop

from schmp_estimators.core.dashboard.fits import TOPIC, Fits
from schmp_estimators.core.typing import Function, Named

logger = logging.getLogger(__name__)

#: Seconds between two messages of a fit.
EVERY = 0.25
#: Seconds that the end of a fit waits until its last message is sent.
PATIENCE = 1.0

#: Whether the scheduler of a client has the page.
_pages: WeakKeyDictionary[Client, bool] = WeakKeyDictionary()


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
            from schmp_estimators.core.dashboard.teller import open_page  # noqa: PLC0415
        except ImportError as error:
            return f"the scheduler has no such page ({error})"
        return str(await open_page(dask_scheduler))

    return ask
