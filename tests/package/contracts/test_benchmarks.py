"""Benchmarks fit the package: timings of kernels run, and what scripts import is there."""

import ast
import importlib.util
import inspect

import pytest
from pages import ROOT

SCRIPTS = sorted(
    path for folder in ("benchmarks", "docs", "examples") for path in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize(
    "wing", ["linear", *(pytest.param(one, marks=pytest.mark.slow) for one in ("mf", "lda"))]
)
def test_timings_of_kernels_run(wing, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    found = vars(importlib.import_module(f"kernels.{wing}")).values()
    kinds = [kind for kind in found if hasattr(kind, "time_call") and not inspect.isabstract(kind)]
    assert len(kinds) >= 3
    for timing in (kind() for kind in kinds):
        timing.setup()
        timing.time_call()


def test_a_mutant_of_a_file_that_is_not_there_is_named(monkeypatch):
    script = ROOT / "tests" / "mutants" / "mutants.py"
    monkeypatch.syspath_prepend(script.parent)
    mutant = importlib.import_module(script.stem).Mutant(
        "lda", "gone", "lda/gone.py", "old", "new", ()
    )
    with pytest.raises(
        ValueError, match=r"stale: lda: gone: no file schmp_estimators/lda/gone\.py"
    ):
        mutant.text(ROOT)


def test_what_scripts_import_of_the_package_is_there():
    missing = []
    for node in (node for path in SCRIPTS for node in ast.walk(ast.parse(path.read_text()))):
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] == "schmp_estimators"
        ):
            module = importlib.import_module(node.module)
            names = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            missing += [
                name for name in names if importlib.util.find_spec(f"{node.module}.{name}") is None
            ]
    assert missing == []
