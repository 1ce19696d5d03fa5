"""Every sampler draws the topics of its oracle, however work is divided.

Likelihoods are those of dense tables.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from corpora import QUICK
from definition import run_serial
from hypothesis import given, settings
from hypothesis import strategies as st
from lda_cases import CUTS, fit, make_shards, old_rows, random_counts, token_words
from oracles.lda_cells import (
    AliasOracle,
    CopiesOracle,
    FPlusOracle,
    HybridOracle,
    LightOracle,
    SparseOracle,
)
from oracles.lda_frozen import FrozenOracle, SaberOracle
from oracles.lda_warp import WarpOracle
from scipy.special import gammaln

from schmp_estimators.lda.kernels import warp
from schmp_estimators.lda.kernels.draw import find_in_tree
from schmp_estimators.lda.kernels.priors import topic_priors
from schmp_estimators.lda.programs.documents import DocumentSampler
from schmp_estimators.lda.samplers import program_of
from schmp_estimators.lda.samplers.frozen import FrozenLDA

ORACLES = {
    "warp": WarpOracle,
    "frozen": FrozenOracle,
    "saber": SaberOracle,
    "fplus": FPlusOracle,
    "hybrid": HybridOracle,
    "data-parallel": CopiesOracle,
    "sparse": SparseOracle,
    "light": LightOracle,
    "light-word": partial(LightOracle, asked=("word", "word")),
    "light-document": partial(LightOracle, asked=("document", "document")),
    "alias": AliasOracle,
}


class Case(NamedTuple):
    """A fit, by the settings that are not the usual ones."""

    n_components: int
    cuts: tuple[int, ...] = ()
    alpha: float = 0.3
    beta: float = 0.1
    #: Whether topics have priors of their own.
    uneven: bool = False
    hot: tuple[float, float] | None = None
    #: Of counts of earlier batches.
    has_earlier: bool = False
    has_seeds: bool = False
    counts: Callable[[], Any] | None = None


def long_lists():
    """More tokens of a word than are sampled together, in documents of many topics."""
    counts = np.random.default_rng(0).poisson(2.0, (15, 6)).astype(np.int32)
    counts[3] = 40
    return counts


def short_documents():
    counts = np.eye(7, dtype=np.int32)[np.random.default_rng(2).integers(0, 7, 300)]
    counts[::5, 3] += 1
    return counts


CASES = {
    "one topic": Case(1),
    "three topics, many shards": Case(3, CUTS[3]),
    "17 topics": Case(17, CUTS[2]),  # more than there are lanes
    "256 topics": Case(256, CUTS[2]),  # the most in a byte
    "300 topics": Case(300, CUTS[3]),
    "32 bits": Case(40_000, CUTS[2]),
    "earlier counts": Case(2, CUTS[3], has_earlier=True),
    "earlier counts, many topics": Case(600, CUTS[1], has_earlier=True),
    "tempered documents": Case(7, CUTS[3], uneven=True, hot=(2.0, 0.01)),
    "tempered words": Case(20, hot=(0.01, 0.7)),
    "seeds and earlier counts": Case(60, CUTS[1], has_seeds=True, has_earlier=True),
    "long lists": Case(200, (4,), alpha=2.0, counts=long_lists),
    "hardly any priors": Case(5, alpha=1e-20, beta=1e-20, counts=short_documents),
    "hardly any prior of documents": Case(5, alpha=1e-20, counts=short_documents),
    "least priors": Case(7, alpha=1e-30, beta=1e-30),
    "largest priors": Case(7, alpha=1e30, beta=1e30),
}


def suits(sampler, name):
    """Say whether an oracle knows of tempering, and whether it has the range of the priors.

    The range is that of its arithmetic.
    """
    case = CASES[name]
    return sampler in QUICK[1:] or (
        case.alpha not in (1e-30, 1e30) and (sampler == "warp" or not case.hot)
    )


#: Cases of "saber" that differ little from others.
NEARLY_OTHERS = {
    *("17 topics", "256 topics", "earlier counts, many topics"),
    *("hardly any prior of documents", "tempered documents"),
}


def is_slow(sampler, name):
    if name == "300 topics" or (sampler == "saber" and name in NEARLY_OTHERS):
        return True
    return (
        sampler not in QUICK or name == "32 bits" or (CASES[name].has_seeds and sampler != "frozen")
    )


def some_seeds(counts, n_components):
    """Seeds of about half of the words, as a table of words × topics.

    Words without tokens are among them.
    """
    rng = np.random.default_rng(0)
    table = rng.gamma(1.0, 5.0, (counts.shape[1], n_components)) * (
        rng.random((counts.shape[1], n_components)) < 0.3
    )
    table[rng.random(len(table)) < 0.4] = 0.0
    return table


def assert_equals_oracle(sampler, case, **options):
    """Compare topics and what records say of them, also of a fit that goes on from topics alone."""
    counts, kind = (case.counts or partial(random_counts, case.n_components))(), program_of(sampler)
    alpha, given, shared = case.alpha, {}, {}
    if case.uneven or issubclass(
        kind, DocumentSampler
    ):  # which has a prior for each topic in its kernels always
        alpha = case.alpha * 2.0 * (1 + np.arange(case.n_components)) / (1 + case.n_components)
        given["own_alphas"] = alpha
    if case.hot:
        given["hot_priors"], given["hot_sweeps"], shared["hot"], shared["hot_sweeps"] = (
            case.hot,
            2,
            case.hot,
            2,
        )
    seeds = old_rows(4, counts, case.n_components) * case.has_earlier
    if case.has_seeds:
        seeds = seeds + some_seeds(counts, case.n_components)
    if case.has_earlier or case.has_seeds:
        given["seeds"] = shared["seeds"] = seeds
    if sampler == "hybrid":
        options["long_document"] = min(8, case.n_components - 1)
    mean = float(np.mean(alpha))
    go = partial(
        fit, counts, case.n_components, kind=kind, cuts=case.cuts, n_sweeps=3,
        doc_topic_prior=mean, topic_word_prior=case.beta, evaluate_every=0, **given, **options,
    )  # fmt: skip
    result, bounds, layout = go(), [0, *case.cuts, len(counts)], make_shards(counts, case.cuts)[1]
    oracle = ORACLES[sampler](
        counts, case.n_components, alpha, case.beta, 5, bounds, layout, **shared, **options
    )
    for topic, record in zip(result.topics, result.records, strict=True):
        before = np.array(oracle.topic)
        np.testing.assert_array_equal(topic, oracle.run())
        moved = np.count_nonzero(topic != before)
        assert record.get("moved", moved) == moved
        assert record.get("moved_by_words", 0) == getattr(oracle, "moved_by_words", 0)
        told = getattr(oracle, "told", {"proposals": 0})
        assert {name: record[name] for name in told if told["proposals"]}.items() <= told.items()
        assert ("proposals" in record) == (told["proposals"] > 0)
        assert record.get("s_error", 0.0) == pytest.approx(
            getattr(oracle, "s_error", 0.0), abs=1e-15
        )
    totals = np.bincount(result.topics[-1], minlength=case.n_components)
    np.testing.assert_array_equal(result.model.topic_total, totals)
    begun = go(n_sweeps=1)
    rest = go(saved=begun.saved._replace(model=None), first=1, history=begun.records)
    np.testing.assert_array_equal(result.topics[1:], rest.topics)
    assert result.records[1:] == rest.records


@pytest.mark.parametrize(
    ("sampler", "name"),
    [
        pytest.param(sampler, name, marks=[pytest.mark.slow] if is_slow(sampler, name) else [])
        for sampler in ORACLES
        for name in CASES
        if suits(sampler, name)
    ],
)
def test_topics_are_those_of_the_oracle(sampler, name):
    assert_equals_oracle(sampler, CASES[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "mh_steps"),
    [("warp", 1), ("warp", 4), ("light", 16), ("alias", 1), ("hybrid", "acceptance")],
)
def test_other_numbers_of_proposals(sampler, mh_steps):
    assert_equals_oracle(sampler, CASES["17 topics"], mh_steps=mh_steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    "counted", [(3, 3), (99, 33), (100, 33), (15, 1), (16, 1), (17, 1), (5, 0)]
)
def test_proposals_suffice_for_one_accepted_up_to_16(counted):
    kind, last = program_of("hybrid"), dict(zip(("proposals", "accepted"), counted, strict=True))
    go = partial(fit, random_counts(7), 7, kind=kind, long_document=6, mh_steps="acceptance")
    saved = go(n_sweeps=1).saved._replace(model=None)
    [record] = go(n_sweeps=2, first=1, saved=saved, history=[last]).records
    enough = [n for n in range(1, 16) if n * last["accepted"] >= last["proposals"]]
    assert record["mh_steps"] == min([*enough, 16])


@pytest.mark.parametrize("sampler", QUICK)
def test_same_bits_for_any_jobs_and_threads(sampler, monkeypatch):
    go = partial(fit, random_counts(13, 300, 40, 0.3), 5, kind=program_of(sampler), cuts=(6,))
    one = go()
    modules = [sys.modules[kind.__module__] for kind in program_of(sampler).__mro__]
    monkeypatch.setattr(
        next(module for module in modules if hasattr(module, "MIN_JOB")), "MIN_JOB", 50
    )
    with ThreadPoolExecutor(3) as pool:
        threads = partial(run_serial, each=lambda function, jobs: list(pool.map(function, jobs)))
        for other in (go(), go(engine=threads)):
            np.testing.assert_array_equal(one.topics, other.topics)
            assert one.records == other.records


def table_of(row, topic, shape):
    table = np.zeros(shape, np.int64)
    np.add.at(table, (row, topic), 1)
    return table


@pytest.mark.parametrize("least", [0.02, 2.0])
@pytest.mark.parametrize("cuts", CUTS[::3])
def test_fits_record_the_likelihood_of_dense_tables(cuts, least):
    """With a prior for each topic or for all, and seeds of half of the words."""
    counts, rng, alphas = random_counts(6), np.random.default_rng(0), np.geomspace(least, 2.0, 5)
    shape = counts.shape[1], 5
    seeds = rng.gamma(1.0, 5.0, shape) * (rng.random(shape) < 0.3)
    options = {
        "seeds": seeds,
        "doc_topic_prior": float(alphas.mean()),
        "own_alphas": alphas if least < 2.0 else None,
    }
    result = fit(counts, 5, kind=FrozenLDA, cuts=cuts, **options)
    by_document = table_of(
        np.repeat(np.arange(len(counts)), counts.sum(1)), result.topics[-1], (len(counts), 5)
    )
    by_word = table_of(token_words(counts), result.topics[-1], shape)
    beta = 0.1 + seeds
    for name, table, prior in (
        ("document", by_document, alphas[None]),
        ("word", by_word.T, beta.T),
    ):
        sums = np.broadcast_to(prior, table.shape).sum(1)
        expected = (gammaln(table + prior) - gammaln(prior)).sum()
        expected += (gammaln(sums) - gammaln(table.sum(1) + sums)).sum()
        assert result.records[-1][f"{name}_log_likelihood"] == pytest.approx(expected, rel=1e-11)
    assert result.records == fit(counts, 5, kind=FrozenLDA, **options).records


def test_weights_below_all_float32_are_told_apart():
    """A document and a word for each token.

    No count is left but those of the topics, about 200 tokens each.
    """
    priors = {"doc_topic_prior": 1e-30, "topic_word_prior": 1e-30}
    result = fit(np.eye(1000, dtype=np.int32), 5, kind=FrozenLDA, **priors, n_sweeps=1)
    found = np.bincount(result.topics[-1], minlength=5)
    assert 100 < found.min() <= found.max() < 400


@settings(max_examples=30)
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


@settings(max_examples=30)
@given(st.lists(st.integers(0, 90), min_size=1, max_size=12), st.integers(1, 300))
def test_the_table_of_a_word_has_each_topic_as_often_as_the_word(counts, n_slots_max):
    """Slots that several topics share say from which one on to search."""
    row, ends = np.array(counts, np.int32), np.empty(len(counts), np.int64)
    slots = np.full(n_slots_max + warp.SLACK, -99, np.int16)
    with mock.patch.object(warp, "_fill", warp._fill.py_func):
        shift = warp.fill_slots.py_func(row, n_slots_max, slots, ends)
    for x, topic in enumerate(np.repeat(np.arange(len(row)), row)):
        k = slots[x >> shift]
        found = k if k >= 0 else ~k + np.argmax(ends[~k:] > x)
        assert found == topic


def test_a_point_beyond_a_node_by_rounding_finds_its_last_topic():
    levels, sums = np.array([0, 2]), np.array([16.5, 16.0])
    find = partial(find_in_tree.py_func, np.ones(32), levels, sums)
    assert [find(point) for point in (15.9, 16.2, 16.5, 99.0)] == [15, 15, 16, 31]


@pytest.mark.parametrize("sampler", ["fplus", "data-parallel"])
def test_totals_that_are_reported_do_not_change_afterwards(sampler):
    state = SimpleNamespace(total=np.arange(3), topic=np.zeros(3, np.uint8))
    total, *_ = program_of(sampler)().report(None, state)
    state.total[:] = 9
    assert total.tolist() == [0, 1, 2]
