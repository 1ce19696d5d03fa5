"""Dependencies: which parameters may be updated together."""

import numpy as np
from numpy.typing import NDArray


def independent_set(
    correlations: NDArray[np.float64],
    max_correlation: float,
    most: int,
    guarded: NDArray[np.float64] | None = None,
) -> NDArray[np.int64]:
    """Return a set of candidates no two of which are correlated above a threshold, chosen greedily in their order.

    The dependency check of Lee et al., NIPS 2014, section 3.3, with the highest priority first.

    Parameters
    ----------
    correlations : ndarray of shape (n_candidates, n_candidates)
        Correlations of the candidates, which stand in order of falling priority.
    max_correlation : float
        Largest absolute correlation allowed.
    most : int
        Most candidates to choose.
    guarded : ndarray of shape (n_candidates, n_in_flight), default=None
        Correlations with parameters whose update is under way: a candidate correlated with one of them is left out.

    Returns
    -------
    ndarray of int64
        Positions of the chosen candidates, ascending.
    """
    conflicts = np.abs(correlations) > max_correlation
    np.fill_diagonal(conflicts, True)
    free = np.ones(len(conflicts), bool)
    if guarded is not None and guarded.size:
        free &= (np.abs(guarded) <= max_correlation).all(axis=1)
    chosen: list[int] = []
    for candidate in range(len(conflicts)):
        if free[candidate]:
            chosen.append(candidate)
            free &= ~conflicts[candidate]
            if len(chosen) == most:
                break
    return np.array(chosen, dtype=np.int64)
