"""Memory that large copies have let go of is used again, and never while anybody sees it."""

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from schmp_estimators.core.engines import cells
from schmp_estimators.core.engines.cells import Cell, Outcome

from schmp_estimators.core.places.place import Mode
from schmp_estimators.core.recycling import LEAST_BYTES, RECYCLER, Recycler
from schmp_estimators.core.stages import in_turn

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


class Adding:
    """Adds to state and block in place."""

    def add(self, at, state, block):
        state += 1
        block += 2
        return state, block


@pytest.mark.parametrize("in_place", [False, True])
def test_a_cell_leaves_what_it_was_given_as_it_was_unless_it_may_write_in_place(in_place):
    state, block = np.zeros(LARGE), np.zeros(LARGE)
    cell = Cell(0, 0, 1, 1, method="add", kind="changes", block=0)
    made = cells.meet(Adding(), Mode(in_place, in_turn), cell, None, None, Outcome(state), block)
    assert (made.state == 1).all() and (made.block == 2).all()
    assert np.shares_memory(made.state, state) == np.shares_memory(made.block, block) == in_place
    assert state.any() == block.any() == in_place
    assert in_place or made.state.ctypes.data % 64 == made.block.ctypes.data % 64 == 0


class Growing:
    """Adds to its state in place."""

    def grow(self, at, state, *answers):
        state += 1
        return state

    def report(self, at, state):
        return None


@pytest.mark.parametrize("answered", [False, True])
def test_a_shard_on_its_own_takes_what_was_let_go_of_unless_it_exchanges_pieces(answered):
    given, before = np.zeros(LARGE), RECYCLER.in_use
    cell = Cell(0, 0, 1, 1, method="grow", answered=answered)
    made = cells.work_alone(Growing(), Mode(False, in_turn), cell, None, None, Outcome(given))
    assert (made.state == 1).all() and not given.any()
    assert (RECYCLER.in_use > before) == (not answered)
