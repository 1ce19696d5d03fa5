"""Telling who waits for a fit that its kernels are being compiled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from numba.core import event

logger = logging.getLogger(__name__)

#: Seconds of compiling after which a fit says why nothing seems to happen.
PATIENCE = 1.0
TOLD = "compiling, once on this machine"


class _Stopwatch(event.Listener):
    """Calls a function once, when the kernels of a fit have been compiled for some time."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell, self._depth, self._began, self._taken, self._told = tell, 0, 0.0, 0.0, False

    def on_start(self, event: Any) -> None:
        """Begin to count, or look whether it is time: kernels are compiled inside of others."""
        if not self._depth:
            self._began = perf_counter()
        self._depth += 1
        self._look()

    def on_end(self, event: Any) -> None:
        """Look whether it is time."""
        self._look()
        self._depth -= 1
        if not self._depth:
            self._taken += perf_counter() - self._began

    def _look(self) -> None:
        if not self._told and self._taken + perf_counter() - self._began > PATIENCE:
            self._told = True
            self._tell()


@contextmanager
def told_of_compiling(name: str, show: Callable[[str], None] | None = None) -> Iterator[None]:
    """Say in the log, and where `show` shows it, that a fit of the estimator `name` compiles, if that takes long."""

    def tell() -> None:
        logger.info("%s: %s", name, TOLD)
        if show is not None:
            show(TOLD)

    with event.install_listener("numba:compile", _Stopwatch(tell)):
        yield
