"""What the coordinator of an L1-penalised fit holds, and what all its programs share: which columns are looked at."""

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

#: Part of the objective, here or at zero, by which a gap may be negative: the sums that it is made of are rounded.
_ROUNDING = 1e-11
#: Certificates without any change but rounding, and part of the objective that this is, after which there is nothing
#: left to try.
STALLED, LAST_BITS = 10, 1e-14
_FEW = 0.1  # violators per column of the support, below which a working set is nearly complete
_NEAR = 0.85  # part of the penalty above which a gradient nearly violates
#: Part of the penalty above which a gradient makes a column likely, at first and in the steps that follow, and part
#: of the columns above which the likely ones are many.
_LIKELY, _FEW_LIKELY = (0.6, 0.7, 0.8), 0.35


@dataclass
class Candidates:
    """The columns whose Gram matrix is known, in the order in which they joined."""

    #: (k,) column numbers, and those that joined at a time
    columns: Indices = field(default_factory=lambda: NO_COLUMNS)
    groups: list[Indices] = field(default_factory=list)
    #: (capacity, capacity); the leading (k, k) part is in use
    gram: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))

    def __len__(self) -> int:
        return len(self.columns)

    def extend(self, new: Indices, rows: np.ndarray) -> None:
        """Take `new` columns in; `rows` (k_old + k_new, k_new) holds their products with all candidates."""
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
        """Return the problem on the candidates, at the model's point."""
        used = self.gram[: len(self), : len(self)]
        coef = model.coef[self.columns]
        order = np.argsort(self.columns, kind="stable")
        return GramProblem(used, gradient, coef, energy, take(model.penalty, self.columns), order)


#: What a state holds.
STATE = (
    "tolerance", "level", "total_weight", "null_objective", "objective", "energy", "touched", "balance", "damping",
    "gap", "best_dual", "scope_dual", "scope_goal", "n_iter", "stalled", "doubts", "scope_steps", "step_backs",
    "steepness", "fell_short", "coef", "means", "norms", "shifts", "dropped", "scope", "seconds",
)  # fmt: skip


