"""Figures of the pages and of README are those of docs/measurements/figures.toml.

None is typed by hand.
"""

import argparse
import re
import sys

import pytest
from pages import ROOT

sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "benchmarks")]

import figures  # noqa: E402
import first_page  # noqa: E402

TABLES = figures.read()
PAGES = {path.stem: path.read_text() for path in figures.PATH.parent.glob("*.rst")}
README = first_page.README.read_text()
KEYS = {"command", "heads", "rows", "widths", "said", *figures.SAID_OF_ROWS}
UNIT = (
    "(?:CPU )?s|(?:CPU )?(?:milli|nano)?seconds?|ms|ns|µs|min|minutes?|hours?|"
    "[GMk]i?B|bytes?|times|%"
)
NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?|\.\d+)(?:e-?\d+)?"
#: A number with a decimal point, or one that a unit follows, as both do in "2 to 3 s".  A version
#: with two points is none.
FIGURE = re.compile(
    rf"(?<![\w.,])(?:(?=\d*\.\d)|(?={NUMBER}(?:,? (?:to|and|or|of) {NUMBER})* ?(?:{UNIT})(?!\w)))"
    rf"{NUMBER}(?![.,]?\d)"
)


def prose_of(page):
    """Return what a page says itself: no code, no names of files, but what pictures show."""
    page = re.sub(
        r"^\.\. (?:code-block|toctree)::.*\n(?:(?: .*)?\n)*", "", page, flags=re.MULTILINE
    )
    page = re.sub(r"^ *(?:\.\. \w+::|:class:|:header).*$", "", page, flags=re.MULTILINE)
    page = re.sub(r"``[^`]+``|(?::\w+:)?`[^`]*`_?", " ", page)
    return plain(page)


def prose_of_readme(text):
    text = re.sub(r"<!-- figures: .*?<!-- end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return plain(re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text))


def plain(text):
    return " ".join(text.replace("*", "").split())


def known_of(names):
    """Return the numbers of the tables whose names begin with one of these."""
    tables = [table for name, table in TABLES.items() if name.partition("-")[0] in names]
    words = [word for table in tables for row in table.get("rows", ()) for word in row]
    words += [phrase for table in tables for phrase in table.get("said", ())]
    return {number for word in words for number in figures.numbers(word)}


def typed(prose, said, known):
    """Return the figures in prose that are neither in phrases nor among known numbers.

    Figures of two digits or more may be rounded.
    """
    for phrase in said:
        prose = prose.replace(plain(phrase), "")
    found = []
    for match in FIGURE.finditer(prose):
        number = float(match[0].replace(",", ""))
        places = len(match[0].partition(".")[2]) if "e" not in match[0] else 99
        is_short = sum(map(str.isdigit, match[0])) == 1
        if not any((one if is_short else round(one, places)) == number for one in known):
            found.append(prose[max(0, match.start() - 20) : match.end() + 20])
    return found


@pytest.mark.parametrize("name", sorted(PAGES))
def test_figures_of_a_page_are_those_of_its_tables(name):
    page = PAGES[name]
    pages = {name, *re.findall(r":doc:`(\w+)`", page)} if name != "index" else set(PAGES)
    said = TABLES.get(name, {}).get("said", [])
    prose = prose_of(page)
    assert [phrase for phrase in said if plain(phrase) not in prose] == []
    assert typed(prose, said, known_of(pages)) == []


def test_figures_of_readme_are_those_of_the_tables():
    assert first_page.filled(README) == README
    assert TABLES["readme"]["command"][0] in README
    said, prose = TABLES["readme"]["said"], prose_of_readme(README)
    assert [phrase for phrase in said if plain(phrase) not in prose] == []
    assert typed(prose, said, known_of(PAGES)) == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("takes 3.7 s", 1),
        ("takes 2 to 4 s", 2),
        ("takes 1,300 MiB", 1),
        ("is 7 times as fast", 1),
        ("gains 9 %", 1),
        ("a gap of 3.5e-13", 1),
        ("takes .25 s", 0),
        ("takes 2.4 s", 0),
        ("takes 2 s", 1),
        ("takes 25 s", 0),
        ("takes 12 s, as was said", 0),
        ("100 topics, K = 1000, figure 2, implicit 0.7.3", 0),
    ],
)
def test_a_figure_that_is_typed_by_hand_is_found(words, found):
    assert len(typed(words, ["12 s, as was said"], {0.25, 2.43, 24.8})) == found


def test_pages_have_no_tables_but_those_of_the_file():
    kinds = r"^ *(?:\.\. (?:\w+-)?table::|=+ +=|\+[-=]+\+).*$"
    assert {
        name: found
        for name, page in PAGES.items()
        if (found := re.findall(kinds, page, re.MULTILINE))
    } == {}


