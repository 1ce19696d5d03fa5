"""Memory that large copies have let go of is used again, and never while anybody sees it."""

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from schmp_estimators.core.recycling import LEAST_BYTES, Recycler

LARGE = LEAST_BYTES // 8


@pytest.mark.parametrize(
    "array",
    [
        np.arange(2.0 * LARGE).reshape(-1, 2)[:, 1],
        np.asfortranarray(np.arange(LARGE * 2, dtype=np.float32).reshape(4, -1)),
        np.arange(3),
        np.full(LARGE + 1, "a", object),
    ],
    ids=["a column", "Fortran", "small", "objects"],
)
def test_a_copy_is_writable_contiguous_and_of_its_own(array):
    array.flags.writeable = False
    copied = Recycler().copy(array)
    np.testing.assert_array_equal(copied, array)
    assert copied.dtype == array.dtype and copied.flags.writeable and copied.flags.c_contiguous
    assert not np.shares_memory(copied, array)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(copied)), array)


def test_large_copies_begin_at_a_cache_line():
    recycler, array = Recycler(), np.ones(LARGE, np.float32)
    kept = [recycler.copy(np.ones(2 * LARGE + n, np.float32)) for n in range(9)]
    assert all(copied.ctypes.data % 64 == 0 for copied in [*kept, recycler.copy(np.ones((LARGE, 3)))])
    assert recycler.copy(array) is not array


def test_memory_is_used_again_once_nobody_sees_it():
    recycler, arrays = Recycler(), [np.full(LARGE + 5 * n, float(n)) for n in range(4)]
    held = [recycler.copy(array) for array in arrays]
    view, place = held[1][10:20].reshape(2, 5), held[2].ctypes.data
    del held[1]
    assert not recycler.idle  # a view is enough to see it
    del held[1]
    assert recycler.idle
    again = recycler.copy(arrays[0])  # a little smaller fits, too
    assert again.ctypes.data == place and not recycler.idle
    np.testing.assert_array_equal(view, 1.0)
    np.testing.assert_array_equal(again, 0.0)
    assert recycler.copy(np.ones(3 * LARGE)).size == 3 * LARGE  # larger than anything that has been let go of


def test_there_is_never_more_memory_idle_than_in_use():
    recycler = Recycler()
    held = [recycler.copy(np.ones(LARGE)) for _ in range(6)]
    while held:
        held.pop()
        assert recycler.idle <= recycler.in_use
    gc.collect()
    assert recycler.idle == recycler.in_use == 0


def test_threads_that_copy_and_let_go_at_the_same_time_see_their_own_arrays():
    recycler = Recycler()

    def work(number):
        for turn in range(60):
            value = float(100 * number + turn)
            copied = recycler.copy(np.full(LARGE + number, value))
            loop = [copied]
            loop.append(loop)  # let go of by the collector of garbage, wherever that runs
            assert (copied == value).all()
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    gc.collect()
    recycler.copy(np.ones(LARGE))
    assert recycler.idle == recycler.in_use == 0
