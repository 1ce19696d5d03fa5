"""The logistic loss: whether a user takes an item, yes or no."""

from typing import NamedTuple

from schmp_estimators.mf.kernels.ranking import log_odds


class Logistic(NamedTuple):
    """ln(1 + e^−s) + ln(1 + e^t), s the score of the item that was taken, t that of the one that was drawn."""

    def pull(self, taken: float, drawn: float) -> tuple[float, float, float]:
        """Return the loss, and the pulls 1 − σ(s) and −σ(t) on the two scores."""
        missed, up = log_odds(-taken)
        wrong, down = log_odds(drawn)
        return missed + wrong, up, -down
