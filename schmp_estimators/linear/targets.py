"""From the responses of samples to what a loss is fitted to: numbers, or classes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.programs.choose import is_joint, is_quadratic
from schmp_estimators.linear.programs.input import Label, Target
from schmp_estimators.linear.samples import Samples

_SPREAD = "give a splitter that spreads each class over the folds, such as StratifiedKFold, or fewer folds"
#: Classes up to which scikit-learn does not warn that y may be a response, and integers that float64 can hold.
_FEW, _EXACT = 10, 2.0**53


class Targets(NamedTuple):
    """What a loss is fitted to, one target or class after the other."""

    #: (n,), or (n_targets, n)
    responses: np.ndarray
    #: (n,), or (0,) if they are all alike
    weights: np.ndarray
    #: what partitions do before each fit, if anything
    jobs: Sequence[Any]
    #: what each sample weighs, if they weigh alike
    unit: float = 1.0
    classes: np.ndarray | None = None
    #: of each target, what has been taken from its responses
    shifts: Any = 0.0

    @property
    def n_targets(self) -> int:
        """Number of targets; classes are those of one."""
        return len(np.atleast_2d(self.responses))

    def of(self, number: int) -> "Targets":
        """Return one of several targets."""
        shifts = np.broadcast_to(self.shifts, self.n_targets)[number]
        return self._replace(responses=self.responses[number], jobs=[self.jobs[number]], shifts=shifts)

    @property
    def labels(self) -> Sequence[int]:
        """Numbers of the classes that are fitted one after the other, each against all others."""
        return [job.code for job in self.jobs if isinstance(job, Label)]


def of_classes(loss: Any, classes: Any) -> Any:
    """Return a loss, of all classes at once with a decision value for each."""
    return replace(loss, n_outputs=len(classes)) if is_joint(loss) else loss


def by_class(coefs: Any, levels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients and intercepts of t solutions as rows of decision functions, (t, k, p) and (t, k).

    They are (t, p) and (t,) of one output, and of all K classes at once (t, K, p) and (t, K); of two classes there is
    one function, the difference of both.
    """
    if coefs.ndim == 2:
        return coefs[:, None], levels[:, None]
    return (coefs[:, 1:] - coefs[:, :1], levels[:, 1:] - levels[:, :1]) if coefs.shape[1] == 2 else (coefs, levels)


def classifies(loss: Loss) -> bool:
    """Return whether a loss is one of classes: its y is −1 or 1."""
    return bool(getattr(loss, "classifies", False))


def reading(loss: Loss) -> dict[str, Any]:
    """Return how y is to be checked, in scikit-learn's words."""
    return {} if classifies(loss) else {"multi_output": getattr(loss, "signed", True), "y_numeric": True}


def find_targets(loss: Loss, samples: Samples, class_weight: Any, fit_intercept: bool) -> Targets:
    """Return what a loss is fitted to.

    Raises
    ------
    ValueError
        If y holds one class only, or numbers that are no classes.
    """
    if not classifies(loss):
        responses = samples.y.reshape(len(samples.y), -1).T
        weights, unit = without_unit(samples.weights)
        shifted = fit_intercept and getattr(loss, "of_difference", False) and not is_quadratic(loss)
        shifts = responses.mean(axis=-1) if shifted else 0.0  # rounding grows with the intercept
        jobs: list[Any] = [Target(k) if k else None for k in range(len(responses))]
        return Targets(responses - np.reshape(shifts, (-1, 1)), weights, jobs, unit, shifts=shifts)
    classes, codes = find_classes(samples.y)
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only, {classes[0]!r} (of samples with positive weight); give samples of two or more"
        )
    weights, unit = without_unit(class_weights(class_weight, classes, samples.y, samples.weights))
    jobs = [None] if is_joint(loss) else [Label(k) for k in positives(len(classes))]
    return Targets(codes, weights, jobs, unit, classes)


def positives(n_classes: int) -> Sequence[int]:
    """Return the numbers of the classes that are fitted, each against all others."""
    return range(n_classes) if n_classes > 2 else [1]


def without_unit(weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Return weights, none if they are all alike, and what each is then."""
    if len(weights) and (weights == weights[0]).all():
        return np.empty(0), float(weights[0])
    return weights, 1.0


def check_folds(targets: Targets, y: np.ndarray, fitted: np.ndarray, folds: Sequence[tuple[Any, Any]], cv: str) -> None:
    """Raise ValueError if a fold is fitted to samples of one class, or not to all, if the loss is one of all.

    `y` and `fitted` are of all samples: labels, and whether they are fitted at all.
    """
    for train, _ in folds if targets.classes is not None else ():
        found = np.unique(y[train][fitted[train]])
        count = 0 if targets.classes is None else len(targets.classes)
        if not targets.labels and len(found) < count:
            raise ValueError(f"cv={cv} leaves {len(found)} of {count} classes to fit a fold to; {_SPREAD}")
        if len(found) < 2:
            raise ValueError(f"cv={cv} leaves one class only, {found[0]!r}, to fit a fold to; {_SPREAD}")


def find_classes(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
    if len(classes) > _FEW or not are_integers:  # of others scikit-learn would have nothing to say, after a long look
        check_classification_targets(y)
    return classes, np.searchsorted(classes, y)


def class_weights(class_weight: Any, classes: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sample weights times class weights; empty if there are neither."""
    if class_weight is None:
        return weights
    given = weights if len(weights) else None
    per_class = compute_class_weight(class_weight, classes=classes, y=y, sample_weight=given)
    factors = per_class[np.searchsorted(classes, y)]
    return factors if given is None else weights * factors
