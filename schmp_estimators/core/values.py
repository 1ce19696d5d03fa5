"""Who may write: values handed on are frozen, values to be changed are owned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast, get_type_hints

import numpy as np

T = TypeVar("T")

_CONTAINERS = (tuple, list, dict)
_CHANGED = (np.ndarray, *_CONTAINERS)


def freeze(value: T) -> T:
    """Return `value` with all its arrays as read-only views, so that writing into what others read raises.

    Kernels meet frozen arrays in every place, and so are compiled for one signature only.  That is why arrays that a
    journey has left at an odd address are copied.
    """
    if isinstance(value, np.ndarray):
        if value.flags.aligned and not value.flags.writeable:
            return value
        view = (value if value.flags.aligned else value.copy(order="K")).view()
        view.flags.writeable = False
        return view
    return cast(T, _rebuild(value, freeze))


def own(value: T) -> T:
    """Return `value` with all its arrays copied, contiguous and writable."""
    if isinstance(value, np.ndarray):
        return np.array(value, order="C")  # type: ignore[return-value]
    return cast(T, _rebuild(value, own))


def _rebuild(value: Any, change: Callable[[Any], Any]) -> Any:
    if not isinstance(value, _CONTAINERS):
        return value
    found = value.values() if isinstance(value, dict) else value
    parts = [change(part) if isinstance(part, _CHANGED) else part for part in found]
    if isinstance(value, dict):
        return dict(zip(value, parts, strict=True))
    if isinstance(value, tuple):
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return parts


def retype(kind: Any, value: Any) -> Any:
    """Return lists as the tuples that they were before they went through a file; `kind` is a named one, or None."""
    if not isinstance(value, list):
        return value
    if not (isinstance(kind, type) and hasattr(kind, "_fields")):
        return tuple(retype(None, part) for part in value)
    hints = get_type_hints(kind)
    return kind(*(retype(hints[name], part) for name, part in zip(kind._fields, value, strict=True)))


def box(value: Any) -> Any:
    """Return `value` as the only element of an array of objects, so that Dask leaves it as it is."""
    boxed = np.empty((1, 1), object)
    boxed[0, 0] = value
    return boxed
