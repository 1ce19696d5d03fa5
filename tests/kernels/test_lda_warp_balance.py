"""Detailed balance of one token's moves, and the distributions of the proposals.

With everything else frozen a token's topic should have the probability (n_d + α)(n_w + β)/(n_k + β̄), the token taken
out of all counts.  A proposal from the document, accepted by the word, and one from the word, accepted by the document,
must each leave that distribution in place: what flows from s to t flows from t to s.
"""

import numpy as np
import pytest
from lda_cases import make_shards

from schmp_estimators.data.values import freeze
from schmp_estimators.kernels.lda_warp import sample_word
from schmp_estimators.kernels.lda_warp_documents import sample_documents
from schmp_estimators.kernels.lda_warp_tables import fill_slots
from schmp_estimators.kernels.rng import stream_key

N = 200_000
ALPHA, BETA = np.float32(0.4), np.float32(0.25)
DOCUMENT = np.array([3, 0, 1, 5])
WORD = np.array([2, 7, 0, 1])
TOTAL = np.array([40, 25, 3, 60])
K = len(WORD)
INVERSE = freeze((1 / (TOTAL + 30 * BETA)).astype(np.float32))
FROM_DOCUMENT = (DOCUMENT + ALPHA) / (DOCUMENT + ALPHA).sum()
FROM_WORD = (WORD + BETA) / (WORD + BETA).sum()
TARGET = (DOCUMENT + ALPHA) * (WORD + BETA) * INVERSE / ((DOCUMENT + ALPHA) * (WORD + BETA) * INVERSE).sum()


def sample_by_word(topic, proposals, mh_steps=1, fixed_topic=(), fixed_tokens=()):
    """Do the word pass for N tokens in the same situation, and return their topics and proposals."""
    tokens = np.empty((N, 1 + mh_steps), np.int16)
    tokens[:, 0], tokens[:, 1:] = topic, proposals
    row = WORD.copy()
    row[topic] += 1
    slots, ends = np.empty(64, np.int16), np.empty(K, np.int64)
    shift = fill_slots(row.astype(np.int32), 48, slots, ends)
    n, fixed_topic = row.sum(), np.array(fixed_topic, np.int32)
    row[fixed_topic] += np.array(fixed_tokens, int)
    sample_word(
        tokens.reshape(-1), np.uint64(17), row.astype(np.int32), INVERSE, BETA, stream_key(1, topic), slots, shift,
        ends, n, fixed_topic, np.cumsum(fixed_tokens, dtype=np.int64), (0,) * mh_steps,
    )  # fmt: skip
    return tokens[:, 0], tokens[:, 1:]


def sample_by_document(topic, proposals):
    """Do the document pass for N equal documents, and return the topics of their first tokens and all proposals."""
    others = np.repeat(np.arange(K), DOCUMENT)
    (shard,), _ = make_shards(np.full((N, 1 + len(others)), 1, np.int32))
    tokens = np.empty((len(shard.place), 2), np.int16)
    in_order = np.empty((N, 1 + len(others), 2), np.int16)
    in_order[:, 1:, :] = others[:, None]  # whose own proposals change nothing
    in_order[:, 0, 0], in_order[:, 0, 1] = topic, proposals
    tokens[shard.place] = in_order.reshape(-1, 2)
    totals = np.zeros(K, np.int64)
    sample_documents(0, N, shard, tokens.reshape(-1), INVERSE, ALPHA, stream_key(2, topic), totals, (0,))
    after = tokens[shard.place].reshape(in_order.shape)
    assert totals.sum() == len(tokens)
    return after[:, 0, 0], after[:, :, 1]


def flows(sample, proposal):
    """Return the matrix of TARGET[s] · P(s → t), estimated."""
    rng = np.random.default_rng(0)
    moved = [np.bincount(sample(s, rng.choice(K, N, p=proposal)), minlength=K) / N for s in range(K)]
    return TARGET[:, None] * np.array(moved)


@pytest.mark.parametrize(
    ("sample", "proposal"),
    [
        (lambda topic, proposals: sample_by_word(topic, proposals[:, None])[0], FROM_DOCUMENT),
        (lambda topic, proposals: sample_by_document(topic, proposals)[0], FROM_WORD),
    ],
    ids=["word pass", "document pass"],
)
def test_detailed_balance(sample, proposal):
    flow = flows(sample, proposal)
    tolerance = 5 * np.sqrt((TARGET[:, None] * flow + TARGET * flow.T) / N) + 1e-6
    assert (np.abs(flow - flow.T) <= tolerance).all()
    assert flow[0, 1] > 0.01


def test_several_proposals_are_a_chain_of_single_ones():
    rng = np.random.default_rng(0)
    step = flows(lambda s, proposals: sample_by_word(s, proposals[:, None])[0], FROM_DOCUMENT) / TARGET[:, None]
    for s in range(K):
        topic, _ = sample_by_word(s, rng.choice(K, (N, 3), p=FROM_DOCUMENT), mh_steps=3)
        expected = np.linalg.matrix_power(step, 3)[s]
        np.testing.assert_allclose(np.bincount(topic, minlength=K) / N, expected, atol=0.01)


def assert_drawn_from(draws, weights):
    expected = weights / weights.sum()
    observed = np.bincount(draws.reshape(-1), minlength=K) / draws.size
    assert (np.abs(observed - expected) <= 5 * np.sqrt(expected / draws.size)).all()


def test_word_proposals():
    row = WORD + np.eye(K, dtype=int)[2]
    assert_drawn_from(sample_by_word(2, 2, mh_steps=2)[1], row + BETA)


def test_word_proposals_with_fixed_rows():
    row = WORD + np.eye(K, dtype=int)[2]
    row[[0, 3]] += 6, 11
    assert_drawn_from(sample_by_word(2, 2, fixed_topic=[0, 3], fixed_tokens=[6, 11])[1], row + BETA)


def test_document_proposals():
    row = DOCUMENT + np.eye(K, dtype=int)[1]
    assert_drawn_from(sample_by_document(1, 1)[1], row + ALPHA)