@dataclass
class Model:
    """The point of a fit, its certificate, and what is known of the columns."""

    penalty: Penalty
    tolerance: float
    max_iter: int
    fit_intercept: bool = True
    n_partitions: int = 1
    #: whether there is a duality gap; else `gap` is an estimate of it, see `certificate.merit`
    certified: bool = True
    #: (p,) start, or None for zeros
    coef: Floats = field(default_factory=lambda: NO_CHANGE)
    n_rows: int = 0
    #: stored values of X for each column, on average
    per_column: float = 0.0
    #: of the coefficients that will be returned; the last certificate is that of the point as it is then
    dtype: type = np.float64
    #: Σ s over all rows
    total_weight: float = 0.0
    #: weighted mean of the response (linear), or the intercept (logistic), for columns less `shifts`
    level: float = 0.0
    #: (p,) weighted column means, zeros without an intercept
    means: Floats = field(default_factory=lambda: NO_CHANGE)
    #: (p,) Σ s (x_j − x̄_j)²
    norms: Floats = field(default_factory=lambda: NO_CHANGE)
    #: (p,) what has been taken from the columns of X before all else, see `regression_offsets`; (0,) if nothing has
    shifts: Floats = field(default_factory=lambda: NO_CHANGE)
    #: columns that vary by less than rounding, and those of them that are not the same in all rows
    constant: Indices = field(default_factory=lambda: NO_COLUMNS)
    dropped: Indices = field(default_factory=lambda: NO_COLUMNS)
    #: columns other than zero whose squares underflow; they cannot move
    small: Indices = field(default_factory=lambda: NO_COLUMNS)
    #: relative distance of neighbouring numbers in X
    eps: float = float(np.finfo(np.float64).eps)
    #: objective at zero coefficients
    null_objective: float = 0.0
    #: columns that are looked at, ascending, a guess that must be verified on all columns; None for all
    scope: Indices | None = None
    #: best dual value on a guessed scope, which bounds only the problem on that scope
    scope_dual: float = -np.inf
    #: steps made on a guessed scope
    scope_steps: int = 0
    #: gap on a guessed scope at which all columns are looked at again
    scope_goal: float = 0.0
    best_dual: float = -np.inf
    #: certificates in which nothing has changed, one after the other
    stalled: int = 0
    #: times that the residual has been computed anew because a bound contradicted it
    doubts: int = 0
    #: times that no step lowered the objective (logistic)
    step_backs: int = 0
    #: least curvature of a row, as a part of the largest
    damping: float = 0.0
    #: curvature of a row of weight 1, at most, or on average where there is no bound
    steepness: float = 1.0
    #: Σ s y p at the best intercept (logistic), zero up to rounding
    balance: float = 0.0
    #: whether the fit has ended short of the tolerance
    fell_short: bool = False
    gap: float = np.inf
    objective: float = np.inf
    n_iter: int = 0
    #: gradient over all columns at the present point, where it is known
    full_gradient: Floats | None = None
    energy: float = 0.0
    candidates: Candidates = field(default_factory=Candidates)
    pace: Pace = field(default_factory=Pace)
    history: list[dict[str, float]] = field(default_factory=list)
    started: float = field(default_factory=perf_counter)
    #: from there to the last certificate
    seconds: float = 0.0
    #: entries operated upon so far: columns × rows of gradients, updates and products, and those of Gram matrices
    touched: float = 0.0

    def set_moments(self, total: float, sums: Floats, squares: Floats, products: Floats | float = 0.0) -> None:
        """Keep weighted means and norms; columns that are `constant` or `small` get norm zero.

        `products` are those with any vector: a column is other than zero if one of the sums is.
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
        """Whether the certificate is that of a guessed scope."""
        return self.scope is not None

    @property
    def n_columns(self) -> int:
        """Number of columns of X."""
        return len(self.norms)

    def scope_columns(self) -> Indices:
        """Return the columns that are looked at."""
        return np.arange(self.n_columns) if self.scope is None else self.scope

    def scope_penalty(self) -> Penalty:
        """Return the penalty of the columns that are looked at."""
        return self.penalty if self.scope is None else take(self.penalty, self.scope)

    def take(self, raw: Floats, balance: float) -> Floats:
        """Return the gradient over the columns that are looked at, of their products before they are centred."""
        columns = self.scope_columns()
        gradient = raw - balance * self.means[columns]
        gradient[self.norms[columns] == 0.0] = 0.0
        self.full_gradient = gradient if self.scope is None else None
        self.touched += len(columns) * float(self.n_rows)
        return gradient

    def stay(self) -> NDArray[np.bool_]:
        """Return which columns in the scope are in the support, or are not penalised."""
        return (self.coef[self.scope_columns()] != 0.0) | (self.scope_penalty().strengths == 0.0)

    def certify(self, objective: float, gap: float) -> None:
        """Record the objective and the gap at the present point, with the best dual value so far.

        On a guessed scope `gap` is that of the problem on the scope; the record keeps to bounds on the whole problem.
        """
        before = self.objective, self.gap
        self.objective = objective
        if not self.certified:  # what was estimated before bounds nothing
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
        """Gap of the whole problem: `gap`, unless that is of a guessed scope."""
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
        """What a gap may be below zero."""
        return _ROUNDING * max(self.objective, self.null_objective)

    @property
    def converged(self) -> bool:
        """Whether the gap is small enough; one below zero is no bound, but a sign that something is wrong."""
        return -self.rounding <= self.gap <= self.tolerance

    @property
    def exhausted(self) -> bool:
        """Whether there is nothing left to try."""
        return self.n_iter >= self.max_iter or self.stalled >= STALLED

    def follow(self, other: "Model") -> None:
        """Begin where another model of the same partitions has left them."""
        self.candidates, self.shifts = other.candidates, other.shifts
        self.constant, self.dropped = other.constant, other.dropped
        if len(self.shifts) and len(self.coef):
            self.level += float(self.shifts @ self.coef)

    def begin_again(self) -> None:
        """Forget how an earlier penalty ended."""
        self.best_dual, self.n_iter, self.stalled, self.doubts = -np.inf, 0, 0, 0
        self.fell_short = False
        self.scope = None

    def doubt(self) -> bool:
        """Return whether the gap contradicts itself, so that the point has to be computed anew; forgets the bound."""
        if self.gap >= -self.rounding or self.doubts >= 2:
            return False
        self.doubts += 1
        self.best_dual = -np.inf
        self.scope = None
        return True

    def finish(self) -> bool:
        """End the fit; returns whether the coefficients, as they will be returned, are still to be certified."""
        self.fell_short = not self.converged
        returned = self.coef.astype(self.dtype).astype(np.float64)
        if np.array_equal(returned, self.coef):
            return False
        self.coef = returned
        self.scope = None
        return True

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs, no copies, at a certificate; the Gram matrix of candidates is made again."""
        state = {name: getattr(self, name) for name in STATE}
        return {**state, "penalty": fields_of(self.penalty), "pace": dict(vars(self.pace))}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a state."""
        for name in STATE:
            setattr(self, name, state[name])
        self.coef = self.coef.copy()  # which changes in place
        self.penalty = type(self.penalty)(*state["penalty"])
        vars(self.pace).update(state["pace"])
        self.started = perf_counter() - self.seconds

    def guess_scope(self, columns: Indices, goal: float) -> None:
        """Look at `columns` only, ascending, until the gap of the problem on them is at most `goal`."""
        self.scope, self.scope_steps = columns, 0
        self.scope_dual, self.scope_goal = -np.inf, goal

    def must_verify(self) -> bool:
        """Return whether the solution on a guessed scope is to be certified on all columns now."""
        return self.provisional and (self.gap <= self.scope_goal or self.n_iter >= self.max_iter)

    def look_at_likely(self, gradient: Floats, kept: Indices, checked: float) -> Floats:
        """Guess a scope of likely columns, if they are few, or narrow it; returns their gradient.

        Most of the time of a dense fit goes into full gradients.  Likely are columns in `kept` or in the support, and
        those with a large gradient, which must be the larger the more the solution has settled.  The guess is verified
        on all columns once the gap has come down to the part `checked` of the present one.
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
        """Return positions in the scope of the worst violators, at most `most`, and the number of all violators.

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
        """Return the support and the worst violators, at most `least` of these or as many as the support has.

        With them come the number of all violators, and whether these are all of them; `near` is for `worst_and_near`.
        """
        columns = self.scope_columns()
        outside = self.coef[columns] == 0.0
        most = max(least, len(columns) - int(np.count_nonzero(outside)))
        worst, count = (self.worst_and_near if near else self.violators)(gradient, outside, most)
        return np.sort(np.concatenate([columns[~outside], columns[worst]])), count, count <= len(worst)

    def worst_and_near(self, gradient: Floats, among: np.ndarray, most: int) -> tuple[Indices, int]:
        """Return `violators`, and once they are few beside the support also the columns that nearly violate.

        A step that moves a nearly complete support a little then needs no other working set.
        """
        worst, count = self.violators(gradient, among, most)
        if count <= _FEW * (len(among) - np.count_nonzero(among)):
            penalty = self.scope_penalty()
            near = among & (sizes(penalty, gradient) > _NEAR * penalty.strengths)
            near &= self.norms[self.scope_columns()] > 0.0
            worst = np.flatnonzero(near)
        return worst, count


def least_with_this_solution(strengths: PerColumn, found: Floats) -> PerColumn:
    """Return the strengths, lowered as far as the solution, with gradients of the size `found`, may stay zero."""
    if not np.ndim(strengths):
        return min(strengths, float(found.max()))
    ratios = np.divide(found, strengths, out=np.zeros_like(found), where=strengths > 0.0)
    return strengths * min(1.0, float(ratios.max()))
