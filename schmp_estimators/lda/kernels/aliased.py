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

import numpy as np

from schmp_estimators.core.jit import inlined, kernel
from schmp_estimators.core.prefetch import prefetch
from schmp_estimators.core.rng import GAMMA, mix
from schmp_estimators.lda.kernels.alias_tables import (
    SCALE,
    draw_other,
    make_smoothing,
    make_table,
    no_smoothing,
    no_tables,
    unit,
)
from schmp_estimators.lda.kernels.documents import ROUNDING, move_total
from schmp_estimators.lda.kernels.word_lists import entry_of, list_words, sum_entries
from schmp_estimators.lda.kernels.word_priors import beta_of, find_seed, sum_seeds

#: Entries beyond one for each token: topics that a word has lost stay listed until its table is made anew.
_SPARE = 4
#: The lists of the words that come so many tokens later are fetched into the cache, their bounds before that.
_AHEAD, _FAR_AHEAD = 6, 12


@inlined
def _at_topic(entries, start, end, topic):
    """Return the entry of a topic; `end` if there is none."""
    return start + np.int64(topic) if end < 0 else entry_of(entries, start, end, topic)


@inlined
def _count_at(entries, at, end):
    """Return the count of an entry, 0 at `end`."""
    return np.int32(0) if at == end else entries[np.uint64(2 * at + 1)]


@inlined
def _sum_of_word(entries, start, end, listed, n_listed, of_topic):
    """Return the sum of ``n_wk * of_topic`` over the topics of the word, or of the document if the word has all."""
    total = 0.0
    if end >= 0:
        total = sum_entries(entries, start, end, of_topic)
    else:
        for j in range(n_listed):
            k = np.uint64(listed[np.uint64(j)])
            total += of_topic[k] * entries[np.uint64(2 * start + 1) + np.uint64(2) * k]
    return total


@inlined
def _find_of_word(entries, start, end, listed, n_listed, of_topic, skipped, point):
    """Return the entry in which `point` lies, in the order of `_sum_of_word`, or -1; and the sum up to its end.

    The topic `skipped` is left out.
    """
    found, before = np.int64(-1), 0.0
    for j in range(n_listed if end < 0 else end - start):
        at = start + (np.int64(listed[np.uint64(j)]) if end < 0 else np.int64(j))
        k = np.uint64(entries[np.uint64(2 * at)])
        if k != skipped:
            before += of_topic[k] * entries[np.uint64(2 * at + 1)]
            if before > point:
                found = at
                break
    return found, before


@inlined
def _find_of_document(listed, n_listed, of_topic, skipped, point):
    """Return the topic in which `point` lies, or `skipped`, which is left out; and the sum up to its end."""
    found, before = skipped, 0.0
    for j in range(n_listed):
        k = np.uint64(listed[np.uint64(j)])
        if k != skipped:
            before += of_topic[k]
            if before > point:
                found = k
                break
    return found, before


