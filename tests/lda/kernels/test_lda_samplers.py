"""What holds for every sampler, by the serial engine."""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from definition import run_serial
from hypothesis import given, settings
from hypothesis import strategies as st
from lda_cases import CUTS, STEPS, fit, make_shards, old_rows, random_counts, token_words
from oracles.lda_by_document import AliasOracle, LightOracle, SparseOracle
from oracles.lda_fplus import FPlusOracle

from schmp_estimators.lda.programs import topics
from schmp_estimators.lda.samplers import SAMPLERS
from schmp_estimators.lda.samplers.documents import DocumentLDA

#: Those that see the counts of words and documents as they change, one oracle for each.
ORACLES = {
    "fplus": lambda counts, alphas, *others: FPlusOracle(counts, len(alphas), alphas, *others),
    "sparse": SparseOracle,
    "light": LightOracle,
    "light-word": partial(LightOracle, asked=("word", "word")),
    "light-document": partial(LightOracle, asked=("document", "document")),
    "alias": AliasOracle,
}
INVARIANT = [name for name, kind in SAMPLERS.items() if kind.partition_invariant]
#: Parameters for which a sampler does all that it can do, with documents of some twenty tokens.
OPTIONS = {"hybrid": {"long_document": 5}}
#: Topics beyond all counts; so many that they have 32 bits have kernels of their own to compile.
each_many = pytest.mark.parametrize("many", [3000, pytest.param(33_000, marks=pytest.mark.slow)])
#: What goes document by document, and is no default, has kernels that take 5 s each to compile.
TOO_LONG = {"alias", "light", "light-word", "light-document", "sparse"}


def each_of(names):
    marks = {True: [pytest.mark.slow], False: []}
    return pytest.mark.parametrize("sampler", [pytest.param(name, marks=marks[name in TOO_LONG]) for name in names])


def uneven(n_components, mean=0.3):
    """A prior that differs from topic to topic."""
    return mean * 2.0 * (1 + np.arange(n_components)) / (1 + n_components)


def sample(sampler, counts, n_components, **parameters):
    """Fit; what goes document by document has a prior for each topic in its kernel always, and here, too."""
    kind = SAMPLERS[sampler]
    if issubclass(kind, DocumentLDA):
        parameters["own_alphas"] = uneven(n_components, parameters.get("doc_topic_prior", 0.3))
    return fit(counts, n_components, kind=kind, **OPTIONS.get(sampler, {}) | parameters)


def assert_equals_oracle(
    sampler, counts, n_components, *, cuts=(), fixed=None, n_sweeps=3, alpha=0.3, beta=0.1, **options
):
    """Compare the topics after every sweep, and what records say of them."""
    result = sample(
        sampler, counts, n_components, cuts=cuts, fixed=fixed, n_sweeps=n_sweeps,
        doc_topic_prior=alpha, topic_word_prior=beta, **options,
    )  # fmt: skip
    is_uneven = issubclass(SAMPLERS[sampler], DocumentLDA)
    alphas = uneven(n_components, alpha) if is_uneven else np.full(n_components, alpha)
    bounds, layout = [0, *cuts, len(counts)], make_shards(counts, cuts)[1]
    oracle = ORACLES[sampler](counts, alphas, beta, 5, bounds, layout, fixed, **options)
    for topic, record in zip(result.topics, result.records, strict=True):
        before = np.array(oracle.topic)
        np.testing.assert_array_equal(topic, oracle.run())
        assert abs(record["s_error"] - oracle.s_error) < 1e-15
        assert record["moved"] == (before != topic).sum()
    _, by_word = oracle.tables()
    np.testing.assert_array_equal(result.model.topic_total, by_word.sum(0))


@each_of(ORACLES)
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("n_components", [1, 3, 7, 20, 300])
def test_equals_oracle(sampler, n_components, cuts):
    assert_equals_oracle(sampler, random_counts(n_components), n_components, cuts=cuts)


@pytest.mark.slow
@each_of(ORACLES)
def test_equals_oracle_with_topics_of_32_bits(sampler):
    assert_equals_oracle(sampler, random_counts(40_000), 40_000, cuts=CUTS[2])


