"""Gibbs sampling with all counts frozen: its oracle, its lists and its law."""

from functools import partial

import numpy as np
import pytest
from lda_cases import fit as fit_any
from lda_cases import make_shards
from scipy.stats import chi2

from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TopicRows, WordBlock
from schmp_estimators.lda.kernels.saber import (
    DocumentLists,
    list_documents,
    make_lists,
    make_scratch,
    sample_words,
    smoothing,
)
from schmp_estimators.lda.samplers.saber import SaberLDA

fit = partial(fit_any, kind=SaberLDA)


@pytest.mark.parametrize("topic", [0, 2])
def test_a_topic_is_drawn_from_the_conditional_of_the_token_given_all_others(topic):
    """Equal documents, whose first tokens are one word with a given row.  Whatever the topic was, the law is one."""
    n, beta, n_words = 100_000, 0.25, 30
    alpha, total = np.array([0.4, 0.1, 1.3, 0.02]), np.array([40, 25, 3, 60])
    in_document, in_word = np.array([3, 0, 1, 5]), np.array([2, 7, 0, 1])
    law = (in_document + alpha) * (in_word + beta) / (total + n_words * beta)
    law /= law.sum()
    others = np.repeat(np.arange(4), in_document)
    (shard,), _ = make_shards(np.ones((n, 1 + len(others)), np.int32))
    topics = np.empty(len(shard.place), np.int16)
    topics[shard.place] = np.tile(np.append(topic, others), (n, 1)).reshape(-1)
    document, *lists = make_lists(shard.doc_ptr, shard.place, 4)
    scratch = np.zeros((2, 4), np.int32)
    list_documents(0, n, shard.doc_ptr, shard.place, freeze(topics), *lists, *scratch, np.zeros(4, np.int64))
    row = in_word + np.eye(4, dtype=int)[topic]
    none = TopicRows(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))
    block = WordBlock(row[None].astype(np.int32), np.zeros(1, np.int64), np.zeros(0, np.int16), none)
    smooth = smoothing(total, n_words * beta, alpha, beta)
    key = stream_key(3, topic)
    of_words = shard.word_ptr, shard.word_total, shard.word_first, shard.word_rank
    given = 0, 1, 0, of_words, freeze(block), topics, freeze(DocumentLists(document, *lists)), freeze(smooth), key
    moved = sample_words(*given, *make_scratch(smooth, seeded=False), None)
    after = topics[shard.place].reshape(n, -1)
    assert moved == np.count_nonzero(after[:, 0] != topic)
    assert (after[:, 1:] == others).all()
    counts = np.bincount(after[:, 0], minlength=4)
    assert chi2.sf(((counts - n * law) ** 2 / (n * law)).sum(), 3) > 1e-4
