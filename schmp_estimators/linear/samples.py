"""Inputs of regression: samples, their responses and their weights.

X may stay on Dask.  Responses and weights come here, 8 bytes for a sample: they are checked, and turned into classes,
by the same code for any kind of input.  `Targets` is what a loss is fitted to.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_n_features,
    _check_sample_weight,
    assert_all_finite,
    check_X_y,
    validate_data,
)

from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.inputs.sparse_arrays import check_sparse
from schmp_estimators.core.inputs.validation import (
    as_numbers,
    check_features,
    check_names,
    check_width,
    explain_not_finite,
    is_dask,
    may_miss,
    name_input,
    refuse_dates,
)
from schmp_estimators.core.later import Later
from schmp_estimators.core.places.place import Place
from schmp_estimators.linear.contracts import declared, is_joint, is_quadratic
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.penalties.choose import refuse_texts
from schmp_estimators.linear.programs.input import Label, Target
from schmp_estimators.linear.programs.matrix import REQUIRED, Storage

da: Any = Later("dask.array")
dask: Any = Later("dask")
#: Bytes from which merging chunks of columns in every fit is worth a warning.
_COSTLY = 1 << 27


class Samples(NamedTuple):
    """Checked samples."""

    X: Any
    y: NDArray[Any]
    #: (n,), or (0,) if there are none
    weights: NDArray[np.float64]
    #: (n_all,) bool, which rows of an X on Dask are used; None for all
    used: NDArray[np.bool_] | None = None

    def rows(self, used: NDArray[np.bool_]) -> Samples:
        """Return the used rows; rows of an X on Dask are left out later, when chunks are joined."""
        if used.all():
            return self
        y, weights = self.y[used], self.weights[used] if len(self.weights) else self.weights
        return (
            Samples(self.X, y, weights, used)
            if is_dask(self.X)
            else Samples(cut(self.X, used), y, weights)
        )


def read_samples(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    place: Place | None = None,
    whole: bool = False,
    **options: Any,
) -> Samples:
    """Check samples of any type, and set the number and names of the features as far as they are known.

    Parameters
    ----------
    estimator : estimator
    X, y, sample_weight : inputs of any kind
    place : Place, optional
        Where `y` and `sample_weight` are computed if they are on Dask; by default in this process.
    whole : bool, default=False
        Whether to keep samples of weight zero, and to search X for values that are not finite.  Otherwise the fit finds
        them, and `explain_sums` explains them.
    **options
        Further arguments of `sklearn.utils.validation.validate_data` for `y`.

    Raises
    ------
    ValueError
        If values or lengths are invalid.  An X on Dask is checked later, when it is opened.
    """
    y, sample_weight = here(y, "y", place), here(sample_weight, "sample_weight", place)
    is_storage, missing = isinstance(X, Storage), may_miss(estimator)
    estimator._labels = X.names if is_storage else getattr(X, "columns", ())
    vars(estimator).pop("fill_values_", None)
    if is_storage or is_dask(X):
        if is_storage:
            check_storage(X, estimator, reset=True)
            if not X.may_miss and estimator.missing_values is not None:
                raise ValueError(
                    f"missing_values={estimator.missing_values!r} is for arrays and sparse matrices; "
                    f"X={type(X).__name__} has to know itself which values are missing, by may_miss"
                )
            if (whole or sample_weight is not None) and not X.may_miss:
                check_finite(X, None)
        else:
            check_features(X, estimator, reset=True)
            _warn_of_columns(X)
        y = check_responses(estimator, y, **options)
        length = getattr(X, "shape", (np.nan,))[0]
        if isinstance(length, int | float) and not np.isnan(length):
            check_length(int(length), len(y))
    else:
        # A fit makes only a few passes over X, and the first one finds NaN.  Rows of weight zero are not in that pass.
        checked = whole or sample_weight is not None
        X, y = check_input(
            estimator,
            X,
            y,
            ensure_all_finite=checked and ("allow-nan" if missing else True),
            **options,
        )
    found = Samples(X, y, check_weights(sample_weight, y))
    return found.rows(found.weights > 0.0) if len(found.weights) and not whole else found


def here(values: Any, name: str, place: Place | None = None) -> Any:
    """Return responses or weights as arrays in memory; raise an error if any is masked."""
    if values is None or not is_dask(values):
        return unmask(values, name)
    pieces = list(values) if isinstance(values, list | tuple) else [values]
    place = place or Place()
    found = [unmask(one, name) for one in place.gather(place.hold(list(map(dask.delayed, pieces))))]
    return found[0] if len(found) == 1 else np.concatenate([np.asarray(piece) for piece in found])


def check_length(n_rows: int, n_responses: int) -> None:
    """Raise scikit-learn's error if X and y have different lengths."""
    if n_rows != n_responses:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {[n_rows, n_responses]} (rows of X, and y)"
        )


