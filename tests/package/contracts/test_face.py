"""The first page, the README and the page for those who come from elsewhere say the same, and what they say is true."""

import re
import runpy
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[3]
README, INDEX, COMING_FROM = (
    (ROOT / name).read_text() for name in ("README.md", "docs/index.rst", "docs/coming_from.rst")
)


def words(text):
    return " ".join(text.split())


def shell_blocks(text, opening):
    found = re.findall(rf"^{opening}shell\n\n?((?: *\S.*\n)+)", text, re.MULTILINE)
    return [words(block.removesuffix("```\n")) for block in found]


def rows_of_readme():
    """Return the rows of all tables, as plain words."""
    rows = [line.strip("|").split("|") for line in README.splitlines() if line.startswith("| ")]
    return [[re.sub(r"\[([^\]]*)\]\([^)]*\)|`([^`]*)`", r"\1\2", cell).strip() for cell in row] for row in rows]


def rows_of_index():
    """Return the same of the page, but for tables without a header."""
    tables = [part for part in INDEX.split(".. list-table::")[1:] if ":header-rows: 1" in part]
    rows = [row for part in tables for row in re.findall(r"^   \* - (?:.+\n)(?:     .*\n)*", part, re.MULTILINE)]
    cells = [re.split(r"^   [* ] - ", row, flags=re.MULTILINE)[1:] for row in rows]
    plain = r"`([^`<]*) <[^>]*>`__|:doc:`([^`<]*)(?: <[^>]*>)?`|``([^`]*)``"
    return [[words(re.sub(plain, r"\1\2\3", cell)).replace("_ <", "<") for cell in row] for row in cells]


def test_readme_and_first_page_say_the_same():
    sentences = [words(re.search(r"\*\*(.+?)\*\*", text, re.DOTALL)[1]) for text in (README, INDEX)]
    assert sentences[0] == sentences[1]
    commands = shell_blocks(README, "```")
    assert commands == shell_blocks(INDEX, r"\.\. code-block:: ")
    assert ["quickstart.py" in command for command in commands] == [True, False]
    assert ["pytest" in command for command in commands] == [False, True]
    of_readme = [[cell.replace("python benchmarks/", "") for cell in row] for row in rows_of_readme()]
    assert len(of_readme) == 10
    assert [row[:-1] for row in of_readme] == [row[:-1] for row in rows_of_index()]
    assert [row[-1] for row in of_readme[7:]] == [row[-1] for row in rows_of_index()[7:]]


def test_the_code_of_the_first_page_runs():
    """Words of topics are words there, not numbers of columns."""
    [code] = re.findall(r"code-block:: python\n\n((?: {6}.*\n|\n)+)", INDEX)
    code = re.sub(r"^ {6}", "", code, flags=re.MULTILINE)
    shown = "lda.top_words(10, feature_names=words)"
    assert shown in code
    names = {"texts": ["cats purr", "dogs bark"] * 20, "X_new": np.array([[1, 0, 0, 2], [0, 3, 1, 0]])}
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        exec(code.replace(shown, f"shown = {shown}").replace("n_components=100", "n_components=2, max_iter=5"), names)
    assert set(names["shown"].ravel()) == {"bark", "cats", "dogs", "purr"}


def test_figures_of_the_first_page_are_those_of_the_measurements():
    pages = {name: words((ROOT / f"docs/measurements/{name}.rst").read_text()) for name in ("lda", "mf", "l1")}
    for page, row in zip(("lda", "mf", "l1"), rows_of_readme()[7:], strict=True):
        decimals = re.findall(r"\d+\.\d+", f"{row[1]} {row[2]}")
        exact = [float(number) for number in re.findall(r"(?<![\w.])\d*\.\d+", pages[page])]
        assert len(decimals) > 1
        for figure in decimals:
            place = len(figure.partition(".")[2])
            assert any(f"{value:.{place}f}" == figure for value in exact), (page, figure)


def test_what_charts_draw_is_read_from_tables(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    charts = runpy.run_path(str(ROOT / "docs" / "charts.py"))
    assert ("peps, 1,000 topics", 37.7, 0.68) in charts["topic_models"]()
    assert ("insteval", 0.028, 0.095, 0.007, 0.014) in charts["ratings"]()
    lasso = charts["l1"]("Lasso, α = α_max divided by")
    assert ("mice 1814 × 10,346, 100", 5.538, None, None) in lasso
    for name in ("peers", "lda_peers", "mf_peers", "l1_peers", "schedules_orders"):
        assert charts[name]() == (ROOT / "docs" / "_static" / f"{name}.svg").read_text()


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("plot_topics.py", "What is this text about?"),
        ("plot_mf_rotation.py", "The papers' figures"),
        ("plot_recommend.py", "What will they like?"),
        ("plot_text_on_dask.py", "What is this text about?"),
        ("plot_something_else.py", "And more"),
    ],
)
def test_every_page_of_the_gallery_has_a_section(name, section, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    style = runpy.run_path(str(ROOT / "docs" / "gallery_style.py"))
    number, at, _ = style["place"](name)
    title, listed, _ = style["SECTIONS"][number]
    assert title == section
    assert 0 <= at <= len(listed)
    pages = {f"plot_{page}.py" for _, listed, _ in style["SECTIONS"] for page in listed}
    assert pages <= {path.name for path in (ROOT / "examples").glob("plot_*.py")}


def test_the_code_for_those_who_come_from_elsewhere_runs():
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.5, (40, 30))
    X = rng.normal(size=(60, 12))
    y = 2 * X[:, 0] - X[:, 3] + 0.1 * rng.normal(size=60)
    people = rng.choice(["ada", "bob", "cy", "di"], 60)
    frame = pd.DataFrame({"user": people, "item": rng.integers(0, 12, 60), "rating": rng.integers(1, 6, 60)})
    names = {
        "counts": counts,
        "lists_of_words": [["cats", "purr"], ["dogs", "bark"], ["cats", "sleep"]] * 5,
        "bags": [[(0, 2), (1, 1)], [(1, 3)]],
        "frame": frame.drop_duplicates(["user", "item"]),
        **{"X": X, "y": y, "labels": y > 0},
    }
    blocks = re.findall(r"code-block:: python\n\n((?: {3}.*\n|\n)+)", COMING_FROM)
    assert len(blocks) == 6
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        for block in blocks:
            exec(re.sub(r"^ {3}", "", block, flags=re.MULTILINE), names)
    np.testing.assert_allclose(names["proportions"].sum(axis=1), 1.0)
    np.testing.assert_allclose(names["topics"].sum(axis=1), 1.0)
    assert names["counts"].toarray().tolist() == [[2, 1], [0, 3]]
    assert set(names["items"].ravel()).isdisjoint(frame["item"][frame["user"] == "ada"])

    assert names["others"].shape == (2, 3)

    from sklearn.linear_model import ElasticNet, Lasso

    np.testing.assert_allclose(names["lasso"].coef_, Lasso(0.05, tol=1e-8).fit(X, y).coef_, atol=1e-5)
    np.testing.assert_allclose(names["net"].coef_, ElasticNet(0.05, l1_ratio=0.7).fit(X, y).coef_, atol=1e-2)
    assert names["model"][-1].alpha_ <= names["model"][-1].alpha_1se_
