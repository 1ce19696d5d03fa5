"""Learned document-topic priors: the fixed point by its formula, what it leads to, and that it knows of no division."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from definition import run_serial
from lda_cases import make_shards, random_counts
from scipy.special import gammaln, psi

from schmp_estimators.core.program import Saved
from schmp_estimators.core.stages import At
from schmp_estimators.lda.kernels.topic_counts import TopicCounts
from schmp_estimators.lda.programs import learning
from schmp_estimators.lda.programs.warp import WarpLDA
from schmp_estimators.lda.samplers.fplus import FPlusLDA

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


def make(program, n_components, counts, **parameters):
    alphas = np.full(n_components, 0.3)
    options = {"topic_word_prior": 0.1, "seed": 5, "evaluate_every": 1, "learn_every": 2, "hot_priors": (1.0, 0.3)}
    return program(
        n_components,
        counts.shape[1],
        doc_topic_prior=0.3,
        own_alphas=alphas,
        **options | {"hot_sweeps": 3} | parameters,
    )


def run(program, counts, cuts, n_sweeps, saved=None, first=0):
    """What is left after each sweep: topics, priors, record; and the last that is saved."""
    found = []
    for record, harvest, kept in run_serial(program, make_shards(counts, cuts)[0], n_sweeps, saved, first):
        alphas = program.alphas(len(found) + first, harvest.model)
        found.append((np.concatenate(kept.shards).tolist(), alphas.tolist(), record))
    return found, kept


@pytest.mark.parametrize("cuts", CUTS[1:])
@pytest.mark.parametrize("n_components", [1, 4, 60])
def test_same_priors_for_any_shards(n_components, cuts):
    counts = random_counts(5)
    program = make(WarpLDA, n_components, counts)
    one = run(program, counts, (), 7)[0]
    assert one == run(program, counts, cuts, 7)[0]
    priors = [alphas for _, alphas, _ in one]
    assert priors[0] == [1.0] * n_components  # of the start
    assert priors[3] == priors[4]  # known after sweeps 3 and 5
    assert priors[5] == priors[6]
    assert n_components == 1 or priors[3] != priors[5]
    means = [record["doc_topic_prior"] for *_, record in one]
    np.testing.assert_allclose(means[4], np.mean(priors[3]))
    assert means[:4] == [1.0, 1.0, 1.0, 0.3]


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("program", [WarpLDA, pytest.param(FPlusLDA, marks=pytest.mark.slow)])
def test_a_run_that_goes_on_has_the_same_bits(program, cuts):
    """From what is saved on a cluster, with the model, and from what a checkpoint has."""
    counts = random_counts(12)
    program = make(program, 4, counts)
    whole = run(program, counts, cuts, 8)[0]
    for stop in (1, 3, 4, 6):  # before, amid and after what is learned first
        kept = run(program, counts, cuts, stop)[1]
        assert whole[stop:] == run(program, counts, cuts, 8, kept, stop)[0]
        learned = {}
        if kept.model.alphas is not None:
            learned = {"own_alphas": kept.model.alphas, "drawn_alphas": kept.model.alphas_before}
            learned["doc_topic_prior"] = float(kept.model.alphas.mean())
        rest = run(replace(program, **learned), counts, cuts, 8, Saved(None, kept.shards, []), stop)[0]
        assert [one[0] for one in whole[stop:]] == [one[0] for one in rest]
        assert whole[-1][1] == rest[-1][1]


@pytest.mark.slow
def test_who_asks_for_learned_priors_has_to_give_the_model():
    counts = random_counts(3)
    program = make(FPlusLDA, 4, counts)
    with pytest.raises(TypeError, match=r"alphas\(at.sweep, at.model\)"):
        program.alphas(3)
    assert replace(program, learn_every=0).alphas(3).tolist() == [0.3] * 4


@pytest.mark.slow
@pytest.mark.slow
def test_a_topic_that_was_empty_gets_tokens_again():
    rng = np.random.default_rng(0)
    counts = np.zeros((300, 40), np.int32)
    counts[:150, :20] = rng.poisson(1.0, (150, 20))
    counts[150:, 20:] = rng.poisson(1.0, (150, 20))
    (shard,), _ = make_shards(counts)
    program = make(FPlusLDA, 2, counts, hot_sweeps=0, topic_word_prior=0.02)
    saved = Saved(None, [np.zeros(counts.sum(), np.int16)], [])
    shares = []
    for _, _, kept in run_serial(program, [shard], 80, saved):
        shares.append(kept.shards[0].mean())
    assert 0.3 < shares[-1] < 0.7
    at = At(shard, None, 0, 0, 1)
    report = learning.expose(shard, np.zeros(counts.sum(), np.int16), 2, at.sweep)
    assert report.counts.topic.max() == 0
