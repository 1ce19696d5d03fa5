"""Descriptions of parameters, attributes and inputs, and the values that parameters accept.

`described` completes docstrings with these texts.  It adds the parameters that a docstring does not
describe, with their defaults, in the order of the signature.  It also completes every other entry
that consists of a name only.

The entries
-----------
X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
    Samples.  Dense arrays of floats or integers are not copied, in C or Fortran order; sparse input
    is converted to CSC.  In a Dask array with dense or sparse chunks, a Dask data frame, or a list
    of Delayed objects, each chunk of rows is a partition.  An X of more than 2²² entries stays on
    the cluster.  Other forms of X are `~schmp_estimators.genotypes.Genotypes` and any
    `~schmp_estimators.penalised.Storage`.
sample_weight : array-like or Dask collection of shape (n_samples,)
    Weights of the samples, ≥ 0.
loss : {"squared", "logistic", "multinomial", "poisson", "huber"} or object
    The loss ℓ of a prediction u.  "squared": ½(y − u)².  "logistic": ln(1 + e^{−yu}) for two
    classes, coded as y = −1 and y = 1.  "multinomial": ln Σ e^{u_k} − u_y for all classes at once,
    with coefficients for each; two classes have one set of coefficients.  "poisson": half the
    deviance of counts y ≥ 0 with the mean e^u.  "huber": Huber's loss with ε = 1.35;
    `~schmp_estimators.penalised.Huber` takes another ε.  Or an object: see
    `~schmp_estimators.penalised.Loss`.
penalty : {"l1", "elasticnet", "group", "mcp"} or object
    The penalty P.  "l1": Σ f|β|.  "elasticnet": Σ f(ρ|β| + ½(1 − ρ)β²).  "group": Σ f‖β_g‖ over
    `groups`, by default with the square roots of their sizes as f.  "mcp": the minimax concave
    penalty with γ = 3.  Or an object, which the fit multiplies by alpha: see
    `~schmp_estimators.penalised.Penalty`.
alpha : float
    Strength of the penalty, from 1e-300 to 1e300.
C : float
    Weight of the loss relative to the penalty, from 1e-300 to 1e300, as in
    :class:`sklearn.linear_model.LogisticRegression`.
l1_ratio : float
    Share ρ of absolute values in the penalty, from 1e-6 to 1; the rest is squares.
    Cross-validation also accepts a list of values, and chooses one.
penalty_factors : array-like of shape (n_features,), dict or None
    Factors f ≥ 0 by which the penalty of each coefficient is multiplied; they are not rescaled.  A
    dict or a Series gives factors by the names of columns; other columns get 1.  Columns with
    factor 0, such as covariates, are not penalised, and may be linearly dependent.  None: all get
    the factor 1.
groups : array-like, dict or None
    For penalty="group": the group of each column, or a list of the columns of each group, by number
    or name.  A dict or a Series maps columns to groups; a dict of lists maps groups to columns.
    None: each column is a group of its own, with its coefficients for all classes.
    `penalty_factors` then has a factor for each group, in their order or by name; a group without a
    factor gets the square root of its size.
missing_values : float or None
    What stands for a missing value in X: NaN or a number, such as -1 in int8 genotypes.  In a fit a
    missing value counts as the mean of the known values of its column, weighted by `sample_weight`
    times `class_weight`.  Predictions use the same means.  In cross-validation each fold has the
    means of the rows that it fits.  None: no values are missing, except missing genotypes.
standardize : bool
    Whether to penalise coefficients as if each column had been divided by its standard deviation
    over the rows that are fitted, with the divisor n and the weights of `missing_values`.
    Coefficients are in the units of X.  X is neither copied nor centred, so it may be sparse.
fit_intercept : bool
    Whether to fit the intercept b, which is not penalised.  X is then centred implicitly: no dense
    or centred copy of it is made.
schedule : {"resolve", "priority", "random", "round_robin"} or `~schmp_estimators.schmp.Schedule`
    How coefficients are chosen and updated.  "resolve" solves the problem on a growing working set
    of columns.  The others come from papers: they update some coefficients at a time from the same
    residual.  "priority" stands for `schmp.Priority() <schmp_estimators.schmp.Priority>`, which
    prefers coefficients whose last change was large, and drops correlated ones (STRADS, [1]_).
    "random", `schmp.Random() <schmp_estimators.schmp.Random>`, draws them uniformly (Shotgun,
    [2]_).  "round_robin", `schmp.RoundRobin() <schmp_estimators.schmp.RoundRobin>`, takes them in
    turn.  Pass such an object to set how many are updated at a time, or to search for the best
    ``schedule__n_parallel``.
class_weight : dict, "balanced" or None
    Weights of the classes; "balanced": inversely proportional to their frequencies.
positive : bool
    Whether coefficients are restricted to be ≥ 0.  It cannot be combined with penalty factors of
    zero.
max_iter : int
    Maximum number of outer steps of "resolve", each of which solves for some columns.  For the
    other schedules, maximum number of passes over all coefficients.
warm_start : bool
    Whether to start from the present `coef_` and `intercept_`.
n_shards : int or None
    Number of partitions of the rows.  None: about one per 2²⁸ stored values, or one per chunk of
    rows of a Dask collection.  For a Dask collection `n_shards` joins consecutive chunks.
n_jobs : int or None
    Number of threads that work on the partitions in this process; None means 1, -1 all processors.
    It does not change the result.  Not used on a Dask cluster.
checkpoint : str or path-like
    Path (``~`` and environment variables are replaced) or URL known to fsspec, to which the state
    is written every `checkpoint_every` steps and at the end.  A fit that finds its own checkpoint
    there continues from it, with bit-for-bit the same result; `max_iter` may be larger.  Schedules
    that draw need an int as `random_state`.  If it cannot be written, the fit warns and continues.
checkpoint_every : int
    Number of steps between two checkpoints; each step ends with a duality gap.
verbose : int or bool
    Whether to show a progress bar, with the objective and samples per second.  It needs the package
    rich.
random_state : int, RandomState or None
    Seed of schedules that draw; "resolve" and "round_robin" use no random numbers.
eps : float
    Ratio of the smallest to the largest penalty, if `alphas` or `Cs` is a number.
alphas : int or array-like
    Penalties, or their number.
max_explained : float
    The path ends with the first penalty whose solution explains this share of the deviance.  The
    share is 0 if all penalised coefficients are 0, and 1 if predictions are exact.  1: the path
    goes to the last penalty.
max_worse : int or None
    The path ends when `max_worse` penalties in a row have been worse than the best one before them,
    on samples that are not fitted.  A path function compares the deviance of `validation_data`, and
    returns what it has solved for until then.  Cross-validation compares the mean over folds.
    Later penalties have NaN, and are never chosen.  None: the path goes to the last penalty.
validation_data : tuple
    ``(X, y)`` or ``(X, y, sample_weight)``: samples that are not fitted, for `max_worse`.
cv : int, cross-validation generator or iterable
    How samples are split.  None: five folds, stratified if y holds classes.
coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
    Coefficients; float32 if X is, otherwise float64.
sparse_coef_ : sparse array of shape (1, n_features) or (n_targets, n_features)
    `coef_` without its zeros.
intercept_ : float or ndarray of shape (n_targets,)
    Intercept b.
n_iter_ : int or list of int
    Number of outer steps ("resolve"), or of passes over all coefficients (other schedules).
history_ : list of dict
    One record per step: iterations, seconds, samples (entries of X and of Gram matrices that were
    used), objective and dual_gap (both divided by the sum of sample weights), support (non-zero
    coefficients), scope (columns that were not skipped).  Schedules of the papers add updates (of
    coefficients) and checked (samples that were used to check correlations).  The records of
    several targets or classes follow one after the other.  The solvers "gram", "columns" and
    "newton" make one record for each target or class.
moves_ : named tuple, or list of them
    If the schedule has `moved_above`: ``n_updates`` and ``last_moved``, two arrays of shape
    (n_features,).  They are the number of updates of each coefficient, and the passes over all
    coefficients after which it last changed by more than `moved_above`.  With several targets or
    classes there is one named tuple for each.
solver_ : {"gram", "columns", "newton", "rounds", "scheduled"}
    Name of the solver that was used; the user guide has a table.
classes_ : ndarray of shape (n_classes,)
    Class labels.
cv_n_jobs : int or None
    Number of folds that are fitted at a time, in threads; None means 1, -1 all processors.  Not
    used on a Dask cluster, where folds are fitted one after the other.
cv_max_iter : int
    Maximum number of outer steps for each penalty.  Each step solves for some columns.
cv_verbose : int or bool
    Whether to show a progress bar.  It needs the package rich.
alpha_ : float
    Penalty with the smallest mean error over folds; of equally good ones, the largest.
alpha_1se_ : float
    Largest penalty whose mean error is at most one standard error above the smallest: a simpler
    model that is about as good.  The standard error is that of the smallest mean error.
alphas_ : ndarray of shape (n_alphas,) or (n_ratios, n_alphas)
    Penalties, in falling order.  If `alphas` is a number and `l1_ratio` has several values, there
    is a row for each of these values.
l1_ratio_ : float
    The chosen value of `l1_ratio`.
coefs_path_ : ndarray of shape (n_features, n_penalties) or (n_classes, n_features, n_penalties)
    Coefficients along the path with `l1_ratio_`, fitted to all samples.  If `max_worse` has ended
    the path, those of later penalties are NaN.
intercepts_path_ : ndarray of shape (n_penalties,) or (n_classes, n_penalties)
    Intercepts along the same path.
coef_1se_ : ndarray of the shape of `coef_`
    Coefficients with the penalty `alpha_1se_` or `C_1se_`, fitted to all samples.
intercept_1se_ : float or ndarray of the shape of `intercept_`
    Intercept with the same penalty.
n_features_in_ : int
    Number of features.
feature_names_in_ : ndarray of shape (n_features,)
    Names of features, if X has names and all are strings.
fill_values_ : ndarray of shape (n_features,)
    Means of the columns, which stand for missing values, also in predictions.  Only with
    `missing_values` or genotypes.
TypeError
    If X is a Dask collection other than an array, a data frame or a list of Delayed objects.
CheckpointMismatchError
    If the checkpoint belongs to another fit, or is damaged.
ConvergenceWarning
    If the gap is above the tolerance after `max_iter`, or when rounding ends the fit earlier.
CheckpointWarning
    If a checkpoint could not be written.
UserWarning
    If columns vary by less than the rounding of their values; their coefficients remain 0.  If X
    holds int8 values from -1 to 2, and `missing_values` is None.
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
