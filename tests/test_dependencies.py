"""What is imported is declared: nobody relies on what another package happens to bring."""

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: Names of imports that are not those of the distribution.
DISTRIBUTION = {"sklearn": "scikit-learn", "sphinx_gallery": "sphinx-gallery"}
#: Imported only where it is asked for.
OPTIONAL = {"dashboard": {"bokeh"}, "plot": {"matplotlib", "rich"}}
#: What tests compare with where it is installed, with the extra for benchmarks.
PEERS = {"gensim", "pyLDAvis"}


def statements(node):
    """Yield all statements inside of a node, at any depth."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


@cache
def third_party(folder):
    """Return the distributions that the files below a folder import, at any depth, with a file of each."""
    # tests import each other by their bare names; the package never does
    local = {"schmp_estimators"} | ({path.stem for path in folder.rglob("*")} if folder.name == "tests" else set())
    found = {}
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        by_calls = "importorskip(" in text or "import_module(" in text
        for node in (ast.walk if by_calls else statements)(ast.parse(text)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("importorskip", "import_module"):
                names = [argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant)]
            for name in {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - local:
                found.setdefault(DISTRIBUTION.get(name, name), path.relative_to(ROOT).as_posix())
    return found


def declared(*extras):
    """Return the distributions that the project and some of its extras require."""
    lines = PROJECT["dependencies"] + [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    names = {re.match(r"[\w.-]+", line)[0] for line in lines}
    own = [
        extra for line in lines if line.startswith("schmp-estimators[") for extra in re.findall(r"[a-z]+(?=[],])", line)
    ]
    return names | declared(*own) if own else names


def test_the_package_declares_what_it_imports():
    found = third_party(ROOT / "schmp_estimators")
    assert {"numba", "scikit-learn", "joblib"} <= set(found)  # also what is imported inside of functions
    optional = set().union(*OPTIONAL.values())
    assert {name: path for name, path in found.items() if name not in declared() | optional} == {}
    for extra, names in OPTIONAL.items():
        assert names <= declared(extra)


def test_the_package_imports_what_it_declares():
    assert declared() - set(third_party(ROOT / "schmp_estimators")) == set()


def test_the_tests_declare_what_they_import():
    found = third_party(ROOT / "tests")
    assert {name: path for name, path in found.items() if name not in declared("test") | PEERS} == {}
    assert declared("bench") >= PEERS


def test_the_examples_declare_what_they_import():
    found = third_party(ROOT / "examples")
    assert {name: path for name, path in found.items() if name not in declared("docs")} == {}  # which show them
