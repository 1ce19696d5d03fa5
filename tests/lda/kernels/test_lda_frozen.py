"""Frozen-count Gibbs sampling: its oracle and its law."""

from functools import partial

import numpy as np
import pytest
from lda_cases import fit as fit_any
from lda_cases import make_shards
from scipy.stats import chi2

from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.kernels.draw import LANES
from schmp_estimators.lda.kernels.frozen import frozen_of, make_seats, sample_documents
from schmp_estimators.lda.samplers.frozen import FrozenLDA

fit = partial(fit_any, kind=FrozenLDA)


@pytest.mark.parametrize("n_components", [5])
def test_weights_below_all_float32_are_told_apart(n_components):
    """A document and a word for each token: no count is left but those of the topics, about 1,000 / K tokens each."""
    result = fit(np.eye(1000, dtype=np.int32), n_components, doc_topic_prior=1e-30, topic_word_prior=1e-30, n_sweeps=1)
    found = np.bincount(result.topics[-1], minlength=n_components)
    assert found.min() > 500 / n_components
    assert found.max() < 2000 / n_components


@pytest.mark.parametrize("topic", [0, 2])
def test_a_topic_is_drawn_from_the_conditional_of_the_token_given_all_others(topic):
    """Equal documents; their first tokens see all others as they were.  Whatever the topic was, the law is one."""
    n, beta, n_words = 100_000, 0.25, 30
    alpha, total = np.array([0.4, 0.1, 1.3, 0.02]), np.array([40, 25, 3, 60])
    in_document, in_word = np.array([3, 0, 1, 5]), np.array([2, 7, 0, 1])
    law = (in_document + alpha) * (in_word + beta) / (total + n_words * beta)
    law /= law.sum()
    others = np.repeat(np.arange(4), in_document)
    (shard,), _ = make_shards(np.ones((n, 1 + len(others)), np.int32))
    own = np.eye(4, dtype=int)[topic]
    rows = np.zeros((1 + len(others), LANES), np.float32)
    rows[0, :4] = (in_word + own + beta) / (total + own + n_words * beta)
    rows[1:, :4] = 0.1
    in_order = np.tile(np.append(topic, others), (n, 1)).astype(np.int16)
    topics = np.empty(in_order.size, np.int16)
    topics[shard.place] = in_order.reshape(-1)
    word, totals = np.tile(np.arange(1 + len(others), dtype=np.uint32), n), np.zeros(4, np.int64)
    frozen = freeze(frozen_of(rows, alpha, total + own, beta, n_words * beta))
    seats = make_seats(np.diff(shard.doc_ptr), 4, topics.dtype)
    given = 0, n, shard.doc_ptr, shard.place, shard.first_token, freeze(word), topics, frozen
    sample_documents(*given, stream_key(2, topic), seats, totals, None)
    np.testing.assert_array_equal(totals, np.bincount(topics, minlength=4))
    counts = np.bincount(topics[shard.place].reshape(n, -1)[:, 0], minlength=4)
    assert chi2.sf(((counts - n * law) ** 2 / (n * law)).sum(), 3) > 1e-4
