"""Metropolis–Hastings with constant time for each token, document by document (LightLDA: Yuan et al., WWW 2015).

A token of word w in document d is offered topics in turn by its word and by its document, all counts without the token
itself::

    word      q(t) proportional to n_wt + beta,     accepted with f_t / f_s,  f_k = (n_dk + alpha_k) / (n_k + V beta)
    document  q(t) proportional to n_dt + alpha_t,  accepted with g_t / g_s,  g_k = (n_wk + beta) / (n_k + V beta)

Both are the topic of a random other token, of the word or of the document, or else a draw from the prior, to which the
seeds of the word belong.  The paper
draws from the document in this way, but from the word by an alias table, which is made of older counts and of the token
itself.  Here topics of tokens are up to date, and the token's own is left out.  So both proposals are independent of
the state at which they start, the counts that they are drawn from cancel, and with one shard the sampler is exact.
"""

import numpy as np

from schmp_estimators.core.jit import inlined, kernel
from schmp_estimators.core.prefetch import prefetch
from schmp_estimators.core.rng import GAMMA, MASK_PROPOSE, SCALE_PROPOSE, SHIFT_ACCEPT, mix
from schmp_estimators.lda.kernels.alias import build_alias, draw_alias
from schmp_estimators.lda.kernels.count_rows import add_to, cell_of, count_of, make_rows, take_one
from schmp_estimators.lda.kernels.documents import move_total
from schmp_estimators.lda.kernels.token_slots import fill_slots, write_back
from schmp_estimators.lda.kernels.word_priors import beta_of, draw_of_prior, prior_mass

_SCALE_ACCEPT = 2.0**-24
#: The rows and the list of the word that comes so many tokens later are fetched into the cache, their bounds before.
_AHEAD, _FAR_AHEAD = 8, 16


@inlined
def _search(ends, begin, end, x):
    """Return the first place from `begin` whose cumulative count is above x; it is there."""
    low, high = begin, end - 1
    while low < high:
        middle = (low + high) >> 1
        if ends[np.uint64(middle)] > x:
            high = middle
        else:
            low = middle + 1
    return low


@inlined
def _uniform(bits):
    """Return the number of the acceptance test."""
    return np.float64(np.int64(bits >> SHIFT_ACCEPT)) * _SCALE_ACCEPT


@inlined
def _point(bits, total):
    """Return a point between 0 and the sum of what is proposed."""
    return np.float64(np.int64(bits & MASK_PROPOSE)) * SCALE_PROPOSE * total