@kernel
def sample_cell(  # noqa: PLR0912, PLR0915  (parts of their own would cost: see `documents`)
    cell, shard, block, visits, topic, total, mh_steps, whole_from, lifetime, alpha, beta, beta_sum, key, seeds
):
    """Sample the tokens of a shard whose words are in a block.

    Parameters
    ----------
    cell : int
        Number of the block.
    shard : TokenShard
        Any.
    block : WordBlock
        Mutated: the rows of the words.
    visits : Visits
        The shard's tokens in the order in which they are sampled.
    topic : (n_tokens,) int16 or int32
        Mutated: topics in document order.
    total : (K,) int64
        Mutated: the shard's copy of the topic totals.
    mh_steps : int
        Proposals for each token.
    whole_from : int
        Words of at least so many tokens get an entry for every topic, and sums over the topics of documents.
    lifetime : int
        Tokens after which a table is made anew; 0 for as many as it has slots.
    alpha : (K,) float64
        Document-topic priors.
    beta : float
        Word prior.
    beta_sum : float or (K,) float64
        V beta; where words are seeded, with the seeds of each topic.
    key : uint64
        Stream of this sweep.
    seeds : SeedRows or None
        Of all words.

    Returns
    -------
    int
        Tokens whose topic changed.

    Notes
    -----
    About 170 ns per token with two proposals, and 15 ns for each slot of a table that is made.
    """
    n_topics, n_heads, n_docs = len(total), len(block.heads), len(shard.doc_ptr) - 1
    bounds, entries = list_words(block, n_topics, _SPARE, whole_from)
    tables, smoothing = no_tables(len(bounds) >> 1, len(entries) >> 1, n_topics), no_smoothing(n_topics)
    spread, spread_less, all_share, all_other, smooth, smooth_left = smoothing
    # Names of their own: numba counts references whenever an array is taken out of a tuple.
    slots, sums, left, stale, share, other = (
        tables.slots, tables.sums, tables.left, tables.stale, tables.share, tables.other,
    )  # fmt: skip
    heads, tails, tail_ptr = block.heads, block.tails, block.tail_ptr
    doc_ptr, place, word_ptr, word_rank = shard.doc_ptr, shard.place, shard.word_ptr, shard.word_rank
    first = shard.block_ptr[cell]
    visit_ptr, visited, word_of = visits.ptr[cell], visits.token, visits.word
    inverse, inverse_less = 1.0 / (total + beta_sum), 1.0 / (total - 1 + beta_sum)
    n_dk, of_topic = np.zeros(n_topics, np.int32), np.zeros(n_topics)
    listed, slot_of = np.empty(n_topics, np.int32), np.empty(n_topics, np.int32)
    last_visit, moved = visit_ptr[n_docs], 0
    for d in range(n_docs):
        begin, end = visit_ptr[d], visit_ptr[d + 1]
        if begin == end:
            continue
        n_listed = 0
        for i in range(doc_ptr[d], doc_ptr[d + 1]):
            k = np.uint64(topic[np.uint64(i)])
            if n_dk[k] == 0:
                slot_of[k] = n_listed
                listed[n_listed] = k
                n_listed += 1
            n_dk[k] += 1
        of_document = 0.0
        for j in range(n_listed):
            k = np.uint64(listed[j])
            of_topic[k] = n_dk[k] * inverse[k]
            of_document += of_topic[k]
        known, of_word = np.int64(-1), 0.0
        for visit in range(begin, end):
            if visit + _FAR_AHEAD < last_visit:
                prefetch(bounds, 2 * word_of[np.uint64(visit + _FAR_AHEAD)])
                coming = bounds[np.uint64(2 * word_of[np.uint64(visit + _AHEAD)])]
                prefetch(entries, 2 * coming)
                prefetch(entries, 2 * coming + 16)
                prefetch(stale, 2 * coming)
            token, word = np.uint64(visited[np.uint64(visit)]), np.int64(word_of[np.uint64(visit)])
            old = np.uint64(topic[token])
            if smooth_left[0] == 0:
                make_smoothing(alpha, inverse, inverse_less, lifetime, tables.order, smoothing)
            smooth_left[0] -= 1
            if left[np.uint64(word)] == 0:
                make_table(word, bounds, entries, alpha, inverse, inverse_less, lifetime, tables)
            left[np.uint64(word)] -= 1
            start, stop = bounds[np.uint64(2 * word)], bounds[np.uint64(2 * word + 1)]
            if word != known:
                known = word
                of_word = _sum_of_word(entries, start, stop, listed, n_listed, of_topic)
            old_at = _at_topic(entries, start, stop, old)
            n_old = entries[np.uint64(2 * old_at + 1)]
            layout = np.int64(first) + word
            own_beta = beta_of(seeds, layout, old, beta)
            own_p = (n_dk[old] - 1 + alpha[old]) * (n_old - 1 + own_beta) * inverse_less[old]
            own_q = (
                (n_dk[old] - 1) * (n_old - 1 + own_beta) * inverse_less[old]
                + stale[np.uint64(2 * old_at + 1)] + beta * spread_less[old]
            )  # fmt: skip
            own_q += (own_beta - beta) * alpha[old] * inverse_less[old]
            seed_others = sum_seeds(seeds, layout, old, n_dk, alpha, inverse)
            # The first two parts come up to the tables' anew where one term has been nearly all there was.
            word_others = of_word - n_old * of_topic[old]
            if word_others < ROUNDING * of_word:
                _, word_others = _find_of_word(entries, start, stop, listed, n_listed, of_topic, old, np.inf)
            document_others = of_document - of_topic[old]
            if document_others < ROUNDING * of_document:
                _, document_others = _find_of_document(listed, n_listed, of_topic, old, np.inf)
            table_others = max(0.0, sums[np.uint64(word)] - stale[np.uint64(2 * old_at)])
            smooth_others = max(0.0, smooth[0] - spread[old])
            mass = own_q + seed_others + word_others + beta * document_others + table_others + beta * smooth_others
            counter = key + (np.uint64(shard.first_token) + token) * np.uint64(2 * mh_steps) * GAMMA
            s, s_at, s_p, s_q = old, old_at, own_p, own_q
            for _ in range(mh_steps):
                bits, accept = mix(counter), unit(mix(counter + GAMMA))
                counter += GAMMA + GAMMA
                point = unit(bits) * mass - own_q
                t, t_at = old, old_at
                if 0.0 <= point < seed_others:
                    t = find_seed(seeds, layout, old, n_dk, alpha, inverse, point)
                    t_at = _at_topic(entries, start, stop, t)
                elif point >= 0.0:
                    point -= seed_others
                    if point < word_others:
                        found, _ = _find_of_word(entries, start, stop, listed, n_listed, of_topic, old, point)
                        if found >= 0:
                            t, t_at = np.uint64(entries[np.uint64(2 * found)]), found
                    elif point - word_others < beta * document_others:
                        t, _ = _find_of_document(listed, n_listed, of_topic, old, (point - word_others) / beta)
                        t_at = _at_topic(entries, start, stop, t)
                    else:
                        point -= word_others + beta * document_others
                        if point < table_others:
                            t_at = start + draw_other(
                                share, other, start, np.int64(slots[np.uint64(word)]), 2, stale, old_at - start,
                                table_others, point / table_others, bits,
                            )  # fmt: skip
                            t = np.uint64(entries[np.uint64(2 * t_at)])
                        elif smooth_others > 0.0:
                            uniform = min((point - table_others) / (beta * smooth_others), 1.0 - SCALE)
                            found = draw_other(
                                all_share, all_other, 0, n_topics, 1, spread, np.int64(old), smooth_others,
                                uniform, bits,
                            )  # fmt: skip
                            t = np.uint64(found)
                            t_at = _at_topic(entries, start, stop, t)
                if t == s:
                    continue
                t_p, t_q = own_p, own_q
                if t != old:
                    t_beta = beta_of(seeds, layout, t, beta)
                    n_t = _count_at(entries, t_at, stop) + t_beta
                    t_p = (of_topic[t] + alpha[t] * inverse[t]) * n_t
                    t_q = of_topic[t] * n_t + beta * spread[t]
                    t_q += (t_beta - beta) * alpha[t] * inverse[t]
                    if t_at != stop:
                        t_q += stale[np.uint64(2 * t_at)]
                if accept * s_p * t_q < t_p * s_q:
                    s, s_at, s_p, s_q = t, t_at, t_p, t_q
            if s == old:
                continue
            moved += 1
            topic[token] = s
            known = np.int64(-1)
            entries[np.uint64(2 * old_at + 1)] -= 1
            if s_at == stop:
                if stop == bounds[np.uint64(2 * word + 2)]:
                    make_table(word, bounds, entries, alpha, inverse, inverse_less, lifetime, tables)
                    stop = bounds[np.uint64(2 * word + 1)]
                entries[np.uint64(2 * stop)] = s
                entries[np.uint64(2 * stop + 1)] = 1
                stale[np.uint64(2 * stop)] = 0.0
                stale[np.uint64(2 * stop + 1)] = 0.0
                bounds[np.uint64(2 * word + 1)] = stop + 1
            else:
                entries[np.uint64(2 * s_at + 1)] += 1
            if word < n_heads:
                heads[word, old] -= 1
                heads[word, s] += 1
            else:
                rank = word_rank[np.uint64(layout)] + np.int64(place[token]) - word_ptr[np.uint64(layout)]
                tails[np.uint64(tail_ptr[np.uint64(word - n_heads)] + rank)] = s
            of_document -= of_topic[old] + of_topic[s]
            n_dk[old] -= 1
            n_dk[s] += 1
            if n_dk[s] == 1:
                slot_of[s] = n_listed
                listed[np.uint64(n_listed)] = s
                n_listed += 1
            if n_dk[old] == 0:
                n_listed -= 1
                other_topic = listed[np.uint64(n_listed)]
                listed[np.uint64(slot_of[old])] = other_topic
                slot_of[np.uint64(other_topic)] = slot_of[old]
            move_total(total, inverse, inverse_less, old, s, beta_sum)
            of_topic[old] = n_dk[old] * inverse[old]
            of_topic[s] = n_dk[s] * inverse[s]
            of_document += of_topic[old] + of_topic[s]
        for j in range(n_listed):
            k = np.uint64(listed[j])
            n_dk[k] = 0
            of_topic[k] = 0.0
    return moved
