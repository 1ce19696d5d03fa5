"""Posteriors of corpora so small that all assignments of topics can be listed, and what samplers make of them."""

import numpy as np
from lda_cases import make_shards, token_words
from scipy.special import gammaln
from scipy.stats import chi2

from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.programs.topics import SweepModel


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


def leads_to(program, counts, alpha, beta, fixed, starts, states, **options):
    """How often a sweep leads to each state, from the given ones."""
    program = program(len(alpha), counts.shape[1], float(alpha.mean()), beta, own_alphas=alpha, **options)
    shard, state, report, block = begin(program, counts, fixed)
    cell = program.cell(At(shard, SweepModel(report.topic_total), 0, 0, 1, block=0, n_blocks=1), state, block)
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
    seen = np.zeros(len(states), np.int64)
    keys = np.random.default_rng(99).integers(0, 2**64, len(starts), np.uint64)
    for start, key in zip(starts, keys, strict=True):
        cell.state.topic[:], cell.total[:] = states[start], totals[start]
        block.heads[:], block.tails[:] = heads[start], tails[start]
        program.kernel(cell._replace(key=key))
        seen[cell.state.topic @ values] += 1
    return seen


#: Number of topics, documents × words, and whether words have counts of earlier batches.
TINY = {
    "tails": (2, [[2, 1], [0, 2], [1, 1]], False),
    "a head word": (2, [[3, 1], [3, 1]], False),
    "earlier counts": (3, [[2, 1], [1, 2]], True),
    "a head word with earlier counts": (2, [[2, 1], [3, 0]], True),
    "one document": (3, [[3, 1, 2]], False),
}


def assert_keeps_the_posterior(program, case, n_samples, **options):
    """Topics drawn from the posterior, by enumeration, are still distributed like it after a sweep."""
    n_components, counts, has_fixed = TINY[case]
    counts, beta = np.array(counts, np.int32), 0.4
    alpha = np.array([0.9, 0.2, 0.5])[:n_components]
    fixed = np.zeros((counts.shape[1], n_components), int)
    if has_fixed:
        fixed[0, 0], fixed[-1, 1] = 2, 1
    states, p = all_states(counts, alpha, beta, fixed)
    starts = np.random.default_rng(1).choice(len(p), n_samples, p=p)
    seen = leads_to(program, counts, alpha, beta, fixed, starts, states, **options)
    assert seen.sum() == n_samples
    assert_distributed_like(p, seen)


# A long run from any state: for samplers that go word by word.
