"""Exact collapsed Gibbs sampling, document by document, with short sums (SparseLDA: Yao et al., KDD 2009, section 3.4).

A token of word w in document d gets a new topic, with its own topic taken out of all counts, with probabilities::

    p(k)  proportional to  n_wk (n_dk + alpha_k) / (n_k + V beta)      word: the topics of the word
                         + beta n_dk / (n_k + V beta)                  document: those of the document
                         + beta alpha_k / (n_k + V beta)               smoothing: all topics

and if the word is seeded also those of the topics of its seeds, as if they were tokens of it.

The factor of n_wk is kept for all topics while a document is at hand, and the sums of the second and the third part are
mended as counts change, so that only the topics of the word have to be summed up; not even these for a word that comes
again in the document, as long as nothing has moved.  The token's own topic comes first in the draw, with all three
parts at once: mostly it is kept, and nothing has to be searched or mended.  Then come seeds, word, document, smoothing;
the topics of a word begin with the most frequent ones, and those of the smoothing are leaves of an F+ tree.
"""

import numpy as np

from schmp_estimators.core.jit import inlined, kernel
from schmp_estimators.core.prefetch import prefetch
from schmp_estimators.core.rng import GAMMA, mix
from schmp_estimators.lda.kernels import ftree
from schmp_estimators.lda.kernels.documents import ROUNDING, move_total
from schmp_estimators.lda.kernels.word_lists import entry_of, list_words, sum_entries
from schmp_estimators.lda.kernels.word_priors import beta_of, find_seed, sum_seeds

#: A hash has 53 bits that fit a float64 in [0, 1).
_SHIFT = np.uint64(11)
_SCALE = 2.0**-53
#: More tokens than any word has.
_NEVER = 1 << 62
#: The lists of the words that come so many tokens later are fetched into the cache, their bounds before that.
_AHEAD, _FAR_AHEAD = 6, 12


@inlined
def _draw_of_word(entries, start, end, skipped, weights, point):
    """Return the entry in which `point` lies, one entry left out; it is `end` if rounding leads beyond the last."""
    at = start
    while at < end:
        if at != skipped:
            point -= weights[np.uint32(entries[np.uint64(2 * at)])] * entries[np.uint64(2 * at + 1)]
            if point < 0.0:
                break
        at += 1
    return at


@inlined
def _draw_of_document(listed, n_listed, skipped, n_dk, inverse, point):
    """Return the topic in which `point` lies, one topic left out: that one if rounding leads beyond the last."""
    found = skipped
    for j in range(n_listed):
        k = np.uint64(listed[np.uint64(j)])
        if k != skipped:
            point -= n_dk[k] * inverse[k]
            if point < 0.0:
                found = k
                break
    return found


@inlined
def _sum_document(listed, n_listed, skipped, n_dk, inverse):
    """Return the sum of ``n_dk * inverse`` over the listed topics but one."""
    total = 0.0
    for j in range(n_listed):
        k = np.uint64(listed[np.uint64(j)])
        if k != skipped:
            total += n_dk[k] * inverse[k]
    return total


@inlined
def _sum_others(entries, start, end, skipped, weights):
    """Return the sum of ``count * weights[topic]`` over the entries but one."""
    total = 0.0
    for at in range(start, end):
        if at != skipped:
            total += weights[np.uint32(entries[np.uint64(2 * at)])] * entries[np.uint64(2 * at + 1)]
    return total


