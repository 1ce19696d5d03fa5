"""Plots of which worker worked on what, and when."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils._optional_dependencies import check_matplotlib_support

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#2f7ea6", "#e08e45", "#6a9a4b", "#a05195", "#8c6d31", "#3d9d9b", "#c9748f", "#5a6f9c")
#: Of a worker that waits for another one, and of all that has no colour of its own.
_WAITING, _OTHERS = "#c44e52", "#c3ccd1"
#: In a row: where work is and how high, and waiting.
_WORK, _WAIT = (-0.22, 0.62), (-0.42, 0.14)
#: The topic in which ranks tell what they did, and what they call it when they wait.
_TOPIC, _WAITED = "schmp-spans", "wait"


class Span(NamedTuple):
    """A span of time in which a worker did something."""

    worker: str
    thread: int
    #: The program and the stage in words, or "wait".
    name: str
    #: None outside of sweeps.
    sweep: int | None
    #: None where it met none; of a wait, the rank that was awaited.
    block: int | None
    start: float
    stop: float


class ScheduleDisplay:
    """Plot of the work of a cluster over time, or of when coefficients last changed.

    `from_client` draws a row for each worker.  A bar shows when the worker ran a :term:`stage` of
    the fit on a :term:`shard` of the data.  Thin bars below show when the worker waited, for
    example at a :term:`barrier`.  With ``by="block"``, the colours show how each :term:`block` of
    the model moves between workers.  Fits without a cluster are not recorded.

    `from_estimator` draws a histogram for a linear model.  The histogram shows after how many
    passes over the coefficients each coefficient last changed, like figure 5 of Kim et al.,
    "STRADS: a distributed framework for scheduled model parallel machine learning", EuroSys 2016.

    Parameters
    ----------
    spans : list of named tuples
        Periods of work, as named tuples of ``worker``, ``thread``, ``name``, ``sweep``, ``block``,
        ``start`` and ``stop``, with times in seconds.  For a histogram, the records of a schedule,
        as named tuples of ``n_updates`` and ``last_moved``, one for each target of the fit.
    by : {"stage", "block"}, default="stage"
        Whether colours show the stages that took most time, or the blocks of the model.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_ : dict of str to list of matplotlib artists
        The drawn bars and lines, with their names in the legend as keys.
    workers_ : list of str
        Addresses of the workers, from the top row to the bottom row.  The list is empty for a
        histogram.

    See Also
    --------
    ConvergenceDisplay : Progress of a fit.

    Examples
    --------
    >>> from collections import namedtuple
    >>> from schmp_estimators import ScheduleDisplay
    >>> Span = namedtuple("Span", "worker thread name sweep block start stop")
    >>> spans = [
    ...     Span("tcp://one", 0, "mf-sgd-update", 1, 0, 10.0, 10.2),
    ...     Span("tcp://two", 0, "mf-sgd-update", 1, 1, 10.0, 10.2),
    ... ]
    >>> display = ScheduleDisplay(spans, by="block").plot()
    >>> display.workers_, sorted(display.bars_)
    (['tcp://one', 'tcp://two'], ['block 0', 'block 1'])
    """

    def __init__(self, spans: Sequence[Any], *, by: str = "stage") -> None:
        self.spans = spans
        self.by = by

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> ScheduleDisplay:
        """Plot after how many passes the coefficients of a linear model last changed.

        Coefficients that never changed by more than `moved_above` are left out.

        Parameters
        ----------
        estimator : estimator
            A linear model, fitted with a schedule that has `moved_above`, such as
            ``schedule=schmp.Priority(moved_above=1e-3)``.
        ax : matplotlib Axes, optional
            Axes to draw in; by default those of a new figure.

        Returns
        -------
        ScheduleDisplay

        Raises
        ------
        ValueError
            If the schedule of the estimator has not recorded changes.
        """
        check_matplotlib_support(f"{cls.__name__}.from_estimator")
        found = getattr(estimator, "moves_", None)
        if found is None:
            raise ValueError(
                f"{type(estimator).__name__} has no attribute moves_: fit it with a schedule that "
                "records moves, such as schedule=schmp.Priority(moved_above=1e-3)"
            )
        return cls(found if isinstance(found, list) else [found]).plot(ax=ax)

    @classmethod
    def from_client(
        cls,
        client: Any,
        *,
        by: str = "stage",
        sweeps: tuple[int, int] | None = None,
        ax: Axes | None = None,
    ) -> ScheduleDisplay:
        """Plot what the workers of a cluster did in the last fit.

        The plot is made from the last messages of the workers, which the scheduler keeps.

        Parameters
        ----------
        client : distributed.Client
            Client of the cluster.  By default the scheduler keeps the last 1000 messages, each with
            at most 60 periods of work.
        by : {"stage", "block"}, default="stage"
            Whether colours show the stages that took most time, or the blocks of the model.
        sweeps : (int, int), optional
            The first :term:`sweep` to show, counted from 0, and the sweep before which the plot
            ends.  By default all sweeps are shown.
        ax : matplotlib Axes, optional
            Axes to draw in; by default those of a new figure.

        Returns
        -------
        ScheduleDisplay

        Raises
        ------
        ValueError
            If `by` or `sweeps` is invalid, or the scheduler has no messages to show.
        """
        check_matplotlib_support(f"{cls.__name__}.from_client")
        if by not in ("stage", "block"):
            raise ValueError(f"by={by!r}; it must be 'stage' or 'block'")
        is_pair = isinstance(sweeps, (tuple, list)) and len(sweeps) == 2
        if sweeps is not None and not (is_pair and sweeps[0] < sweeps[1]):
            raise ValueError(
                f"sweeps={sweeps!r}; it must be a first sweep and one after the last, or None"
            )
        messages = [message for _, message in client.get_events(_TOPIC)]
        spans = [
            Span(message["worker"], thread, name, _number(sweep), _number(block), start, stop)
            for message in messages
            if message["run"] == messages[-1]["run"]
            for name, sweep, block, thread, start, stop in message["spans"]
        ]
        if sweeps is not None:
            within = [
                one for one in spans if one.sweep is not None and sweeps[0] <= one.sweep < sweeps[1]
            ]
            begin = min((one.start for one in within), default=0)
            end = max((one.stop for one in within), default=0)
            spans = [
                *within,
                *(one for one in spans if one.name == _WAITED and begin <= one.start < end),
            ]
        if not spans:
            limits = ""
            remedy = "fit on the cluster of this client first, and call this soon"
            if sweeps is not None and messages:
                limits = f" of the sweeps from {sweeps[0]} to before {sweeps[1]}"
                remedy = "take others, or sweeps=None, as for L1 models, which have no sweeps"
            raise ValueError(f"the scheduler remembers nothing{limits}: {remedy}")
        return cls(spans, by=by).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> ScheduleDisplay:
        """Draw the bars.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw in; by default those of a new figure.

        Returns
        -------
        ScheduleDisplay
            This object.
        """
        check_matplotlib_support(f"{type(self).__name__}.plot")
        import matplotlib.pyplot as plt  # noqa: PLC0415  (an optional extra)

        if self.spans and hasattr(self.spans[0], "last_moved"):
            return self._plot_moves(plt.subplots(layout="constrained")[1] if ax is None else ax)
        self.workers_ = sorted({one.worker for one in self.spans})
        if ax is None:
            _, ax = plt.subplots(
                figsize=(9.5, 1.6 + 0.5 * len(self.workers_)), layout="constrained"
            )
        zero = min(one.start for one in self.spans)
        self.bars_: dict[str, list[Any]] = {}
        colours = self._colours()
        for (name, lane), spans in sorted(
            self._bars(colours).items(), key=lambda item: -list(colours).index(item[0][0])
        ):
            shifted = [(start - zero, stop - start) for start, stop in spans]
            drawn = ax.broken_barh(
                shifted, lane, facecolor=colours[name], edgecolor="white", linewidth=0.2
            )
            self.bars_.setdefault(name, []).append(drawn)
        ax.set_yticks(
            range(len(self.workers_)),
            [f"worker {place}" for place in reversed(range(len(self.workers_)))],
        )
        ax.set_ylim(-0.6, len(self.workers_) - 0.4)
        ax.set_xlim(0, max(one.stop for one in self.spans) - zero)
        ax.set_xlabel("Seconds")
        ax.grid(False, axis="y")
        names = [name for name in colours if name in self.bars_]
        blocks = [name for name in names if name.startswith("block ")] if self.by == "block" else []
        left_out = set(blocks) - set(
            blocks[:: -(-len(blocks) // len(_COLOURS)) or 1]
        )  # colours go from end to end
        names = [name for name in names if name not in left_out]
        handles = [self.bars_[name][0] for name in names]
        ax.legend(handles, names, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _plot_moves(self, ax: Axes) -> ScheduleDisplay:
        """Draw how many parameters moved last in which pass, and what share had converged then."""
        from matplotlib.ticker import MaxNLocator  # noqa: PLC0415  (an optional extra)

        last = np.concatenate([one.last_moved for one in self.spans])
        last = np.ceil(last[last > 0.0])
        passes, counts = np.unique(last, return_counts=True)
        bars = ax.bar(passes, counts, width=0.9, color=_COLOURS[0])
        ax.set(xlabel="Pass of the last move", ylabel="Parameters")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        right = ax.twinx()
        [line] = right.plot(
            passes, 100.0 * np.cumsum(counts) / max(1, len(last)), color=_COLOURS[1], marker="."
        )
        right.set(ylabel="Converged, %", ylim=(0, 105))
        right.grid(False)
        self.workers_ = []
        self.bars_ = {"last move": [bars], "converged": [line]}
        ax.legend([bars, line], list(self.bars_), loc="center right")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _called(self, one: Span) -> str:
        """Return what the legend calls a span, whether it has a colour of its own or not."""
        if one.name == _WAITED:
            return "wait"
        return one.name if self.by == "stage" else "" if one.block is None else f"block {one.block}"

    def _colours(self) -> dict[str, str]:
        """Return the colours by what the legend calls them, in its order."""
        taken: Counter[str] = Counter()
        for one in self.spans:
            if one.name != _WAITED:
                taken[self._called(one)] += one.stop - one.start
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
            colours = dict(
                zip(blocks, _COLOURS if len(blocks) <= len(_COLOURS) else many, strict=False)
            )
        return {**colours, "all else": _OTHERS, "wait": _WAITING}

    def _bars(
        self, colours: Mapping[str, str]
    ) -> dict[tuple[str, tuple[float, float]], list[tuple[float, float]]]:
        """Return what was done from when to when, by what it is called and where it is drawn."""
        lanes: dict[str, list[int]] = {
            worker: sorted(
                {one.thread for one in self.spans if one.worker == worker and one.name != _WAITED}
            )
            for worker in self.workers_
        }
        found = defaultdict(list)
        for one in self.spans:
            row = len(self.workers_) - 1 - self.workers_.index(one.worker)
            bottom, height = _WAIT
            if one.name != _WAITED:
                height = _WORK[1] / len(lanes[one.worker])
                bottom = _WORK[0] + lanes[one.worker].index(one.thread) * height
            name = self._called(one)
            found[name if name in colours else "all else", (row + bottom, height)].append(
                (one.start, one.stop)
            )
        return dict(found)


def _number(told: int) -> int | None:
    """Return the number of a sweep or block as it was told, None if there was none."""
    return None if told < 0 else told
