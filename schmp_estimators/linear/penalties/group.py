"""The group penalty: the sum of the norms of groups of coefficients."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from schmp_estimators.linear.penalties.base import Floats, Indices, PerColumn, read_only
from schmp_estimators.linear.penalties.choose import is_by_name, named_values


class Group(NamedTuple):
    """The penalty Σ_g λ_g‖β_g‖₂, where β_g has the coefficients of a group of columns, for all classes.

    M. Yuan and Y. Lin, "Model selection and estimation in regression with grouped variables", JRSS-B 2006.
    """

    #: (G,) λ; a group with 0 has no penalty
    strengths: PerColumn
    #: (p,) columns, group after group, and (G + 1,) positions at which each group begins
    columns: Indices
    starts: Indices

    @property
    def positive(self) -> bool:
        """Whether coefficients are restricted to be ≥ 0: no."""
        return False

    @property
    def certified(self) -> bool:
        """Whether there is a duality gap: yes."""
        return True

    def value(self, coef: Floats) -> float:
        """Return Σ_g λ_g‖β_g‖₂ of coefficients (p,), or (K, p) of K classes."""
        squares = np.atleast_2d(coef * coef).sum(axis=0)[self.columns]
        return float(self.strengths @ np.sqrt(np.add.reduceat(squares, self.starts[:-1])))

    def scaled(self, factor: float) -> Self:
        """Return `factor` times the penalty."""
        return self._replace(strengths=read_only(factor * self.strengths))


def group_penalty(groups: Sequence[Any], n_columns: int, factors: Any = None) -> Group:
    """Return the penalty of strength one.

    Parameters
    ----------
    groups : sequence of sequences of int, or of length n_columns
        The columns of each group, or the group of each column.  Each column is in one group.
    n_columns : int
    factors : array-like of shape (n_groups,), dict or Series, default=None
        λ_g ≥ 0, in the order of `groups`, in the order of its sorted values, or by these values.  None, and groups that
        are not named, stand for √(number of columns).

    Raises
    ------
    ValueError
        If a column is in no group or in two; if factors are not one finite number ≥ 0 for each group, or name unknown
        groups.
    """
    names = []
    if all(np.ndim(group) for group in groups):
        members = [np.asarray(group, np.int64) for group in groups]
    else:
        found, of_columns = np.unique(np.asarray(groups), return_inverse=True)
        names, members = (
            found.tolist(),
            [np.flatnonzero(of_columns == number) for number in range(len(found))],
        )
    columns = np.concatenate([np.empty(0, np.int64), *members])
    if not np.array_equal(np.sort(columns), np.arange(n_columns)) or not all(map(len, members)):
        raise ValueError(
            f"groups must put each of the {n_columns} columns of X into one group, and have no group without columns; "
            f"got {len(members)} groups of {len(columns)} columns"
        )
    lengths = np.array([len(group) for group in members])
    if is_by_name(factors):
        if not names:
            raise ValueError(
                "penalty_factors names groups, but groups has no names; give the group of each column"
            )
        roots = dict(zip(names, np.sqrt(lengths).tolist(), strict=True))
        factors = named_values(factors, roots, "groups that groups")
    strengths = np.sqrt(lengths) if factors is None else np.asarray(factors, np.float64)
    if (
        strengths.shape != lengths.shape
        or not np.isfinite(strengths).all()
        or (strengths < 0.0).any()
    ):
        raise ValueError(
            f"penalty_factors must hold a finite number >= 0 for each of {len(members)} groups"
        )
    return Group(read_only(strengths), columns, np.append(0, np.cumsum(lengths)))