@inlined
def _move_in_entries(entries, start, end, old_at, new_at, new):
    """Move a token between entries of a list, to `new_at` or, if that is `end`, to a new one; return the new end.

    An entry that has grown changes places with the one before if that is smaller.
    """
    old_count, new_count = np.uint64(2 * old_at + 1), np.uint64(2 * new_at + 1)
    entries[old_count] -= 1
    if new_at == end:
        if entries[old_count] == 0:
            entries[np.uint64(2 * old_at)] = new
            entries[old_count] = 1
            return end
        entries[np.uint64(2 * end)] = new
        entries[np.uint64(2 * end + 1)] = 1
        return end + 1
    entries[new_count] += 1
    before = new_count - np.uint64(2)
    if new_at > start and entries[new_count] > entries[before]:
        count = entries[new_count]
        entries[new_count] = entries[before]
        entries[new_count - np.uint64(1)] = entries[before - np.uint64(1)]
        entries[before] = count
        entries[before - np.uint64(1)] = new
        if old_at == new_at - 1:
            old_count = new_count
    if entries[old_count] > 0:
        return end
    last = np.uint64(2 * end - 1)
    entries[old_count] = entries[last]
    entries[old_count - np.uint64(1)] = entries[last - np.uint64(1)]
    return end - 1


