"""Pictures of measurements, drawn from their figures when the pages are built."""

import math
from pathlib import Path
from statistics import median

import figures
import first_page
from drawing import BLOCKS, INK, SOFT, box, svg, text
from figures import numbers

PALE = "#e6eaed"
SECONDS = "CPU seconds, logarithmic"


def rows_of(name):
    """Return the rows of a table."""
    return figures.read()[name]["rows"]


def topic_models():
    """Return (label, tomotopy's seconds, the median of ours) of the race to one perplexity."""
    return [
        (f"{row[0]}, {int(row[1]):,} topics", float(row[2]), median(numbers(row[6])))
        for row in rows_of("lda-quality")
    ]


def ratings():
    """Return (label, seconds of LIBMF, cmfrec, "sgd" and "ccd") of the fits with a common error."""
    return [
        (row[0].partition(":")[0], *(numbers(word)[0] for word in row[1:]))
        for row in rows_of("mf-quality")
        if ": seconds" in row[0]
    ]


def l1(name):
    """Return (label, seconds of ours and of each peer, None for a dash)."""
    return [
        (row[0], *(next(iter(numbers(word)), None) for word in row[1:-1])) for row in rows_of(name)
    ]


def ticks(low, high):
    """Return numbers 1, 2, 5, 10, … between two."""
    steps = (m * 10.0**e for e in range(-3, 4) for m in (1, 2, 5))
    return [step for step in steps if low <= step <= high]


def bars(title, names, rows, unit, since, colours=BLOCKS):
    """Draw a group of bars for each row on a scale of logarithms.

    Where a value is None there is a dash.

    The scale begins at `since`, or at a lower tick if a value is less.
    """
    thick, wide, top = 13, 400, 74
    left = round(34 + 7.2 * max(len(label) for label, *_ in rows))
    values = [value for _, *found in rows for value in found if value]
    since = ticks(0.0, min(since, *values))[-1]
    high = 1.45 * max(values)

    def place(value):
        return left + wide * math.log(value / since) / math.log(high / since)

    group = thick * len(names) + (12 if len(names) > 1 else 7)
    bottom = top + group * len(rows)
    body = [text(20, 32, title, 17, INK, "start", "bold")]
    x = 20
    for name, colour in zip(names, colours, strict=False):
        if len(names) > 1:
            body.append(f"<rect x='{x}' y='45' width='12' height='12' rx='2' fill='{colour}'/>")
            body.append(text(x + 18, 56, name, 13, INK, "start"))
            x += 40 + 7.2 * len(name)
    for tick in ticks(since, high):
        at = f"{place(tick):.1f}"
        body.append(
            f"<path d='M{at} {top - 4} V{bottom}' stroke='{INK if tick == since else PALE}'/>"
        )
        body.append(text(at, bottom + 18, f"{tick:g}", 12, SOFT))
    body.append(text(left + wide, bottom + 38, unit, 13, SOFT, "end", style="italic"))
    for number, (label, *found) in enumerate(rows):
        y = top + group * number
        body.append(text(left - 10, f"{y + thick * len(names) / 2 + 4:g}", label, 13, INK, "end"))
        for line, (value, colour) in enumerate(zip(found, colours, strict=False)):
            end, low = place(value or since), y + thick * line
            if value:
                height = f"height='{thick - 2}' rx='2' fill='{colour}'"
                body.append(f"<rect x='{left}' y='{low}' width='{end - left:.1f}' {height}/>")
            body.append(
                text(
                    f"{end + 5:.1f}",
                    low + thick - 3,
                    f"{value:.3g}" if value else "—",
                    11,
                    INK,
                    "start",
                )
            )
    return svg(left + wide + 40, bottom + 52, *body)


