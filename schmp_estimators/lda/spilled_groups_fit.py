"""A fit of `DistributedLDA` whose documents are on the disks of the workers of a cluster."""

from __future__ import annotations

import logging
import os
import warnings
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators.core.door.rows import RowsAgain
from schmp_estimators.core.engine.running import AnyRun, Source, static_run
from schmp_estimators.core.places.disks import (
    Disk,
    Kept,
    KeptLostError,
    Span,
    disks_of,
)
from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.places.rereading import Again
from schmp_estimators.core.program import Saved
from schmp_estimators.core.stages import Stage
from schmp_estimators.core.store import SUFFIX, Part, SpillError, SpillWarning, Store, open_store
from schmp_estimators.lda import spill
from schmp_estimators.lda.blocks import WordTopics, no_rows, no_topics
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.counts import count_words
from schmp_estimators.lda.data.met_groups import WordSlices
from schmp_estimators.lda.data.packed import Packing
from schmp_estimators.lda.data.partition import cut_documents
from schmp_estimators.lda.data.passages import topics_from_passages, topics_of_shard
from schmp_estimators.lda.data.spilled import documents_as_counted
from schmp_estimators.lda.data.spilled_groups import GroupPlan, make_group
from schmp_estimators.lda.data.tokens import make_layout
from schmp_estimators.lda.data.topics import rows_of_block
from schmp_estimators.lda.fit import LDAFit
from schmp_estimators.lda.programs.groups import GroupProgram
from schmp_estimators.lda.programs.spilled_groups import SpilledGroups
from schmp_estimators.lda.programs.topics import TopicProgram, topic_dtype
from schmp_estimators.lda.programs.warp import WarpLDA

#: After how many sweeps a run whose workers have folders of their own keeps what it can go on from.
CUT_EVERY = 5

logger = logging.getLogger(__name__)


