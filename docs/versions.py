"""What lies beside the pages of several versions: the list that the switcher offers, and the way to the first of them.

``.ci/site FOLDER VERSION URL`` makes the pages of one version and calls this.
"""

import html
import json
import re
import sys
from pathlib import Path


def number(name):
    """Return the numbers of a release, such as [0, 10, 1]; what is none, such as ``dev``, has none."""
    return [int(part) for part in name.split(".")] if re.fullmatch(r"\d+(\.\d+)*", name) else []


def write_versions(site, url):
    """Write ``versions.json`` and ``index.html`` for the versions in folder `site`, which will be read at `url`.

    The newest release is the preferred one, and without a release what there is.
    """
    site = Path(site)
    names = sorted((page.parent.name for page in site.glob("*/index.html")), key=number, reverse=True)
    if not names:
        raise SystemExit(f"{site} has no pages of any version: run .ci/site")
    root = url.rstrip("/")
    entries = [
        {
            "name": f"{name} (stable)" if number(name) and name == names[0] else name,
            "version": name,
            "url": f"{root}/{name}/",
            "preferred": name == names[0],
        }
        for name in names
    ]
    (site / "versions.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    target = html.escape(f"{root}/{names[0]}/", quote=True)
    (site / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>schmp_estimators</title>'
        f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">Documentation</a>\n',
        encoding="utf-8",
    )
    return entries


if __name__ == "__main__":
    write_versions(*sys.argv[1:])
