"""The page of running fits: the progress of each, and the work that workers did for them.

It is a document of Bokeh on the scheduler's own server; every viewer gets a new one.
"""

import logging
import math
import time
from typing import Any

from bokeh.layouts import column, row
from bokeh.models import (
    ColumnDataSource,
    CustomJSTickFormatter,
    FixedTicker,
    HoverTool,
    Range1d,
)
from bokeh.models.annotations import Title
from bokeh.models.widgets import Div
from bokeh.plotting import figure
from distributed import Scheduler
from distributed.dashboard.components.scheduler import BOKEH_THEME, env

from schmp_estimators.core.dashboard.fits import WAIT, WINDOW, Fit, Fits, Span
from schmp_estimators.core.dashboard.tables import COLOURS, WAITING, legend, of_fits, words
from schmp_estimators.core.typing import Arguments, Named

logger = logging.getLogger(__name__)

#: Last part of the page's URL.
PAGE = "schmp"
#: Milliseconds between two updates.
EVERY = 500

#: Text of ticks: 1234567 is 1.2346 M.
_SHORT = """
    const size = Math.abs(tick), [unit, word] = size >= 1e9 ? [1e9, " G"] :
        size >= 1e6 ? [1e6, " M"] : size >= 1e4 ? [1e3, " k"] : [1, ""]
    return String(parseFloat((tick / unit).toPrecision(5))).replace("-", "−") + word
"""

_CURVES = ("sweeps", "seconds", "objective", "later", "rate", "colour", "alpha", "name")
_STRIPS = ("left", "right", "bottom", "top", "colour", "name", "took")


def show(scheduler: Scheduler, extra: Named, doc: Any) -> None:
    """Fill the document of a new viewer."""
    view = View(scheduler)
    view.fits.watch(view)
    doc.on_session_destroyed(lambda context: view.fits.leave(view))
    view.update()
    doc.add_root(view.root)
    doc.add_periodic_callback(view.update, EVERY)
    doc.title = "Dask: fits of schmp_estimators"
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    doc.theme = BOKEH_THEME


