"""Plots of who worked on what when."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from sklearn.utils._optional_dependencies import check_matplotlib_support

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#2f7ea6", "#e08e45", "#6a9a4b", "#a05195", "#8c6d31", "#3d9d9b", "#c9748f", "#5a6f9c")
#: Of data on their way to a worker, and of all that has no colour of its own.
_MOVING, _OTHERS = "#c44e52", "#c3ccd1"
#: In a row: where work is and how high, and data on their way.
_WORK, _DATA = (-0.22, 0.62), (-0.42, 0.14)
#: The name of a run in the first word of a key.
_RUN = re.compile(r"-[0-9a-f]{8,}$")
#: How long a key is that names a block, last.
_WITH_BLOCK = 7


class Stretch(NamedTuple):
    """A stretch of time in which a worker did something."""

    worker: str
    thread: int
    #: the task in words
    name: str
    #: None where it met none
    block: int | None
    is_transfer: bool
    start: float
    stop: float


class ScheduleDisplay:
    """Who worked on what when: a row for each worker, a bar for each task, the data that came to it below.

    The ring, in which blocks go from worker to worker, the exchange and the barriers can be seen.  It takes a task
    stream of Dask; in one process there is none, and `history_` knows only when sweeps ended, not who did what.

    Use `from_task_stream` to make one.

    Parameters
    ----------
    stretches : list of Stretch
        What was done: named tuples of worker, thread, name, block, is_transfer, start and stop; times are in seconds.
    by : {"stage", "block"}, default="stage"
        What has a colour: the stages that took most time, or the blocks of the model.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_ : dict of str to list of matplotlib PolyCollection
        The bars by what the legend calls them.
    workers_ : list of str
        Addresses of the workers, from the first row, at the top, to the last.

    See Also
    --------
    ConvergenceDisplay : How far a fit came.

    Examples
    --------
    What ``with distributed.get_task_stream(client) as stream: lda.fit(X)`` leaves in ``stream.data`` begins like this,
    where ``dask.config.set({"schmp-estimators.sweeps-together": False})`` lets sweeps go by tasks: few workers would
    otherwise do them among themselves.

    >>> from schmp_estimators import ScheduleDisplay
    >>> work = [{"action": "compute", "start": 10.0, "stop": 10.2}]
    >>> stream = [
    ...     {"worker": "tcp://one", "key": ("mf-sgd-update-0123abcd", 1, 0, 1, 0, 0, 0), "startstops": work},
    ...     {"worker": "tcp://two", "key": ("mf-sgd-update-0123abcd", 1, 0, 1, 1, 0, 1), "startstops": work},
    ... ]
    >>> display = ScheduleDisplay.from_task_stream(stream, by="block")
    >>> display.workers_, sorted(display.bars_)
    (['tcp://one', 'tcp://two'], ['block 0', 'block 1'])
    """

    def __init__(self, stretches: Sequence[Stretch], *, by: str = "stage") -> None:
        self.stretches, self.by = stretches, by

    @classmethod
    def from_task_stream(
        cls,
        task_stream: Iterable[Mapping[str, Any]],
        *,
        by: str = "stage",
        sweeps: tuple[int, int] | None = None,
        ax: Axes | None = None,
    ) -> ScheduleDisplay:
        """Plot a task stream.

        Parameters
        ----------
        task_stream : iterable of dict
            What ``Client.get_task_stream`` returns, or the attribute ``data`` of ``distributed.get_task_stream``.
        by : {"stage", "block"}, default="stage"
            What has a colour: the stages that took most time, or the blocks of the model.
        sweeps : (int, int), optional
            Show only tasks of these sweeps, from the first, counted from 0, to before the second.
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure.

        Returns
        -------
        ScheduleDisplay

        Raises
        ------
        ValueError
            If `by` is unknown, nothing is to be shown, or what is given has no tasks, such as `history_`.
        """
        check_matplotlib_support(f"{cls.__name__}.from_task_stream")
        if by not in ("stage", "block"):
            raise ValueError(f"by={by!r}; it must be 'stage' or 'block'")
        stretches = []
        for task in task_stream:
            if "key" not in task:
                raise ValueError(
                    f"task_stream holds {task!r}, which is no task; give what Client.get_task_stream() returns, as "
                    "history_ does not know who did what"
                )
            words, sweep, block = _read(task["key"])
            if sweeps is not None and not (sweep is not None and sweeps[0] <= sweep < sweeps[1]):
                continue
            for one in task["startstops"]:
                if one["action"] in ("compute", "transfer"):
                    what = (words, block, one["action"] == "transfer")
                    stretches.append(Stretch(task["worker"], task.get("thread") or 0, *what, one["start"], one["stop"]))
        if not stretches:
            limits = "" if sweeps is None else f" of the sweeps from {sweeps[0]} to before {sweeps[1]}"
            raise ValueError(
                f"the task stream has no tasks{limits}; it has only what ends within `with get_task_stream()`, "
                "or after the first call of Client.get_task_stream()"
            )
        return cls(stretches, by=by).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> ScheduleDisplay:
        """Draw the bars.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure.

        Returns
        -------
        ScheduleDisplay
            This object.
        """
        check_matplotlib_support(f"{type(self).__name__}.plot")
        import matplotlib.pyplot as plt  # noqa: PLC0415  (an optional extra)

        self.workers_ = sorted({one.worker for one in self.stretches})
        if ax is None:
            _, ax = plt.subplots(figsize=(9.5, 1.6 + 0.5 * len(self.workers_)), layout="constrained")
        zero = min(one.start for one in self.stretches)
        self.bars_: dict[str, list[Any]] = {}
        colours = self._colours()
        for (name, lane), spans in sorted(
            self._bars(colours).items(), key=lambda item: -list(colours).index(item[0][0])
        ):
            shifted = [(start - zero, stop - start) for start, stop in spans]
            drawn = ax.broken_barh(shifted, lane, facecolor=colours[name], edgecolor="white", linewidth=0.2)
            self.bars_.setdefault(name, []).append(drawn)
        ax.set_yticks(range(len(self.workers_)), [f"worker {place}" for place in reversed(range(len(self.workers_)))])
        ax.set_ylim(-0.6, len(self.workers_) - 0.4)
        ax.set_xlim(0, max(one.stop for one in self.stretches) - zero)
        ax.set_xlabel("Seconds")
        ax.grid(False, axis="y")
        names = [name for name in colours if name in self.bars_]
        blocks = [name for name in names if name.startswith("block ")] if self.by == "block" else []
        left_out = set(blocks) - set(blocks[:: -(-len(blocks) // len(_COLOURS)) or 1])  # colours go from end to end
        names = [name for name in names if name not in left_out]
        handles = [self.bars_[name][0] for name in names]
        ax.legend(handles, names, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _called(self, one: Stretch) -> str:
        """Return what the legend calls a stretch, whether it has a colour of its own or not."""
        if one.is_transfer:
            return "data come"
        return one.name if self.by == "stage" else "" if one.block is None else f"block {one.block}"

    def _colours(self) -> dict[str, str]:
        """Return the colours by what the legend calls them, in its order."""
        taken: Counter[str] = Counter()
        for one in self.stretches:
            if not one.is_transfer:
                taken[self._called(one)] += one.stop - one.start  # type: ignore[assignment]
        del taken[""]
        if self.by == "stage":
            names = [name for name, _ in taken.most_common(6)]
            colours = dict(zip(names, _COLOURS, strict=False))
        else:
            from matplotlib import colormaps  # noqa: PLC0415  (an optional extra)
            from matplotlib.colors import to_hex  # noqa: PLC0415

            blocks = sorted(taken, key=lambda name: int(name.split()[1]))
            scale = colormaps["viridis"].resampled(len(blocks))
            many = [to_hex(scale(place)) for place in range(len(blocks))]
            colours = dict(zip(blocks, _COLOURS if len(blocks) <= len(_COLOURS) else many, strict=False))
        return {**colours, "all else": _OTHERS, "data come": _MOVING}

    def _bars(self, colours: Mapping[str, str]) -> dict[tuple[str, tuple[float, float]], list[tuple[float, float]]]:
        """Return what was done from when to when, by what it is called and where it is drawn."""
        lanes: dict[str, list[int]] = {
            worker: sorted({one.thread for one in self.stretches if one.worker == worker and not one.is_transfer})
            for worker in self.workers_
        }
        found = defaultdict(list)
        for one in self.stretches:
            row = len(self.workers_) - 1 - self.workers_.index(one.worker)
            bottom, height = _DATA
            if not one.is_transfer:
                height = _WORK[1] / len(lanes[one.worker])
                bottom = _WORK[0] + lanes[one.worker].index(one.thread) * height
            name = self._called(one)
            found[name if name in colours else "all else", (row + bottom, height)].append((one.start, one.stop))
        return dict(found)


def _read(key: Any) -> tuple[str, int | None, int | None]:
    """Return the words of a key, and the numbers of the sweep and of the block, where an engine has put them there."""
    if isinstance(key, str) and key.startswith("("):
        with suppress(SyntaxError, ValueError):  # of others: their keys may be any text
            key = ast.literal_eval(key)
    parts = key if isinstance(key, (tuple, list)) else (key,)
    words = _RUN.sub("", str(parts[0]))
    if not all(isinstance(part, int) for part in parts[1:]) or len(parts) < _WITH_BLOCK - 2:
        return words, None, None
    return words, parts[2], parts[-1] if len(parts) == _WITH_BLOCK and parts[-1] >= 0 else None
