"""Fitted topics applied to documents: proportions, completion scores, topics of tokens."""

from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np

from schmp_estimators.core.places.place import Each, in_turn
from schmp_estimators.core.rng import GAMMA, stream_key
from schmp_estimators.core.typing import Array, Floats, Integers, Integers32
from schmp_estimators.core.values import freeze, offsets_of
from schmp_estimators.lda.data.counts import (
    Columns,
    Counts,
    canonical_counts,
    hash_documents,
    sum_rows,
    take_rows,
)
from schmp_estimators.lda.kernels.foldin import (
    TopicModel,
    draw,
    draw_shares,
    fold_in,
    make_scratch,
    rows_of_words,
    score,
)

#: Entries of documents that make one job for a thread.
_JOB = 1 << 14
#: The most proportions that a job makes.
_PROPORTIONS = 1 << 20
#: Sweeps before the first draw of `share_totals`, and for each draw.
SKIPPED, THIN = 20, 3


def proportions(
    matrix: Any, model: TopicModel, each: Each = in_turn, columns: Columns | None = None
) -> Floats:
    """Return topic proportions, shape (n_docs, K), of the documents in a CSR or dense matrix.

    The matrix is one of counts.
    """
    return proportions_of(canonical_counts(matrix, columns), model, each)


def proportions_of(documents: Counts, model: TopicModel, each: Each = in_turn) -> Floats:
    """Return the topic proportions, shape (n_docs, K), of documents."""
    model = freeze(model)
    theta = np.empty((len(documents.indptr) - 1, len(model.priors.inverse)))

    def work(job: tuple[slice, Counts]) -> None:
        docs, (ptr, words, tokens, _) = job
        theta[docs] = _fold(ptr, words, tokens, model)

    each(work, _jobs(documents, model))
    return theta


def completion_scores(counts: Counts, model: TopicModel, each: Each = in_turn) -> Floats:
    """Return for each document the log-likelihood of one half of its tokens given the other.

    A document's tokens are numbered in canonical order: by column.  Those with even numbers are
    folded in, the others are scored (document completion: Wallach et al., ICML 2009, section 5.1),
    so a document with fewer than two tokens scores 0.
    """
    scores = np.empty(len(counts.indptr) - 1)
    model = freeze(model)

    def work(job: tuple[slice, Counts]) -> None:
        docs, (ptr, words, tokens, _) = job
        before = np.cumsum(tokens, dtype=np.int64) - tokens
        before -= np.repeat(np.append(before, 0)[ptr[:-1]], np.diff(ptr))
        seen = ((before + tokens + 1) >> 1) - ((before + 1) >> 1)
        kept = seen > 0
        theta = _fold(offsets_of(kept)[ptr], words[kept], seen[kept].astype(np.int32), model)
        score(
            ptr,
            tokens,
            freeze(before),
            rows_of_words(model.rows, words),
            model.priors,
            theta,
            scores[docs],
        )

    each(work, _jobs(counts, model))
    return scores


def draw_topics(counts: Counts, model: TopicModel, seed: int, each: Each = in_turn) -> Integers32:
    """Return a topic for each token, drawn given the proportions of its document.

    Tokens are in canonical order.

    The topics of a document follow from `seed` and its words, whatever the other documents are.
    """
    begins = offsets_of(sum_rows(counts.indptr, counts.data))
    topics = np.empty(begins[-1], np.int32)
    keys = hash_documents(counts) ^ stream_key(seed)
    model = freeze(model)

    def work(job: tuple[slice, Counts]) -> None:
        docs, (ptr, words, tokens, _) = job
        given = ptr, tokens, freeze(keys[docs]), rows_of_words(model.rows, words), model.priors
        theta = _fold(ptr, words, tokens, model)
        common = np.empty(len(model.priors.inverse))
        draw(*given, theta, common, topics[begins[docs.start] : begins[docs.stop]])

    each(work, _jobs(counts, model))
    return topics


def share_totals(
    counts: Counts,
    groups: Integers,
    first: int,
    model: TopicModel,
    *,
    seed: int,
    shape: tuple[int, int, int],
    scale: float,
    each: Each = in_turn,
) -> Integers:
    """Return sums of draws over the documents of groups.

    They are int64 of a `shape`: (n_draws, n_groups, K).

    `first` is the number of the first document, from which its random numbers follow; the others
    are parameters of `draw_shares`.
    """
    totals = np.zeros(shape, np.int64)
    model = freeze(model)
    longest = int(sum_rows(counts.indptr, counts.data).max(initial=0))
    keys = stream_key(seed) + GAMMA * np.arange(first, first + len(groups), dtype=np.uint64)
    lock = Lock()

    def work(job: tuple[slice, Counts]) -> None:
        docs, (ptr, words, tokens, _) = job
        found = np.zeros_like(totals)
        room = np.empty(shape[2]), np.empty(shape[2], np.int64), np.empty(longest, np.int32)
        given = *freeze((ptr, tokens, keys[docs], groups[docs])), rows_of_words(model.rows, words)
        theta = _fold(ptr, words, tokens, model)
        draw_shares(*given, model.priors, theta, (SKIPPED, THIN, scale), room, found)
        with lock:
            totals[...] += found

    each(work, _jobs(counts, model))
    return totals


def _fold(ptr: Array, words: Array, counts: Array, model: TopicModel) -> Floats:
    """Return the proportions of documents with these offsets, words and tokens of each word."""
    rows = rows_of_words(model.rows, words)
    lengths = sum_rows(ptr, counts).astype(np.float64)
    n_topics = len(model.priors.inverse)
    theta = np.repeat((lengths[:, None] + model.priors.alpha_sum) / n_topics, n_topics, axis=1)
    fold_in(
        *freeze((ptr, counts, lengths)),
        rows,
        model.priors,
        make_scratch(ptr, rows, n_topics),
        theta,
    )
    theta /= np.cumsum(theta, axis=1)[:, -1:]  # the sum in the order of the topics
    theta[lengths == 0] = model.expected
    return theta


def _jobs(counts: Counts, model: TopicModel) -> list[tuple[slice, Counts]]:
    """Cut documents into jobs of about `_JOB` entries.

    No job has more than `_PROPORTIONS` proportions.
    """
    n_docs = len(counts.indptr) - 1
    n_entries = int(counts.indptr[-1])
    cuts = np.searchsorted(
        counts.indptr, np.linspace(0, n_entries, max(1, n_entries // _JOB) + 1)[1:-1]
    )
    steps = np.arange(0, n_docs, max(1, _PROPORTIONS // len(model.priors.inverse)))
    jobs = [
        slice(*ends)
        for ends in pairwise(np.unique(np.concatenate([[0], cuts, steps, [n_docs]])).tolist())
    ]
    return [(docs, take_rows([docs], counts)[0]) for docs in jobs]
