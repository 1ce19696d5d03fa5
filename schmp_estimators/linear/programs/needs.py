"""What a solver needs of the loss and the penalty: one list, one check, one message."""

from collections.abc import Callable
from typing import Any

import numpy as np

from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.penalties.base import Penalty

_OF_PENALTY = ("prox", "value", "rise", "tilt")
#: By name: how to see whether there is what is needed, and what to give.
_KNOWN: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "derivatives": (
        lambda loss, _: callable(getattr(loss, "derivatives", None)),
        "a loss with a method `derivatives`",
    ),
    "prox": (
        lambda _, penalty: (
            isinstance(penalty, tuple) and all(callable(getattr(penalty, name, None)) for name in _OF_PENALTY)
        ),
        "a penalty that is a named tuple with methods `prox`, `value`, `rise` and `tilt`",
    ),
    "smoothness": (
        lambda loss, _: 0.0 < getattr(loss, "smoothness", np.inf) < np.inf,
        "a loss with a finite `smoothness`, the bound of its curvature",
    ),
}


def check_needs(what: str, needs: frozenset[str], loss: Loss, penalty: Penalty) -> None:
    """Raise TypeError if a solver needs what the loss or the penalty has not.

    Parameters
    ----------
    what : str
        The solver, as the user knows it.
    needs : frozenset of str
        What it declares: "derivatives", "prox", "smoothness".
    loss, penalty : Loss, Penalty
    """
    missing = [said for name, (has, said) in _KNOWN.items() if name in needs and not has(loss, penalty)]
    if missing:
        raise TypeError(f"{what} needs {' and '.join(missing)}; got loss={loss!r}, penalty={penalty!r}")
