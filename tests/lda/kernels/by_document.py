"""What the tests of samplers share that go document by document: fits by the serial engine, posteriors, long runs."""

from types import SimpleNamespace

import numpy as np
import pytest
from definition import run_serial
from lda_cases import make_shards, random_counts, token_words
from scipy.special import gammaln
from scipy.stats import chi2

from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.data.topic_rows import order_rows, stack_rows

CUTS = [(), (6,), (1, 10), (0, 2, 2, 5, 6, 9, 12)]


def uneven(n_components, mean=0.3):
    """A prior that differs from topic to topic."""
    return mean * 2.0 * (1 + np.arange(n_components)) / (1 + n_components)


def asymmetric(program):
    """A program whose document prior differs from topic to topic."""

    class Asymmetric(program):
        def alphas(self, sweep, model=None):
            return uneven(self.n_components, self.priors(sweep)[0])

    return Asymmetric


def fit(program, counts, n_components, *, cuts=(), n_sweeps=3, fixed=None, saved=None, first=0, **parameters):
    """Fit; return the topics in document order after each sweep, records, and the last rows by column."""
    shards, layout = make_shards(counts, cuts, fixed)
    parameters = {"doc_topic_prior": 0.3, "topic_word_prior": 0.1, "seed": 5, "evaluate_every": 1} | parameters
    made = asymmetric(program)(n_components, counts.shape[1], **parameters)
    topics, records = [], []
    for record, last, kept in run_serial(made, shards, n_sweeps, saved, first):
        topics.append(np.concatenate(kept.shards))
        records.append(record)
        harvest = last
    rows = order_rows(stack_rows(harvest.blocks), np.argsort(layout.column), n_components)
    return SimpleNamespace(topics=topics, records=records, rows=rows, saved=kept, model=harvest.model)


def make_oracle(oracle, counts, n_components, cuts=(), fixed=None, **parameters):
    """The oracle of the same fit."""
    bounds, layout = [0, *cuts, len(counts)], make_shards(counts, cuts)[1]
    return oracle(counts, uneven(n_components), 0.1, 5, bounds, layout, fixed, **parameters)


def old_rows(seed, counts, n_components):
    """Counts of earlier batches, for most words."""
    rng = np.random.default_rng(seed)
    return rng.poisson(3.0, (counts.shape[1], n_components)) * (rng.random((counts.shape[1], 1)) < 0.7)


def assert_equals_oracle(program, oracle, counts, n_components, *, cuts=(), fixed=None, n_sweeps=3, **options):
    """Compare the topics after every sweep, and what records say of them."""
    result = fit(program, counts, n_components, cuts=cuts, fixed=fixed, n_sweeps=n_sweeps, **options)
    expected = make_oracle(oracle, counts, n_components, cuts, fixed, **options)
    for topic, record in zip(result.topics, result.records, strict=True):
        before = expected.topic.copy()
        np.testing.assert_array_equal(topic, expected.run())
        assert abs(record["s_error"] - expected.s_error) < 1e-15
        assert record["moved"] == (before != topic).sum()
    _, by_word = expected.tables()
    np.testing.assert_array_equal(result.model.topic_total, by_word.sum(0))


def assert_counts_are_conserved(program, counts, n_components, cuts):
    """The rows of words and the totals are those of the topics."""
    result = fit(program, counts, n_components, cuts=cuts)
    table = np.zeros((counts.shape[1], n_components), int)
    np.add.at(table, (token_words(counts), result.topics[-1]), 1)
    dense = np.zeros_like(table)
    dense[np.repeat(np.arange(len(dense)), np.diff(result.rows.ptr)), result.rows.topic] = result.rows.tokens
    np.testing.assert_array_equal(dense, table)
    np.testing.assert_array_equal(result.model.topic_total, table.sum(axis=0))
    assert 0 <= result.records[-1]["s_error"] <= 2
    if not cuts:
        assert result.records[-1]["s_error"] == 0


def assert_restart_continues(program, seed, n_components, cuts, stop, with_fixed):
    """A fit that goes on from saved topics has the bits of one that was never interrupted."""
    counts = random_counts(seed)
    fixed = old_rows(seed, counts, n_components) if with_fixed else None
    common = {"cuts": cuts, "fixed": fixed}
    whole = fit(program, counts, n_components, n_sweeps=5, **common)
    part = fit(program, counts, n_components, n_sweeps=stop, **common)
    rest = fit(program, counts, n_components, n_sweeps=5, saved=part.saved, first=stop, **common)
    np.testing.assert_array_equal(whole.topics[stop:], rest.topics)
    assert whole.records[stop:] == rest.records