class GroupsFit(LDAFit):
    """A fit in progress, each of whose shards is a group of slices on the disk of a worker.

    Parameters
    ----------
    estimator, corpus, place, **options
        As in `LDAFit`.
    sizes : Sizes
        Those of the corpus and the model.
    n_shards, n_slices : int
        How many shards there are, and into how many slices each is cut.
    """

    #: How the words of each owner are cut, where their rows do not fit into memory.
    _words: WordSlices | None = None

    def __init__(
        self,
        estimator: Any,
        corpus: Corpus,
        place: Place,
        *,
        sizes: spill.Sizes,
        n_shards: int,
        n_slices: int,
        **options: Any,
    ) -> None:
        self._sizes, self._asked, self._n_slices = sizes, n_shards, n_slices
        #: Of a folder that the user has named: the manifest, and the parts that it names.
        self._store: Store | None = None
        self._parts: list[Part] = []
        super().__init__(estimator, corpus, place, **options)

    def run(self, X: Any, y: Any) -> dict[str, Any]:
        """Sample, and return the fitted attributes."""
        with ExitStack() as stack:
            if self._estimator.spill != "auto":
                self._store = stack.enter_context(open_store(self._estimator.spill))
                stack.callback(self._leave)
            self._disk: Disk = stack.enter_context(disks_of(self._place, self._store))
            rows = self._corpus.rows
            if isinstance(rows, RowsAgain):
                copies = None if self._store is None else self._store.path("input")
                rows = stack.enter_context(rows.elsewhere(self._place, copies))
                self._corpus = replace(self._corpus, rows=rows)
            if self._store is None:
                self._say_where()
            self._place.snapshot_every = CUT_EVERY if self._store is None else 1
            try:
                found = super().run(X, y)
            except KeptLostError as error:
                raise WorkLostError(str(error)) from error
            self._tidy(keep_last_only=True)
        return found

    def _say_where(self) -> None:
        sizes = self._sizes
        topic = np.dtype(topic_dtype(sizes.n_topics)).itemsize
        warnings.warn(
            f"the fit would need about {sizes.on_cluster(self._n_shards) / 2**30:.3g} GiB on the cluster, more than "
            f"{spill.WORKER_SHARE:.0%} of what its workers may still take: it puts "
            f"{sizes.n_tokens * (4 + self._topics_of_a_token() * topic)} bytes of tokens into their folders "
            "(local_directory), and removes them in the end. Give a folder that all workers reach as spill to choose "
            "where, and to be able to go on after an interruption.",
            SpillWarning,
            stacklevel=2,
        )

    def _topics_of_a_token(self) -> int:
        """Return how many topics and proposals there are on disk for each token, at most."""
        return 5 + self._sizes.mh_steps

    def _choose_shards(self) -> int:
        return self._asked

    def _check_memory(self) -> None:
        if self._priors.learn_every:
            self._check_learning()

    def _choose_topics_of_words(self) -> WordTopics:
        documents = [[partition] for partition in self._partitions]  # so that each is loaded once
        bounds = np.concatenate([[0], np.cumsum(self._corpus.partition_rows)])
        return topics_from_passages(self._corpus, documents, bounds, self._n_topics, self._seed)

    def _divide(self) -> None:
        self._partitions = list(self._corpus.rows.partitions)
        lengths, cuts = self._corpus.lengths, [np.zeros(1, np.int64)]
        #: Numbers of the first slices of shards.
        self._firsts = [0]
        for first, last in pairwise(self._bounds.tolist()):
            n_slices = max(1, min(self._n_slices, last - first))
            cuts.append(first + cut_documents(lengths[first:last], n_slices)[1:])
            self._firsts.append(self._firsts[-1] + n_slices)
        self._bounds = np.concatenate(cuts)
        self._documents = documents_as_counted(self._corpus, self._bounds)
        self._layout = make_layout(self._corpus.word_totals, self._n_shards)
        rows, work = self._corpus.rows, [(self._slices(p), self._corpus.n_features) for p in range(self._n_shards)]
        self._counts = [self._corpus.word_totals]
        if self._n_shards > 1:
            self._counts = rows.here(rows.tasks(_count_slices, work, "count-words"))

    def _slices(self, number: int) -> tuple[Again, ...]:
        """Return what makes the documents of the slices of a shard."""
        return tuple(self._documents[self._firsts[number] : self._firsts[number + 1]])

    def _tokens(self) -> NDArray[np.int64]:
        """Return the number of the first token of each slice, and of all tokens."""
        return np.concatenate([[0], np.cumsum(self._corpus.lengths)]).astype(np.int64)[self._bounds]

    def _started(
        self, program: TopicProgram[Any, Any], earlier: sparse.csc_array | None, **options: Any
    ) -> AbstractContextManager[AnyRun]:
        assert isinstance(program, WarpLDA)
        self._groups, sizes = self._on_disks(program), np.diff(self._layout.block_ptr).tolist()
        tokens, total, before = self._tokens(), self._corpus.word_totals, np.zeros_like(self._corpus.word_totals)
        sources = []
        for p, own in enumerate(self._counts):
            fixed = no_rows(sizes[p]) if earlier is None else rows_of_block(earlier, self._layout, p)
            first = topics_of_shard(self._first, self._layout.column, own) if self._first else no_topics()
            cut = slice(self._firsts[p], self._firsts[p + 1] + 1)
            plan = GroupPlan(
                self._disk, p, self._bounds[cut], tokens[cut], self._layout, before, own, total,
                self._packing(), fixed, first, self._words,
            )  # fmt: skip
            sources.append(Source(make_group, (list(self._slices(p)), plan)))
            before = before + own
        return static_run(self._groups, sources, self._place, may_ask=self._may_ask, **options)

    def _packing(self) -> Packing:
        """Return how topics with their proposals are in files: as they are, where nobody else reads them."""
        return Packing(1 + self._sizes.mh_steps, 0, np.dtype(topic_dtype(self._n_topics)))

    def _on_disks(self, program: WarpLDA) -> GroupProgram:
        """Return the program with its tokens on disks."""
        return SpilledGroups(program)

    def _measuring(self) -> Stage:
        return self._groups.measuring(self._n_shards)

    # A folder that the user has named.

    def _fingerprint(self) -> dict[str, Any]:
        return {**super()._fingerprint(), "spilled": "by a cluster"}

    def _resume(self) -> tuple[int, Saved | None, list[dict[str, Any]]]:
        if self._store is None:
            return 0, None, []
        self._identity = self._fingerprint()
        found: spill.Resumed | None = self._store.read_parts(self._identity, self._check_parts)
        self._tidy()
        if found is None:
            return 0, None, []
        logger.info("going on after sweep %d from %s", found.done, self._store.folder)
        self._go_on(found.done, found.hot_sweeps, found.history)
        assert isinstance(self._program, WarpLDA)  # `check_spill` has let no other in
        return found.done, Saved(found.model(self._program), self._kept(), []), found.history

    def _check_parts(self, parts: list[Part], values: Any) -> spill.Resumed:
        size = sum(part.size for part in parts)
        assert self._store is not None
        found = spill.check_values(
            self._store.folder, self._n_tokens, self._n_topics, int(self._estimator.max_iter), size, values
        )
        self._parts = parts
        return found

    def _kept(self) -> list[Kept]:
        """Return what each shard goes on from: its bytes of the parts."""
        assert self._store is not None
        width, kept = np.dtype(topic_dtype(self._n_topics)).itemsize, []
        tokens = self._tokens()[self._firsts].tolist()
        for begin, end in pairwise(width * one for one in tokens):
            spans, at = [], 0
            for part in self._parts:
                first, last = max(begin, at), min(end, at + part.size)
                if first < last:
                    spans.append(Span(self._store.path(part.name), part.at + first - at, last - first))
                at += part.size
            kept.append(Kept("topics", end - begin, tuple(spans), (), ()))
        return kept

    def _may_ask(self, sweep: int) -> bool:
        return self._store is not None or super()._may_ask(sweep)

    def _keep_sweep(self, run: AnyRun, done: int) -> None:
        if self._store is None:
            return
        saved, parts = run.save(), []
        for kept in saved.shards:
            folder = os.path.basename(os.path.dirname(kept.spans[0].path))
            parts += [Part(f"{folder}/{kept.name}", *one) for one in kept.written]
        history = list(self._estimator.history_)
        self._store.commit_parts(self._identity, parts, spill.values_of(saved.model, history, self._program.hot_sweeps))
        self._parts = parts

    def _keep_last(self, run: AnyRun) -> None:
        """Do nothing: the last sweep has been kept as all others."""

    def _leave(self) -> None:
        """Remove all of a fit that has kept no sweep: no later one can go on from it."""
        assert self._store is not None
        if "manifest" not in self._store.names():
            with suppress(SpillError):  # a task that nobody waits for is still writing
                self._store.remove()

    def _tidy(self, *, keep_last_only: bool = False) -> None:
        """Remove all that the manifest does not name, and with `keep_last_only` all else that is beside it."""
        if self._store is None:
            return
        named = {part.name for part in self._parts}
        folders = {name.partition("/")[0] for name in named}
        self._store.remove(lambda name: name in {"manifest", "input", self._disk.mark} or f"{name}{SUFFIX}" in folders)
        if keep_last_only:
            for folder in folders:
                inner = Store(os.path.join(self._store.folder, folder), is_kept=True)
                inner.remove(lambda name, folder=folder: f"{folder}/{name}" in named)  # type: ignore[misc]
                inner.close()


def _count_slices(slices: tuple[Again, ...], n_words: int) -> NDArray[np.int64]:
    """Return how many tokens each column has in some slices, which are there one after the other."""
    total = np.zeros(n_words, np.int64)
    for one in slices:
        total += count_words(one(), n_words)
    return total
