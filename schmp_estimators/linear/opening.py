"""What the L1-penalised estimators share: validated input, weights, the run, the warning when it fell short."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from schmp_estimators.core.door.inputs import is_dask
from schmp_estimators.core.door.rows import Rows
from schmp_estimators.core.door.rows import open_rows as open_parts
from schmp_estimators.core.engine.dynamic import PlaceOfRounds, Save, apply_job, run_coroutine
from schmp_estimators.core.engine.rounds import Keeper, Piece, Rounds
from schmp_estimators.core.following import undone_on_error
from schmp_estimators.core.places.place import Place, begun_anew, choose_place
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.core.reduction import tree_merge
from schmp_estimators.linear.by_blocks import has_blocks
from schmp_estimators.linear.checkpoint import Checkpointing
from schmp_estimators.linear.data.samples import (
    Samples,
    any_dask,
    check_finite,
    check_length,
    explain_sums,
)
from schmp_estimators.linear.following import Followed
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.penalties.base import Penalty, fields_of
from schmp_estimators.linear.penalties.choose import factors_of
from schmp_estimators.linear.programs import input as parts
from schmp_estimators.linear.programs.centred import Fetch, Summarise, Summary, centred_products, joined
from schmp_estimators.linear.programs.choose import AT_HAND, choose_solver, is_small, make_problem
from schmp_estimators.linear.programs.folds import Plan, fold_parts, fold_rows
from schmp_estimators.linear.programs.homotopy import HomotopyProblem, ProblemAtHand
from schmp_estimators.linear.programs.input import Extent, split_rows
from schmp_estimators.linear.programs.jobs import SMALLEST_NORM, SumsError
from schmp_estimators.linear.programs.resolve import Resolve

#: A program, and the job that makes partitions ready for it, where they are not.
Fit = tuple[Resolve, Any]


def fit_where_input_is(estimator: Any, X: Any, y: Any, sample_weight: Any, label: str) -> Any:
    """Fit by the estimator's `_fit_on`, here or on the cluster; a fit that fails leaves the earlier one as it was."""
    is_dask_input = any_dask(X, y, sample_weight)
    chosen = choose_place(estimator.n_jobs, is_dask=is_dask_input, label=label)
    with undone_on_error(estimator), one_blas_thread(), chosen as place:
        return begun_anew(place, lambda: estimator._fit_on(place, X, y, sample_weight))


class Problem:
    """Row partitions of a problem, here or on workers, ready for rounds."""

    def __init__(self, rounds: Rounds, size: Extent, n_targets: int = 1) -> None:
        self.rounds, self.extent, self.n_targets = rounds, size, n_targets
        #: whether the user knows of columns that are left out
        self.told = False

    @property
    def n_partitions(self) -> int:
        """Number of partitions."""
        return self.rounds.n_partitions

    def do(self, job: Any) -> list[Any]:
        """Apply one job to all partitions, and return their answers."""
        rounds: PlaceOfRounds = self.rounds
        return rounds.collect(rounds.submit(apply_job, job))


def find_solver(asked: Any, size: Extent, n_fits: int, loss: Loss, penalty: Penalty) -> str:
    """Return which solver a fit takes; see `choose_solver`, which does not know of blocks."""
    return "blocks" if has_blocks(loss, penalty) else choose_solver(asked, size, n_fits, penalty, loss)


def at_hand(
    problem: Problem, solver: str, loss: Loss, penalty: Any, fit_intercept: bool, classes: Sequence[int] = ()
) -> ProblemAtHand | None:
    """Return what has to be known of a problem at this place, for a penalty of strength one.

    `classes` are the numbers of those that are fitted, each against all others.  None if it is to be solved by rounds.
    """
    size, eps = problem.extent, parts.resolution(problem.extent.dtype)
    if solver not in AT_HAND:
        return None
    with one_blas_thread():
        if is_small(size):
            rows = joined(problem.do(Fetch())).labelled(classes)
            return make_problem(solver, rows, loss, penalty, fit_intercept, eps)
        summary = tree_merge(problem.do(Summarise()), Summary.united)
        data = centred_products(summary, problem.n_targets, fit_intercept, eps)
        return None if data is None else HomotopyProblem(data, penalty, eps)


def identity_of(estimator: Any, problem: Problem, penalty: Any) -> dict[str, Any]:
    """Return what a checkpoint knows of the penalty, also by the names of parameters, of the loss and the type of X."""
    named = {name: repr(getattr(estimator, name, None)) for name in ("alpha", "C", "loss", "l1_ratio", "positive")}
    named["penalty_factors"] = _digest([factors_of(estimator, estimator.penalty_factors)])
    return {**named, "penalty": _digest(fields_of(penalty)), "dtype": str(problem.extent.dtype)}


