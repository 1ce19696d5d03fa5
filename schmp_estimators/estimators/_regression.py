"""What the L1-penalised estimators share: validated input, weights, the run, the warning when it fell short."""

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from threadpoolctl import ThreadpoolController

from schmp_estimators.engines.dynamic import run_rounds
from schmp_estimators.programs.regression_input import default_partitions, is_sparse, split_rows
from schmp_estimators.programs.regression_model import Model
from schmp_estimators.runtime.rounds import LocalRounds

_ROWS_AT_A_TIME = 1 << 24  # elements converted at once when integers are predicted from


@functools.cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread: bits differ between one and two, and candidate sets are small."""
    with _thread_pools().limit(limits=1, user_api="blas"):
        yield


def check_input(estimator: Any, X: Any, y: Any, **options: Any) -> tuple[Any, np.ndarray]:
    """Return X and y as arrays; dense X keeps integer and float dtypes and its order, sparse X comes by columns."""
    return validate_data(estimator, X, y, accept_sparse="csc", dtype="numeric", **options)


def check_weights(sample_weight: Any, X: Any) -> np.ndarray | None:
    """Return weights that are ≥ 0 and not all zero, or None if there are none."""
    if sample_weight is None:
        return None
    return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)


def drop_weightless(X: Any, y: np.ndarray, weights: np.ndarray | None) -> tuple[Any, np.ndarray, np.ndarray]:
    """Leave rows of weight zero out; no weights become an empty array."""
    if weights is None:
        return X, y, np.empty(0)
    used = weights > 0.0
    if not used.all():
        X, y, weights = (X.tocsr()[used].tocsc() if is_sparse(X) else X[used]), y[used], weights[used]
    return X, y, weights


def open_rows(X: Any, target: np.ndarray, weights: np.ndarray, n_shards: int | None, n_threads: int) -> LocalRounds:
    """Return the row partitions of a problem, ready for rounds."""
    count = default_partitions(X) if n_shards is None else min(n_shards, X.shape[0])
    target = np.ascontiguousarray(target, dtype=np.float64)
    return LocalRounds(split_rows(X, target, weights, count), n_threads)


def retarget(rows: LocalRounds, target: np.ndarray, zero_state: bool = False) -> None:
    """Give the partitions another response; what they have gathered of X stays."""
    start, partitions = 0, []
    for part in rows.partitions:
        stop = start + part.matrix.n_rows
        state = np.zeros(part.matrix.n_rows) if zero_state else part.state
        partitions.append(part._replace(target=np.ascontiguousarray(target[start:stop]), state=state))
        start = stop
    rows.partitions = partitions


def n_threads(n_jobs: int | None) -> int:
    """Return the number of threads that `n_jobs` asks for."""
    return effective_n_jobs(n_jobs)


def solve(program: Any, model: Model, rows: LocalRounds, pipeline_depth: int = 1) -> None:
    """Run the program from the start."""
    program.init(model)
    with one_blas_thread():
        run_rounds(program, model, rows, pipeline_depth)


def go_on(program: Any, model: Model, rows: LocalRounds, penalty: float) -> None:
    """Run the program from its last solution with another penalty."""
    with one_blas_thread():
        program.restart(model, penalty)
        run_rounds(program, model, rows)


def warn_unless_converged(model: Model, max_iter: int, what: str) -> None:
    """Warn if the fit stopped for another reason than its gap."""
    if not model.gap <= model.tolerance:
        warnings.warn(
            f"{what} stopped after max_iter={max_iter} with a duality gap of {model.gap / model.total_weight:.3g}, "
            f"above the tolerance of {model.tolerance / model.total_weight:.3g}. Increase max_iter or tol, or scale "
            "the columns of X; with fewer updates at a time (n_parallel) random schedules do not diverge.",
            ConvergenceWarning,
            stacklevel=3,
        )


def decision_values(estimator: Any, X: Any) -> np.ndarray:
    """Return X·coef_ᵀ + intercept_."""
    check_is_fitted(estimator)
    X = validate_data(estimator, X, accept_sparse=("csr", "csc"), dtype="numeric", reset=False)
    coef = np.asarray(estimator.coef_, dtype=np.float64).T
    if is_sparse(X) or X.dtype.kind == "f":
        return safe_sparse_dot(X, coef, dense_output=True) + estimator.intercept_
    step = max(1, _ROWS_AT_A_TIME // X.shape[1])
    parts = [X[start : start + step].astype(np.float64) @ coef for start in range(0, len(X), step)]
    return np.concatenate(parts) + estimator.intercept_
