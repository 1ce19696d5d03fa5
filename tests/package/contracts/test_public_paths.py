"""What a user reads names what a user may import, and no more, and is true.

Pages name files that are there.
"""

import doctest
import inspect
import pkgutil
import re
import subprocess
import sys
from importlib import import_module

import dask
from pages import ROOT

import schmp_estimators

PUBLIC = [
    "schmp_estimators",
    *(
        f"schmp_estimators.{name}"
        for name in (
            *("schmp", "genotypes", "penalised", "ranking", "sampling", "datasets"),
            "exceptions",
        )
    ),
]
INTERNAL = {
    part.name for part in pkgutil.iter_modules(schmp_estimators.__path__, "schmp_estimators.")
} - set(PUBLIC)
#: Pages for those who work on the package, and lists of what it has.
NOT_FOR_USERS = (
    "docs/measurements/",
    "docs/api/",
    "docs/architecture.rst",
    "docs/contributing.rst",
)


def internal_paths(text):
    """Return what `text` names of the package's inside.

    That is a module, a path of a file, or an import.
    """
    rooms = "|".join(sorted(name.partition(".")[2] for name in INTERNAL))
    pattern = (
        rf"schmp_estimators[./](?:{rooms})\b[\w./]*|from schmp_estimators import (?:{rooms})\b"
    )
    return re.findall(pattern, text)


def public_objects():
    """Yield all that is public with the name under which a user imports it.

    The methods of what is a class come, too.
    """
    for path in PUBLIC:
        module = import_module(path)
        yield path, module
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", "") == path and name[0] != "_"
        ]
        for name in set(names) - {"__version__"}:
            value = getattr(module, name)
            yield f"{path}.{name}", value
            for method in dir(value) if inspect.isclass(value) else ():
                if method[0] != "_":
                    yield f"{path}.{name}.{method}", inspect.getattr_static(value, method)


def pages():
    found = [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.rst"),
        *(ROOT / "examples").rglob("*.py"),
    ]
    for path in sorted(found):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith((*NOT_FOR_USERS, "docs/gallery/", "docs/_", "docs/api/generated/")):
            # what is included of a source file is shown without its name
            yield (
                name,
                re.sub(r"^\.\. literalinclude::.*$", "", path.read_text(), flags=re.MULTILINE),
            )


def test_what_is_public_is_reached_and_listed_and_nothing_else():
    for path in PUBLIC:
        module = import_module(path)
        below = [name.rpartition(".")[2] for name in PUBLIC[1:]] if path == PUBLIC[0] else []
        assert dir(module) == sorted([*module.__all__, *below])
    code = (
        "import schmp_estimators as s; "
        "print(*[getattr(s, n).__name__ for n in dir(s)[-99:] if n[0].islower()])"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert set(PUBLIC[1:]) < set(found)


def test_docstrings_name_public_paths():
    docs = {name: inspect.getdoc(value) or "" for name, value in public_objects()}
    assert sum(">>> from schmp_estimators" in doc for doc in docs.values()) >= 8
    assert {name: found for name, doc in docs.items() if (found := internal_paths(doc))} == {}


def test_examples_in_docstrings_are_true():
    objects = {id(value): value for name, value in public_objects() if name not in PUBLIC}
    runner = doctest.DocTestRunner()
    ours = [
        value
        for value in objects.values()
        if getattr(value, "__module__", "").startswith("schmp_estimators.")
    ]
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        for value in ours:  # without any names but those that an example imports
            for test in doctest.DocTestFinder(recurse=False).find(
                value, value.__qualname__, globs={}
            ):
                runner.run(test)
    failed, tried = runner.summarize(verbose=False)
    assert tried > 50
    assert failed == 0


def test_pages_and_examples_name_public_paths():
    texts = dict(pages())
    assert {
        "README.md",
        "docs/index.rst",
        "docs/user_guide/l1.rst",
        "examples/quickstart.py",
    } <= set(texts)
    assert {name: found for name, text in texts.items() if (found := internal_paths(text))} == {}


def test_the_api_page_lists_what_is_public():
    listed = re.findall(
        r"^   ~(schmp_estimators[\w.]*)$", (ROOT / "docs/api/index.rst").read_text(), re.MULTILINE
    )
    outside = {name for name in listed if not internal_paths(name)}
    methods_too = dict(public_objects())
    public = {
        name for name in methods_too if name not in PUBLIC and name.rpartition(".")[0] in PUBLIC
    }
    assert outside == public
    assert len(listed) == len(set(listed))


def test_the_page_for_contributors_names_files_of_tests_that_are_there():
    text = (ROOT / "docs/contributing.rst").read_text()
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
    folders = {path.rpartition("/")[0] for path in files}
    named = set(re.findall(r"\btests/[\w/.]*\w", text))
    assert len(named) > 5
    assert named - files - folders - {"tests/golden/table.json"} == set()
    bare = set(re.findall(r"\btest_\w+\.py", text))
    assert bare - {path.rpartition("/")[2] for path in files} == set()
