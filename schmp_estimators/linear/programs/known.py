"""What the gradients at two earlier points tell of the one here, where candidates have their Gram matrix.

Along a path of penalties the residual moves on a line from one change of the support to the next.  So where it is near
the line through two residuals whose gradients are known on all columns, the gradient here is near the same point of the
line through theirs: no farther than ‖x̃_j‖·‖d‖ in column j, d being what is left of the residual (Cauchy and Schwarz),
and ‖d‖ follows from the coefficients and the Gram matrix of candidates.  Columns whose bound stays below their penalty
need not be looked at.
"""

from typing import NamedTuple

import numpy as np

from schmp_estimators.core.values import freeze
from schmp_estimators.linear.kernels.gram import gram_combine
from schmp_estimators.linear.programs.matrix import Floats
from schmp_estimators.linear.programs.model import Candidates, Model

#: Relative error of gradients and norms, which are sums over rows, far above what it can be.
_ROUNDING = 1e-9


class Near(NamedTuple):
    """A gradient that is known but for an error, at most `error` times the norm of the column."""

    gradient: Floats
    error: float


class Known:
    """Two earlier points of a fit, the last one first, and their gradients on all columns."""

    def __init__(self) -> None:
        self._points: list[tuple[Floats, Floats]] = []

    def keep(self, coef: Floats, gradient: Floats) -> None:
        """Keep a point with its gradient on all columns instead of the older one."""
        self._points = [(coef.copy(), gradient), *self._points[:1]]

    def near(self, model: Model) -> Near | None:
        """Return what is known of the gradient at the point of a model, None if nothing is."""
        candidates = model.candidates
        if not self._points or not all(_are_all(candidates, coef) for coef in self._coefs(model)):
            return None
        size = len(candidates)
        gram = freeze(candidates.gram[:size, :size])
        (last, gradient), *others = self._points
        distance = (model.coef - last)[candidates.columns]
        image = _image(gram, distance)
        length = np.abs(distance)
        for coef, earlier in others:
            along = (coef - last)[candidates.columns]
            image_along = _image(gram, along)
            curvature = float(along @ image_along)
            if curvature <= 0.0:
                continue
            part = float(along @ image) / curvature
            distance, image = distance - part * along, image - part * image_along
            length += np.abs(part * along)
            gradient = gradient + part * (earlier - gradient)
        # products of columns are sums over the rows, and these are sums of them
        rounding = 4.0 * (size + model.n_rows) * np.finfo(np.float64).eps
        reach = float(length @ np.sqrt(np.diagonal(gram)))
        square = max(0.0, float(distance @ image)) + rounding * reach**2
        return Near(gradient, float(np.sqrt(square)) + _ROUNDING * float(np.sqrt(model.energy)))

    def _coefs(self, model: Model) -> list[Floats]:
        return [model.coef, *(coef for coef, _ in self._points)]


def _are_all(candidates: Candidates, coef: Floats) -> bool:
    return bool(np.count_nonzero(coef[candidates.columns]) == np.count_nonzero(coef))


def _image(gram: np.ndarray, change: Floats) -> Floats:
    out = np.zeros(len(change))
    moved = np.flatnonzero(change)
    gram_combine(gram, freeze(moved), freeze(change[moved]), out)
    return out
