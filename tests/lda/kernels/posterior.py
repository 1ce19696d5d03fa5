"""Posteriors of corpora so small that all assignments of topics can be listed.

And what samplers make of them.
"""

import numpy as np
from definition import run_serial
from lda_cases import make_shards, token_words
from scipy.special import gammaln
from scipy.stats import chi2

from schmp_estimators.core.program import Saved


def log_posterior(counts, topic, alpha, beta, seeds):
    """ln p(words, topics) up to a constant, from dense tables; `seeds` are those of words."""
    document = np.repeat(np.arange(len(counts)), counts.sum(1))
    by_document, by_word = np.zeros((len(counts), len(alpha))), seeds + 0.0
    np.add.at(by_document, (document, topic), 1)
    np.add.at(by_word, (token_words(counts), topic), 1)
    return (
        gammaln(by_document + alpha).sum()
        + gammaln(by_word + beta).sum()
        - gammaln(by_word.sum(0) + counts.shape[1] * beta).sum()
    )


def all_states(counts, alpha, beta, seeds):
    """Every assignment of topics and its posterior probability.

    An assignment is read as a number in document order.
    """
    states = (
        np.indices((len(alpha),) * int(counts.sum())).reshape(counts.sum(), -1).T.astype(np.int16)
    )
    log_p = np.array([log_posterior(counts, state, alpha, beta, seeds) for state in states])
    p = np.exp(log_p - log_p.max())
    return states, p / p.sum()


def assert_distributed_like(expected, seen):
    """Pearson's statistic is neither too large nor too small.

    The states with less than five visits make one cell.
    """
    expected = expected * seen.sum()
    rare = expected < 5
    expected, seen = (
        np.append(expected[~rare], expected[rare].sum()),
        np.append(seen[~rare], seen[rare].sum()),
    )
    expected, seen = expected[expected > 0], seen[expected > 0]
    assert 1e-4 < chi2.sf(((seen - expected) ** 2 / expected).sum(), len(expected) - 1) < 1 - 1e-4


def leads_to(kind, counts, alpha, beta, seeds, starts, states, **options):
    """How often a sweep leads to each state, from the given ones."""
    shards, _ = make_shards(counts, seeds=seeds)
    priors = {"doc_topic_prior": float(alpha.mean()), "topic_word_prior": beta}
    given = {"n_components": len(alpha), "n_words": counts.shape[1], "own_alphas": alpha}
    if seeds.any():
        given["seed_totals"] = seeds.sum(0, dtype=float)
    program = kind(**given | priors | options)
    values = len(alpha) ** np.arange(states.shape[1])[::-1]
    seen = np.zeros(len(states), np.int64)
    for number, start in enumerate(starts):  # each sweep has a number, and so draws, of its own
        [(_, _, kept)] = run_serial(
            program, shards, number + 1, Saved(None, [states[start]], []), number
        )
        seen[kept.shards[0] @ values] += 1
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
    """Topics drawn from the posterior are still distributed like it after a sweep.

    They are drawn by enumeration.
    """
    n_components, counts, has_seeds = TINY[case]
    counts, beta = np.array(counts, np.int32), 0.4
    alpha = np.array([0.9, 0.2, 0.5])[:n_components]
    seeds = np.zeros((counts.shape[1], n_components), int)
    if has_seeds:
        seeds[0, 0], seeds[-1, 1] = 2, 1
    states, p = all_states(counts, alpha, beta, seeds)
    starts = np.random.default_rng(1).choice(len(p), n_samples, p=p)
    seen = leads_to(program, counts, alpha, beta, seeds, starts, states, **options)
    assert seen.sum() == n_samples
    assert_distributed_like(p, seen)