def _digest(values: Iterable[Any]) -> str:
    return hashlib.sha256(b"".join(np.asarray(value, np.float64).tobytes() for value in values)).hexdigest()


@contextmanager
def open_rows(
    estimator: Any,
    samples: Samples,
    responses: NDArray[Any],
    weights: NDArray[Any],
    place: Place,
    *,
    n_shards: int | None = None,
    name: str = "lasso",
) -> Iterator[Problem]:
    """Give the row partitions of a problem, and let go of them in the end.

    Parameters
    ----------
    estimator : estimator
        Learns the number of features, where it is not known before chunks have been loaded.
    samples : Samples
    responses : ndarray of shape (n_samples,) or (n_targets, n_samples)
    weights : ndarray of shape (n_samples,) or (0,)
    place : Place
    n_shards : int, optional
        Number of partitions, at most one a row; of an X on Dask at most one a chunk of rows.
    name : str
        What tasks are called on the dashboard.
    """
    with ExitStack() as stack:
        pieces, size = make_pieces(stack, estimator, samples, responses, weights, place, n_shards, name)
        rounds = stack.enter_context(Rounds(place, pieces, name, Keeper(parts.save_partition, parts.restore_partition)))
        del pieces
        with explained(estimator, samples.X):
            yield Problem(rounds, size, len(np.atleast_2d(responses)))


@contextmanager
def explained(estimator: Any, X: Any) -> Iterator[None]:
    """Raise scikit-learn's error where the sums over an X in memory are not finite because X is not."""
    try:
        yield
    except SumsError as error:
        if is_dask(X):
            raise
        raise explain_sums(error, X, type(estimator).__name__) from None


def make_pieces(
    stack: ExitStack,
    estimator: Any,
    samples: Samples,
    responses: NDArray[Any],
    weights: NDArray[Any],
    place: Place,
    n_shards: int | None,
    name: str,
    plan: Plan | None = None,
) -> tuple[list[Any], Extent]:
    """Return partitions, or how they are made where they will live, and the extent of what is used.

    `plan` says how they are cut along folds.  Closing `stack` lets go of the chunks that they are made of.
    """
    responses = np.ascontiguousarray(np.atleast_2d(responses), dtype=np.float64)
    _check_squares(responses, weights)
    if is_dask(samples.X):
        read = partial(_read_part, type(estimator).__name__)
        chunks = stack.enter_context(open_parts(read, samples.X, estimator, place=place))
        pieces, size = _pieces(estimator, chunks, samples, responses, weights, n_shards, name, plan)
        chunks.partitions = []  # here, each goes when a partition has been made of it
        return pieces, size
    size = parts.extent(samples.X)
    count = parts.default_partitions(size) if n_shards is None else min(n_shards, size.n_rows)
    partitions = split_rows(samples.X, responses, weights, count)
    if plan is None:
        return partitions, size
    ends = np.cumsum([rows.matrix.n_rows for rows in partitions]).tolist()
    return [
        Piece(fold_rows, (plan.cuts(size, end - rows.matrix.n_rows, end), rows))
        for rows, end in zip(partitions, ends, strict=True)
    ], size


