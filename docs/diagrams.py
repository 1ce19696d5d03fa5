"""The diagrams of the documentation, written as SVG when it is built.

They are kept for those who read the sources.
"""

from pathlib import Path

from drawing import BLOCKS, INK, PAPER, SOFT, arrow, box, svg, text


def _worker(x, y, number, block):
    """One worker: its documents, and the block of words that it holds at the moment."""
    parts = [
        box(x, y, 150, 132, "#f3f6f8", "#c9d3d9", 10),
        text(x + 75, y + 22, f"worker {number}", 14, INK),
    ]
    for line in range(6):
        top = y + 34 + 9 * line
        parts.append(box(x + 14, top, 122, 5, "#dfe6ea", radius=2))
        parts.append(box(x + 14 + 30 * block, top, 26, 5, BLOCKS[block], radius=2))
    parts.append(box(x + 14 + 30 * block, y + 96, 26, 26, BLOCKS[block]))
    side = (x + 136, "end") if block < 2 else (x + 14, "start")
    parts.append(
        text(side[0], y + 114, f"words {'ABCD'[block]}", 13, BLOCKS[block], side[1], "bold")
    )
    return "".join(parts)


def ring():
    """Draw four workers, each with its documents and one block of words.

    The way that the blocks take is drawn, too.
    """
    places = [(40, 70), (330, 70), (330, 282), (40, 282)]
    body = [
        text(260, 32, "Documents stay. Blocks of words go round.", 18, INK, weight="bold"),
        *[_worker(x, y, p, p) for p, (x, y) in enumerate(places)],
        arrow("M324 120 H198"),
        arrow("M405 276 V210"),
        arrow("M196 364 H322"),
        arrow("M115 208 V274"),
        text(260, 234, "no two workers ever hold", 14, SOFT, style="italic"),
        text(260, 254, "the same words", 14, SOFT, style="italic"),
    ]
    return svg(520, 440, *body)


def sweep():
    """Draw the cells of one sweep in time: the ring without barriers, then one barrier."""
    lengths = [[92, 104, 84, 98], [100, 86, 106, 90], [84, 96, 92, 104], [96, 92, 98, 88]]
    left, top, row, gap = 92, 74, 46, 3
    body = [text(380, 30, "One sweep of four shards", 18, INK, weight="bold")]
    body += [text(left - 12, top + row * p + 24, f"shard {p}", 14, INK, "end") for p in range(4)]
    ready, free, cells = [left] * 4, [left] * 4, []
    for step in range(4):
        for p in range(4):
            block = (p + step) % 4
            start = max(free[p], ready[block])
            cells.append((p, block, start, lengths[p][block]))
            free[p] = ready[block] = start + lengths[p][block] + gap
    for p, block, start, length in cells:
        body.append(box(start, top + row * p, length, 36, BLOCKS[block]))
        body.append(
            text(start + length / 2, top + row * p + 24, f"words {'ABCD'[block]}", 14, PAPER)
        )
    end = max(free) + 8
    body.append(
        f"<path d='M{end} {top - 12} V{top + 4 * row + 4}' stroke='{INK}' stroke-width='3'/>"
    )
    body.append(text(end + 6, top + 4 * row + 24, "barrier", 14, INK, "start"))
    for p in range(4):
        body.append(box(end + 12, top + row * p, 92, 36, "#8a979e"))
        body.append(text(end + 58, top + row * p + 24, "documents", 14, PAPER))
    body.append(arrow(f"M{left} {top + 4 * row + 18} H{left + 120}"))
    body.append(
        text(
            left + 130,
            top + 4 * row + 23,
            "time; a block goes on as soon as it is done",
            14,
            SOFT,
            "start",
        )
    )
    return svg(end + 124, top + 4 * row + 44, *body)


def layers():
    """Draw the package: three wings on one core."""
    floors = ["estimators", "programs", "data", "kernels"]
    wings = [
        ("lda", "topic models", BLOCKS[0]),
        ("mf", "factorisation", "#c9792f"),
        ("linear", "L1 models", "#5f9a4d"),
    ]
    rooms = [
        ("contract", "programs, stages"),
        ("engine", "ranks, sweeps, rounds"),
        ("schedules", "who meets whom"),
        ("places", "this process, or Dask"),
        ("inputs", "types of input"),
    ]
    left, width, gap, row = 20, 268, 18, 42
    body = []
    for number, (name, what, colour) in enumerate(wings):
        x = left + number * (width + gap)
        body += [
            box(x, 20, width, 50 + row * len(floors), colour, radius=8, opacity=0.14),
            text(x + 16, 47, name, 18, INK, "start", "bold"),
            text(x + width - 16, 47, what, 15, INK, "end"),
        ]
        for floor, word in enumerate(floors):
            body.append(box(x + 14, 62 + row * floor, width - 28, row - 8, colour))
            body.append(text(x + width / 2, 85 + row * floor, word, 15, PAPER, weight="bold"))
    whole = 3 * width + 2 * gap
    top = 88 + row * len(floors)
    body += [
        box(left, top, whole, 118, INK, radius=8),
        text(left + 16, top + 29, "core", 18, PAPER, "start", "bold"),
        text(
            left + whole - 16,
            top + 29,
            "knows no statistics; your own programs stand on it, too",
            15,
            PAPER,
            "end",
        ),
    ]
    room = (whole - 28 - 10 * (len(rooms) - 1)) / len(rooms)
    for number, (name, what) in enumerate(rooms):
        x = left + 14 + number * (room + 10)
        body += [
            box(x, top + 44, room, 60, PAPER, opacity=0.12),
            text(x + room / 2, top + 69, name, 16, PAPER, weight="bold"),
            text(x + room / 2, top + 91, what, 13, PAPER),
        ]
    caption = (
        "Imports point downwards: from floor to floor of a wing, and into the core.  "
        "No wing knows another one."
    )
    body.append(text(left, top + 146, caption, 15, SOFT, "start", style="italic"))
    return svg(whole + 2 * left, top + 164, *body)


def write_all(folder):
    """Write the diagrams that have changed into `folder`."""
    for draw in (ring, sweep, layers):
        path, drawn = Path(folder) / f"{draw.__name__}.svg", draw()
        if not path.exists() or path.read_text(encoding="utf-8") != drawn:
            path.write_text(drawn, encoding="utf-8")
