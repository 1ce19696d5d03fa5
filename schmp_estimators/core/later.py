"""Dask where it is needed only: to import it takes longer than many a fit, and most fits know nothing of it.

No input can be a collection while ``dask`` has not been imported, and no client can be active, nor can this be a task,
while ``distributed`` has not.
"""

from __future__ import annotations

import os
import site
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


class Later:
    """A module that is imported when something of it is first asked for.

    Parameters
    ----------
    name : str
        Its full name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(import_module(self._name), attribute)
        setattr(self, attribute, found)  # whoever asks again gets it at once
        return found


_dask: Any = Later("dask")


def setting(key: str, default: Any = None) -> Any:
    """Return what ``dask.config`` has under a key.  Dask is imported for it only if it may have been configured."""
    if "dask" not in sys.modules and not _may_be_configured():
        return default
    return _dask.config.get(key, default)


@cache
def _may_be_configured() -> bool:
    """Return whether there are Dask's variables in the environment, or files of its configuration that say anything."""
    if any(name.startswith("DASK_") for name in os.environ):
        return True
    prefixes = {"/", sys.prefix, *site.PREFIXES}
    folders = [Path("~/.config/dask").expanduser(), *(Path(prefix, "etc", "dask") for prefix in prefixes)]
    files = [path for folder in folders for path in folder.glob("*") if path.suffix in (".yaml", ".yml", ".json")]
    return any(map(_says_something, files))


def _says_something(path: Path) -> bool:
    """Return whether not all lines of a file are empty, or comments, as in the files that Dask writes by itself."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.strip() and not line.strip().startswith("#") for line in lines)
