"""What parameters, attributes and inputs mean, and which values parameters take: once for all classes and functions.

`described` completes docstrings: parameters that a docstring does not explain itself get the text that stands here,
with their defaults, in the order of the signature, and so does any other entry that is only named.

The entries
-----------
X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
    Samples.  Dense arrays of floats and integers are read as they are, in either order; sparse input is read
    by columns.  A Dask array with dense or sparse chunks, a Dask data frame or a list of Delayed objects stays
    where it is: each chunk of rows makes a partition.
sample_weight : array-like or Dask collection of shape (n_samples,)
    Weights of the samples, ≥ 0.
loss : {"squared", "logistic", "multinomial", "poisson", "huber"} or object
    The loss ℓ: ½(y − u)² of a prediction u; ln(1 + e^{−yu}) of two classes −1 and 1, which may be named otherwise; that
    of all classes at once, ln Σ e^{u_k} − u_y, with coefficients for each, of two classes their difference; half
    the deviance of counts y ≥ 0 with the mean e^u; that of Huber with ε = 1.35, or
    `~schmp_estimators.penalised.Huber` with another ε; or one of your own: see `~schmp_estimators.penalised.Loss`.
penalty : {"l1", "elasticnet", "group", "mcp"} or object
    The penalty P: Σ f|β|; Σ f(ρ|β| + ½(1 − ρ)β²); Σ f‖β_g‖ of `groups`, with a factor for each, by default the roots of
    their sizes, for X of up to 2²² entries, as is "multinomial"; the minimax concave one with γ = 3; or one of your
    own, of strength one: see `~schmp_estimators.penalised.Penalty`.
alpha : float
    Strength of the penalty, from 1e-300 to 1e300.
C : float
    Weight of the loss against the penalty, from 1e-300 to 1e300; as in
    :class:`sklearn.linear_model.LogisticRegression`.
l1_ratio : float
    Part ρ of the penalty that is absolute values, from 1e-6 to 1; the rest is squares.  Cross-validation also takes a
    list, and chooses one of them.
penalty_factors : array-like of shape (n_features,), dict or None
    Factors f ≥ 0 by which the penalty of each coefficient is multiplied; they are not rescaled.  A dict, or a Series
    with strings as index, has them by the names of columns, and 1 for those that it does not name.  A coefficient
    with factor 0 is never penalised, as it should be for covariates, which may depend on each other; what they
    tell by less than the rounding of their values is left out.  None: all are 1.  With penalty="group" they are those
    of groups, in their order or by their names, and for others the root of the size.
groups : array-like or None
    For penalty="group": the group of each column, or for each group the numbers of its columns.  None: each column is a
    group, which joins its coefficients for all classes.
fit_intercept : bool
    Whether to fit the intercept b, which is not penalised.  X is then centred implicitly: it is neither copied nor
    made dense.
schedule : {"resolve", "priority", "random", "round_robin"}
    How coefficients are chosen and updated.  "resolve" solves a growing set of candidates exactly, or makes proximal
    Newton steps on it.  The others update `n_parallel` coefficients at a time from the same residual: "priority"
    draws them by their last change and drops those correlated above `max_correlation` (STRADS, [1]_), "random" draws
    them uniformly (Shotgun, [2]_), "round_robin" takes them in turn.
class_weight : dict, "balanced" or None
    Weights of the classes; "balanced": inversely proportional to their frequencies.
positive : bool
    Whether coefficients are restricted to be ≥ 0; it does not go with factors of zero.
max_iter : int
    Most outer steps of "resolve"; most passes over all coefficients of the other schedules.
warm_start : bool
    Whether to start from the present `coef_` and `intercept_`.
n_parallel : int
    Coefficients updated at a time by the schedules other than "resolve".
max_correlation : float or None
    Largest absolute correlation of columns that are updated together, by the schedules other than "resolve"; 1: no
    check.  None: 0.1 for "priority", no check for the others.
pipeline_depth : int
    Rounds under way at a time, for the schedules other than "resolve".
n_schedulers : int
    Schedulers that take turns in choosing coefficients, each of a slice of its own, for the schedules other than
    "resolve": none has to look through all priorities.
n_shards : int or None
    Partitions of the rows.  None: one per 2²⁸ stored values, or one per chunk of rows of a Dask collection; of
    that, `n_shards` puts consecutive chunks together.
n_jobs : int or None
    Threads over the partitions in this process; None means 1, -1 all processors.  The result does not depend on
    it.  Not used on a Dask cluster.
checkpoint : str or path-like
    Path (``~`` and environment variables are replaced) or URL known to fsspec to which the state is written every
    `checkpoint_every` certificates and at the end.  A fit that finds its own checkpoint there goes on from it, with
    the same bits; with a larger `max_iter` it goes further. "priority" and "random" need an int as `random_state`.
    If it cannot be written, the fit warns and goes on.
checkpoint_every : int
    Number of certificates between two checkpoints.
verbose : int or bool
    Whether to show a progress bar, with the objective and samples per second; it needs the package rich.
random_state : int, RandomState or None
    Seed of "priority" and "random"; "resolve" and "round_robin" draw nothing.
eps : float
    Ratio of the smallest to the largest penalty, where `alphas` or `Cs` is a number.
alphas : int or array-like
    Penalties, or how many.
max_explained : float
    A path ends with the first penalty whose solution explains this part of the deviance, which is 0 without penalised
    coefficients and 1 where predictions are exact: there is little left to choose from there on.  1: it goes on to the
    last penalty.
cv : int, cross-validation generator or iterable
    How samples are split; None: five folds, stratified if y holds classes.
coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
    Coefficients; float32 if X is, otherwise float64.
sparse_coef_ : sparse array of shape (1, n_features) or (n_targets, n_features)
    `coef_` without its zeros.
intercept_ : float or ndarray of shape (n_targets,)
    Intercept b.
n_iter_ : int or list of int
    Outer steps made ("resolve") or passes over all coefficients (other schedules).
history_ : list of dict
    One record per certificate: iterations, seconds, samples (entries of X and of Gram matrices operated upon),
    objective and dual_gap, per unit of sample weight, support (non-zero coefficients), scope (columns looked at).  Of
    several targets or classes: one after the other.  The solvers "gram", "columns" and "newton" give one certificate
    for each.
solver_ : {"gram", "columns", "newton", "blocks", "rounds", "scheduled"}
    How the fit was made; the user guide has a table.
classes_ : ndarray of shape (n_classes,)
    Class labels.
cv_n_jobs : int or None
    Folds worked on at a time, in threads; None means 1, -1 all processors.  Not used on a Dask cluster, where folds
    are fitted one after the other.
cv_max_iter : int
    Most outer steps for each penalty.
cv_verbose : int or bool
    Whether to show a progress bar, which needs the package rich.
alpha_ : float
    Penalty with the smallest mean over folds, the largest of equals.
alpha_1se_ : float
    Largest penalty whose mean is at most one standard error, that of the smallest mean, above the smallest mean: a
    simpler model that is about as good.
alphas_ : ndarray of shape (n_alphas,) or (n_ratios, n_alphas)
    Penalties tried, falling; of several L1 ratios a row for each, unless they are given.
l1_ratio_ : float
    The L1 ratio that has been chosen.
coefs_path_ : ndarray of shape (n_features, n_penalties) or (n_classes, n_features, n_penalties)
    Coefficients of all samples along the path with `l1_ratio_`.
intercepts_path_ : ndarray of shape (n_penalties,) or (n_classes, n_penalties)
    Intercepts along it.
coef_1se_ : ndarray of the shape of `coef_`
    Coefficients of all samples for the simpler model.
intercept_1se_ : float or ndarray of the shape of `intercept_`
    Its intercept.
n_features_in_ : int
    Number of features.
feature_names_in_ : ndarray of shape (n_features,)
    Names of features, if X has any that are all strings.
TypeError
    If X is a Dask collection of another kind than arrays, data frames and lists of Delayed objects.
CheckpointMismatchError
    If the checkpoint is that of another fit, or damaged.
ConvergenceWarning
    If the gap is above the tolerance after `max_iter`, or where rounding ends the fit earlier.
CheckpointWarning
    If a checkpoint could not be written.
UserWarning
    If columns vary by less than the rounding of their values; they keep the coefficient 0.
"""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

