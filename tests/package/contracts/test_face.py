"""The first page and the README say the same, and what they say is true."""

import re
import runpy
import tomllib

from packaging.requirements import Requirement
from pages import ROOT

import schmp_estimators

README, INDEX, START, ELSEWHERE = (
    (ROOT / name).read_text()
    for name in (
        "README.md",
        *(f"docs/{page}.rst" for page in ("index", "getting_started", "coming_from")),
    )
)


def words(text):
    return " ".join(text.split())


def shell_blocks(text, opening):
    found = re.findall(rf"^{opening}shell\n\n?((?: *\S.*\n)+)", text, re.MULTILINE)
    return [words(block.removesuffix("```\n")) for block in found]


def rows_of_readme():
    """Return the rows of all tables, as plain words."""
    rows = [line.strip("|").split("|") for line in README.splitlines() if line.startswith("| ")]
    return [
        [re.sub(r"\[([^\]]*)\]\([^)]*\)|`([^`]*)`", r"\1\2", cell).strip() for cell in row]
        for row in rows
    ]


def test_readme_and_first_page_say_the_same():
    sentences = [words(re.search(r"\*\*(.+?)\*\*", text, re.DOTALL)[1]) for text in (README, INDEX)]
    assert sentences[0] == sentences[1]
    commands = shell_blocks(README, "```")
    assert commands == shell_blocks(START, r"\.\. code-block:: ")
    assert ["quickstart.py" in command for command in commands] == [True, False]
    assert ["pytest" in command for command in commands] == [False, True]
    assert len(rows_of_readme()) == 19
    for page, marks in (INDEX, ("have", "install")), (ELSEWHERE, ("better", "from")):
        assert all(f"<!-- {mark} -->" in page and f"<!-- {mark} -->" in README for mark in marks)


def test_what_charts_draw_is_read_from_tables(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    charts = runpy.run_path(str(ROOT / "docs" / "charts.py"))
    assert ("peps, 1,000 topics", 49.6, 0.75) in charts["topic_models"]()
    assert ("insteval", 0.028, 0.095, 0.007, 0.014) in charts["ratings"]()
    assert ("mice, 1,814 × 10,346, 100", 4.11, None, None, None) in charts["l1"]("l1-lasso")
    for draw in charts["PICTURES"]:
        path = ROOT / "docs" / "_static" / f"{draw.__name__}.svg"
        assert draw() == path.read_text()


def test_the_conda_recipe_has_the_version_and_the_needs_of_the_package():
    recipe = (ROOT / ".ci" / "recipe.yaml").read_text()
    assert (
        re.search(r'^  version: "(.*)"$', recipe, re.MULTILINE)[1] == schmp_estimators.__version__
    )
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python, *others = re.findall(
        r"^    - (\S+) (>=\S+)$", recipe[recipe.index("  run:") :], re.MULTILINE
    )
    assert python == ("python", needs["requires-python"])
    wanted = map(Requirement, needs["dependencies"])
    newest = {
        one.name: one.specifier
        for one in wanted
        if not one.marker or one.marker.evaluate({"python_version": "3.13"})
    }
    newest["dask-core"] = newest.pop("dask")
    assert {name: str(bound) for name, bound in newest.items()} == dict(others)
