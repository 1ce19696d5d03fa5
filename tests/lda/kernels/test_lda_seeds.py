"""Seeded words: all samplers against their oracles, the posterior by enumeration, balance, and the likelihood."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from lda_cases import fit, make_shards, old_rows, random_counts, token_words
from numba import njit
from oracles.lda_by_document import AliasOracle, LightOracle, SparseOracle
from oracles.lda_fplus import CopiesOracle, FPlusOracle
from oracles.lda_frozen import FrozenOracle
from oracles.lda_hybrid import HybridOracle
from oracles.lda_saber import SaberOracle
from oracles.lda_warp import WarpOracle
from posterior import assert_long_run_has_the_posterior, with_key
from scipy import sparse
from scipy.special import gammaln

from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import WordBlock, no_rows
from schmp_estimators.lda.kernels.warp import pieces_of, sample_words
from schmp_estimators.lda.kernels.word_priors import SeedRows
from schmp_estimators.lda.programs.seeds import word_seeds
from schmp_estimators.lda.samplers import SAMPLERS
from schmp_estimators.lda.samplers.fplus import FPlusLDA, sample_fplus
from schmp_estimators.lda.samplers.frozen import FrozenLDA

CUTS = [(), (0, 2, 2, 5, 6, 9, 12)]


def some_seeds(counts, n_components, seed=0):
    """Seeds of about half of the words, words without tokens among them, as a table of words × topics."""
    rng = np.random.default_rng(seed)
    table = rng.gamma(1.0, 5.0, (counts.shape[1], n_components)) * (rng.random((counts.shape[1], n_components)) < 0.3)
    table[rng.random(len(table)) < 0.4] = 0.0
    return table, word_seeds(sparse.csc_array(table.T), counts.sum(0).astype(np.int64))


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("with_fixed", [False, True])
@pytest.mark.parametrize("n_components", [2, 5, 60])
def test_frozen_counts_equal_the_oracle(n_components, with_fixed, cuts):
    counts = random_counts(3)
    table, seeds = some_seeds(counts, n_components)
    fixed = old_rows(1, counts, n_components) if with_fixed else None
    result = fit(counts, n_components, cuts=cuts, seeds=seeds, fixed=fixed)
    oracle = WarpOracle(counts, n_components, 0.3, 0.1, 2, 5, fixed, seeds=table)
    for topic in result.topics:
        np.testing.assert_array_equal(topic, oracle.run())


def word_by_word(kind):
    return lambda counts, n_components, *given, **options: kind(counts, n_components, 0.3, 0.1, 5, *given, **options)


def document_by_document(kind):
    return lambda counts, n_components, *given, **options: kind(
        counts, np.full(n_components, 0.3), 0.1, 5, *given, **options
    )


#: Of all samplers but "warp".
ORACLES = {
    "frozen": lambda counts, n_components, bounds, layout, fixed, seeds: FrozenOracle(
        counts, n_components, 0.3, 0.1, 5, fixed, seeds=seeds
    ),
    "saber": lambda counts, n_components, bounds, layout, fixed, seeds: SaberOracle(
        counts, n_components, 0.3, 0.1, 5, fixed, seeds=seeds
    ),
    "fplus": word_by_word(FPlusOracle),
    "hybrid": word_by_word(HybridOracle),
    "data-parallel": word_by_word(CopiesOracle),
    "sparse": document_by_document(SparseOracle),
    "light": document_by_document(LightOracle),
    "light-word": document_by_document(partial(LightOracle, asked=("word", "word"))),
    "light-document": document_by_document(partial(LightOracle, asked=("document", "document"))),
    "alias": document_by_document(AliasOracle),
}
#: What every change is to keep, with several shards and earlier counts: kernels are compiled for seeds alone.
FAST = ("frozen", 20, CUTS[1], True)


@pytest.mark.parametrize(
    ("sampler", "n_components", "cuts", "with_fixed"),
    [
        pytest.param(*case, marks=[] if case == FAST else pytest.mark.slow)
        for case in product(ORACLES, [2, 20, 300], CUTS, [False, True])
    ],
)
def test_samplers_equal_their_oracles(sampler, n_components, cuts, with_fixed):
    counts = random_counts(4)
    table, seeds = some_seeds(counts, n_components)
    fixed = old_rows(1, counts, n_components) if with_fixed else None
    options = {"long_document": min(8, n_components - 1)} if sampler == "hybrid" else {}
    bounds, layout = [0, *cuts, len(counts)], make_shards(counts, cuts)[1]
    oracle = ORACLES[sampler](counts, n_components, bounds, layout, fixed, seeds=table, **options)
    go = partial(fit, counts, n_components, kind=SAMPLERS[sampler], cuts=cuts, seeds=seeds, fixed=fixed, **options)
    result = go()
    for topic in result.topics:
        np.testing.assert_array_equal(topic, oracle.run())
    # Restored from topics alone, also without the model.
    part = go(n_sweeps=1)
    rest = go(saved=part.saved._replace(model=None), first=1)
    np.testing.assert_array_equal(result.topics[1:], rest.topics)
    assert result.records[1:] == rest.records


@pytest.mark.slow
def test_frozen_rows_have_the_same_bits_for_any_shards():
    counts = random_counts(11, 60, 30)
    _, seeds = some_seeds(counts, 7)
    one, *others = (fit(counts, 7, kind=FrozenLDA, seeds=seeds, cuts=cuts) for cuts in [(), (20,), (1, 5, 44)])
    for other in others:
        np.testing.assert_array_equal(one.topics, other.topics)
        assert one.records == other.records


@pytest.mark.parametrize("cuts", CUTS)
def test_likelihood_is_that_of_dense_tables(cuts):
    counts = random_counts(6)
    table, _ = some_seeds(counts, 5)
    fixed = old_rows(1, counts, 5)
    seeds = word_seeds(sparse.csc_array(table.T), counts.sum(0).astype(np.int64), sparse.csc_array(fixed.T))
    result = fit(counts, 5, cuts=cuts, seeds=seeds, fixed=fixed)
    by_word, beta = fixed.astype(float), 0.1 + table
    np.add.at(by_word, (token_words(counts), result.topics[-1]), 1)
    of_words = (
        (gammaln(by_word + beta) - gammaln(beta)).sum()
        + gammaln(beta.sum(0)).sum()
        - gammaln(by_word.sum(0) + beta.sum(0)).sum()
    )
    np.testing.assert_allclose(result.records[-1]["word_log_likelihood"], of_words, rtol=1e-11)
    assert result.records == fit(counts, 5, seeds=seeds, fixed=fixed).records


@njit
def sweep(cell, key):
    sample_fplus(with_key(cell, key, cell.extra))


@pytest.mark.slow
@pytest.mark.parametrize("counts", [[[2, 1], [0, 2], [1, 1]], [[3, 1], [3, 1]]])
def test_long_run_visits_every_state_as_often_as_the_posterior_says(counts):
    """With seeds and a document-topic prior for each topic."""
    counts, alphas, table = np.array(counts, np.int32), np.array([0.3, 1.1]), np.array([[0.0, 1.3], [0.4, 0.0]])
    seeds = word_seeds(sparse.csc_array(table.T), counts.sum(0).astype(np.int64))
    program = FPlusLDA(2, 2, 0.7, 0.4, seeds=seeds, own_alphas=alphas)
    assert_long_run_has_the_posterior(program, sweep, counts, table=table, n_samples=120_000)


@pytest.mark.slow
def test_what_flows_from_topic_to_topic_flows_back():
    """Detailed balance of a token of a seeded word, whose proposals were drawn from its document."""
    n, document, word = 200_000, np.array([3, 0, 1, 5]) + 0.4, np.array([2, 7, 0, 1])
    seeds, beta = np.array([0.0, 0.0, 3.5, 1.0]), np.float32(0.25)
    inverse = freeze((1 / (np.array([40, 25, 3, 60]) + 7.5 + seeds)).astype(np.float32))
    rows = freeze(SeedRows(np.zeros(1, np.int32), np.array([0, 2]), np.array([2, 3], np.int32), np.array([3.5, 1.0])))
    target = document * (word + beta + seeds) * inverse
    target /= target.sum()
    rng, flow = np.random.default_rng(0), []
    for s in range(4):
        tokens = np.empty((n, 2), np.int16)
        tokens[:, 0], tokens[:, 1] = s, rng.choice(4, n, p=document / document.sum())
        row = word + np.eye(4, dtype=int)[s]
        block = freeze(WordBlock(row[None].astype(np.int32), np.zeros(1, np.int64), np.empty(0, np.int16), no_rows(1)))
        sample_words(
            0, 1, freeze(pieces_of(tokens, np.array([0, n]))), freeze(np.array([17])), block, block.fixed, rows,
            tokens[:0].reshape(-1), inverse, beta, stream_key(1, s), False, (0,),
        )  # fmt: skip
        flow.append(target[s] * np.bincount(tokens[:, 0], minlength=4) / n)
        expected = (row + beta + seeds) / (row + beta + seeds).sum()
        drawn = np.bincount(tokens[:, 1], minlength=4) / n
        assert (np.abs(drawn - expected) <= 5 * np.sqrt(expected / n)).all()
    flow = np.array(flow)
    tolerance = 5 * np.sqrt((target[:, None] * flow + target * flow.T) / n) + 1e-6
    assert (np.abs(flow - flow.T) <= tolerance).all()
    assert flow[0, 1] > 0.005
