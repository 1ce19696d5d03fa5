"""Solutions of the Lasso for falling penalties, each from the one before."""

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval

from schmp_estimators.linear import opening as shared
from schmp_estimators.linear.cross_validated import CV_CONSTRAINTS, positive_values
from schmp_estimators.linear.penalties.base import sizes
from schmp_estimators.linear.penalties.l1 import L1
from schmp_estimators.linear.programs.input import prefer_residual
from schmp_estimators.linear.programs.lasso import ResolveLasso
from schmp_estimators.linear.programs.model import Model

#: A penalty above which every solution is zero.
_ABOVE_ALL = 1e100
#: A point of a path counts when its gap is at most this part of the gap that the point before has at its penalty: the
#: tolerance alone may be met by the point before, whose coefficients would then stand for several penalties.
_OF_STEP = 0.01
#: Part of the objective at zero below which gaps are rounding, and steps after which such a goal is given up.
_ROUNDING, _MOST_STEPS = 1e-12, 20

#: Constraints of the parameters of paths and of their cross-validation.
PATH_CONSTRAINTS: dict[str, list[Any]] = {
    "eps": [Interval(Real, 0, 1, closed="neither")],
    "alphas": [Interval(Integral, 1, None, closed="left"), "array-like"],
    "positive": ["boolean"],
    **CV_CONSTRAINTS,
}


def weighted_path(
    X: Any, y: np.ndarray, weights: np.ndarray, alphas: Any, n_alphas: int, eps: float, **options: Any
) -> Iterator[tuple[float, Model]]:
    """Yield alpha and the model at its solution, from the largest alpha; candidates and their Gram matrix are shared.

    With `alphas` None they are spaced geometrically down from the smallest alpha whose solution is zero.
    """
    rows = shared.rows_here(X, y, weights)
    positive = options.pop("positive")
    model = Model(L1(_ABOVE_ALL, positive), n_partitions=rows.n_partitions, n_rows=len(y), per_weight=True, **options)
    program = ResolveLasso(model, prefer_residual(rows.extent))
    with rows.rounds:
        shared.solve(program, rows)
        assert model.full_gradient is not None
        largest = float(sizes(model.penalty, model.full_gradient).max()) / model.total_weight
        if alphas is None:
            alphas = geometric(largest, n_alphas, eps)
        before = largest * model.total_weight
        for alpha in alphas:
            penalty = float(alpha) * model.total_weight
            _go_on_to(penalty, before, program, rows)
            before = min(before, penalty)
            yield float(alpha), model


def _go_on_to(penalty: float, before: float, program: ResolveLasso, rows: shared.Problem) -> None:
    """Solve for a penalty, closer than to the tolerance if the solution at the penalty `before` meets that as it is.

    The solution at λ' has the residual λ'θ with a dual point θ that stays feasible, so that its gap at λ < λ' is
    ½(1 − λ/λ')²‖r‖².
    """
    model = program.model
    tolerance, max_iter = model.tolerance, model.max_iter
    step = 0.5 * max(0.0, 1.0 - penalty / before) ** 2 * model.energy if before > 0.0 else 0.0
    if step > 0.0:
        goal = max(_OF_STEP * step, _ROUNDING * model.null_objective)
        model.tolerance, model.max_iter = min(tolerance, goal), min(max_iter, _MOST_STEPS)
    shared.go_on(program, rows, L1(penalty, program.model.penalty.positive))
    model.tolerance, model.max_iter = tolerance, max_iter
    if not model.gap <= tolerance and step > 0.0 and max_iter > _MOST_STEPS:
        shared.go_on(program, rows, L1(penalty, program.model.penalty.positive))


def geometric(largest: float, count: int, ratio: float) -> np.ndarray:
    """Return `count` values spaced geometrically from `largest` down to ratio·largest."""
    largest = max(largest, float(np.finfo(float).resolution))
    return np.geomspace(largest, ratio * largest, count) if count > 1 else np.array([largest])


def solution(model: Model) -> tuple[np.ndarray, float]:
    """Return the coefficients and the intercept of a point."""
    return model.coef.copy(), model.intercept


def falling(alphas: Any) -> tuple[np.ndarray | None, int]:
    """Return given alphas, falling, or None and their number."""
    values = positive_values("alphas", alphas)
    return (None, int(alphas)) if values is None else (values[::-1], len(values))
