"""A pytest plugin for `mutants.py`.

The package must be that of the copy, and what failed is written down.
"""

import json
import os
import sys
from pathlib import Path

_PACKAGE = "schmp_estimators"
_found = {"failed": [], "errors": [], "passed": 0}


def _strangers():
    """Return the modules of the package that do not come from the copy."""
    tree = Path(os.environ["MUTANT_TREE"], _PACKAGE)
    modules = [
        module for name, module in list(sys.modules.items()) if name.partition(".")[0] == _PACKAGE
    ]
    return [module.__name__ for module in modules if not Path(module.__file__).is_relative_to(tree)]


def pytest_configure():
    """Import the package before anything else does, and stop if it is another one."""
    __import__(_PACKAGE)
    if _strangers():
        raise SystemExit(
            f"{_PACKAGE} was imported from {sys.modules[_PACKAGE].__file__}, which is not the copy"
        )


def pytest_runtest_logreport(report):
    """Tell failures from errors: what fails before a test begins is no failing test."""
    if report.failed:
        _found["errors" if report.when == "setup" else "failed"].append(report.nodeid)
    elif report.passed and report.when == "call":
        _found["passed"] += 1


def pytest_collectreport(report):
    """Write down what could not be collected."""
    if report.failed:
        _found["errors"].append(report.nodeid)


def pytest_sessionfinish(session):
    """Write the report, unless a module of another tree has crept in."""
    if hasattr(session.config, "workerinput"):
        return
    if _strangers():
        _found.update(failed=[], errors=[f"imported from elsewhere: {_strangers()}"], passed=0)
    Path(os.environ["MUTANT_REPORT"]).write_text(json.dumps(_found))