@kernel
def sample_cell(cell, shard, block, visits, topic, total, level_ptr, alpha, beta, beta_sum, key, seeds):  # noqa: PLR0912, PLR0915  (parts of their own would cost: see `documents`)
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
    level_ptr : (n_levels + 1,) int64
        Of a tree over the topics, from `ftree.level_offsets`.
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
    About 50 ns per token, 0.7 ns per topic of the word for the first of its tokens in a document and 150 ns for a token
    that moves; beside these 2 ns for each of the document's tokens, in whichever block, and what `list_words` takes.
    """
    n_topics, n_heads, n_docs = len(total), len(block.heads), len(shard.doc_ptr) - 1
    bounds, entries = list_words(block, n_topics, 0, _NEVER)
    # Names of their own: numba counts references whenever an array is taken out of a tuple.
    heads, tails, tail_ptr = block.heads, block.tails, block.tail_ptr
    doc_ptr, place, word_ptr, word_rank = shard.doc_ptr, shard.place, shard.word_ptr, shard.word_rank
    first = shard.block_ptr[cell]
    visit_ptr, visited, word_of = visits.ptr[cell], visits.token, visits.word
    inverse, inverse_less = 1.0 / (total + beta_sum), 1.0 / (total - 1 + beta_sum)
    spread = alpha * inverse  # what the tree is over: the smoothing without beta
    sums = np.empty(level_ptr[-1])
    smooth = ftree.build(spread, level_ptr, sums)
    n_dk, factor = np.zeros(n_topics, np.int32), spread.copy()
    listed, slot = np.empty(n_topics, np.int32), np.empty(n_topics, np.int32)
    last_visit = visit_ptr[n_docs]
    moved = 0
    for d in range(n_docs):
        begin, end = visit_ptr[d], visit_ptr[d + 1]
        if begin == end:
            continue
        n_listed = 0
        for i in range(doc_ptr[d], doc_ptr[d + 1]):
            k = np.uint64(topic[np.uint64(i)])
            if n_dk[k] == 0:
                slot[k] = n_listed
                listed[n_listed] = k
                n_listed += 1
            n_dk[k] += 1
        of_document = 0.0
        for j in range(n_listed):
            k = np.uint64(listed[j])
            of_document += n_dk[k] * inverse[k]
            factor[k] = (n_dk[k] + alpha[k]) * inverse[k]
        known, of_word = np.int64(-1), 0.0
        row_start, row_end = np.int64(0), np.int64(0)
        for visit in range(begin, end):
            if visit + _FAR_AHEAD < last_visit:
                prefetch(bounds, 2 * word_of[np.uint64(visit + _FAR_AHEAD)])
                coming = bounds[np.uint64(2 * word_of[np.uint64(visit + _AHEAD)])]
                prefetch(entries, 2 * coming)
                prefetch(entries, 2 * coming + 16)
                prefetch(entries, 2 * coming + 32)
            token, word = np.uint64(visited[np.uint64(visit)]), np.int64(word_of[np.uint64(visit)])
            old = np.uint64(topic[token])
            uniform = np.float64(np.int64(mix(key + (np.uint64(shard.first_token) + token) * GAMMA) >> _SHIFT)) * _SCALE
            if word != known:
                known = word
                row_start, row_end = bounds[np.uint64(2 * word)], bounds[np.uint64(2 * word + 1)]
                of_word = sum_entries(entries, row_start, row_end, factor)
            old_at = entry_of(entries, row_start, row_end, old)
            n_old = entries[np.uint64(2 * old_at + 1)]
            layout = np.int64(first) + word
            own = (n_dk[old] - 1 + alpha[old]) * (n_old - 1 + beta_of(seeds, layout, old, beta)) * inverse_less[old]
            seed_others = sum_seeds(seeds, layout, old, n_dk, alpha, inverse)
            word_others = of_word - n_old * factor[old]
            if word_others < ROUNDING * of_word:
                word_others = _sum_others(entries, row_start, row_end, old_at, factor)
            document_others = of_document - n_dk[old] * inverse[old]
            if document_others < ROUNDING * of_document:
                document_others = _sum_document(listed, n_listed, old, n_dk, inverse)
            smooth_others = max(0.0, smooth - spread[old])
            point = uniform * (own + seed_others + word_others + beta * (document_others + smooth_others)) - own
            if point < 0.0:
                continue
            new, new_at = old, row_end
            if point < seed_others:
                new = find_seed(seeds, layout, old, n_dk, alpha, inverse, point)
                new_at = entry_of(entries, row_start, row_end, new)
            elif point - seed_others < word_others:
                point -= seed_others
                new_at = _draw_of_word(entries, row_start, row_end, old_at, factor, point)
                if new_at < row_end:
                    new = np.uint64(entries[np.uint64(2 * new_at)])
            else:
                point = (point - seed_others - word_others) / beta
                if point < document_others:
                    new = _draw_of_document(listed, n_listed, old, n_dk, inverse, point)
                else:
                    kept = spread[old]
                    ftree.put(spread, level_ptr, sums, smooth, old, 0.0)
                    new = np.uint64(ftree.find(spread, level_ptr, sums, point - document_others))
                    ftree.put(spread, level_ptr, sums, smooth, old, kept)
                new_at = entry_of(entries, row_start, row_end, new)
            if new == old:
                continue
            moved += 1
            topic[token] = new
            known = np.int64(-1)
            row_end = _move_in_entries(entries, row_start, row_end, old_at, new_at, new)
            bounds[np.uint64(2 * word + 1)] = row_end
            if word < n_heads:
                heads[word, old] -= 1
                heads[word, new] += 1
            else:
                rank = word_rank[np.uint64(layout)] + np.int64(place[token]) - word_ptr[np.uint64(layout)]
                tails[np.uint64(tail_ptr[np.uint64(word - n_heads)] + rank)] = new
            of_document -= n_dk[old] * inverse[old] + n_dk[new] * inverse[new]
            n_dk[old] -= 1
            n_dk[new] += 1
            if n_dk[new] == 1:
                slot[new] = n_listed
                listed[np.uint64(n_listed)] = new
                n_listed += 1
            if n_dk[old] == 0:
                n_listed -= 1
                other = listed[np.uint64(n_listed)]
                listed[np.uint64(slot[old])] = other
                slot[np.uint64(other)] = slot[old]
            move_total(total, inverse, inverse_less, old, new, beta_sum)
            of_document += n_dk[old] * inverse[old] + n_dk[new] * inverse[new]
            smooth = ftree.put(spread, level_ptr, sums, smooth, old, alpha[old] * inverse[old])
            smooth = ftree.put(spread, level_ptr, sums, smooth, new, alpha[new] * inverse[new])
            factor[old] = (n_dk[old] + alpha[old]) * inverse[old]
            factor[new] = (n_dk[new] + alpha[new]) * inverse[new]
        for j in range(n_listed):
            k = np.uint64(listed[j])
            n_dk[k] = 0
            factor[k] = spread[k]
    return moved