def test_every_table_is_whole_and_is_shown_on_its_page():
    shown = [
        (name, table)
        for name, page in PAGES.items()
        for table in re.findall(r"^\.\. figures:: (\S+)$", page, re.MULTILINE)
    ]
    with_rows = {name: table for name, table in TABLES.items() if "rows" in table}
    assert sorted(table for _, table in shown) == sorted(with_rows)
    assert all(table.startswith(f"{name}-") for name, table in shown)
    for name, table in with_rows.items():
        assert set(table) <= KEYS, name
        assert {len(row) for row in table["rows"]} == {len(table["heads"])}, name
        assert ("machine" in table) == ("date" in table), name
    assert set(TABLES) - set(with_rows) <= {*PAGES, "readme"}


def test_the_file_is_as_it_is_written(tmp_path):
    figures.write(TABLES, tmp_path / "figures.toml")
    assert (tmp_path / "figures.toml").read_text() == figures.PATH.read_text()


def test_commands_of_tables_and_pages_run_files_that_are_there():
    texts = [figures.PATH.read_text(), README, *PAGES.values()]
    found = {file for text in texts for file in re.findall(r"\b(?:bench|figures)_\w+\.py", text)}
    assert len(found) > 10
    assert {file for file in found if not (ROOT / "benchmarks" / file).exists()} == set()


def test_tables_of_benchmarks_are_written_by_them():
    sources = "".join(path.read_text() for path in (ROOT / "benchmarks").glob("*.py"))
    by_hand = {
        name
        for name, table in TABLES.items()
        if "rows" in table
        and any("python benchmarks/" in line for line in table.get("command", ()))
        and f'"{name}"' not in sources
    }
    assert by_hand == {"lda-throughput", "mf-implicit", "l1-blocks"}


def test_a_command_of_a_table_records_its_rows(tmp_path, monkeypatch):
    import common

    monkeypatch.setattr(common, "package_version", lambda: "this one")
    path = tmp_path / "figures.toml"
    before = {
        "page-one": {
            "machine": "another",
            "date": "2020-01-01",
            "command": [
                "export Y=2",
                "X=1 python benchmarks/bench_it.py --folder F --tokens 1e9 \\",
                "  --all",
            ],
            "heads": ["case", "seconds"],
            "rows": [["old", "1"]],
        }
    }
    figures.write(before, path)
    assert figures.read(path) == before
    rows = [["a", 12.864], ["b", 2622.7], ["c", 0.4], ["d", 1234]]
    for argv in ("--folder /here --tokens 1e9 --all", "--tokens 1e8 --all --record"):
        monkeypatch.setattr(sys, "argv", ["bench_it.py", *argv.split()])
        common.record("page-one", rows, path=path)
        assert figures.read(path) == before
    argv = "/home/bench_it.py --folder /here --tokens 1000000000 --all --record"
    monkeypatch.setattr(sys, "argv", argv.split())
    common.record("page-one", rows, peers=("numpy",), path=path)
    found = figures.read(path)["page-one"]
    assert found["rows"] == [["a", "12.9"], ["b", "2,623"], ["c", "0.400"], ["d", "1,234"]]
    assert found["machine"] == common.machine_name()
    assert found["peers"].startswith("numpy ")
    assert found["command"] == before["page-one"]["command"]
    common.record("page-one", [["b", "2"], ["e", "5"]], path=path)  # the others stay
    assert [row[0] for row in figures.read(path)["page-one"]["rows"]] == list("abcde")
    common.record("page-one", [["b", "3"], ["f", "6"]], is_chosen=True, path=path)  # no new ones
    assert figures.read(path)["page-one"]["rows"][1:] == [
        ["b", "3"],
        ["c", "0.400"],
        ["d", "1,234"],
        ["e", "5"],
    ]
    monkeypatch.setattr(common, "package_version", lambda: "a later one")
    common.record("page-one", [["c", "7"]], is_chosen=True, path=path)
    rows = [["a", ""], ["b", ""], ["c", "7"], ["d", ""], ["e", ""]]
    assert figures.read(path)["page-one"]["rows"] == rows
    with pytest.raises(ValueError, match="does not have the columns"):
        common.record("page-one", [["b"]], path=path)


def test_rows_are_not_recorded_of_a_command_that_no_table_shows(monkeypatch, capsys):
    import common

    words = common.shown_commands("mf-large")[0]
    for extra, found in ([], True), (["--record"], True), (["--record", "--millions", "3"], None):
        parser = argparse.ArgumentParser()
        for option in ("figure", "--folder", "--millions"):
            parser.add_argument(option)
        monkeypatch.setattr(sys, "argv", [*words[1:], *extra])
        if found:
            assert common.parse(parser).record == ("--record" in extra)
        else:
            with pytest.raises(SystemExit):
                common.parse(parser)
            assert "shows this command" in capsys.readouterr().err
