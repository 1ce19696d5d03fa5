"""How problems of tests are solved."""

import pytest
from oracles.rounds import by_rounds


@pytest.fixture(params=["at hand", "by rounds"])
def solved(request, monkeypatch):
    """Solve small problems in one call, as they are, and by the rounds of large ones."""
    if request.param == "by rounds":
        by_rounds(monkeypatch)
