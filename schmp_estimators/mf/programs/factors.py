"""What all programs for matrix factorisation share: their parameters, where factors start, and what is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.following import has_settled
from schmp_estimators.core.program import Program
from schmp_estimators.mf.kernels.layout import Placement

State = TypeVar("State")
Block = TypeVar("Block")
Model = TypeVar("Model", bound=Any)
Report = TypeVar("Report")


class Side(NamedTuple):
    """Users or items of a finished run, or what an earlier one left of them."""

    factors: NDArray[np.float32]  #: (n, K)
    bias: NDArray[np.float32]  #: (n,)


class Factors(NamedTuple):
    """A factorisation, in the units of the ratings: what a fit returns and what a later one may start from."""

    users: Side
    items: Side
    mean: float


@dataclass(frozen=True)
class Factorization(Program[State, Block, Model, Report]):
    """Base of programs for matrix factorisation.

    Parameters
    ----------
    n_components : int
        Rank K.
    mean : float
        Mean of the ratings, which are standardised, where biases are not to take it up.
    penalty : float
        λ.
    per_rating : bool
        Whether λ counts once for every rating of a row, or once for the row.
    fit_bias : bool
        Whether there are a global mean and biases.
    positive : bool
        Whether factors stay at or above zero.
    seed : int
    unit : float
        How many of the user's units one of the ratings has; records are in the user's.
    """

    n_components: int
    mean: float
    penalty: float
    per_rating: bool = True
    fit_bias: bool = True
    positive: bool = False
    seed: int = 0
    unit: float = 1.0

    def start_range(self, is_item: bool) -> tuple[float, float]:
        """Return the centre and half-width of the first factors, so that their products have the size of what is left.

        With biases that is about zero; without them, the mean of the ratings, whose sign the items take.
        """
        spread = 0.5 * np.sqrt(1 / self.n_components)
        if self.fit_bias:
            return (spread if self.positive else 0.0), spread
        centre = np.sqrt(abs(self.mean) / self.n_components)
        if self.positive:
            return max(centre, spread), spread
        return (-centre if is_item and self.mean < 0 else centre), spread

    def record(self, sweep: int, model: Model) -> dict[str, Any]:
        """Return root mean squared errors, on the way and held out, and where it was measured the objective."""
        errors, sizes, unit = model.errors, model.sizes, self.unit
        record: dict[str, Any] = {"running_rmse": unit * float(np.sqrt(errors[0] / (sizes[0] or 1)))}
        if sizes[1]:
            record["validation_rmse"] = unit * float(np.sqrt(errors[2] / sizes[1]))
        if model.penalty is not None:
            record["train_rmse"] = unit * float(np.sqrt(errors[1] / (sizes[0] or 1)))
            record["objective"] = unit * unit * float(errors[1] + model.penalty)
            record["penalty"] = unit * unit * float(model.penalty)
        return record


def gather(sides: Sequence[Side], placement: Placement, unit: float = 1.0) -> Side:
    """Return the rows of all groups in the order of the data, zeros for those in no group, for ratings in a unit."""
    gathered = Side(*(np.zeros((placement.group.size, *part.shape[1:]), part.dtype) for part in sides[0]))
    for rows, side in zip(placement.members, sides, strict=True):
        for all_rows, part in zip(gathered, side, strict=True):
            all_rows[rows] = part
    return rescaled(gathered, unit, gathered)


def rescaled(side: Side, unit: float, out: Sequence[Any] = (None, None)) -> Side:
    """Return a side of ratings in units as that of the ratings themselves: the product of two factors has one unit."""
    return Side(*map(np.multiply, side, (np.float32(sqrt(unit)), np.float32(unit)), out))


def has_stopped_falling(tol: float, records: Sequence[dict[str, Any]]) -> bool:
    """Return whether the objective, or where it is not known the squared error on the way, has settled."""
    if "objective" in records[-1]:
        return has_settled("objective", tol, records)
    errors = [record["running_rmse"] for record in records[-2:]]
    return len(errors) == 2 and bool(errors[0] ** 2 - errors[1] ** 2 < tol * errors[0] ** 2)


def has_not_improved(name: str, tol: float, patience: int, records: Sequence[dict[str, Any]]) -> bool:
    """Return whether a value has not fallen by `tol`, relatively, below the best before it for some epochs."""
    best, since = np.inf, 0
    for record in records:
        since = 0 if record[name] < best * (1 - tol) else since + 1
        best = best if since else record[name]
    return since >= patience
