"""Descriptions of parameters, attributes and inputs, and the values that parameters accept.

`described` completes docstrings with these texts: parameters that a docstring leaves out, with
their defaults, and entries that consist of a name only.

The entries
-----------
X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
    Samples.  Dense arrays may be in C or Fortran order; large ones are usually not copied.  Sparse
    input is converted to CSC.  A Dask collection is an array with dense or sparse chunks, a data
    frame, or a list of Delayed objects.  A collection of more than 2²² entries stays on the
    cluster.  X may also be a `~schmp_estimators.genotypes.Genotypes`, or any
    `~schmp_estimators.penalised.Storage`.
sample_weight : array-like or Dask collection of shape (n_samples,)
    Weights of the samples, ≥ 0.
loss : {"squared", "logistic", "multinomial", "poisson", "huber"} or object
    The loss ℓ of a response y and a linear prediction u.  "squared" is ½(y − u)².  "logistic" is
    ln(1 + e^{−yu}) for two classes, coded as y = −1 and y = 1.  "multinomial" is ln Σ_k e^{u_k} −
    u_y for all classes k, each with its own coefficients.  For two classes, the result is the
    difference of their coefficients.  "poisson" is half the deviance of counts y ≥ 0 with the mean
    e^u.  "huber" is Huber's loss with ε = 1.35; `~schmp_estimators.penalised.Huber` accepts another
    ε.  An object must have the methods of `~schmp_estimators.penalised.Loss`.
penalty : {"l1", "elasticnet", "group", "mcp"} or object
    The penalty P.  "l1" is Σ f|β|, with `penalty_factors` f.  "elasticnet" is Σ f(ρ|β| + ½(1 −
    ρ)β²), with the `l1_ratio` ρ.  "group" is Σ f‖β_g‖ over `groups`, where f is by default the
    square root of the number of columns of a group.  "mcp" is the minimax concave penalty with λ =
    f and γ = 3.  An object must have the methods of `~schmp_estimators.penalised.Penalty`.  alpha
    multiplies the whole penalty; for a minimax concave penalty, it multiplies only λ.
alpha : float
    Strength of the penalty, from 1e-300 to 1e300.
C : float
    Weight of the loss relative to the penalty, from 1e-300 to 1e300, as in
    :class:`sklearn.linear_model.LogisticRegression`.
l1_ratio : float
    Weight ρ of absolute values in the penalty, from 1e-6 to 1.  Squares have the weight ½(1 − ρ).
    Cross-validated estimators also accept a list of values, and choose one.
penalty_factors : array-like of shape (n_features,), dict or None
    Factors f ≥ 0 that multiply the penalties of the coefficients.  The factors are not rescaled.  A
    dict or a Series maps names of columns to factors; other columns get 1.  Columns with the factor
    0, such as covariates, are not penalised, and may be linearly dependent.  If None, the factors
    of columns are all 1.
groups : array-like, dict or None
    Groups of columns for penalty="group".  An array has the group of each column.  A list of lists
    has the columns of each group, by number or name.  A dict or a Series maps columns to groups; a
    dict of lists maps groups to columns.  If None, penalty="group" needs loss="multinomial"; the
    coefficients of a column for all classes are then a group.  With groups, `penalty_factors` has
    one factor for each group, by name, or in the order of the lists or of the sorted names.  Groups
    without a factor get the default.
missing_values : float or None
    The value that marks missing entries of X: NaN or a number, such as -1 in int8 genotypes.  The
    fit replaces each missing entry by the mean of the known entries of its column, weighted by
    `sample_weight` and, for classes, `class_weight`.  Predictions use the same means.  In
    cross-validation, each fold uses means over its training samples.  If None, no entry may be
    missing, except in a `~schmp_estimators.penalised.Storage` such as
    `~schmp_estimators.genotypes.Genotypes`.
standardize : bool
    Whether to penalise coefficients as if each column had been divided by its standard deviation.
    Variances are weighted means of squared deviations over the training samples, with the weights
    described at `missing_values`.  Coefficients are in the units of X.  X may be sparse.
fit_intercept : bool
    Whether to fit an intercept b, which is not penalised.  An intercept does not make a sparse X of
    more than 2²² entries dense.
schedule : {"resolve", "priority", "random", "round_robin"} or `~schmp_estimators.schmp.Schedule`
    How coefficients are chosen and updated.  "resolve" solves the problem on a few columns, and
    adds columns until the solution is optimal for all columns.  The other schedules, from papers,
    update several coefficients at a time, each as if the others did not change.  "priority" means
    `schmp.Priority() <schmp_estimators.schmp.Priority>`, which prefers coefficients whose last
    change was large, and does not update correlated ones together (STRADS, [1]_).  "random" means
    `schmp.Random() <schmp_estimators.schmp.Random>`, which draws coefficients uniformly (Shotgun,
    [2]_).  "round_robin" means `schmp.RoundRobin() <schmp_estimators.schmp.RoundRobin>`, which
    takes coefficients in turn.  Pass such an object to set its parameters, or to tune
    ``schedule__n_parallel``.
class_weight : dict, "balanced" or None
    Weights of the classes.  "balanced" weights are inversely proportional to class frequencies.
positive : bool
    Whether coefficients are restricted to be ≥ 0.  Penalty factors of 0 are then not allowed.
max_iter : int
    Maximum number of steps of "resolve".  Each step chooses columns and updates their coefficients.
    For other schedules, maximum number of passes over all coefficients.
warm_start : bool
    Whether to start from the `coef_` and `intercept_` of the previous fit.
n_shards : int or None
    Number of partitions into which the rows are divided.  If None, a Dask collection has a
    partition for each chunk of rows.  Any other X has about one per 2²⁸ stored values, or per 2 GiB
    of a `~schmp_estimators.genotypes.Genotypes`.  With a number, consecutive chunks of a Dask
    collection are joined.
n_jobs : int or None
    Number of threads that work on the partitions.  None means 1, and -1 all processors.  It does
    not change the result, and is not used on a Dask cluster.
checkpoint : str or path-like
    File to which the state of the fit is written every `checkpoint_every` steps and at the end.  It
    is a path, in which ``~`` and environment variables are replaced, or a URL known to fsspec.  If
    the file has a checkpoint of the same fit, the fit continues from there.  The result is then
    bit-for-bit that of an uninterrupted fit.  With one target and at most two classes, `max_iter`
    may be larger than in the earlier fit.  Schedules that draw at random need an int as
    `random_state`.  If the file cannot be written, the fit warns and continues.
checkpoint_every : int
    Number of steps between two checkpoints.  Each step ends with a record in `history_`.
verbose : int or bool
    Whether to show a progress bar with the objective.  It needs the package rich.
random_state : int, RandomState or None
    Seed of schedules that draw at random.  "resolve" and "round_robin" use no random numbers.
eps : float
    Smallest penalty, as a fraction of the largest.  It is used only if `alphas` or `Cs` is an int.
alphas : int or array-like
    Values of alpha, or their number.  With a number, the values are spaced geometrically, down from
    the smallest alpha for which all penalised coefficients are 0.
max_explained : float
    The path ends with the first solution that explains at least this share of the deviance.  The
    share is 0 if all penalised coefficients are 0, and 1 if predictions are exact.  With 1, this
    limit is off.
max_worse : int or None
    The path ends after this number of penalties in a row that are worse on held-out samples than
    the best one before them.  A path function compares deviances of `validation_data`, and returns
    only solutions up to this end.  A cross-validated estimator compares mean errors or scores over
    the folds.  Its results for later penalties are NaN.  If None, this limit is off.
validation_data : tuple
    Held-out samples for `max_worse`, as ``(X, y)`` or ``(X, y, sample_weight)``.
cv : int, cross-validation generator or iterable
    How samples are split into folds.  If None, there are five folds, stratified for a classifier.
coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
    Coefficients; float32 if X is float32, otherwise float64.
sparse_coef_ : sparse array of shape (1, n_features) or (n_targets, n_features)
    `coef_` without its zeros.
intercept_ : float or ndarray of shape (n_targets,)
    Intercept b.
n_iter_ : int or list of int
    Number of steps of "resolve", or of passes over all coefficients by another schedule.
history_ : list of dict
    Records of the steps.  ``iterations``, ``seconds`` and ``samples`` are totals so far;
    ``samples`` counts uses of entries of X or of a Gram matrix.  ``objective`` and ``dual_gap`` are
    scaled so that the loss is a weighted mean.  ``support`` is the number of non-zero coefficients,
    and ``scope`` that of columns that were not skipped.  Schedules other than "resolve" also count
    ``updates`` of coefficients, and ``checked``, the samples used to check correlations.  Records
    of several targets or classes follow one after the other.  The solvers "gram", "columns" and
    "newton" make one record for each target or class.
solver_ : {"gram", "columns", "newton", "rounds", "scheduled"}
    Name of the solver that was used.  A table in :doc:`/user_guide/l1` describes each solver.
classes_ : ndarray of shape (n_classes,)
    Class labels.
cv_n_jobs : int or None
    Number of threads, each of which fits one fold.  None means 1, and -1 all processors.  On a Dask
    cluster, folds are fitted one after the other.
cv_max_iter : int
    Maximum number of steps for each penalty.  Each step chooses columns and updates their
    coefficients.
cv_verbose : int or bool
    Whether to show a progress bar.  It needs the package rich.
alpha_ : float
    Penalty with the smallest mean error over the folds, or the largest of equally good ones.
alpha_1se_ : float
    Largest penalty whose mean error with the chosen `l1_ratio_` is at most the smallest mean error
    plus its standard error.  The model is usually simpler than with `alpha_`, and about as good.
alphas_ : ndarray of shape (n_alphas,) or (n_ratios, n_alphas)
    Penalties, in decreasing order.  If `alphas` is an int and `l1_ratio` a list, there is a row for
    each ratio.
l1_ratio_ : float
    The chosen value of `l1_ratio`.
coefs_path_ : ndarray of shape (n_features, n_penalties) or (n_classes, n_features, n_penalties)
    Coefficients for each penalty with the chosen `l1_ratio_`, fitted to all samples.  If
    `max_worse` has ended the path, coefficients for later penalties are NaN.
intercepts_path_ : ndarray of shape (n_penalties,) or (n_classes, n_penalties)
    Intercepts for each penalty, as in `coefs_path_`.
coef_1se_ : ndarray of the shape of `coef_`
    Coefficients for the penalty `alpha_1se_` or `C_1se_`, fitted to all samples.
intercept_1se_ : float or ndarray of the shape of `intercept_`
    Intercept for the penalty of `coef_1se_`.
n_features_in_ : int
    Number of features.
feature_names_in_ : ndarray of shape (n_features,)
    Names of features, if X has names and all are strings.
fill_values_ : ndarray of shape (n_features,)
    Column means over all samples, which replace missing values in predictions.  Defined with
    `missing_values`, or if X is a `~schmp_estimators.penalised.Storage` whose `may_miss` is True.
TypeError
    If X is a Dask collection other than an array, a data frame or a list of Delayed objects.
CheckpointMismatchError
    If the checkpoint belongs to another fit, or is damaged.
ConvergenceWarning
    If `max_iter`, rounding or divergence ends a fit before the tolerance `tol` is reached.
CheckpointWarning
    If a checkpoint could not be written.
UserWarning
    If the values of a column differ only by rounding errors; its coefficient is then 0.  If a
    dense X has int8 values from -1 to 2, which look like genotypes, and `missing_values` is None.
"""

