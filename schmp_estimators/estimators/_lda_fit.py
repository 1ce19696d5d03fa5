"""One fit of `DistributedLDA`: how documents become shards, which program runs, and what is kept of it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators import __version__
from schmp_estimators.data.blocks import TokenShard, TopicRows
from schmp_estimators.data.corpus import Corpus
from schmp_estimators.data.counts import Counts
from schmp_estimators.data.partition import cut_documents, default_shards
from schmp_estimators.data.tokens import Layout, ShardOffsets, count_words, make_layout, make_shard, shard_offsets
from schmp_estimators.data.topics import counts_of_rows, rows_of_block
from schmp_estimators.engines.static import Source, StaticRun
from schmp_estimators.programs.base import Saved
from schmp_estimators.programs.lda_fplus import FPlusLDA
from schmp_estimators.programs.lda_warp import WarpLDA
from schmp_estimators.runtime.base import Runtime
from schmp_estimators.state.checkpoint import check_sweeps, read_checkpoint, write_checkpoint

if TYPE_CHECKING:
    from schmp_estimators.estimators.lda import DistributedLDA

logger = logging.getLogger(__name__)

#: Larger priors of the first sweeps, in units of those asked for.
HOT_DOCUMENT, HOT_WORD = 5.0, 10.0
#: Where documents have so many tokens on average, only the prior for documents is larger at first.
LONG_DOCUMENT = 500

#: Documents whose entries are hashed together: so many that NumPy is fast, so few that they need no memory to speak of.
_HASHED_AT_ONCE = 1 << 12


class _Plan(NamedTuple):
    """What a worker needs beside its documents to make a shard."""

    counts: NDArray[np.int64]
    layout: Layout
    offsets: ShardOffsets
    rows: TopicRows | None


class LDAFit:
    """A fit in progress.

    Parameters
    ----------
    estimator : DistributedLDA
        Gets `history_` and `n_iter_` while the fit runs.
    corpus : Corpus
        The documents.
    runtime : Runtime
        Where to work.
    seed : int
        Seed of this batch.
    earlier : csc_array of shape (n_components, n_features), optional
        Counts of earlier documents, from which the first topics are drawn.
    keep : bool
        Whether these counts stay part of the model.
    """

    def __init__(
        self,
        estimator: DistributedLDA,
        corpus: Corpus,
        runtime: Runtime,
        *,
        seed: int,
        earlier: sparse.csc_array | None,
        keep: bool,
    ) -> None:
        self._estimator, self._corpus, self._runtime = estimator, corpus, runtime
        self._seed, self._earlier, self._keep = seed, earlier, keep
        self._n_tokens = int(corpus.lengths.sum())
        self._n_topics = int(estimator.n_components)
        self._priors = [
            1.0 / self._n_topics if prior is None else float(prior)
            for prior in (estimator.doc_topic_prior, estimator.topic_word_prior)
        ]
        self._program = self._choose_program()
        self._n_shards = self._choose_shards()
        self._check_memory()

    def run(self, X: Any, y: Any) -> dict[str, Any]:
        """Sample, and return the fitted attributes."""
        estimator = self._estimator
        self._bounds = cut_documents(self._corpus.lengths, self._n_shards)
        held = dict(enumerate(self._corpus.shards(self._bounds)))
        counts = self._count_words(list(held.values()))
        self._layout = make_layout(self._corpus.word_totals, self._n_shards)
        sources = self._sources(held, counts, self._earlier)
        first, saved, estimator.history_ = self._restore()
        if self._earlier is not None and not self._keep:
            first, saved = 1, self._warm_up(sources)
            sources = self._sources(held, counts, None)
        estimator.n_iter_ = first
        with StaticRun(
            self._program, sources, self._runtime, n_sweeps=estimator.max_iter, saved=saved, first=first
        ) as run:
            run.start()
            if self._runtime.client is None:  # the shards hold all that is needed from now on
                held.clear()
                self._corpus.close()
            snapshot = partial(self._attributes, run)
            for done in estimator._follow(run, X, y, first=first, n_samples=self._n_tokens, snapshot=snapshot):
                if estimator.checkpoint is not None and done % estimator.checkpoint_every == 0:
                    self._write(run, done)
            if estimator.checkpoint is not None and estimator.n_iter_ % estimator.checkpoint_every:
                self._write(run, estimator.n_iter_)
            return self._attributes(run)

    def _warm_up(self, sources: Sequence[Source]) -> Saved:
        """Return what is left of one sweep in which earlier counts were there to draw the first topics from."""
        with StaticRun(self._program, sources, self._runtime, n_sweeps=1) as run:
            list(run)
            return run.save()._replace(model=None)

    def _attributes(self, run: StaticRun) -> dict[str, Any]:
        harvest = run.harvest()
        counts = counts_of_rows(harvest.blocks or harvest.shards, self._layout, self._n_topics)
        if self._earlier is not None and self._keep:
            counts = sparse.csc_array(counts + self._earlier)
            counts.sort_indices()
            if counts.nnz and counts.data.min() < 0:
                raise OverflowError(
                    "a word has 2**31 tokens or more in one topic; fit so many batches with more topics, or start anew"
                )
        return {
            "topic_word_counts_": counts,
            "doc_topic_prior_": self._priors[0],
            "topic_word_prior_": self._priors[1],
            "n_shards_": self._n_shards,
            "sampler_": "fplus" if isinstance(self._program, FPlusLDA) else "warp",
        }

    def _choose_program(self) -> WarpLDA | FPlusLDA:
        estimator = self._estimator
        common: dict[str, Any] = {
            "n_components": self._n_topics,
            "n_words": self._corpus.n_features,
            "doc_topic_prior": self._priors[0],
            "topic_word_prior": self._priors[1],
            "seed": self._seed,
            "evaluate_every": int(estimator.evaluate_every),
        }
        if estimator.sampler == "fplus":
            return FPlusLDA(**common)
        return WarpLDA(**common, mh_steps=int(estimator.mh_steps), hot_priors=self._choose_hot_priors())

    def _choose_hot_priors(self) -> tuple[float, float]:
        """Return larger priors for the first sweeps, as far as text outweighs them (docs/measurements/lda)."""
        if self._earlier is not None:  # the first topics are not left to chance
            return 0.0, 0.0
        length, per_topic = self._n_tokens / max(1, len(self._corpus.lengths)), self._n_tokens / self._n_topics
        hot_document = min(HOT_DOCUMENT * self._priors[0], length / (2 * self._n_topics))
        hot_word = HOT_WORD * self._priors[1]
        n_words = np.count_nonzero(self._corpus.word_totals)
        suits = length < LONG_DOCUMENT and 4 * n_words * hot_word <= per_topic
        return hot_document, hot_word if suits else 0.0

    def _choose_shards(self) -> int:
        """Return the number of shards; where the result depends on it, it depends on data and parameters only."""
        if self._estimator.n_shards is not None:
            return int(self._estimator.n_shards)
        suitable = default_shards(self._n_tokens, len(self._corpus.lengths), self._corpus.n_features)
        if isinstance(self._program, FPlusLDA):
            return suitable
        if self._runtime.client is None:
            return 1
        if self._runtime.n_threads > suitable:
            logger.info("%d shards for %d threads: more would make cells too short", suitable, self._runtime.n_threads)
        return min(suitable, self._runtime.n_threads)

    def _check_memory(self) -> None:
        """Raise before any work if the cluster cannot hold the run."""
        topic = 2 if self._n_topics <= np.iinfo(np.int16).max else 4
        state = topic * (1 + getattr(self._program, "mh_steps", 5))
        # Tokens are placed once, a state exists in three generations at most, and so do blocks of a topic per token.
        needed = self._n_tokens * (4 + 3 * (state + topic)) + 64 * self._corpus.n_features * self._n_shards
        limit = self._runtime.memory_limit
        if limit and needed > limit:
            raise MemoryError(
                f"the fit needs about {needed / 2**30:.3g} GiB on the cluster, whose workers together may use "
                f"{limit / 2**30:.3g} GiB; add workers or raise their memory_limit"
            )

    def _count_words(self, shards: Sequence[Any]) -> list[NDArray[np.int64]]:
        if self._n_shards == 1:
            return [self._corpus.word_totals]
        rows, n_words = self._corpus.rows, self._corpus.n_features
        return rows.here(rows.tasks(count_words, [(shard, n_words) for shard in shards], "count-words"))

    def _sources(
        self, held: dict[int, Any], counts: Sequence[NDArray[np.int64]], earlier: sparse.csc_array | None
    ) -> list[Source]:
        """Return where the engine gets the shards from: documents in `held`, and what they must know of each other."""
        sources = []
        for p, offsets in enumerate(shard_offsets(counts, self._layout)):
            rows = None if earlier is None else rows_of_block(earlier, self._layout, p)
            sources.append(Source(_load, (_piece(held, p), _Plan(counts[p], self._layout, offsets, rows))))
        return sources

    def _make_fingerprint(self) -> dict[str, Any]:
        """Return what must be alike for a checkpoint to be this fit's own."""
        rows = self._corpus.rows
        documents = rows.here(rows.each(_hash_documents, "hash-documents"))
        digest = hashlib.sha256(np.concatenate(documents).tobytes())
        return {
            "estimator": type(self._estimator).__name__,
            "version": __version__,
            "data": digest.hexdigest(),
            "program": repr(replace(self._program, evaluate_every=0)),
            "n_shards": None if isinstance(self._program, WarpLDA) else self._n_shards,
        }

    def _restore(self) -> tuple[int, Saved | None, list[dict[str, Any]]]:
        """Return the first sweep to do, what it starts from, and the history so far."""
        if self._estimator.checkpoint is None:
            return 0, None, []
        self._fingerprint = self._make_fingerprint()
        found = read_checkpoint(self._estimator.checkpoint, self._fingerprint)
        if found is None:
            return 0, None, []
        check_sweeps(self._estimator.checkpoint, found["done"], self._estimator.max_iter)
        logger.info("going on after sweep %d from %s", found["done"], self._estimator.checkpoint)
        return found["done"], self._deal_out(self._program.unpack(found["saved"])), found["history"]

    def _deal_out(self, saved: Saved) -> Saved:
        """Divide saved topics among the shards of this fit: a checkpoint may come from other shards than these."""
        if not isinstance(self._program, WarpLDA):
            return saved
        topic = np.concatenate([shard.topic for shard in saved.shards])
        ends = np.concatenate([[0], np.cumsum(self._corpus.lengths)])[self._bounds]
        shards = [saved.shards[0]._replace(topic=topic[a:b]) for a, b in pairwise(ends)]
        return saved._replace(shards=shards, blocks=[None] * self._n_shards)

    def _write(self, run: StaticRun, done: int) -> None:
        assert self._estimator.checkpoint is not None
        values = {"done": done, "saved": run.save(), "history": self._estimator.history_}
        write_checkpoint(self._estimator.checkpoint, self._fingerprint, values)


def _hash_documents(counts: Counts) -> NDArray[np.uint64]:
    """Return a number for each document that follows from its words, whatever chunk it is in."""
    hashes = np.zeros(len(counts.indptr) - 1, np.uint64)
    for first in range(0, len(hashes), _HASHED_AT_ONCE):
        ptr = counts.indptr[first : first + _HASHED_AT_ONCE + 1]
        entries = slice(ptr[0], ptr[-1])
        mixed = (counts.indices[entries].astype(np.uint64) << np.uint64(32)) | counts.data[entries].astype(np.uint64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64's finalizer
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)])
        hashes[first : first + len(ptr) - 1] = np.diff(sums[ptr - ptr[0]])
    return hashes


def _piece(held: dict[int, Any], p: int) -> Any:
    """Return the documents of a shard as the engine takes them: a future as it is, else by a function."""
    return partial(held.__getitem__, p) if isinstance(held[p], list) else held[p]


def _load(pieces: list[Counts], plan: _Plan) -> TokenShard:
    return make_shard(pieces, plan.counts, plan.layout, plan.offsets, plan.rows)
