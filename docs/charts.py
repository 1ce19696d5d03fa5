"""Pictures of measurements, drawn from the tables of their pages when the pages are built."""

import math
import re
from pathlib import Path
from statistics import median

from drawing import BLOCKS, INK, SOFT, svg, text

PAGES = Path(__file__).parent / "measurements"
PALE = "#e6eaed"
SECONDS = "CPU seconds, logarithmic"


def tables(page):
    """Return the simple tables of a page, each as a list of rows of words."""
    found, columns, rows = [], None, []
    for line in (PAGES / f"{page}.rst").read_text(encoding="utf-8").splitlines():
        if re.fullmatch(r"=+(  +=+)+", line):
            columns = [match.span() for match in re.finditer("=+", line)]
        elif columns and line.strip():
            rows.append([line[a : b if b != columns[-1][1] else None].strip() for a, b in columns])
        elif rows:
            found.append(rows)
            columns, rows = None, []
    return found


def starting_with(found, *header):
    """Return the rows of the first of some tables whose header begins like this."""
    return next(table[1:] for table in found if tuple(table[0][: len(header)]) == header)


def numbers(words):
    """Return the numbers in a cell: all of "1.2, 3", none of a dash."""
    return [float(number) for number in re.findall(r"(?<![\w.])\d*\.?\d+", words)]


def topic_models():
    """Return (label, tomotopy's seconds, the median of ours) of the race to one perplexity."""
    rows = starting_with(
        tables("lda"), "corpus", "K", "tomotopy, CPU s", "its perplexity", "sampler"
    )
    ours = [row for row in rows if row[4].startswith("auto")]
    return [
        (f"{row[0]}, {int(row[1]):,} topics", float(row[2]), median(numbers(row[6])))
        for row in ours
    ]


def ratings():
    """Return (label, seconds of LIBMF, cmfrec, "sgd" and "ccd") of the fits with a common error."""
    rows = starting_with(tables("mf"), "data (common RMSE)")
    return [
        (row[0].partition(" ")[0], *map(float, (word.strip("*") for word in row[1:])))
        for row in rows[::2]
    ]


def l1(header):
    """Return (label, seconds of ours and of each peer, None for a dash)."""
    rows = starting_with(tables("l1"), header)
    return [(row[0], *(next(iter(numbers(word)), None) for word in row[1:-1])) for row in rows]


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
    lasso = [
        ("Lasso: " + re.sub(r"(, \d+)$", r"\1", row[0]), row)
        for row in l1("Lasso, α = α_max divided by")
    ]
    logistic = [(f"logistic: {row[0]}", row) for row in l1("Logistic, C = C_min times")]
    linear = []
    for label, (_, ours, *theirs) in lasso + logistic:
        if known := [value for value in theirs if value]:
            linear.append(
                (
                    label.replace(" recipe", "").replace(" 0.95", "").replace(" 0.5", ""),
                    min(known) / ours,
                )
            )
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
    rows = [(row[0].replace(" recipe", ""), *row[1:]) for row in l1("Lasso, α = α_max divided by")]
    return bars(
        "Lasso, to a relative gap of 1e-6", names, rows, f"{SECONDS}; — not reached", 0.05, colours
    )


def schedules_orders():
    """Draw how many times as long as an order from costs a rotation takes."""
    found = starting_with(tables("schedules"), "shards × blocks, share, costs")[
        1:
    ]  # the header has two lines
    rows = [(row[0], float(row[3]), float(row[5])) for row in found]
    names = ("a barrier after every step", "no barrier")
    return bars(
        "A sweep in a rotation, by one in our order",
        names,
        rows,
        "times the length, logarithmic",
        1,
    )


def write_all(folder):
    """Write the pictures that have changed into `folder`."""
    for draw in (peers, lda_peers, mf_peers, l1_peers, schedules_orders):
        path, drawn = Path(folder) / f"{draw.__name__}.svg", draw()
        if not path.exists() or path.read_text(encoding="utf-8") != drawn:
            path.write_text(drawn, encoding="utf-8")
