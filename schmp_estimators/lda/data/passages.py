"""Passages of documents from which topics begin: each topic with the words of one, wherever the documents are.

Where words begin evenly in all the topics that they remember, Gibbs sampling takes tens of sweeps until a word is in a
few of them mostly.  EM finds these at a small part of the cost (`weigh_topics`): it looks only at topics that words
remember, of which most are soon forgotten, and at some of the documents at a time (Neal and Hinton, "A view of the EM
algorithm that justifies incremental, sparse, and other variants", 1998).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.rng import GAMMA, below, mix, stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import WordTopics
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.counts import Counts
from schmp_estimators.lda.data.topic_rows import spans
from schmp_estimators.lda.kernels.passages import draw_passages, expect_topics

#: Tokens of a passage, and how many topics of its tokens a word remembers.  Where there is a document for every passage
#: that is tried, a word remembers more, and a passage has this part of an average document, if that is more, within a
#: limit: long documents are at the same perplexity in fewer sweeps then.
TOKENS, FEW_CHOICES = 100, 8
CHOICES, PART, MOST_TOKENS = 32, 4, 300
#: Of how many passages a topic gets the one with the newest words.
TRIED = 4
#: A document of fewer tokens is not tried where there are longer ones.
FEW = 10
#: All passages together have no more tokens: with very many topics passages are shorter, and fewer are tried.
MOST = 1 << 24
#: Streams of random numbers: which documents, which of their tokens, which topics of a word; those of a sparse start.
_DOCUMENTS, _TOKENS, _TOPICS, _SPARSE = 5, 6, 7, 3
#: Among how many topics, drawn for each word, its tokens begin in a sparse start.
_SPARSE_TOPICS = 2


class Passages(NamedTuple):
    """Passages one after the other."""

    ptr: NDArray[np.int64]
    #: Columns of their tokens.
    words: NDArray[np.int32]


def draw_sparse_topics(word_totals: NDArray[np.int64], n_topics: int, seed: int) -> WordTopics:
    """Return two random topics for each column, in which its tokens may begin.  They may be the same."""
    address, n = (np.cumsum(word_totals) - word_totals).astype(np.uint64), np.uint64(_SPARSE_TOPICS)
    numbers = (address[:, None] * n + np.arange(n, dtype=np.uint64)).reshape(-1)
    drawn = below.py_func(mix.py_func(stream_key(seed, 0, _SPARSE) + numbers * GAMMA), n_topics)
    return WordTopics(np.arange(0, len(numbers) + 1, _SPARSE_TOPICS), drawn.astype(np.int32))


def topics_from_passages(
    corpus: Corpus, documents: list[Any], bounds: NDArray[np.int64], n_topics: int, seed: int, choices: int
) -> WordTopics:
    """Return the topics in which tokens of each column may begin, where each topic begins with a passage.

    Parameters
    ----------
    corpus : Corpus
        All documents.
    documents : list
        Those of each shard, as ``corpus.shards(bounds)`` has returned them.
    bounds : int64 array of shape (n_shards + 1,)
        Shard s has the documents from ``bounds[s]`` up to ``bounds[s + 1]``.
    n_topics, seed : int
        Number of topics, and the seed of the fit.
    choices : int
        How many topics a word remembers, where there are documents enough.

    Returns
    -------
    WordTopics
        By column.  It does not depend on how documents are divided.
    """
    n_topics = min(n_topics, max(1, int(corpus.lengths.sum()) // FEW))  # the others begin without a token
    n_tried = max(1, min(TRIED, MOST // (n_topics * TOKENS)))
    chosen = _choose_documents(corpus.lengths, n_topics * n_tried, seed)
    size, n_choices = TOKENS, FEW_CHOICES
    if np.count_nonzero(corpus.lengths >= FEW) >= len(chosen):
        mean = int(corpus.lengths.sum()) // int(np.count_nonzero(corpus.lengths))
        size, n_choices = min(max(TOKENS, mean // PART), MOST_TOKENS), choices
    sizes = np.minimum(corpus.lengths[chosen], max(1, min(size, MOST // len(chosen))))
    order = np.argsort(chosen, kind="stable")
    work = []
    for shard, (first, last) in enumerate(pairwise(np.searchsorted(chosen[order], bounds))):
        numbers = order[first:last]
        work.append((documents[shard], chosen[numbers] - bounds[shard], sizes[numbers], numbers, seed))
    words = np.concatenate(corpus.rows.here(corpus.rows.tasks(_draw, work, "draw-passages")))
    begins = np.empty_like(sizes)  # of each passage, where they are in the order of the documents
    begins[order] = np.cumsum(sizes[order]) - sizes[order]
    passages = Passages(np.append(0, np.cumsum(sizes)), words[spans(begins, sizes)])
    chosen = choose_passages(passages, n_topics, corpus.n_features, FEW)
    topics, n_seen = topics_of_words(passages, chosen, corpus.n_features, n_choices, stream_key(seed, 0, _TOPICS))
    kept = np.minimum(n_seen, n_choices)
    return WordTopics(np.concatenate([[0], np.cumsum(kept)]), topics[np.arange(n_choices) < kept[:, None]])


def choose_passages(passages: Passages, n_topics: int, n_words: int, few: int) -> NDArray[np.int64]:
    """Return the passage of each topic: of several, the one whose words those of earlier topics have least.

    Parameters
    ----------
    passages : Passages
        The same number for each topic, one topic after the other.
    n_topics, n_words : int
        Number of topics, and of columns.
    few : int
        A passage of no more tokens is taken only where there is no longer one.
    """
    (ptr, words), sizes = passages, np.diff(passages.ptr)
    n_tried, n_seen = len(sizes) // n_topics, np.zeros(n_words, np.int64)
    chosen, most, is_short = np.arange(0, len(sizes), n_tried), np.maximum(1, sizes), sizes <= few
    number = np.repeat(np.arange(len(sizes)) % n_tried, sizes)
    for topic, first in enumerate(chosen.tolist() if n_tried > 1 else ()):
        tried, tokens = slice(first, first + n_tried), slice(ptr[first], ptr[first + n_tried])
        n = n_seen[words[tokens]]
        known = np.bincount(number[tokens], n / (1.0 + n), n_tried)
        best = first + np.argmin(known / most[tried] + is_short[tried])
        np.add.at(n_seen, words[ptr[best] : ptr[best + 1]], 1)
        chosen[topic] = best
    return chosen


def topics_of_words(
    passages: Passages, chosen: NDArray[np.int64], n_words: int, n_choices: int, key: np.uint64
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the topics of some of the tokens that each word has in the topics' passages, all with equal chances.

    Parameters
    ----------
    passages : Passages
        Any.
    chosen : (n_topics,) int64
        The passage of each topic.
    n_words, n_choices : int
        Number of columns, and of topics that a word remembers.
    key : uint64
        Stream of random bits.

    Returns
    -------
    topics : (n_words, n_choices) int32
        The first ones, if a word has fewer tokens than that.
    n_seen : (n_words,) int64
        How many tokens each word has in these passages.
    """
    sizes = np.diff(passages.ptr)[chosen]
    words, topic = passages.words[spans(passages.ptr[chosen], sizes)], np.repeat(np.arange(len(chosen)), sizes)
    n_seen = np.bincount(words, minlength=n_words)
    before = np.empty(len(words), np.int64)  # tokens of the same word
    before[np.argsort(words, kind="stable")] = spans(np.zeros(n_words, np.int64), n_seen)
    bits = mix.py_func(key + np.arange(len(words), dtype=np.uint64) * GAMMA)
    drawn = below.py_func(bits, before.astype(np.uint64) + np.uint64(1)).astype(np.int64)
    at = np.where(before < n_choices, before, drawn)
    kept, topics = at < n_choices, np.empty((n_words, n_choices), np.int32)
    topics[words[kept], at[kept]] = topic[kept]  # of several for one place, the last
    return topics, n_seen


