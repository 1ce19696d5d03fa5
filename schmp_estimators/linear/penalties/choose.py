"""The penalty that parameters of an estimator stand for."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from schmp_estimators.linear.penalties.base import PerColumn, read_only
from schmp_estimators.linear.penalties.elastic_net import ElasticNet
from schmp_estimators.linear.penalties.l1 import L1


def choose_penalty(strength: float, l1_ratio: float, factors: PerColumn = 1.0, positive: bool = False) -> Any:
    """Return strength·f_j·(l1_ratio·|b| + ½(1 − l1_ratio)·b²)."""
    whole = float(strength) * factors
    if l1_ratio == 1.0:
        return L1(read_only(whole), bool(positive))
    return ElasticNet(read_only(l1_ratio * whole), read_only((1.0 - l1_ratio) * whole), bool(positive))


def check_factors(given: Any, n_columns: int, positive: bool = False) -> PerColumn:
    """Return `penalty_factors` as kernels take them, one number if all columns are alike.

    Raises
    ------
    ValueError
        If they are not one finite number ≥ 0 for each column, or all are zero, or one is where coefficients are
        restricted to be ≥ 0.
    """
    if given is None:
        return 1.0
    factors = check_array(given, ensure_2d=False, dtype=np.float64, input_name="penalty_factors")
    if factors.shape != (n_columns,) or (factors < 0.0).any() or not factors.any():
        raise ValueError(
            f"penalty_factors must hold {n_columns} numbers >= 0, one for each column of X and not all of them zero; "
            f"got shape {factors.shape}{_range(factors)}"
        )
    if positive and not factors.all():
        raise ValueError(
            "penalty_factors holds zeros, which do not go with positive=True: a column is either free or restricted; "
            "give such columns a small factor, or positive=False"
        )
    return float(factors[0]) if (factors == factors[0]).all() else read_only(factors.copy())


def _range(factors: Any) -> str:
    return f" with values from {factors.min():.3g} to {factors.max():.3g}" if factors.size else ""