@kernel
def sample_cell(cell, shard, block, visits, topic, total, mh_steps, alpha, beta, beta_sum, key, seeds):  # noqa: PLR0912, PLR0915  (parts of their own would cost: see `documents`)
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
        Proposals of the word, and of the document, for each token.
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
    About 80 ns per token with two proposals of each kind, whatever K; beside these 3 ns for each of the document's
    tokens, in whichever block, and 5 ns for each of the block's, of whichever shard.
    """
    n_topics, n_docs = len(total), len(shard.doc_ptr) - 1
    # Names of their own: numba counts references whenever an array is taken out of a tuple.
    rows, cells = make_rows(block, n_topics)
    slots = fill_slots(cell, shard, block, visits, topic)
    slot_ptr, slot_shift, slot_topic, fixed_ends = slots
    fixed_ptr, fixed_topic = block.fixed.ptr, block.fixed.topic
    doc_ptr, place, first = shard.doc_ptr, shard.place, shard.block_ptr[cell]
    visit_ptr, visited, word_of = visits.ptr[cell], visits.token, visits.word
    inverse, inverse_less = 1.0 / (total + beta_sum), 1.0 / (total - 1 + beta_sum)
    n_dk, factor = np.zeros(n_topics, np.int32), alpha * inverse
    share, other = np.empty(n_topics), np.empty(n_topics, np.int32)
    alpha_sum = build_alias(alpha, share, other, np.empty(n_topics, np.int32))
    last_visit, moved = visit_ptr[n_docs], 0
    for d in range(n_docs):
        begin, end = visit_ptr[d], visit_ptr[d + 1]
        if begin == end:
            continue
        doc_start, doc_end = doc_ptr[d], doc_ptr[d + 1]
        for i in range(doc_start, doc_end):
            n_dk[np.uint32(topic[np.uint64(i)])] += 1
        for i in range(doc_start, doc_end):
            k = np.uint64(topic[np.uint64(i)])
            factor[k] = (n_dk[k] + alpha[k]) * inverse[k]
        n_others = doc_end - doc_start - 1
        doc_mass = n_others + alpha_sum
        for visit in range(begin, end):
            if visit + _FAR_AHEAD < last_visit:
                coming = np.int64(word_of[np.uint64(visit + _FAR_AHEAD)])
                prefetch(rows, 2 * coming)
                prefetch(slot_ptr, coming)
                prefetch(slot_shift, coming)
                coming = np.int64(word_of[np.uint64(visit + _AHEAD)])
                token = np.uint64(visited[np.uint64(visit + _AHEAD)])
                row_start, mask = rows[np.uint64(2 * coming)], rows[np.uint64(2 * coming + 1)]
                prefetch(cells, cell_of(row_start, mask, topic[token]))
                at = slot_ptr[np.uint64(coming)]
                n = slot_ptr[np.uint64(coming + 1)] - at
                bits = mix(key + (np.uint64(shard.first_token) + token) * np.uint64(2 * mh_steps) * GAMMA)
                prefetch(slot_topic, at + np.int64(_point(bits, n - 1.0)))
            token, word = np.uint64(visited[np.uint64(visit)]), np.int64(word_of[np.uint64(visit)])
            old = np.uint64(topic[token])
            row_start, mask = rows[np.uint64(2 * word)], rows[np.uint64(2 * word + 1)]
            slot_start = slot_ptr[np.uint64(word)]
            own_slot = slot_shift[np.uint64(word)] + np.int64(place[token])
            n_slots = slot_ptr[np.uint64(word + 1)] - slot_start - 1
            fixed_start, fixed_end = fixed_ptr[np.uint64(word)], fixed_ptr[np.uint64(word + 1)]
            n_word = n_slots + (fixed_ends[np.uint64(fixed_end - 1)] if fixed_end > fixed_start else 0)
            layout = np.int64(first) + word
            word_mass = n_word + prior_mass(seeds, layout, beta, n_topics)
            own_factor = (n_dk[old] - 1 + alpha[old]) * inverse_less[old]
            own_weight = count_of(cells, row_start, mask, old) - 1 + beta_of(seeds, layout, old, beta)
            own_weight *= inverse_less[old]
            counter = key + (np.uint64(shard.first_token) + token) * np.uint64(2 * mh_steps) * GAMMA
            s, s_factor, s_weight = old, own_factor, own_weight
            for _ in range(mh_steps):
                bits = mix(counter)
                counter += GAMMA
                x = _point(bits, word_mass)
                if x < n_slots:
                    at = slot_start + np.int64(x)
                    t = np.uint64(slot_topic[np.uint64(at + 1 if at >= own_slot else at)])
                elif x < n_word:
                    t = np.uint64(fixed_topic[_search(fixed_ends, fixed_start, fixed_end, np.int64(x) - n_slots)])
                else:
                    t = draw_of_prior(seeds, layout, x - n_word, beta, n_topics)
                t_factor = own_factor if t == old else factor[t]
                if t != s and _uniform(bits) * s_factor < t_factor:
                    s, s_factor, s_weight = t, t_factor, -1.0
                bits = mix(counter)
                counter += GAMMA
                x = _point(bits, doc_mass)
                if x < n_others:
                    at = doc_start + np.int64(x)
                    t = np.uint64(topic[np.uint64(at + 1 if at >= np.int64(token) else at)])
                else:
                    t = np.uint64(draw_alias(share, other, 0, n_topics, (x - n_others) / alpha_sum))
                if t != s:
                    if s_weight < 0.0:
                        s_weight = own_weight
                        if s != old:
                            s_count = count_of(cells, row_start, mask, s)
                            s_weight = (s_count + beta_of(seeds, layout, s, beta)) * inverse[s]
                    t_weight = own_weight
                    if t != old:
                        t_count = count_of(cells, row_start, mask, t)
                        t_weight = (t_count + beta_of(seeds, layout, t, beta)) * inverse[t]
                    if _uniform(bits) * s_weight < t_weight:
                        s, s_weight = t, t_weight
                        s_factor = own_factor if t == old else factor[t]
            if s == old:
                continue
            moved += 1
            topic[token] = s
            slot_topic[np.uint64(own_slot)] = s
            take_one(cells, row_start, mask, old)
            add_to(cells, row_start, mask, s, np.int32(1))
            n_dk[old] -= 1
            n_dk[s] += 1
            move_total(total, inverse, inverse_less, old, s, beta_sum)
            factor[old] = (n_dk[old] + alpha[old]) * inverse[old]
            factor[s] = (n_dk[s] + alpha[s]) * inverse[s]
        for i in range(doc_start, doc_end):
            k = np.uint64(topic[np.uint64(i)])
            n_dk[k] = 0
            factor[k] = alpha[k] * inverse[k]
    write_back(slots, block)
    return moved
