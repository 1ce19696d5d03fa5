"""What describes topics: the best words of each, and how many documents, or windows, have two of them.

All numbers are integers, so that their sums can be made in any order.
"""

import math

import numpy as np

from schmp_estimators.core.jit import inlined, kernel, part


@inlined
def _better(score, weight, word, other_score, other_weight, other_word):
    """Return whether a word comes before another one: by score, then by weight, then by number."""
    if score != other_score:
        return score > other_score
    return weight > other_weight or (weight == other_weight and word < other_word)


@part
def _insert(score, weight, word, filled, scores, weights, words):
    """Put a word where it belongs among the best ones of a topic; the last three are mutated."""
    at = filled
    while at > 0 and _better(score, weight, word, scores[at - 1], weights[at - 1], words[at - 1]):
        at -= 1
    for to in range(min(filled, words.size - 1), at, -1):
        scores[to], weights[to], words[to] = scores[to - 1], weights[to - 1], words[to - 1]
    if at < words.size:
        scores[at], weights[at], words[at] = score, weight, word


@part
def _has(topic, first, last, sought):
    """Return whether a topic is among those of a word, which ascend."""
    end = last
    while first < last:
        middle = (first + last) // 2
        if topic[middle] < sought:
            first = middle + 1
        else:
            last = middle
    return first < end and topic[first] == sought


@kernel
def rank_words(ptr, topic, tokens, prior, by_relevance, discount, order, words, weights):
    """Find the best words of each topic.

    A word scores its weight in the topic, tokens plus prior; by relevance the logarithm of it, less the discount of the
    word.  Of equal scores the larger weight comes first, then the lower number.

    Parameters
    ----------
    ptr, topic, tokens : arrays of `TopicRows`
        Tokens may be float64, too.
    prior : float
        What every word has in every topic.
    by_relevance : bool
        What to rank by.
    discount : (n_words,) float64
        Of each word.
    order : (n_words,) int64
        Words by their discount, the lowest first, then by number: in this order a topic takes words that it has no
        tokens of.
    words : (n_topics, n_best) int64
        Mutated: the best words; there are at least as many words as that.
    weights : (n_topics, n_best) float64
        Mutated: their weights.

    Notes
    -----
    Time is proportional to the entries, and memory to the result.
    """
    n_topics, n_best = words.shape
    filled, scores = np.zeros(n_topics, np.int64), np.empty((n_topics, n_best))
    for word in range(ptr.size - 1):
        for entry in range(ptr[word], ptr[word + 1]):
            k = topic[entry]
            weight = tokens[entry] + prior
            score = math.log(weight) - discount[word] if by_relevance else weight
            if filled[k] == n_best and not score >= scores[k, -1]:
                continue
            _insert(score, weight, word, filled[k], scores[k], weights[k], words[k])
            filled[k] = min(filled[k] + 1, n_best)
    for k in range(n_topics):
        for word in order:
            score = math.log(prior) - discount[word] if by_relevance else prior
            if filled[k] == n_best and not _better(score, prior, word, scores[k, -1], weights[k, -1], words[k, -1]):
                break  # nor are those that follow
            if not _has(topic, ptr[word], ptr[word + 1], k):
                _insert(score, prior, word, filled[k], scores[k], weights[k], words[k])
                filled[k] = min(filled[k] + 1, n_best)


@part
def _leave(word, window, slot_ptr, slot, since, documents):
    """Count the windows in which a word was beside each of the best words of its topics, up to but for `window`."""
    n_best = since.shape[1]
    for at in range(slot_ptr[word], slot_ptr[word + 1]):
        k = slot[at] // n_best
        i = slot[at] - k * n_best
        if since[k, i] >= 0:
            for j in range(n_best):
                if since[k, j] >= 0:
                    upper, lower = max(i, j), min(i, j)
                    documents[k, upper * (upper + 1) // 2 + lower] += window - max(since[k, i], since[k, j])
            since[k, i] = -1


@kernel
def count_in_windows(ptr, words, slot_ptr, slot, width, since, documents):
    """Count the windows of each pair among the best words of each topic.

    A window is `width` consecutive tokens of a text, or a shorter text.  As in gensim, a word comes into a window with
    its token at the end, and leaves it with the first token that leaves it, also if it has another one there.

    Parameters
    ----------
    ptr : (n_texts + 1,) int64
        Offsets of the texts in `words`.
    words : (n_tokens,) int32
        Columns of the words, -1 for words that are best ones of no topic.
    slot_ptr, slot : arrays of `BestWords`
        Where a word is among the best ones.
    width : int
        Tokens of a window.
    since : (n_topics, n_best) int64
        -1, for use here only: from which window on a word has been there.
    documents : (n_topics, n_best * (n_best + 1) / 2) int64
        Mutated: adds the numbers of windows of a topic in which its words of rank i and j <= i are, in cell
        ``i * (i + 1) / 2 + j``.

    Notes
    -----
    A token of a best word takes the time of all best words of its topics; windows without one take none.
    """
    n_best = since.shape[1]
    for text in range(ptr.size - 1):
        first, stop = ptr[text], ptr[text + 1]
        for token in range(first, stop):
            window = max(0, token - first - width + 1)
            if window > 0 and words[token - width] >= 0:
                _leave(words[token - width], window, slot_ptr, slot, since, documents)
            word = words[token]
            if word >= 0:
                for at in range(slot_ptr[word], slot_ptr[word + 1]):
                    k = slot[at] // n_best
                    if since[k, slot[at] - k * n_best] < 0:
                        since[k, slot[at] - k * n_best] = window
        n_windows = max(1, stop - first - width + 1)
        for token in range(max(first, stop - width), stop):
            if words[token] >= 0:
                _leave(words[token], n_windows, slot_ptr, slot, since, documents)
