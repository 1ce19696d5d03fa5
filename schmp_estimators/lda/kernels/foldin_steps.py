"""The steps of fold-in: expectation-maximisation for the topic pseudo-counts of one document.

Notation as in `lda_foldin`; a `model` is its TopicModel.
"""

import numpy as np

from schmp_estimators.core.jit import inlined, kernel, maker


@inlined
def dot(topic, tokens, values, first, last):
    """Return the sum of ``tokens[i] * values[topic[i]]``, in four lanes, so that the additions overlap."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = last - (last - first) % 4
    for i in range(first, whole, 4):
        j = np.uint64(i)
        a += tokens[j] * values[np.uint32(topic[j])]
        b += tokens[j + np.uint64(1)] * values[np.uint32(topic[j + np.uint64(1)])]
        c += tokens[j + np.uint64(2)] * values[np.uint32(topic[j + np.uint64(2)])]
        d += tokens[j + np.uint64(3)] * values[np.uint32(topic[j + np.uint64(3)])]
    for i in range(whole, last):
        a += tokens[np.uint64(i)] * values[np.uint32(topic[np.uint64(i)])]
    return (a + b) + (c + d)


@inlined
def _add(topic, tokens, factor, sums, first, last):
    """Add ``factor * tokens[i]`` to ``sums[topic[i]]``."""
    for i in range(first, last):
        j = np.uint64(i)
        sums[np.uint32(topic[j])] += factor * tokens[j]


@kernel
def full_step(words, counts, model, weight, share, gain):
    """Do one step for all topics, and return the sum of the absolute changes of `weight`.

    `words` (n,) and `counts` (n,) are the document, `weight` (K,) float64 is mutated, `share` and `gain` (K,) float64
    are scratch.  0.6 ns per entry of the words' rows, 1 ns per topic.
    """
    (ptr, topic, tokens), inverse, alpha, _, beta, _ = model
    common = 0.0
    for k in range(len(weight)):
        share[k] = weight[k] * inverse[k]
        common += share[k]
        gain[k] = 0.0
    common *= beta
    ratios = 0.0
    for i in range(len(words)):
        first, last = ptr[words[i]], ptr[words[i] + 1]
        ratio = counts[i] / (common + dot(topic, tokens, share, first, last))
        ratios += ratio
        _add(topic, tokens, ratio, gain, first, last)
    ratios *= beta
    change = 0.0
    for k in range(len(weight)):
        new = alpha[k] + share[k] * (gain[k] + ratios)
        change += abs(new - weight[k])
        weight[k] = new
    return change


@inlined
def select_topics(weight, alpha, least, active, slot):
    """List the topics of at least `least` tokens in `active`, number them in `slot` (K,), and return how many they are.

    `weight` (K,) are the pseudo-counts, of which `alpha` (K,) is the prior.
    """
    n_active = 0
    for k in range(len(weight)):
        slot[k] = -1
        if weight[k] >= alpha[k] + least:
            slot[k] = n_active
            active[n_active] = k
            n_active += 1
    return n_active


@maker
def gather_rows(words, model, weight, slot, share, held, ptr, topic, tokens):
    """Copy the entries of active topics from the rows of the words, and sum up what the others contribute.

    Parameters
    ----------
    words, model, weight
        The document, the topics and the pseudo-counts.
    slot : (K,) int32
        Numbers of the active topics, -1 for the others.
    share : (K,) float64
        Scratch.
    held : (n,) float64
        Mutated: ``sum of weight_k phi_wk`` over the topics that are not active.
    ptr, topic, tokens : (n + 1,) int64, int32, float64
        Mutated: the compact rows; the last two are replaced if they are too short.

    Returns
    -------
    topic, tokens

    Notes
    -----
    2 ns per entry of the rows.
    """
    (row_ptr, row_topic, row_tokens), inverse, _, _, beta, _ = model
    common = 0.0
    for k in range(len(weight)):
        share[k] = weight[k] * inverse[k]
        if slot[k] < 0:
            common += share[k]
    common *= beta
    n_entries = 0
    for i in range(len(words)):
        first, last = row_ptr[words[i]], row_ptr[words[i] + 1]
        if n_entries + last - first > len(topic):
            topic = np.concatenate((topic, np.empty(len(topic) + last - first, np.int32)))
            tokens = np.concatenate((tokens, np.empty(len(tokens) + last - first, np.float64)))
        sparse = 0.0
        ptr[i] = n_entries
        for j in range(first, last):
            at = slot[row_topic[j]]
            topic[n_entries] = at
            tokens[n_entries] = row_tokens[j]
            n_entries += at >= 0
            if at < 0:
                sparse += row_tokens[j] * share[row_topic[j]]
        held[i] = common + sparse
    ptr[len(words)] = n_entries
    return topic, tokens


@kernel
def active_steps(counts, model, weight, active, share, gain, held, ptr, topic, tokens, max_steps, tolerance):
    """Repeat the step for the active topics until `weight` changes no more than `tolerance`, or `max_steps` times.

    `active` (n_active,) int32 are the topics of the compact rows ``ptr, topic, tokens``; `share` and `gain` (K,) are
    scratch; `weight` (K,) is mutated, `held` (n,) comes from `gather_rows`.  0.8 ns per entry and step.
    """
    _, inverse, alpha, _, beta, _ = model
    for _ in range(max_steps):
        common = 0.0
        for a in range(len(active)):
            share[a] = weight[active[a]] * inverse[active[a]]
            common += share[a]
            gain[a] = 0.0
        common *= beta
        ratios = 0.0
        for i in range(len(counts)):
            ratio = counts[i] / (held[i] + common + dot(topic, tokens, share, ptr[i], ptr[i + 1]))
            ratios += ratio
            _add(topic, tokens, ratio, gain, ptr[i], ptr[i + 1])
        ratios *= beta
        change = 0.0
        for a in range(len(active)):
            new = alpha[active[a]] + share[a] * (gain[a] + ratios)
            change += abs(new - weight[active[a]])
            weight[active[a]] = new
        if change <= tolerance:
            break