from sklearn.metrics import get_scorer_names
from sklearn.utils._param_validation import Interval, StrOptions, validate_parameter_constraints

from schmp_estimators.linear.penalties.choose import STRONGEST, WEAKEST

T = TypeVar("T", bound=Callable[..., Any])

SCHEDULES = ("resolve", "priority", "random", "round_robin")


class _Wide(Interval):
    """An interval whose ends a number of another type, float32, need not be able to hold."""

    def __contains__(self, value: Any) -> bool:
        return bool(super().__contains__(float(value) if isinstance(value, Real) else value))


_COUNT = Interval(Integral, 1, None, closed="left")
_STRENGTH = _Wide(Real, WEAKEST, STRONGEST, closed="both")

#: By name of a parameter: the values that it takes, beside None where that is the default.
_CONSTRAINTS: dict[str, Any] = {
    "loss": "no_validation",
    "penalty": "no_validation",
    "alpha": [_STRENGTH],
    "C": [_STRENGTH],
    "l1_ratio": [Interval(Real, 1e-6, 1, closed="both")],
    "penalty_factors": ["array-like", dict],
    "groups": ["array-like"],
    "fit_intercept": ["boolean"],
    "schedule": [StrOptions(set(SCHEDULES))],
    "class_weight": [dict, StrOptions({"balanced"})],
    "positive": ["boolean"],
    "max_iter": [_COUNT],
    "tol": [Interval(Real, 0, None, closed="left")],
    "warm_start": ["boolean"],
    "n_parallel": [_COUNT],
    "max_correlation": [Interval(Real, 0, 1, closed="both")],
    "pipeline_depth": [_COUNT],
    "n_schedulers": [_COUNT],
    "n_shards": [_COUNT],
    "n_jobs": [Integral],
    "checkpoint": [str, os.PathLike],
    "checkpoint_every": [_COUNT],
    "verbose": ["verbose"],
    "random_state": ["random_state"],
    "eps": [Interval(Real, 0, 1, closed="neither")],
    "max_explained": [Interval(Real, 0, 1, closed="right")],
    "alphas": [_COUNT, "array-like"],
    "Cs": [_COUNT, "array-like"],
    "cv": ["cv_object"],
    "scoring": [StrOptions(set(get_scorer_names())), callable],
}

