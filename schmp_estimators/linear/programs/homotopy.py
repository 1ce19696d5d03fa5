"""The squared loss with all columns in one place, solved by one call of a kernel: fits, and whole paths.

If there are many more rows than columns, the kernel gets the Gram matrix of the columns.  Its
rounding errors are bounded: each product of columns is a sum over n rows, with an error of at most
γ‖x̃_j‖‖x̃_k‖ with γ = n·ε (Higham, "Accuracy and stability of numerical algorithms", section 3.1),
and so is each entry of the gradient by at most ‖x̃_j‖·δ with δ = γ(‖y‖ + Σ_k‖x̃_k‖|β_k|).  This
bound is added to the gap; if the gap is then too large, the columns are used instead.
"""

from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.linear.kernels.homotopy import (
    Columns,
    follow_path,
)
from schmp_estimators.linear.kernels.working_set import N_VECTORS, PINNED, Room
from schmp_estimators.linear.penalties.base import Penalty, has_free, sizes
from schmp_estimators.linear.programs.centred import Centred, without_free
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.solution import OF_STEP, Points, Solution

_NONE: Floats = np.empty((0, 0))
_EPS = np.finfo(float).eps
#: Part of the gap at larger penalties, which a fit solves for first, that is left.
_ON_THE_WAY = 0.1
#: Part of the largest penalty below which gradients are rounding errors, so that no penalties are
#: inserted.
_FARTHEST = 1e-14
#: Initial size of a working set, in addition to twice the number of rows; it is doubled when it is
#: full.
_ROOM = 100


class Shape(NamedTuple):
    """A penalty of strength one, with arrays over columns."""

    #: (p,) f > 0 and ρ ≥ 0
    factors: Floats
    ridges: Floats
    positive: bool

    @classmethod
    def of(cls, penalty: Penalty, n_columns: int) -> "Shape":
        """Return these arrays; factors of zero become one, because their columns have been projected out."""
        factors, ridges = np.full(n_columns, penalty.strengths), np.full(n_columns, penalty.ridges)
        factors[factors == 0.0] = 1.0
        return cls(factors, ridges, bool(penalty.positive))


class Wanted(NamedTuple):
    """The wanted solutions: falling penalties λ, each with a goal for its gap."""

    #: (2, t) λ, and the largest allowed gaps
    asked: Floats
    #: each gap is also at most this part of the previous solution's gap at the same penalty
    part_of_step: float
    #: (t,) maximum numbers of steps
    most: np.ndarray
    #: coefficients, and intercepts for centred columns, at the start
    start: Floats
    level: Any = 0.0


class ProblemAtHand:
    """A problem with all columns in one place, and a penalty of strength one that has a duality gap."""

    penalty: Penalty
    shape: Shape
    #: whether columns are known, not only their products, so that other solvers could not be more
    #: precise
    at_hand = True
    #: ratio of two of the penalties that a fit solves for on its way
    stride = 0.3
    #: (p,) of columns
    means: Floats
    #: sum of the weights of all samples
    total: float
    #: columns that are left out because they vary by less than rounding
    dropped: Indices = np.empty(0, np.int64)

    def square(self, target: int) -> float:
        """Return the number to which tolerances of gaps are relative."""
        raise NotImplementedError

    def null_objective(self, target: int) -> float:
        """Return the objective without coefficients."""
        return self.square(target)

    def largest(self, target: int) -> float:
        """Return the smallest λ for which all penalised coefficients are zero."""
        raise NotImplementedError

    def objective(self, target: int, penalty: float, coef: Floats, level: Any) -> float:
        """Return the objective at some coefficients and the intercept of columns less their means."""
        raise NotImplementedError

    def follow(self, target: int, wanted: Wanted) -> Points:
        """Return the wanted solutions."""
        raise NotImplementedError

    def fit(
        self,
        target: int,
        penalty: float,
        goal: float,
        max_iter: int,
        start: Floats,
        level: Any = 0.0,
    ) -> Points:
        """Return the solution for one λ; if the start is zero, solve for larger penalties first."""
        largest, null, ratio, count = self.largest(target), self.null_objective(target), 1.0, 0
        with np.errstate(over="ignore", invalid="ignore"):
            if start.any() and not self.objective(target, penalty, start, level) <= null:
                start, level = np.zeros(start.shape), 0.0  # it would only leave its rounding behind
        if not start.any() and largest > penalty:
            ratio = max(penalty / largest, _FARTHEST)
            count = min(max_iter - 1, int(np.log(ratio) / np.log(self.stride)))
        asked, most = np.full((2, count + 1), _ON_THE_WAY * null), np.ones(count + 1, np.int64)
        asked[0, :-1] = largest * ratio ** (np.arange(1, count + 1) / (count + 1))
        asked[:, -1], most[-1] = (penalty, goal), max_iter - count
        found = self.follow(
            target, Wanted(asked, _ON_THE_WAY if count else np.inf, most, start, level)
        )
        found.steps[-1], found.work[-1] = found.steps.sum(), found.work.sum()
        return Points(*(field[-1:] for field in found))

    def path(self, target: int, penalties: Floats, goal: float, max_iter: int) -> Points:
        """Solve for falling λ."""
        count, start = len(penalties), np.zeros(len(self.means))
        most = np.full(count, max_iter, np.int64)
        asked = np.stack([penalties, np.full(count, goal)])
        return self.follow(target, Wanted(asked, OF_STEP, most, start))

    def intercepts(self, points: Points) -> Floats:
        """Return the intercepts for columns that are not centred."""
        found: Floats = points.levels - points.coefs @ self.means
        return found

    def rounded(self, target: int, points: Points, tolerance: float, dtype: type) -> Solution:
        """Return the single point, with coefficients rounded to a dtype, and the gap of the rounded coefficients."""
        [exact], [level], [intercept] = points.coefs, points.levels, self.intercepts(points)
        gap, objective = float(points.gaps[0]), float(points.objectives[0])
        coef, certified = exact.astype(dtype).astype(np.float64), gap
        if (coef != exact).any():
            lowest, intercept = objective - gap, level - coef @ self.means
            objective = self.objective(target, float(points.penalties[0]), coef, level)
            certified = max(0.0, objective - lowest)
        end = (
            objective,
            gap,
            tolerance,
            self.total,
            self.null_objective(target),
            int(points.steps[0]),
            certified,
        )
        return Solution(coef, intercept, *end, not gap <= tolerance)