def _check_squares(responses: NDArray[Any], weights: NDArray[Any]) -> None:
    """Raise ValueError if what a fit sums over the responses overflows, or underflows although a response varies."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = responses * responses
        total = (squares * weights if len(weights) else squares).sum()
        apart = (responses - responses.mean(axis=1, keepdims=True)) ** 2
        spread = apart @ weights if len(weights) else apart.sum(axis=1)
    if np.isfinite(total) and not ((np.ptp(responses, axis=1) > 0.0) & (spread < SMALLEST_NORM)).any():
        return
    largest = np.abs(responses).max()
    heaviest = f" and sample weights up to {weights.max():.3g}" if len(weights) else ""
    flow, way = ("underflow", "multiply") if np.isfinite(total) else ("overflow", "divide")
    raise ValueError(
        f"y holds values up to {largest:.3g} in size{heaviest}, whose squares {flow} float64; {way} y "
        f"{'or sample_weight ' if heaviest else ''}by a power of ten, and alpha with y"
    )


def _read_part(owner: str, rows: Any) -> parts.Part:
    return parts.read_part(check_finite(rows, owner))


def _pieces(
    estimator: Any,
    chunks: Rows,
    samples: Samples,
    responses: NDArray[Any],
    weights: NDArray[Any],
    n_shards: int | None,
    name: str,
    plan: Plan | None,
) -> tuple[list[Any], Extent]:
    """Return how partitions are made of chunks, leaving out those without rows, and the extent of what is used."""
    extents = chunks.here(chunks.each(parts.extent_of_part, f"{name}-extent"))
    size = _check_extents(estimator, extents, samples)._replace(n_rows=responses.shape[1])
    lengths = [one.n_rows for one in extents]
    used = np.ones(sum(lengths), bool) if samples.used is None else samples.used
    ends = np.cumsum(lengths)
    rows_used = np.concatenate([[0], np.cumsum(used)])  # among the first i rows
    pieces: list[Any] = []
    for group in _groups([number for number, length in enumerate(lengths) if length], lengths, n_shards):
        start, stop = ends[group[0]] - lengths[group[0]], ends[group[-1]]
        first, last = rows_used[start], rows_used[stop]
        if first == last:
            continue
        mask = None if last - first == stop - start else used[start:stop]
        values = parts.RowValues(responses[:, first:last], weights[first:last], mask)
        given = values, *(chunks.partitions[number] for number in group)
        if plan is None:
            pieces.append(Piece(parts.join_parts, given))
        else:
            pieces.append(Piece(fold_parts, (plan.cuts(size, first, last), *given)))
    return pieces, size


def _check_extents(estimator: Any, extents: Sequence[Extent], samples: Samples) -> Extent:
    widths = sorted({one.n_columns for one in extents})
    if len(widths) != 1:
        raise ValueError(f"the chunks of X have different numbers of columns: {widths}")
    estimator.n_features_in_ = widths[0]
    size = parts.joint_extent(extents)
    check_length(size.n_rows, len(samples.y) if samples.used is None else len(samples.used))
    return size


def _groups(chunks: list[int], lengths: list[int], n_groups: int | None) -> list[list[int]]:
    """Put consecutive chunks into at most `n_groups` groups of about as many rows."""
    if n_groups is None or n_groups >= len(chunks):
        return [[number] for number in chunks]
    rows = np.array([lengths[number] for number in chunks])
    middles = (np.cumsum(rows) - 0.5 * rows) / rows.sum()
    groups: dict[int, list[int]] = {}
    for number, middle in zip(chunks, middles, strict=True):
        groups.setdefault(int(middle * n_groups), []).append(number)
    return list(groups.values())


def solve(
    program: Resolve,
    problem: Problem,
    followed: Followed | None = None,
    state: Any = None,
    save: Callable[[Save], None] | None = None,
) -> None:
    """Run the program from the start, or from a state that `save` was called with, followed if there is a follower."""
    with one_blas_thread():
        if followed is None:
            run_coroutine(program, problem.rounds, state, save=save)
        else:
            run_coroutine(program, followed, state, report=followed.report, save=save)
    tell_of(problem, program.model)


def tell_of(problem: Any, model: Any) -> None:
    """Warn of columns that are left out, once for each problem."""
    if len(model.dropped) and not problem.told:
        problem.told = True
        _warn_of_dropped(model.dropped)


def fit_each(
    fits: Iterable[Fit],
    models: list[Any],
    problem: Problem,
    followed: Followed,
    checkpointing: Checkpointing,
) -> None:
    """Fit one program after the other, until a callback ends that, and add their models to `models`."""
    resumed = checkpointing.resumed
    for number, (program, job) in enumerate(fits):
        model, state = program.model, resumed.state if number == resumed.target else None
        if number < resumed.target:
            model.restore(resumed.finished[number])
        elif state is None:
            if models:
                model.follow(models[-1])
            if job is not None:
                problem.do(job)
        models.append(model)
        if number >= resumed.target:
            solve(program, problem, followed, state, checkpointing.saver(models))
            if followed.stopped:
                return


def warn_unless_converged(model: Any, max_iter: int, what: str) -> None:
    """Warn if the fit stopped for another reason than its gap."""
    if model.fell_short:
        reason = f"stopped after max_iter={max_iter}" if model.n_iter >= max_iter else f"ended in step {model.n_iter}"
        warnings.warn(
            f"{what} {reason} with a duality gap of {model.gap / model.total_weight:.3g}, "
            f"above the tolerance of {model.tolerance / model.total_weight:.3g}. Increase max_iter or tol, or scale "
            "the columns of X; with fewer updates at a time (n_parallel) random schedules do not diverge.",
            ConvergenceWarning,
            stacklevel=3,
        )


def _warn_of_dropped(columns: NDArray[np.int64]) -> None:
    named = ", ".join(str(column) for column in columns[:5])
    more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
    warnings.warn(
        f"Columns {named}{more} of X vary by less than the rounding of their values, and keep the coefficient 0. "
        "Subtract a value near their mean before they are rounded, or leave them out.",
        UserWarning,
        stacklevel=3,
    )
