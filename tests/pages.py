"""The code of examples and of pages."""

import contextlib
import importlib.util
import io
import re
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]


def example(name):
    """Return the module of an example, with what it defines before its first "# %%"."""
    path = ROOT / "examples" / f"{name}.py"
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, path))
    sys.modules[name] = module  # where dataclasses and pickles look for its classes
    exec(compile(path.read_text().partition("\n# %%\n")[0], path, "exec"), module.__dict__)
    return module


def code_on(page, indent=3):
    """Return the blocks of Python on a page."""
    text = (ROOT / "docs" / f"{page}.rst").read_text()
    found = re.findall(rf"code-block:: python\n\n((?: {{{indent}}}.*\n|\n)+)", text)
    return [re.sub(rf"^ {{{indent}}}", "", block, flags=re.MULTILINE) for block in found]


def tell(page, names):
    """Run a page; return what each of its blocks printed, and what the page says that it prints."""
    path = ROOT / "docs" / f"{page}.rst"
    found = re.findall(
        r"code-block:: (python|text)\n\n((?:   .*\n|\n)+)|literalinclude:: (\S+\.py)",
        path.read_text(),
    )
    told = []
    for kind, block, file in found:
        if kind == "text":
            told[-1][1] = block
        else:
            code = path.with_name(file).read_text() if file else block
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code if file else re.sub(r"^ {3}", "", code, flags=re.MULTILINE), names)
            told.append([printed.getvalue(), ""])
    return told


def is_told(printed, shown, tolerance):
    """Return whether the words of two texts are the same, and their numbers about the same."""
    number = r"-?\d*\.?\d+(?:e-?\d+)?"
    one, two = (
        (" ".join(re.sub(number, " # ", text).split()), re.findall(number, text))
        for text in (printed, shown)
    )
    return one[0] == two[0] and np.allclose(
        *(np.array(part[1], float) for part in (one, two)), tolerance
    )
