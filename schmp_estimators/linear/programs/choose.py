"""Which program and which model a fit takes, by its loss and its schedule."""

from typing import Any

import numpy as np

from schmp_estimators.linear.losses.base import Loss, Rowwise
from schmp_estimators.linear.penalties.base import Penalty, has_free
from schmp_estimators.linear.penalties.group import Group
from schmp_estimators.linear.programs.blocks import BlockProblem
from schmp_estimators.linear.programs.centred import Rows, centre
from schmp_estimators.linear.programs.homotopy import HomotopyProblem, ProblemAtHand
from schmp_estimators.linear.programs.input import Extent, prefer_residual, resolution
from schmp_estimators.linear.programs.matrix import Floats
from schmp_estimators.linear.programs.model import NO_CHANGE, Model
from schmp_estimators.linear.programs.quadratic import ResolveQuadratic
from schmp_estimators.linear.programs.resolve import Resolve
from schmp_estimators.linear.programs.rounds import ScheduledLasso, ScheduledLogistic, schedule_maker
from schmp_estimators.linear.programs.smooth import ResolveSmooth, SmoothModel
from schmp_estimators.linear.programs.smooth_path import smooth_problem

#: Solvers that have all columns at one place, where no rounds are needed, and entries of X up to which they do.
AT_HAND = frozenset({"gram", "columns", "newton", "blocks"})
_MOST_AT_HAND = 1 << 22
#: Rows for each column from which their Gram matrix is made, and columns up to which it is: for each fit to the
#: same rows where X is at one place, and where it is not, and for any number of fits.
_ROWS, _MULTIPLIED, _MULTIPLIED_THERE, _MOST_MULTIPLIED = 2, 64, 1000, 4096
_OF_PENALTY = ("prox", "value", "tilt")


def choose_solver(asked: Any, size: Extent, n_fits: int, penalty: Penalty, loss: Loss) -> str:
    """Return which solver a fit takes: a function of the data's shape and parameters alone.

    Parameters
    ----------
    asked : object
        Has the parameters `schedule` and `checkpoint`, if it takes any.
    size : Extent
        That of X.
    n_fits : int
        Fits to the same rows.
    penalty : Penalty
        One without a duality gap asks for rounds, and columns without a penalty do of larger X or for other losses.
    loss : Loss
        One that kernels do not know, either, and of larger X any but the squared one.

    Returns
    -------
    {"gram", "columns", "newton", "blocks", "rounds", "scheduled"}
        Products of columns or columns at one place, see `HomotopyProblem`; columns at one place and another loss, see
        `SmoothProblem`, or coefficients that come in blocks, see `BlockProblem`; or rounds.

    Raises
    ------
    ValueError
        If coefficients come in blocks, and X is too large for that.
    """
    small, tall = is_small(size), size.n_rows >= _ROWS * size.n_columns
    if is_joint(loss) or isinstance(penalty, Group):
        if not small:
            raise ValueError(
                f"X has {size.n_rows} rows and {size.n_columns} columns: groups and multinomial loss are for X of up "
                'to 2^22 entries; give fewer columns or rows, penalty="l1", or loss="logistic"'
            )
        return "blocks"
    if getattr(asked, "schedule", "resolve") != "resolve":
        return "scheduled"
    if getattr(asked, "checkpoint", None) is not None or not penalty.certified or (has_free(penalty) and not small):
        return "rounds"
    if not is_quadratic(loss):
        known = isinstance(loss, Rowwise) and loss.certified
        return "newton" if small and known and not has_free(penalty) else "rounds"
    if small:
        return "gram" if tall and size.n_columns <= _MULTIPLIED * n_fits else "columns"
    few = size.n_columns <= min(_MULTIPLIED_THERE * n_fits, _MOST_MULTIPLIED)
    return "gram" if tall and few and not size.sparse else "rounds"


