"""First topics from passages.

Each topic begins with the words of one passage, a random part of one document.

`topics_from_passages` draws the passages.  It gives each word a list of *choices*: the topics in
which its tokens may begin.  If tokens begin evenly in all choices of their word, Gibbs sampling
needs tens of sweeps to concentrate a word in a few topics.  `weigh_topics` does that in less time,
by EM.  It considers only the choices of each word, drops choices with a small share, and reads only
a part of the documents in each round (Neal and Hinton, "A view of the EM algorithm that justifies
incremental, sparse, and other variants", 1998).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.rng import GAMMA, below, mix, stream_key
from schmp_estimators.core.typing import Array, Floats, Integers, Integers32
from schmp_estimators.core.values import freeze, offsets_of, part_of_each, spans
from schmp_estimators.lda.blocks import Stream, WordTopics
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.counts import Counts
from schmp_estimators.lda.kernels.tokens import draw_passages, expect_topics

#: Tokens of a passage, and number of choices of a word, if there are fewer documents than candidate
#: passages.
TOKENS, FEW_CHOICES = 100, 8
#: Otherwise: choices of a word; a passage has 1 / PART of an average document, from TOKENS to
#: MOST_TOKENS tokens.  Then corpora of long documents need fewer sweeps for the same perplexity.
CHOICES, PART, MOST_TOKENS = 32, 4, 300
#: Number of candidate passages of a topic.
TRIED = 4
#: Documents with fewer tokens are used only if there are too few longer ones.
FEW = 10
#: Largest number of tokens in all passages.  With very many topics, passages are shorter, and have
#: fewer candidates.
MOST = 1 << 24


class Passages(NamedTuple):
    """Passages one after the other."""

    #: (n_passages + 1,) offsets of the passages.
    ptr: Integers
    #: Column of each token.
    words: Integers32


def draw_sparse_topics(word_totals: Integers, n_topics: int, seed: int) -> WordTopics:
    """Return two random topics for each column, in which its tokens may begin.

    They may be the same.
    """
    address = (np.cumsum(word_totals) - word_totals).astype(np.uint64)
    numbers = (2 * address[:, None] + np.arange(2, dtype=np.uint64)).reshape(-1)
    key = stream_key(seed, 0, Stream.SPARSE)
    drawn = below.py_func(mix.py_func(key + numbers * GAMMA), n_topics)
    return WordTopics(np.arange(0, len(numbers) + 1, 2), drawn.astype(np.int32))


def topics_from_passages(
    corpus: Corpus, documents: list[Any], bounds: Integers, n_topics: int, seed: int, choices: int
) -> WordTopics:
    """Return the choices of each column, if each topic begins with a passage.

    Parameters
    ----------
    corpus : Corpus
        All documents.
    documents : list
        Documents of each shard: the result of ``corpus.shards(bounds)``.
    bounds : int64 array of shape (n_shards + 1,)
        Shard s has the documents from ``bounds[s]`` up to ``bounds[s + 1]``.
    n_topics, seed : int
        Number of topics, and the seed of the fit.
    choices : int
        Number of choices of a word, if there are enough documents.

    Returns
    -------
    WordTopics
        Choices by column.  They do not depend on how the documents are divided.
    """
    n_topics = min(
        n_topics, max(1, int(corpus.lengths.sum()) // FEW)
    )  # further topics begin without tokens
    n_tried = max(1, min(TRIED, MOST // (n_topics * TOKENS)))
    chosen = _choose_documents(corpus.lengths, n_topics * n_tried, seed)
    size = TOKENS
    n_choices = FEW_CHOICES
    if np.count_nonzero(corpus.lengths >= FEW) >= len(chosen):
        mean = int(corpus.lengths.sum()) // int(np.count_nonzero(corpus.lengths))
        size = min(max(TOKENS, mean // PART), MOST_TOKENS)
        n_choices = choices
    sizes = np.minimum(corpus.lengths[chosen], max(1, min(size, MOST // len(chosen))))
    order = np.argsort(chosen, kind="stable")
    work = []
    for shard, (first, last) in enumerate(pairwise(np.searchsorted(chosen[order], bounds))):
        numbers = order[first:last]
        work.append(
            (documents[shard], chosen[numbers] - bounds[shard], sizes[numbers], numbers, seed)
        )
    words = np.concatenate(corpus.rows.here(corpus.rows.tasks(_draw, work, "draw-passages")))
    begins = np.empty_like(
        sizes
    )  # where each passage begins in `words`, which has the order of the documents
    begins[order] = np.cumsum(sizes[order]) - sizes[order]
    passages = Passages(offsets_of(sizes), words[spans(begins, sizes)])
    chosen = choose_passages(passages, n_topics, corpus.n_features, FEW)
    topics, n_seen = topics_of_words(
        passages, chosen, corpus.n_features, n_choices, stream_key(seed, 0, Stream.TOPICS)
    )
    kept = np.minimum(n_seen, n_choices)
    return WordTopics(offsets_of(kept), topics[np.arange(n_choices) < kept[:, None]])


def choose_passages(passages: Passages, n_topics: int, n_words: int, few: int) -> Integers:
    """Return the passage of each topic.

    It is the candidate whose words are rarest in the passages of earlier topics.

    Parameters
    ----------
    passages : Passages
        Candidates, equally many for each topic, one topic after the other.
    n_topics, n_words : int
        Number of topics, and of columns.
    few : int
        A candidate with at most so many tokens is chosen only if all candidates of the topic are
        that short.
    """
    ptr, words = passages
    sizes = np.diff(passages.ptr)
    n_tried = len(sizes) // n_topics
    n_seen = np.zeros(n_words, np.int64)
    chosen = np.arange(0, len(sizes), n_tried)
    most = np.maximum(1, sizes)
    is_short = sizes <= few
    number = np.repeat(np.arange(len(sizes)) % n_tried, sizes)
    for topic, first in enumerate(chosen.tolist() if n_tried > 1 else ()):
        tried = slice(first, first + n_tried)
        tokens = slice(ptr[first], ptr[first + n_tried])
        n = n_seen[words[tokens]]
        known = np.bincount(number[tokens], n / (1.0 + n), n_tried)
        best = first + np.argmin(known / most[tried] + is_short[tried])
        np.add.at(n_seen, words[ptr[best] : ptr[best + 1]], 1)
        chosen[topic] = best
    return chosen


def topics_of_words(
    passages: Passages, chosen: Integers, n_words: int, n_choices: int, key: np.uint64
) -> tuple[Integers32, Integers]:
    """Return the choices of each word.

    They are the topics of a uniform random sample of its tokens in the topics' passages.

    Parameters
    ----------
    passages : Passages
        All candidates.
    chosen : (n_topics,) int64
        The passage of each topic.
    n_words, n_choices : int
        Number of columns, and the most choices of a word.
    key : uint64
        Stream of random bits.

    Returns
    -------
    topics : (n_words, n_choices) int32
        If a word has fewer tokens than `n_choices`, its topics come first, and the rest of the row
        is not set.
    n_seen : (n_words,) int64
        Tokens of each word in these passages.
    """
    sizes = np.diff(passages.ptr)[chosen]
    words = passages.words[spans(passages.ptr[chosen], sizes)]
    topic = part_of_each(sizes)
    n_seen = np.bincount(words, minlength=n_words)
    before = np.empty(len(words), np.int64)  # number of earlier tokens of the same word
    before[np.argsort(words, kind="stable")] = spans(np.zeros(n_words, np.int64), n_seen)
    bits = mix.py_func(key + np.arange(len(words), dtype=np.uint64) * GAMMA)
    drawn = below.py_func(bits, before.astype(np.uint64) + np.uint64(1)).astype(np.int64)
    at = np.where(before < n_choices, before, drawn)
    kept = at < n_choices
    topics = np.empty((n_words, n_choices), np.int32)
    topics[words[kept], at[kept]] = topic[
        kept
    ]  # if several have the same place, the last one counts
    return topics, n_seen


def _choose_documents(lengths: Integers, n: int, seed: int) -> Integers:
    """Return `n` random documents; a document occurs again only after all others have occurred."""
    numbers = np.flatnonzero(lengths >= FEW)
    if len(numbers) < n:
        numbers = np.flatnonzero(lengths) if lengths.any() else np.zeros(1, np.int64)
    first = numbers[
        draw_without_replacement(
            len(numbers), min(n, len(numbers)), stream_key(seed, 0, Stream.DOCUMENTS)
        )
    ]
    return first[np.arange(n) % len(first)]


def draw_without_replacement(n_all: int, n: int, key: np.uint64) -> Integers:
    """Return `n` different random numbers below `n_all`.

    They are the beginning of a list shuffled by Fisher and Yates.

    Only the numbers that have changed places are stored.
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
    pieces: Sequence[Counts], rows: Integers, sizes: Integers, numbers: Integers, seed: int
) -> Integers32:
    """Return the columns of the tokens of passages.

    `rows` are the numbers of their documents in the shard, ascending; `sizes` and `numbers` are
    those of the passages.
    """
    first = 0
    key = stream_key(seed, 0, Stream.TOKENS)
    ptr = freeze(offsets_of(sizes))
    words = np.empty(ptr[-1], np.int32)
    for piece in pieces:
        n = len(piece.indptr) - 1
        begin, end = np.searchsorted(rows, (first, first + n)).tolist()
        given = freeze((rows[begin:end] - first, numbers[begin:end]))
        draw_passages(
            piece.indptr, piece.indices, piece.data, *given, key, ptr[begin : end + 1], words
        )
        first += n
    return words


