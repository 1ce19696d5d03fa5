"""Masked arrays.

Most functions of NumPy and scikit-learn drop masks, so that masked entries would count.
"""

from typing import Any

import numpy as np
from numpy.ma import MaskedArray, getmaskarray, is_masked


def unmask(values: Any, name: str, *, missing: bool = False) -> Any:
    """Return `values` without a mask.

    Parameters
    ----------
    values : object
        Input of any kind in memory; masked arrays, and lists or tuples of them, are checked.
    name : str
        Its name for the user.
    missing : bool, default=False
        Whether masked entries become NaN, which stands for missing ones; integers then become
        float64.

    Returns
    -------
    object
        A plain array for a masked one; any other input as it is.

    Raises
    ------
    ValueError
        If an entry is masked, and entries may not be missing.
    """
    row = _first_masked(values)
    if row is None:
        return values.data if isinstance(values, MaskedArray) else values
    if missing:
        values = np.ma.array(values)
        return (values.astype(np.float64) if values.dtype.kind in "biu" else values).filled(np.nan)
    raise ValueError(
        f"{name} has masked entries, the first of them in row {row}. Leave out the rows that they "
        f"are in, or say what they are, for example by {name}.filled(0)"
    )


def _first_masked(values: Any) -> int | None:
    """Return the first row with a masked entry, or None."""
    if isinstance(values, list | tuple):
        return next(
            (n for n, row in enumerate(values) if isinstance(row, MaskedArray) and is_masked(row)),
            None,
        )
    if not isinstance(values, MaskedArray) or not is_masked(values):
        return None
    mask = getmaskarray(values)
    return int(np.unravel_index(np.argmax(mask), mask.shape)[0]) if mask.ndim else 0
