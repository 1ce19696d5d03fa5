"""Short documents sampled exactly, long ones by proposals: the posterior by enumeration, the oracle, the laws."""

import numpy as np
import pytest
from lda_cases import CUTS, fit, make_shards, random_counts
from numba import njit
from oracles.lda_hybrid import HybridOracle
from posterior import assert_long_run_has_the_posterior, with_key

from schmp_estimators.core.rng import GAMMA, mix
from schmp_estimators.lda.samplers.fplus import FPlusLDA
from schmp_estimators.lda.samplers.hybrid import HybridLDA, Proposing, sample_hybrid


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize(
    ("n_components", "long_document", "mh_steps"), [(3, 0, 1), (20, 8, 2), (20, 19, 5), (300, 8, 2)]
)
def test_equals_oracle(n_components, long_document, mh_steps, cuts):
    counts = random_counts(3)
    assert (counts.sum(1) <= 8).any() and (counts.sum(1) > 19).any()
    fixed = np.random.default_rng(1).poisson(2.0, (counts.shape[1], n_components)) if n_components == 3 else None
    own = {"long_document": long_document, "mh_steps": mh_steps}
    result = fit(counts, n_components, kind=HybridLDA, cuts=cuts, fixed=fixed, **own)
    bounds, layout = [0, *cuts, len(counts)], make_shards(counts, cuts)[1]
    oracle = HybridOracle(counts, n_components, 0.3, 0.1, 5, bounds, layout, fixed, **own)
    for topic, record in zip(result.topics, result.records, strict=True):
        np.testing.assert_array_equal(topic, oracle.run())
        assert record["s_error"] == pytest.approx(oracle.s_error, abs=1e-15)


@pytest.mark.parametrize("cuts", CUTS[::3])
@pytest.mark.parametrize(("n_components", "long_document"), [(7, 10**6), (7, 7)])
def test_is_exact_sampling_where_all_is_short(n_components, long_document, cuts):
    """No document has more tokens, or there are no more topics than that."""
    counts = random_counts(2)
    exact = fit(counts, n_components, cuts=cuts, kind=FPlusLDA)
    hybrid = fit(counts, n_components, kind=HybridLDA, cuts=cuts, long_document=long_document)
    np.testing.assert_array_equal(exact.topics, hybrid.topics)
    assert exact.records == hybrid.records


@njit
def sweep(cell, key):
    level_ptr, long_document, n_steps, _, ends = cell.extra
    sample_hybrid(with_key(cell, key, Proposing(level_ptr, long_document, n_steps, mix(key + GAMMA), ends)))


@pytest.mark.parametrize(
    ("n_components", "counts", "alpha", "beta", "long_document", "n_steps"),
    [
        (3, [[2, 1], [0, 1], [1, 1]], 0.7, 0.4, 2, 2),  # a long document and two short ones
        pytest.param(3, [[1, 1, 0], [0, 2, 1]], 0.3, 0.2, 0, 3, marks=pytest.mark.slow),
        pytest.param(2, [[3, 1], [3, 1]], 0.2, 0.3, 0, 2, marks=pytest.mark.slow),  # a head word
        pytest.param(18, [[1, 0, 1]], 0.1, 0.3, 0, 4, marks=pytest.mark.slow),  # a tree of two levels
    ],
)
def test_long_run_visits_every_state_as_often_as_the_posterior_says(
    n_components, counts, alpha, beta, long_document, n_steps
):
    program = HybridLDA(n_components, len(counts[0]), alpha, beta, long_document=long_document, mh_steps=n_steps)
    counts = np.array(counts, np.int32)
    assert_long_run_has_the_posterior(program, sweep, counts, thin=25)
