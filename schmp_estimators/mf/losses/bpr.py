"""Bayesian personalised ranking (Rendle, Freudenthaler, Gantner & Schmidt-Thieme, UAI 2009)."""

from typing import NamedTuple

from schmp_estimators.mf.kernels.ranking import log_odds


class Bpr(NamedTuple):
    """ln(1 + e^(t − s)), s the score of the item that was taken, t that of the one that was drawn."""

    def pull(self, taken: float, drawn: float) -> tuple[float, float, float]:
        """Return the loss, and the pulls σ(t − s) on the first score and −σ(t − s) on the second."""
        value, share = log_odds(drawn - taken)
        return value, share, -share
