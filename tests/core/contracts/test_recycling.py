"""Memory that large arrays have let go of is used again, and never while anybody sees it."""

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from schmp_estimators.core.recycling import LEAST_BYTES, Recycler

LARGE = LEAST_BYTES // 8


@pytest.mark.parametrize("shape", [(3,), (LARGE,), (2 * LARGE + 3,), (4, LARGE)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_room_has_its_shape_and_type_and_large_room_begins_at_a_cache_line(shape, dtype):
    recycler = Recycler()
    rooms = [recycler.room(shape, dtype) for _ in range(3)]
    for value, room in enumerate(rooms):
        room[...] = value
    for value, room in enumerate(rooms):
        assert (room.shape, room.dtype) == (shape, dtype) and room.flags.writeable and room.flags.c_contiguous
        assert room.nbytes < LEAST_BYTES or room.ctypes.data % 64 == 0
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(room)), np.full(shape, value, dtype))


def full(recycler, size, value):
    room = recycler.room((size,), float)
    room[:] = value
    return room


def test_memory_is_used_again_once_nobody_sees_it():
    recycler = Recycler()
    held = [full(recycler, LARGE + 5 * n, n) for n in range(4)]
    view, place = held[1][10:20].reshape(2, 5), held[2].ctypes.data
    del held[1]
    assert not recycler.idle  # a view is enough to see it
    del held[1]
    assert recycler.idle
    again = full(recycler, LARGE, 0.0)  # a little smaller fits, too
    assert again.ctypes.data == place and not recycler.idle
    np.testing.assert_array_equal(view, 1.0)
    np.testing.assert_array_equal(again, 0.0)
    assert full(recycler, 3 * LARGE, 1.0).size == 3 * LARGE  # larger than anything that has been let go of


def test_there_is_never_more_memory_idle_than_in_use():
    recycler = Recycler()
    held = [full(recycler, LARGE, 1.0) for _ in range(6)]
    while held:
        held.pop()
        assert recycler.idle <= recycler.in_use
    gc.collect()
    assert recycler.idle == recycler.in_use == 0


def test_threads_that_fill_and_let_go_at_the_same_time_see_their_own_arrays():
    recycler = Recycler()

    def work(number):
        for turn in range(60):
            value = float(100 * number + turn)
            room = full(recycler, LARGE + number, value)
            loop = [room]
            loop.append(loop)  # let go of by the collector of garbage, wherever that runs
            assert (room == value).all()
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    gc.collect()
    full(recycler, LARGE, 1.0)
    assert recycler.idle == recycler.in_use == 0