class HomotopyProblem(ProblemAtHand):
    """The squared loss with all columns in one place.

    Parameters
    ----------
    data : Centred
    penalty : Penalty
        That of strength one; it has a duality gap.
    eps : float
        Relative distance of neighbouring numbers in X.
    """

    stride = 0.5

    def __init__(self, data: Centred, penalty: Penalty, eps: float) -> None:
        self.whole, self.free, self.penalty = data, None, penalty
        if has_free(penalty):
            data, self.free = without_free(data, penalty.strengths == 0.0, eps)
        self.data, self.shape = data, Shape.of(penalty, len(data.means))
        self.means, self.total = data.means, data.total
        self.at_hand = data.columns.shape[1] > 0

    def square(self, target: int) -> float:
        """Return Σ s y² of the centred response."""
        return float(self.whole.squares[target])

    def null_objective(self, target: int) -> float:
        """Return half of `square`."""
        return 0.5 * self.square(target)

    def largest(self, target: int) -> float:
        """Return the smallest λ for which all penalised coefficients are zero."""
        slopes = sizes(self.penalty, self.data.aims[target])
        return max(0.0, float((slopes / self.shape.factors).max()))

    def objective(self, target: int, penalty: float, coef: Floats, level: float) -> float:
        """Return the objective at some coefficients and the best intercept."""
        data = self.whole
        if self.at_hand:
            residual = data.targets[target] - coef @ data.columns
            square = float(residual @ residual)
        else:
            square = self.square(target) - float(
                coef @ (2.0 * data.aims[target] - data.products @ coef)
            )
        return 0.5 * square + penalty * self.penalty.value(coef)

    def follow(self, target: int, wanted: Wanted) -> Points:
        """Return the wanted solutions; intercepts follow from coefficients."""
        products = self.data.products
        points = self._run(target, products, wanted)
        if len(products):
            points = points._replace(gaps=points.gaps + self._hidden(target, points))
            if self.at_hand and (points.gaps > wanted.asked[1]).any():
                points = self._run(target, _NONE, wanted)
        if self.free is not None:
            coefs = points.coefs.copy()
            coefs[:, self.free.chosen] = self.free.coefficients(points.coefs, target)
            points = points._replace(coefs=coefs)
        return points

    def _run(self, target: int, products: Floats, wanted: Wanted) -> Points:
        data, count, n_columns = self.data, len(wanted.most), len(self.data.means)
        own, room = data.targets[target], first_room(n_columns, data.n_rows, wanted.start)
        energy = self.square(target) if self.free is None else float(own @ own)
        columns = Columns(
            products, data.columns, own, np.empty_like(own), data.aims[target], *self.shape
        )
        while True:
            coefs, records = np.zeros((count, n_columns)), np.zeros((count, 5))
            asked = energy, *wanted[:4], coefs, records
            if follow_path(columns, make_room(room, n_columns), *asked) == count:
                break
            room = min(n_columns, 2 * room)
        fields = np.full(count, data.levels[target]), *np.ascontiguousarray(records.T)
        return Points(wanted.asked[0], coefs, *fields)

    def _hidden(self, target: int, points: Points) -> Floats:
        """Return a bound on the error of the gaps from rounding of the Gram matrix.

        With η = max_j ‖x̃_j‖δ/(λf_j) a dual point has to be smaller by 1 + η, and terms of the gap
        are at most 1, 2 and η times the objective.
        """
        n_rows, n_columns = self.data.n_rows, len(self.data.means)
        spread = np.abs(points.coefs) @ self.data.lengths
        delta = (n_rows + n_columns) * _EPS * (np.sqrt(self.square(target)) + spread)
        with np.errstate(over="ignore"):
            eta = delta * (self.data.lengths / self.shape.factors).max() / points.penalties
            return (3.0 + eta) * eta * points.objectives + delta * spread


def first_room(n_columns: int, n_rows: int, start: Floats) -> int:
    """Return the initial size of a working set."""
    return min(n_columns, 2 * n_rows + _ROOM + int(np.count_nonzero(start)))


def make_room(size: int, n_columns: int) -> Room:
    """Return arrays for a working set."""
    most = size // PINNED + 1
    matrices, numbers = np.empty((2, size, size)), np.empty((2, size), np.int64)
    held = np.empty((most, size)), np.empty((most, most)), np.empty(most, np.int64)
    places, vectors, gradient = (
        np.empty(n_columns, np.int64),
        np.empty((N_VECTORS, size)),
        np.empty(n_columns),
    )
    return Room._make([*matrices, *held, *numbers, places, vectors, gradient])
