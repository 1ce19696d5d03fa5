"""First topics of tokens, drawn from the few that each word may begin in.

A word is known by its canonical address, and a token by its number in the corpus, so that topics do not depend on how
documents are divided among shards.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.rng import GAMMA, below, mix
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard

#: How many other tokens of its document a token asks whose word has no topics to begin in.
_ASKED = 7


@kernel
def draw_uniform_topics(first_token, key, n_topics, out):
    """Write a uniform topic for every token of a shard, in document order; the first one has address `first_token`."""
    for i in range(len(out)):
        bits = mix(key + (np.uint64(first_token) + np.uint64(i)) * GAMMA)
        out[i] = np.int64(below(bits, n_topics))


def draw_of_words(
    shard: TokenShard, n_topics: int, n_choices: int, words: np.uint64, tokens: np.uint64, out: NDArray[Any]
) -> None:
    """Draw a topic for each token from `n_choices` topics that its word has drawn, with equal chances.

    Parameters
    ----------
    shard : TokenShard
        Any.
    n_topics, n_choices : int
        Both at least 1.  A word may draw the same topic twice.
    words, tokens : uint64
        Streams of the topics of words, and of what their tokens take.
    out : (n_tokens,) int16 or int32
        Mutated: topics in document order.

    Notes
    -----
    5 to 10 ns per token, and 4 bytes for each while it runs.
    """
    given = freeze((shard.word_first, shard.place, _words_of_places(shard)))
    _draw_of_words(*given, shard.first_token, n_topics, n_choices, words, tokens, out)


def draw_of_lists(shard: TokenShard, n_topics: int, tokens: np.uint64, out: NDArray[Any]) -> None:
    """Draw a topic for each token from those that its word may begin in, ``shard.first``, with equal chances.

    Where there are none, the token asks others of its document, drawn at random, for a word that has some; where these
    have none either, all topics have equal chances.

    Parameters
    ----------
    shard : TokenShard
        Any.
    n_topics : int
        At least 1.
    tokens : uint64
        Stream of what tokens take.
    out : (n_tokens,) int16 or int32
        Mutated: topics in document order.

    Notes
    -----
    10 ns per token, and 4 bytes for each while it runs.
    """
    given = freeze((shard.doc_ptr, shard.place, _words_of_places(shard), *shard.first))
    _draw_of_lists(*given, shard.first_token, n_topics, tokens, out)


def _words_of_places(shard: TokenShard) -> NDArray[np.int32]:
    """Return the word of each place in word-major order."""
    return np.repeat(np.arange(len(shard.word_ptr) - 1, dtype=np.int32), np.diff(shard.word_ptr))


@kernel
def _draw_of_words(word_first, place, word_of, first_token, n_topics, n_choices, words, tokens, out):
    for token in range(len(out)):
        drawn = mix(tokens + np.uint64(first_token + token) * GAMMA)
        choice = below(drawn, n_choices)
        address = np.uint64(word_first[word_of[place[token]]])
        bits = mix(words + (address * np.uint64(n_choices) + choice) * GAMMA)
        out[token] = np.int64(below(bits, n_topics))


@kernel
def _draw_of_lists(doc_ptr, place, word_of, ptr, topic, first_token, n_topics, tokens, out):
    for doc in range(len(doc_ptr) - 1):
        start, n = doc_ptr[doc], doc_ptr[doc + 1] - doc_ptr[doc]
        for token in range(start, start + n):
            bits = mix(tokens + np.uint64(first_token + token) * GAMMA)
            asked = token
            for _ in range(_ASKED):
                word = word_of[place[asked]]
                if ptr[word + 1] > ptr[word]:
                    break
                asked = start + np.int64(below(bits, n))
                bits = mix(bits)
            word = word_of[place[asked]]
            n_choices = ptr[word + 1] - ptr[word]
            if n_choices > 0:
                out[token] = topic[ptr[word] + np.int64(below(bits, n_choices))]
            else:
                out[token] = np.int64(below(bits, n_topics))


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
