"""Data sets that need no download."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from sklearn.utils import Bunch

__all__ = ["load_docstrings"]

#: Packages whose documentation makes the corpus: the library's own dependencies, and others where
#: they are installed.
PACKAGES = (
    "numpy",
    "scipy",
    "sklearn",
    "dask",
    "distributed",
    "numba",
    "pandas",
    "matplotlib",
    "joblib",
    "fsspec",
)

_DOCSTRING = re.compile(r'^[ \t]*(?:r|u|R|U)?"""(.*?)"""', re.MULTILINE | re.DOTALL)
_SKIPPED = {
    "tests",
    "test",
    "testing",
    "_vendor",
    "externals",
    "_externals",
    "array_api_compat",
    "array_api_extra",
}


def __dir__() -> list[str]:
    return __all__


def load_docstrings(packages: Sequence[str] = PACKAGES, *, min_characters: int = 200) -> Bunch:
    """Load the docstrings of installed packages.

    The default packages have thousands of docstrings, which differ between versions of the
    packages.

    Parameters
    ----------
    packages : sequence of str, default=PACKAGES
        Import names of packages.  Packages that are not installed are ignored.
    min_characters : int, default=200
        Docstrings with fewer characters are left out.

    Returns
    -------
    sklearn.utils.Bunch
        ``data``: list of str, the docstrings.  ``target_names``: list of str, the packages found.
        ``target``: list of int, the position in ``target_names`` of the package of each docstring.
        ``filenames``: list of str, the file of each docstring, relative to its package.

    Raises
    ------
    ValueError
        If none of the packages is installed.

    Examples
    --------
    >>> from schmp_estimators.datasets import load_docstrings
    >>> docstrings = load_docstrings(["sklearn"])
    >>> docstrings.target_names
    ['sklearn']
    >>> len(docstrings.data) > 500
    True
    """
    roots = {name: root for name in packages if (root := _root(name))}
    if not roots:
        raise ValueError(
            f"packages={list(packages)!r}: none of them is installed; name packages that can be "
            "imported"
        )
    found = Bunch(data=[], target=[], target_names=list(roots), filenames=[])
    for number, root in enumerate(roots.values()):
        for path in _sources(root):
            for text in _DOCSTRING.findall(path.read_text(encoding="utf-8", errors="replace")):
                if len(text) >= min_characters:
                    found.data.append(text)
                    found.target.append(number)
                    found.filenames.append(path.relative_to(root).as_posix())
    return found


def _root(package: str) -> Path | None:
    spec = find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def _sources(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*.py")):
        if not _SKIPPED.intersection(path.relative_to(root).parts):
            yield path
