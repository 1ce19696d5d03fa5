"""Losses that rank items.

A loss is a named tuple with a method ``pull(taken, drawn)``, which is compiled into kernels.
It gets the scores of an item that the user has taken and of an item that was drawn, and returns the
loss and its negative derivatives by both.
"""

from typing import Any, NamedTuple

from schmp_estimators.core.typing import Named
from schmp_estimators.mf.kernels.sgd import log_odds


class Bpr(NamedTuple):
    """ln(1 + e^(t − s)), s the score of the item that was taken, t that of the one that was drawn.

    Bayesian personalised ranking (Rendle, Freudenthaler, Gantner & Schmidt-Thieme, UAI 2009).
    """

    def pull(self, taken: float, drawn: float) -> tuple[float, float, float]:
        """Return the loss, and its pulls on the two scores: σ(t − s) and −σ(t − s)."""
        value, share = log_odds(drawn - taken)
        return value, share, -share


class Logistic(NamedTuple):
    """The loss ln(1 + e^−s) + ln(1 + e^t).

    s is the score of the item that was taken, t that of the one that was drawn.
    """

    def pull(self, taken: float, drawn: float) -> tuple[float, float, float]:
        """Return the loss, and the pulls 1 − σ(s) and −σ(t) on the two scores."""
        missed, up = log_odds(-taken)
        wrong, down = log_odds(drawn)
        return missed + wrong, up, -down


#: By the names that users know.
RANKING: Named = {"logistic": Logistic(), "bpr": Bpr()}


def ranking_loss(loss: Any) -> Any:
    """Return the loss that ranks items, or None for "squared", which fits ratings."""
    return RANKING.get(loss) if isinstance(loss, str) else loss
