"""A fit of `DistributedLDA` on a cluster whose workers have no memory for the rows of all words."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators.core.engine.running import AnyRun
from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.program import Harvest
from schmp_estimators.core.store import open_store
from schmp_estimators.core.values import freeze
from schmp_estimators.lda import spill
from schmp_estimators.lda.data.met_groups import cut_words
from schmp_estimators.lda.data.packed import Packing
from schmp_estimators.lda.kernels.rows import move_rows
from schmp_estimators.lda.programs.groups import GroupProgram
from schmp_estimators.lda.programs.sliced_groups import RowsThere, SlicedGroups
from schmp_estimators.lda.programs.warp import WarpLDA
from schmp_estimators.lda.spilled_groups_fit import GroupsFit

#: The file of what a fit has found, where that is mapped into memory.
_COUNTS = "counts"


class SlicedGroupsFit(GroupsFit):
    """A fit in progress whose groups exchange tokens through files; parameters are those of `GroupsFit`."""

    def _divide(self) -> None:
        super()._divide()
        self._words = cut_words(self._layout, self._corpus.word_totals, self._n_slices)

    def _on_disks(self, program: WarpLDA) -> GroupProgram:
        return SlicedGroups(program)

    def _packing(self) -> Packing:
        plain = super()._packing()
        # words with seeds are sampled as they are
        return plain if self._seeds is not None else Packing.of(self._n_topics, plain.width, plain.dtype)

    def _topics_of_a_token(self) -> int:
        return (
            super()._topics_of_a_token() + 1 + self._sizes.mh_steps + 1
        )  # what is sampled by owners, and a look at it

    def _attributes(self, run: AnyRun) -> dict[str, Any]:
        try:
            return super()._attributes(run)
        except WorkLostError:  # a worker has died that had rows: the run goes on from its last snapshot
            return super()._attributes(run)

    def _counts_of(self, harvest: Harvest) -> sparse.csc_array:
        found: list[RowsThere] = [rows for of_owner in harvest.blocks for rows in of_owner]
        sizes, column = np.concatenate([rows.sizes for rows in found]), self._layout.column
        ptr, first = np.zeros(len(column) + 1, np.int64), 0
        ptr[1:][column] = sizes
        np.cumsum(ptr, out=ptr)
        with ExitStack() as stack:
            entries, mapped = self._room(stack, int(ptr[-1]))
            for file, of_words in found:
                rows = np.empty((2, int(of_words.sum())), np.int32)
                self._disk.fetch(self._place, file, 0, rows)
                begin, to = np.concatenate([[0], np.cumsum(of_words)]), ptr[column[first : first + len(of_words)]]
                move_rows(*freeze((begin, *rows, to)), *entries)
                first += len(of_words)
            if mapped:
                entries = np.asarray(np.memmap(mapped, np.int32, "r", shape=entries.shape))
        short = ptr.astype(np.int32) if ptr[-1] <= np.iinfo(np.int32).max else ptr
        return sparse.csc_array((entries[1], entries[0], short), shape=(self._n_topics, len(column)))

    def _room(self, stack: ExitStack, n: int) -> tuple[NDArray[np.int32], str]:
        """Return an array for topics and their tokens, (2, n), and its file, where the client has no memory for it."""
        # A system that does not remove open files would keep it forever.
        if 8 * n <= spill.SHARE * spill.memory_left() or sys.platform == "win32":
            return np.empty((2, n), np.int32), ""
        store = self._store or stack.enter_context(open_store())
        store.remove(lambda name: name != _COUNTS)  # somebody may still read an earlier one, which stays as it is
        store.allocate(_COUNTS, 8 * n)
        path = store.path(_COUNTS)
        return np.asarray(np.memmap(path, np.int32, "r+", shape=(2, n))), path
