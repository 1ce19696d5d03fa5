"""A document-topic prior for each topic: draws, both samplers, fold-in and likelihood against what defines them."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from definition import run_serial
from hypothesis import given, settings
from hypothesis import strategies as st
from lda_cases import fit, make_shards, random_counts, token_words
from oracles import lda_foldin
from oracles.lda_fplus import FPlusOracle
from oracles.lda_warp import WarpOracle
from scipy.special import gammaln

from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TopicRows
from schmp_estimators.lda.kernels.document_priors import topic_priors
from schmp_estimators.lda.kernels.foldin import topic_model
from schmp_estimators.lda.kernels.likelihood import merge_counts, topic_counts
from schmp_estimators.lda.kernels.warp_documents import sample_documents
from schmp_estimators.lda.programs.foldin import proportions
from schmp_estimators.lda.samplers.fplus import FPlusLDA

CUTS = [(), (0, 2, 2, 5, 6, 9, 12)]


def some_alphas(n_topics, seed=0):
    alphas = np.random.default_rng(seed).gamma(0.3, 1.0, n_topics) + 1e-3
    return alphas, {"doc_topic_prior": float(alphas.mean()), "own_alphas": alphas}


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(1e-30, 1e30), min_size=1, max_size=40)
    | st.lists(st.sampled_from([1e-3, 0.1, 0.1, 3.0]), min_size=1)
)
def test_the_table_draws_every_topic_as_often_as_the_prior_says(alphas):
    alpha, total, own, other = topic_priors(np.array(alphas))
    n = len(alphas)
    np.testing.assert_allclose(total, alpha.sum(dtype=float))
    chance = own.astype(float)
    np.add.at(chance, other, 2.0**32 - own.astype(float))
    np.testing.assert_allclose(chance / (n * 2.0**32), alpha / total, atol=1e-9)


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("n_components", [1, 5, 60])
def test_frozen_counts_equal_the_oracle(n_components, cuts):
    counts, start = random_counts(3), {"hot_priors": (3.0, 0.2), "hot_sweeps": 2}
    alphas, parameters = some_alphas(n_components)
    result = fit(counts, n_components, cuts=cuts, n_sweeps=4, **parameters, **start)
    mean = parameters["doc_topic_prior"]
    oracle = WarpOracle(counts, n_components, mean, 0.1, 2, 5, hot=(3.0, 0.2), hot_sweeps=2, alphas=alphas)
    for topic in result.topics:
        np.testing.assert_array_equal(topic, oracle.run())
    saved = fit(counts, n_components, cuts=cuts, n_sweeps=2, **parameters, **start).saved
    rest = fit(counts, n_components, cuts=cuts, n_sweeps=4, **parameters, **start, saved=saved, first=2)
    np.testing.assert_array_equal(result.topics[2:], rest.topics)
    assert result.records[2:] == rest.records
    assert [record["doc_topic_prior"] for record in result.records] == [max(3.0, mean)] * 2 + [mean] * 2


@pytest.mark.slow
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("n_components", [1, 7, 300])
def test_exact_sampling_equals_the_oracle(n_components, cuts):
    counts, (alphas, parameters) = random_counts(4), some_alphas(n_components)
    shards, layout = make_shards(counts, cuts)
    program = FPlusLDA(n_components, counts.shape[1], topic_word_prior=0.1, seed=5, **parameters)
    oracle = FPlusOracle(counts, n_components, alphas, 0.1, 5, [0, *cuts, len(counts)], layout)
    for _, _, kept in run_serial(program, shards, 3):
        np.testing.assert_array_equal(np.concatenate(kept.shards), oracle.run())


@pytest.mark.slow  # a kernel of its own: one proposal, and a prior for each topic
def test_what_flows_from_topic_to_topic_flows_back():
    """Detailed balance of the document pass: one token of a document, whose word is frozen."""
    n, document, word = 200_000, np.array([3, 0, 1, 5]), np.array([2, 7, 0, 1])
    alphas, beta, k = np.array([0.05, 2.0, 0.4, 0.9]), 0.25, 4
    inverse = (1 / (np.array([40, 25, 3, 60]) + 7.5)).astype(np.float32)
    target = (document + alphas) * (word + beta) * inverse
    target /= target.sum()
    rng, flow, draws = np.random.default_rng(0), [], []
    (shard,), _ = make_shards(np.ones((n, 1 + document.sum()), np.int32))
    for s in range(k):
        in_order = np.empty((n, 1 + document.sum(), 2), np.int16)
        in_order[:, 1:, :] = np.repeat(np.arange(k), document)[:, None]
        in_order[:, 0, 0], in_order[:, 0, 1] = s, rng.choice(k, n, p=(word + beta) / (word + beta).sum())
        tokens = np.empty((len(shard.place), 2), np.int16)
        tokens[shard.place] = in_order.reshape(-1, 2)
        totals, prior, key = np.zeros(k, np.int64), topic_priors(alphas), stream_key(2, s)
        sample_documents(0, n, shard, tokens.reshape(-1), freeze(inverse), prior, key, totals, (0,))
        after = tokens[shard.place].reshape(in_order.shape)
        flow.append(target[s] * np.bincount(after[:, 0, 0], minlength=k) / n)
        stayed = after[:, 0, 0] == s
        draws.append((np.bincount(after[stayed][:, :, 1].reshape(-1), minlength=k), document + np.eye(k)[s] + alphas))
    flow = np.array(flow)
    tolerance = 5 * np.sqrt((target[:, None] * flow + target * flow.T) / n) + 1e-6
    assert (np.abs(flow - flow.T) <= tolerance).all()
    assert flow[0, 1] > 0.01
    for drawn, weights in draws:
        expected = weights / weights.sum()
        assert (np.abs(drawn / drawn.sum() - expected) <= 5 * np.sqrt(expected / drawn.sum())).all()


@pytest.mark.parametrize("n_topics", [1, 6, 40])
def test_folding_in_equals_the_dense_procedure(n_topics):
    rng = np.random.default_rng(n_topics)
    word_topic = rng.poisson(rng.gamma(0.2, 20.0, (40, n_topics)))
    phi, alphas = lda_foldin.topics(word_topic, 0.01), some_alphas(n_topics)[0]
    counts = np.array([rng.multinomial(length, phi @ rng.dirichlet(alphas)) for length in (0, 1, 5, 60, 200)])
    sparse = sp.csr_array(word_topic)
    rows = TopicRows(sparse.indptr.astype(np.int64), sparse.indices.astype(np.int32), sparse.data.astype(np.int32))
    theta = proportions(sp.csr_array(counts), topic_model(rows, word_topic.sum(0), alphas, 0.01, 1e-6))
    np.testing.assert_allclose(theta, lda_foldin.maximum(counts, phi, alphas), atol=1e-6)
    np.testing.assert_allclose(theta[0], alphas / alphas.sum())


@pytest.mark.parametrize("cuts", CUTS)
def test_likelihood_is_that_of_dense_tables(cuts):
    counts, (alphas, parameters) = random_counts(6), some_alphas(5)
    result = fit(counts, 5, cuts=cuts, **parameters)
    document = np.repeat(np.arange(len(counts)), counts.sum(1))
    table = np.zeros((len(counts), 5))
    np.add.at(table, (document, result.topics[-1]), 1)
    of_documents = (
        (gammaln(table + alphas) - gammaln(alphas)).sum()
        + len(counts) * gammaln(alphas.sum())
        - gammaln(table.sum(1) + alphas.sum()).sum()
    )
    by_word = np.zeros((counts.shape[1], 5))
    np.add.at(by_word, (token_words(counts), result.topics[-1]), 1)
    beta_sum = 0.1 * counts.shape[1]
    of_words = (
        (gammaln(by_word + 0.1) - gammaln(0.1)).sum() + 5 * gammaln(beta_sum) - gammaln(by_word.sum(0) + beta_sum).sum()
    )
    record = result.records[-1]
    np.testing.assert_allclose(record["document_log_likelihood"], of_documents, rtol=1e-12)
    np.testing.assert_allclose(record["word_log_likelihood"], of_words, rtol=1e-12)
    assert record == fit(counts, 5, **parameters).records[-1]


def test_counts_of_topics_are_those_of_a_table():
    rng = np.random.default_rng(7)
    lengths = np.array([0, 1, 2, 300, 40, 0, 7])
    topic = rng.choice(3, lengths.sum(), p=[0.8, 0.15, 0.05]).astype(np.int16)
    ptr, place = np.concatenate([[0], np.cumsum(lengths)]), rng.permutation(len(topic)).astype(np.uint32)

    def expected(shortest):
        found = {}
        for a, b in pairwise(ptr):
            for k, n in enumerate(np.bincount(topic[place[a:b]], minlength=3)):
                if n and b - a >= shortest:
                    found[k, n] = found.get((k, n), 0) + 1
        return found

    for shortest in (0, 2):
        whole = topic_counts(ptr, place, topic, 3, shortest)
        found = zip(whole.topic, whole.tokens, whole.documents, strict=True)
        assert {(k, n): d for k, n, d in found} == expected(shortest)
        pieces = [topic_counts(ptr[a : b + 1], place, topic, 3, shortest) for a, b in ((0, 3), (3, 4), (4, 7))]
        for one, other in zip(merge_counts(pieces), whole, strict=True):
            np.testing.assert_array_equal(one, other)
