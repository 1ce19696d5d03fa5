"""Targets: what a loss is fitted to, responses as they are, or classes as numbers and labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from schmp_estimators.core.typing import Array
from schmp_estimators.linear.contracts import classifies, declared, is_joint, is_quadratic
from schmp_estimators.linear.losses.base import weigh
from schmp_estimators.linear.penalties.choose import refuse_texts
from schmp_estimators.linear.programs.input import Label, Target
from schmp_estimators.linear.programs.jobs import SMALLEST_NORM
from schmp_estimators.linear.samples import Samples

_SPREAD = (
    "give a splitter that spreads each class over the folds, such as StratifiedKFold, or fewer "
    "folds"
)
#: Classes up to which scikit-learn does not warn that y may be a response, and integers that
#: float64 can hold.
_FEW = 10
_EXACT = 2.0**53


class Targets(NamedTuple):
    """The responses of a fit, for one target or class after the other."""

    #: (n,), or (n_targets, n)
    responses: Array
    #: (n,), or (0,) if all are equal
    weights: Array
    #: the job that partitions do before each fit, or None
    jobs: Sequence[Any]
    #: weight of each sample, if all are equal
    unit: float = 1.0
    classes: Array | None = None
    #: for each target, the number that was subtracted from its responses
    shifts: Any = 0.0

    @property
    def n_targets(self) -> int:
        """Number of targets; all classes belong to one target."""
        return len(np.atleast_2d(self.responses))

    def of(self, number: int) -> Targets:
        """Return one of several targets."""
        shifts = np.broadcast_to(self.shifts, self.n_targets)[number]
        return self._replace(
            responses=self.responses[number], jobs=[self.jobs[number]], shifts=shifts
        )

    @property
    def labels(self) -> Sequence[int]:
        """Numbers of the classes that are fitted one after the other, each against all others."""
        return [job.code for job in self.jobs if isinstance(job, Label)]


def of_classes(loss: Any, classes: Any) -> Any:
    """Return a loss; a loss of all classes at once learns their number."""
    return replace(loss, n_outputs=len(classes)) if is_joint(loss) else loss


def by_class(coefs: Any, levels: Any) -> tuple[Array, Array]:
    """Return coefficients (t, k, p) and intercepts (t, k) of k decision functions of t solutions.

    The arguments are (t, p) and (t,) for one output, and (t, K, p) and (t, K) for all K classes at
    once.  Two classes have one function, the difference of their functions.
    """
    if coefs.ndim == 2:
        return coefs[:, None], levels[:, None]
    return (
        (coefs[:, 1:] - coefs[:, :1], levels[:, 1:] - levels[:, :1])
        if coefs.shape[1] == 2
        else (coefs, levels)
    )


def find_targets(estimator: Any, samples: Samples) -> Targets:
    """Return the responses to which the loss of an estimator is fitted.

    Raises
    ------
    ValueError
        If y holds one class only, or numbers that are no classes; if the difference of two classes
        should be positive.
    """
    loss = estimator._loss()
    if not classifies(loss):
        responses = samples.y.reshape(len(samples.y), -1).T
        weights, unit = without_unit(samples.weights)
        shifted = (
            estimator.fit_intercept and declared(loss, "of_difference") and not is_quadratic(loss)
        )
        jobs: list[Any] = [Target(k) if k else None for k in range(len(responses))]
        if not shifted:
            return Targets(responses, weights, jobs, unit)
        shifts = responses.mean(axis=-1)  # rounding grows with the intercept
        return Targets(responses - shifts[:, None], weights, jobs, unit, shifts=shifts)
    classes, codes = find_classes(samples.y)
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only, {classes.tolist()[0]!r} (of samples with positive weight); "
            "give samples of two or more"
        )
    if is_joint(loss) and len(classes) == 2 and estimator.positive:
        raise ValueError(
            "positive=True needs more than two classes with a loss of all classes at once, because "
            'of two coef_ is the difference; give loss="logistic"'
        )
    of_classes = class_weights(estimator.class_weight, classes, samples.y, samples.weights)
    weights, unit = without_unit(of_classes)
    jobs = [None] if is_joint(loss) else [Label(k) for k in positives(len(classes))]
    return Targets(codes, weights, jobs, unit, classes)


def positives(n_classes: int) -> Sequence[int]:
    """Return the numbers of the classes that are fitted, each against all others."""
    return range(n_classes) if n_classes > 2 else [1]


def without_unit(weights: Array) -> tuple[Array, float]:
    """Return weights, or an empty array if all are equal, and then the weight of each."""
    if len(weights) and (weights == weights[0]).all():
        return np.empty(0), float(weights[0])
    return weights, 1.0


def check_folds(
    targets: Targets, y: Array, fitted: Array, folds: Sequence[tuple[Any, Any]], cv: str
) -> None:
    """Raise ValueError if a fold is fitted to one class only, or to less than the loss needs.

    `y` and `fitted` have the labels of all samples, and whether each is ever fitted.
    """
    for train, _ in folds if targets.classes is not None else ():
        found = np.unique(y[train][fitted[train]])
        count = 0 if targets.classes is None else len(targets.classes)
        if not targets.labels and len(found) < count:
            raise ValueError(
                f"cv={cv} leaves {len(found)} of {count} classes to fit a fold to; {_SPREAD}"
            )
        if len(found) < 2:
            raise ValueError(
                f"cv={cv} leaves one class only, {found.tolist()[0]!r}, to fit a fold to; {_SPREAD}"
            )


def find_classes(y: Array) -> tuple[Array, Array]:
    """Return the classes, in order, and for each sample the number of its own.

    Raises
    ------
    ValueError
        If y holds numbers that are no classes.
    """
    if y.dtype.kind not in "biuf":
        check_classification_targets(y)
        return np.unique(y, return_inverse=True)
    classes = np.unique(y)
    numbers = classes.astype(np.float64)
    are_integers = (abs(numbers) < _EXACT).all() and (numbers == np.floor(numbers)).all()
    if (
        len(classes) > _FEW or not are_integers
    ):  # for other values scikit-learn's slow check would find nothing
        check_classification_targets(y)
    return classes, np.searchsorted(classes, y)


def class_weights(class_weight: Any, classes: Array, y: Array, weights: Array) -> Array:
    """Return sample weights times class weights; empty if there are neither."""
    if class_weight is None:
        return weights
    if isinstance(class_weight, dict):
        refuse_texts(list(class_weight.values()), "class_weight")
    given = weights if len(weights) else None
    per_class = compute_class_weight(class_weight, classes=classes, y=y, sample_weight=given)
    factors = per_class[np.searchsorted(classes, y)]
    return factors if given is None else weights * factors


def check_sizes(responses: Array, weights: Array) -> None:
    """Raise ValueError if squares of responses overflow, or underflow although one varies."""
    with np.errstate(over="ignore", invalid="ignore"):
        apart = responses - responses.sum(axis=1, keepdims=True) / responses.shape[1]
        total, spread = (np.vecdot(one, weigh(weights, one)) for one in (responses, apart))
    tiny = spread < SMALLEST_NORM
    is_finite = np.isfinite(total).all()
    if is_finite and not (tiny.any() and np.ptp(responses[tiny], axis=1).any()):
        return
    largest = np.abs(responses).max()
    heaviest = f" and sample weights up to {weights.max():.3g}" if len(weights) else ""
    flow, way = ("underflow", "multiply") if is_finite else ("overflow", "divide")
    raise ValueError(
        f"y holds values up to {largest:.3g} in size{heaviest}, whose squares {flow} float64; "
        f"{way} y {'or sample_weight ' if heaviest else ''}by a power of ten, and alpha with y"
    )
