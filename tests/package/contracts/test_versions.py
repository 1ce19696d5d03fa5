"""Pages of several versions beside each other: the list of them, and the page that leads to the newest release."""

import json
import runpy
from pathlib import Path

import pytest

write_versions = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "versions.py"))["write_versions"]


def site(folder, *names):
    for name in names:
        (folder / name).mkdir()
        (folder / name / "index.html").touch()
    (folder / "not a version").mkdir()
    return folder


def test_the_newest_release_comes_first_and_is_where_readers_are_sent(tmp_path):
    write_versions(site(tmp_path, "dev", "0.9.1", "0.10.0", "0.9"), "https://example.org/pages/")
    entries = json.loads((tmp_path / "versions.json").read_text())
    assert [entry["version"] for entry in entries] == ["0.10.0", "0.9.1", "0.9", "dev"]
    assert [entry["name"] for entry in entries] == ["0.10.0 (stable)", "0.9.1", "0.9", "dev"]
    assert [entry["preferred"] for entry in entries] == [True, False, False, False]
    assert entries[-1]["url"] == "https://example.org/pages/dev/"
    assert 'url=https://example.org/pages/0.10.0/"' in (tmp_path / "index.html").read_text()


def test_before_the_first_release_there_is_the_one_to_come(tmp_path):
    (entry,) = write_versions(site(tmp_path, "dev"), "http://localhost:8000")
    assert entry == {"name": "dev", "version": "dev", "url": "http://localhost:8000/dev/", "preferred": True}


def test_no_pages_no_list(tmp_path):
    with pytest.raises(SystemExit, match=r"no pages of any version: run \.ci/site"):
        write_versions(site(tmp_path), "http://localhost:8000")
    assert not (tmp_path / "versions.json").exists()