@each_of(ORACLES)
@pytest.mark.parametrize("cuts", CUTS[::3])
@pytest.mark.parametrize("n_components", [2, 5, 60, 600])
def test_equals_oracle_with_fixed_rows(sampler, n_components, cuts):
    counts = random_counts(3)
    assert_equals_oracle(sampler, counts, n_components, cuts=cuts, fixed=old_rows(4, counts, n_components))


@each_of(["light", "alias"])
@pytest.mark.parametrize("mh_steps", [1, 16])
def test_equals_oracle_with_other_numbers_of_proposals(sampler, mh_steps):
    assert_equals_oracle(sampler, random_counts(15, 30, 6, 6.0), 20, cuts=(10, 20), mh_steps=mh_steps)


@each_of(ORACLES)
def test_equals_oracle_where_lists_are_long(sampler):
    """Those of words, or with "fplus" those of documents."""
    counts = random_counts(15, *((3, 40, 30.0) if sampler == "fplus" else (30, 6, 6.0)))
    counts[1] = 9
    assert_equals_oracle(sampler, counts, 200, n_sweeps=2)


@each_of(ORACLES)
@pytest.mark.parametrize("beta", [1e-20, 0.1])
def test_equals_oracle_where_a_topic_has_nearly_all_the_weight(sampler, beta):
    """Short documents and a tiny prior: what other topics weigh is less than the rounding of the sum of all."""
    counts = np.eye(7, dtype=np.int32)[np.random.default_rng(2).integers(0, 7, 300)]
    counts[::5, 3] += 1
    assert_equals_oracle(sampler, counts, 5, alpha=1e-20, beta=beta)


@each_of(SAMPLERS)
@each_many
@settings(max_examples=8)
@given(
    seed=st.integers(0, 10**6),
    n_components=st.sampled_from([1, 2, 4, 30, None]),
    cuts=st.lists(st.integers(0, 12), max_size=9).map(sorted),
)
def test_counts_are_conserved(sampler, many, seed, n_components, cuts):
    """The rows of words and the totals are those of the topics."""
    counts, n_components = random_counts(seed), n_components or many
    result = sample(sampler, counts, n_components, cuts=cuts)
    table = np.zeros((counts.shape[1], n_components), int)
    np.add.at(table, (token_words(counts), result.topics[-1]), 1)
    dense = np.zeros_like(table)
    dense[np.repeat(np.arange(len(dense)), np.diff(result.rows.ptr)), result.rows.topic] = result.rows.tokens
    np.testing.assert_array_equal(dense, table)
    np.testing.assert_array_equal(result.model.topic_total, table.sum(axis=0))
    if sampler not in INVARIANT:
        assert 0 <= result.records[-1]["s_error"] <= (2 if cuts else 0)


@each_of(SAMPLERS)
@each_many
@settings(max_examples=6)
@given(
    seed=st.integers(0, 10**6),
    n_components=st.sampled_from([1, 4, 30, None]),
    cuts=st.lists(st.integers(0, 12), max_size=9).map(sorted),
    stop=st.integers(1, 4),
    with_fixed=st.booleans(),
)
def test_restart_continues_as_if_uninterrupted(sampler, many, seed, n_components, cuts, stop, with_fixed):
    """Also without the model, which a checkpoint has not: all follows from topics and records."""
    counts, n_components = random_counts(seed), n_components or many
    fixed = old_rows(seed, counts, n_components) if with_fixed else None
    go = partial(sample, sampler, counts, n_components, cuts=cuts, fixed=fixed)
    whole, part = go(n_sweeps=5), go(n_sweeps=stop)
    for saved in (part.saved, part.saved._replace(model=None)):
        rest = go(n_sweeps=5, saved=saved, first=stop)
        np.testing.assert_array_equal(whole.topics[stop:], rest.topics)
        assert whole.records[stop:] == rest.records