def topics_of_shard(of_columns: WordTopics, column: NDArray[np.int32], counts: NDArray[np.signedinteger]) -> WordTopics:
    """Return the topics of the words that a shard has, in layout order.

    Parameters
    ----------
    of_columns : WordTopics
        From `topics_from_passages`.
    column : (n_words,) int32
        Column of each word of the layout.
    counts : (n_words,) int32 or int64
        The shard's tokens of each column.
    """
    size = np.where(counts > 0, np.diff(of_columns.ptr), 0)[column]
    ptr = np.concatenate([[0], np.cumsum(size)])
    return WordTopics(ptr, of_columns.topic[spans(of_columns.ptr[column], size)])


def _choose_documents(lengths: NDArray[np.int64], n: int, seed: int) -> NDArray[np.int64]:
    """Return `n` random documents, none of them twice as long as there are others."""
    numbers = np.flatnonzero(lengths >= FEW)
    if len(numbers) < n:
        numbers = np.flatnonzero(lengths) if lengths.any() else np.zeros(1, np.int64)
    first = numbers[draw_without_replacement(len(numbers), min(n, len(numbers)), stream_key(seed, 0, _DOCUMENTS))]
    return first[np.arange(n) % len(first)]


def draw_without_replacement(n_all: int, n: int, key: np.uint64) -> NDArray[np.int64]:
    """Return `n` of the numbers below `n_all`, in random order (Fisher and Yates): the first ones of a shuffled list.

    Only what has changed places in the list is kept.
    """
    steps = np.arange(n, dtype=np.uint64)
    drawn = steps + below.py_func(mix.py_func(key + steps * GAMMA), np.uint64(n_all) - steps)
    moved: dict[int, int] = {}
    found = np.empty(n, np.int64)
    for i, j in enumerate(drawn.tolist()):
        found[i] = moved.get(j, j)
        moved[j] = moved.pop(i, i)
    return found


