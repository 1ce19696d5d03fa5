"""Metropolis–Hastings with draws from alias tables, document by document (AliasLDA: Li et al., KDD 2014).

A token of word w in document d, taken out of all counts, is offered topics t with probabilities::

    q(t)  proportional to  n_dt (n_wt + beta) / (n_t + V beta)  +  alpha_t (m_wt + beta) / (m_t + V beta)

The counts n are those of now, and the first part has no more terms than document or word have topics.  The counts m
are those of the time when alias tables were made of the second part, one for the m_wt of each word, and one for the
beta of all of them.  The token was in them with the topic that it has now, so it is left out of them, too: what it
leaves of its own topic is kept beside the tables, and a draw from a table that gives this topic is made again.  What
seeds of the word add is in no table, but summed up over their topics as it is now.  From topic s a proposal t is
accepted with probability ``p(t) q(s) / (p(s) q(t))``, at most 1, p being q with m = n.

With tables that are made anew for every token this samples the exact posterior.  With older ones it does not quite:
what other tokens have done since may depend on what this one was when the tables were made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import inlined, kernel, maker, part
from schmp_estimators.core.rng import GAMMA, mix, unit
from schmp_estimators.core.stages import At
from schmp_estimators.lda.blocks import HEAD
from schmp_estimators.lda.kernels.document_priors import build_alias, draw_alias
from schmp_estimators.lda.kernels.word_lists import entry_of, fetch_lists, find_entry, list_words, sum_entries
from schmp_estimators.lda.kernels.word_priors import beta_of, find_seed, sum_seeds
from schmp_estimators.lda.samplers.documents import (
    ROUNDING,
    DocumentLDA,
    document_loop,
    find_in_document,
    sum_others,
)

#: Entries beyond one for each token: topics that a word has lost stay listed until its table is made anew.
_SPARE = 4
#: So often a table is asked for another topic than the token's own; then its weights are summed up.
_TRIES = 16
#: The largest number below 1.
_BELOW_ONE = 1.0 - 2.0**-53

#: Scalars that the sampler keeps: the word whose topics have been summed up, when (`Document.now`), and their sum.
_KEPT = np.dtype([("word", np.int64), ("version", np.int64), ("of_word", np.float64)])


class Alias(NamedTuple):
    """What the sampler keeps: lists of words, and tables with a slot for each entry, at last one for each topic."""

    kept: NDArray[np.void]
    #: As in `word_lists.WordLists`.
    bounds: NDArray[np.int64]
    entries: NDArray[np.int32]
    #: (n_words + 1,) slots of each table, the sum of the weights, and for how many tokens more the table is good.
    slots: NDArray[np.int32]
    sums: NDArray[np.float64]
    left: NDArray[np.int64]
    #: (2 * n_slots,) the weight of each slot with all tokens, and with one less of its topic.
    stale: NDArray[np.float64]
    #: (n_slots,) as in `build_alias`.
    share: NDArray[np.float64]
    other: NDArray[np.int32]
    #: (K,) for use while a table is made.
    weights: NDArray[np.float64]
    order: NDArray[np.int32]


@maker
def _begin(cell):
    """Return what is kept of a block; there are no tables as yet."""
    n_topics, (whole_from, _) = len(cell.total), cell.extra
    bounds, entries = list_words(cell.block, n_topics, _SPARE, whole_from)
    n_tables, n_slots = (len(bounds) >> 1) + 1, bounds[-1] + n_topics
    return Alias(
        np.zeros(1, _KEPT),
        bounds,
        entries,
        np.zeros(n_tables, np.int32),
        np.zeros(n_tables),
        np.zeros(n_tables, np.int64),
        np.empty(2 * n_slots),
        np.empty(n_slots),
        np.empty(n_slots, np.int32),
        np.empty(n_topics),
        np.empty(n_topics, np.int32),
    )


@part
def _weigh_word(own, cell, document, word):
    """Weigh the slots of a word, after dropping topics that it has no more; return the end of the slots."""
    bounds, entries, stale, alpha = own.bounds, own.entries, own.stale, cell.alpha
    start, end = bounds[2 * word], bounds[2 * word + 1]
    if end < 0:
        end = start + len(alpha)
    else:
        kept = start
        for at in range(start, end):
            if entries[2 * at + 1] > 0:
                entries[2 * kept], entries[2 * kept + 1] = entries[2 * at], entries[2 * at + 1]
                kept += 1
        end = kept
        bounds[2 * word + 1] = end
    for at in range(start, end):
        k, n = np.uint32(entries[2 * at]), entries[2 * at + 1]
        stale[2 * at] = n * alpha[k] * document.inverse[k]
        stale[2 * at + 1] = (n - 1) * alpha[k] * document.inverse_less[k]
    return end


@part
def _make_table(own, cell, document, number):
    """Make the table of a word anew, or the last one, of all topics; 15 ns per slot."""
    start, n_topics, lifetime = own.bounds[2 * number], len(cell.alpha), cell.extra[1]
    if number < len(own.left) - 1:
        end = _weigh_word(own, cell, document, number)
    else:
        end = start + n_topics
        for k in range(n_topics):
            own.stale[2 * (start + k)] = cell.alpha[k] * document.inverse[k]
            own.stale[2 * (start + k) + 1] = cell.alpha[k] * document.inverse_less[k]
    weights = own.weights[: end - start]
    for i in range(end - start):
        weights[i] = own.stale[2 * (start + i)]
    own.slots[number], own.sums[number] = end - start, 0.0
    if end > start:
        own.sums[number] = build_alias(weights, own.share[start:end], own.other[start:end], own.order)
    own.left[number] = lifetime if lifetime > 0 else end - start


@inlined
def _use_table(own, cell, document, number):
    """Make sure that a table is good for one token more."""
    if own.left[np.uint64(number)] == 0:
        _make_table(own, cell, document, number)
    own.left[np.uint64(number)] -= 1


@inlined
def _draw_from_table(own, number, skipped, sum_of_others, point, bits):
    """Return a slot of a table other than `skipped`; the latter only if rounding leaves no other.

    `point` is in the sum of the others, and `bits` is what further random numbers are made of.
    """
    start, n = own.bounds[np.uint64(2 * number)], np.int64(own.slots[np.uint64(number)])
    slot = draw_alias(own.share, own.other, start, n, min(point / sum_of_others, _BELOW_ONE))
    tries = 1
    while slot == skipped and tries < _TRIES:
        bits = mix(bits + GAMMA)
        slot = draw_alias(own.share, own.other, start, n, unit(bits))
        tries += 1
    if slot == skipped:
        point = unit(mix(bits + GAMMA)) * sum_of_others
        for i in range(n):
            if i != skipped:
                point -= own.stale[np.uint64(2 * (start + i))]
                if point < 0.0:
                    slot = np.int64(i)
                    break
    return slot


@inlined
def _at_topic(own, word, topic):
    """Return the entry of a topic; the end of the word's list if there is none."""
    start, end = own.bounds[np.uint64(2 * word)], own.bounds[np.uint64(2 * word + 1)]
    return start + np.int64(topic) if end < 0 else entry_of(own.entries, start, end, topic)