#: Choices of a word before they are weighed, if there are enough documents.
MANY_CHOICES = 100
#: Rounds of EM, and number of parts of the documents, of which each round reads one.
ROUNDS, PARTS = 12, 6
#: A choice is dropped if its share of the word's tokens is less than this, and less than half of an
#: equal share.
LEAST = 0.01
#: Shares are rounded to multiples of 1 / SHARES in the end.
SHARES = 64


class Weighed(NamedTuple):
    """Choices of words, each topic once for a word.

    Those of word w are at ``ptr[w]`` to ``ptr[w + 1]``.
    """

    ptr: Integers
    topic: Integers32
    #: Word of each choice, and the topic's share of the word's tokens.
    word: Integers
    share: Floats


def weigh_topics(
    corpus: Corpus,
    documents: list[Any],
    bounds: Array,
    choices: WordTopics,
    alphas: Array,
    beta: float,
) -> WordTopics:
    """Return the choices of each column, repeated in proportion to shares that EM finds.

    Parameters
    ----------
    corpus, documents, bounds
        As in `topics_from_passages`.
    choices : WordTopics
        The result of `topics_from_passages`; a topic may occur more than once for a word.
    alphas : (K,) float64
        Document-topic priors.
    beta : float
        Topic-word prior.

    Returns
    -------
    WordTopics
        By column.  It does not depend on how documents are divided.
    """
    words = _count(choices, len(alphas))
    rows = corpus.rows
    prior = alphas.astype(np.float32)
    totals = corpus.word_totals
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


