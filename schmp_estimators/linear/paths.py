"""How functions that return a path let their input in, and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from schmp_estimators.core.door.inputs import is_dask
from schmp_estimators.core.engine.dynamic import Steps, run_coroutine
from schmp_estimators.core.places.place import Place, begun_anew, choose_place
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.linear import opening as shared
from schmp_estimators.linear.data.samples import Samples, read_samples
from schmp_estimators.linear.opening import Problem, open_rows
from schmp_estimators.linear.programs.matrix import Floats, Indices
from schmp_estimators.linear.programs.model import Model

#: What is fitted, and the weights of samples.
Target = tuple[NDArray[Any], NDArray[Any]]


class Point(NamedTuple):
    """The solution for one penalty, and how its fit ended."""

    penalty: float
    support: Indices
    #: of the support
    coef: Floats
    intercept: float
    gap: float
    tolerance: float
    total_weight: float
    n_iter: int
    fell_short: bool

    @classmethod
    def of(cls, penalty: float, model: Model) -> Point:
        """Return where a model is."""
        support = np.flatnonzero(model.coef)
        end = model.gap, model.tolerance, model.total_weight, model.n_iter, model.fell_short
        return cls(penalty, support, model.coef[support], model.intercept, *end)


class Path(Protocol):
    """The fits of a path, one after the other."""

    model: Any

    def start(self) -> Steps:
        """Solve above all penalties, and return what penalties are to be measured by."""

    def go_to(self, penalty: float) -> Steps:
        """Solve for a penalty."""


class PathProgram:
    """All of a path as a program, which leaves its `points` behind.

    Parameters
    ----------
    path : Path
    penalties : callable
        Makes of what the start returns the penalties, in order.
    what : str
        What a fit is called in warnings, with ``{}`` for its penalty.
    before : job, optional
        What partitions do first.
    """

    def __init__(
        self, path: Path, penalties: Callable[[float], NDArray[np.float64]], what: str, before: Any = None
    ) -> None:
        self.path, self.what, self.points = path, what, list[Point]()
        self._penalties, self._before = penalties, before

    def __call__(self, state: None = None) -> Steps:
        """Return the steps."""
        if self._before is not None:
            yield self._before
        for penalty in self._penalties((yield from self.path.start())).tolist():
            yield from self.path.go_to(penalty)
            self.points.append(Point.of(penalty, self.path.model))


class Solutions(NamedTuple):
    """What a path has come to."""

    #: (k,)
    penalties: Floats
    #: (p, k)
    coefs: Floats
    #: (k,)
    intercepts: Floats
    #: of objectives that are sums over samples, and the weight of these
    gaps: Floats
    weights: Floats

    @classmethod
    def of(cls, points: Sequence[Point], n_columns: int) -> Solutions:
        """Return points side by side."""
        coefs = np.zeros((len(points), n_columns))
        for row, point in zip(coefs, points, strict=True):
            row[point.support] = point.coef
        rest = np.array([(one.penalty, one.intercept, one.gap, one.total_weight) for one in points])
        penalties, intercepts, gaps, weights = np.ascontiguousarray(rest.T)
        return cls(penalties, coefs.T, intercepts, gaps, weights)


def as_they_are(samples: Samples) -> Target:
    """Return the responses and weights of samples."""
    return samples.y.astype(np.float64, copy=False), samples.weights


def run_path(
    name: str,
    make: Callable[[Problem], PathProgram],
    target: Callable[[Samples], Target],
    X: Any,
    y: Any,
    sample_weight: Any,
    max_iter: int,
    at_hand: Callable[[Problem], Solutions | None] = lambda _: None,
    **options: Any,
) -> Solutions:
    """Run a path here, or of an X on Dask on its cluster, and return its solutions.

    Parameters
    ----------
    name : str
        Of the function, for messages.
    make : callable
        Returns the program of the path.
    target : callable
        What to fit.
    X, y, sample_weight : inputs of any kind
    max_iter : int
        Most outer steps for each penalty.
    at_hand : callable, optional
        Returns the solutions if no rounds are needed for them.
    **options
        Further arguments of `sklearn.utils.validation.validate_data` for `y`.
    """
    owner = type(name, (BaseEstimator,), {})()
    chosen: AbstractContextManager[Place] = nullcontext(Place())
    if is_dask(X):
        chosen = choose_place(is_dask=True, label=name)

    def run(place: Place) -> Solutions:
        samples = read_samples(owner, X, y, sample_weight, place=place, **options)
        responses, weights = target(samples)
        partitions = open_rows(owner, samples, responses, weights, place, name="path")
        with partitions as problem, one_blas_thread():
            if (found := at_hand(problem)) is not None:
                return found
            program = make(problem)
            if problem.is_led:
                program = problem.rounds.lead(program)
            else:
                run_coroutine(program, problem.rounds)
            for point in program.points:
                shared.warn_unless_converged(point, max_iter, program.what.format(point.penalty))
            shared.tell_of(problem, program.path.model)
            return Solutions.of(program.points, problem.extent.n_columns)

    with chosen as place:
        return begun_anew(place, lambda: run(place))