import inspect
import math
import os
import re
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

from sklearn.metrics import get_scorer_names
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
    StrOptions,
    validate_parameter_constraints,
)

from schmp_estimators.core.inputs.validation import COUNT, NOT_NEGATIVE, SHARE
from schmp_estimators.core.schedules.dynamic import SCHEDULES, Schedule
from schmp_estimators.core.typing import Function, Named
from schmp_estimators.linear.penalties.choose import NO_PENALTY, ONLY_SQUARES, STRONGEST, WEAKEST

T = TypeVar("T", bound=Function)


class _Wide(Interval):
    """An interval whose ends a number of another type, float32, need not be able to hold."""

    def __contains__(self, value: Any) -> bool:
        try:
            return bool(super().__contains__(float(value) if isinstance(value, Real) else value))
        except OverflowError:
            return False


_STRENGTH = _Wide(Real, WEAKEST, STRONGEST, closed="both")

#: By name of a parameter: the values that it takes, beside None where that is the default.
_CONSTRAINTS: Named = {
    "loss": "no_validation",
    "penalty": "no_validation",
    "alpha": [_STRENGTH],
    "C": [_STRENGTH],
    "l1_ratio": [Interval(Real, 1e-6, 1, closed="both")],
    "penalty_factors": ["array-like", dict],
    "groups": ["array-like", dict],
    "missing_values": [_Wide(Real, None, None, closed="neither"), math.nan],
    "standardize": ["boolean"],
    "fit_intercept": ["boolean"],
    "schedule": [StrOptions({"resolve", *SCHEDULES}), Schedule],
    "class_weight": [dict, StrOptions({"balanced"})],
    "positive": ["boolean"],
    "max_iter": [COUNT],
    "tol": [NOT_NEGATIVE],
    "warm_start": ["boolean"],
    "n_shards": [COUNT],
    "n_jobs": [Integral],
    "checkpoint": [str, os.PathLike],
    "checkpoint_every": [COUNT],
    "verbose": ["verbose"],
    "random_state": ["random_state"],
    "eps": [SHARE],
    "max_explained": [Interval(Real, 0, 1, closed="right")],
    "max_worse": [COUNT],
    "validation_data": [tuple, list],
    "alphas": [COUNT, "array-like"],
    "Cs": [COUNT, "array-like"],
    "cv": ["cv_object"],
    "estimator": [HasMethods(["fit", "get_params"])],
    "penalties": [Real, "array-like"],
    "n_halves": [COUNT],
    "threshold": [Interval(Real, 0.5, 1.0, closed="right")],
    "scoring": [StrOptions(set(get_scorer_names())), callable],
}

