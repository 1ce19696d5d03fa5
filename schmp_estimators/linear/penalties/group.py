"""The group penalty: the sum of the norms of groups of coefficients."""

import reprlib
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, Self

import numpy as np

from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.linear.penalties.base import Floats, Indices, PerColumn, read_only
from schmp_estimators.linear.penalties.choose import check_factors, named_values


class Group(NamedTuple):
    """The penalty Σ_g λ_g‖β_g‖₂, where β_g has the coefficients of a group of columns, for all classes.

    M. Yuan and Y. Lin, "Model selection and estimation in regression with grouped variables",
    JRSS-B 2006.
    """

    #: (G,) λ; a group with 0 has no penalty
    strengths: PerColumn
    #: (p,) columns, group after group, and (G + 1,) positions at which each group begins
    columns: Indices
    starts: Indices

    @property
    def in_blocks(self) -> bool:
        """Whether coefficients are penalised in blocks: yes."""
        return True

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

    def of_columns(self, units: Floats) -> Self:
        """See `Penalty`; only if each group has one column."""
        return self._replace(strengths=read_only(units[self.columns] * self.strengths))

    def scaled(self, factor: float) -> Self:
        """Return `factor` times the penalty."""
        return self._replace(strengths=read_only(factor * self.strengths))

    def block_prox(self, number: int, aims: Floats, norm: float, out: Floats) -> None:
        """Set `out` to the minimiser: `aims` is shortened by λ_g, and divided by `norm`."""
        size = np.sqrt((aims * aims).sum())
        strength = self.strengths[number]
        kept = (1.0 - strength / size) / norm if size > strength else 0.0
        for t in range(len(aims)):
            out[t] = kept * aims[t]

    def block_level(self, number: int, slopes: Floats) -> float:
        """Return ‖slopes‖/λ_g."""
        return np.sqrt((slopes * slopes).sum()) / self.strengths[number]

    def block_value(self, number: int, coef: Floats) -> float:
        """Return λ_g‖β_g‖."""
        return self.strengths[number] * np.sqrt((coef * coef).sum())

    def block_slope(self, number: int, coef: Floats, out: Floats) -> None:
        """Set `out` to λ_g β_g/‖β_g‖."""
        size = np.sqrt((coef * coef).sum())
        for t in range(len(coef)):
            out[t] = self.strengths[number] * coef[t] / size

    def block_curvature(self, number: int, coef: Floats, out: Floats) -> None:
        """Add λ_g(I − uuᵀ)/‖β_g‖ with u = β_g/‖β_g‖."""
        square = (coef * coef).sum()
        part = self.strengths[number] / np.sqrt(square)
        for t in range(len(coef)):
            out[t, t] += part
            for other in range(len(coef)):
                out[t, other] -= part * coef[t] * coef[other] / square


def group_penalty(
    groups: Any, n_columns: int, factors: Any = None, labels: Sequence[Any] = ()
) -> Group:
    """Return the penalty of strength one.

    Parameters
    ----------
    groups : array-like, Series or dict
        The group of each column, or the columns of each group.  Each column is in one group.
    n_columns : int
    factors : array-like of shape (n_groups,), dict or Series, default=None
        λ_g ≥ 0, in the order of `groups`, in the order of its sorted values, or by these values.
        None, and groups that are not named, stand for √(number of columns).
    labels : sequence, default=()
        Those of the columns, if X has any.

    Raises
    ------
    ValueError
        If a column is in no group or in two; if factors are not one finite number ≥ 0 for each
        group, or name unknown groups.
    """
    names, members = _members(unmask(groups, "groups"), list(labels))
    columns = np.concatenate([np.empty(0, np.int64), *members])
    lengths = np.array([len(group) for group in members])
    starts = np.append(0, np.cumsum(lengths))
    check_blocks(columns, starts, n_columns)
    roots = np.sqrt(lengths)
    if factors is not None:
        others = dict(zip(names, roots.tolist(), strict=bool(names)))
        factors = named_values("penalty_factors", factors, others, "groups")
        roots = np.broadcast_to(check_factors(factors, len(lengths), what="group"), lengths.shape)
    return Group(read_only(roots), columns, starts)


def check_blocks(columns: Indices, starts: Indices, n_columns: int) -> None:
    """Raise ValueError unless each column is in one group, and no group is empty."""
    lengths = np.diff(starts)
    if not np.array_equal(np.sort(columns), np.arange(n_columns)) or not (lengths > 0).all():
        raise ValueError(
            f"groups must put each of the {n_columns} columns of X into one group, and have no group without columns; "
            f"got {len(lengths)} groups of {len(columns)} columns"
        )


def _members(groups: Any, labels: list[Any]) -> tuple[list[Any], list[Indices]]:
    """Return the names of the groups, if they have any, and their columns."""
    if isinstance(groups, Mapping) and all(map(np.ndim, groups.values())):
        names = list(groups)
        given = list(groups.values())
    else:
        groups = named_values("groups", groups, dict.fromkeys(labels))
        names = []
        given = list(np.asarray(groups) if getattr(groups, "ndim", 1) == 2 else groups)
    if all(map(np.ndim, given)):
        places = {label: place for place, label in enumerate(labels)}
        return names, [np.array([_column(one, places) for one in part], int) for part in given]
    if not (all(isinstance(one, str) for one in given) or all(map(_is_whole, given))):
        raise ValueError(
            "groups must name the group of each column of X by strings alone, or by whole numbers alone; got "
            f"{reprlib.repr(given)}"
        )
    found, of_columns = np.unique(given, return_inverse=True)
    return found.tolist(), [np.flatnonzero(of_columns == number) for number in range(len(found))]


def _column(given: Any, places: Mapping[Any, int]) -> int:
    if _is_whole(given) and abs(given) < 1 << 62:
        return int(given)
    if given not in places:
        raise ValueError(
            f"groups has the column {given!r}; give numbers of columns, or their names if X is a data frame"
        )
    return places[given]


def _is_whole(number: Any) -> bool:
    return isinstance(number, Integral | np.bool_) or (
        isinstance(number, Real) and float(number).is_integer()
    )
