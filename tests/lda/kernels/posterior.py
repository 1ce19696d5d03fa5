"""Posteriors of corpora so small that all assignments of topics can be listed, and what samplers make of them."""

import numpy as np
from lda_cases import make_shards, token_words
from numba import njit
from scipy import sparse
from scipy.special import gammaln
from scipy.stats import chi2

from schmp_estimators.core.rng import GAMMA, mix
from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.kernels import ftree
from schmp_estimators.lda.kernels.lists import order_lists
from schmp_estimators.lda.programs.seeds import seed_rows, word_seeds


def log_posterior(counts, topic, alpha, beta, fixed):
    """ln p(words, topics) up to a constant, from dense tables; `fixed` are tokens or seeds that words have besides."""
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
    """Every assignment of topics, read as a number in document order, and its posterior probability."""
    states = np.indices((len(alpha),) * int(counts.sum())).reshape(counts.sum(), -1).T.astype(np.int16)
    log_p = np.array([log_posterior(counts, state, alpha, beta, fixed) for state in states])
    p = np.exp(log_p - log_p.max())
    return states, p / p.sum()


def assert_distributed_like(expected, seen):
    """Pearson's statistic is neither too large nor too small; the states with less than five visits make one cell."""
    expected = expected * seen.sum()
    rare = expected < 5
    expected, seen = np.append(expected[~rare], expected[rare].sum()), np.append(seen[~rare], seen[rare].sum())
    expected, seen = expected[expected > 0], seen[expected > 0]
    assert 1e-4 < chi2.sf(((seen - expected) ** 2 / expected).sum(), len(expected) - 1) < 1 - 1e-4


def begin(program, counts, fixed=None):
    """A shard of all documents, its first state, what it reports, and its block."""
    (shard,), _ = make_shards(counts, fixed=fixed)
    at = At(shard, None, -1, 0, 1, n_blocks=1)
    state, parts = program.init(at)
    block = program.combine(0, [parts[0]])
    block = block._replace(tail_ptr=freeze(block.tail_ptr), fixed=freeze(block.fixed))
    return shard, state, program.report(at, state), block


# One sweep from states that have the posterior: for samplers that go document by document.


def leads_to(program, sample_cell, extra, counts, alpha, beta, fixed, starts, states, seeds):
    """How often a sweep leads to each state, from the given ones; `seeds` (words × topics) may be None."""
    shard, state, _, block = begin(program(len(alpha), counts.shape[1], 1.0, beta), counts, fixed)
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
    sums, rows, seen = counts.shape[1] * beta, None, np.zeros(len(states), np.int64)
    if seeds is not None:
        given = word_seeds(sparse.csc_array(seeds.T), counts.sum(0).astype(np.int64))
        sums, rows = freeze(sums + given.total), seed_rows(given, shard)
    keys = np.random.default_rng(99).integers(0, 2**64, len(starts), np.uint64)
    for start, key in zip(starts, keys, strict=True):
        topic[:], total[:] = states[start], totals[start]
        block.heads[:], block.tails[:] = heads[start], tails[start]
        sample_cell(0, shard, block, visits, topic, total, *extra, freeze(alpha), beta, sums, key, rows)
        seen[topic @ values] += 1
    return seen


#: Number of topics, documents × words, and whether words have counts of earlier batches.
TINY = {
    "tails": (2, [[2, 1], [0, 2], [1, 1]], False),
    "a head word": (2, [[3, 1], [3, 1]], False),
    "earlier counts": (3, [[2, 1], [1, 2]], True),
    "a head word with earlier counts": (2, [[2, 1], [3, 0]], True),
    "one document": (3, [[3, 1, 2]], False),
}


def assert_keeps_the_posterior(program, sample_cell, extra, case, n_samples, *, has_seeds=False):
    """Topics drawn from the posterior, by enumeration, are still distributed like it after a sweep.

    With seeds every other word has some.
    """
    n_components, counts, has_fixed = TINY[case]
    counts, beta = np.array(counts, np.int32), 0.4
    alpha = np.array([0.9, 0.2, 0.5])[:n_components]
    fixed = np.zeros((counts.shape[1], n_components), int)
    if has_fixed:
        fixed[0, 0], fixed[-1, 1] = 2, 1
    seeds = None
    if has_seeds:
        seeds = np.zeros(fixed.shape)
        seeds[::2, 0], seeds[::2, -1], seeds[0, 1] = 1.3, 0.6, 0.2
    states, p = all_states(counts, alpha, beta, fixed if seeds is None else fixed + seeds)
    starts = np.random.default_rng(1).choice(len(p), n_samples, p=p)
    seen = leads_to(program, sample_cell, extra(n_components), counts, alpha, beta, fixed, starts, states, seeds)
    assert seen.sum() == n_samples
    assert_distributed_like(p, seen)


# A long run from any state: for samplers that go word by word.


@njit
def long_chain(sweep, n_samples, thin, key, place, n_topics, topic, arguments, lists, codes):
    """Count how often the topics, read as a number in document order, are found after every `thin` sweeps."""
    for sample in range(n_samples):
        for i in range(thin):
            order_lists(lists)
            sweep(arguments, lists, mix(key + np.uint64(sample * thin + i) * GAMMA))
        code = 0
        for at in place:
            code = code * n_topics + topic[at]
        codes[code] += 1


def assert_long_run_has_the_posterior(
    program, sweep, counts, alpha, *, extra=(), seeds=None, n_samples=40_000, thin=20
):
    """`sweep` takes what its kernel takes; so far apart, samples of these corpora are as good as independent.

    Alpha is a number, or one for each topic; `seeds` are imaginary tokens of words in topics, with their sums as the
    kernel takes them.
    """
    n_components, beta = program.n_components, program.topic_word_prior
    table, sums = (0.0, 0.0) if seeds is None else seeds
    tokens = np.zeros((counts.shape[1], n_components)) + table
    _, p = all_states(counts, np.broadcast_to(alpha, n_components), beta, tokens)
    shard, state, report, block = begin(program, counts)
    arguments = (
        0, counts.shape[1], shard, block, state.topic, freeze(state.document), report.topic_total,
        freeze(ftree.level_offsets(n_components)), alpha, beta, freeze(counts.shape[1] * beta + sums), *extra,
    )  # fmt: skip
    visits = np.zeros(len(p), np.int64)
    place = freeze(shard.place)
    long_chain(sweep, n_samples, thin, np.uint64(99), place, n_components, state.topic, arguments, state.lists, visits)
    assert visits.sum() == n_samples
    assert_distributed_like(p, visits)