@pytest.mark.slow
@each_of(SAMPLERS)
def test_same_bits_in_16_and_32_bits(sampler, monkeypatch):
    counts = random_counts(14, 60, 30)
    narrow = sample(sampler, counts, 9, cuts=(20, 40))
    monkeypatch.setattr(topics, "topic_dtype", lambda n_components: np.int32)
    wide = sample(sampler, counts, 9, cuts=(20, 40))
    assert narrow.topics[0].dtype == np.int16
    assert wide.topics[0].dtype == np.int32
    np.testing.assert_array_equal(narrow.topics, wide.topics)


@each_of(SAMPLERS)
@pytest.mark.parametrize("priors", [(1e-30, 1e-30), (1e-30, 1e30), (1e30, 1e-30), (1e30, 1e30)])
def test_extreme_priors(sampler, priors):
    result = sample(sampler, random_counts(7), 5, doc_topic_prior=priors[0], topic_word_prior=priors[1])
    np.testing.assert_array_equal(result.model.topic_total, np.bincount(result.topics[-1], minlength=5))


@each_of(SAMPLERS)
@pytest.mark.parametrize("shape", [(1, 5), (3, 1), (4, 6)])
def test_corpora_with_little_in_them(sampler, shape):
    counts = np.zeros(shape, np.int32)
    assert sample(sampler, counts, 3).topics[-1].size == 0
    assert sample(sampler, counts, 3, cuts=(1,)).topics[-1].size == 0
    counts[0, 0] = 1
    one = sample(sampler, counts, 3).topics
    assert one[-1].size == 1
    if sampler in INVARIANT:
        np.testing.assert_array_equal(one, sample(sampler, counts, 3, cuts=(0, 1)).topics)


@each_of(SAMPLERS)
def test_likelihood_rises_on_separable_text(sampler):
    counts = np.zeros((200, 20), np.int32)
    counts[:100, :10] = counts[100:, 10:] = 3
    records = sample(sampler, counts, 2, n_sweeps=30, topic_word_prior=0.01).records
    assert records[-1]["log_likelihood"] > records[0]["log_likelihood"] + 1000


# Those whose result does not depend on how the work is divided.


@each_of(INVARIANT)
@STEPS
@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    n_components=st.sampled_from([1, 2, 4, 16, 30, None]),
    mh_steps=st.integers(1, 2),
    cuts=st.lists(st.integers(0, 12), max_size=9).map(sorted),
    with_fixed=st.booleans(),
)
def test_same_bits_for_any_shards(sampler, more_steps, seed, n_components, mh_steps, cuts, with_fixed):
    counts, n_components = random_counts(seed), n_components or 200
    fixed = old_rows(seed, counts, n_components) if with_fixed else None
    options = {"mh_steps": mh_steps + more_steps} if "mh_steps" in SAMPLERS[sampler].options else {}
    one = sample(sampler, counts, n_components, fixed=fixed, **options)
    many = sample(sampler, counts, n_components, fixed=fixed, cuts=cuts, **options)
    np.testing.assert_array_equal(one.topics, many.topics)
    assert one.records == many.records
    for mine, other in zip(one.rows, many.rows, strict=True):
        np.testing.assert_array_equal(mine, other)


@each_of(INVARIANT)
@pytest.mark.parametrize("cuts", CUTS[:3])
def test_same_bits_for_any_jobs_and_threads(sampler, cuts, monkeypatch):
    counts = random_counts(13, 300, 40, 0.3)
    one = sample(sampler, counts, 5, cuts=cuts)
    modules = [sys.modules[kind.__module__] for kind in SAMPLERS[sampler].__mro__]
    monkeypatch.setattr(next(module for module in modules if hasattr(module, "MIN_JOB")), "MIN_JOB", 50)
    jobs = sample(sampler, counts, 5, cuts=cuts)
    with ThreadPoolExecutor(3) as pool:
        engine = partial(run_serial, each=lambda function, jobs: list(pool.map(function, jobs)))
        threads = sample(sampler, counts, 5, cuts=cuts, engine=engine)
    for other in (jobs, threads):
        np.testing.assert_array_equal(one.topics, other.topics)
        assert one.records == other.records