def peers():
    """Draw how many times as fast a fit is as the fastest peer of its table."""
    lda = [(f"topics: {label}", theirs / ours) for label, theirs, ours in topic_models()]
    mf = [
        (f"ratings: {label}", min(libmf, cmfrec) / sgd)
        for label, libmf, cmfrec, sgd, _ in ratings()
    ]
    lasso = [(f"Lasso: {row[0]}", row) for row in l1("l1-lasso")]
    logistic = [(f"logistic: {row[0]}", row) for row in l1("l1-logistic")]
    linear = []
    for label, (_, ours, *theirs) in lasso + logistic:
        if known := [value for value in theirs if value]:
            linear.append((label, min(known) / ours))
    rows = [(label, round(ratio, 2)) for label, ratio in lda + mf + linear]
    return bars(
        "Times as fast as the fastest peer",
        ("ratio",),
        rows,
        "same quality, CPU seconds of one thread, logarithmic",
        1,
    )


def lda_peers():
    """Draw the seconds to tomotopy's perplexity."""
    rows = [(label, theirs, ours) for label, theirs, ours in topic_models()]
    colours = (BLOCKS[1], BLOCKS[0])
    return bars(
        "To tomotopy's perplexity", ("tomotopy", "DistributedLDA"), rows, SECONDS, 0.5, colours
    )


def mf_peers():
    """Draw the seconds to a common error."""
    names, colours = (
        ("LIBMF", "cmfrec", '"sgd"', '"ccd"'),
        (BLOCKS[1], BLOCKS[3], BLOCKS[0], "#8fbdd6"),
    )
    return bars("To a common error of held-out ratings", names, ratings(), SECONDS, 0.005, colours)


def l1_peers():
    """Draw the seconds to a certified gap."""
    names, colours = ("ours", "celer", "skglm"), (BLOCKS[0], BLOCKS[1], BLOCKS[3])
    rows = [row[:4] for row in l1("l1-lasso")]
    return bars(
        "Lasso, to a relative gap of 1e-6", names, rows, f"{SECONDS}; — not reached", 0.05, colours
    )


def schedules_orders():
    """Draw how many times as long as an order from costs a rotation takes."""
    rows = [(row[0], float(row[3]), float(row[5])) for row in rows_of("schedules-orders")]
    names = ("a barrier after every step", "no barrier")
    return bars(
        "A sweep in a rotation, by one in our order",
        names,
        rows,
        "times the length, logarithmic",
        1,
    )


def two_cores():
    """Draw the time and memory of large fits, side by side."""
    rows, left, wide, apart, top, line = first_page.two_cores(), 250, 210, 90, 92, 56
    sides = [
        ("Time", [one.seconds for one in rows], first_page.spent),
        ("Memory", [one.gibibytes for one in rows], "{:.1f} GiB".format),
    ]
    body = [text(20, 32, "What fits on two cores", 17, INK, "start", "bold")]
    for number, one in enumerate(rows):
        y = top + line * number
        body.append(text(left - 16, y + 13, one.data, 15, INK, "end", "bold"))
        body.append(text(left - 16, y + 31, one.fit, 12, SOFT, "end"))
    for side, (title, values, said) in enumerate(sides):
        x = left + side * (wide + apart)
        body.append(text(x, top - 18, title, 13, SOFT, "start", style="italic"))
        for number, (value, colour) in enumerate(zip(values, BLOCKS, strict=True)):
            y, width = top + line * number, wide * value / max(values)
            body.append(box(x, y, f"{width:.1f}", 26, colour, radius=3))
            body.append(text(f"{x + width + 8:.1f}", y + 18, said(value), 14, INK, "start"))
    return svg(left + 2 * (wide + apart), top + line * len(rows) + 4, *body)


PICTURES = (two_cores, peers, lda_peers, mf_peers, l1_peers, schedules_orders)


def write_all(folder):
    """Write the pictures that have changed into `folder`."""
    for draw in PICTURES:
        path, drawn = Path(folder) / f"{draw.__name__}.svg", draw()
        if not path.exists() or path.read_text(encoding="utf-8") != drawn:
            path.write_text(drawn, encoding="utf-8")
