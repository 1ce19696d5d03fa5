"""Applying fitted topics: proportions of documents, and how well one half of them predicts the other."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.places.place import Each, in_turn
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.data.counts import Counts, canonical_counts, hash_documents, sum_rows
from schmp_estimators.lda.kernels.foldin import TopicModel, draw, fold_in, make_scratch, rows_of_words, score

#: Tokens of documents that make one job for a thread.
_JOB = 1 << 14
#: Proportions that a thread keeps at a time where nobody else wants them.
_PROPORTIONS = 1 << 20


def proportions(matrix: Any, model: TopicModel, each: Each = in_turn) -> NDArray[np.float64]:
    """Return the topic proportions, shape (n_docs, K), of the documents in a CSR or dense matrix of counts."""
    ptr, words, counts, _ = canonical_counts(matrix)
    theta = np.empty((len(ptr) - 1, len(model.inverse)))
    model = freeze(model)

    def work(job: tuple[int, int]) -> None:
        entries = slice(ptr[job[0]], ptr[job[1]])
        _fold(ptr[job[0] : job[1] + 1], words[entries], counts[entries], model, theta[slice(*job)])

    each(work, _jobs(ptr))
    return theta


def completion_scores(counts: Counts, model: TopicModel, each: Each = in_turn) -> NDArray[np.float64]:
    """Return for each document the log-likelihood of one half of its tokens given the other.

    A document's tokens are numbered in canonical order: by column.  Those with even numbers are folded in, the others
    are scored (document completion: Wallach et al., ICML 2009, section 5.1), so a document with fewer than two tokens
    scores 0.
    """
    ptr, words, tokens, _ = counts
    scores = np.empty(len(ptr) - 1)
    model = freeze(model)

    def work(job: tuple[int, int]) -> None:
        first, last = job
        entries = slice(ptr[first], ptr[last])
        of_docs, after = ptr[first : last + 1] - ptr[first], np.cumsum(tokens[entries], dtype=np.int64)
        before = after - tokens[entries]
        starts = np.append(before, 0)[of_docs[:-1]]
        before -= np.repeat(starts, np.diff(of_docs))
        seen = ((before + tokens[entries] + 1) >> 1) - ((before + 1) >> 1)
        kept = seen > 0
        theta = np.empty((last - first, len(model.inverse)))
        _fold(np.append(0, np.cumsum(kept))[of_docs], words[entries][kept], seen[kept].astype(np.int32), model, theta)
        rows = rows_of_words(model.rows, words[entries])
        score(*freeze((of_docs, tokens[entries], before)), rows, model[1:6], theta, scores[first:last])

    each(work, _jobs(ptr, max(1, _PROPORTIONS // len(model.inverse))))
    return scores


def draw_topics(counts: Counts, model: TopicModel, seed: int, each: Each = in_turn) -> NDArray[np.int32]:
    """Return a topic for each token, drawn given the proportions of its document; tokens are in canonical order.

    The topics of a document follow from `seed` and its words, whatever the other documents are.
    """
    ptr, words, tokens, _ = counts
    begins = np.append(0, np.cumsum(tokens, dtype=np.int64))
    topics, keys = np.empty(begins[-1], np.int32), hash_documents(counts) ^ stream_key(seed)
    model = freeze(model)

    def work(job: tuple[int, int]) -> None:
        of_docs, docs = ptr[job[0] : job[1] + 1], slice(*job)
        entries = slice(of_docs[0], of_docs[-1])
        theta = np.empty((job[1] - job[0], len(model.inverse)))
        _fold(of_docs, words[entries], tokens[entries], model, theta)
        given = *freeze((of_docs - of_docs[0], tokens[entries], keys[docs])), rows_of_words(model.rows, words[entries])
        draw(*given, model[1:], theta, np.empty(theta.shape[1]), topics[begins[entries.start] : begins[entries.stop]])

    each(work, _jobs(ptr, max(1, _PROPORTIONS // len(model.inverse))))
    return topics


def _fold(
    ptr: NDArray[np.int64],
    words: NDArray[np.int32],
    counts: NDArray[np.int32],
    model: TopicModel,
    theta: NDArray[np.float64],
) -> None:
    ptr, rows = ptr - ptr[0], rows_of_words(model.rows, words)
    lengths = sum_rows(ptr, counts).astype(np.float64)
    theta[:] = (lengths[:, None] + model.alpha_sum) / theta.shape[1]
    given = *freeze((ptr, counts, lengths)), rows, model[1:6], make_scratch(ptr, rows, theta.shape[1])
    fold_in(*given, theta)
    theta /= np.cumsum(theta, axis=1)[:, -1:]  # the sum in the order of the topics
    theta[lengths == 0] = model.expected


def _jobs(indptr: NDArray[np.int64], most: int = 0) -> Iterable[tuple[int, int]]:
    """Return ranges of documents with about so many tokens, and with no more than `most` documents unless that is 0."""
    n_docs, n_jobs = len(indptr) - 1, max(1, int(indptr[-1]) // _JOB)
    cuts = np.searchsorted(indptr, np.linspace(0, indptr[-1], n_jobs + 1)[1:-1])
    ends = np.unique(np.concatenate([[0], cuts, np.arange(0, n_docs, most or n_docs or 1), [n_docs]]))
    return [(int(first), int(last)) for first, last in pairwise(ends)]
