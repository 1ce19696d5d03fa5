"""Write the table of golden results anew: ``python tests/golden/make.py``.

Which results change, and why, belongs into the changelog: the command prints their names.
"""

import json
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import dask
from golden import l1, lda, mf
from golden.record import TABLE, machine

AREAS = {"lda": lda.CASES, "mf": mf.CASES, "l1": l1.CASES}
EVERY_CHANGE = lda.EVERY_CHANGE | mf.EVERY_CHANGE | l1.EVERY_CHANGE
SLOW = lda.SLOW | l1.SLOW


def run(area, name, place="here"):
    """Return the result of a case at a place; a cluster has to be active where one is meant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short fits do not converge
        return AREAS[area][name][0](place)


def main():
    """Fit all cases in this process and write what they gave."""
    before = json.loads(TABLE.read_text()) if TABLE.exists() else {"machine": {}, "cases": {}}
    found = {}
    for area, cases in AREAS.items():
        for name in cases:
            started = time.perf_counter()
            with dask.config.set({"schmp-estimators.runtime": "local"}):
                digest, figures = run(area, name)
            key = f"{area}: {name}"
            found[key] = {
                "digest": digest,
                "figures": {k: float(f"{v:.9g}") for k, v in figures.items()},
            }
            if "-v" in sys.argv:
                print(f"{time.perf_counter() - started:6.2f} s  {key}  {figures}")
    changed = [
        key for key in found if found[key]["digest"] != before["cases"].get(key, {}).get("digest")
    ]
    TABLE.write_text(json.dumps({"machine": machine(), "cases": found}, indent=1) + "\n")
    print(f"{len(found)} results written, {len(changed)} new or changed", *changed, sep="\n  ")


if __name__ == "__main__":
    main()
