"""What values the parameters of `ModelParallelMF` may have, alone and in combination."""

import os
import warnings
from collections.abc import Sequence
from inspect import signature
from math import sqrt
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from schmp_estimators.core.inputs.validation import COUNT, NOT_NEGATIVE, SHARE
from schmp_estimators.core.typing import FloatPair, Integers, Named
from schmp_estimators.mf.losses import RANKING

#: Largest number that float32 can hold after a multiplication by the ratings of a row.
_MOST = 1e30
#: The exponents of the penalties that have names.
_POWERS = {"per_row": 0.0, "per_rating": 1.0}

CONSTRAINTS: Named = {
    "n_components": [Interval(Integral, 1, 2**31 - 1, closed="both")],
    "loss": [StrOptions({"squared", *RANKING}), HasMethods(["pull", "_asdict"])],
    "unobserved_weight": [NOT_NEGATIVE],
    "confidence": [None, callable],
    "fit_bias": ["boolean"],
    "positive": ["boolean"],
    "alpha": [StrOptions({"auto"}), Interval(Real, 0, _MOST, closed="both")],
    "penalty": [StrOptions(set(_POWERS)), Interval(Real, 0, 2, closed="both")],
    "clip": ["boolean"],
    "n_users": [None, COUNT],
    "n_items": [None, COUNT],
    "solver": [StrOptions({"auto", "sgd", "ccd"})],
    "schedule": [StrOptions({"rotation", "bsp"})],
    "learning_rate": [Interval(Real, 0, _MOST, closed="right")],
    "n_shards": [None, COUNT],
    "random_state": ["random_state"],
    "max_iter": [COUNT],
    "tol": [NOT_NEGATIVE],
    "n_iter_no_change": [None, COUNT],
    "early_stopping": ["boolean"],
    "validation_fraction": [SHARE],
    "evaluate_every": [Interval(Integral, 0, None, closed="left")],
    "n_jobs": [None, Integral],
    "checkpoint": [None, str, os.PathLike],
    "checkpoint_every": [COUNT],
    "verbose": ["verbose"],
}

#: The user's names of those parameters of programs that are called otherwise.
NAMES = {
    "program": "solver, schedule", "seed": "random_state", "penalty": "alpha", "power": "penalty",
    "missing": "penalty, unobserved_weight", "unobserved": "unobserved_weight",
    "validates": "early_stopping",
}  # fmt: skip
#: "auto" is this part of the weight that would leave nothing of ratings without structure; see
#: docs/measurements/mf.
_SHARE_OF_EDGE = 0.55
#: The value of "auto" if missing pairs count.
_ALPHA_OF_CLICKS = 0.07
#: The value of "auto" with losses that rank; see "Losses that rank" in docs/measurements/mf.
_ALPHA_OF_RANKING = 0.05
#: For kinds of fits: what a fit of another kind has, and parameters of which no other value can
#: act, with the reason.
_ACTING = {
    "ranks": ("loss='squared'", {
        "unobserved_weight": "what is missing counts by the items that are drawn",
        "solver": "coordinate descent knows squared errors only",
        "confidence": "all pairs count alike",
        "penalty": "it is carried by each pair, with the item that is drawn for it",
        "clip": "scores have no range",
        "early_stopping": "choose max_iter by a search with ranking.RankingScorer",
        "evaluate_every": "items are drawn anew in each epoch; history_ has the loss on the way",
    }),
    "clicks": ("unobserved_weight=0", {
        "solver": "\"sgd\" visits no missing pair",
        "early_stopping": "errors of ratings say little of clicks; let tol end the fit",
        "fit_bias": "clicks are modelled without biases",
    }),
    "ratings": ("unobserved_weight above 0", {
        "confidence": "it computes the confidences of clicks",
    }),
    "ccd": ("solver='sgd', without unobserved_weight and sample_weight", {
        "schedule": "\"ccd\" has only one schedule",
        "learning_rate": "\"ccd\" has no step size",
        "evaluate_every": "\"ccd\" computes the objective in every epoch",
    }),
    "whole": ("early_stopping=True", {
        "validation_fraction": "nothing is held out",
    }),
    "endless": ("a tol above 0, or early_stopping=True", {
        "n_iter_no_change": "nothing but max_iter ends the fit",
    }),
    "free": ("an alpha above 0", {
        "penalty": "there is no penalty",
    }),
}  # fmt: skip


def choose_solver(estimator: Any, weighted: bool) -> str:
    """Return the solver of a fit.

    "auto" is "ccd" if missing pairs count or ratings have weights, else "sgd".
    """
    if estimator.solver != "auto":
        return str(estimator.solver)
    return "ccd" if estimator.unobserved_weight or weighted else "sgd"


