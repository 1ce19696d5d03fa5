"""Who may write, and what a journey leaves of values."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from dask.sizeof import sizeof

from schmp_estimators.core.cluster.wire import narrow, widen
from schmp_estimators.core.values import align, freeze, own, own_views


class Inner(NamedTuple):
    numbers: np.ndarray
    pair: tuple


class Outer(NamedTuple):
    inner: Inner
    anything: Any
    count: int


def test_frozen_and_owned_values_keep_their_form():
    inner = Inner(np.arange(4.0)[::2], (np.zeros(2), 1))
    value = {"inner": inner, "list": [np.ones(1), "text"]}
    frozen, owned = freeze(value), own(freeze(value))
    for arrays in zip(*map(_arrays, (value, frozen, owned)), strict=True):
        first, read_only, mine = arrays
        assert first.flags.writeable and not read_only.flags.writeable and mine.flags.writeable
        assert np.shares_memory(first, read_only) and not np.shares_memory(first, mine)
        assert mine.flags.c_contiguous
        np.testing.assert_array_equal(first, mine)
    assert type(frozen["inner"]) is type(owned["inner"]) is Inner
    assert frozen["list"][1] == owned["list"][1] == "text"


def _arrays(value):
    return [value["inner"].numbers, value["inner"].pair[0], value["list"][0]]


def test_what_lies_at_an_odd_address_is_moved_and_nothing_else():
    odd = np.frombuffer(b"x" + np.arange(9000.0).tobytes(), offset=1)
    assert not odd.flags.aligned
    even, frozen = np.arange(3.0), np.arange(2)
    frozen.flags.writeable = False
    found = align(Outer(Inner(even, (1, 2)), {"odd": [odd, frozen], "text": "t"}, 3))
    assert found.inner.numbers is even and found.anything["odd"][1] is frozen and type(found.inner) is Inner
    moved = found.anything["odd"][0]
    assert moved.flags.aligned and (moved == odd).all()


def test_what_is_its_own_already_is_not_copied():
    fresh, view, read_only, turned = np.arange(3), np.arange(4)[1:], freeze(np.arange(3)), np.ones((2, 3), order="F")
    found = own_views(Outer(Inner(fresh, (view, read_only)), [turned, fresh], 1))
    assert found.inner.numbers is fresh
    assert found.anything[1] is fresh
    for copied, given in zip((*found.inner.pair, found.anything[0]), (view, read_only, turned), strict=True):
        np.testing.assert_array_equal(copied, given)
        assert not np.shares_memory(copied, given)
        assert copied.flags.writeable and copied.flags.c_contiguous
    assert own_views(fresh) is fresh
    assert own_views("text") == "text"


@pytest.mark.parametrize(
    ("dtype", "low", "high", "needed"),
    [("i8", -1, 1, 1), ("u8", 0, 255, 1), ("i4", 0, 256, 2), ("i2", -128, 127, 1), ("i8", -129, 200, 2),
     ("i8", -5, 1 << 15, 4), ("i8", 0, 1 << 32, 8), ("i1", -1, 1, 1), ("u2", 0, 256, 2), ("f8", 0, 1, 8)],
)  # fmt: skip
def test_what_travels_between_ranks_arrives_as_it_was_in_fewer_bytes(dtype, low, high, needed):
    dtype = np.dtype(dtype)
    is_whole = dtype.kind in "iu"
    array = np.asfortranarray(np.resize(np.array([low, high, 0]).astype(dtype), (600, 5)))
    array.flags.writeable = False
    few, none = array[:3, :1], array[:0]
    travels = narrow(Outer(Inner(array, ("text", few)), {"own": [array.copy(), none]}, 1))
    least = 3000 * (min(needed, dtype.itemsize) if is_whole else dtype.itemsize)
    assert least <= sizeof(travels.inner.numbers) < least + 200
    found = widen(travels)
    assert found.inner.pair[0] == "text" and found.inner.pair[1] is few and found.anything["own"][1] is none
    assert not found.inner.numbers.flags.writeable and found.anything["own"][0].flags.writeable
    for one in (found.inner.numbers, found.anything["own"][0]):
        assert one.dtype == dtype
        np.testing.assert_array_equal(one, array)
    assert found.inner.numbers.flags.f_contiguous
