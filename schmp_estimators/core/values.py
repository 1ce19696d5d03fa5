"""Who may write: values handed on are frozen, values to be changed are owned."""

from __future__ import annotations

from typing import Any, TypeVar, cast, get_type_hints

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

_CONTAINERS = (tuple, list, dict)


def freeze(value: T) -> T:
    """Return `value` with all its arrays as read-only views, so that writing into what others read raises.

    Kernels meet frozen arrays in every place, and so are compiled for one signature only.  That is why arrays that a
    journey has left at an odd address are copied.
    """
    if isinstance(value, np.ndarray):
        return cast(T, _rebuild_array(value, False, False))
    return cast(T, _rebuild(value, False)) if isinstance(value, _CONTAINERS) else value


def own(value: T) -> T:
    """Return `value` with all its arrays copied, contiguous and writable."""
    if isinstance(value, np.ndarray):
        return cast(T, _rebuild_array(value, True, False))
    return cast(T, _rebuild(value, True)) if isinstance(value, _CONTAINERS) else value


def own_views(value: T) -> T:
    """Return `value` with those of its arrays copied that are read-only or views: what others read, or may write to."""
    if isinstance(value, np.ndarray):
        return cast(T, _rebuild_array(value, True, True))
    return cast(T, _rebuild(value, True, fresh=True)) if isinstance(value, _CONTAINERS) else value


def align(value: T) -> T:
    """Return `value` with those of its arrays copied that a journey has left at an odd address.

    NumPy adds the elements of such an array in another order, some thousands at a time: sums have other bits.
    """
    if isinstance(value, np.ndarray):
        return cast(T, value if value.flags.aligned else value.copy(order="K"))
    if not isinstance(value, _CONTAINERS):
        return value
    given = list(value.values() if isinstance(value, dict) else value)
    parts = [align(part) for part in given]
    if all(part is one for part, one in zip(parts, given, strict=True)):
        return value
    if isinstance(value, dict):
        return cast(T, dict(zip(value, parts, strict=True)))
    if isinstance(value, tuple):
        return cast(T, type(value)(*parts) if hasattr(value, "_fields") else tuple(parts))
    return cast(T, parts)


def _rebuild(value: Any, copied: bool, fresh: bool = False) -> Any:
    """Return a container with its arrays copied, or frozen; a tuple that needs neither stays what it is.

    With `fresh`, those that are their own, contiguous and writable, are not copied.
    """
    given = value.values() if isinstance(value, dict) else value
    parts: list[Any] | None = None  # most tuples stay what they are
    for at, part in enumerate(given):
        if isinstance(part, np.ndarray):
            new = _rebuild_array(part, copied, fresh)
        elif isinstance(part, _CONTAINERS):
            new = _rebuild(part, copied, fresh)
        else:
            continue
        if new is not part:
            parts = list(given) if parts is None else parts
            parts[at] = new
    if isinstance(value, tuple):
        if parts is None:
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    parts = list(given) if parts is None else parts
    return dict(zip(value, parts, strict=True)) if isinstance(value, dict) else parts


def _rebuild_array(array: NDArray[Any], copied: bool, fresh: bool) -> NDArray[Any]:
    flags = array.flags
    if copied:
        own = fresh and flags.owndata and flags.writeable and flags.c_contiguous
        return array if own else np.array(array, order="C")
    if flags.aligned and not flags.writeable:
        return array
    frozen = (array if flags.aligned else array.copy(order="K")).view()
    frozen.flags.writeable = False
    return frozen


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
