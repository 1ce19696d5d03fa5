"""Detailed balance of one token's moves, and the distributions of the proposals.

With everything else frozen a token's topic should have the probability (n_d + α)(n_w + β)/(n_k +
β̄), the token taken out of all counts.  A proposal from the document, accepted by the word, and one
from the word, accepted by the document, must each leave that distribution in place: what flows from
s to t flows from t to s.

The test does not take this formula for granted: it begins with the joint probability of all topics,
of a model whose topics are normalised by frozen totals.
"""

from math import lgamma, log

import numpy as np
import pytest
from lda_cases import make_shards
from scipy.stats import chi2

from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import WordBlock
from schmp_estimators.lda.kernels.warp import pieces_of, sample_words
from schmp_estimators.lda.kernels.warp_documents import sample_documents

#: Kernels with one proposal are compiled for these tests alone.
pytestmark = pytest.mark.slow

N = 200_000
ALPHA, BETA = np.float32(0.4), np.float32(0.25)
DOCUMENT = np.array([3, 0, 1, 5])
WORD = np.array([2, 7, 0, 1])
TOTAL = np.array([40, 25, 3, 60])
K = len(WORD)
INVERSE = freeze((1 / (TOTAL + 30 * BETA)).astype(np.float32))


def sample_by_word(topic, proposals):
    """Do the word pass for N tokens in the same situation; return topics and proposals."""
    tokens = np.empty((N, 2), np.int16)
    tokens[:, 0], tokens[:, 1:] = topic, proposals
    row = WORD.astype(np.int32)
    row[topic] += 1
    block = freeze(WordBlock(row[None], np.zeros(1, np.int64), np.empty(0, np.int16)))
    sample_words(
        0, 1, freeze(pieces_of(tokens, np.array([0, N]))), freeze(np.array([17])), block, None,
        (tokens[:0].reshape(-1), np.empty(0, np.int16)), INVERSE, BETA, stream_key(1, topic), (0,),
    )  # fmt: skip
    return tokens[:, 0], tokens[:, 1:]


def sample_by_document(topic, proposals):
    """Do the document pass for N equal documents.

    The topics of their first tokens and all proposals are returned.
    """
    others = np.repeat(np.arange(K), DOCUMENT)
    (shard,), _ = make_shards(np.full((N, 1 + len(others)), 1, np.int32))
    tokens = np.empty((len(shard.place), 2), np.int16)
    in_order = np.empty((N, 1 + len(others), 2), np.int16)
    in_order[:, 1:, :] = others[:, None]  # whose own proposals change nothing
    in_order[:, 0, 0], in_order[:, 0, 1] = topic, proposals
    tokens[shard.place] = in_order.reshape(-1, 2)
    totals, key = np.zeros(K, np.int64), stream_key(2, topic)
    sample_documents(0, N, totals, shard, tokens.reshape(-1), INVERSE, ALPHA, key, (0,))
    after = tokens[shard.place].reshape(in_order.shape)
    assert totals.sum() == len(tokens)
    return after[:, 0, 0], after[:, :, 1]


# From the joint probability.


def log_joint(documents, words, topics):
    """Return the logarithm of the joint probability of words and topics, up to a constant.

    Topic k is normalised by the frozen TOTAL[k] instead of its own.

    With proportions of documents integrated out, a document is a Pólya urn: Γ(n_dk + α) for each
    topic.  So is a topic, Γ(n_wk + β) for each word, but that its normaliser is a constant for each
    token in it.

    documents, words, topics : of each token
    """
    result = 0.0
    for place, prior in ((documents, ALPHA), (words, BETA)):
        for one in set(place):
            inside = [topic for where, topic in zip(place, topics, strict=True) if where == one]
            result += sum(lgamma(inside.count(k) + float(prior)) for k in range(K))
    return result - sum(log(TOTAL[k] + 30 * float(BETA)) for k in topics)


def normalised(logs):
    weights = np.exp(np.array(logs) - max(logs))
    return weights / weights.sum()


def law_of_one_token():
    """Return the distribution of one token's topic, others being as in DOCUMENT and WORD."""
    in_document, in_word = (
        np.repeat(np.arange(K), DOCUMENT).tolist(),
        np.repeat(np.arange(K), WORD).tolist(),
    )
    documents = [0] + [0] * len(in_document) + list(range(1, 1 + len(in_word)))
    words = [0] + list(range(1, 1 + len(in_document))) + [0] * len(in_word)
    return normalised([log_joint(documents, words, [k, *in_document, *in_word]) for k in range(K)])


def assert_as_expected(counts, probabilities):
    expected = counts.sum() * probabilities
    assert expected.min() > 5
    assert chi2.sf(((counts - expected) ** 2 / expected).sum(), len(expected) - 1) > 1e-3


@pytest.mark.parametrize(
    "cycle",
    [
        lambda topic: sample_by_word(topic, sample_by_document(topic, topic)[1][:, :1])[0],
        lambda topic: sample_by_document(topic, sample_by_word(topic, topic)[1][:, 0])[0],
    ],
    ids=["word pass", "document pass"],
)
def test_a_token_stays_in_the_law_of_the_joint_probability(cycle):
    """Tokens begin in that law, get proposals from one pass and answer them in the other.

    Both passes are the kernels' own.
    """
    law = law_of_one_token()
    begun = np.random.default_rng(1).multinomial(N, law)
    flow = np.array([np.bincount(cycle(s)[: begun[s]], minlength=K) for s in range(K)])
    assert flow.sum() == N
    assert np.trace(flow) < 0.9 * N  # they do move
    assert_as_expected(flow.sum(axis=0), law)
    up, down = flow[np.triu_indices(K, 1)], flow.T[np.triu_indices(K, 1)]
    assert (up + down).min() > 20
    assert (
        chi2.sf(((up - down) ** 2 / (up + down)).sum(), up.size) > 1e-3
    )  # Bowker's test of symmetry
