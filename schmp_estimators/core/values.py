"""Write access to arrays.

Values that are passed on are frozen; values that will be changed are copied.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from schmp_estimators.core.typing import Array, Unary

T = TypeVar("T")

_CONTAINERS = (tuple, list, dict)


#: Bits of the flags of a NumPy array.
_ALIGNED, _ALIGNED_OR_WRITEABLE = 0x100, 0x500


def freeze(value: T, known: set[int] | None = None) -> T:
    """Return `value` with read-only views of all its arrays.

    So no function can change what others read.

    Kernels always get frozen arrays, and so are compiled for one signature only.  For the same
    reason arrays at unaligned addresses, where messages may leave them, are copied.  A tuple whose
    arrays are frozen is returned itself.

    Parameters
    ----------
    value : object
    known : set of int, optional
        Ids of such tuples that were found before, because one block may be part of many values;
        mutated.
    """
    if isinstance(value, np.ndarray):
        return cast(
            T, value if value.flags.num & _ALIGNED_OR_WRITEABLE == _ALIGNED else freeze([value])[0]
        )
    if not isinstance(value, _CONTAINERS):
        return value
    known = set() if known is None else known
    parts: list[Any] = list(value.values() if isinstance(value, dict) else value)
    is_new = not isinstance(value, tuple)
    for at, part in enumerate(parts):
        if isinstance(part, np.ndarray):
            if part.flags.num & _ALIGNED_OR_WRITEABLE != _ALIGNED:
                parts[at] = (part if part.flags.aligned else part.copy(order="K")).view()
                parts[at].flags.writeable = False
                is_new = True
        elif isinstance(part, _CONTAINERS) and id(part) not in known:
            parts[at] = freeze(part, known)
            if parts[at] is part:
                known.add(id(part))  # the id is valid as long as `value` exists
            else:
                is_new = True
    return cast(T, like(value, parts)) if is_new else value


def own(value: T, copy: Callable[[Array], Array] | None = None) -> T:
    """Return `value` with contiguous, writable copies of all its arrays.

    The function `copy` makes them, by default that of NumPy.
    """
    return cast(T, replace_leaves(value, np.ndarray, copy or _copied))


def own_views(value: T) -> T:
    """Return `value` with copies of its arrays that are read-only or views.

    Others may use these.
    """
    return cast(T, replace_leaves(value, np.ndarray, _copied_view))


def claim(value: T) -> T:
    """Return `value` with copies of those of its arrays that are not writable.

    Nobody else uses `value` any more.
    """
    return cast(T, replace_leaves(value, np.ndarray, _writable))


def align(value: T) -> T:
    """Return `value` with copies of those of its arrays that are at unaligned addresses.

    They may be there after sending.

    NumPy adds the elements of such an array in another order, some thousands at a time, so sums
    have other bits.
    """
    return cast(T, replace_leaves(value, np.ndarray, _aligned))


def nbytes(value: Any) -> int:
    """Return the bytes of the arrays in a value."""
    left = [value]
    found = 0
    while left:
        one = left.pop()
        if isinstance(one, np.ndarray):
            found += one.nbytes
        elif isinstance(one, (dict, list, tuple)):
            left += one.values() if isinstance(one, dict) else one
    return found


def replace_leaves(value: Any, kind: type, function: Unary) -> Any:
    """Return `value` with its leaves of one type replaced by the results of `function`."""
    if isinstance(value, kind):
        return function(value)
    if not isinstance(value, _CONTAINERS):
        return value
    parts = list(value.values() if isinstance(value, dict) else value)
    for at, part in enumerate(parts):
        if isinstance(part, kind):
            parts[at] = function(part)
        elif isinstance(part, _CONTAINERS):
            parts[at] = replace_leaves(part, kind, function)
    return like(value, parts)


def like(value: Any, parts: list[Any]) -> Any:
    """Return a container like `value` with other parts."""
    if isinstance(value, tuple):
        return getattr(value, "_make", tuple)(parts)
    return dict(zip(value, parts, strict=True)) if isinstance(value, dict) else parts


def _aligned(array: Array) -> Array:
    return array if array.flags.aligned else array.copy(order="K")


def _copied(array: Array) -> Array:
    return np.array(array, order="C")


def _copied_view(array: Array) -> Array:
    """Return a copy, unless the array owns its memory and is contiguous and writable."""
    flags = array.flags
    return array if flags.owndata and flags.writeable and flags.c_contiguous else _copied(array)


def _writable(array: Array) -> Array:
    """Return the array, or a copy if it is read-only or at an unaligned address."""
    return array if array.flags.behaved else _copied(array)


def itself(value: T) -> T:
    """Return `value`."""
    return value


def box(value: Any) -> Any:
    """Return `value` as the only element of an array of objects; Dask leaves it as it is."""
    boxed = np.empty((1, 1), object)
    boxed[0, 0] = value
    return boxed


def offsets_of(sizes: Any) -> Array:
    """Return where parts of these sizes begin, and where the last one ends.

    The parts follow one another.
    """
    return np.append(0, np.cumsum(sizes))


def part_of_each(sizes: Any, dtype: Any = np.int64) -> Array:
    """Return for each element of parts of these sizes the number of its part.

    The parts follow one another.
    """
    return np.repeat(np.arange(len(sizes), dtype=dtype), sizes)


def spans(begins: Any, sizes: Any) -> Array:
    """Return ranges of numbers, one after the other.

    Range i has the ``sizes[i]`` numbers from ``begins[i]`` on.
    """
    ends = np.cumsum(sizes)
    found: Array = np.arange(ends[-1] if len(ends) else 0) + np.repeat(begins - ends + sizes, sizes)
    return found
