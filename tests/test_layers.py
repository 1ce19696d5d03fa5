"""Three wings on one core: who may import whom, and what must stay light stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import schmp_estimators

ROOT = Path(schmp_estimators.__file__).parent
WINGS = {"lda", "mf", "linear"}
#: Inside a wing imports go down only; what stands in the wing itself is its estimators.
FLOORS = ["", "programs", "data", "kernels", "blocks"]
#: Rooms of one wing, and the floor they are on: kernels are compiled for penalties, and losses call kernels.
ROOMS = {"losses": "data", "penalties": "blocks"}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def floor(parts):
    """Return on which floor of its wing a module stands; `parts` begin with the wing."""
    room = ROOMS.get(parts[1], parts[1]) if parts[1:2] else ""
    return FLOORS.index(room if room in FLOORS else "")


def allowed(module, name):
    """Say whether `module`, a path in the package, may import what `name` stands for."""
    here, there = module.split("/"), name.split(".")
    if there[0] == "distributed":
        return here[0] == "core"
    if there[0] == "dask":
        return here[0] not in WINGS or floor(here) in (0, FLOORS.index("data"))
    if there[0] != "schmp_estimators" or len(there) < 3:
        return True
    if here[0] == "core":
        return there[1] == "core"
    if here[0] in WINGS:
        same = there[1] == here[0] and floor(there[1:]) >= floor(here)
        return same or there[1] == "core" or (there[1] == "monitor" and floor(here) == 0)
    return here[0] != "monitor" or there[1] == "monitor"


def test_imports_respect_wings_and_floors():
    modules = {str(path.relative_to(ROOT).with_suffix("")): set(imports(path)) for path in sorted(ROOT.rglob("*.py"))}
    assert sum(map(len, modules.values())) > 500  # the parser has seen them
    assert [
        f"{module} must not import {name}"
        for module, names in modules.items()
        for name in sorted(names)
        if not allowed(module, name)
    ] == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("lda/fit", "schmp_estimators.mf.blocks"),
        ("core/engine/static", "schmp_estimators.lda.programs.warp"),
        ("mf/kernels/sgd", "schmp_estimators.mf.data.ratings"),
        ("lda/blocks", "schmp_estimators.lda.kernels.rows"),
        ("linear/programs/lasso", "dask.array"),
        ("linear/lasso", "distributed.Client"),
    ],
)
def test_a_forbidden_import_is_noticed(module, name):
    assert not allowed(module, name)


def test_every_room_is_known():
    rooms = {str(path.parent.relative_to(ROOT)) for path in ROOT.rglob("__init__.py")} - {"."}
    assert rooms == {
        *(
            "core",
            *(f"core/{room}" for room in ("cluster", "dashboard", "door", "engine", "io", "places", "schedules")),
            "monitor",
        ),
        *WINGS,
        *(f"{wing}/{room}" for wing in WINGS for room in FLOORS[1:4]),
        *(f"linear/{room}" for room in ROOMS),
    }


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, schmp_estimators; print(*sorted({'dask', 'numba', 'sklearn'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