#: By name: the first line of an entry, and its text.
_KNOWN = {
    found[1].partition(" ")[0]: (found[1], found[2].rstrip())
    for found in re.finditer(r"^(\w.*)\n((?:    .*\n)+)", __doc__ or "", re.MULTILINE)
}


def described(thing: T) -> T:
    """Complete a docstring, and of a class also the constraints of its parameters."""
    if inspect.isclass(thing) and "__init__" in vars(thing):
        thing._parameter_constraints = _constraints(thing)  # type: ignore[attr-defined]
    if thing.__doc__:  # there are none under -OO
        thing.__doc__ = _completed(inspect.cleandoc(thing.__doc__), thing)
    return thing


def _completed(text: str, thing: Callable[..., Any]) -> str:
    before, rule, rest = text.partition("Parameters\n----------\n")
    if rule:
        entries, _, after = rest.partition("\n\n")
        own = {found[1]: found[0].rstrip() for found in re.finditer(r"^(\w+) :.*\n(?:    .*\n?)+", entries, re.M)}
        parameters = _parameters(thing)
        family = "cv_" if "cv" in parameters or "eps" in parameters else ""  # some parameters mean something else there
        given = [own.get(name) or _entry(name, parameter, family) for name, parameter in parameters.items()]
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


def _parameters(thing: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return {name: one for name, one in inspect.signature(thing).parameters.items() if name != "self"}


def _constraints(thing: Callable[..., Any]) -> dict[str, Any]:
    found = {}
    for name, parameter in _parameters(thing).items():
        if name in _CONSTRAINTS:
            known = _CONSTRAINTS[name]
            found[name] = [*known, None] if parameter.default is None and known != "no_validation" else known
    if "cv" in found and "l1_ratio" in found:
        found["l1_ratio"] = [*found["l1_ratio"], "array-like"]
    return found


def check_arguments(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise scikit-learn's error if an argument of a function, among its local variables, is none that it takes."""
    constraints = _constraints(function)
    validate_parameter_constraints(constraints, {name: given[name] for name in constraints}, function.__name__)


def keep(estimator: Any, given: Mapping[str, Any]) -> None:
    """Make the local variables of `__init__` attributes."""
    vars(estimator).update({name: value for name, value in given.items() if name not in ("self", "__class__")})