def _draw(
    pieces: Sequence[Counts], rows: NDArray[np.int64], sizes: NDArray[np.int64], numbers: NDArray[np.int64], seed: int
) -> NDArray[np.int32]:
    """Return the columns of passages of a shard's documents, whose numbers in the shard ascend, of these sizes."""
    first, key, ptr = 0, stream_key(seed, 0, _TOKENS), freeze(np.append(0, np.cumsum(sizes)))
    words = np.empty(ptr[-1], np.int32)
    for piece in pieces:
        n = len(piece.indptr) - 1
        begin, end = np.searchsorted(rows, (first, first + n)).tolist()
        given = freeze((rows[begin:end] - first, numbers[begin:end]))
        draw_passages(piece.indptr, piece.indices, piece.data, *given, key, ptr[begin : end + 1], words)
        first += n
    return words


#: How many topics a word remembers first, if there are documents enough.
MANY_CHOICES = 100
#: How many times words are divided anew, each time by the documents of one of so many parts.
ROUNDS, PARTS = 12, 6
#: A word forgets a topic that has less than this share of its tokens, and less than half an equal one.
LEAST = 0.01
#: In how many parts a word's tokens are divided among its topics in the end.
SHARES = 64


class Weighed(NamedTuple):
    """The topics that words remember, none of them twice: those of word w are ``ptr[w]`` to ``ptr[w + 1]``."""

    ptr: NDArray[np.int64]
    topic: NDArray[np.int32]
    #: The word of each, and which share of its tokens the topic has.
    word: NDArray[np.int64]
    share: NDArray[np.float64]


def weigh_topics(
    corpus: Corpus,
    documents: list[Any],
    bounds: NDArray[Any],
    remembered: WordTopics,
    alphas: NDArray[Any],
    beta: float,
) -> WordTopics:
    """Return the topics in which the tokens of each column may begin, repeated according to their shares.

    Parameters
    ----------
    corpus, documents, bounds
        As in `topics_from_passages`.
    remembered : WordTopics
        What that has returned: topics with more of a word's tokens are there more than once.
    alphas : (K,) float64
        Document-topic priors.
    beta : float
        Topic-word prior.

    Returns
    -------
    WordTopics
        By column.  It does not depend on how documents are divided.
    """
    words, rows = _count(remembered, len(alphas)), corpus.rows
    prior, totals = alphas.astype(np.float32), corpus.word_totals
    for number in range(ROUNDS):
        tokens = words.share * totals[words.word]
        of_topics = np.bincount(words.topic, tokens, len(alphas)) + beta * corpus.n_features
        weight = ((tokens + beta) / of_topics[words.topic]).astype(np.float32)
        given = rows.place.share((words.ptr, words.topic, weight, prior))
        work = [
            (documents[shard], (number - int(first)) % PARTS, given)
            for shard, (first, last) in enumerate(pairwise(bounds))
            if first < last
        ]
        found = rows.tasks(_expect, work, "weigh-topics")
        words = _divide_anew(words, rows.merged(found, tree_sum, "weigh-topics"))
    return _repeated(words)


def _count(remembered: WordTopics, n_topics: int) -> Weighed:
    """Return each topic of a word once, with its share."""
    n_words = len(remembered.ptr) - 1
    word = np.repeat(np.arange(n_words), np.diff(remembered.ptr))
    pairs, n = np.unique(word * n_topics + remembered.topic, return_counts=True)
    of_word, topic = pairs // n_topics, (pairs % n_topics).astype(np.int32)
    ptr = np.searchsorted(of_word, np.arange(n_words + 1))
    return Weighed(ptr, topic, of_word, n / np.diff(remembered.ptr)[of_word])


def _expect(pieces: Sequence[Counts], first: int, given: tuple[NDArray[Any], ...]) -> NDArray[np.int64]:
    """Return what every `PARTS`-th document of a shard, from number `first` on, expects of its words."""
    given = freeze(given)
    expected, alpha = np.zeros(len(given[1]), np.int64), given[3]
    products = np.empty(np.diff(given[0]).max(initial=0), np.float32)
    scratch = np.empty_like(alpha), np.empty_like(alpha), products
    for piece in pieces:
        expect_topics(piece.indptr, piece.indices, piece.data, first, PARTS, *given, scratch, expected)
        first = (first - (len(piece.indptr) - 1)) % PARTS
    return expected


def _divide_anew(words: Weighed, expected: NDArray[np.int64]) -> Weighed:
    """Return the shares that documents expect, of topics with a share that is not small; old ones of words in none."""
    n_words = len(words.ptr) - 1
    tokens = np.bincount(words.word, expected, n_words)[words.word]
    share = np.where(tokens > 0, expected / np.maximum(tokens, 1), words.share)
    kept = share >= np.minimum(LEAST, 0.5 / np.diff(words.ptr)[words.word])  # one at least: it has an equal share
    word, share = words.word[kept], share[kept]
    share /= np.bincount(word, share, n_words)[word]
    return Weighed(np.searchsorted(word, np.arange(n_words + 1)), words.topic[kept], word, share)


def _repeated(words: Weighed) -> WordTopics:
    """Return the topics, each as often as is its share of `SHARES`, and once at least."""
    n = np.maximum(1, np.rint(words.share * SHARES)).astype(np.int64)
    sizes = np.bincount(words.word, n, len(words.ptr) - 1).astype(np.int64)
    return WordTopics(np.concatenate([[0], np.cumsum(sizes)]), np.repeat(words.topic, n))
