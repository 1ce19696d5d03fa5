"""What losses and penalties declare, and what each solver needs of them.

A loss or a penalty may be of a class outside this package.  What it need not declare has the value in `OPTIONAL`; this
module alone asks whether an attribute is there.
"""

from typing import Any

import numpy as np

#: Attributes that may be missing, and the values that hold then.
OPTIONAL: dict[str, Any] = {
    # of a loss
    "n_outputs": 1,
    "constant_curvature": False,
    "of_difference": False,
    "classifies": False,
    "signed": True,
    "smoothness": np.inf,
    "remedy": "",
    "at_zero": None,
    "mean": None,
    "score": None,
    "descend": None,
    "derivatives": None,
    "look": None,
    # of a penalty
    "in_blocks": False,
    "of_strength": None,
    "block_curvature": None,
}


def declared(thing: Any, name: str) -> Any:
    """Return an attribute of a loss or of a penalty, or what holds if it is missing."""
    return getattr(thing, name, OPTIONAL[name])
