"""States that the next task changes where they are, so that there is one of them and not two.

A graph of pure tasks does not know of that.  Should Dask do work a second time whose state has been taken over, it
finds that out, and the run goes on from its last cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.recycling import RECYCLER
from schmp_estimators.core.values import freeze, own


class HandedOver:
    """A state for whoever takes it over; until then others may look at it.

    Parameters
    ----------
    state : object
        Arrays in it are the taker's, who may write to them.
    """

    def __init__(self, state: Any) -> None:
        self._held: tuple[Any, ...] = (state,)
        self._has_come = False

    def look(self) -> Any:
        """Return the state, read-only; raises as `take`."""
        return freeze(self._given())

    def take(self) -> Any:
        """Return the state, and have it no longer.

        Raises
        ------
        WorkLostError
            If it was taken before.
        """
        state = self._given()
        self._held = ()
        return own(state) if self._has_come else state  # what has come from another process may be read-only

    def _given(self) -> Any:
        if not self._held:
            raise WorkLostError("a state was taken over before")
        return self._held[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return _come, self._held

    def __sizeof__(self) -> int:
        """Return the bytes of the state."""
        return object.__sizeof__(self) + _nbytes(self._held)


def _come(*held: Any) -> HandedOver:
    handed = HandedOver(None)
    handed._held, handed._has_come = held, True
    return handed


def _nbytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return sum(map(_nbytes, parts))


def look_at(state: Any) -> Any:
    """Return a state, which may be one to be taken over."""
    return state.look() if isinstance(state, HandedOver) else state


def take_over(state: Any) -> Any:
    """Return a state that is the caller's: taken over, or a copy."""
    return state.take() if isinstance(state, HandedOver) else own(state, RECYCLER.copy)
