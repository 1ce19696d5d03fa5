"""The progress bar of `verbose`: how far a fit is, what it has reached, and how fast it goes."""

from __future__ import annotations

from typing import Any

from schmp_estimators.core.voice import in_units, noteworthy


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
