"""A place that keeps nothing: what it holds is made again each time somebody reads it.

It is for rows that do not fit into memory together.  Only one partition is there at a time, and the one read last is
kept, since neighbours in turn ask for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from schmp_estimators.core.places.local import LocalPlace


class Again:
    """A call that is made whenever its result is asked for; arguments that are such calls are made first.

    Parameters
    ----------
    function : callable
    arguments : tuple
        Of the function: values, calls of this kind, or lists of these.
    """

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function, self._arguments = function, arguments

    def __call__(self) -> Any:
        """Make the call."""
        return self._function(*map(_now, self._arguments))


def _now(value: Any) -> Any:
    if isinstance(value, Again):
        return value()
    return list(map(_now, value)) if type(value) is list else value


class Rereading(LocalPlace):
    """Make what is asked for when its value is asked for, and not before."""

    def __init__(self) -> None:
        super().__init__()
        self._last: tuple[int, Any] | None = None

    def partitions(self, loads: Sequence[Callable[[], Any]]) -> list[Any]:
        """Return what stands for partitions, given what makes each."""
        return [Again(self._load, (number, load)) for number, load in enumerate(loads)]

    def _load(self, number: int, load: Callable[[], Any]) -> Any:
        if self._last is None or self._last[0] != number:
            self._last = None  # before the next one comes
            self._last = number, load()
        return self._last[1]

    def map(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], name: str, *, by_shard: bool = False
    ) -> list[Any]:
        """Return what stands for the results."""
        return [Again(function, given) for given in arguments]

    def gather(self, held: Sequence[Any]) -> list[Any]:  # type: ignore[override]  # mypy takes a static one for another
        """Make the results, one after the other."""
        return list(map(_now, held))

    def let_go(self) -> None:
        """Forget the partition that was read last."""
        self._last = None
