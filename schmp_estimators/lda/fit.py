"""One fit of `DistributedLDA`: its shards, its program, and what the estimator keeps."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse

from schmp_estimators.core.engine.running import AnyRun, Source, static_run
from schmp_estimators.core.errors import CheckpointMismatchError
from schmp_estimators.core.io.checkpoint import Checkpoint, check_records, identity_of, recognised
from schmp_estimators.core.io.files import CHECKPOINT
from schmp_estimators.core.io.slices import Slices, memory_left
from schmp_estimators.core.places.place import Place, check_sent
from schmp_estimators.core.program import Parts, Saved, identity
from schmp_estimators.core.typing import Array, Floats, Named
from schmp_estimators.core.values import offsets_of
from schmp_estimators.lda import parameters
from schmp_estimators.lda.blocks import WordTopics, no_topics
from schmp_estimators.lda.data import passages
from schmp_estimators.lda.data.corpus import Corpus, documents_as_counted, made_again, narrow
from schmp_estimators.lda.data.shards import (
    Plan,
    cut_documents,
    default_shards,
    join_parts,
    layout_by_column,
    local_columns,
    make_layout,
    make_shard,
)
from schmp_estimators.lda.data.topic_rows import counts_of_rows, topic_totals
from schmp_estimators.lda.programs.learning import mean_alpha
from schmp_estimators.lda.programs.topics import TopicSampler
from schmp_estimators.lda.samplers import check_steps, choose_sampler, sampler_of
from schmp_estimators.lda.spill import SHARE, Sizes, choose_spilling

#: The most bytes of a table of word rows, where a sampler keeps one in every shard.
LARGEST_TABLE = 1 << 31
#: Sweeps between two evaluations if only `tol` needs them; over fewer sweeps, changes would be
#: mostly chance.
EVALUATE_EVERY = 10
#: What users call the parameters of programs.
NAMES = {"program": "sampler", "seed": "random_state", "hot_priors": "init (hot_priors)"}

logger = logging.getLogger(__name__)


class _Documents(Parts):
    """The documents of a fit, and seeds."""

    def __init__(self, fit: LDAFit, seeds: sparse.csc_array | None) -> None:
        self._fit = fit
        self._seeds = seeds
        self.held = fit._documents
        self.n_parts = len(self.held)

    def shards(self, sizes: Sequence[int]) -> list[Source]:
        return self._fit.sources(self._seeds, sizes)

    def cut(self, saved: Saved, sizes: Sequence[int]) -> Saved:
        return self._fit.cut(saved, sizes)


class LDAFit:
    """A fit in progress.

    Parameters
    ----------
    estimator : DistributedLDA
        Gets `history_` and `n_iter_` while the fit runs.
    corpus : Corpus
        The documents.
    place : Place
        Where to work.
    seed : int
        Seed of this batch.
    earlier : csc_array of shape (n_components, n_features or less), optional
        Counts of earlier documents, from which the first topics are drawn.
    keep : bool
        Whether these counts stay part of the model, or what `half_life` leaves of them.
    names : ndarray of shape (n_features,), optional
        Names of the words.
    """

    def __init__(
        self,
        estimator: Any,
        corpus: Corpus,
        place: Place,
        *,
        seed: int,
        earlier: sparse.csc_array | None,
        keep: bool,
        names: Array | None,
    ) -> None:
        self._estimator = estimator
        self._corpus = corpus
        self._place = place
        self._seed = seed
        self._is_first = earlier is None
        #: Counts of earlier documents, which add to the prior of words as seeds do: from the first,
        #: first topics are drawn, and then they are forgotten; the others stay part of the model.
        self._drawn = None if keep else earlier
        self._base: sparse.csc_array | None = None
        if keep and earlier is not None:
            self._base = parameters.kept_counts(estimator, earlier, corpus.n_features)
        self._n_tokens = int(corpus.lengths.sum())
        self._n_topics = int(estimator.n_components)
        self._priors = parameters.priors_asked_for(estimator)
        if earlier is not None:
            self._priors = parameters.going_on(self._priors, estimator, keep=keep)
        self._names = names
        self._seeds_given = parameters.seeds_given(estimator)
        is_later = keep and earlier is not None
        find = parameters.seeds_of_first_batch if is_later else parameters.seed_counts
        self._seeds = find(estimator, corpus.word_totals, self._names)
        self._program = self._choose_program()
        self._n_shards = self._choose_shards()
        self._spilling = choose_spilling(estimator, self._program, corpus, place, self._n_shards)
        self._slices: Slices | None = None
        #: Number of parts into which documents are cut: shards, or more slices if not all fit into
        #: memory.
        self._n_parts = max(self._n_shards, self._spilling.n_slices if self._spilling else 0)
        self._check_memory()
        if estimator.spill is not None and self._spilling is None:
            self._corpus = corpus.held()
        self._checkpoint: Checkpoint | None = None
        #: What identifies the fit in its checkpoint, if it has one.
        self._identity: Named | None = None
        self._first = no_topics()

    def run(self, X: Any, y: Any) -> Named:
        """Sample, and return the fitted attributes."""
        if self._spilling is None:
            return self._run(X, y)
        with self._spilling.opened(self._corpus, self._place) as (self._slices, self._corpus):
            return self._run(X, y)

    def _run(self, X: Any, y: Any) -> Named:
        estimator = self._estimator
        corpus = self._corpus
        self._bounds = cut_documents(corpus.lengths, self._n_parts)
        self._documents = corpus.shards(self._bounds)
        if self._spilling:
            self._documents = documents_as_counted(corpus, self._documents, self._bounds)
        first, saved, estimator.history_ = self._resume()
        corpus.rows.partitions = []  # from now on only the documents of the shards are needed
        estimator.n_iter_ = first
        estimator._tempered_sweeps = self._program.hot_sweeps
        begun = list[Named]()
        seconds = 0.0
        if self._drawn is not None:
            saved, begun, seconds = self._warm_up()
        self._first = self._choose_topics_of_words() if saved is None else no_topics()
        with self._started(
            self._program,
            self._base,
            n_sweeps=estimator.max_iter,
            saved=saved,
            first=first + len(begun),
            release=self._documents.clear,
        ) as run:
            if begun and self._program.measures(0):  # now without the earlier counts
                begun = [{**run.observe(self._program.measuring), **begun[0]}]
            for done in estimator._follow(
                chain(begun, run),
                X,
                y,
                place=self._place,
                first=first,
                n_samples=self._n_tokens,
                snapshot=partial(self._attributes, run),
                seconds=seconds,
                took=lambda: run.took,
            ):
                self._keep_sweep(run, done, due=done % self._checkpoint_every == 0)
            self._keep_sweep(
                run, estimator.n_iter_, due=estimator.n_iter_ % self._checkpoint_every != 0
            )
            return self._attributes(run)

    def _choose_topics_of_words(self) -> WordTopics:
        """Return in which topics words may begin."""
        if self._start.topics == "sparse":
            return passages.draw_sparse_topics(self._corpus.word_totals, self._n_topics, self._seed)
        if self._start.topics == "uniform":
            return no_topics()
        given = self._corpus, self._documents, self._bounds
        # Weighed topics are less coherent where document-topic priors are learned.
        weighs = self._program.weighs_passages and not self._priors.learn_every[0]
        found = passages.topics_from_passages(
            *given,
            self._n_topics,
            self._seed,
            passages.MANY_CHOICES if weighs else passages.CHOICES,
        )
        alphas = self._program.alphas(0, None)
        beta = self._program.priors(0, None)[1]
        return passages.weigh_topics(*given, found, alphas, beta) if weighs else found

    def _started(
        self, program: TopicSampler[Any], earlier: sparse.csc_array | None, **options: Any
    ) -> AbstractContextManager[AnyRun]:
        """Return a run of a program, with counts of earlier documents."""
        seeds = self._with_seeds(earlier)
        joins = program.partition_invariant and self._spilling is None
        return static_run(
            program,
            _Documents(self, seeds) if joins else self.sources(seeds, [1] * self._n_parts),
            self._place,
            may_ask=self._may_ask,
            slices=self._slices,
            **options,
        )

    def _with_seeds(self, earlier: sparse.csc_array | None) -> sparse.csc_array | None:
        """Return the imaginary tokens of words: counts of earlier documents, and seeds."""
        if earlier is None or self._seeds is None:
            return self._seeds if earlier is None else earlier
        return sparse.csc_array(earlier + self._seeds)

    def _may_ask(self, sweep: int) -> bool:
        may_converge = bool(self._estimator.tol) and self._program.measures(sweep)
        return bool(may_converge or self._estimator._may_ask(sweep, self._checkpoint_every))

    def _warm_up(self) -> tuple[Saved, list[Named], float]:
        """Do one sweep in which the first topics are drawn from earlier counts.

        Return the state after it, without the model, which includes the earlier counts; its record;
        and its seconds.
        """
        totals = _seed_totals(self._with_seeds(self._drawn))
        program = replace(self._program, evaluate_every=0, learn_every=(0, 0), seed_totals=totals)
        with self._started(program, self._drawn, n_sweeps=1) as run:
            began = perf_counter()
            records = list(run)
            self._program = self._program.following(records)
            return run.save()._replace(model=None), records, perf_counter() - began

    def _attributes(self, run: AnyRun) -> Named:
        harvest = run.harvest()
        rows = harvest.blocks or harvest.shards
        empty = None
        if (
            self._slices is not None
            and 8 * sum(len(one.topic) for one in rows) > SHARE * memory_left()
        ):
            empty = self._slices.empty
        counts = counts_of_rows(rows, self._layout, self._n_topics, empty or np.empty)
        sizes = topic_totals(counts)[None]
        if self._base is not None:
            sizes = np.concatenate([self._estimator.batch_topic_sizes_, sizes])
            counts = sparse.csc_array(counts + self._base)
            counts.sort_indices()
            if counts.nnz and counts.data.min() < 0:
                raise OverflowError(
                    "a word has 2**31 tokens or more in one topic; fit so many batches with more "
                    "topics, or start anew"
                )
        last = self._estimator.n_iter_ - 1
        program = self._program
        alpha, beta = program.priors(last, harvest.model)
        alphas = program.alphas(last, harvest.model)
        return {
            "topic_word_counts_": counts,
            "batch_topic_sizes_": sizes,
            "doc_topic_prior_": alpha if program.own_alphas is None else alphas,
            "topic_word_prior_": beta,
            "seed_counts_": self._seeds,
            "feature_names_": self._names,
            "n_shards_": self._n_shards,
            "sampler_": self._sampler,
            "_identity": self._identity,
            "_seeds_given": self._seeds_given,
        }

    def _choose_program(self) -> TopicSampler[Any]:
        estimator = self._estimator
        n_used_words = int(np.count_nonzero(self._corpus.word_totals))
        n_docs = len(self._corpus.lengths)
        sizes = parameters.Sizes(self._n_tokens, n_docs, n_used_words, self._n_topics)
        self._sampler = choose_sampler(estimator.sampler, **sizes._asdict())
        longest = int(self._corpus.lengths.max())
        named = isinstance(self._sampler, str)
        if not (named or self._place.is_local):
            check_sent(self._sampler, f"sampler={self._sampler!r}")
        check_steps(self._sampler, estimator.mh_steps, min(self._n_topics, longest))
        program = sampler_of(self._sampler)
        # Topics of earlier documents go on as they are.
        init = estimator.init if self._is_first else "uniform"
        tempers = program.begins_tempered
        self._start = parameters.choose_start(init, self._priors[:2], sizes, tempers=tempers)
        return replace(
            program,
            n_components=self._n_topics,
            n_words=self._corpus.n_features,
            **self._priors._asdict(),
            seed=self._seed,
            far=self._place.n_processes > 1,
            evaluate_every=int(estimator.evaluate_every)
            or (EVALUATE_EVERY if estimator.tol else 0),
            hot_priors=self._start.hot_priors,
            hot_sweeps=parameters.hot_sweeps(int(estimator.max_iter)),
            seed_totals=_seed_totals(self._with_seeds(self._base)),
            begins_seeded=self._is_first and self._seeds is not None,
            **({"mh_steps": estimator.mh_steps} if named and hasattr(program, "mh_steps") else {}),
        )

    def _choose_shards(self) -> int:
        """Return the number of shards.

        Where the result depends on it, it depends on data and parameters only.
        """
        n_docs = len(self._corpus.lengths)
        n_words = self._corpus.n_features
        if (asked := self._estimator.n_shards) is not None:
            chosen = max(1, min(int(asked), n_docs, n_words))  # the others would be empty
            if chosen < asked:
                logger.info(
                    "n_shards=%d: %d documents and %d words make %d", asked, n_docs, n_words, chosen
                )
            return chosen
        invariant = self._program.partition_invariant
        suitable = default_shards(self._n_tokens, n_docs, n_words, invariant=invariant)
        n_workers = self._place.n_processes
        if invariant and n_workers > suitable:
            logger.info(
                "%d of %d workers sample %d tokens: with more, exchanges take longer than they "
                "save",
                suitable,
                n_workers,
                self._n_tokens,
            )
        return min(suitable, n_workers) if invariant else suitable

    def _check_memory(self) -> None:
        """Raise before any work if a shard cannot hold its rows, or the cluster the run."""
        n_used = int(np.count_nonzero(self._corpus.word_totals))
        sizes = Sizes.of(self._corpus, self._program)
        if (table := sizes.table) > LARGEST_TABLE:
            raise MemoryError(
                f"sampler={self._sampler!r} keeps the weights of {n_used} words in "
                f"{self._n_topics} topics, {table / 2**30:.3g} GiB, more than "
                f"{LARGEST_TABLE / 2**30:.3g}; it is for few topics: use sampler='warp', or fewer "
                "topics"
            )
        if self._priors.learn_every[0]:
            parameters.check_learning(self._n_tokens, self._n_topics)
        limit = self._place.memory_limit
        needed = sizes.on_cluster(self._n_shards)
        if limit and needed > limit and self._spilling is None:
            raise MemoryError(
                f"the fit needs about {needed / 2**30:.3g} GiB on the cluster, whose workers "
                f"together may use {limit / 2**30:.3g} GiB; add workers or raise their memory_limit"
            )

    def sources(self, seeds: sparse.csc_array | None, sizes: Sequence[int]) -> list[Source]:
        """Divide the words into blocks, and return the sources of shards.

        Each shard has the given number of parts of the documents.
        """
        totals = self._corpus.word_totals
        if len(sizes) > 1 or self._program.rotates:
            self._layout = make_layout(totals, len(sizes))
        else:  # in the order of the fitted model: its counts need not be sorted in the end
            self._layout = layout_by_column(self._corpus.n_features)
        self._n_local = self._program.count_local_words(totals, self._layout)
        columns = local_columns(self._layout, self._n_local)
        counted = self._corpus.count_some(self._documents, columns, sizes)
        ends = offsets_of(sizes)
        sources = []
        for p, (first, end) in enumerate(pairwise(ends.tolist())):
            # A plan is made when it is sent, so that there is only one at a time.
            known = *counted[p], partial(self._plan, seeds, p, int(self._bounds[first]))
            if self._spilling:
                documents = self._documents[first:end]
                sources.append(Source(partial(made_again, make_shard), (documents, *known)))
                continue
            # Documents in this process are released when the list that holds them is cleared;
            # futures stay.
            pieces = [
                partial(self._documents.__getitem__, at)
                if isinstance(self._documents[at], list)
                else self._documents[at]
                for at in range(first, end)
            ]
            sources.append(Source(join_parts, (*known, *pieces)))
        return sources

    def cut(self, saved: Saved, sizes: Sequence[int]) -> Saved:
        """Return the saved topics of any run's shards, for shards of so many parts each."""
        ends = offsets_of(self._corpus.lengths)[self._bounds[offsets_of(sizes)]]
        topics = np.concatenate(saved.shards)
        return saved._replace(shards=[topics[a:b] for a, b in pairwise(ends.tolist())])

    def _plan(self, seeds: sparse.csc_array | None, p: int, first: int) -> Plan:
        """Return what a shard, whose first document is given, must know of the others."""
        layout = self._layout
        first_token = int(self._corpus.lengths[:first].sum())
        totals = narrow(self._corpus.word_totals)
        return Plan(p, layout, totals, self._n_local, first_token, self._first, seeds)

    def _resume(self) -> tuple[int, Saved | None, list[Named]]:
        """Return the first sweep to do, what it starts from, and the history so far."""
        url = self._estimator.checkpoint
        self._checkpoint_every = int(self._estimator.checkpoint_every)
        if self._slices is not None and self._slices.is_named:
            url = os.path.join(self._slices.folder, CHECKPOINT)
            self._checkpoint_every = 1
        if not url:
            return 0, None, []
        self._identity = self._fingerprint()
        before = None if self._is_first else self._estimator._identity
        self._checkpoint = Checkpoint(url, self._identity, before)
        try:
            return self._checkpoint.read(self._go_on) or (0, None, [])
        except CheckpointMismatchError as error:
            if self._slices is None:
                raise
            raise CheckpointMismatchError(
                f"what is in spill={self._slices.folder!r} cannot be gone on with: {error}; or "
                "give another folder"
            ) from error

    def _go_on(self, found: Named) -> tuple[int, Saved | None, list[Named]]:
        """Return the same, from what is in the checkpoint."""
        assert self._checkpoint is not None
        done = check_records(
            self._checkpoint.url, history := found["history"], self._estimator.max_iter
        )
        logger.info("going on after sweep %d from %s", done, self._checkpoint.url)
        # This fit may have fewer or more sweeps than the one that wrote the checkpoint.
        n_hot = parameters.hot_sweeps(int(self._estimator.max_iter), done, found["hot_sweeps"])
        self._program = replace(self._program.following(history), hot_sweeps=n_hot)
        if found["alphas"]:
            drawn, now = found["alphas"]
            self._program = replace(
                self._program, own_alphas=now, drawn_alphas=drawn, doc_topic_prior=mean_alpha(now)
            )
        self._program = replace(self._program, topic_word_prior=found["topic_word_prior"])
        # The checkpoint may have been written by other shards.
        topics = np.concatenate(found["topics"])
        ends = offsets_of(self._corpus.lengths)
        if len(topics) != ends[-1] or not (
            0 <= topics.min(initial=0) <= topics.max(initial=0) < self._program.n_components
        ):
            raise ValueError("its topics are not those of the tokens of X")
        saved = Saved(None, [topics[a:b] for a, b in pairwise(ends[self._bounds].tolist())], [])
        return done, saved if self._slices is None else self._slices.keep(saved), history

    def _fingerprint(self) -> Named:
        """Return what must be equal if a checkpoint belongs to this fit."""
        found = {
            **identity(self._program, NAMES),
            **{name: recognised(one) for name, one in self._program.get_params().items()},
            **self._program.prior_identity(),
            "init": self._start.topics,
        }
        for name, one in (("earlier", self._base), ("seed_words", self._seeds)):
            if one is not None:
                found[name] = recognised([one.data, one.indices, one.indptr])
        n_shards = None if self._program.partition_invariant else self._n_shards
        return identity_of(self._estimator, [self._corpus.digest()], **found, n_shards=n_shards)

    def _keep_sweep(self, run: AnyRun, done: int, *, due: bool) -> None:
        """Write a checkpoint after so many sweeps, if one is due."""
        if self._checkpoint is None or not due:
            return
        values = {"history": list(self._estimator.history_), "hot_sweeps": self._program.hot_sweeps}
        run.keep(self._checkpoint, done, lambda saved: {**values, **self._checkpointed(saved)})

    def _checkpointed(self, saved: Saved) -> Named:
        """Return the contents of a checkpoint: topics and learned priors.

        All counts follow from the topics.
        """
        alphas = list[Any]()
        program = self._program
        learned = saved.model.learned
        if learned.alphas is not None:
            alphas = [saved.model.learned_before.alphas, learned.alphas]
        elif (
            program.drawn_alphas is not None
        ):  # those of the checkpoint before: none have been learned since
            alphas = [program.own_alphas] * 2
        beta = program.topic_word_prior if learned.beta is None else learned.beta
        return {"topics": saved.shards, "alphas": alphas, "topic_word_prior": beta}


def _seed_totals(seeds: sparse.csc_array | None) -> Floats | None:
    """Return the imaginary tokens of each topic, if there are some."""
    return None if seeds is None else topic_totals(seeds).astype(np.float64)
