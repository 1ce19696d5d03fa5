"""How functions that return a path let their input in, and run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from schmp_estimators.core.door.inputs import is_dask
from schmp_estimators.core.engines.dynamic import Steps, run_coroutine
from schmp_estimators.core.places.blas import one_blas_thread
from schmp_estimators.core.places.choose import choose_place
from schmp_estimators.core.places.local import LocalPlace
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.places.restores import begun_anew
from schmp_estimators.linear.data.samples import Samples, read_samples
from schmp_estimators.linear.opening import Problem, open_rows

#: What is fitted, and the weights of samples.
Target = tuple[NDArray[Any], NDArray[Any]]


def as_they_are(samples: Samples) -> Target:
    """Return the responses and weights of samples."""
    return samples.y.astype(np.float64, copy=False), samples.weights


def run_path(
    name: str,
    steps: Callable[[Problem], Steps],
    target: Callable[[Samples], Target],
    X: Any,
    y: Any,
    sample_weight: Any,
    n_squared: int = 0,
    **options: Any,
) -> Any:
    """Run a path here, or of an X on Dask on its cluster, and return what it returns.

    Parameters
    ----------
    name : str
        Of the function, for messages.
    steps : callable
        Returns the steps of the path.
    target : callable
        What to fit.
    X, y, sample_weight : inputs of any kind
    n_squared : int
        As in `open_rows`.
    **options
        Further arguments of `sklearn.utils.validation.validate_data` for `y`.
    """
    owner = type(name, (BaseEstimator,), {})()
    chosen: AbstractContextManager[Place] = nullcontext(LocalPlace())
    if is_dask(X):
        chosen = choose_place(is_dask=True, label=name)

    def run(place: Place) -> Any:
        samples = read_samples(owner, X, y, sample_weight, place=place, **options)
        responses, weights = target(samples)
        partitions = open_rows(owner, samples, responses, weights, place, name="path", n_squared=n_squared)
        with partitions as problem, one_blas_thread():
            return run_coroutine(lambda _: steps(problem), problem.rounds)

    with chosen as place:
        return begun_anew(place, lambda: run(place))
