"""Archives of nested values: a ``.npz`` file of arrays, and a JSON header that says how they nest.

The header has the type, shape and checksum of each array.  An archive contains no pickle.  Reading
gives the tree that was written: numbers, arrays, tuples, lists and dicts of the same types.  A
named tuple keeps its type, which must be defined and have the same fields.

Nothing in an archive is compressed, and each array occurs once in the tree, so that reading takes
no more memory than the file is large.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import IO, Any
from zipfile import ZIP_STORED, ZipFile

import numpy as np

from schmp_estimators.core.typing import Named

#: Types that JSON stores exactly.
_PLAIN = {int, float, str, bool, type(None)}
_HEADER = "header.json"
#: Kinds of NumPy's numbers and strings whose types are stored.
_SCALARS = "biufU"
#: Between the head and the tree of values in the header; in a string of JSON the quotation marks
#: would be escaped.
_TREE = ', "tree": '


def pack(head: Named, values: Any) -> Callable[[IO[bytes]], None]:
    """Return a function that writes `values` to a file, with a head in JSON.

    Raises
    ------
    TypeError
        If there is something in `values` that an archive cannot store.
    """
    arrays: list[np.ndarray[Any, Any]] = []
    tree = _strip(values, "", arrays)
    return partial(_save, json.dumps({**head, "tree": tree}), arrays)


def read_head(archive: ZipFile) -> Named:
    """Return the head of an archive, of at most 16 MiB, without reading the rest."""
    if len({*archive.namelist()}) < len(archive.namelist()):
        raise ValueError("it has several members of one name")
    with _opened(archive, _HEADER) as member:
        head, tree, _ = member.read(1 << 24).decode(errors="ignore").partition(_TREE)
    if not tree:
        raise ValueError(f"{_HEADER} has no tree of values in its first 16 MiB")
    found: Named = json.loads(head[1:] + "}")
    return found


def unpack(archive: ZipFile) -> Any:
    """Return the values in an archive.

    Raises
    ------
    Exception
        If they differ from what was written; the message names the array.
    """
    with _opened(archive, _HEADER) as member:
        head, described = json.loads(member.read())
    return _fill(head["tree"], "", archive, enumerate(described))


def _opened(archive: ZipFile, name: str) -> IO[bytes]:
    """Open a member; reading it to its end compares its checksum with that in the archive."""
    info = archive.getinfo(name)
    room = archive.start_dir - info.header_offset
    if info.compress_type != ZIP_STORED or not info.file_size == info.compress_size < room:
        raise ValueError(f"{name} is compressed, or larger than the file")
    return archive.open(info)


def _save(head: str, arrays: Sequence[np.ndarray[Any, Any]], file: IO[bytes]) -> None:
    """Write arrays as `numpy.savez` does, but without copies of them, and then the header."""
    described = []
    with ZipFile(file, "w") as archive:
        for number, array in enumerate(arrays):
            name = f"array{number}.npy"
            with archive.open(name, "w", force_zip64=True) as member:
                if array.flags.c_contiguous:
                    np.lib.format.write_array_header_2_0(
                        member, np.lib.format.header_data_from_array_1_0(array)
                    )
                    member.write(array.reshape(-1).view(np.uint8).data)
                else:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            described.append(_describe(array, archive.getinfo(name).CRC))
        archive.writestr(_HEADER, f"[{head}, {json.dumps(described)}]")


def _describe(array: np.ndarray[Any, Any], checksum: int) -> list[Any]:
    dtype = np.lib.format.descr_to_dtype(
        np.lib.format.dtype_to_descr(array.dtype)
    )  # as `read_array` returns it
    return [str(dtype), list(array.shape), checksum]


def _strip(value: Any, name: str, arrays: list[np.ndarray[Any, Any]]) -> Named:
    """Return a tree for JSON, in which each node is a dict of one entry.

    Arrays are appended to the list.
    """
    node: Named | None = None
    if type(value) in _PLAIN:
        node = {"plain": value}
    elif isinstance(value, np.generic) and value.dtype.kind in _SCALARS:
        node = {"scalar": [value.dtype.str, value.item()]}
    elif isinstance(value, np.ndarray) and not (
        value.dtype.hasobject or isinstance(value, np.ma.MaskedArray)
    ):
        arrays.append(value)
        node = {"array": len(arrays) - 1}
    return node or _strip_inner(
        value, name, lambda one, where: _strip(one, f"{name}{where}", arrays)
    )


def _strip_inner(value: Any, name: str, strip: Callable[[Any, str], Any]) -> Named:
    """Return an inner node of a tree; `strip` returns its children."""
    kind = type(value)
    if kind is dict:
        if all(
            type(key) is str and type(one) in _PLAIN for key, one in value.items()
        ):  # as in many records
            return {"plain": value}
        return {
            "dict": [[strip(key, f".{key}"), strip(one, f".{key}")] for key, one in value.items()]
        }
    if isinstance(value, (tuple, list)) and not hasattr(kind, "_fields"):
        return {
            "tuple" if isinstance(value, tuple) else "list": [
                strip(one, f"[{i}]") for i, one in enumerate(value)
            ]
        }
    if isinstance(value, tuple) and "<locals>" not in kind.__qualname__:
        items = [strip(one, f".{field}") for field, one in zip(kind._fields, value, strict=True)]
        module = kind.__module__.replace(
            "__mp_main__", "__main__"
        )  # the name of a script in its child processes
        return {"named": [f"{module}:{kind.__qualname__}", kind._fields, items]}
    raise TypeError(
        f"a checkpoint cannot keep {_shown(name)}, of type {kind.__qualname__}; use numbers, "
        "strings, arrays without objects or masks, tuples, lists, dicts, and named tuples that "
        "are not defined in a function"
    )


def _fill(node: Named, name: str, archive: ZipFile, described: Iterator[tuple[int, Any]]) -> Any:
    """Return the value of a node that `_strip` has made."""

    def fill(node: Named, where: str = "") -> Any:
        return _fill(node, f"{name}{where}", archive, described)

    [(kind, value)] = node.items()
    found: Any
    match kind:
        case "plain":
            found = value
        case "scalar" if (dtype := np.dtype(value[0])).kind in _SCALARS:
            found = dtype.type(value[1])
        case "array":
            with _naming(f"array {_shown(name)}"):
                found = _read_array(archive, value, *next(described))
        case "dict":
            found = {(known := fill(key)): fill(one, f".{known}") for key, one in value}
        case "list":
            found = [fill(one, f"[{i}]") for i, one in enumerate(value)]
        case "tuple":
            found = tuple(fill(one, f"[{i}]") for i, one in enumerate(value))
        case "named":
            items = [fill(one, f".{field}") for field, one in zip(*value[1:], strict=True)]
            found = tuple.__new__(_named_tuple(*value[:2]), items)
        case _:
            raise ValueError(f"{_shown(name)} is {kind!r}")
    return found


def _shown(name: str) -> str:
    return name.lstrip(".") or "the values as a whole"


@contextmanager
def _naming(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise ValueError(f"{what} is not as it was written: {error}") from error


def _read_array(
    archive: ZipFile, number: int, following: int, expected: Sequence[Any]
) -> np.ndarray[Any, Any]:
    if number != following:
        raise ValueError(f"it is number {number} instead of {following}")
    with _opened(archive, name := f"array{number}.npy") as member:
        array: np.ndarray[Any, Any] = np.lib.format.read_array(member, allow_pickle=False)
    if (found := _describe(array, archive.getinfo(name).CRC)) != expected:
        raise ValueError(f"type, shape and checksum are {found} instead of {expected}")
    return array


def _named_tuple(name: str, fields: Sequence[str]) -> Any:
    """Return the type of a named tuple in this process, if it has these fields."""
    module, _, qualname = name.partition(":")
    try:
        found = attrgetter(qualname)(sys.modules[module])
    except (KeyError, AttributeError) as error:
        raise ValueError(
            f"there is no named tuple {name}: import or define it first, as in the first run"
        ) from error
    if not issubclass(found, tuple) or [*found._fields] != [*fields]:
        raise ValueError(
            f"{name} has the fields {', '.join(found._fields)}, and had {', '.join(fields)}"
        )
    return found
