"""The squared error of ratings."""

from typing import NamedTuple


class Squared(NamedTuple):
    """(r − s)² of a rating r with the prediction s, as `kernels.sgd` has it."""

    @property
    def ranks(self) -> bool:
        """No: ratings are predicted."""
        return False

    @property
    def alpha(self) -> None:
        """It follows from the ratings."""
