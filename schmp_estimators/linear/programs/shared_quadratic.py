"""The working set of the squared loss, solved by all partitions together."""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.engines.team import Team, Together
from schmp_estimators.linear.kernels.face import choose_groups
from schmp_estimators.linear.kernels.sparse import frozen
from schmp_estimators.linear.penalties.base import Penalty, take
from schmp_estimators.linear.programs.certificate import gap_or_merit
from schmp_estimators.linear.programs.jobs import RowPartition
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.model import Model
from schmp_estimators.linear.programs.shared_residual import Effort, Groups, Piece, SharedProblem, united

#: Stored values from which a working set is solved where its rows are; a smaller one has sooner come to the client.
LARGE = 1 << 19
_ROUNDS = 40
#: Part of all columns, as a fraction of one, from which working sets are so large that all are looked through.
_PARTS = 4
#: What is kept of the effort where it was in vain: with many parallel columns descent by coordinates is better.
GIVEN_UP = Effort(0, 1.0)


def is_for_all(model: Model, columns: Indices) -> bool:
    """Return whether a working set is to be solved where its rows are: it is large, and that has not failed before.

    Ridges are left to the solver that has all rows at hand.
    """
    simple = model.certified and not np.any(model.penalty.ridges)
    return simple and model.n_partitions > 1 and len(columns) * model.per_column >= LARGE and model.pace.face_steps > 0


class Shared(NamedTuple):
    """What there is to know of a working set besides its columns; see `SharedProblem`."""

    columns: Indices
    norms: Floats
    means: Floats
    total_weight: float
    coef: Floats
    gradient: Floats
    energy: float
    penalty: Penalty
    goal: float
    effort: Effort
    groups: Groups | None

    def piece(self, rows: RowPartition) -> Piece:
        """Return the working set in the rows of a partition."""
        return Piece(rows.matrix.take_sparse(self.columns), rows.weights, rows.matrix.n_rows)

    def solve(self, pieces: Sequence[Piece], team: Team) -> tuple[Floats, Effort, float]:
        """Return the coefficients at which the gap on the working set is small enough, and what it took."""
        problem = SharedProblem(
            pieces,
            team,
            self.norms,
            self.means,
            self.total_weight,
            self.coef.copy(),
            self.gradient.copy(),
            0.0,
            self.penalty,
            self.effort,
            self.groups,
        )
        reached = problem.solve(self._gap, self.goal, _ROUNDS)
        return problem.coef, problem.effort if reached else GIVEN_UP, problem.visited

    def _gap(self, at: SharedProblem) -> float:
        return gap_or_merit(at.penalty, at.coef, at.gradient, self.energy - at.gained, at.norms)


class FindDependent(NamedTuple):
    """Look for dependent columns among all of X."""

    means: Floats

    def __call__(self, rows: RowPartition) -> tuple[RowPartition, Groups]:
        """Return groups of them as far as the rows of this partition show them."""
        every = np.arange(rows.matrix.n_columns)
        return rows, Piece(rows.matrix.take_sparse(every), rows.weights, rows.matrix.n_rows).dependent(self.means)


class Dependent:
    """The groups of dependent columns of X, looked for once if working sets are a large part of it.

    A smaller working set is looked through by itself; so what is known does not depend on the sets before.
    """

    def __init__(self) -> None:
        self._found: Groups | None = None

    def among(self, model: Model, chosen: Indices) -> Generator[Any, Any, Groups | None]:
        """Return the groups among the `chosen` columns, ascending, if they are a large part of X."""
        if _PARTS * len(chosen) < model.n_columns:
            return None
        if self._found is None:
            self._found = united((yield FindDependent(model.means)), model.n_columns)
        places = np.full(model.n_columns, -1)
        places[chosen] = np.arange(len(chosen))
        members, starts = choose_groups(*map(frozen, self._found), frozen(places))
        return members, starts


def solve_shared(
    model: Model, chosen: Indices, gradient: Floats, goal: float, dependent: Dependent
) -> Generator[Any, Any, tuple[Indices, Floats]]:
    """Solve for the `chosen` columns, whose gradient is given, until the gap on them is at most `goal`."""
    groups = yield from dependent.among(model, chosen)
    effort, pace = Effort(model.pace.face_steps, model.pace.face_accuracy), model.pace
    job = Shared(
        chosen,
        model.norms[chosen],
        model.means[chosen],
        model.total_weight,
        model.coef[chosen],
        gradient,
        model.energy,
        take(model.penalty, chosen),
        goal,
        effort,
        groups,
    )
    coef, (pace.face_steps, pace.face_accuracy), visited = yield Together(job)
    model.touched += visited * model.n_rows
    return chosen, coef
