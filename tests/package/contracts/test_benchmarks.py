"""Benchmarks fit the package: timings of kernels run, and what scripts import is there."""

import ast
import importlib.util
import inspect
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
#: How many timings each wing has.
WINGS = {"lda": 8, "mf": 3, "linear": 3}


#: Kernels that take long to compile.
LONG = {"AliasCell"}


@pytest.fixture(params=["linear", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mf", "lda", "lda, long"))])
def timings(request, monkeypatch):
    """The timings of a wing, found as asv finds them: classes that are not abstract."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    wing, _, are_long = request.param.partition(", ")
    found = vars(import_module(f"kernels.{wing}")).values()
    kinds = [kind for kind in found if hasattr(kind, "time_call") and not inspect.isabstract(kind)]
    assert len(kinds) == WINGS[wing]
    return [kind for kind in kinds if (kind.__name__ in LONG) == bool(are_long)]


def written(value):
    """Return the bytes of all arrays that a kernel may write into."""
    if isinstance(value, np.ndarray):
        return [value.tobytes()] if value.flags.writeable else []
    return [array for part in value for array in written(part)] if isinstance(value, tuple) else []


def test_every_timing_does_the_same_work_each_time(timings):
    for kind in timings:
        timing, seen = kind(), []
        for _ in range(2):
            timing.setup()
            before = written(timing.arguments)
            result = timing.time_call()
            seen.append((before, written(timing.arguments), result))
            assert seen[-1][0] != seen[-1][1]
        assert seen[0] == seen[1]


ROOT = Path(__file__).parents[3]
SCRIPTS = sorted(path for folder in ("benchmarks", "docs", "examples") for path in (ROOT / folder).rglob("*.py"))


def test_what_scripts_import_of_the_package_is_there():
    missing = []
    for node in (node for path in SCRIPTS for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "schmp_estimators":
            module = importlib.import_module(node.module)
            names = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            missing += [name for name in names if importlib.util.find_spec(f"{node.module}.{name}") is None]
    assert missing == []
