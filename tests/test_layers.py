"""Imports go down the layers only, and what must stay light stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import schmp_estimators

ROOT = Path(schmp_estimators.__file__).parent

#: Which layers each layer may import.
ALLOWED = {
    "estimators": {"estimators", "monitor", "programs", "schedules", "engines", "runtime", "state", "kernels", "data"},
    "monitor": {"monitor"},
    "engines": {"engines", "programs", "runtime", "data"},
    "programs": {"programs", "schedules", "runtime", "kernels", "data"},
    "schedules": {"schedules", "kernels", "data"},
    "runtime": {"runtime", "data"},
    "state": {"state", "data"},
    "data": {"data", "kernels", "runtime"},
    "kernels": {"kernels", "data"},
}
#: Of a layer these may import only these modules of another.
ONLY = {
    ("engines", "programs"): {"schmp_estimators.programs.base"},
    ("programs", "runtime"): {"schmp_estimators.runtime.base"},
    ("kernels", "data"): {"schmp_estimators.data.blocks", "schmp_estimators.data.values"},
    ("engines", "data"): {"schmp_estimators.data.values"},
    ("runtime", "data"): {"schmp_estimators.data.values"},
    # rows on a cluster are waited for as the results of a run are
    ("data", "runtime"): {"schmp_estimators.runtime.cluster", "schmp_estimators.runtime.watch"},
}
WITHOUT_DASK = ("programs", "schedules", "engines", "kernels", "monitor")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module.count(".") == 1)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


MODULES = sorted(path for path in ROOT.rglob("*.py") if len(path.relative_to(ROOT).parts) > 1)


def allowed(layer, name):
    """Say whether a module of `layer` may import what `name` stands for."""
    parts = name.split(".")
    if parts[0] in ("dask", "distributed"):
        return layer not in WITHOUT_DASK
    if parts[0] != "schmp_estimators" or len(parts) <= 2:
        return True
    only = ONLY.get((layer, parts[1]))
    return parts[1] in ALLOWED[layer] and (only is None or ".".join(parts[:3]) in only)


def test_imports_go_down_only():
    found = {path.relative_to(ROOT): set(imports(path)) for path in MODULES}
    assert sum(map(len, found.values())) > 300  # the parser has seen them
    assert [
        f"{path} must not import {name}"
        for path, names in found.items()
        for name in sorted(names)
        if not allowed(path.parts[0], name)
    ] == []


def test_a_forbidden_import_is_noticed():
    assert not allowed("kernels", "schmp_estimators.programs.base")
    assert not allowed("engines", "schmp_estimators.programs.lda_warp")
    assert not allowed("programs", "dask.array")
    assert allowed("estimators", "dask.array")


def test_every_layer_is_known():
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(ALLOWED)


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, schmp_estimators; print(*sorted({'dask', 'numba', 'sklearn'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