def is_nan(value: float | None) -> bool:
    """Return whether a value is NaN."""
    return value is not None and bool(np.isnan(float(value)))


def check_finite(rows: Any, names: Any, missing: float | None = None) -> Any:
    """Return rows of X, whose columns have names or None; raise an error that names columns with NaN or infinity."""
    is_storage = isinstance(rows, Storage)
    pieces = rows.pieces(np.arange(rows.n_columns)) if is_storage else [(None, rows)]
    for _, values in pieces:
        try:
            assert_all_finite(values, allow_nan=is_nan(missing), input_name="X")
        except ValueError as error:
            raise explain_not_finite(error, values, names) from None
    return rows


def explain_sums(error: ValueError, rows: Any, names: Any, missing: float | None) -> ValueError:
    """Return the error to raise if sums over X are not finite: that of `check_finite` if values are not finite."""
    try:
        check_finite(rows, names, missing)
    except ValueError as found:
        return found
    return error


def check_storage(X: Storage, estimator: Any, *, reset: bool) -> None:
    """Set or compare the number of features; raise TypeError if the class of X lacks what it has to define."""
    found = {name: getattr(X, name, None) for name in REQUIRED}
    absent = [
        name
        for name, one in found.items()
        if one is None or getattr(one, "__isabstractmethod__", False)
    ]
    if absent:
        raise TypeError(
            f"X={type(X).__name__} does not define {', '.join(absent)}; "
            f"a penalised.Storage has to define {', '.join(REQUIRED)}"
        )
    names = X.names
    if not len(names):
        validate_data(estimator, X=X, reset=reset, skip_check_array=True)
    elif reset:
        estimator.n_features_in_, estimator.feature_names_in_ = X.n_columns, np.array(names, object)
    elif not np.array_equal(known := getattr(estimator, "feature_names_in_", names), names):
        absent = [name for name in known if name not in set(names)][:5]
        raise ValueError(
            "X has other columns than in fit"
            + (f"; there is no {absent}" if absent else ", or in another order")
        )
    else:
        _check_n_features(estimator, X, reset=False)
    check_width(X.n_columns, estimator)


def check_input(estimator: Any, X: Any, y: Any, **options: Any) -> tuple[Any, NDArray[Any]]:
    """Return X and y as arrays; a dense X keeps an integer or float dtype and its order, a sparse X becomes CSC."""
    X = check_sparse(unmask(X, "X", missing=may_miss(estimator)))
    check_names(X, estimator)
    with name_input(y, "y"), name_input(X):
        refuse_dates(np.asarray(y), "y")
        X, y = validate_data(estimator, X, y, accept_sparse="csc", dtype="numeric", **options)
        return as_numbers(X), _refuse_texts(y, options)


def check_responses(estimator: Any, y: Any, **options: Any) -> NDArray[Any]:
    """Return y as an array of numbers, or of labels; `options` are as in `read_samples`."""
    with name_input(y, "y"):
        refuse_dates(np.asarray(y), "y")
        return _refuse_texts(
            check_X_y(_nothing_but_rows(y), y, estimator=estimator, **options)[1], options
        )


def _refuse_texts(y: NDArray[Any], options: dict[str, Any]) -> NDArray[Any]:
    """Return y, or raise ValueError if responses should be numbers and are texts."""
    if options.get("y_numeric") and y.dtype.kind in "SU":
        raise ValueError(
            f"y has an entry that is no number: {y.flat[0].item()!r}; give numbers, or for classes use "
            'SparseLogisticRegression, or SparseGLM with loss="logistic"'
        )
    return y


def check_weights(sample_weight: Any, y: Any) -> NDArray[np.float64]:
    """Return weights that are ≥ 0 and not all zero, or an empty array if there are none."""
    if sample_weight is None:
        return np.empty(0)
    refuse_texts(refuse_dates(np.asarray(sample_weight), "sample_weight"), "sample_weight")
    found: NDArray[np.float64] = _check_sample_weight(
        sample_weight, _nothing_but_rows(y), dtype=np.float64, ensure_non_negative=True
    )
    return found


def cut(X: Any, rows: Any) -> Any:
    """Return some rows of X."""
    return X.tocsr()[rows].tocsc() if sparse.issparse(X) else X[rows]