def is_small(size: Extent) -> bool:
    """Return whether all of X is brought to one place."""
    return size.n_rows * size.n_columns <= _MOST_AT_HAND


def make_problem(
    solver: str, rows: Rows, loss: Any, penalty: Penalty, fit_intercept: bool, eps: float
) -> ProblemAtHand | None:
    """Return what one of the solvers `AT_HAND` solves, for a penalty of strength one, or None if it should not.

    The columns of `rows` are overwritten.  `eps` is the relative distance of neighbouring numbers in X.

    Raises
    ------
    SumsError
        If squares are not finite.
    """
    if solver == "blocks":
        return BlockProblem(rows, fit_intercept, loss, penalty, eps)
    if solver == "newton":
        return smooth_problem(rows, loss, penalty, fit_intercept, eps)
    data = centre(rows, fit_intercept, solver == "gram", eps)
    return None if data is None else HomotopyProblem(data, penalty, eps)


def make_model(
    asked: Any,
    loss: Loss,
    penalty: Penalty,
    size: Extent,
    n_partitions: int,
    *,
    coef: Floats = NO_CHANGE,
    level: float = 0.0,
    dtype: type = np.float64,
) -> Model:
    """Return the point that a fit starts from."""
    kind = Model if is_quadratic(loss) else SmoothModel
    return kind(
        penalty=penalty,
        tolerance=asked.tol,
        max_iter=asked.max_iter,
        fit_intercept=asked.fit_intercept,
        n_partitions=n_partitions,
        coef=coef.copy(),
        level=level,
        n_rows=size.n_rows,
        per_column=size.stored / max(1, size.n_columns),
        dtype=dtype,
        eps=resolution(size.dtype),
    )


def kind_of(schedule: str, loss: Loss, penalty: Penalty) -> Any:
    """Return the class of programs of a schedule, for a loss.

    Raises
    ------
    TypeError
        If it needs what the loss or the penalty does not have.
    """
    missing, resolves = [], schedule == "resolve"
    if not callable(getattr(loss, "derivatives", None)):
        missing.append("a loss with a method `derivatives`")
    if not isinstance(penalty, tuple) or not all(callable(getattr(penalty, name, None)) for name in _OF_PENALTY):
        missing.append("a penalty that is a named tuple with methods `prox`, `value` and `tilt`")
    if not resolves and not 0.0 < getattr(loss, "smoothness", np.inf) < np.inf:
        missing.append("a loss with a finite `smoothness`, the bound of its curvature")
    if missing:
        raise TypeError(f"schedule={schedule!r} needs {' and '.join(missing)}; got loss={loss!r}, penalty={penalty!r}")
    if is_quadratic(loss):
        return ResolveQuadratic if resolves else ScheduledLasso
    return ResolveSmooth if resolves else ScheduledLogistic


def make_program(asked: Any, loss: Loss, model: Any, size: Extent, random: Any = None) -> Resolve:
    """Return the program that moves a model.

    Raises
    ------
    TypeError
        If it needs what the loss or the penalty does not have.
    """
    quadratic, kind = is_quadratic(loss), kind_of(asked.schedule, loss, model.penalty)
    options: dict[str, Any]
    if asked.schedule == "resolve":
        options = {"sparse": prefer_residual(size)}
    else:
        seed = random.randint(np.iinfo(np.int32).max)
        shape = asked.n_parallel, asked.max_correlation, seed, asked.pipeline_depth, asked.n_schedulers
        options = {"make_schedule": schedule_maker(asked.schedule, *shape), "pipeline_depth": asked.pipeline_depth}
    program: Resolve = kind(model, **options) if quadratic else kind(model, loss=loss, **options)
    return program


def is_joint(loss: Any) -> bool:
    """Return whether a loss is one of all classes at once."""
    return hasattr(loss, "n_outputs")


def is_quadratic(loss: Loss) -> bool:
    """Return whether the curvature of a loss is the same everywhere."""
    return bool(getattr(loss, "constant_curvature", False))
