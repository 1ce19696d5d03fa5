"""Priors of `DistributedLDA` beyond two numbers, as users meet them."""

import numpy as np
import pytest
from corpora import SMALL, assert_same_bits, completion_perplexity, planted

from schmp_estimators import DistributedLDA
from schmp_estimators.exceptions import CheckpointMismatchError

UNEVEN = [0.05, 0.3, 2.0]


def make(**parameters):
    return DistributedLDA(
        **{"n_components": 3, "max_iter": 6, "evaluate_every": 2, "random_state": 7, "doc_topic_prior": UNEVEN}
        | parameters
    )


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ([0.1, 0.2], r"doc_topic_prior has shape \(2,\), but n_components=3; give .* of shape \(3,\)"),
        ([[0.1, 0.2, 0.3]], r"shape \(1, 3\)"),
        ([0.1, 0.0, 0.3], r"doc_topic_prior\[1\] is 0.0; .* 1e-30 to 1e\+30: give rare topics a small prior"),
        ([0.1, np.nan, -1.0], r"doc_topic_prior\[1\] is nan; .* so must 1 others"),
        ([0.1, np.inf, 1.0], r"doc_topic_prior\[1\] is inf"),
        (["a", "b", "c"], "doc_topic_prior must be one number, or numbers, one for each topic"),
        (np.inf, "doc_topic_prior"),
    ],
)
def test_a_prior_that_is_none_is_refused(prior, message):
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=message):
            getattr(make(doc_topic_prior=prior), method)(SMALL)


@pytest.mark.parametrize("sampler", ["warp", "fplus"])
def test_a_prior_for_each_topic_is_in_all_that_is_fitted(sampler, tmp_path):
    parameters = {
        "sampler": sampler,
        "n_shards": 2,
        "checkpoint": tmp_path / "run",
        "checkpoint_every": 4,
        "init": "uniform",
    }
    given = np.array(UNEVEN)
    lda = make(doc_topic_prior=given, **parameters).fit(SMALL)
    np.testing.assert_array_equal(lda.doc_topic_prior_, UNEVEN)
    assert {record["doc_topic_prior"] for record in lda.history_} == {np.mean(UNEVEN)}
    np.testing.assert_allclose(lda.transform(np.zeros((1, 11), int))[0], given / given.sum())
    np.testing.assert_allclose(lda.perplexity(SMALL), completion_perplexity(lda, SMALL))
    assert_same_bits(lda, make(sampler=sampler, n_shards=2, init="uniform").fit(SMALL))
    with pytest.raises(CheckpointMismatchError, match="doc_topic_prior"):
        make(doc_topic_prior=given[::-1], **parameters).fit(SMALL)  # of the same mean
    with pytest.raises(CheckpointMismatchError, match="doc_topic_prior"):
        make(doc_topic_prior=given.mean(), **parameters).fit(SMALL)
    longer = make(max_iter=9, **parameters).fit(SMALL)  # goes on from the checkpoint
    assert_same_bits(longer, make(sampler=sampler, n_shards=2, init="uniform", max_iter=9).fit(SMALL))
    more = make(sampler=sampler).partial_fit(SMALL).partial_fit(SMALL[:9])
    np.testing.assert_array_equal(more.doc_topic_prior_, UNEVEN)
    assert more.topic_word_counts_.sum() == SMALL.sum() + SMALL[:9].sum()


def test_a_topic_with_a_large_prior_gets_more_tokens():
    X = planted(n_docs=150, n_topics=1, words_per_topic=30)[0]
    lda = make(doc_topic_prior=[0.05, 0.05, 5.0], topic_word_prior=1.0, max_iter=40).fit(X)
    shares = lda.topic_word_counts_.sum(axis=1) / X.sum()
    assert shares[2] > 0.9
    assert lda.transform(X)[:, 2].min() > 0.5
