"""Curves of what was measured for several values of a parameter."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._optional_dependencies import check_matplotlib_support


def draw_curves(
    table: dict[str, NDArray[Any]], x: str, spreads: dict[str, str], chosen: float, ax: Any = None
) -> NDArray[Any]:
    """Draw columns of a table with error bars, each into Axes of its own, and return these.

    Parameters
    ----------
    table : dict of str to ndarray
    x : str
        The column of the horizontal axes.
    spreads : dict of str to str
        Columns to draw, each with the ending of the name of its spread.
    chosen : float
        Where a line is drawn.
    ax : array-like of Axes, optional
        Where to draw; by default in a new figure.
    """
    check_matplotlib_support("plot")
    import matplotlib.pyplot as plt  # noqa: PLC0415  (an optional extra)

    if ax is None:
        size = 3.3 * len(spreads), 3.2
        ax = plt.subplots(1, len(spreads), figsize=size, layout="constrained")[1]
    at = table[x]
    for axes, (name, spread) in zip(np.ravel(ax), spreads.items(), strict=True):
        axes.errorbar(at, table[name], table[f"{name}_{spread}"], fmt="o-")
        axes.axvline(chosen, color="#e08e45")
        axes.set_xscale("log")
        axes.set_xticks(at, [str(one) for one in at])
        axes.minorticks_off()
        axes.set(xlabel=x, ylabel=name.capitalize())
    return np.ravel(ax)
