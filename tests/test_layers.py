"""Three wings on one core.

Who may import whom, what must stay light stays light, and all else is declared.
"""

import os
import pickle
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import schmp_estimators

ROOT = Path(schmp_estimators.__file__).parent
PROJECT = tomllib.loads(ROOT.with_name("pyproject.toml").read_text())["project"]
WINGS = {"lda", "mf", "linear"}
#: Inside a wing imports go down only; what stands in the wing itself is its estimators.
FLOORS = ["", "programs", "data", "kernels", "blocks"]
#: Rooms of one wing, and the floor they are on: kernels are compiled for penalties, and losses call
#: kernels; a sampler is a program and its kernel; all may ask what a loss declares.
ROOMS = {
    "contracts": "blocks",
    "losses": "data",
    "penalties": "blocks",
    "samplers": "programs",
}


def imports(text):
    """Yield what a module imports, at any depth, also by `Later`."""
    for module, names in re.findall(r"^ *from ([\w.]+) import (\([^)]*\)|.*)", text, re.MULTILINE):
        yield from (
            f"{module}.{name}" for name in re.findall(r"\w+", re.sub(r" as \w+|#.*", "", names))
        )
    for names in re.findall(r"^ *import ([\w.]+(?:, [\w.]+)*)", text, re.MULTILINE):
        yield from names.split(", ")
    yield from re.findall(r"(?:Later|importorskip|import_module)\(\"([\w.]+)\"", text)


def floor(parts):
    """Return on which floor of its wing a module stands; `parts` begin with the wing."""
    room = ROOMS.get(parts[1], parts[1]) if parts[1:2] else ""
    return FLOORS.index(room if room in FLOORS else "")


def is_public_or_own(sampler, there):
    """Say whether a sampler, as if it stood outside, may import a name; it may have kernels."""
    own = there[:2] == ["lda", "kernels"] and there[2].startswith(sampler)
    public = there[0] in ("sampling", "schmp") or there[:2] == ["lda", "samplers"]
    return own or public or there[:2] == ["core", "typing"]


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
        right = same or there[1] == "core" or (there[1] == "monitor" and floor(here) == 0)
        is_sampler = here[1] == "samplers" and here[2] != "__init__"
        return is_public_or_own(here[2], there[1:]) if is_sampler else right
    return here[0] != "monitor" or there[1] == "monitor"


def test_imports_respect_wings_and_floors():
    modules = {
        str(path.relative_to(ROOT).with_suffix("")): set(imports(path.read_text()))
        for path in sorted(ROOT.rglob("*.py"))
    }
    assert sum(map(len, modules.values())) > 500  # the parser has seen them
    assert [
        f"{module} must not import {name}"
        for module, names in modules.items()
        for name in sorted(names)
        if not allowed(module, name)
    ] == []


def in_a_process(code, *arguments, **variables):
    """Return what Python prints; without Dask's variables that are here."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    found = subprocess.run(
        command, capture_output=True, text=True, env=clean | variables, check=False
    )
    assert not found.returncode, found.stderr
    return found.stdout.split()


@pytest.mark.parametrize(
    ("package", "heavy"),
    [
        ("schmp_estimators", {"dask", "numba", "sklearn"}),
        ("dask", {"numba", "sklearn", "scipy", "dask.array"}),
    ],
)
def test_importing_the_package_or_dask_loads_nothing_heavy(package, heavy):
    """Dask imports the package while it is being imported itself.

    Who only uses Dask must not pay for numba.
    """
    code = (
        f"import sys, {package}; assert 'schmp_estimators' in sys.modules; "
        f"print(*{heavy} & set(sys.modules))"
    )
    assert in_a_process(code) == []


FITS = """
import pickle, sys
import numpy as np
from schmp_estimators import DistributedLDA, ModelParallelMF
from schmp_estimators import PrioritizedLasso, SparseLogisticRegression

