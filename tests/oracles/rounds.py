"""Small problems that are solved as large ones are."""

import dask

from schmp_estimators.linear.programs.choose import BY_ROUNDS


def by_rounds(monkeypatch, *, value=True):
    """Let fits, paths and folds go by rounds until the end of a test."""
    settings, name = BY_ROUNDS.split(".")
    monkeypatch.setitem(dask.config.config.setdefault(settings, {}), name, value)
