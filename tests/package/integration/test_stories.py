"""Each story runs, prints what its page says, and ends with a decision and a picture."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from pages import ROOT, is_told, tell

PAGES = sorted(path.stem for path in (ROOT / "docs/stories").glob("*.rst") if path.stem != "index")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_story(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    told = tell(f"stories/{page}", {})
    assert len(told) > 5
    for printed, shown in told:
        assert is_told(printed, shown, tolerance=0.05), f"{printed}\n\nbut the page says\n\n{shown}"
    assert plt.get_fignums()
    plt.close("all")


def test_stories_end_alike():
    assert PAGES == ["parquet", "posts", "shop", "study"]
    for page in PAGES:
        text = (ROOT / "docs/stories" / f"{page}.rst").read_text()
        assert f"../_static/story_{page}.svg" in text
        assert (ROOT / "docs/_static" / f"story_{page}.svg").exists()
        assert "What was thrown away\n" in text
        assert "decision\n----" in text or "decide\n----" in text
