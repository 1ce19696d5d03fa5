"""When `tol` ends a fit of `ModelParallelMF`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from schmp_estimators.core.following import has_settled


def has_stopped_falling(tol: float, records: Sequence[dict[str, Any]]) -> bool:
    """Return whether the objective, or where it is not known the squared error on the way, has settled."""
    if "objective" in records[-1]:
        return has_settled("objective", tol, records)
    errors = [record["running_rmse"] for record in records[-2:]]
    return len(errors) == 2 and bool(errors[0] ** 2 - errors[1] ** 2 < tol * errors[0] ** 2)


def improvements(errors: list[float], tol: float) -> list[float]:
    """Return the errors, but each that does not fall by `tol` below the best before it as that best."""
    best, levels = np.inf, []
    for error in errors:
        best = error if error < best * (1 - tol) else best
        levels.append(best)
    return levels
