"""When `tol` ends a fit of `ModelParallelMF`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from schmp_estimators.core.following import has_settled


def has_stopped_falling(tol: float, records: Sequence[dict[str, Any]]) -> bool:
    """Return whether the objective, or where it is not known the loss on the way, has settled."""
    if "objective" in records[-1]:
        return has_settled("objective", tol, records)
    errors = [running(record) for record in records[-2:]]
    return len(errors) == 2 and bool(errors[0] - errors[1] < tol * errors[0])


def running(record: dict[str, Any]) -> float:
    """Return the mean squared error, or other loss, on the way."""
    loss: float = record["running_loss"] if "running_loss" in record else record["running_rmse"] ** 2
    return loss


def improvements(errors: list[float], tol: float) -> list[float]:
    """Return the errors, but each that does not fall by `tol` below the best before it as that best."""
    best, levels = np.inf, []
    for error in errors:
        best = error if error < best * (1 - tol) else best
        levels.append(best)
    return levels
