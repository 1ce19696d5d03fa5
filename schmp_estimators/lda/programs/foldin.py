"""Applying fitted topics: proportions of documents, and how well one half of them predicts the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.places.place import Each, in_turn
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.data.counts import Counts, canonical_counts
from schmp_estimators.lda.kernels.foldin import TopicModel, complete, fold_in

#: Tokens of documents that make one job for a thread.
_JOB = 1 << 14


def proportions(matrix: Any, model: TopicModel, each: Each = in_turn) -> NDArray[np.float64]:
    """Return the topic proportions, shape (n_docs, K), of the documents in a CSR or dense matrix of counts."""
    counts = canonical_counts(matrix)
    theta = np.empty((len(counts.indptr) - 1, len(model.inverse)))
    _over_documents(fold_in, counts, model, theta, each)
    return theta


def completion_scores(counts: Counts, model: TopicModel, each: Each = in_turn) -> NDArray[np.float64]:
    """Return for each document the log-likelihood of one half of its tokens given the other."""
    scores = np.empty(len(counts.indptr) - 1)
    _over_documents(complete, counts, model, scores, each)
    return scores


def _over_documents(
    kernel: Callable[..., None], counts: Counts, model: TopicModel, out: NDArray[np.float64], each: Each
) -> None:
    indptr, indices, data, _ = freeze(counts)
    model = freeze(model)

    def work(job: tuple[int, int]) -> None:
        kernel(*job, indptr, indices, data, model, out)

    each(work, _jobs(indptr))


def _jobs(indptr: NDArray[np.int64]) -> Iterable[tuple[int, int]]:
    n_jobs = max(1, int(indptr[-1]) // _JOB)
    ends = np.unique([0, *np.searchsorted(indptr, np.linspace(0, indptr[-1], n_jobs + 1)[1:-1]), len(indptr) - 1])
    return [(int(first), int(last)) for first, last in pairwise(ends)]
