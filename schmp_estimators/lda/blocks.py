"""The blocks in which data and models are stored.

Blocks are named tuples of arrays, for kernels and for messages.

Notation for topic models: a corpus has documents, words (the columns of the input) and tokens (one
occurrence of a word in a document).  Tokens have two orders.  *Document order* sorts by document,
then by word: it does not depend on how documents are divided, and positions in it are canonical.
*Word-major order* sorts by word, then by document.  Words are renumbered by the *layout*: the words
of block 0 come first, then those of block 1, …; within a block the heaviest first.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from schmp_estimators.core.typing import AnyIntegers, Floats, Integers, Integers32, Unsigned32
from schmp_estimators.core.values import part_of_each


class Stream(IntEnum):
    """The streams of random numbers of a fit; sweeps have 0 and 1."""

    FIRST = 2
    SPARSE = 3
    CHOICES = 4
    DOCUMENTS = 5
    TOKENS = 6
    TOPICS = 7
    SEEDS = 8


#: A prior: one number for all topics, or (K,) one for each.
Prior = float | Floats


class TopicRows(NamedTuple):
    """Sparse word rows.

    Word ``w`` has ``tokens[i]`` tokens in ``topic[i]`` for i from ``ptr[w]`` to ``ptr[w + 1]``.

    Topics ascend within a word, numbers of tokens are positive.
    """

    ptr: Integers
    topic: Integers32
    tokens: Integers32


class WordTopics(NamedTuple):
    """Topics in which the tokens of words may begin, all with equal chances.

    Those of word w are ``topic[ptr[w]:ptr[w + 1]]``.
    """

    ptr: Integers
    topic: Integers32


class SeedRows(NamedTuple):
    """Imaginary tokens of consecutive words of the layout.

    They add to the topic-word prior, and are never sampled.
    """

    #: (n_words,) number of the word among those that are seeded, or -1.
    number: Integers32
    #: (n_seeded + 1,) offsets in what follows.
    ptr: Integers
    #: Topics ascend within a word.
    topic: Integers32
    weight: Floats
    #: Cumulative weights within each word.
    ends: Floats


class TokenShard(NamedTuple):
    """The tokens of consecutive documents, by document and by word, at 4 bytes a token.

    All arrays over words are in layout order.  If shards exchange tokens, they have only the words
    that the shard needs: those of its own tokens, those of its own block, and those that all shards
    sample locally.  Otherwise they have all words.
    """

    #: (n_docs + 1,) offsets of the documents in document order.
    doc_ptr: Integers
    #: (n_tokens,) place in word-major order of each token in document order.
    place: Unsigned32
    #: (n_words + 1,) offsets of the words in word-major order.
    word_ptr: Integers
    #: (n_words,) tokens of the word in earlier shards; 0 for words whose tokens are exchanged.
    word_rank: Integers
    #: (n_words,) canonical address of the word's first token: tokens of all words with a lower
    #: column number.
    word_first: Integers
    #: (n_words,) tokens of the word in all shards.
    word_total: Integers
    #: (n_blocks + 1,) offsets of the blocks among these words.
    block_ptr: Integers
    #: Tokens in earlier shards: the canonical position of the shard's first token.
    first_token: int
    #: Number of this shard, and of the block that is its own.
    number: int
    #: Seeds of the words; without any word if no word is seeded.
    seeds: SeedRows
    #: Topics in which the shard's tokens may begin; without a word if all topics have equal
    #: chances.
    first: WordTopics
    #: (n_blocks,) where shards exchange tokens: how many words of each block are sampled locally,
    #: the heaviest, which come first.  The other words of block b are sampled by shard b for all
    #: shards.
    n_local: Integers
    #: (n_words,) number of each word among those of its block that are not local; below 0 for local
    #: words.
    word_number: Integers32


class WordBlock(NamedTuple):
    """The word rows of one block: how many tokens of each word are in which topic, over all shards.

    A *head* word has at least ``HEAD * n_components`` tokens; head words come first in the block,
    since the layout sorts a block by weight.  All others are *tail* words, whose rows are lists of
    the topics of their tokens.  Such a list is shorter than a dense row, and a random entry is a
    draw from the row.  Topics are uint8 up to 256 topics, int16 up to 32,767, else int32.
    """

    #: (n_heads, n_components) counts of the head words.
    heads: Integers32
    #: (n_tails + 1,) offsets of the tail words in `tails`.
    tail_ptr: Integers
    #: (n_tail_tokens,) topics of the tokens of tail words; slot ``r`` of a word is its token of
    #: rank ``r`` in document order.
    tails: AnyIntegers


#: A word is a head word from this many tokens per topic: a dense int32 row is then no longer than
#: an int16 list.
HEAD = 2


def no_topics() -> WordTopics:
    """Return the value of `TokenShard.first` that lets all topics have equal chances."""
    return WordTopics(np.zeros(1, np.int64), np.zeros(0, np.int32))


def no_seeds() -> SeedRows:
    """Return the value of `TokenShard.seeds` where no word is seeded."""
    return SeedRows(
        np.zeros(0, np.int32),
        np.zeros(1, np.int64),
        np.zeros(0, np.int32),
        np.zeros(0),
        np.zeros(0),
    )


def documents_of_places(doc_ptr: Integers, place: Unsigned32) -> Unsigned32:
    """Return the document of each token of a `TokenShard`, word-major."""
    document = np.empty(len(place), np.uint32)
    document[place] = part_of_each(np.diff(doc_ptr), np.uint32)
    return document


def words_of_places(shard: TokenShard) -> Integers32:
    """Return the word of each token in word-major order; 4 bytes for a token."""
    return part_of_each(np.diff(shard.word_ptr), np.int32)
