"""What a fit tells of itself: events in a topic of the scheduler, where the page of running fits hears them.

Telling is an aside.  The thread of the fit puts an event on a list; the event loop of the client sends what has come
together, a few times a second at most.  Whatever goes wrong there ends the telling, never the fit.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import numpy as np
from distributed import Client

#: The topic of what fits tell of themselves.
TOPIC = "schmp"
#: The topic of what ranks did when: messages with the name of the run, the address of the worker, and `spans`, lists of
#: a name, the numbers of the sweep and of the block (-1 where there is none) and of the thread, start and stop in
#: seconds since the epoch.
SPANS = "schmp-spans"


logger = logging.getLogger(__name__)

#: Seconds between two messages of a fit.
EVERY = 0.25
#: Seconds that the end of a fit waits for its last message to be sent.
PATIENCE = 1.0

#: Whether the scheduler of a client has the page.
_pages: WeakKeyDictionary[Client, bool] = WeakKeyDictionary()


class Teller:
    """Tells of one fit, if the scheduler has the page.

    Parameters
    ----------
    client : distributed.Client
    label : str
        What the fit is called on the dashboard.
    """

    def __init__(self, client: Client, label: str) -> None:
        self._client, self._label = client, label
        self._loop: Any = client.loop
        self._fit = uuid4().hex
        self._begun = self._ended = False
        self._unsent: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        #: messages arrive in their order
        self._turn = asyncio.Lock()
        self._sending = False
        self._has_page: bool | None = None

    def tell(self, event: str, details: Mapping[str, Any]) -> None:
        """Tell of an event, with the plain values among the details; nothing is told before the first "begin"."""
        self._begun = self._begun or event == "begin"
        if not self._begun or self._ended or self._has_page is False:
            return
        try:
            plain = {str(key): value for key, given in details.items() if (value := _plain(given)) is not None}
        except Exception:  # a program may call anything a record
            plain = {}
        with self._lock:
            self._unsent.append({**plain, "event": event, "time": time.time()})
            idle, self._sending = not self._sending, True
        if idle:
            with suppress(Exception):  # the client may be closing
                self._loop.add_callback(self._send_and_go_on)

    def close(self) -> None:
        """Tell that the fit has ended, and wait until that is sent."""
        self.tell("end", {})
        if not self._begun or self._ended or self._has_page is False or self._client.status != "running":
            return
        self._ended = True
        with suppress(Exception):
            sent = asyncio.run_coroutine_threadsafe(self._send(), self._loop.asyncio_loop)
            sent.result(PATIENCE)

    async def _send_and_go_on(self) -> None:
        await self._send()
        self._loop.call_later(EVERY, self._go_on)

    def _go_on(self) -> None:
        with self._lock:
            self._sending = bool(self._unsent)
        if self._sending:
            self._loop.add_callback(self._send_and_go_on)

    async def _send(self) -> None:
        async with self._turn:
            try:
                if self._has_page is None:
                    self._has_page = await has_page(self._client)
                with self._lock:
                    events, self._unsent = self._unsent, []
                if events and self._has_page:
                    message = {"fit": self._fit, "client": self._client.id, "label": self._label, "events": events}
                    await self._client.scheduler.log_event(topic=TOPIC, msg=message)  # type: ignore[union-attr]
            except Exception as error:  # nobody shall lose a fit because of who watches it
                logger.debug("telling has ended: %r", error)
                self._has_page = False


def _plain(value: Any) -> Any:
    """Return a number or a text that any scheduler can read; None for all else."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, (bool, int, float, str)) else None


async def has_page(client: Client) -> bool:
    """Let the scheduler open the page, the first time; returns whether it is there."""
    if client not in _pages:
        try:
            reason: str = await client.run_on_scheduler(_asking(), asynchronous=True)
        except Exception as error:  # it may refuse to run functions, or be gone
            reason = repr(error)
        if reason:
            logger.info("no page of fits on the dashboard: %s", reason)
        _pages[client] = not reason
    return _pages[client]


def _asking() -> Callable[..., Any]:
    """Return a function that travels as its code: a scheduler with another version, or without bokeh, can run it."""

    async def ask(dask_scheduler: Any) -> str:
        try:
            from schmp_estimators.core.dashboard.fits import open_page  # noqa: PLC0415  (there, not here)
        except ImportError as error:
            return f"the scheduler has no such page ({error})"
        return str(await open_page(dask_scheduler))

    return ask
