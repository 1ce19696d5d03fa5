"""Learned priors: the fixed points by formulas and optima, what they lead to, and that they know of no division."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from definition import run_serial
from lda_cases import make_shards, random_counts
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, psi

from schmp_estimators import DistributedLDA
from schmp_estimators.core.io.checkpoint import CheckpointMismatchError
from schmp_estimators.core.program import Saved
from schmp_estimators.core.stages import At
from schmp_estimators.lda.kernels.likelihood import TopicCounts, count_histogram
from schmp_estimators.lda.programs import learning
from schmp_estimators.lda.programs.seeds import SeedCounts, word_seeds
from schmp_estimators.lda.programs.warp import WarpLDA
from schmp_estimators.lda.samplers import SAMPLERS
from schmp_estimators.lda.samplers.fplus import FPlusLDA
from schmp_estimators.lda.samplers.frozen import FrozenLDA

#: Samplers whose kernels other fast tests compile, too.
QUICK = {"warp", "frozen", "fplus"}
CUTS = [(), (6,), (0, 2, 2, 5, 6, 9, 12)]


def counted(table):
    """What is reported of a dense table, documents × topics."""
    lengths = table.sum(1)
    table, lengths = table[lengths >= 2], lengths[lengths >= 2]
    topic = np.tile(np.arange(table.shape[1]), len(table))
    cells, documents = np.unique((topic << 32 | table.ravel())[table.ravel() > 0], return_counts=True)
    return TopicCounts(cells, documents), TopicCounts(*np.unique(lengths, return_counts=True))


def more(table, alphas):
    """How many turns topics get: 20, and linearly fewer to none at a quarter of a mean document."""
    table = table[table.sum(1) >= 2]
    return max(0.0, 20.0 * (1 - 4 * alphas.sum() / table.sum(1).mean()))


def by_formula(table, alphas, n_steps):
    """The fixed point, document by document."""
    table = table[table.sum(1) >= 2]
    for _ in range(n_steps):
        exposure = (psi(table.sum(1) + alphas.sum()) - psi(alphas.sum())).sum()
        turns = alphas * (psi(table + alphas) - psi(alphas)).sum(0)
        added, length = more(table, alphas), table.sum() / len(table)
        alphas = np.maximum(turns, max(1.0, 0.1 * turns.mean()))
        most = min(length, max(alphas.sum() / exposure, length / 4))
        alphas = (alphas + added) / exposure
        alphas = alphas * min(1.0, most / alphas.sum())
    return alphas


def log_likelihood(table, alphas):
    return (
        (gammaln(table + alphas) - gammaln(alphas)).sum()
        + len(table) * gammaln(alphas.sum())
        - gammaln(table.sum(1) + alphas.sum()).sum()
    )


def drawn(alphas, n_documents, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 80, n_documents)
    return np.array([rng.multinomial(n, rng.dirichlet(alphas)) for n in lengths])


def test_the_fixed_point_is_that_of_the_formula():
    table = drawn(np.array([0.1, 0.5, 2.0, 0.02]), 60)
    alphas = np.array([0.3, 0.1, 0.1, 1e-3])
    found = learning.learn_alphas(alphas, *counted(table))
    np.testing.assert_allclose(found, by_formula(table, alphas, learning.STEPS), rtol=1e-10)
    steps = [by_formula(table, alphas, n) for n in range(8)]
    for before, after in pairwise(steps):  # a Gamma prior of that shape, and a Dirichlet–multinomial
        values = [
            log_likelihood(table[table.sum(1) >= 2], step) + more(table, before) * np.log(step).sum()
            for step in (before, after)
        ]
        assert values[1] > values[0]


@pytest.mark.parametrize("n_documents", [1, 8, 200])
def test_few_documents_leave_priors_larger_but_below_a_quarter_of_a_document(n_documents):
    """Documents with a topic for nearly every token, so that the likelihood says little of how large priors are."""
    table = drawn(np.full(12, 0.2), n_documents, seed=n_documents)
    alphas = plain = np.full(12, 0.1)
    for _ in range(30):
        alphas = learning.learn_alphas(alphas, *counted(table))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(learning, "MORE_TURNS", 0.0)
            plain = learning.learn_alphas(plain, *counted(table))
    quarter = 0.25 * table[table.sum(1) >= 2].sum(1).mean()
    assert plain.sum() * (1 - 1e-9) <= alphas.sum() <= max(plain.sum(), quarter) * (1 + 1e-9)


def test_it_finds_the_priors_of_documents():
    truth = np.array([0.1, 0.5, 2.0, 0.08])
    counts, alphas = counted(drawn(truth, 20_000)), np.full(4, 0.1)
    for _ in range(40):
        alphas = learning.learn_alphas(alphas, *counts)
    np.testing.assert_allclose(alphas, truth, rtol=0.06)


def test_priors_have_a_floor_and_a_cap():
    table = np.tile([5, 5, 0], (50, 1))  # always the same shares, and a topic that nobody has
    alphas = np.full(3, 0.1)
    for _ in range(500):
        alphas = learning.learn_alphas(alphas, *counted(table))
    assert alphas[0] == alphas[1]
    np.testing.assert_allclose(alphas.sum(), 10.0)
    assert 0.09 < alphas[2] / alphas.mean() <= 0.1
    one = counted(np.array([[9, 0, 0]]))
    np.testing.assert_allclose(
        learning.learn_alphas(alphas, *one)[1:], by_formula(np.array([[9, 0, 0]]), alphas, 10)[1:]
    )
    one_token = learning.learn_alphas(alphas, *counted(np.eye(3, dtype=int)))
    np.testing.assert_array_equal(one_token, alphas)  # nothing can be learned


def best_beta(table, seeds=0.0):
    """The most likely topic-word prior of a dense table, words × topics, with seeds beside it."""
    n_words, seeds = len(table), np.broadcast_to(seeds, table.shape)

    def surprise(log_beta):
        prior = np.exp(log_beta) + seeds
        sums = n_words * np.exp(log_beta) + seeds.sum(0)
        words = (gammaln(table + prior) - gammaln(prior)).sum()
        return -(words - (gammaln(table.sum(0) + sums) - gammaln(sums)).sum())

    bounds = np.log([learning.LEAST_BETA_SUM / n_words, table.sum() / (table.sum(0) > 0).sum() / n_words])
    return np.exp(minimize_scalar(surprise, bounds=bounds, method="bounded", options={"xatol": 1e-9}).x)


def learned_beta(table, beta=0.01, seeds=None):
    words, own, counted = count_histogram(table), None, None
    if seeds is not None:
        own = word_seeds(sparse.csc_array(seeds.T), table.sum(1))
        words_of = np.repeat(np.flatnonzero((seeds > 0).any(1)), np.diff(own.ptr))
        counted = SeedCounts(np.arange(len(own.topic)), table[words_of, own.topic].astype(np.int64))
    cells = learning.word_cells(words, own, counted), learning.topic_cells(table.sum(0), own)
    return learning.learn_beta(beta, len(table), *cells)


@pytest.mark.parametrize("scale", [3, 300, 30_000])
@pytest.mark.parametrize("truth", [0.005, 0.1, 2.0])
@pytest.mark.parametrize("seeded", [False, True])
def test_the_topic_word_prior_is_the_most_likely_one(truth, scale, seeded):
    rng = np.random.default_rng(0)
    seeds = 3.0 * (rng.random((200, 6)) < 0.05) if seeded else None
    topics = [rng.dirichlet(truth + (seeds[:, k] if seeded else np.zeros(200))) for k in range(6)]
    table = np.array([rng.multinomial(scale * (k + 1), topic) for k, topic in enumerate(topics)]).T
    table[table.sum(1) == 0, 0] += 1  # words without tokens have no seeds here
    best = best_beta(table, seeds if seeded else 0.0)
    np.testing.assert_allclose(learned_beta(table, 0.01, seeds), best, rtol=1e-3)
    np.testing.assert_allclose(learned_beta(table, 0.5, seeds), best, rtol=1e-3)
    empty = np.column_stack([np.zeros(200, np.int64), table])
    if not seeded:
        assert learned_beta(empty) == learned_beta(table)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ([[7, 2, 0]], 0.01),  # one word: every prior is as likely
        ([[1, 0, 0], [0, 1, 0]], 0.01),  # more topics than tokens, of which none has two
        ([[0, 0], [0, 0]], 0.01),
        ([[5, 0], [0, 5]], learning.LEAST_BETA_SUM / 2),  # each topic one word: nothing keeps it from the floor
        ([[10**9, 0], [0, 10**9]], learning.LEAST_BETA_SUM / 2),
        ([[2, 2], [2, 2]], 2.0),  # no topic of its own: as much as a mean topic has
    ],
)
def test_a_topic_word_prior_of_odd_tables(table, expected):
    beta = 0.01
    for _ in range(40):
        beta = learned_beta(np.array(table), beta)
    np.testing.assert_allclose(beta, expected, rtol=1e-3)
    huge = np.full((2, 2), 10**9)
    assert 1.0 < learned_beta(huge) < learned_beta(huge, learned_beta(huge)) < 1e9


@pytest.mark.covering
@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("of_documents", [None, "learn", [0.1, 0.2, 0.4]])
@pytest.mark.parametrize(
    "sampler", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in SAMPLERS]
)
def test_every_sampler_learns_the_topic_word_prior_of_its_own_counts(sampler, of_documents, seeded):
    X = random_counts(5, n_docs=60, n_words=50)
    seed_words = np.zeros((3, 50))
    seed_words[1, [3, 4]] = seed_words[2, 4] = 5.0 * seeded
    seed_words[:, X.sum(0) == 0] = 0.0
    priors = {"doc_topic_prior": of_documents, "topic_word_prior": "learn"}
    lda = DistributedLDA(
        3, sampler=sampler, **priors, seed_words=seed_words, max_iter=15, n_shards=2, evaluate_every=15, random_state=0
    ).fit(X)
    counts = lda.topic_word_counts_.toarray()  # those after the last sweep, of which it has learned
    np.testing.assert_allclose(lda.topic_word_prior_, best_beta(counts.T, seed_words.T), rtol=1e-3)
    betas = [record["topic_word_prior"] for record in lda.history_]
    assert len(set(betas[:10])) <= 2  # of the start, and what it begins with
    assert betas[8:10] == [0.01] * 2
    assert betas[10] == betas[14] != 0.01
    assert "log_likelihood" not in lda.history_[9]
    prior, sums = lda.topic_word_prior_ + seed_words, 50 * lda.topic_word_prior_ + seed_words.sum(1)
    likelihood = (gammaln(counts + prior) - gammaln(prior)).sum()
    likelihood -= (gammaln(counts.sum(1) + sums) - gammaln(sums)).sum()
    np.testing.assert_allclose(lda.history_[-1]["word_log_likelihood"], likelihood)


def test_a_learned_topic_word_prior_is_kept_by_later_batches_and_goes_on_with_warm_start():
    X = random_counts(5, n_docs=60, n_words=50)
    lda = DistributedLDA(3, topic_word_prior="learn", max_iter=10, random_state=0).partial_fit(X)
    first = lda.topic_word_prior_
    assert first != 0.01
    lda.partial_fit(random_counts(6, n_docs=30, n_words=50))
    assert lda.topic_word_prior_ == first
    assert {record["topic_word_prior"] for record in lda.history_} == {first}
    lda.set_params(warm_start=True, max_iter=7).fit(X)
    assert lda.history_[4]["topic_word_prior"] == first != lda.topic_word_prior_


@pytest.mark.parametrize("way", ["checkpoint", "spill"])
def test_a_fit_that_goes_on_has_the_same_learned_topic_word_prior(tmp_path, way):
    X = random_counts(5, n_docs=60, n_words=50)
    parameters = {"topic_word_prior": "learn", "init": "uniform", "random_state": 0, "checkpoint_every": 4}
    whole = DistributedLDA(3, max_iter=18, **parameters).fit(X)
    for stop in (10, 13, 16):
        lda = DistributedLDA(3, max_iter=stop, **parameters, **{way: str(tmp_path / way)}).fit(X)
    lda.set_params(max_iter=18).fit(X)
    assert lda.topic_word_prior_ == whole.topic_word_prior_
    assert (lda.topic_word_counts_ != whole.topic_word_counts_).nnz == 0
    with pytest.raises(CheckpointMismatchError, match="topic_word_prior"):
        lda.set_params(topic_word_prior=0.01).fit(X)


def make(program, n_components, counts, **parameters):
    alphas = np.full(n_components, 0.3)
    options = {"topic_word_prior": 0.1, "seed": 5, "evaluate_every": 1, "learn_every": (2, 2), "hot_priors": (1.0, 0.3)}
    return program(
        n_components,
        counts.shape[1],
        doc_topic_prior=0.3,
        own_alphas=alphas,
        **options | {"hot_sweeps": 3} | parameters,
    )


def run(program, counts, cuts, n_sweeps, saved=None, first=0):
    """What is left after each sweep: topics, priors of documents and words, record; and the last that is saved."""
    found = []
    for record, harvest, kept in run_serial(program, make_shards(counts, cuts)[0], n_sweeps, saved, first):
        alphas = program.alphas(len(found) + first, harvest.model)
        beta = program.priors(len(found) + first, harvest.model)[1]
        if program.sampler == "warp":  # that of the next sweep is in what it reads
            sums = counts.shape[1] * program.priors(len(found) + first + 1, harvest.model)[1]
            inverse = program._inverse(SimpleNamespace(sweep=len(found) + first + 1, model=harvest.model))
            np.testing.assert_allclose(1 / inverse, harvest.model.topic_total + sums, rtol=1e-6)
        found.append((np.concatenate(kept.shards).tolist(), (alphas.tolist(), beta), record))
    return found, kept


@pytest.mark.parametrize("cuts", CUTS[1:])
@pytest.mark.parametrize("n_components", [1, 4, 60])
def test_same_priors_for_any_shards(n_components, cuts):
    counts = random_counts(5)
    program = make(WarpLDA, n_components, counts)
    one = run(program, counts, (), 7)[0]
    assert one == run(program, counts, cuts, 7)[0]
    betas = [beta for _, (_, beta), _ in one]
    assert betas[:3] == [0.3] * 3  # of the start
    assert betas[3] == betas[4] != betas[5] == betas[6]
    assert [record["topic_word_prior"] for *_, record in one] == [0.3, 0.3, 0.3, 0.1, *betas[3:6]]
    priors = [alphas for _, (alphas, _), _ in one]
    assert priors[0] == [1.0] * n_components  # of the start
    assert priors[3] == priors[4]  # known after sweeps 3 and 5
    assert priors[5] == priors[6]
    assert n_components == 1 or priors[3] != priors[5]
    means = [record["doc_topic_prior"] for *_, record in one]
    np.testing.assert_allclose(means[4], np.mean(priors[3]))
    assert means[:4] == [1.0, 1.0, 1.0, 0.3]


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize(
    "program", [WarpLDA, *[pytest.param(one, marks=pytest.mark.slow) for one in (FrozenLDA, FPlusLDA)]]
)
def test_a_run_that_goes_on_has_the_same_bits(program, cuts):
    """From what is saved on a cluster, with the model, and from what a checkpoint has."""
    counts = random_counts(12)
    program = make(program, 4, counts)
    whole = run(program, counts, cuts, 8)[0]
    for stop in (1, 3, 4, 6):  # before, amid and after what is learned first
        kept = run(program, counts, cuts, stop)[1]
        assert whole[stop:] == run(program, counts, cuts, 8, kept, stop)[0]
        learned, model = {}, kept.model
        if model.learned.alphas is not None:
            learned = {"own_alphas": model.learned.alphas, "drawn_alphas": model.learned_before.alphas}
            learned |= {"doc_topic_prior": float(learned["own_alphas"].mean()), "topic_word_prior": model.learned.beta}
        rest = run(replace(program, **learned), counts, cuts, 8, Saved(None, kept.shards, []), stop)[0]
        assert [one[0] for one in whole[stop:]] == [one[0] for one in rest]
        assert whole[-1][1] == rest[-1][1]


@pytest.mark.slow
def test_a_topic_that_was_empty_gets_tokens_again():
    rng = np.random.default_rng(0)
    counts = np.zeros((300, 40), np.int32)
    counts[:150, :20] = rng.poisson(1.0, (150, 20))
    counts[150:, 20:] = rng.poisson(1.0, (150, 20))
    (shard,), _ = make_shards(counts)
    program = make(FPlusLDA, 2, counts, hot_sweeps=0, topic_word_prior=0.02, learn_every=(2, 0))
    saved = Saved(None, [np.zeros(counts.sum(), np.int16)], [])
    shares = []
    for _, _, kept in run_serial(program, [shard], 80, saved):
        shares.append(kept.shards[0].mean())
    assert 0.3 < shares[-1] < 0.7
    at = At(shard, None, 0, 0, 1)
    report = learning.expose(shard, np.zeros(counts.sum(), np.int16), 2, at.sweep)
    assert report.counts.topic.max() == 0