def log_posterior(counts, topic, alpha, beta, fixed):
    """ln p(words, topics) up to a constant, from dense tables."""
    document = np.repeat(np.arange(len(counts)), counts.sum(1))
    by_document, by_word = np.zeros((len(counts), len(alpha))), fixed + 0.0
    np.add.at(by_document, (document, topic), 1)
    np.add.at(by_word, (token_words(counts), topic), 1)
    return (
        gammaln(by_document + alpha).sum()
        + gammaln(by_word + beta).sum()
        - gammaln(by_word.sum(0) + counts.shape[1] * beta).sum()
    )


def all_states(counts, alpha, beta, fixed):
    """Every assignment of topics, and its posterior probability."""
    states = np.indices((len(alpha),) * int(counts.sum())).reshape(counts.sum(), -1).T.astype(np.int16)
    log_p = np.array([log_posterior(counts, state, alpha, beta, fixed) for state in states])
    p = np.exp(log_p - log_p.max())
    return states, p / p.sum()


def leads_to(program, sample_cell, extra, counts, alpha, beta, fixed, starts, states):
    """How often a sweep leads to each state, from the given ones."""
    (shard,), _ = make_shards(counts, fixed=fixed)
    made = program(len(alpha), counts.shape[1], 1.0, beta)
    state, parts = made.init(At(shard, None, -1, 0, 1, n_blocks=1))
    block = made.combine(0, [parts[0]])
    block = block._replace(tail_ptr=freeze(block.tail_ptr), fixed=freeze(block.fixed))
    visits, topic, total = freeze(state.visits), state.topic, np.zeros(len(alpha), np.int64)
    # What the cell finds at each state.
    by_word = np.empty_like(states)
    by_word[:, shard.place] = states
    heads = np.zeros((len(states), *block.heads.shape), np.int32)
    for word in range(heads.shape[1]):
        of_word = by_word[:, shard.word_ptr[word] : shard.word_ptr[word + 1]]
        heads[:, word] = (of_word[:, :, None] == np.arange(len(alpha))).sum(1)
    tails = by_word[:, shard.word_ptr[len(block.heads)] :]
    totals = (states[:, :, None] == np.arange(len(alpha))).sum(1) + fixed.sum(0)
    values = len(alpha) ** np.arange(states.shape[1])[::-1]
    priors, seen = (freeze(alpha), beta, counts.shape[1] * beta), np.zeros(len(states), np.int64)
    keys = np.random.default_rng(99).integers(0, 2**64, len(starts), np.uint64)
    for start, key in zip(starts, keys, strict=True):
        topic[:], total[:] = states[start], totals[start]
        block.heads[:], block.tails[:] = heads[start], tails[start]
        sample_cell(0, shard, block, visits, topic, total, *extra, *priors, key)
        seen[topic @ values] += 1
    return seen


def p_value(expected, seen):
    """The probability of Pearson's statistic; the states with less than five expected visits make one cell."""
    expected = expected * seen.sum()
    rare = expected < 5
    expected, seen = np.append(expected[~rare], expected[rare].sum()), np.append(seen[~rare], seen[rare].sum())
    expected, seen = expected[expected > 0], seen[expected > 0]
    return chi2.sf(((seen - expected) ** 2 / expected).sum(), len(expected) - 1)


def each_case(fast):
    """All of `TINY` with few samples, or in the slow lane with many; of the former `fast` ones with every change."""
    slow = pytest.mark.slow
    few = [pytest.param(case, 20_000, marks=[] if case in fast else slow) for case in TINY]
    return pytest.mark.parametrize(("case", "n_samples"), few + [pytest.param(c, 100_000, marks=slow) for c in TINY])


#: Number of topics, documents × words, and whether words have counts of earlier batches.
TINY = {
    "tails": (2, [[2, 1], [0, 2], [1, 1]], False),
    "a head word": (2, [[3, 1], [3, 1]], False),
    "earlier counts": (3, [[2, 1], [1, 2]], True),
    "a head word with earlier counts": (2, [[2, 1], [3, 0]], True),
    "one document": (3, [[3, 1, 2]], False),
}


def assert_keeps_the_posterior(program, sample_cell, extra, case, n_samples):
    """Topics drawn from the posterior, by enumeration, are still distributed like it after a sweep."""
    n_components, counts, has_fixed = TINY[case]
    counts, beta = np.array(counts, np.int32), 0.4
    alpha = np.array([0.9, 0.2, 0.5])[:n_components]
    fixed = np.zeros((counts.shape[1], n_components), int)
    if has_fixed:
        fixed[0, 0], fixed[-1, 1] = 2, 1
    states, p = all_states(counts, alpha, beta, fixed)
    starts = np.random.default_rng(1).choice(len(p), n_samples, p=p)
    seen = leads_to(program, sample_cell, extra, counts, alpha, beta, fixed, starts, states)
    assert seen.sum() == n_samples
    assert 1e-4 < p_value(p, seen) < 1 - 1e-4
