"""What a fit says of itself while it runs: lines in the log, a progress bar, events for who watches the place."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from numbers import Real
from typing import Any

from schmp_estimators.core.places.place import Place

logger = logging.getLogger(__name__)


class Progress:
    """Says how far a fit is.

    Parameters
    ----------
    estimator : FollowedEstimator
        With the records of the fit in `history_`.
    place : Place
    step : str
        What makes a record: "sweep" or "step".
    every : int
        A line of the log after every so many of them.
    total : int, default=0
        How many there will be at most; 0 if that says nothing.
    """

    def __init__(self, estimator: Any, place: Place, *, step: str, every: int, total: int = 0) -> None:
        self._estimator, self._place = estimator, place
        self._step, self._every, self._total = step, every, total
        self._name = type(estimator).__name__
        #: how many records there were when the last line was written
        self._written = len(estimator.history_)
        place.tell("begin", {"estimator": self._name, "objective": estimator._objective, "total": total})

    def record(self) -> None:
        """Say what the last record says, and what callbacks have measured since."""
        history = self._estimator.history_
        self._place.tell("record", history[-1])
        if measured := measured_by_callbacks(self._estimator):
            self._place.tell("measured", measured)
        if len(history) % self._every == 0:
            self._write()

    def end(self) -> None:
        """Say how the fit stands at its end, if no line has said so."""
        if self._written < len(self._estimator.history_):
            self._write()

    def _write(self) -> None:
        if logger.isEnabledFor(logging.INFO):
            history = self._estimator.history_
            before = history[self._written - 1] if self._written else {"seconds": 0.0, "samples": 0}
            seconds = history[-1]["seconds"] - before["seconds"]
            rate = in_units((history[-1]["samples"] - before["samples"]) / seconds if seconds > 0 else float("nan"))
            values = "".join(f", {name} {value:.6g}" for name, value in noteworthy(self._estimator).items())
            of_all = f" of {self._total}" if self._total else ""
            logger.info("%s: %s %d%s%s, %s samples/s", self._name, self._step, len(history), of_all, values, rate)
        self._written = len(self._estimator.history_)


def in_units(value: float, digits: int = 2) -> str:
    """Return a number in thousands, millions or billions, rounded to some digits.

    >>> in_units(5.71e6), in_units(999_999), in_units(72_400), in_units(7240)
    ('5.7 M', '1 M', '72 k', '7200')
    """
    rounded = float(f"{value:.{digits}g}")
    for least, unit, word in ((1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if abs(rounded) >= least:
            return f"{rounded / unit:g}{word}"
    return f"{rounded:g}"


def measured_by_callbacks(estimator: Any) -> dict[str, float]:
    """Return what callbacks that have an attribute `latest`, numbers by their names, have measured last."""
    measured: dict[str, float] = {}
    for callback in getattr(estimator, "_skl_callbacks", ()):
        latest = getattr(callback, "latest", None)  # of callbacks of others it may be anything
        if isinstance(latest, Mapping):
            measured.update({str(name): float(value) for name, value in latest.items() if isinstance(value, Real)})
    return measured


def noteworthy(estimator: Any) -> dict[str, float]:
    """Return the objective as last evaluated, and values on held-out samples, by their names."""
    found: dict[str, float] = {}
    for record in reversed(estimator.history_[-1000:]):
        for name in (estimator._objective, "validation_rmse"):
            if name in record:
                found.setdefault(name, record[name])
        if estimator._objective in found:
            break
    return found | measured_by_callbacks(estimator)


class FitBar:
    """A callback, as scikit-learn has them, that shows a bar for one fit; it needs the package rich.

    Scikit-learn's own bar knows nothing of what a fit has reached.
    """

    def __init__(self) -> None:
        self._progress: Any = None
        self._task: Any = None
        self._words = ""

    def setup(self, estimator: Any, context: Any) -> None:
        """Show the bar."""
        from rich.console import Console  # noqa: PLC0415  (an optional extra)
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn  # noqa: PLC0415

        columns = "{task.description}", "{task.completed:.0f}{task.fields[of_all]}", "{task.fields[reached]}"
        name, count, reached = map(TextColumn, columns)
        # a console of its own: of one console rich lets only one fit at a time be shown
        self._progress = Progress(
            name, BarColumn(30), count, reached, TimeElapsedColumn(), TimeRemainingColumn(), console=Console()
        )
        self._progress.start()

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Begin at zero."""
        if context.parent is None:
            total = context.max_subtasks
            of_all = f" of {total}" if total else ""
            self._task = self._progress.add_task(
                type(estimator).__name__, total=total, of_all=of_all, reached=self._words
            )

    def say(self, words: str) -> None:
        """Show some words until the next sweep or step, the first one at the latest."""
        self._words = words
        if self._task is not None:
            self._progress.update(self._task, reached=words)

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Go on by a sweep or a step; at the end show all that there was as done."""
        if context.parent is None:
            done = self._progress.tasks[self._task].completed
            self._progress.update(self._task, total=done, completed=done)
        elif context.parent.parent is None:
            self._progress.update(self._task, advance=1, reached=reached(estimator))

    def teardown(self, estimator: Any, context: Any) -> None:
        """Leave the bar as it is."""
        self._progress.stop()
        self._progress = None


def reached(estimator: Any) -> str:
    """Return the objective, values on held-out samples, and the rate of the last few records, in words."""
    words = [f"{name.replace('_', ' ')} {value:.6g}" for name, value in noteworthy(estimator).items()]
    first, last = estimator.history_[-min(6, len(estimator.history_))], estimator.history_[-1]
    if (seconds := last["seconds"] - first["seconds"]) > 0:
        words.append(f"{in_units((last['samples'] - first['samples']) / seconds)} samples/s")
    return " · ".join(words)