class View:
    """The document of one viewer.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        With the plugin `Fits`.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        plugin = scheduler.plugins[Fits.name]
        assert isinstance(plugin, Fits)
        self.fits = plugin
        self.curves = ColumnDataSource({name: [] for name in _CURVES}, name="curves")
        #: the last point of each curve
        self.heads = ColumnDataSource({name: [] for name in _CURVES}, name="heads")
        self.strips = ColumnDataSource({name: [] for name in _STRIPS}, name="strips")
        wide: Named = {"sizing_mode": "stretch_width"}
        self._table, self._legend = (
            Div(name=name, stylesheets=[".bk-clearfix { width: 100% }"], **wide)
            for name in ("fits", "legend")
        )
        self._colours: dict[str, str] = {}
        self._stages: dict[str, str] = {}
        #: what the curves were last drawn from
        self._drawn: Any = None
        by_sweeps = _curve(
            "Objective by iterations", "sweeps", "objective", self.curves, self.heads, "Iterations"
        )
        by_seconds = _curve(
            "Objective by seconds", "seconds", "objective", self.curves, self.heads, "Seconds"
        )
        rates = _curve("Samples per second", "later", "rate", self.curves, self.heads, "Seconds")
        rates.y_range.start = 0
        self._figures = by_sweeps, by_seconds
        self._gantt = _gantt(self.strips)
        self.root = column(
            self._table,
            row(by_sweeps, by_seconds, rates, **wide),
            self._gantt,
            self._legend,
            **wide,
        )

    def update(self) -> None:
        """Update the document.  An error is logged, and does not end the page."""
        try:
            self._update()
        except Exception:
            logger.exception("the page of fits could not be brought up to date")

    def _update(self) -> None:
        now = time.time()
        self.fits.tidy()
        fits = sorted(self.fits.fits.values(), key=lambda fit: -fit.began)
        for fit in reversed(fits):
            self._colours.setdefault(fit.name, COLOURS[len(self._colours) % len(COLOURS)])
        self._draw(fits)
        self._look_at_workers(now)
        _show(self._table, of_fits(fits, self._colours, now))
        _show(self._legend, legend(self._stages))

    def _draw(self, fits: list[Fit]) -> None:
        """Draw the curves of the newest fit, and of all fits with the same objective.

        If possible, the newest fit is a running one.
        """
        shown = next(
            (fit.objective for fit in sorted(fits, key=lambda fit: not fit.runs) if fit.objective),
            "",
        )
        alike = [fit for fit in fits if fit.objective == shown and fit.points]
        drawn = [(fit.name, fit.points[-1], fit.state) for fit in alike]
        if drawn == self._drawn:
            return
        self._drawn = drawn
        found: Named = {name: [] for name in _CURVES}
        heads: Named = {name: [] for name in _CURVES}
        for fit in alike:
            reached = [point for point in fit.points if not math.isnan(point[3])]
            later, rate = _rates(fit.points)
            values = [*([point[at] for point in reached] for at in (0, 1, 3)), later, rate]
            look: Arguments = (
                self._colours[fit.name],
                1.0 if fit.runs else 0.35,
                fit.estimator,
            )
            ends = (value[-1] if value else math.nan for value in values)
            for name, value, end in zip(_CURVES, (*values, *look), (*ends, *look), strict=True):
                found[name].append(value)
                heads[name].append(end)
        self.curves.data = found
        self.heads.data = heads
        for one, what in zip(self._figures, ("sweeps", "seconds"), strict=True):
            one.title.text = f"{words(shown).capitalize() or 'Objective'} by {what}"

    def _look_at_workers(self, now: float) -> None:
        """Draw what workers have done recently."""
        spans = [one for one in self.fits.spans if one.stop > now - WINDOW]
        for span in spans:
            if span.name != WAIT:
                self._stages.setdefault(span.name, COLOURS[len(self._stages) % len(COLOURS)])
        states = sorted(
            self._scheduler.workers.values(), key=lambda state: (str(type(state.name)), state.name)
        )
        names = {
            state.address: f"worker {state.name}" if state.name != state.address else state.address
            for state in states
        }
        threads = {state.address: state.nthreads for state in states}
        self.strips.data = _strips(spans, threads, self._stages, now)
        ticks = {
            len(states) - 1 - place: names[state.address] for place, state in enumerate(states)
        }
        self._gantt.yaxis.ticker = FixedTicker(ticks=sorted(ticks))
        self._gantt.yaxis.major_label_overrides = ticks
        self._gantt.y_range.start, self._gantt.y_range.end = -0.6, len(states) - 0.4
        self._gantt.height = 90 + min(600, 36 * len(states))


def _show(div: Div, text: str) -> None:
    if div.text != text:
        div.text = text


def _rates(points: list[tuple[float, float, float, float]]) -> tuple[list[float], list[float]]:
    """Return for each point its seconds, and the speed since the point four places before.

    The speed is in samples per second.
    """
    points = [(0.0, 0.0, 0.0, 0.0), *points]
    width = min(4, len(points) - 1)
    pairs = list(zip(points[:-width], points[width:], strict=True))
    return [b[1] for _, b in pairs], [(b[2] - a[2]) / max(b[1] - a[1], 1e-9) for a, b in pairs]


def _strips(
    spans: list[Span], threads: dict[str, int], colours: dict[str, str], now: float
) -> Named:
    """Return bars of work, by thread in the row of their worker.

    Below them are thinner bars of waiting.
    """
    found: Named = {name: [] for name in _STRIPS}
    rows = {address: len(threads) - 1 - place for place, address in enumerate(threads)}
    lanes: dict[str, dict[int, int]] = {address: {} for address in threads}
    for one in spans:
        if one.worker not in rows:
            continue
        middle = rows[one.worker]
        if one.name == WAIT:
            bottom = middle - 0.42
            top = middle - 0.28
        else:
            lane = lanes[one.worker]
            place = lane.setdefault(one.thread, len(lane)) % threads[one.worker]
            height = 0.64 / threads[one.worker]
            bottom = middle - 0.24 + place * height
            top = bottom + 0.92 * height
        colour = WAITING if one.name == WAIT else colours[one.name]
        bar = (
            max(one.start - now, -WINDOW),
            one.stop - now,
            bottom,
            top,
            colour,
            f"wait for rank {one.block}" if one.name == WAIT else one.name,
            one.stop - one.start,
        )
        for name, value in zip(_STRIPS, bar, strict=True):
            found[name].append(value)
    return found


def _plain(title: str, **options: Any) -> Any:
    # A title is made of a text only while nobody else has Bokeh's checks switched off.
    of_size = Title(text=title, text_font_size="13px", text_color="#2b3a42")
    made: Any = figure(
        title=of_size, tools="", toolbar_location=None, sizing_mode="stretch_width", **options
    )
    made.grid.grid_line_color = "#e6eaed"
    made.outline_line_color = None
    made.axis.axis_line_color = made.axis.major_tick_line_color = "#b6c1c8"
    made.axis.minor_tick_line_color = None
    made.axis.axis_label_text_font_style = "normal"
    made.axis.axis_label_text_color = "#6b7a83"
    made.axis.major_label_text_color = "#4a5a63"
    return made


def _curve(
    title: str, x: str, y: str, source: ColumnDataSource, heads: ColumnDataSource, label: str
) -> Any:
    """Return a figure of curves, each with a dot at its end.

    So a curve of one point is visible.
    """
    made = _plain(title, height=250, x_axis_label=label)
    made.multi_line(x, y, source=source, line_color="colour", line_alpha="alpha", line_width=2.2)
    made.scatter(x, y, source=heads, color="colour", alpha="alpha", size=6)
    made.axis.formatter = CustomJSTickFormatter(code=_SHORT)
    made.add_tools(HoverTool(tooltips=[("", "@name")], line_policy="nearest"))
    return made


def _gantt(source: ColumnDataSource) -> Any:
    made = _plain(
        f"What workers did in the last {WINDOW:.0f} seconds",
        height=160,
        x_range=Range1d(start=-WINDOW, end=0),
        y_range=Range1d(start=-1, end=1),
        x_axis_label="Seconds from now",
    )
    made.quad(
        left="left", right="right", bottom="bottom", top="top", source=source, fill_color="colour",
        line_color="colour", line_width=0.4,
    )  # fmt: skip
    made.ygrid.visible = False
    made.add_tools(HoverTool(tooltips=[("", "@name"), ("seconds", "@took{0.000}")]))
    return made
