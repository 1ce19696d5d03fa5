"""Exact collapsed Gibbs sampling, word by word (F+LDA: Yu et al., WWW 2015, section 3.2; Yu et al., VLDB 2017).

A token of word w in document d gets a new topic, with its own topic taken out of all counts, with probabilities::

    p(k)  proportional to  n_dk q_k + alpha q_k,      q_k = (n_wk + beta) / (n_k + V beta)

The first part has as many terms as the document has topics, which are kept in a list.  The second depends on the word
only; its sum is the root of an F+ tree over q, which is mended as counts change.

A token's random bits are addressed by its rank among the tokens of its word.  The order of a document's list decides
which topic a random number stands for, so `order_lists` makes it a function of the counts after every sweep.
"""

import numpy as np

from schmp_estimators.kernels import ftree
from schmp_estimators.kernels._jit import inlined, kernel
from schmp_estimators.kernels.rng import GAMMA, mix

#: A hash has 53 bits that fit a float64 in [0, 1).
_SHIFT = np.uint64(11)
_SCALE = 2.0**-53
#: A word's topics are changed in the tree one by one if K is at least so many times their number; else it is rebuilt.
_FEW = 16
#: Lists up to this length are sorted by insertion, which takes one pass where little has changed.
_SHORT = 48


@kernel
def list_topics(doc_ptr, place, topic, n_topics, document, ptr, length, listed, tokens):
    """Make the topic lists of documents from the topics of their tokens.

    Parameters
    ----------
    doc_ptr, place
        Of the TokenShard.
    topic : (n_tokens,) int16 or int32
        Topics, word-major.
    n_topics : int
        K.
    document : (n_tokens,) uint32
        Mutated: document of each token, word-major.
    ptr : (n_docs + 1,) int64
        Offsets of the lists.
    length : (n_docs,) int32
        Mutated: entries in use.
    listed, tokens : int16 or int32, int32
        Mutated: topics of a document and how many of its tokens each has, unordered.

    Notes
    -----
    8 ns per token.
    """
    slot = np.full(n_topics, -1, np.int32)
    for d in range(len(doc_ptr) - 1):
        start, n = ptr[d], 0
        for i in range(doc_ptr[d], doc_ptr[d + 1]):
            at = np.uint64(place[i])
            document[at] = d
            k = topic[at]
            if slot[k] < 0:
                slot[k] = n
                listed[start + n] = k
                tokens[start + n] = 0
                n += 1
            tokens[start + slot[k]] += 1
        for k in listed[start : start + n]:
            slot[k] = -1
        length[d] = n


@kernel
def order_lists(ptr, length, listed, tokens):
    """Sort the topic lists of documents by descending count, then topic; parameters are those of `list_topics`.

    Likely topics come first, so that searches are short.  1 ns per entry if little has changed.
    """
    for d in range(len(length)):
        topic, count = listed[ptr[d] : ptr[d] + length[d]], tokens[ptr[d] : ptr[d] + length[d]]
        if len(topic) <= _SHORT:
            for i in range(1, len(topic)):
                k, c, at = topic[i], count[i], i
                while at > 0 and (count[at - 1] < c or (count[at - 1] == c and topic[at - 1] > k)):
                    topic[at], count[at] = topic[at - 1], count[at - 1]
                    at -= 1
                topic[at], count[at] = k, c
        else:
            keys = np.empty(len(topic), np.int64)
            for i in range(len(topic)):
                keys[i] = (-np.int64(count[i]) << 32) + topic[i]
            keys.sort()
            for i in range(len(topic)):
                topic[i] = keys[i] & 0xFFFFFFFF
                count[i] = -(keys[i] >> 32)


@inlined
def _find_in_list(listed, tokens, start, n, q, ends, point):
    """Return the entry of a list in which `point` lies, and how far it lies in it."""
    block = 0
    while block < n >> 2 and point >= ends[np.uint64(block)]:
        block += 1
    if block > 0:
        point -= ends[np.uint64(block - 1)]
    at = start + (block << 2)
    last = min(at + 4, start + n) - 1
    at = min(at, last)
    weight = tokens[np.uint64(at)] * q[np.uint32(listed[np.uint64(at)])]
    while at < last and point >= weight:
        point -= weight
        at += 1
        weight = tokens[np.uint64(at)] * q[np.uint32(listed[np.uint64(at)])]
    return at, point


