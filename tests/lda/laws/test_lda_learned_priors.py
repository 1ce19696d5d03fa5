"""Learned priors: the fixed points by formulas and optima, and what they lead to."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from corpora import samplers
from lda_cases import fit, random_counts
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, psi

from schmp_estimators import DistributedLDA
from schmp_estimators.lda.kernels.likelihood import (
    LIMIT,
    TopicCounts,
    count_table,
    merge_counts,
    rising,
)
from schmp_estimators.lda.programs import learning
from schmp_estimators.lda.programs.seeds import chain_seeds
from schmp_estimators.lda.samplers import program_of


def counted(table):
    """What is reported of a dense table, documents × topics."""
    lengths = table.sum(1)

    def cells(table):
        topic = np.tile(np.arange(table.shape[1]), len(table))
        return TopicCounts(
            *np.unique((topic << 32 | table.ravel())[table.ravel() > 0], return_counts=True)
        )

    return (
        cells(table),
        cells(table[lengths == 1]),
        TopicCounts(*np.unique(lengths[lengths > 0], return_counts=True)),
    )


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
    for before, after in pairwise(
        steps
    ):  # a Gamma prior of that shape, and a Dirichlet–multinomial
        values = [
            log_likelihood(table[table.sum(1) >= 2], step)
            + more(table, before) * np.log(step).sum()
            for step in (before, after)
        ]
        assert values[1] > values[0]


def best_beta(table, seeds):
    """The most likely topic-word prior of a dense table, words × topics, with seeds beside it."""
    n_words = len(table)

    def surprise(log_beta):
        prior = np.exp(log_beta) + seeds
        sums = n_words * np.exp(log_beta) + seeds.sum(0)
        words = (gammaln(table + prior) - gammaln(prior)).sum()
        return -(words - (gammaln(table.sum(0) + sums) - gammaln(sums)).sum())

    bounds = np.log(
        [learning.LEAST_BETA_SUM / n_words, table.sum() / (table.sum(0) > 0).sum() / n_words]
    )
    return np.exp(
        minimize_scalar(surprise, bounds=bounds, method="bounded", options={"xatol": 1e-9}).x
    )


def learned_beta(table, beta=0.01):
    words, topics = (
        learning.word_cells(count_table(table), chain_seeds([])),
        learning.topic_cells(table.sum(0), None),
    )
    return learning.learn_beta(beta, len(table), words, topics)


def test_topics_are_drawn_with_the_prior_that_was_learned_last():
    go = partial(fit, random_counts(5, n_docs=300, n_words=50), 3, evaluate_every=0)
    one, two = (go(learn_every=(0, 1), topic_word_prior=9.0, n_sweeps=n) for n in (1, 2))
    given = {"topic_word_prior": one.model.learned.beta, "saved": one.saved._replace(model=None)}
    np.testing.assert_array_equal(go(**given, first=1, n_sweeps=2).topics[-1], two.topics[-1])
    assert (
        go(**given | {"topic_word_prior": 9.0}, first=1, n_sweeps=2).topics[-1] != two.topics[-1]
    ).any()


@samplers()
def test_topics_are_drawn_with_the_priors_that_documents_have_learned_last(sampler):
    begun = {"own_alphas": np.full(3, 9.0), "doc_topic_prior": 9.0}
    counts = random_counts(5, n_docs=300, n_words=50)
    go = partial(fit, counts, 3, kind=program_of(sampler), evaluate_every=0)
    one, two = (go(**begun, learn_every=(1, 0), n_sweeps=n) for n in (1, 2))
    alphas = one.model.learned.alphas
    learned = {"own_alphas": alphas, "doc_topic_prior": float(alphas.mean())}
    rest = {"saved": one.saved._replace(model=None), "first": 1, "n_sweeps": 2}
    rest["drawn_alphas"] = begun["own_alphas"]
    np.testing.assert_array_equal(go(**learned, **rest).topics[-1], two.topics[-1])
    assert (go(**begun, **rest).topics[-1] != two.topics[-1]).any()


def test_counts_of_parts_give_the_sums_of_the_whole_table_to_the_bit():
    """Small counts are one term with its multiple, large ones a term each.

    It is so however the table was divided.
    """
    table = np.random.default_rng(8).integers(0, 30, (40, 6)) * np.array([1, 1, 1, 1, 500, 500])
    whole = count_table(table)
    parts = merge_counts([count_table(some) for some in np.array_split(table, 7)])
    tokens, often = whole.terms
    assert all(
        np.array_equal(one, other) for one, other in zip(parts.terms, (tokens, often), strict=True)
    )
    assert sorted(np.repeat(tokens, often)) == sorted(table[table > 0])
    assert (often[tokens >= LIMIT] == 1).all() and len(set(tokens[tokens < LIMIT])) == (
        tokens < LIMIT
    ).sum()
    assert np.isclose(
        rising(0.3, *parts.terms), (gammaln(0.3 + table) - gammaln(0.3)).sum(), rtol=1e-13
    )


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ([[7, 2, 0]], 0.01),  # one word: every prior is as likely
        ([[1, 0, 0], [0, 1, 0]], 0.01),  # more topics than tokens, of which none has two
        ([[0, 0], [0, 0]], 0.01),
        (
            [[5, 0], [0, 5]],
            learning.LEAST_BETA_SUM / 2,
        ),  # each topic one word: nothing keeps it from the floor
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
@samplers(["warp", "frozen", "fplus"])  # whose kernels other fast tests compile, too
def test_every_sampler_learns_the_topic_word_prior_of_its_own_counts(sampler, of_documents, seeded):
    X = random_counts(5, n_docs=60, n_words=50)
    seed_words = 5.0 * seeded * (np.random.default_rng(1).random((3, 50)) < 0.2)
    seed_words[:, X.sum(0) == 0] = 0.0
    priors = {"doc_topic_prior": of_documents, "topic_word_prior": "learn"}
    lda = DistributedLDA(
        3,
        sampler=sampler,
        **priors,
        seed_words=seed_words,
        max_iter=15,
        n_shards=2,
        evaluate_every=15,
        random_state=0,
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