@inlined
def _find_of_word(own, document, word, skipped, point):
    """Return the entry in which `point` lies of the sum of ``n_wk * part``, or the end; and the sum with it.

    The topic `skipped` is left out.  The sum is over the topics of the word, or of the document if the word has all.
    """
    start, end, entries = own.bounds[np.uint64(2 * word)], own.bounds[np.uint64(2 * word + 1)], own.entries
    if end >= 0:
        return find_entry(entries, start, end, skipped, document.part, point)
    before = 0.0
    for j in range(document.now[0].n_listed):
        k = np.uint64(document.listed[np.uint64(j)])
        if k != skipped:
            before += document.part[k] * entries[np.uint64(2 * start + 1) + np.uint64(2) * k]
            if before > point:
                return start + np.int64(k), before
    return end, before


@inlined
def _sum_of_word(own, document, word, old, n_old):
    """Return the sum of ``n_wk * part`` over the topics other than `old`, of which the word has `n_old` tokens."""
    kept = own.kept[0]
    if word != kept.word or document.now[0].version != kept.version:
        kept.word, kept.version = word, document.now[0].version
        start, end = own.bounds[np.uint64(2 * word)], own.bounds[np.uint64(2 * word + 1)]
        if end < 0:
            _, kept.of_word = _find_of_word(own, document, word, np.uint64(len(document.part)), np.inf)
        else:
            kept.of_word = sum_entries(own.entries, start, end, document.part)
    others = kept.of_word - n_old * document.part[old]
    if others < ROUNDING * kept.of_word:
        _, others = _find_of_word(own, document, word, old, np.inf)
    return others


@inlined
def _weigh(own, cell, document, word, topic, at, less):
    """Return p and q of a topic with this entry, of which `less` tokens are left out: the token itself, or none."""
    k, alpha, smoothing = topic, cell.alpha[topic], own.bounds[len(own.bounds) - 1] + np.int64(topic)
    has_entry = at != own.bounds[np.uint64(2 * word + 1)]
    prior = beta_of(cell.seeds, cell.first + word, k, cell.beta)
    n_word = (own.entries[np.uint64(2 * at + 1)] if has_entry else np.int32(0)) - less + prior
    n_document = document.tokens[k] - less
    inverse = document.inverse_less[k] if less else document.inverse[k]
    q = (n_document * n_word + (prior - cell.beta) * alpha) * inverse
    q += cell.beta * own.stale[np.uint64(2 * smoothing + less)]
    if has_entry:
        q += own.stale[np.uint64(2 * at + less)]
    return (n_document + alpha) * n_word * inverse, q


