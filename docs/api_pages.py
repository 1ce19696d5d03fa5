"""What the page of a class shows of its bases, which are internal.

Their methods, and where these are written.
"""

from functools import cache
from typing import Generic, get_origin

from sklearn.base import BaseEstimator
from sphinx.pycode import ModuleAnalyzer

import schmp_estimators
from schmp_estimators import exceptions, genotypes, penalised, ranking, sampling, schmp

PUBLIC = (schmp_estimators, exceptions, genotypes, penalised, ranking, sampling, schmp)


@cache
def find_source(app, module):
    """Return the source of a module of ours, and where names are in it.

    Methods also as those of public classes.
    """
    if module.partition(".")[0] != schmp_estimators.__name__:
        return None
    analyzer = ModuleAnalyzer.for_module(module)
    analyzer.find_tags()
    tags = dict(analyzer.tags)
    public = (getattr(place, name) for place in PUBLIC for name in place.__all__)
    for one in (one for one in public if isinstance(one, type)):
        for base in one.__mro__[1:]:
            for name in vars(base) if base.__module__ == module else ():
                if (written := f"{base.__qualname__}.{name}") in tags:
                    tags.setdefault(f"{one.__qualname__}.{name}", tags[written])
    return analyzer.code, tags


def leave_internal_bases_out(app, name, obj, options, bases):
    """Name only bases that readers can look up."""
    places = {place.__name__ for place in PUBLIC}
    if isinstance(obj, type) and issubclass(obj, BaseEstimator):
        bases[:] = [BaseEstimator]
    else:
        plain = [get_origin(base) or base for base in bases if not _is_internal(base, places)]
        bases[:] = [base for base in plain if not _is_internal(base, places)]


def _is_internal(base, places):
    module = getattr(base, "__module__", "")
    ours = module.startswith(f"{schmp_estimators.__name__}.") and module not in places
    return ours or get_origin(base) is Generic  # whose parameters are types of ours


def setup(app):
    """Connect both."""
    app.connect("viewcode-find-source", find_source)
    app.connect("autodoc-process-bases", leave_internal_bases_out)
