"""Metropolis–Hastings with draws from alias tables, document by document.

This is AliasLDA (Li et al., KDD 2014).

A token of word w in document d, taken out of all counts n, is offered topics t with probabilities::

    q(t)  proportional to  n_dt (n_wt + beta) / (n_t + V beta)
                         + alpha_t (m_wt + beta) / (m_t + V beta)

The counts n are the present ones, and the first part has a term for each topic of the document.
The counts m are those at the time when the shard began with the block.  Alias tables of the second
part are made then: one for the m_wt of each word, and one for the beta of all words.  Seeds of a
word add to beta in the first part only.  A proposal t is accepted in place of topic s with
probability ``p(t) q(s) / (p(s) q(t))``, at most 1, where p is q with m = n and with all seeds.

This does not sample the exact posterior: the counts m include the token with its present topic, and
other tokens may have moved since because of that.
"""

from typing import NamedTuple

import numpy as np
from numpy import uint64 as index

from schmp_estimators.core.typing import Floats, Integers, Integers32
from schmp_estimators.lda.samplers.light import LightLDA, moved, row_of, weigh
from schmp_estimators.sampling import (
    GAMMA,
    TopicLists,
    beta_of,
    build_alias,
    count_of,
    document_loop,
    draw_alias,
    first_above,
    inlined,
    inverse_totals,
    kernel,
    list_words,
    make_rows,
    maker,
    mix,
    prefetch,
    unit,
)


class Alias(NamedTuple):
    """What the sampler keeps."""

    #: From `kernels.rows.make_rows`: the present counts of words, and those at the beginning of the
    #: cell.
    rows: Integers
    cells: Integers32
    stale: Integers32
    #: (K,) ``1 / (n_k + V beta)`` in the beginning.
    inverse: Floats
    #: The topics of words in the beginning.
    lists: TopicLists
    #: (n_entries + K,) as in `build_alias`: tables with a slot for each entry of a word, at last
    #: one of all topics.
    share: Floats
    other: Integers32
    #: (n_words + 1,) sums of the weights in tables.
    sums: Floats
    #: (K,) cumulative sums of the weights of the document's topics for a token.
    ends: Floats


@maker
def _begin(cell):
    """Return what is kept of a block; 15 ns per slot of a table."""
    n_topics = len(cell.total)
    inverse, _ = inverse_totals(cell)
    rows, cells = make_rows(cell.block, n_topics)
    lists = list_words(cell.block, n_topics)
    n_words = len(lists.length)
    end = lists.ptr[-1]
    n_slots = end + n_topics
    share = np.empty(n_slots)
    other = np.empty(n_slots, np.int32)
    sums = np.empty(n_words + 1)
    weights = np.empty(n_topics)
    order = np.empty(n_topics, np.int32)
    for word in range(n_words):
        start = lists.ptr[word]
        n = np.int64(lists.length[word])
        for i in range(n):
            k = np.uint32(lists.topic[start + i])
            weights[i] = lists.tokens[start + i] * cell.alpha[k] * inverse[k]
        sums[word] = build_alias(
            weights[:n], share[start : start + n], other[start : start + n], order
        )
    for k in range(n_topics):
        weights[k] = cell.alpha[k] * inverse[k]
    sums[n_words] = build_alias(weights, share[end:], other[end:], order)
    return Alias(rows, cells, cells.copy(), inverse, lists, share, other, sums, np.empty(n_topics))


@inlined
def _weigh(own, cell, document, word, topic, less):
    """Return p and q of a topic of which `less` tokens are left out: the token itself, or none."""
    of_word = weigh(own, cell, document, word, topic, less)
    n = document.tokens[topic] - less
    start, mask = row_of(own, word)
    stale = (
        (count_of(own.stale, start, mask, topic) + cell.beta)
        * cell.alpha[topic]
        * own.inverse[topic]
    )
    return (n + cell.alpha[topic]) * of_word, n * of_word + stale


@inlined
def _sum_document(own, cell, document, word, old):
    """Add up the weights of the document's topics for a token, and return the sum."""
    start, mask = row_of(own, word)
    total = 0.0
    for j in range(document.now[0].n_listed):
        k = index(document.listed[index(j)])
        n = count_of(own.cells, start, mask, k) + beta_of(
            cell.seeds, cell.first + word, k, cell.beta
        )
        part = document.part[k]
        if k == old:
            n = n - 1.0
            part = (document.tokens[k] - 1) * document.inverse_less[k]
        total += part * n
        own.ends[index(j)] = total
    return total


@inlined
def _propose(own, cell, document, word, fresh, point):
    """Return the topic at a point.

    The topics of the document come first, then the word's table, then that of all topics.
    """
    start = own.lists.ptr[index(word)]
    of_word = own.sums[index(word)]
    last = len(own.sums) - 1
    if point < fresh:
        return index(
            document.listed[index(first_above(own.ends, 0, document.now[0].n_listed, point))]
        )
    if point - fresh < of_word:
        n = np.int64(own.lists.length[index(word)])
        slot = draw_alias(own.share, own.other, start, n, (point - fresh) / of_word)
        return index(own.lists.topic[index(start + slot)])
    uniform = (point - fresh - of_word) / (cell.beta * own.sums[last])
    return index(draw_alias(own.share, own.other, own.lists.ptr[last], len(cell.total), uniform))


@inlined
def _draw(own, cell, document, token, word, old, counter):
    """Return the new topic of a token, after ``n_random / 2`` proposals.

    3 ns per topic of the document.
    """
    fresh = _sum_document(own, cell, document, word, old)
    mass = fresh + own.sums[index(word)] + cell.beta * own.sums[len(own.sums) - 1]
    s = old
    s_p, s_q = _weigh(own, cell, document, word, old, 1)
    for _ in range(cell.n_random >> 1):
        t = _propose(own, cell, document, word, fresh, unit(mix(counter)) * mass)
        accept = unit(mix(counter + GAMMA))
        counter += GAMMA + GAMMA
        if t != s:
            t_p, t_q = _weigh(own, cell, document, word, t, np.int64(t == old))
            if accept * s_p * t_q < t_p * s_q:
                s, s_p, s_q = t, t_p, t_q
    return s


@inlined
def _fetch(own, cell, near, far):
    """Fetch the rows and tables of words that come later."""
    prefetch(own.rows, 2 * far)
    prefetch(own.lists.ptr, far)
    prefetch(own.sums, far)
    coming = index(cell.state.visits.word[near])
    start = own.rows[index(2) * coming]
    table = own.lists.ptr[coming]
    prefetch(own.stale, start)
    prefetch(own.share, table)
    prefetch(own.other, table)
    for line in range(4):
        prefetch(own.cells, start + 16 * line)


_loop = document_loop(_begin, _draw, moved, _fetch)


@kernel
def sample_alias(cell):
    """Sample the tokens of a `Cell`; see `document_loop`."""
    return _loop(cell)


class AliasLDA(LightLDA):
    """Latent Dirichlet allocation by Metropolis–Hastings, with proposals from stale alias tables.

    Tables replace the sums that are long.

    Not exact, not even with one shard: tables are those of the beginning of a sweep.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, hot_priors,
    hot_sweeps, own_alphas, learn_every, drawn_alphas, seed_totals, begins_seeded, far, mh_steps
        As in `LightLDA`; all proposals are of one kind.
    """

    kernel = staticmethod(sample_alias)