def _nothing_but_rows(y: Any) -> NDArray[np.float64]:
    """Return an empty X with as many rows as y, for checks that need an X."""
    return np.broadcast_to(0.0, (np.shape(y)[0] if np.ndim(y) else 1, 1))


def _warn_of_columns(X: Any) -> None:
    if (
        is_dask(X) and isinstance(X, da.Array) and X.numblocks[1] > 1 and not X.nbytes < _COSTLY
    ):  # NaN: unknown
        warnings.warn(
            f"X has {X.numblocks[1]} chunks of columns, which every fit puts together anew. Do it once, with "
            "X = X.rechunk({1: -1}).persist(), or build X with chunks of whole rows.",
            UserWarning,
            stacklevel=6,
        )


_SPREAD = "give a splitter that spreads each class over the folds, such as StratifiedKFold, or fewer folds"
#: Classes up to which scikit-learn does not warn that y may be a response, and integers that float64 can hold.
_FEW, _EXACT = 10, 2.0**53


class Targets(NamedTuple):
    """The responses of a fit, for one target or class after the other."""

    #: (n,), or (n_targets, n)
    responses: np.ndarray
    #: (n,), or (0,) if all are equal
    weights: np.ndarray
    #: the job that partitions do before each fit, or None
    jobs: Sequence[Any]
    #: weight of each sample, if all are equal
    unit: float = 1.0
    classes: np.ndarray | None = None
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


def by_class(coefs: Any, levels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients and intercepts of t solutions as rows of decision functions, (t, k, p) and (t, k).

    The arguments are (t, p) and (t,) for one output, and (t, K, p) and (t, K) for all K classes at once.  Two classes
    have one function, the difference of their functions.
    """
    if coefs.ndim == 2:
        return coefs[:, None], levels[:, None]
    return (
        (coefs[:, 1:] - coefs[:, :1], levels[:, 1:] - levels[:, :1])
        if coefs.shape[1] == 2
        else (coefs, levels)
    )


def classifies(loss: Loss) -> bool:
    """Return whether a loss is for classes, so that y is −1 or 1."""
    return bool(declared(loss, "classifies"))


def reading(loss: Loss) -> dict[str, Any]:
    """Return options of scikit-learn's checks of y."""
    return {} if classifies(loss) else {"multi_output": declared(loss, "signed"), "y_numeric": True}


def find_targets(estimator: Any, samples: Samples) -> Targets:
    """Return the responses to which the loss of an estimator is fitted.

    Raises
    ------
    ValueError
        If y holds one class only, or numbers that are no classes; if the difference of two classes should be positive.
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
            f"y holds one class only, {classes[0]!r} (of samples with positive weight); give samples of two or more"
        )
    if is_joint(loss) and len(classes) == 2 and estimator.positive:
        raise ValueError(
            "positive=True needs more than two classes with a loss of all classes at once, because of two coef_ is the "
            'difference; give loss="logistic"'
        )
    of_classes = class_weights(estimator.class_weight, classes, samples.y, samples.weights)
    weights, unit = without_unit(of_classes)
    jobs = [None] if is_joint(loss) else [Label(k) for k in positives(len(classes))]
    return Targets(codes, weights, jobs, unit, classes)


def positives(n_classes: int) -> Sequence[int]:
    """Return the numbers of the classes that are fitted, each against all others."""
    return range(n_classes) if n_classes > 2 else [1]


def without_unit(weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Return weights, or an empty array if all are equal, and then the weight of each."""
    if len(weights) and (weights == weights[0]).all():
        return np.empty(0), float(weights[0])
    return weights, 1.0


def check_folds(
    targets: Targets, y: np.ndarray, fitted: np.ndarray, folds: Sequence[tuple[Any, Any]], cv: str
) -> None:
    """Raise ValueError if a fold is fitted to one class only, or not to all classes if the loss needs all of them.

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
                f"cv={cv} leaves one class only, {found[0]!r}, to fit a fold to; {_SPREAD}"
            )


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
    if (
        len(classes) > _FEW or not are_integers
    ):  # for other values scikit-learn's slow check would find nothing
        check_classification_targets(y)
    return classes, np.searchsorted(classes, y)


def class_weights(
    class_weight: Any, classes: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Return sample weights times class weights; empty if there are neither."""
    if class_weight is None:
        return weights
    if isinstance(class_weight, dict):
        refuse_texts(list(class_weight.values()), "class_weight")
    given = weights if len(weights) else None
    per_class = compute_class_weight(class_weight, classes=classes, y=y, sample_weight=given)
    factors = per_class[np.searchsorted(classes, y)]
    return factors if given is None else weights * factors