def _count(choices: WordTopics, n_topics: int) -> Weighed:
    """Return each choice of a word once, with its share."""
    n_words = len(choices.ptr) - 1
    word: Integers = part_of_each(np.diff(choices.ptr))
    pairs, n = np.unique(word * n_topics + choices.topic, return_counts=True)
    of_word = pairs // n_topics
    topic = (pairs % n_topics).astype(np.int32)
    ptr = np.searchsorted(of_word, np.arange(n_words + 1))
    return Weighed(ptr, topic, of_word, n / np.diff(choices.ptr)[of_word])


def _expect(pieces: Sequence[Counts], first: int, given: tuple[Array, ...]) -> Integers:
    """Return the expected tokens of each choice (E step).

    Documents are `first`, ``first + PARTS``, … of a shard.
    """
    given = freeze(given)
    expected = np.zeros(len(given[1]), np.int64)
    alpha = given[3]
    products = np.empty(np.diff(given[0]).max(initial=0), np.float32)
    scratch = np.empty_like(alpha), np.empty_like(alpha), products
    for piece in pieces:
        expect_topics(
            piece.indptr, piece.indices, piece.data, first, PARTS, *given, scratch, expected
        )
        first = (first - (len(piece.indptr) - 1)) % PARTS
    return expected


def _divide_anew(words: Weighed, expected: Integers) -> Weighed:
    """Return choices with their new shares (M step), without small ones.

    Words without tokens keep their shares.
    """
    n_words = len(words.ptr) - 1
    tokens = np.bincount(words.word, expected, n_words)[words.word]
    share = np.where(tokens > 0, expected / np.maximum(tokens, 1), words.share)
    # at least one choice stays: the largest has an equal share or more
    kept = share >= np.minimum(LEAST, 0.5 / np.diff(words.ptr)[words.word])
    word = words.word[kept]
    share = share[kept]
    share /= np.bincount(word, share, n_words)[word]
    return Weighed(np.searchsorted(word, np.arange(n_words + 1)), words.topic[kept], word, share)


def _repeated(words: Weighed) -> WordTopics:
    """Return the choices, each ``SHARES * share`` times, and at least once."""
    n = np.maximum(1, np.rint(words.share * SHARES)).astype(np.int64)
    sizes = np.bincount(words.word, n, len(words.ptr) - 1).astype(np.int64)
    return WordTopics(offsets_of(sizes), np.repeat(words.topic, n))
