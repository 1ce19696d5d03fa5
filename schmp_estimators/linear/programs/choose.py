"""The choice of a solver for a loss, a penalty and a schedule."""

from typing import Any

import numpy as np

from schmp_estimators.core.io.slices import memory_left
from schmp_estimators.core.later import setting
from schmp_estimators.core.schedules.dynamic import SCHEDULES, Schedule
from schmp_estimators.linear.contracts import (
    check_needs,
    declared,
    is_in_blocks,
    is_joint,
    is_quadratic,
)
from schmp_estimators.linear.losses.base import Loss, Rowwise
from schmp_estimators.linear.penalties.base import Penalty, has_free
from schmp_estimators.linear.programs.centred import Rows, centre
from schmp_estimators.linear.programs.design import Design
from schmp_estimators.linear.programs.homotopy import HomotopyProblem, ProblemAtHand
from schmp_estimators.linear.programs.input import Extent, prefer_residual, resolution
from schmp_estimators.linear.programs.joint import ResolveJoint
from schmp_estimators.linear.programs.resolve import Resolve
from schmp_estimators.linear.programs.rounds import Scheduled
from schmp_estimators.linear.programs.smooth_path import smooth_problem

#: A setting of tests: small problems are solved by rounds, as large ones are.
BY_ROUNDS = "schmp-estimators.by-rounds"
#: Solvers that have all columns in one place and need no rounds; largest number of entries of X for
#: them.
AT_HAND = frozenset({"gram", "columns", "newton"})
_MOST_AT_HAND = 1 << 22
#: Rows per column from which the solver "gram" is chosen, and its largest numbers of columns: per
#: fit if X is in one place, per fit if it is not, and for any number of fits.
_ROWS, _MULTIPLIED, _MULTIPLIED_THERE, _MOST_MULTIPLIED = 2, 64, 1000, 4096
#: Arrays as large as the coefficients of a problem in blocks, and bytes from which the memory left
#: is looked up.
_COPIES, _WORTH_ASKING = 6, 1 << 28
#: Largest support, that is number of rows or of columns, for which the solver "columns" is faster
#: than rounds, which factorise with LAPACK.
_MOST_SUPPORT = 700


def choose_solver(asked: Any, size: Extent, n_fits: int, penalty: Penalty, loss: Loss) -> str:
    """Return the solver of a fit; it depends only on the shape of the data and on parameters.

    Parameters
    ----------
    asked : object
        Its attributes `schedule` and `checkpoint` are used, if it has them.
    size : Extent
        That of X.  With more than 700 rows and columns, the squared loss is fitted by "rounds"
        instead of "columns".
    n_fits : int
        Number of fits to the same rows.
    penalty : Penalty
        Without a duality gap the solver is "rounds"; so it is for columns without a penalty, if X
        is large or the loss is not the squared loss.
    loss : Loss
        If kernels do not know it, or if X is large and it is not the squared loss, the solver is
        "rounds".

    Returns
    -------
    {"gram", "columns", "newton", "rounds", "scheduled"}
        For "gram" and "columns" see `HomotopyProblem`, for "newton" `SmoothProblem`.

    Raises
    ------
    MemoryError
        If the coefficients of all classes need more memory than this process may use.
    """
    small, tall = is_small(size), size.n_rows >= _ROWS * size.n_columns
    if is_in_blocks(loss, penalty):
        check_memory(size.n_columns, declared(loss, "n_outputs"))
        return "rounds"
    if getattr(asked, "schedule", "resolve") != "resolve":
        return "scheduled"
    if (
        getattr(asked, "checkpoint", None) is not None
        or setting(BY_ROUNDS, False)
        or not penalty.certified
        or (has_free(penalty) and not small)
    ):
        return "rounds"
    if not is_quadratic(loss):
        known = isinstance(loss, Rowwise) and loss.certified
        return "newton" if small and known and not has_free(penalty) else "rounds"
    if small:
        others = "columns" if min(size[:2]) <= _MOST_SUPPORT or has_free(penalty) else "rounds"
        return "gram" if tall and size.n_columns <= _MULTIPLIED * n_fits else others
    few = size.n_columns <= min(_MULTIPLIED_THERE * n_fits, _MOST_MULTIPLIED)
    return "gram" if tall and few and not size.sparse else "rounds"


def is_small(size: Extent) -> bool:
    """Return whether all of X may be brought to one place."""
    return size.n_rows * size.n_columns <= _MOST_AT_HAND


def check_memory(n_columns: int, n_outputs: int) -> None:
    """Raise MemoryError if coefficients and their gradients need more memory than this process may use."""
    needed = _COPIES * 8 * n_columns * n_outputs
    left = memory_left() if needed > _WORTH_ASKING else needed
    if needed > left:
        raise MemoryError(
            f"{n_outputs} x {n_columns} coefficients and their gradients take {needed / 2**30:.3g} GiB of the "
            f"{left / 2**30:.3g} GiB that this process may use; give fewer columns, or another limit with "
            "dask.config.set({'schmp-estimators.memory-limit': ...})"
        )


def make_problem(
    solver: str, rows: Rows, loss: Any, penalty: Penalty, fit_intercept: bool, eps: float
) -> ProblemAtHand | None:
    """Return the problem for a solver in `AT_HAND`, with a penalty of strength one; None if rounds should solve it.

    The columns of `rows` are overwritten.  `eps` is the relative distance of neighbouring numbers
    in X.

    Raises
    ------
    SumsError
        If squares are not finite.
    """
    if solver == "newton":
        return smooth_problem(rows, loss, penalty, fit_intercept, eps)
    data = centre(rows, fit_intercept, solver == "gram", eps)
    return None if data is None else HomotopyProblem(data, penalty, eps)


def schedule_of(schedule: str | Schedule) -> Schedule:
    """Return the schedule that a name stands for, or the given one."""
    return SCHEDULES[schedule]() if isinstance(schedule, str) else schedule


def kind_of(schedule: Any, loss: Loss, penalty: Penalty) -> Any:
    """Return the class of programs of a schedule, for a loss.

    Raises
    ------
    TypeError
        If it needs what the loss or the penalty does not have.
    """
    resolves = schedule == "resolve"
    if is_in_blocks(loss, penalty):
        check_needs("blocks", loss, penalty, f"{schedule=!r}")
        return ResolveJoint
    check_needs("resolve" if resolves else "scheduled", loss, penalty, f"{schedule=!r}")
    return ResolveJoint if resolves else Scheduled


def make_program(
    asked: Any,
    loss: Loss,
    penalty: Penalty,
    size: Extent,
    n_partitions: int,
    random: Any = None,
    **options: Any,
) -> Resolve:
    """Return the program of a fit; `options` are `coef`, `level` and `dtype` of `Resolve`, `random` is for schedules.

    Raises
    ------
    TypeError
        If it needs what the loss or the penalty does not have.
    """
    kind = kind_of(asked.schedule, loss, penalty)
    options["loss"], options["n_columns"] = loss, size.n_columns
    if asked.schedule == "resolve":
        options["sparse"] = size.sparse and (is_joint(loss) or prefer_residual(size))
    else:
        seed = random.randint(np.iinfo(np.int32).max)
        options["rounds"] = schedule_of(asked.schedule).start(size.n_columns, seed)
    per_column = size.stored / max(1, size.n_columns)
    design = Design(
        size.n_rows, n_partitions, asked.fit_intercept, per_column, resolution(size.dtype)
    )
    program: Resolve = kind(penalty, design, asked.tol, asked.max_iter, **options)
    return program
