"""Results of many settings are what they were.

To the bit on the machine that made the table, else to tolerance.

A change that alters results on purpose writes the table anew (``python tests/golden/make.py``) and
says so.
"""

import json
from contextlib import nullcontext

import pytest
from golden.make import AREAS, EVERY_CHANGE, SLOW, run
from golden.record import TABLE, assert_as_remembered, machine

GOLDEN = json.loads(TABLE.read_text())


def test_the_table_has_all_cases_and_no_others():
    assert {name for cases in AREAS.values() for name in cases} >= EVERY_CHANGE
    assert set(GOLDEN["cases"]) == {
        f"{area}: {name}" for area, cases in AREAS.items() for name in cases
    }


def marks(name, place):
    on_cluster = [pytest.mark.cluster] if place in ("cluster", "dask") else []
    is_fast = name not in SLOW and (place == "here" or name in EVERY_CHANGE)
    return on_cluster if is_fast else [*on_cluster, pytest.mark.slow]


@pytest.mark.parametrize(
    ("area", "name", "place"),
    [
        pytest.param(area, name, place, marks=marks(name, place))
        for area, cases in AREAS.items()
        for name, (_, places) in cases.items()
        for place in places
    ],
)
def test_same_result(request, area, name, place):
    on_cluster = place in ("cluster", "dask")
    with request.getfixturevalue("client").as_current() if on_cluster else nullcontext():
        found = run(area, name, place)
    assert_as_remembered(found, GOLDEN["cases"][f"{area}: {name}"], machine() == GOLDEN["machine"])


def test_another_machine_is_compared_to_tolerance():
    """The comparison that is not made here can fail, too."""
    expected = GOLDEN["cases"]["l1: lasso, tall"]
    found = run("l1", "lasso, tall")
    assert_as_remembered(found, expected, same_machine=False)
    with pytest.raises(AssertionError, match="objective"):
        assert_as_remembered(
            found._replace(figures=found.figures | {"objective": 2.0}), expected, same_machine=False
        )
    with pytest.raises(AssertionError):
        assert_as_remembered(found._replace(digest="0"), expected, same_machine=True)