def check_together(estimator: Any, weights: Any, *, anew: bool) -> None:
    """Raise ValueError if parameters cannot be combined, or if a value cannot act.

    Weights of ratings count as a parameter.

    `anew`: whether it is a first fit; a later one does not read what only the first one can use.
    """
    if isinstance(estimator.loss, type):
        raise ValueError(f"loss={estimator.loss!r} is a class; give an object of it")
    u = estimator.unobserved_weight
    weighted = weights is not None
    ranks = f"loss={estimator.loss!r}" if estimator.loss != "squared" else ""
    whole = "" if estimator.early_stopping else "early_stopping=False"
    is_ccd = anew and choose_solver(estimator, weighted) == "ccd"
    kinds = {
        "ranks": ranks,
        "clicks": f"unobserved_weight={u:g}" if u else "",
        "ratings": "" if u else "unobserved_weight=0",
        "ccd": "solver 'ccd'" if is_ccd else "",
        "whole": whole,
        "endless": "" if estimator.tol else whole and "tol=0",
        "free": "alpha=0" if estimator.alpha == 0 else "",
    }
    for kind, (needed, reasons) in _ACTING.items():
        for name, reason in reasons.items() if kinds[kind] else ():
            value = getattr(estimator, name)
            neutral = signature(type(estimator)).parameters[name].default
            if value not in (neutral, "ccd" if u else "sgd"):
                raise ValueError(
                    f"{name}={value!r} needs {needed}; with {kinds[kind]} leave it {neutral!r}: "
                    f"{reason}"
                )
    if weighted:
        refuse_weights(estimator, estimator.loss)
    if ranks and not anew and estimator._seen is None:
        raise ValueError(
            f"partial_fit with {ranks} fits all clicks, but this model has kept none, as they were "
            "on Dask; fit anew"
        )
    if weighted and anew and estimator.solver == "sgd":
        raise ValueError(
            'sample_weight needs solver="auto" or "ccd"; solver="sgd" takes all ratings alike'
        )


def refuse_weights(estimator: Any, loss: Any) -> None:
    """Raise ValueError if an estimator with this loss takes no weights of ratings."""
    if loss != "squared":
        raise ValueError(f"sample_weight needs loss='squared'; with {loss=} all pairs count alike")
    if estimator.confidence is not None:
        raise ValueError(
            "confidence computes the confidences of clicks; give no sample_weight beside it"
        )


def check_earlier(estimator: Any) -> None:
    """Raise ValueError if parameters differ from those of the earlier fit."""
    if repr(estimator.loss) != repr(estimator._loss):
        raise ValueError(
            f"loss={estimator.loss!r}, but {estimator._loss!r} in the earlier fit; begin anew with "
            "fit"
        )
    if bool(estimator.unobserved_weight) != bool(estimator._unobserved):
        raise ValueError(
            f"unobserved_weight={estimator.unobserved_weight:g}, but {estimator._unobserved:g} in "
            "the earlier fit; begin anew with fit, as ratings and clicks have different models"
        )
    if (rank := estimator.components_.shape[0]) != estimator.n_components:
        raise ValueError(
            f"n_components={estimator.n_components}, but the earlier fit had {rank}; keep the "
            "number, or begin anew with fit"
        )


def given_alpha(estimator: Any, anew: bool) -> float | None:
    """Return the weight of the penalty, or None if it must be computed from the ratings."""
    if estimator.alpha != "auto":
        return float(estimator.alpha)
    if not anew:
        return float(estimator.alpha_)
    return (
        _ALPHA_OF_CLICKS
        if estimator.unobserved_weight
        else _ALPHA_OF_RANKING
        if estimator.loss != "squared"
        else None
    )


def power_of(penalty: Any, unobserved: float) -> FloatPair:
    """Return the exponent ν of a penalty, and the weight with which it counts missing pairs."""
    if penalty in _POWERS:
        return _POWERS[penalty], 0.0
    return float(penalty), unobserved


def scaled_alpha(
    alpha: float, power: float, missing: FloatPair, counts: Sequence[Integers]
) -> float:
    """Return `alpha` so that the penalties of all rows have the sum that "per_rating" gives them.

    `missing` is what missing pairs add to the counts of a user and of an item.
    """
    sums = [np.sum((side + more) ** power) for side, more in zip(counts, missing, strict=True)]
    return alpha * float(sum(side.sum() for side in counts) / sum(sums))


def choose_alpha(power: float, counts: Sequence[Integers], noise: float) -> float:
    """Compute the weight of the penalty from ratings.

    See 'How "auto" chooses alpha' in the user guide.

    Parameters
    ----------
    power : float
        The exponent ν of the penalty.
    counts : ndarray of int64
        Numbers of ratings of each user, and of each item.
    noise : float
        Standard deviation that biases leave of standardised ratings.
    """
    users, items = (sqrt(int(side.sum()) / int(np.count_nonzero(side))) for side in counts)
    edge = noise * (
        users + items
    )  # about the largest singular value of noise in the places of the ratings
    return _SHARE_OF_EDGE * (edge / (users * items) ** power)


def read_fit_params(fit_params: Named) -> Any:
    """Return `sample_weight`, or None; nothing else is allowed.

    It is no named parameter, because scikit-learn's checks would take it for weights of the rows of
    a matrix.
    """
    others = sorted(set(fit_params) - {"sample_weight"})
    if others:
        raise TypeError(f"fit takes X, y and sample_weight, not {', '.join(others)}")
    return fit_params.get("sample_weight")


def warn_of_equal_ratings(value: float, n_ratings: int) -> None:
    """Warn that equal ratings contain no information, and say what may have been meant."""
    warnings.warn(
        f"all {n_ratings} ratings are {value:g}, so that predictions will be, too. If they say "
        "that something happened (clicks, purchases), missing pairs count: set unobserved_weight, "
        "for example to 0.1",
        UserWarning,
        stacklevel=2,
    )