model, X = pickle.load(open(sys.argv[1], "rb"))
model.transform(X)
DistributedLDA(2, max_iter=2).fit(X).perplexity(X)
ModelParallelMF(2, max_iter=2).fit(np.where(X > 0, X, np.nan)).score(np.where(X > 0, X, np.nan))
PrioritizedLasso(0.1).fit(X * 1.0, X[:, 0]).predict(X * 1.0)
SparseLogisticRegression().fit(X * 1.0, X[:, 0] > 1).predict(X * 1.0)
print(*sorted({"dask", "distributed", "matplotlib"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_fits_in_one_process_never_import_dask(tmp_path):
    X = np.random.default_rng(0).poisson(1.0, (30, 8)) + np.eye(30, 8, dtype=int)
    (tmp_path / "model").write_bytes(
        pickle.dumps((schmp_estimators.DistributedLDA(2, max_iter=2).fit(X), X))
    )
    assert in_a_process(FITS, tmp_path / "model", HOME=str(tmp_path)) == []


@pytest.mark.parametrize(
    ("variables", "text", "imports"),
    [
        ({}, None, False),
        ({}, "# schmp-estimators:\n\n#   runtime: local\n", False),
        ({}, "schmp-estimators:\n  runtime: local\n", True),
        ({"DASK_SCHMP_ESTIMATORS__RUNTIME": "local"}, None, True),
    ],
)
def test_configuration_counts_without_dask(tmp_path, variables, text, imports):
    if text:
        (tmp_path / ".config/dask").mkdir(parents=True)
        (tmp_path / ".config/dask/ours.yaml").write_text(text)
    code = (
        "import sys; from schmp_estimators.core.later import setting; "
        "print(setting('schmp-estimators.runtime', 'auto'), 'dask' in sys.modules)"
    )
    expected = ["local" if imports else "auto", str(imports)]
    assert in_a_process(code, HOME=str(tmp_path), **variables) == expected


# What is imported is declared: nobody relies on what another package happens to bring.

#: Names of imports that are not those of the distribution.
DISTRIBUTION = {
    "bed_reader": "bed-reader",
    "sklearn": "scikit-learn",
    "sphinx_gallery": "sphinx-gallery",
}
#: Imported only where it is asked for.
OPTIONAL = {"dashboard": {"bokeh"}, "genotypes": {"pgenlib"}, "plot": {"matplotlib", "rich"}}


@cache
def third_party(folder):
    """Return the distributions that the files below a folder import, with a file of each."""
    # tests import each other, and programs of the tree, by bare names; the package never does
    near = ("tests", "docs", "benchmarks") if folder.name == "tests" else ()
    local = {"schmp_estimators"}.union(
        path.stem for name in near for path in ROOT.with_name(name).rglob("*")
    )
    found = {}
    for path in sorted(folder.rglob("*.py")):
        names = {name.partition(".")[0] for name in imports(path.read_text())}
        found |= {
            DISTRIBUTION.get(name, name): path.name
            for name in names - set(sys.stdlib_module_names) - local
        }
    return found


def declared(*extras):
    """Return the distributions that the project and some of its extras require."""
    lines = PROJECT["dependencies"] + [
        line for extra in extras for line in PROJECT["optional-dependencies"][extra]
    ]
    names = {re.match(r"[\w.-]+", line)[0] for line in lines}
    own = [
        extra
        for line in lines
        if line.startswith("schmp-estimators[")
        for extra in re.findall(r"[a-z]+(?=[],])", line)
    ]
    return names | declared(*own) if own else names


def test_the_package_imports_what_it_declares_and_nothing_else():
    found, optional = third_party(ROOT), set().union(*OPTIONAL.values())
    assert {name: path for name, path in found.items() if name not in declared() | optional} == {}
    assert declared() - set(found) == set()
    for extra, names in OPTIONAL.items():
        assert names <= declared(extra)


@pytest.mark.parametrize(("folder", "extra"), [("tests", "test"), ("examples", "docs")])
def test_what_tests_and_examples_import_is_declared(folder, extra):
    found = third_party(ROOT.with_name(folder))
    assert {name: path for name, path in found.items() if name not in declared(extra)} == {}
