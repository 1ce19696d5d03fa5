"""A fit of `DistributedLDA` whose documents are on disk."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from scipy import sparse

from schmp_estimators.core.engines.running import AnyRun
from schmp_estimators.core.places.local import LocalPlace
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.program import Saved
from schmp_estimators.core.serial import SerialRun, Source
from schmp_estimators.core.stages import Stage
from schmp_estimators.lda import spill
from schmp_estimators.lda.blocks import no_rows, no_topics
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.passages import topics_of_shard
from schmp_estimators.lda.data.spilled import SpilledShard, documents_as_counted, spill_shards, topics_file
from schmp_estimators.lda.data.tokens import make_layout
from schmp_estimators.lda.data.topics import rows_of_block
from schmp_estimators.lda.fit import LDAFit
from schmp_estimators.lda.programs.spilled import SpilledLDA
from schmp_estimators.lda.programs.topics import TopicProgram, topic_dtype
from schmp_estimators.lda.programs.warp import WarpLDA
from schmp_estimators.lda.spilled_groups_fit import GroupsFit, left_of_workers

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
            return GroupsFit(estimator, corpus, place, sizes=sizes, left=least, **options)
    elif spill.must_spill(estimator, sizes):
        return SpilledFit(estimator, corpus, place, sizes=sizes, **options)
    return LDAFit(estimator, corpus.held(), place, **options)


class SpilledFit(LDAFit):
    """A fit in progress, with shards on disk that are visited one after the other.

    Parameters
    ----------
    estimator, corpus, place, **options
        As in `LDAFit`.
    sizes : Sizes
        Those of the corpus and the model.
    """

    def __init__(self, estimator: Any, corpus: Corpus, place: Place, *, sizes: spill.Sizes, **options: Any) -> None:
        self._sizes = sizes
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
        fitting = spill.choose_shards(self._sizes, n_docs)
        asked = self._estimator.n_shards
        return fitting if asked is None else max(1, min(int(asked), n_docs))

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
            self._store, self._corpus, self._documents, self._bounds, self._layout, topic_dtype(self._n_topics),
            1 + self._sizes.mh_steps,
        )  # fmt: skip
        if found is None:
            return 0, None, []
        logger.info("going on after sweep %d from %s", found.done, self._store.folder)
        self._go_on(found.done, found.hot_sweeps, found.history)
        assert isinstance(self._program, WarpLDA)  # `check_spill` has let no other in
        return found.done, found.saved(self._program, self._n_shards), found.history

    def _started(
        self, program: TopicProgram[Any, Any], earlier: sparse.csc_array | None, **options: Any
    ) -> AbstractContextManager[AnyRun]:
        assert isinstance(program, WarpLDA)
        self._spilled = SpilledLDA(program)
        fixed = no_rows(self._corpus.n_features) if earlier is None else rows_of_block(earlier, self._layout, 0)
        first = no_topics()
        if self._first:
            first = topics_of_shard(self._first, self._layout.column, self._corpus.word_totals)
        sources = [Source(partial(_complete, shard, first=first)) for shard in self._shards]
        sources[0] = Source(partial(_complete, self._shards[0], first=first, fixed=fixed))
        return nullcontext(SerialRun(self._spilled, sources, each=self._place.each, **options))

    def _measuring(self) -> Stage:
        return self._spilled.measuring(self._n_shards)

    def _keep_sweep(self, run: AnyRun, done: int) -> None:
        if self._store.is_kept:
            history = list(self._estimator.history_)
            spill.commit(self._store, self._identity, run.save().model, history, self._program.hot_sweeps)

    def _keep_last(self, run: AnyRun) -> None:
        """Do nothing: the last sweep has been kept as all others."""


def _complete(shard: SpilledShard, **known: Any) -> SpilledShard:
    return shard._replace(**known)