#: By name: the first line of an entry, and its text.
_KNOWN = {
    found[1].partition(" ")[0]: (found[1], found[2].rstrip())
    for found in re.finditer(r"^(\w.*)\n((?:    .*\n)+)", __doc__ or "", re.MULTILINE)
}


def described(thing: T) -> T:
    """Complete a docstring; for a class, also set constraints and defaults of its parameters."""
    if inspect.isclass(thing) and "__init__" in vars(thing):
        thing._parameter_constraints = _constraints(thing)  # type: ignore[attr-defined]
        thing._defaults = {  # type: ignore[attr-defined]
            name: one.default for name, one in _parameters(thing).items()
        }
    if thing.__doc__:  # there are none under -OO
        thing.__doc__ = _completed(inspect.cleandoc(thing.__doc__), thing)
    return thing


def _completed(text: str, thing: Function) -> str:
    before, rule, rest = text.partition("Parameters\n----------\n")
    if rule:
        entries, _, after = rest.partition("\n\n")
        own = {
            found[1]: found[0].rstrip()
            for found in re.finditer(r"^(\w+) :.*\n(?:    .*\n?)+", entries, re.M)
        }
        parameters = _parameters(thing)
        family = (
            "cv_" if "cv" in parameters or "eps" in parameters else ""
        )  # some parameters mean something else there
        given = [
            own.get(name) or _entry(name, parameter, family)
            for name, parameter in parameters.items()
        ]
        text = before + rule + "\n".join(given) + "\n\n" + after
    return re.sub(r"^(\w+)$(?!\n[- ])", lambda found: _entry(found[1]), text, flags=re.MULTILINE)


