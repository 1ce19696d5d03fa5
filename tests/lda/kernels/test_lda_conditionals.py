"""A topic is drawn from the conditional of its token given all others, by the kernels of "frozen" and of "saber".

Documents are equal, and their first tokens see all others as they were.  Whatever the topic was, the law is one.
"""

import numpy as np
import pytest
from lda_cases import fit, make_shards
from scipy.stats import chi2

from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import WordBlock, no_rows
from schmp_estimators.lda.kernels import frozen, saber
from schmp_estimators.lda.kernels.draw import LANES
from schmp_estimators.lda.samplers.frozen import FrozenLDA

N, BETA, BETA_SUM = 100_000, 0.25, 30 * 0.25
ALPHA, TOTAL = np.array([0.4, 0.1, 1.3, 0.02]), np.array([40, 25, 3, 60])
IN_DOCUMENT, IN_WORD = np.array([3, 0, 1, 5]), np.array([2, 7, 0, 1])
LAW = (IN_DOCUMENT + ALPHA) * (IN_WORD + BETA) / (TOTAL + BETA_SUM)
OTHERS = np.repeat(np.arange(4), IN_DOCUMENT)


@pytest.fixture(params=[0, 2])
def begun(request):
    """The topic of first tokens, as one of four, the shard of all documents, and the topics of its tokens."""
    (shard,), _ = make_shards(np.ones((N, 1 + len(OTHERS)), np.int32))
    topics = np.empty(len(shard.place), np.int16)
    topics[shard.place] = np.tile(np.append(request.param, OTHERS), N)
    return np.eye(4, dtype=int)[request.param], shard, topics


def assert_law_of_first_tokens(topics):
    counts, expected = np.bincount(topics[:, 0], minlength=4), N * LAW / LAW.sum()
    assert chi2.sf(((counts - expected) ** 2 / expected).sum(), 3) > 1e-4


def test_frozen(begun):
    own, shard, topics = begun
    rows = np.zeros((1 + len(OTHERS), LANES), np.float32)
    rows[0, :4] = (IN_WORD + own + BETA) / (TOTAL + own + BETA_SUM)
    rows[1:, :4] = 0.1
    word, totals = np.tile(np.arange(1 + len(OTHERS), dtype=np.uint32), N), np.zeros(4, np.int64)
    counts = freeze(frozen.frozen_of(rows, ALPHA, TOTAL + own, BETA, BETA_SUM))
    slots = frozen.make_slots(np.diff(shard.doc_ptr), 4, topics.dtype)
    given = 0, N, shard.doc_ptr, shard.place, shard.first_token, freeze(word), topics, counts
    frozen.sample_documents(*given, stream_key(2, int(own.argmax())), slots, totals, None)
    np.testing.assert_array_equal(totals, np.bincount(topics, minlength=4))
    assert_law_of_first_tokens(topics[shard.place].reshape(N, -1))


def test_saber(begun):
    own, shard, topics = begun
    document, *lists = saber.make_lists(shard.doc_ptr, shard.place, 4)
    scratch, totals = np.zeros((2, 4), np.int32), np.zeros(4, np.int64)
    saber.list_documents(0, N, shard.doc_ptr, shard.place, freeze(topics), *lists, *scratch, totals)
    heads = (IN_WORD + own)[None].astype(np.int32)
    block = WordBlock(heads, np.zeros(1, np.int64), np.zeros(0, np.int16), no_rows(1))
    smooth, key = saber.smoothing(TOTAL, BETA_SUM, ALPHA, BETA), stream_key(3, int(own.argmax()))
    of_words = shard.word_ptr, shard.word_total, shard.word_first, shard.word_rank
    listed = freeze(saber.DocumentLists(document, *lists))
    given = 0, 1, 0, of_words, freeze(block), topics, listed, freeze(smooth), key
    moved = saber.sample_words(*given, *saber.make_scratch(smooth, seeded=False), None)
    after = topics[shard.place].reshape(N, -1)
    assert moved == np.count_nonzero(after[:, 0] != own.argmax())
    assert (after[:, 1:] == OTHERS).all()
    assert_law_of_first_tokens(after)


def test_weights_below_all_float32_are_told_apart():
    """A document and a word for each token: no count is left but those of the topics, about 200 tokens each."""
    priors = {"doc_topic_prior": 1e-30, "topic_word_prior": 1e-30}
    result = fit(np.eye(1000, dtype=np.int32), 5, kind=FrozenLDA, **priors, n_sweeps=1)
    found = np.bincount(result.topics[-1], minlength=5)
    assert 100 < found.min() <= found.max() < 400
