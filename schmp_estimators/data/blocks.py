"""The blocks in which data and models are laid out: named tuples of arrays, ready for kernels and for the wire.

Notation for topic models: a corpus has documents, words (the columns of the input) and tokens (one occurrence of a
word in a document).  Tokens have two orders.  *Document order* sorts by document, then by word: it does not depend on
how documents are divided, and positions in it are canonical.  *Word-major order* sorts by word, then by document.
Words are renumbered by the *layout*: the words of block 0 come first, then those of block 1, …; within a block the
heaviest first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class TopicRows(NamedTuple):
    """Sparse word rows: word ``w`` has ``tokens[i]`` tokens in ``topic[i]`` for i from ``ptr[w]`` to ``ptr[w + 1]``.

    Topics ascend within a word, numbers of tokens are positive.
    """

    ptr: NDArray[np.int64]
    topic: NDArray[np.int32]
    tokens: NDArray[np.int32]


class TokenShard(NamedTuple):
    """The tokens of consecutive documents, reachable in both orders at 4 bytes a token.

    All arrays over words are in layout order.
    """

    #: (n_docs + 1,) offsets of the documents in document order.
    doc_ptr: NDArray[np.int64]
    #: (n_tokens,) place in word-major order of each token in document order.
    place: NDArray[np.uint32]
    #: (n_words + 1,) offsets of the words in word-major order.
    word_ptr: NDArray[np.int64]
    #: (n_words,) tokens of the word in earlier shards.
    word_rank: NDArray[np.int64]
    #: (n_words,) canonical address of the word's first token: tokens of all words with a lower column number.
    word_first: NDArray[np.int64]
    #: (n_words,) tokens of the word in all shards.
    word_total: NDArray[np.int64]
    #: (n_blocks + 1,) offsets of the blocks in the layout.
    block_ptr: NDArray[np.int64]
    #: Tokens in earlier shards: the canonical position of the shard's first token.
    first_token: int
    #: Number of this shard; it also keeps the fixed rows (`fixed`) of the block with the same number.
    number: int
    #: Counts of earlier batches for the words of block `number`: they add to every count, and are never sampled.
    fixed: TopicRows