def _entry(name: str, parameter: inspect.Parameter | None = None, family: str = "") -> str:
    if name not in _KNOWN:
        return name
    first, text = _KNOWN.get(family + name, _KNOWN[name])
    first = first.removeprefix(family)
    if parameter is not None and parameter.default is not parameter.empty:
        default = parameter.default
        first += f', default="{default}"' if isinstance(default, str) else f", default={default!r}"
    return f"{first}\n{text}"


def _parameters(thing: Function) -> Mapping[str, inspect.Parameter]:
    return {
        name: one for name, one in inspect.signature(thing).parameters.items() if name != "self"
    }


def _constraints(thing: Function) -> Named:
    found = {}
    for name, parameter in _parameters(thing).items():
        if name in _CONSTRAINTS:
            known = _CONSTRAINTS[name]
            found[name] = [*known, None] if parameter.default is None else known
    if "cv" in found and "l1_ratio" in found:
        found["l1_ratio"] = [*found["l1_ratio"], "array-like"]
    return found


#: By name of a parameter: what to take instead of its limit.
_INSTEAD = {
    **dict.fromkeys(("alpha", "C"), NO_PENALTY),
    "l1_ratio": ONLY_SQUARES,
    "eps": "; for one penalty give a list of one, alphas=[0.1] or Cs=[1.0]",
}


def check_values(constraints: Mapping[str, Any], given: Mapping[str, Any], owner: str) -> None:
    """Raise scikit-learn's error if a value is invalid, and say what to take instead."""
    for name, value in given.items():
        try:
            validate_parameter_constraints(constraints, {name: value}, owner)
        except InvalidParameterError as error:
            why = str(error).rstrip(".")
            raise InvalidParameterError(f"{why}{_INSTEAD.get(name, '.')}") from None


def check_arguments(function: Function, given: Mapping[str, Any]) -> None:
    """Raise scikit-learn's error if one of the arguments of a function, in `given`, is invalid."""
    constraints = _constraints(function)
    check_values(constraints, {name: given[name] for name in constraints}, function.__name__)
