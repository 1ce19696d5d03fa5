"""Which losses and penalties there are by name, which go together, and what an estimator has of them."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, RegressorTags, Tags

from schmp_estimators.core.door.masks import unmask
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.losses.huber import Huber
from schmp_estimators.linear.losses.logistic import Logistic
from schmp_estimators.linear.losses.multinomial import Multinomial
from schmp_estimators.linear.losses.poisson import Poisson
from schmp_estimators.linear.losses.squared import Squared
from schmp_estimators.linear.penalties.base import fields_of, read_only
from schmp_estimators.linear.penalties.choose import choose_penalty, factors_of
from schmp_estimators.linear.penalties.group import Group, group_penalty
from schmp_estimators.linear.penalties.l1 import L1
from schmp_estimators.linear.penalties.mcp import MCP
from schmp_estimators.linear.predicting import Deciding
from schmp_estimators.linear.programs.choose import is_joint, kind_of
from schmp_estimators.linear.targets import classifies

#: By name: what makes a loss, and what makes a penalty of a strength: of ratio, factors and `positive`.
LOSSES: dict[str, Any] = {
    "squared": Squared,
    "logistic": Logistic,
    "multinomial": Multinomial,
    "poisson": Poisson,
    "huber": Huber,
}
PENALTIES: dict[str, Any] = {
    "l1": lambda strength, _, factors, positive: choose_penalty(strength, 1.0, factors, positive),
    "elasticnet": choose_penalty,
    "group": None,  # which needs more than strengths
    "mcp": lambda strength, _, factors, positive: MCP(read_only(strength * factors), _GAMMA),
}
#: Zhang's γ: coefficients of standardised columns are not shrunk from γ times the penalty on.
_GAMMA = 3.0


def find_loss(loss: Any) -> Loss:
    """Return the loss that a parameter stands for."""
    if isinstance(loss, str) and loss not in LOSSES:
        raise ValueError(f"loss={loss!r}; give one of {sorted(LOSSES)}, or an object such as penalised.Loss describes")
    found: Loss = LOSSES[loss]() if isinstance(loss, str) else loss
    return found


def make_penalty(asked: Any, owner: Any, strength: float, ratio: Any, factors: Any = None) -> Any:
    """Return the penalty of a strength that parameters stand for, for the columns that `owner` knows of.

    The L1 ratio is half and half if nothing is said.
    """
    given = asked.penalty
    if given == "group":
        groups = range(owner.n_features_in_) if asked.groups is None else asked.groups
        return group_penalty(groups, owner.n_features_in_, asked.penalty_factors).scaled(strength)
    if isinstance(given, str):
        if factors is None:
            factors = factors_of(owner, asked.penalty_factors, asked.positive)
        return PENALTIES[given](strength, 0.5 if ratio is None else ratio, factors, bool(asked.positive))
    penalty = type(given)(*(unmask(field, "penalty") for field in fields_of(given)))
    for field in fields_of(penalty):
        if np.ndim(field) and np.shape(field) != (owner.n_features_in_,):
            raise ValueError(
                f"penalty holds an array of shape {np.shape(field)}; give one number for all columns of X, or an array "
                f"of shape ({owner.n_features_in_},)"
            )
    return penalty.scaled(strength)


def check_pair(asked: Any, schedule: str = "resolve") -> None:
    """Raise an error before any work if a loss and a penalty do not go together, or with other parameters.

    Raises
    ------
    TypeError
        If the schedule needs what the loss or the penalty does not have.
    ValueError
        If a parameter does not go with the penalty.
    """
    penalty, loss = asked.penalty, find_loss(asked.loss)
    is_named, grouped = isinstance(penalty, str), penalty == "group" or isinstance(penalty, Group)
    if is_named and penalty not in PENALTIES:
        raise ValueError(
            f"penalty={penalty!r}; give one of {sorted(PENALTIES)}, or an object such as penalised.Penalty describes"
        )
    if asked.l1_ratio is not None and penalty != "elasticnet":
        raise ValueError(f'l1_ratio={asked.l1_ratio!r} goes with penalty="elasticnet"; got penalty={penalty!r}')
    if asked.groups is not None and penalty != "group":
        raise ValueError(f'groups goes with penalty="group"; got penalty={penalty!r}')
    if asked.positive and penalty in ("mcp", "group"):
        raise ValueError(f'positive=True does not go with penalty={penalty!r}; give penalty="l1"')
    if not is_named and (asked.penalty_factors is not None or asked.positive):
        raise ValueError("penalty_factors and positive go with a penalty given by name; an object says both itself")
    if not grouped and not is_joint(loss):
        kind_of(schedule, loss, L1(1.0) if is_named else penalty)
        return
    if penalty == "group" and asked.groups is None and not is_joint(loss):
        raise ValueError('penalty="group" needs groups: the group of each column, or the columns of each group')
    if not grouped and penalty not in ("l1", "elasticnet"):
        raise ValueError(f'loss="multinomial" goes with "l1", "elasticnet" and "group"; got penalty={penalty!r}')
    if schedule != "resolve" or getattr(asked, "checkpoint", None) is not None:
        raise ValueError('penalty="group" and loss="multinomial" go with schedule="resolve" and without checkpoint')


class Pair(Deciding, BaseEstimator):
    """An estimator with the parameters `loss` and `penalty`; scikit-learn's tags follow the loss."""

    loss: Any
    penalty: Any

    @property
    def _classifies(self) -> bool:  # type: ignore[override]
        return classifies(find_loss(self.loss))

    @property
    def _loss_to_predict(self) -> Any:
        return find_loss(self.loss)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = not getattr(find_loss(self.loss), "signed", True)
        if self._classifies:
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
            tags.target_tags.multi_output = not tags.target_tags.positive_only  # scikit-learn tries those of any sign
        return tags

    def _loss(self) -> Loss:
        return find_loss(self.loss)
