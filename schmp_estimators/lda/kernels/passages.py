"""Passages of documents from which topics begin: drawn where the documents are, chosen where all of them meet."""

import numpy as np

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.rng import GAMMA, below, mix


@kernel
def draw_passages(indptr, indices, counts, rows, numbers, key, ptr, words):
    """Draw tokens of documents, none of them twice.

    Parameters
    ----------
    indptr, indices, counts
        As in `Counts`.
    rows : (n,) int64
        A row for each passage; a row may be there several times.
    numbers : (n,) int64
        The passages' numbers, which address their random bits.
    key : uint64
        Stream of random bits.
    ptr : (n + 1,) int64
        Offsets of the passages in `words`: none is longer than its document.
    words : (ptr[n],) int32
        Mutated: columns of the tokens.

    Notes
    -----
    2 ns per token of the documents (Knuth, "The Art of Computer Programming", section 3.4.2, algorithm S).
    """
    for i in range(len(rows)):
        at, wanted = ptr[i], ptr[i + 1] - ptr[i]
        first, last = indptr[rows[i]], indptr[rows[i] + 1]
        left = np.int64(0)
        for entry in range(first, last):
            left += counts[entry]
        counter = mix(key + np.uint64(numbers[i]) * GAMMA)
        for entry in range(first, last):
            for _ in range(counts[entry]):
                if np.int64(below(mix(counter), left)) < wanted:
                    words[at] = indices[entry]
                    at += 1
                    wanted -= 1
                counter += GAMMA
                left -= 1
            if wanted == 0:
                break


@kernel
def choose_passages(ptr, words, n_topics, few, key, topics, n_seen):
    """Give a passage to each topic, of several the one whose words others have least, and list the topics of words.

    Parameters
    ----------
    ptr, words
        Passages, as from `draw_passages`: the same number for each topic, one topic after the other.
    n_topics : int
        Number of topics.
    few : int
        A passage of no more tokens is taken only where there is no longer one.
    key : uint64
        Stream of random bits.
    topics : (n_words, n_choices) int32
        Mutated: topics of some of the tokens that each word has in the chosen passages, all with equal chances.
    n_seen : (n_words,) int64
        Mutated, must be 0: how many tokens each word has there.

    Notes
    -----
    10 ns per token of the passages.
    """
    n_tried, n_choices = (len(ptr) - 1) // n_topics, topics.shape[1]
    counter = key
    for topic in range(n_topics):
        best, least = -1, np.inf
        for passage in range(topic * n_tried, (topic + 1) * n_tried):
            first, last = ptr[passage], ptr[passage + 1]
            known = 0.0
            for i in range(first, last):
                n = np.float64(n_seen[words[i]])
                known += n / (1.0 + n)
            known = known / max(1, last - first) + (1.0 if last - first <= few else 0.0)
            if known < least:
                best, least = passage, known
        for i in range(ptr[best], ptr[best + 1]):
            word = words[i]
            at = n_seen[word]
            if at >= n_choices:
                at = np.int64(below(mix(counter), at + 1))
            if at < n_choices:
                topics[word, at] = topic
            n_seen[word] += 1
            counter += GAMMA
