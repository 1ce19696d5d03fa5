"""The words by which a topic is known: the most probable ones, or those most relevant to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TopicRows
from schmp_estimators.lda.data.counts import sum_rows
from schmp_estimators.lda.kernels.top_words import rank_words


def top_words(
    rows: TopicRows | Any, n_topics: int, prior: float, n_best: int, relevance: float | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the best words of each topic, and their weights: tokens plus prior.

    Parameters
    ----------
    rows : TopicRows
        Tokens of all words, which may be fractions.
    n_topics : int
        Number of topics K.
    prior : float
        What every word has in every topic, beta.
    n_best : int
        How many words; no more than there are.
    relevance : float, optional
        Lambda, from 0 to 1; None ranks by probability.

    Returns
    -------
    words : (n_topics, n_best) int64
    weights : (n_topics, n_best) float64
    """
    n_words = len(rows.ptr) - 1
    ptr, topic, tokens = freeze(rows)
    discount = np.zeros(n_words)
    if relevance is not None:
        discount = (1.0 - relevance) * np.log(sum_rows(ptr, tokens) + n_topics * prior)
    found = np.empty((n_topics, n_best), np.int64), np.empty((n_topics, n_best))
    order = np.argsort(discount, kind="stable")
    rank_words(ptr, topic, tokens, float(prior), relevance is not None, *freeze((discount, order)), *found)
    return found
