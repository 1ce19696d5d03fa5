"""Passages of documents from which topics begin: each topic with the words of one, wherever the documents are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.rng import GAMMA, below, mix, stream_key
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import WordTopics
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.counts import Counts
from schmp_estimators.lda.data.topic_rows import spans
from schmp_estimators.lda.kernels.passages import draw_passages

#: Tokens of a passage, and how many topics of its tokens a word remembers.  Where there is a document for every passage
#: that is tried, a word remembers more, and a passage has this part of an average document, if that is more, within a
#: limit: long documents are at the same perplexity in fewer sweeps then (docs/measurements/lda).
TOKENS, FEW_CHOICES = 100, 8
CHOICES, PART, MOST_TOKENS = 32, 4, 300
#: Of how many passages a topic gets the one with the newest words.
TRIED = 4
#: A document of fewer tokens is not tried where there are longer ones.
FEW = 10
#: All passages together have no more tokens: with very many topics passages are shorter, and fewer are tried.
MOST = 1 << 24
#: Streams of random numbers: which documents, which of their tokens, which topics of a word.
_DOCUMENTS, _TOKENS, _TOPICS = 5, 6, 7


class Passages(NamedTuple):
    """Passages one after the other."""

    ptr: NDArray[np.int64]
    #: Columns of their tokens.
    words: NDArray[np.int32]


def topics_from_passages(
    corpus: Corpus,
    documents: list[Any],
    bounds: NDArray[np.int64],
    n_topics: int,
    seed: int,
    choices: int = CHOICES,
) -> WordTopics:
    """Return in which topics the tokens of each column may begin, if each topic begins with a passage.

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
    size = max(1, min(size, MOST // len(chosen)))
    order = np.argsort(chosen, kind="stable")
    cuts = np.searchsorted(chosen[order], bounds)
    work = []
    for shard, (first, last) in enumerate(pairwise(cuts)):
        numbers = order[first:last]
        mine = chosen[numbers]
        work.append((documents[shard], mine - bounds[shard], np.minimum(corpus.lengths[mine], size), numbers, seed))
    found = corpus.rows.here(corpus.rows.tasks(_draw, work, "draw-passages"))
    passages = _in_order(found, order)
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
    chosen = np.arange(0, len(sizes), n_tried)
    for topic, first in enumerate(chosen.tolist() if n_tried > 1 else ()):
        tried = slice(first, first + n_tried)
        n = n_seen[words[ptr[first] : ptr[first + n_tried]]]
        known = np.bincount(np.repeat(np.arange(n_tried), sizes[tried]), n / (1.0 + n), n_tried)
        best = first + np.argmin(known / np.maximum(1, sizes[tried]) + (sizes[tried] <= few))
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
) -> Passages:
    """Return passages of a shard's documents, whose numbers in the shard ascend, of these sizes."""
    found, first, key = [], 0, stream_key(seed, 0, _TOKENS)
    for piece in pieces:
        n = len(piece.indptr) - 1
        mine = slice(*np.searchsorted(rows, (first, first + n)))
        ptr = np.concatenate([[0], np.cumsum(sizes[mine])])
        words = np.empty(ptr[-1], np.int32)
        given = freeze((rows[mine] - first, numbers[mine], ptr))
        draw_passages(piece.indptr, piece.indices, piece.data, *given[:2], key, given[2], words)
        found.append(Passages(ptr, words))
        first += n
    return _stack(found)


def _stack(found: Sequence[Passages]) -> Passages:
    sizes = np.concatenate([np.diff(one.ptr) for one in found])
    return Passages(np.concatenate([[0], np.cumsum(sizes)]), np.concatenate([one.words for one in found]))


def _in_order(found: Sequence[Passages], numbers: NDArray[np.int64]) -> Passages:
    """Return the passages of all shards by their numbers."""
    ptr, words = _stack(found)
    at = np.argsort(numbers)
    sizes = np.diff(ptr)[at]
    return Passages(np.concatenate([[0], np.cumsum(sizes)]), words[spans(ptr[at], sizes)])
