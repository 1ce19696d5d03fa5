"""The baseline with a copy of the model for every shard: exact within a shard, and deaf to all others for a sweep."""

import numpy as np
import pytest
from lda_cases import CUTS, fit, make_shards, random_counts
from oracles.lda_fplus import CopiesOracle

from schmp_estimators.lda.samplers.fplus import DataParallelLDA, FPlusLDA


@pytest.mark.parametrize("n_components", [1, 3, 20])
def test_one_shard_samples_exactly(n_components):
    counts = random_counts(n_components)
    one, exact = (fit(counts, n_components, kind=kind) for kind in (DataParallelLDA, FPlusLDA))
    np.testing.assert_array_equal(one.topics, exact.topics)
    assert one.records == exact.records
    assert one.records[-1]["s_error"] == 0


@pytest.mark.parametrize("cuts", CUTS[1:])
@pytest.mark.parametrize("with_fixed", [False, True])
def test_equals_oracle(cuts, with_fixed):
    counts = random_counts(7)
    fixed = np.random.default_rng(1).poisson(2.0, (counts.shape[1], 6)) if with_fixed else None
    result = fit(counts, 6, kind=DataParallelLDA, cuts=cuts, fixed=fixed)
    oracle = CopiesOracle(counts, 6, 0.3, 0.1, 5, [0, *cuts, len(counts)], make_shards(counts, cuts)[1], fixed)
    for topic, record in zip(result.topics, result.records, strict=True):
        before = np.array(oracle.topic)
        np.testing.assert_array_equal(topic, oracle.run())
        assert record["moved"] == (before != topic).sum()
        assert record["s_error"] == pytest.approx(oracle.s_error, abs=1e-15)
    np.testing.assert_array_equal(result.model.topic_total, oracle.tables()[1].sum(0))
    assert oracle.s_error > 0
