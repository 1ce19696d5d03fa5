"""The figures of the measurements: one file has them, and pages, README and pictures take them.

A table of ``measurements/figures.toml`` is called after its page, and has some of these keys:

machine
    Where all of its rows were measured: a name of ``measurements/method.rst``.
date, version
    The day and the commit of the measurement.  Without a version, the day on which the rows came to
    the pages.
peers, state
    Versions of other packages; what else ran, or what else a reader must know.
command
    Lines of a shell.  A line that begins with a space continues the one before.
heads, rows
    What the page shows.  A command of the table writes its rows if ``--record`` is added.
widths
    Parts of the width that columns have, for rows of words.
said
    Phrases of the page whose figures are in no row: limits, sizes and other settings.
"""

import json
import re
import shlex
import tomllib
from itertools import pairwise
from math import isnan
from numbers import Integral, Real
from pathlib import Path

PATH = Path(__file__).parent / "measurements" / "figures.toml"
#: What is said of the rows of one machine and version.
SAID_OF_ROWS = ("machine", "version", "date", "peers", "state")
#: The machine of what is counted or computed.
ANY = "any machine"
HEAD = """\
# The figures of the measurements.  Pages, README and pictures are made from them: see
# docs/figures.py.  `python benchmarks/NAME.py ... --record` writes rows of its tables.
"""


def read(path=PATH):
    """Return the tables by their names."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def write(tables, path=PATH):
    """Write the tables, a row a line."""
    path.write_text(HEAD + "".join(map(_lines, tables, tables.values())), encoding="utf-8")


def _lines(name, table):
    found = [f"\n[{name}]"]
    for key, value in table.items():
        if key in ("command", "rows", "said"):
            found += [f"{key} = [", *(f"    {_words(line)}," for line in value), "]"]
        else:
            found.append(f"{key} = {_words(value)}")
    return "\n".join([*found, ""])


def _words(value):
    return json.dumps(value, ensure_ascii=False)  # TOML writes strings and lists as JSON does


def renew(table, rows, key, told, is_chosen=False):
    """Put rows in place of those that begin with the same `key` words.

    Others stay if `told`, the machine and version, is what the table has already.  If its rows are
    chosen, no new ones come, and others that do not stay wait for their figures.
    """
    found = {tuple(row[:key]): row for row in table["rows"]}
    if any(table.get(name) != told[name] for name in ("machine", "version")):
        empty = [""] * (len(table["heads"]) - key)
        found = {name: [*name, *empty] for name in found} if is_chosen else {}
    for row in ([_cell(cell) for cell in row] for row in rows):
        if len(row) != len(table["heads"]):
            raise ValueError(f"{row} does not have the columns {table['heads']}")
        if tuple(row[:key]) in found or not is_chosen:
            found[tuple(row[:key])] = row
    rest = {name: value for name, value in table.items() if name not in SAID_OF_ROWS}
    table.clear()
    table.update({name: value for name, value in told.items() if value} | rest)
    table["rows"] = list(found.values())


def _cell(cell):
    if isinstance(cell, Integral):
        return f"{cell:,}"
    if not isinstance(cell, Real):
        return str(cell)
    if isnan(cell):
        return "—"
    return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:#.3g}".rstrip(".")


def commands(table):
    """Return the commands of a table, each as a list of words."""
    lines = "\n".join(table.get("command", ())).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line))[0] != "export"]


def plain(words):
    """Return a command from its script on, numbers as numbers, without folders."""
    script = next((i for i, word in enumerate(words) if word.endswith(".py")), 0)
    found = [Path(words[script]).name]
    for option, word in pairwise(words[script:]):
        try:
            found.append(float(word))
        except ValueError:
            found.append("FOLDER" if option == "--folder" else word)
    return found


def numbers(words):
    """Return the numbers in words: all of "1.2 to 3,000", none of a dash."""
    found = re.findall(r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+|\d*\.?\d+)(?:e-?\d+)?", words)
    return [float(number.replace(",", "")) for number in found]


def legend(table):
    """Return where and when a table was measured, and beside what."""
    parts = [table.get(key, "") for key in ("machine", "peers", "state", "version", "date")]
    return "; ".join(part for part in parts if part)
