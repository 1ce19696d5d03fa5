"""Draw the pictures of the stories: the last figure that the code of each page makes.

python docs/stories.py [page ...]
"""

import os
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

import gallery_style  # noqa: E402
import pages  # noqa: E402

STORIES = [path.stem for path in sorted((HERE / "stories").glob("*.rst")) if path.stem != "index"]


def draw(page):
    """Run the code of a page, print what it prints, and write its last figure."""
    gallery_style.apply(None, None)
    mpl.rcParams["svg.hashsalt"] = page
    for printed, shown in pages.tell(f"stories/{page}", {}):
        if printed:
            print(printed + ("" if pages.is_told(printed, shown, 0.0) else "!! the page differs\n"))
    path = HERE / "_static" / f"story_{page}.svg"
    plt.gcf().savefig(path, metadata={"Date": None})
    plt.close("all")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in sys.argv[1:] or STORIES:
            draw(name)
