"""The tables of the page, as HTML.

They show the fits with their progress and speed, and the meaning of colours.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape

from dask.utils import format_time

from schmp_estimators.core.dashboard.fits import Fit
from schmp_estimators.core.progress import in_units

#: Colours of fits and of the work of workers, in the order in which these appear.
COLOURS = ("#2f7ea6", "#e08e45", "#6a9a4b", "#a05195", "#8c6d31", "#3d9d9b", "#c9748f", "#5a6f9c")
#: Colour of waiting for other workers.
WAITING = "#c44e52"

STYLE = """
<style>
  .schmp { font: 13px/1.45 Helvetica, Arial, sans-serif; color: #2b3a42; width: 100%;
    border-collapse: collapse }
  .schmp th { text-align: left; font-weight: 600; color: #6b7a83; padding: 3px 12px 3px 4px;
    border-bottom: 1px solid #d5dbdf }
  .schmp td { border-bottom: 1px solid #eceff1; padding: 4px 12px 4px 4px; white-space: nowrap }
  .schmp .n { text-align: right; font-variant-numeric: tabular-nums }
  .schmp .over td { color: #9aa6ad } .schmp .over .bar, .schmp .over .dot { opacity: .35 }
  .schmp .dot { display: inline-block; width: 10px; height: 10px; border-radius: 5px;
    margin-right: 7px }
  .schmp .bar { display: inline-block; width: 90px; height: 7px; border-radius: 4px;
    background: #e3e8eb; margin-right: 8px }
  .schmp .bar i { display: block; height: 7px; border-radius: 4px }
  .schmp .key { display: inline-block; margin-right: 16px; white-space: nowrap }
  .schmp .bad { color: #c44e52 }
</style>
"""


def number(value: float) -> str:
    """Return a number as text for a cell; a dash for NaN."""
    return (
        "–"
        if math.isnan(value)
        else in_units(value, 4 if abs(value) < 1e4 else 3).replace("-", "−")
    )


def objective(value: float) -> str:
    """Return an objective as text, with the last digits, which change; a dash if there is none."""
    if not isinstance(value, (int, float)) or math.isnan(value):
        return "–"
    text = f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:.6g}"
    return text.replace("-", "−")


def words(name: str) -> str:
    """Return a name as words, escaped for HTML."""
    return escape(name.replace("_", " "))


def of_fits(fits: Sequence[Fit], colours: Mapping[str, str], now: float) -> str:
    """Return a table with a row for each fit, in their order; fits that have ended are grey."""
    head = ("Fit", "Iterations", "Objective", "Held out", "Samples/s", "Time", "Restarts", "State")
    right = {"Objective", "Held out", "Samples/s", "Time", "Restarts"}
    rows = [_row(fit, colours[fit.name], now) for fit in fits]
    if not rows:
        rows = [
            f"<tr class='over'><td colspan='{len(head)}'>No fit has begun since this page was "
            "opened.</td></tr>"
        ]
    titles = "".join(f"<th class='{'n' if one in right else ''}'>{one}</th>" for one in head)
    return f"{STYLE}<table class='schmp'><tr>{titles}</tr>{''.join(rows)}</table>"


def _row(fit: Fit, colour: str, now: float) -> str:
    done = fit.points[-1][0] if fit.points else 0.0
    share = min(1.0, done / fit.total) if fit.total else 0.0
    bar = f"<span class='bar'><i style='width:{share:.0%};background:{colour}'></i></span>"
    shards = f" · {fit.shards} shards" if fit.shards > 1 else ""
    if fit.workers:
        shards += f" · {escape(fit.workers)}, as more would take longer"
    held_out = fit.measured or {
        key: value for key, value in fit.last.items() if key.startswith("validation_")
    }
    cells = [
        (
            "",
            f"<span class='dot' style='background:{colour}'></span>"
            f"<b>{words(fit.estimator or fit.label)}</b>{shards}",
        ),
        ("", f"{bar}{done:.0f}{f' of {fit.total}' if fit.total else ''}"),
        ("n", _named(fit.objective, fit.last.get(fit.objective, math.nan))),
        ("n", "<br>".join(_named(name, value) for name, value in held_out.items()) or "–"),
        ("n", number(fit.rate())),
        ("n", format_time((fit.ended or now) - fit.began)),
        ("n", str(fit.restarts)),
        ("bad" if fit.state.startswith(("failed", "client")) else "", escape(fit.state)),
    ]
    inside = "".join(f"<td class='{kind}'>{text}</td>" for kind, text in cells)
    return f"<tr class='{'' if fit.runs else 'over'}'>{inside}</tr>"


def _named(name: str, value: float) -> str:
    return f"{objective(value)} <small>{words(name)}</small>"


def legend(colours: Mapping[str, str]) -> str:
    """Return the meaning of the colours of workers' work."""
    keys = [*colours.items(), ("waiting for other workers", WAITING)]
    named = "".join(
        f"<span class='key'><span class='dot' style='background:{colour}'></span>"
        f"{escape(name)}</span>"
        for name, colour in keys
    )
    return f"{STYLE}<div class='schmp' style='padding:4px 4px 8px'>{named}</div>"