@inlined
def _draw(own, cell, document, token, word, old, counter):
    """Return the new topic of a token, after ``n_random / 2`` proposals; 85 ns for each."""
    beta, seeds, layout, last = cell.beta, cell.seeds, cell.first + word, len(own.left) - 1
    _use_table(own, cell, document, last)
    _use_table(own, cell, document, word)
    start, old_at = own.bounds[np.uint64(2 * word)], _at_topic(own, word, old)
    smoothing = own.bounds[np.uint64(2 * last)] + np.int64(old)
    own_p, own_q = _weigh(own, cell, document, word, old, old_at, 1)
    of_seeds = sum_seeds(seeds, layout, old, document.tokens, cell.alpha, document.inverse)
    of_word = _sum_of_word(own, document, word, old, own.entries[np.uint64(2 * old_at + 1)])
    of_document = beta * sum_others(document, old)
    of_table = max(0.0, own.sums[np.uint64(word)] - own.stale[np.uint64(2 * old_at)])
    of_all = max(0.0, own.sums[np.uint64(last)] - own.stale[np.uint64(2 * smoothing)])
    mass = own_q + of_seeds + of_word + of_document + of_table + beta * of_all
    s, s_at, s_p, s_q = old, old_at, own_p, own_q
    for _ in range(cell.n_random >> 1):
        bits, accept = mix(counter), unit(mix(counter + GAMMA))
        counter += GAMMA + GAMMA
        point = unit(bits) * mass - own_q
        t, t_at = old, old_at
        if point >= of_seeds + of_word + of_document + of_table:
            if of_all > 0.0:
                point -= of_seeds + of_word + of_document + of_table
                t = np.uint64(_draw_from_table(own, last, np.int64(old), of_all, point / beta, bits))
                t_at = _at_topic(own, word, t)
        elif point >= of_seeds + of_word + of_document:
            point -= of_seeds + of_word + of_document
            t_at = start + _draw_from_table(own, word, old_at - start, of_table, point, bits)
            t = np.uint64(own.entries[np.uint64(2 * t_at)])
        elif point >= of_seeds + of_word:
            t, _ = find_in_document(document, old, (point - of_seeds - of_word) / beta)
            t_at = _at_topic(own, word, t)
        elif point >= of_seeds:
            found, _ = _find_of_word(own, document, word, old, point - of_seeds)
            if found != own.bounds[np.uint64(2 * word + 1)]:
                t, t_at = np.uint64(own.entries[np.uint64(2 * found)]), found
        elif point >= 0.0:
            t = find_seed(seeds, layout, old, document.tokens, cell.alpha, document.inverse, point)
            t_at = _at_topic(own, word, t)
        if t != s:
            t_p, t_q = (own_p, own_q) if t == old else _weigh(own, cell, document, word, t, t_at, 0)
            if accept * s_p * t_q < t_p * s_q:
                s, s_at, s_p, s_q = t, t_at, t_p, t_q
    if s != old:
        _move_entry(own, cell, document, word, old_at, s_at, s)
    return s


@inlined
def _move_entry(own, cell, document, word, old_at, new_at, new):
    """Move a token between entries of its word, to a new one if there is none; make a new table where there is no room.

    The table is made of the totals before the move.
    """
    entries, stop = own.entries, own.bounds[np.uint64(2 * word + 1)]
    entries[np.uint64(2 * old_at + 1)] -= 1
    if new_at != stop:
        entries[np.uint64(2 * new_at + 1)] += 1
        return
    if stop == own.bounds[np.uint64(2 * word + 2)]:
        _make_table(own, cell, document, word)
        stop = own.bounds[np.uint64(2 * word + 1)]
    entries[np.uint64(2 * stop)], entries[np.uint64(2 * stop + 1)] = new, 1
    own.stale[np.uint64(2 * stop)] = own.stale[np.uint64(2 * stop + 1)] = 0.0
    own.bounds[np.uint64(2 * word + 1)] = stop + 1


_loop = document_loop(_begin, _draw, fetch=fetch_lists)


@kernel
def sample_alias(cell):
    """Sample the tokens of a `Cell`; see `document_loop`.

    The cell's extra is from how many tokens on words get an entry for every topic, and sums over the topics of
    documents; and after how many tokens a table is made anew, 0 for as many as it has slots.
    """
    return _loop(cell)


@dataclass(frozen=True)
class AliasLDA(DocumentLDA):
    """Latent Dirichlet allocation by Metropolis–Hastings, with proposals from stale alias tables where sums are long.

    Not exact, not even with one shard: a table is kept for as many tokens as it has slots.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, topics_of_word,
    from_passages, hot_priors, hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds, far
        As in `TopicProgram`.
    mh_steps : int, at least 1
        Proposals for each token in a sweep.
    lifetime : int
        After how many tokens a table is made anew; 0 for as many as it has slots.
    """

    sampler: ClassVar[str] = "alias"
    options: ClassVar[tuple[str, ...]] = ("mh_steps",)
    kernel = staticmethod(sample_alias)

    mh_steps: int = 2
    lifetime: int = field(default=0, repr=False)

    @property
    def n_random(self) -> int:
        """How many random numbers a token may use."""
        return 2 * int(self.mh_steps)

    def extra(self, at: At) -> tuple[Any, ...]:
        """Return from where words have all topics, and the lifetime of tables."""
        return HEAD * self.n_components, self.lifetime
