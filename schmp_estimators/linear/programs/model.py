"""The state of an L1-penalised fit at its coordinator, and the choice of columns that all programs share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isclose
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.linear.penalties.base import Penalty, PerColumn, fields_of, sizes, take
from schmp_estimators.linear.programs.gram import GramProblem
from schmp_estimators.linear.programs.jobs import SMALLEST_NORM
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.residual import Pace

NO_COLUMNS: Indices = np.empty(0, np.int64)
NO_CHANGE: Floats = np.empty(0)

#: Part of the objective, at this point or at zero, by which a gap may be negative, because its sums are rounded.
_ROUNDING = 1e-11
#: Number of steps that change the objective only by rounding, and this change relative to the objective, after which
#: the fit ends.
STALLED, LAST_BITS = 10, 1e-14
_FEW = 0.1  # violators per column of the support, below which a working set is nearly complete
_NEAR = 0.85  # part of the penalty above which a gradient nearly violates
#: A column is likely if its gradient exceeds this part of the penalty, at first and in later steps; part of all columns
#: above which likely columns are too many to be useful.
_LIKELY, _FEW_LIKELY = (0.6, 0.7, 0.8), 0.35


@dataclass
class Candidates:
    """The columns whose Gram matrix is known, in the order in which they joined."""

    #: (k,) column numbers, and the numbers of columns that joined together
    columns: Indices = field(default_factory=lambda: NO_COLUMNS)
    groups: list[Indices] = field(default_factory=list)
    #: (capacity, capacity); the leading (k, k) part is in use
    gram: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))

    def __len__(self) -> int:
        return len(self.columns)

    def extend(self, new: Indices, rows: np.ndarray) -> None:
        """Add `new` columns; `rows` (k_old + k_new, k_new) has their products with all candidates."""
        old, total = len(self), len(self) + len(new)
        if total > len(self.gram):
            grown = np.zeros((max(2 * total, 512),) * 2)
            grown[:old, :old] = self.gram[:old, :old]
            self.gram = grown
        self.gram[:total, old:total] = rows
        self.gram[old:total, :old] = rows[:old].T
        self.columns = np.concatenate([self.columns, new])
        self.groups.append(new)

    def problem(self, gradient: Floats, model: "Model", energy: float) -> GramProblem:
        """Return the problem on the candidates, at the point of the model."""
        used = self.gram[: len(self), : len(self)]
        coef = model.coef[self.columns]
        order = np.argsort(self.columns, kind="stable")
        return GramProblem(used, gradient, coef, energy, take(model.penalty, self.columns), order)


#: Fields of a saved state.
STATE = (
    "tolerance", "level", "total_weight", "null_objective", "objective", "energy", "touched", "balance", "damping",
    "gap", "best_dual", "scope_dual", "scope_goal", "n_iter", "stalled", "doubts", "scope_steps", "step_backs",
    "steepness", "fell_short", "coef", "means", "norms", "shifts", "dropped", "scope", "seconds",
)  # fmt: skip


@dataclass
class Model:
    """The point of a fit, its duality gap, and properties of the columns."""

    penalty: Penalty
    tolerance: float
    max_iter: int
    fit_intercept: bool = True
    n_partitions: int = 1
    #: whether there is a duality gap; otherwise `gap` is an estimate, see `penalties.base.merit`
    certified: bool = True
    #: (p,) coefficients at the start, or None for zeros
    coef: Floats = field(default_factory=lambda: NO_CHANGE)
    n_rows: int = 0
    #: stored values of X for each column, on average
    per_column: float = 0.0
    #: dtype of the returned coefficients; the last gap is computed after rounding to it
    dtype: type = np.float64
    #: Σ s over all rows
    total_weight: float = 0.0
    #: weighted mean of the response (squared loss), or the intercept (other losses), for columns minus `shifts`
    level: float = 0.0
    #: (p,) weighted column means, zeros without an intercept
    means: Floats = field(default_factory=lambda: NO_CHANGE)
    #: (p,) Σ s (x_j − x̄_j)²
    norms: Floats = field(default_factory=lambda: NO_CHANGE)
    #: (p,) numbers that were subtracted from the columns of X at the start, see `offsets`; (0,) if there are none
    shifts: Floats = field(default_factory=lambda: NO_CHANGE)
    #: columns that vary by less than rounding, and those of them that are not constant
    constant: Indices = field(default_factory=lambda: NO_COLUMNS)
    dropped: Indices = field(default_factory=lambda: NO_COLUMNS)
    #: nonzero columns whose squares underflow; their coefficients remain zero
    small: Indices = field(default_factory=lambda: NO_COLUMNS)
    #: relative distance of neighbouring numbers in X
    eps: float = float(np.finfo(np.float64).eps)
    #: objective at zero coefficients
    null_objective: float = 0.0
    #: scope: columns that are not skipped, ascending; None for all.  A solution on a scope must be verified on all
    #: columns
    scope: Indices | None = None
    #: best dual value on a scope, which is a bound only for the problem on that scope
    scope_dual: float = -np.inf
    #: number of steps on a scope
    scope_steps: int = 0
    #: gap on a scope at which all columns are used again
    scope_goal: float = 0.0
    best_dual: float = -np.inf
    #: number of consecutive steps in which nothing changed
    stalled: int = 0
    #: how often the residual was computed from scratch because a bound contradicted it
    doubts: int = 0
    #: how often no step lowered the objective (losses other than the squared loss)
    step_backs: int = 0
    #: smallest curvature of a row, relative to the largest
    damping: float = 0.0
    #: upper bound on the curvature of a row of weight 1, or its mean if there is no bound
    steepness: float = 1.0
    #: Σ s y p at the best intercept (logistic), zero up to rounding
    balance: float = 0.0
    #: whether the fit has ended with a gap above the tolerance
    fell_short: bool = False
    gap: float = np.inf
    objective: float = np.inf
    n_iter: int = 0
    #: gradient over all columns at the present point, if it is known
    full_gradient: Floats | None = None
    energy: float = 0.0
    candidates: Candidates = field(default_factory=Candidates)
    pace: Pace = field(default_factory=Pace)
    history: list[dict[str, float]] = field(default_factory=list)
    started: float = field(default_factory=perf_counter)
    #: seconds from `started` to the last gap
    seconds: float = 0.0
    #: entries operated upon so far: columns × rows of gradients, updates and products, and those of Gram matrices
    touched: float = 0.0

    def set_moments(self, total: float, sums: Floats, squares: Floats, products: Floats | float = 0.0) -> None:
        """Set weighted means and norms; columns that are `constant` or `small` get the norm zero.

        `products` are products with any vector: a column is nonzero if one of its sums is.
        """
        self.total_weight = total
        if self.fit_intercept:
            self.means = sums / total
            self.norms = np.maximum(squares - sums * self.means, 0.0)
            self.norms[self.constant] = 0.0
        else:
            self.means, self.norms = np.zeros_like(sums), squares
        present = (sums != 0.0) | (squares != 0.0) | (products != 0.0)
        present[self.constant] = False
        self.small = np.flatnonzero(present & (self.norms < SMALLEST_NORM))
        self.norms[self.small] = 0.0
        if not len(self.coef):
            self.coef = np.zeros_like(sums)

    @property
    def provisional(self) -> bool:
        """Whether the gap is that of the problem on a scope."""
        return self.scope is not None

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""
        return len(self.norms)

    def scope_columns(self) -> Indices:
        """Return the columns in the scope."""
        return np.arange(self.n_columns) if self.scope is None else self.scope

    def scope_penalty(self) -> Penalty:
        """Return the penalty of the columns in the scope."""
        return self.penalty if self.scope is None else take(self.penalty, self.scope)

    def take(self, raw: Floats, balance: float) -> Floats:
        """Return the gradient over the columns in the scope, given products of columns that are not centred."""
        columns = self.scope_columns()
        gradient = raw - balance * self.means[columns]
        gradient[self.norms[columns] == 0.0] = 0.0
        self.full_gradient = gradient if self.scope is None else None
        self.touched += len(columns) * float(self.n_rows)
        return gradient

    def stay(self) -> NDArray[np.bool_]:
        """Return which columns in the scope are in the support or have no penalty."""
        return (self.coef[self.scope_columns()] != 0.0) | (self.scope_penalty().strengths == 0.0)

    def certify(self, objective: float, gap: float) -> None:
        """Record the objective and the gap at the present point, with the best dual value so far.

        On a scope, `gap` is that of the problem on the scope; the record only has bounds on the whole problem.
        """
        before = self.objective, self.gap
        self.objective = objective
        if not self.certified:  # earlier estimates are not bounds
            self.best_dual = self.scope_dual = -np.inf
        if self.provisional:
            self.scope_dual = max(self.scope_dual, objective - gap)
            self.gap = objective - self.scope_dual
        else:
            self.best_dual = max(self.best_dual, objective - gap)
            self.gap = objective - self.best_dual
        finest = LAST_BITS * objective
        is_alike = isclose(objective, before[0], rel_tol=0.0, abs_tol=finest) and isclose(
            self.gap, before[1], rel_tol=0.0, abs_tol=finest
        )
        self.stalled = self.stalled + 1 if is_alike else 0
        self.seconds = perf_counter() - self.started
        self.history.append(
            {
                "iterations": self.n_iter,
                "seconds": self.seconds,
                "objective": objective / self.total_weight,
                "dual_gap": self.certified_gap / self.total_weight,
                "support": int(np.count_nonzero(self.coef)),
                "scope": self.n_columns if self.scope is None else len(self.scope),
                "samples": int(self.touched),
            }
        )

    @property
    def certified_gap(self) -> float:
        """Gap of the whole problem: `gap`, unless this is that of a scope."""
        return self.objective - self.best_dual

    @property
    def shifted_intercept(self) -> float:
        """Intercept b, for columns less `shifts`."""
        return self.level - float(self.means @ self.coef)

    @property
    def intercept(self) -> float:
        """Intercept b, for the columns as they are."""
        return self.shifted_intercept - (float(self.shifts @ self.coef) if len(self.shifts) else 0.0)

    @property
    def rounding(self) -> float:
        """Size of a negative gap that rounding explains."""
        return _ROUNDING * max(self.objective, self.null_objective)

    @property
    def converged(self) -> bool:
        """Whether the gap is small enough; a clearly negative gap means that the point must be computed again."""
        return -self.rounding <= self.gap <= self.tolerance

    @property
    def exhausted(self) -> bool:
        """Whether no further step is possible."""
        return self.n_iter >= self.max_iter or self.stalled >= STALLED

    def follow(self, other: "Model") -> None:
        """Start from the point of another model of the same partitions."""
        self.candidates, self.shifts = other.candidates, other.shifts
        self.constant, self.dropped = other.constant, other.dropped
        if len(self.shifts) and len(self.coef):
            self.level += float(self.shifts @ self.coef)

    def begin_again(self) -> None:
        """Reset the counters of an earlier penalty."""
        self.best_dual, self.n_iter, self.stalled, self.doubts = -np.inf, 0, 0, 0
        self.fell_short = False
        self.scope = None

    def doubt(self) -> bool:
        """Return whether a negative gap requires that the point is computed again; if so, forget the bound."""
        if self.gap >= -self.rounding or self.doubts >= 2:
            return False
        self.doubts += 1
        self.best_dual = -np.inf
        self.scope = None
        return True

    def finish(self) -> bool:
        """End the fit; returns whether the gap of the rounded coefficients must still be computed."""
        self.fell_short = not self.converged
        returned = self.coef.astype(self.dtype).astype(np.float64)
        if np.array_equal(returned, self.coef):
            return False
        self.coef = returned
        self.scope = None
        return True

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs, without copies, after a gap; the Gram matrix of candidates is computed again."""
        state = {name: getattr(self, name) for name in STATE}
        return {**state, "penalty": fields_of(self.penalty), "pace": dict(vars(self.pace))}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a state."""
        for name in STATE:
            setattr(self, name, state[name])
        self.coef = self.coef.copy()  # because it is changed in place
        self.penalty = type(self.penalty)(*state["penalty"])
        vars(self.pace).update(state["pace"])
        self.started = perf_counter() - self.seconds

    def guess_scope(self, columns: Indices, goal: float) -> None:
        """Use only `columns`, ascending, until the gap of the problem on them is at most `goal`."""
        self.scope, self.scope_steps = columns, 0
        self.scope_dual, self.scope_goal = -np.inf, goal

    def must_verify(self) -> bool:
        """Return whether the solution on a scope must be checked on all columns now."""
        return self.provisional and (self.gap <= self.scope_goal or self.n_iter >= self.max_iter)

    def look_at_likely(self, gradient: Floats, kept: Indices, checked: float) -> Floats:
        """Choose a scope of likely columns if they are few, or narrow the scope; returns their gradient.

        Full gradients take most of the time of a dense fit.  Likely columns are those in `kept`, in the support, or
        with a large gradient; the limit rises as the solution settles.  The scope is verified on all columns when the
        gap has fallen to the part `checked` of the present gap.
        """
        self.scope_steps = self.scope_steps + 1 if self.provisional else 0
        part = _LIKELY[min(self.scope_steps, len(_LIKELY) - 1)]
        columns = self.scope_columns()
        penalty = self.scope_penalty()
        likely = (sizes(penalty, gradient) > part * penalty.strengths) | self.stay()
        known = np.zeros(self.n_columns, bool)
        known[kept] = True
        likely |= known[columns]
        if self.provisional:
            self.scope = columns[likely]
        elif np.count_nonzero(likely) <= _FEW_LIKELY * len(columns):
            self.guess_scope(columns[likely], max(self.tolerance, checked * self.gap))
        else:
            return gradient
        return gradient[likely]

    def violators(self, gradient: Floats, among: np.ndarray, most: int) -> tuple[Indices, int]:
        """Return positions in the scope of the largest violations, at most `most`, and the number of all violations.

        `among` (len(scope),) bool restricts them.  The order is by predicted change, (|z_j| − λ)/‖x_j‖².
        """
        norms, penalty = self.norms[self.scope_columns()], self.scope_penalty()
        excess = sizes(penalty, gradient) - penalty.strengths
        found = np.flatnonzero(among & (excess > 0.0) & (norms > 0.0))
        if len(found) <= most:
            return found, len(found)
        change = excess[found] / norms[found]
        return found[np.argpartition(-change, most - 1)[:most]], len(found)

    def working_set(self, gradient: Floats, least: int, near: bool) -> tuple[Indices, int, bool]:
        """Return the support and the worst violators: at most `least` of these, or as many as the support has.

        Also returns the number of all violators, and whether all are returned; `near` is for `worst_and_near`.
        """
        columns = self.scope_columns()
        outside = self.coef[columns] == 0.0
        most = max(least, len(columns) - int(np.count_nonzero(outside)))
        worst, count = (self.worst_and_near if near else self.violators)(gradient, outside, most)
        return np.sort(np.concatenate([columns[~outside], columns[worst]])), count, count <= len(worst)

    def worst_and_near(self, gradient: Floats, among: np.ndarray, most: int) -> tuple[Indices, int]:
        """Return `violators`; if they are few relative to the support, also the columns that nearly violate.

        A small step on a nearly complete support then needs no other working set.
        """
        worst, count = self.violators(gradient, among, most)
        if count <= _FEW * (len(among) - np.count_nonzero(among)):
            penalty = self.scope_penalty()
            near = among & (sizes(penalty, gradient) > _NEAR * penalty.strengths)
            near &= self.norms[self.scope_columns()] > 0.0
            worst = np.flatnonzero(near)
        return worst, count


def least_with_this_solution(strengths: PerColumn, found: Floats) -> PerColumn:
    """Return the smallest strengths at which a zero solution, with gradients of the size `found`, remains zero."""
    if not np.ndim(strengths):
        return min(strengths, float(found.max()))
    ratios = np.divide(found, strengths, out=np.zeros_like(found), where=strengths > 0.0)
    return strengths * min(1.0, float(ratios.max()))
