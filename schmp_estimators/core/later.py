"""Dask, imported only where it is needed.

The import takes longer than many fits, and most fits do not use Dask.

While ``dask`` has not been imported, no input can be a Dask collection.  While ``distributed`` has
not been imported, no client can be active, and the code cannot run in a Dask task.
"""

import os
import site
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


class Later:
    """A module that is imported when one of its attributes is first used.

    Parameters
    ----------
    name : str
        Full name of the module.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(import_module(self._name), attribute)
        setattr(self, attribute, found)  # the next access finds it at once
        return found


_dask: Any = Later("dask")


def setting(key: str, default: Any = None) -> Any:
    """Return the value of a key of ``dask.config``.

    Dask is imported for it only if it may have been configured.
    """
    if "dask" not in sys.modules and not _may_be_configured():
        return default
    return _dask.config.get(key, default)


@cache
def _may_be_configured() -> bool:
    """Return whether Dask may have been configured.

    The environment has variables of Dask, or there are configuration files with any content.
    """
    if any(name.startswith("DASK_") for name in os.environ):
        return True
    prefixes = {"/", sys.prefix, *site.PREFIXES}
    folders = [
        Path("~/.config/dask").expanduser(),
        *(Path(prefix, "etc", "dask") for prefix in prefixes),
    ]
    files = [
        path
        for folder in folders
        for path in folder.glob("*")
        if path.suffix in (".yaml", ".yml", ".json")
    ]
    return any(map(_says_something, files))


def _says_something(path: Path) -> bool:
    """Return whether a file has lines that are neither empty nor comments.

    Files that Dask itself writes have none.
    """
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.strip() and not line.strip().startswith("#") for line in lines)
