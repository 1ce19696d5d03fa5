"""What losses and penalties declare, and what each solver needs of them.

A loss or a penalty may be of a class outside this package.  This module alone asks whether an
attribute is there.
"""

from typing import Any, NamedTuple

import numpy as np

#: Attributes that may be missing, and what holds then: first of losses, then of penalties.
OPTIONAL: dict[str, Any] = {
    "at_zero": None,
    "classifies": False,
    "constant_curvature": False,
    "derivatives": None,
    "descend": None,
    "look": None,
    "mean": None,
    "n_outputs": 1,
    "of_difference": False,
    "remedy": "",
    "score": None,
    "signed": True,
    "smoothness": np.inf,
    "block_curvature": None,
    "block_slope": None,
    "in_blocks": False,
    "of_strength": None,
}


def declared(thing: Any, name: str) -> Any:
    """Return an attribute of a loss or of a penalty, or what holds if it is missing."""
    return getattr(thing, name, OPTIONAL[name])


def is_joint(loss: Any) -> bool:
    """Return whether a loss fits all classes at once."""
    return declared(loss, "look") is not None


def classifies(loss: Any) -> bool:
    """Return whether a loss is for classes, so that y is −1 or 1."""
    return bool(declared(loss, "classifies"))


def is_quadratic(loss: Any) -> bool:
    """Return whether the curvature of a loss is the same everywhere."""
    return bool(declared(loss, "constant_curvature"))


def is_in_blocks(loss: Any, penalty: Any) -> bool:
    """Return whether coefficients are in blocks: of groups of columns, or of several classes."""
    return is_joint(loss) or bool(declared(penalty, "in_blocks"))


class Needs(NamedTuple):
    """The methods and attributes that a solver needs."""

    of_loss: tuple[str, ...]
    of_penalty: tuple[str, ...]
    #: whether the curvature of the loss must have a bound
    bounded: bool = False


_LOSS = ("derivatives", "certified")
_PENALTY = ("strengths", "scaled", "positive", "certified")
_ALONE = (*_PENALTY, "prox", "value", "tilt")
_BLOCKS = (*_PENALTY, "columns", "starts", "block_prox", "block_level", "block_value")
#: By solver: of all columns and rows, by a schedule, and in blocks.
NEEDS = {
    "resolve": Needs(_LOSS, _ALONE),
    "scheduled": Needs(_LOSS, _ALONE, bounded=True),
    "blocks": Needs(_LOSS, _BLOCKS),
}


def check_needs(solver: str, loss: Any, penalty: Any, asked: str) -> None:
    """Raise TypeError if a loss or a penalty lacks what a solver needs.

    `asked` says in the message what needs this solver.
    """
    needs = NEEDS[solver]
    missing = []
    of_loss = ("look", "certified") if is_joint(loss) else needs.of_loss
    if getattr(loss, "certified", False):
        of_loss = (*of_loss, "dual")
    if lacks := [name for name in of_loss if not hasattr(loss, name)]:
        missing.append(f"a loss with {_listed(lacks)}")
    in_blocks = declared(penalty, "in_blocks")
    of_penalty = needs.of_penalty if in_blocks == (solver == "blocks") else _ALONE
    if not in_blocks and getattr(penalty, "certified", False):
        of_penalty = (*of_penalty, "ridges")
    lacks = [name for name in of_penalty if not hasattr(penalty, name)]
    if lacks or not isinstance(penalty, tuple):
        named = f" with {_listed(lacks)}" if lacks else ""
        missing.append(f"a penalty that is a named tuple{named}")
    if needs.bounded and not 0.0 < declared(loss, "smoothness") < np.inf:
        missing.append("a loss with a finite `smoothness`, the bound of its curvature")
    if missing:
        raise TypeError(f"{asked} needs {' and '.join(missing)}; got loss={loss!r}, {penalty=!r}")


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
