"""Reports of a running fit: lines in the log, a progress bar, and events for the dashboard.

One of them says that the fit compiles.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from time import perf_counter
from typing import Any

from numba.core import event

from schmp_estimators.core.typing import Named

logger = logging.getLogger(__name__)


class Progress:
    """Reports how far a fit is.

    Parameters
    ----------
    estimator : FollowedEstimator
        The estimator, with the records of the fit in `history_`.
    tell : callable
        `Place.tell` of the place of the fit.
    step : str
        What makes a record, such as "sweep" or "step".
    every : int
        Number of records between two lines of the log.
    total : int, default=0
        Largest number of records that there will be; 0 if it is not known.
    """

    def __init__(
        self,
        estimator: Any,
        tell: Callable[[str, Named], None],
        *,
        step: str,
        every: int,
        total: int = 0,
    ) -> None:
        self._estimator = estimator
        self._tell = tell
        self._step = step
        self._every = every
        self._total = total
        self._name = type(estimator).__name__
        #: number of records when the last line was written
        self._written = len(estimator.history_)
        tell("begin", {"estimator": self._name, "objective": estimator._objective, "total": total})

    def record(self) -> None:
        """Report the last record, and the latest measurements of callbacks."""
        history = self._estimator.history_
        self._tell("record", history[-1])
        if measured := measured_by_callbacks(self._estimator):
            self._tell("measured", measured)
        if len(history) % self._every == 0:
            self._write()

    def end(self) -> None:
        """Write a last line to the log, if there are records after the last one."""
        if self._written < len(self._estimator.history_):
            self._write()

    def _write(self) -> None:
        if logger.isEnabledFor(logging.INFO):
            history = self._estimator.history_
            before = history[self._written - 1] if self._written else {"seconds": 0.0, "samples": 0}
            seconds = history[-1]["seconds"] - before["seconds"]
            rate = in_units(
                (history[-1]["samples"] - before["samples"]) / seconds
                if seconds > 0
                else float("nan")
            )
            values = "".join(
                f", {name} {value:.6g}" for name, value in noteworthy(self._estimator).items()
            )
            of_all = f" of {self._total}" if self._total else ""
            logger.info(
                "%s: %s %d%s%s, %s samples/s",
                self._name,
                self._step,
                len(history),
                of_all,
                values,
                rate,
            )
        self._written = len(self._estimator.history_)


def in_units(value: float, digits: int = 2) -> str:
    """Return a number in thousands, millions or billions, rounded to some significant digits.

    >>> in_units(5.71e6), in_units(999_999), in_units(72_400), in_units(7240)
    ('5.7 M', '1 M', '72 k', '7200')
    """
    rounded = float(f"{value:.{digits}g}")
    for least, unit, word in ((1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if abs(rounded) >= least:
            return f"{rounded / unit:g}{word}"
    return f"{rounded:g}"


def measured_by_callbacks(estimator: Any) -> dict[str, float]:
    """Return the latest measurements of callbacks.

    They have a mapping `latest` from names to numbers.
    """
    measured: dict[str, float] = {}
    for callback in getattr(estimator, "_skl_callbacks", ()):
        latest = getattr(
            callback, "latest", None
        )  # in callbacks of other packages it may be anything
        if isinstance(latest, Mapping):
            measured.update(
                {
                    str(name): float(value)
                    for name, value in latest.items()
                    if isinstance(value, Real)
                }
            )
    return measured


def noteworthy(estimator: Any) -> dict[str, float]:
    """Return the last known values by name.

    They are the objective, values on held-out samples and measurements of callbacks.
    """
    found: dict[str, float] = {}
    for record in reversed(estimator.history_[-1000:]):
        for name in (estimator._objective, "validation_rmse"):
            if name in record:
                found.setdefault(name, record[name])
        if estimator._objective in found:
            break
    return found | measured_by_callbacks(estimator)


class FitBar:
    """A callback for scikit-learn that shows a progress bar for one fit; it needs the package rich.

    Scikit-learn's own bar does not show what a fit has reached.
    """

    def __init__(self) -> None:
        self._progress: Any = None
        self._task: Any = None
        self._words = ""

    def setup(self, estimator: Any, context: Any) -> None:
        """Show the bar."""
        from rich.console import Console  # noqa: PLC0415  (an optional extra)
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            "{task.description}",
            "{task.completed:.0f}{task.fields[of_all]}",
            "{task.fields[reached]}",
        )
        name, count, reached = map(TextColumn, columns)
        # a console of its own, because rich shows only one bar at a time on each console
        self._progress = Progress(
            name,
            BarColumn(8),
            count,
            reached,
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=Console(),
        )
        self._progress.start()

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Start the bar at zero."""
        if context.parent is None:
            total = context.max_subtasks
            of_all = f" of {total}" if total else ""
            self._task = self._progress.add_task(
                type(estimator).__name__, total=total, of_all=of_all, reached=self._words
            )

    def say(self, words: str) -> None:
        """Show a text until the next sweep or step ends."""
        self._words = words
        if self._task is not None:
            self._progress.update(self._task, reached=words)

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Advance by a sweep or a step; at the end of the fit, show the bar as complete."""
        if context.parent is None:
            done = self._progress.tasks[self._task].completed
            self._progress.update(self._task, total=done, completed=done)
        elif context.parent.parent is None:
            self._progress.update(self._task, advance=1, reached=reached(estimator))

    def teardown(self, estimator: Any, context: Any) -> None:
        """Leave the bar on the screen as it is."""
        self._progress.stop()
        self._progress = None


def reached(estimator: Any) -> str:
    """Return what the last few records hold, as text.

    That is the objective, values on held-out samples, and samples per second.
    """
    words = [
        f"{name.replace('_', ' ')} {value:.5g}" for name, value in noteworthy(estimator).items()
    ]
    first = estimator.history_[-min(6, len(estimator.history_))]
    last = estimator.history_[-1]
    if (seconds := last["seconds"] - first["seconds"]) > 0:
        words.append(f"{in_units((last['samples'] - first['samples']) / seconds)}/s")
    return " · ".join(words)


#: Seconds of compiling after which a fit reports that it compiles.
PATIENCE = 1.0
TOLD = "compiling, once on this machine"


class _Stopwatch(event.Listener):
    """Calls a function once, when a fit has compiled kernels for some time."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._depth = 0
        self._began = 0.0
        self._taken = 0.0
        self._told = False

    def on_start(self, event: Any) -> None:
        """Start the clock unless it runs; check the time.

        It may run already, because kernels are compiled inside of others.
        """
        if not self._depth:
            self._began = perf_counter()
        self._depth += 1
        self._look()

    def on_end(self, event: Any) -> None:
        """Check the time, and stop the clock at the end of the outermost kernel."""
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
    """If a fit of the estimator `name` compiles for long, report this in the log, and by `show`."""

    def tell() -> None:
        logger.info("%s: %s", name, TOLD)
        if show is not None:
            show(TOLD)

    with event.install_listener("numba:compile", _Stopwatch(tell)):
        yield
