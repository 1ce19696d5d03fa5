"""How problems of tests are solved."""

import pytest

from schmp_estimators.linear.programs import choose


@pytest.fixture(params=["at hand", "by rounds"])
def solved(request, monkeypatch):
    """Solve small problems in one call, as they are, and by the rounds of large ones."""
    if request.param == "by rounds":
        monkeypatch.setattr(choose, "_MOST_AT_HAND", 0)
        monkeypatch.setattr(choose, "_ROWS", 1 << 30)