@kernel
def sample_cell(
    first, last, shard, block, topic, document, ptr, length, listed, tokens, total, level_ptr, alpha, beta, beta_sum, key
):
    """Sample the tokens of a shard whose words are in a block.

    Parameters
    ----------
    first, last : int
        Range of the block's words in the layout.
    shard : TokenShard
        Any.
    block : WordBlock
        Mutated: the rows of the words.
    topic : (n_tokens,) int16 or int32
        Mutated: topics, word-major.
    document, ptr, length, listed, tokens
        Of `list_topics`; the last three are mutated.
    total : (K,) int64
        Mutated: the shard's copy of the topic totals.
    level_ptr : (n_levels + 1,) int64
        Of the tree, from `ftree.level_offsets`.
    alpha, beta, beta_sum : float
        Priors, and V beta.
    key : uint64
        Stream of this sweep.

    Returns
    -------
    int
        Tokens whose topic changed.
    """
    n_topics, n_heads, fixed = len(total), len(block.heads), block.fixed
    row = np.zeros(n_topics, np.int32)
    inverse, inverse_less, q = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
    for k in range(n_topics):
        inverse[k] = 1.0 / (total[k] + beta_sum)
        inverse_less[k] = 1.0 / (total[k] - 1 + beta_sum)
    sums = np.empty(level_ptr[-1])
    ends = np.empty((length_max(length) >> 2) + 65536)
    root = 0.0
    is_base = False
    moved = 0
    for word in range(first, last):
        begin, end = shard.word_ptr[word], shard.word_ptr[word + 1]
        if begin == end:
            continue
        at = word - first
        is_head = at < n_heads
        f0, f1 = fixed.ptr[at], fixed.ptr[at + 1]
        slot = np.int64(0)
        t0 = t1 = np.int64(0)
        if is_head:
            for k in range(n_topics):
                row[k] = block.heads[at, k]
        else:
            t0, t1 = block.tail_ptr[at - n_heads], block.tail_ptr[at - n_heads + 1]
            slot = t0 + shard.word_rank[word] - begin
            for i in range(t0, t1):
                row[np.uint32(block.tails[np.uint64(i)])] += 1
        for i in range(f0, f1):
            row[fixed.topic[i]] += fixed.tokens[i]
        few = not is_head and _FEW * (t1 - t0 + f1 - f0) <= n_topics
        if not few:
            for k in range(n_topics):
                q[k] = (row[k] + beta) * inverse[k]
            root = ftree.build(q, level_ptr, sums)
            is_base = False
        else:
            if not is_base:
                for k in range(n_topics):
                    q[k] = beta * inverse[k]
                root = ftree.build(q, level_ptr, sums)
                is_base = True
            for i in range(t0, t1):
                k = np.uint32(block.tails[np.uint64(i)])
                new = (row[k] + beta) * inverse[k]
                change = new - q[k]
                if change != 0.0:
                    q[k] = new
                    root += change
                    ftree.add(level_ptr, sums, k, change)
            for i in range(f0, f1):
                k = np.uint32(fixed.topic[i])
                new = (row[k] + beta) * inverse[k]
                change = new - q[k]
                if change != 0.0:
                    q[k] = new
                    root += change
                    ftree.add(level_ptr, sums, k, change)
        counter = key + np.uint64(shard.word_first[word] + shard.word_rank[word]) * GAMMA
        for i in range(begin, end):
            d = document[np.uint64(i)]
            s = np.uint32(topic[np.uint64(i)])
            start = ptr[np.uint64(d)]
            n = np.int64(length[np.uint64(d)])
            bits = mix(counter)
            counter += GAMMA
            before = q[s]
            own = (row[s] - 1 + beta) * inverse_less[s]
            q[s] = own
            rest = root + (own - before)
            # sum of list
            mass = 0.0
            blocks = n >> 2
            base = np.uint64(start)
            for b in range(blocks):
                x0 = base; x1 = base + np.uint64(1); x2 = base + np.uint64(2); x3 = base + np.uint64(3)
                mass += (tokens[x0] * q[np.uint32(listed[x0])] + tokens[x1] * q[np.uint32(listed[x1])]) + (
                    tokens[x2] * q[np.uint32(listed[x2])] + tokens[x3] * q[np.uint32(listed[x3])]
                )
                ends[np.uint64(b)] = mass
                base += np.uint64(4)
            for j in range(n & 3):
                mass += tokens[base] * q[np.uint32(listed[base])]
                base += np.uint64(1)
            ends[np.uint64(blocks)] = mass
            mass -= own
            point = np.float64(np.int64(bits >> _SHIFT)) * _SCALE * (mass + alpha * rest)
            found = np.int64(-1)
            if point < mass:
                found, within = _find_in_list(listed, tokens, start, n, q, ends, point)
                t = np.uint32(listed[found])
                if t == s and within >= (tokens[found] - 1) * own:
                    within -= (tokens[found] - 1) * own
                    hole = point - within
                    point = mass + within if hole + own <= mass else point + own
                    found, within = _find_in_list(listed, tokens, start, n, q, ends, point)
                    t = np.uint32(listed[found])
                if t == s:
                    q[s] = before
                    continue
                ftree.add(level_ptr, sums, s, own - before)
            else:
                ftree.add(level_ptr, sums, s, own - before)
                t = np.uint32(ftree.find(q, level_ptr, sums, (point - mass) / alpha))
                if t == s:
                    ftree.add(level_ptr, sums, s, before - own)
                    q[s] = before
                    continue
            # commit
            moved += 1
            topic[np.uint64(i)] = t
            root = rest
            row[s] -= 1
            row[t] += 1
            total[s] -= 1
            total[t] += 1
            inverse[s] = inverse_less[s]
            inverse_less[s] = 1.0 / (total[s] - 1 + beta_sum)
            inverse_less[t] = inverse[t]
            inverse[t] = 1.0 / (total[t] + beta_sum)
            new = (row[t] + beta) * inverse[t]
            change = new - q[t]
            q[t] = new
            root += change
            ftree.add(level_ptr, sums, t, change)
            if is_head:
                block.heads[at, s] -= 1
                block.heads[at, t] += 1
            else:
                block.tails[np.uint64(slot + i)] = t
            # lists
            if found < 0:
                found = start
                while found < start + n and np.uint32(listed[np.uint64(found)]) != t:
                    found += 1
                if found == start + n:
                    # the list may be full; first free s
                    old = start
                    while np.uint32(listed[np.uint64(old)]) != s:
                        old += 1
                    if tokens[old] == 1:
                        listed[old] = t
                        continue
                    tokens[old] -= 1
                    listed[found] = t
                    tokens[found] = 1
                    length[np.uint64(d)] = n + 1
                    continue
            tokens[found] += 1
            old = start
            while np.uint32(listed[np.uint64(old)]) != s:
                old += 1
            tokens[old] -= 1
            if tokens[old] == 0:
                tokens[old] = tokens[start + n - 1]
                listed[old] = listed[start + n - 1]
                length[np.uint64(d)] = n - 1
        # leave
        if few:
            for i in range(t0, t1):
                k = np.uint32(block.tails[np.uint64(i)])
                if row[k] != 0:
                    row[k] = 0
                    new = beta * inverse[k]
                    change = new - q[k]
                    q[k] = new
                    root += change
                    ftree.add(level_ptr, sums, k, change)
            for i in range(f0, f1):
                k = np.uint32(fixed.topic[i])
                if row[k] != 0:
                    row[k] = 0
                    new = beta * inverse[k]
                    change = new - q[k]
                    q[k] = new
                    root += change
                    ftree.add(level_ptr, sums, k, change)
        else:
            row[:] = 0
    return moved


@kernel
def length_max(length):
    m = 0
    for x in length:
        m = max(m, x)
    return m
