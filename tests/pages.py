"""The code of examples and of pages."""

import importlib.util
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def example(name):
    """Return the module of an example that defines what stands there.

    What follows is not run.
    """
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
