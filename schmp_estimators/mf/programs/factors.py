"""The base of all programs for matrix factorisation: parameters, first factors, records."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.program import Program
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.typing import FloatPair, Floats32, Integers, Named
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.kernels.layout import Placement
from schmp_estimators.mf.kernels.sgd import draw_factors

#: Numbers of the streams of random numbers; the first two are those of the sides, too.
USERS, ITEMS, HOLD_OUT, DRAWN = range(4)


class Side(NamedTuple):
    """Users or items of a finished run, or of an earlier one."""

    factors: Floats32  #: (n, K)
    bias: Floats32  #: (n,)


@dataclass(frozen=True)
class Factorization(Program[Any, Any, Any, Any]):
    """Base of programs for matrix factorisation.

    Parameters
    ----------
    n_components : int
        Rank K.
    mean : float
        Mean of the standardised ratings, if there are no biases to absorb it.
    penalty : float
        λ.
    power : float
        Exponent ν of the penalty: λ counts n^ν times for a row with n ratings.
    fit_bias : bool
        Whether a global mean and biases are fitted.
    positive : bool
        Whether factors stay at or above zero.
    seed : int
    unit : float
        Size of one unit of the ratings in the user's units, which are those of records.
    """

    n_components: int
    mean: float
    penalty: float
    power: float = 1.0
    fit_bias: bool = True
    positive: bool = False
    seed: int = 0
    unit: float = 1.0

    def start_range(self, side: int) -> FloatPair:
        """Return centre and half-width of the first factors.

        Their products then have the size of what they fit.

        With biases that is about zero; without biases it is the mean of the ratings, and the items
        take its sign.
        """
        spread = 0.5 * np.sqrt(1 / self.n_components)
        if self.fit_bias:
            return (spread if self.positive else 0.0), spread
        centre = np.sqrt(abs(self.mean) / self.n_components)
        if self.positive:
            return max(centre, spread), spread
        return (-centre if side == ITEMS and self.mean < 0 else centre), spread

    def draw(
        self,
        ids: Integers,
        stream: int,
        out: Floats32,
        size: int,
        *,
        first: int = 0,
        width: int = 1,
    ) -> None:
        """Fill the first `size` columns of `out` with components of `ids`, as if drawn.

        They are the components from `first` on.

        `stream` is `USERS` or `ITEMS`; `width` multiplies the range around the centre.
        """
        centre, spread = self.start_range(stream)
        limits = np.float32(centre), np.float32(width * spread)
        draw_factors(freeze(ids), first, size, stream_key(self.seed, stream), *limits, out)

    def record(self, sweep: int, model: Any) -> Named:
        """Return errors of the sweep and of held-out ratings, and the objective if measured.

        The errors are root mean squares.
        """

        def rmse(kind: int, of: int) -> float:
            return self.unit * float(np.sqrt(model.errors[kind] / (model.sizes[of] or 1)))

        record: Named = {"running_rmse": rmse(0, 0)}
        if model.sizes[1]:
            record["validation_rmse"] = rmse(2, 1)
        if model.penalty is not None:
            square = self.unit * self.unit
            loss = float(model.errors[1] + model.penalty)
            record["train_rmse"] = rmse(1, 0)
            record["objective"] = square * loss
            record["penalty"] = square * float(model.penalty)
        return record


def gather(sides: Sequence[Side], placement: Placement, unit: float = 1.0) -> Side:
    """Return the rows of all groups in the order of the data, rescaled by `unit`.

    Rows in no group are zeros.
    """
    n = placement.group.size
    gathered = Side(np.zeros((n, sides[0].factors.shape[1]), np.float32), np.zeros(n, np.float32))
    for rows, side in zip(placement.members, sides, strict=True):
        gathered.factors[rows], gathered.bias[rows] = side
    return rescaled(gathered, unit, gathered)


def rescaled(side: Side, unit: float, out: Sequence[Any] = (None, None)) -> Side:
    """Convert a side for ratings in units to one for the ratings themselves.

    A product of two factors has one unit.
    """
    return Side(*map(np.multiply, side, (np.float32(sqrt(unit)), np.float32(unit)), out))


def has_not_improved(
    names: Sequence[str], tol: float, patience: int, records: Sequence[Named]
) -> bool:
    """Return whether what a fit monitors has stopped falling.

    It has not fallen by `tol` below its best for `patience` evaluations.

    Parameters
    ----------
    names : sequence of str
        What may be monitored: it is the first of these that the last record has.  If it has none,
        the result is False.
    tol : float
        The smallest fall that counts, relative to the best value before.
    patience : int
    records : sequence of dict
        One for each epoch, at least one.
    """
    name = next((one for one in names if one in records[-1]), "")
    power = 2 if name == "running_rmse" else 1  # the objective holds squared errors
    best, *later = [one[name] ** power for one in records if name in one] or [0.0]
    since = 0
    for value in later:
        since = 0 if value < best * (1 - tol) else since + 1
        best = best if since else value
    return since >= patience
