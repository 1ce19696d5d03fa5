"""A fit of `DistributedLDA` whose documents are on disk."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators.core.engine.local import LocalRun
from schmp_estimators.core.engine.running import AnyRun
from schmp_estimators.core.places.disks import memory_of_workers
from schmp_estimators.core.places.local import LocalPlace
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.program import Harvest, Saved, Source
from schmp_estimators.core.stages import Stage
from schmp_estimators.core.store import Store
from schmp_estimators.lda import spill
from schmp_estimators.lda.blocks import TopicRows, no_rows, no_topics
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.packed import Packing
from schmp_estimators.lda.data.partition import cut_documents
from schmp_estimators.lda.data.passages import topics_of_shard
from schmp_estimators.lda.data.spilled import SpilledShard, documents_as_counted, spill_shards, topics_file
from schmp_estimators.lda.data.tokens import layout_by_column, make_layout
from schmp_estimators.lda.data.topic_rows import cut_rows
from schmp_estimators.lda.data.topics import rows_of_block, rows_of_counts_array
from schmp_estimators.lda.fit import LDAFit
from schmp_estimators.lda.programs.spilled import SpilledLDA
from schmp_estimators.lda.programs.spilled_words import RowsOnDisk, SlicedLDA
from schmp_estimators.lda.programs.topics import TopicProgram, topic_dtype
from schmp_estimators.lda.programs.warp import WarpLDA
from schmp_estimators.lda.sliced_groups_fit import SlicedGroupsFit
from schmp_estimators.lda.spilled_groups_fit import GroupsFit

#: The file of what a fit has found, where that is mapped into memory.
_COUNTS = "counts"

logger = logging.getLogger(__name__)


def choose_fit(estimator: Any, corpus: Corpus, place: Place, **options: Any) -> LDAFit:
    """Return a fit with its documents in memory or, where `spill` says so, on disk; parameters are those of `LDAFit`.

    A corpus that may go to disk has been opened with ``again=True``.
    """
    if estimator.spill is None:
        return LDAFit(estimator, corpus, place, **options)
    sizes = spill.Sizes.of(corpus, int(estimator.n_components), int(estimator.mh_steps))
    if not isinstance(place, LocalPlace):
        least, together = left_of_workers(place)
        if estimator.spill != "auto" or sizes.on_cluster(place.n_processes) > spill.WORKER_SHARE * together:
            n_shards, division = _divide_groups(estimator, sizes, len(corpus.lengths), place, least)
            groups = GroupsFit if division.has_rows else SlicedGroupsFit
            cut = {"n_shards": n_shards, "n_slices": division.n_shards}
            return groups(estimator, corpus, place, sizes=sizes, **cut, **options)
    elif spill.must_spill(estimator, sizes):
        division = spill.divide(sizes, len(corpus.lengths))
        kind = SpilledFit if division.has_rows else SlicedFit
        return kind(estimator, corpus, place, sizes=sizes, fitting=division.n_shards, **options)
    return LDAFit(estimator, corpus.held(), place, **options)


def left_of_workers(place: Place) -> tuple[int, int]:
    """Return how many bytes any worker may still take, and all of them together."""
    found = memory_of_workers(place)
    return min(found, default=0), sum(found)


def _divide_groups(
    estimator: Any, sizes: spill.Sizes, n_docs: int, place: Place, left: int
) -> tuple[int, spill.Division]:
    """Return how many shards workers have, and how these are cut, given the bytes that any worker may still take."""
    asked, n_workers = estimator.n_shards, place.n_processes
    n_shards = max(1, min(n_workers if asked is None else int(asked), n_docs))
    at_once = min(-(-n_shards // n_workers), -(-place.n_threads // n_workers))
    return n_shards, spill.divide_group(sizes, n_shards, left // at_once)


class SpilledFit(LDAFit):
    """A fit in progress, with shards on disk that are visited one after the other.

    Parameters
    ----------
    estimator, corpus, place, **options
        As in `LDAFit`.
    sizes : Sizes
        Those of the corpus and the model.
    fitting : int
        Into how many shards documents have to be cut, if the user has not said so.
    """

    #: First words of slices, where tokens are by these, too.
    _words: NDArray[np.int64] | None = None

    def __init__(
        self, estimator: Any, corpus: Corpus, place: Place, *, sizes: spill.Sizes, fitting: int, **options: Any
    ) -> None:
        self._sizes, self._fitting = sizes, fitting
        super().__init__(estimator, corpus, place, **options)

    def run(self, X: Any, y: Any) -> dict[str, Any]:
        """Sample, and return the fitted attributes."""
        with spill.opened(self._estimator, self._sizes) as self._store:
            found = super().run(X, y)
            if self._store.is_kept:  # all else can be made again
                self._store.remove({"manifest", topics_file(self._estimator.n_iter_)}.__contains__)
            return found

    def _choose_shards(self) -> int:
        n_docs = len(self._corpus.lengths)
        asked = self._estimator.n_shards
        return self._fitting if asked is None else max(1, min(int(asked), n_docs))

    def _divide(self) -> None:
        self._documents = documents_as_counted(self._corpus, self._bounds)
        self._layout = make_layout(self._corpus.word_totals, 1)

    def _resume(self) -> tuple[int, Saved | None, list[dict[str, Any]]]:
        found = None
        if self._store.is_kept:
            self._identity = self._fingerprint()
            found = spill.resume(
                self._store,
                self._identity,
                n_tokens=self._n_tokens,
                n_topics=self._n_topics,
                max_iter=int(self._estimator.max_iter),
            )
        self._shards = spill_shards(
            self._store, self._corpus, self._documents, self._bounds, self._layout, self._packing(), self._words,
        )  # fmt: skip
        if found is None:
            return 0, None, []
        logger.info("going on after sweep %d from %s", found.done, self._store.folder)
        self._go_on(found.done, found.hot_sweeps, found.history)
        assert isinstance(self._program, WarpLDA)  # `check_spill` has let no other in
        return found.done, found.saved(self._program, self._n_shards), found.history

    def _packing(self) -> Packing:
        """Return how topics with their proposals are in their file."""
        return Packing(1 + self._sizes.mh_steps, 0, np.dtype(topic_dtype(self._n_topics)))

    def _started(
        self, program: TopicProgram[Any, Any], earlier: sparse.csc_array | None, **options: Any
    ) -> AbstractContextManager[AnyRun]:
        assert isinstance(program, WarpLDA)
        self._spilled, first = self._on_disk(program), no_topics()
        if self._first:
            first = topics_of_shard(self._first, self._layout.column, self._corpus.word_totals)
        fixed = self._fixed(earlier)
        sources = [
            Source(partial(_complete, shard, first=first, fixed=rows))
            for shard, rows in zip(self._shards, fixed, strict=True)
        ]
        return nullcontext(LocalRun(self._spilled, sources, inside=self._place.each, **options))

    def _on_disk(self, program: WarpLDA) -> SpilledLDA | SlicedLDA:
        """Return the program with its tokens on disk."""
        return SpilledLDA(program)

    def _fixed(self, earlier: sparse.csc_array | None) -> list[TopicRows]:
        """Return the rows of earlier batches that each shard keeps."""
        of_all = no_rows(self._corpus.n_features) if earlier is None else rows_of_block(earlier, self._layout, 0)
        return [of_all] + [no_rows()] * (self._n_shards - 1)

    def _measuring(self) -> Stage:
        return self._spilled.measuring(self._n_shards)

    def _keep_sweep(self, run: AnyRun, done: int) -> None:
        if self._store.is_kept:
            history = list(self._estimator.history_)
            spill.commit(self._store, self._identity, run.save().model, history, self._program.hot_sweeps)

    def _keep_last(self, run: AnyRun) -> None:
        """Do nothing: the last sweep has been kept as all others."""


class SlicedFit(SpilledFit):
    """A fit in progress whose word rows do not fit into memory either; parameters are those of `SpilledFit`."""

    def _divide(self) -> None:
        self._documents = documents_as_counted(self._corpus, self._bounds)
        self._layout = layout_by_column(self._corpus.n_features)
        self._words = cut_documents(self._corpus.word_totals, self._n_shards)

    def _on_disk(self, program: WarpLDA) -> SlicedLDA:
        return SlicedLDA(program)

    def _fixed(self, earlier: sparse.csc_array | None) -> list[TopicRows]:
        assert self._words is not None
        slices = list(pairwise(self._words.tolist()))
        if earlier is None:
            return [no_rows(last - first) for first, last in slices]
        rows = rows_of_counts_array(earlier)
        return [cut_rows(rows, first, last) for first, last in slices]

    def _counts_of(self, harvest: Harvest) -> sparse.csc_array:
        self._store.remove(lambda name: name != _COUNTS)  # somebody may still read an earlier one, which stays as it is
        sizes, entries = _read_rows(self._store, harvest.shards)
        self._store.remove(lambda name: not name.startswith("rows-"))
        ptr = np.concatenate([[0], np.cumsum(sizes)])
        if ptr[-1] <= np.iinfo(np.int32).max:
            ptr = ptr.astype(np.int32)
        return sparse.csc_array((entries[1], entries[0], ptr), shape=(self._n_topics, len(sizes)))


def _read_rows(store: Store, of_slices: Sequence[RowsOnDisk]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return how many topics each word has, and these with their tokens, (2, n): mapped where memory is too small."""
    sizes = np.concatenate([one.sizes for one in of_slices])
    n, begin = int(sizes.sum()), 0
    # A system that does not remove open files would keep it forever.
    is_mapped = 8 * n > spill.SHARE * spill.memory_left() and sys.platform != "win32"
    entries = np.empty((2, 0 if is_mapped else n), np.int32)
    if is_mapped:
        store.allocate(_COUNTS, 8 * n)
    for file, of_words in of_slices:
        m = int(of_words.sum())
        for what in (0, 1):
            some = np.empty(m, np.int32) if is_mapped else entries[what, begin : begin + m]
            store.read(file, 4 * what * m, some)
            if is_mapped:
                store.write_at(_COUNTS, 4 * (what * n + begin), some)
        begin += m
    if is_mapped:
        entries = np.asarray(np.memmap(store.path(_COUNTS), np.int32, "r", shape=(2, n)))
    return sizes, entries


def _complete(shard: SpilledShard, **known: Any) -> SpilledShard:
    return shard._replace(**known)
