"""Any loss and any penalty: the solvers of the estimators, for those who bring their own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from schmp_estimators.core.door.masks import unmask
from schmp_estimators.core.places.place import Place, begun_anew, choose_place
from schmp_estimators.linear import opening as shared
from schmp_estimators.linear.data.samples import read_samples
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.penalties.base import Penalty, fields_of
from schmp_estimators.linear.programs.choose import kind_of, make_model, make_program
from schmp_estimators.linear.texts import check_arguments

_OPTIONS = (
    *("fit_intercept", "schedule", "max_iter", "tol", "n_parallel", "max_correlation", "pipeline_depth"),
    *("n_schedulers", "n_shards", "n_jobs", "random_state"),
)


class Minimum(NamedTuple):
    """What `minimise` has found.

    Parameters
    ----------
    coef : ndarray of shape (n_features,)
        Coefficients β.
    intercept : float
        Intercept b.
    objective : float
        Σ s ℓ + P(β) there.
    dual_gap : float or None
        The objective is at most this far from its minimum; None where loss or penalty have no duality gap.
    stationarity : float or None
        Where there is no gap: what steps of single coefficients could lower the objective by, about.
    converged : bool
        Whether the one or the other is within the tolerance.
    n_iter : int
        Outer steps made ("resolve") or passes over all coefficients (other schedules).
    history : list of dict
        One record per certificate, see `PrioritizedLasso`; objective and dual_gap per unit of sample weight.
    """

    coef: NDArray[np.float64]
    intercept: float
    objective: float
    dual_gap: float | None
    stationarity: float | None
    converged: bool
    n_iter: int
    history: list[dict[str, float]]


def minimise(
    X: Any,
    y: Any,
    *,
    loss: Loss,
    penalty: Penalty,
    sample_weight: Any = None,
    fit_intercept: bool = True,
    schedule: str = "resolve",
    max_iter: int = 1000,
    tol: float = 1e-6,
    n_parallel: int = 64,
    max_correlation: float | None = None,
    pipeline_depth: int = 1,
    n_schedulers: int = 1,
    n_shards: int | None = None,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> Minimum:
    """Minimise Σ s_i ℓ(y_i, x_iᵀβ + b) + P(β) over coefficients β and an intercept b, which is not penalised.

    It runs where the input is: in this process, or on the Dask cluster of the current client, with the same bits.

    Parameters
    ----------
    X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
        Samples, as `PrioritizedLasso` takes them.
    y : array-like or Dask collection of shape (n_samples,)
        Numbers that the loss knows how to compare with predictions: −1 and 1 for `Logistic`, ≥ 0 for `Poisson`.
    loss : Loss
        `Squared`, `Logistic`, `Poisson`, `Huber`, or one of your own.
    penalty : Penalty
        `L1`, `ElasticNet`, `MCP`, or one of your own.  Its strength is in the units of the sum over samples, not of
        their mean.
    sample_weight : array-like or Dask collection of shape (n_samples,), default=None
        Weights s ≥ 0 of the samples.
    fit_intercept : bool, default=True
        Whether to fit b.
    schedule, max_iter, n_parallel, max_correlation, pipeline_depth, n_schedulers, n_shards, n_jobs, random_state
        As in `PrioritizedLasso`.
    tol : float, default=1e-6
        Gap to reach, or stationarity where there is no gap, as a part of the objective at zero coefficients and the
        best intercept (for squared loss: of Σ s y² of the centred response; for `Logistic`: of the intercept zero).
        A fit that falls short says so by `Minimum.converged`.

    Returns
    -------
    Minimum

    Raises
    ------
    TypeError
        If the schedule needs what the loss or the penalty does not have.
    ValueError
        If X, y or the weights are masked, not finite, empty or of different lengths, or a parameter is not what it
        should be.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators.penalised import L1, Squared, minimise
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 50))
    >>> found = minimise(X, X[:, 0] - X[:, 1], loss=Squared(), penalty=L1(5.0))
    >>> np.flatnonzero(found.coef).tolist(), found.converged
    ([0, 1], True)
    """
    given = locals()
    options = {name: given[name] for name in _OPTIONS}
    check_arguments(minimise, given)
    kind_of(schedule, loss, penalty)
    asked = _Asked(loss=loss, penalty=penalty, **options)
    dask = shared.any_dask(X, y, sample_weight)
    with choose_place(n_jobs, is_dask=dask, label="schmp-minimise") as place:
        return begun_anew(place, lambda: asked.run(place, X, y, sample_weight))


class _Asked(BaseEstimator):
    """The parameters of one call, for those who read input for estimators."""

    def __init__(self, **parameters: Any) -> None:
        self.__dict__.update(parameters)

    loss: Any
    penalty: Any
    schedule: str

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return []

    def run(self, place: Place, X: Any, y: Any, sample_weight: Any) -> Minimum:
        """Return the minimum."""
        loss, fields = self.loss, fields_of(self.penalty)
        penalty = type(self.penalty)(*(unmask(field, "penalty") for field in fields))
        samples = read_samples(self, X, y, sample_weight, place=place, y_numeric=True)
        options = {"n_shards": self.__dict__["n_shards"], "name": "minimise"}
        is_shifted = self.__dict__["fit_intercept"] and getattr(loss, "of_difference", False)
        shift = float(samples.y.mean()) if is_shifted and not getattr(loss, "constant_curvature", False) else 0.0
        with shared.open_rows(self, samples, samples.y - shift, samples.weights, place, **options) as problem:
            _check_columns(penalty, problem.extent.n_columns)
            asked: Any = self
            model = make_model(asked, loss, penalty, problem.extent, problem.n_partitions)
            random = check_random_state(self.__dict__["random_state"])
            program = make_program(asked, loss, model, problem.extent, random)
            shared.solve(program, problem)
        gap = float(model.certified_gap)
        return Minimum(
            coef=model.coef,
            intercept=model.intercept + shift,
            objective=float(model.objective),
            dual_gap=gap if model.certified else None,
            stationarity=None if model.certified else gap,
            converged=not model.fell_short,
            n_iter=max(1, model.n_iter),
            history=model.history,
        )


def _check_columns(penalty: Penalty, n_columns: int) -> None:
    for field in fields_of(penalty):
        if np.ndim(field) and np.shape(field) != (n_columns,):
            raise ValueError(
                f"penalty holds an array of shape {np.shape(field)}; give one number for all columns of X, or an array "
                f"of shape ({n_columns},)"
            )
