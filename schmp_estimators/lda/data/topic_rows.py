"""Word rows: made, cut, stacked, and converted to the attribute of the estimator.

They are made from tokens, lists or parts of shards.

There are three forms.  A `WordBlock` is what shards sample and send: dense rows of heavy words, and
for the others the topics of their tokens; where all tokens are there, no word is heavy.
`TopicRows` are counts by topic that do not change, and `TopicLists` the same with room to change.
Rows for single look-ups are in `kernels.rows`.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from schmp_estimators.core.typing import AnySigned, Array, Integers, Integers32, IntPair, Unsigned32
from schmp_estimators.core.values import freeze, offsets_of, spans
from schmp_estimators.lda.blocks import (
    HEAD,
    TokenShard,
    TopicRows,
    WordBlock,
    documents_of_places,
)
from schmp_estimators.lda.data.counts import AT_ONCE, add_at
from schmp_estimators.lda.data.shards import Layout
from schmp_estimators.lda.kernels.lists import TopicLists
from schmp_estimators.lda.kernels.rows import pack_rows, unpack_rows


def rows_of_lists(word_ptr: Integers, topic: Array, n_topics: int) -> TopicRows:
    """Return the rows of words, given the topics of their tokens, perhaps a strided view."""
    lengths = np.diff(word_ptr)
    at = 0
    room = int(np.minimum(lengths, n_topics).sum())
    rows = TopicRows(
        np.zeros(len(word_ptr), np.int64), np.empty(room, np.int32), np.empty(room, np.int32)
    )
    for first, last in some_words(word_ptr):
        begins = np.arange(0, (last - first) * n_topics, n_topics)
        cells = np.repeat(begins, lengths[first:last]) + topic[word_ptr[first] : word_ptr[last]]
        cell, tokens = _tally(cells, (last - first) * n_topics)
        word, found = np.divmod(cell, n_topics)
        rows.topic[at : at + len(cell)] = found
        rows.tokens[at : at + len(cell)] = tokens
        rows.ptr[first + 1 : last + 1] = at + np.cumsum(np.bincount(word, minlength=last - first))
        at += len(cell)
    for array in rows[1:]:
        array.resize(at, refcheck=False)  # in place, without a copy
    return rows


def _tally(cells: Integers, n_cells: int) -> tuple[Array, Integers]:
    """Return which numbers below `n_cells` occur, ascending, and how often each."""
    if n_cells > 4 * len(
        cells
    ):  # a table would take longer than to sort; half the bytes take half the time
        return np.unique(cells.astype(np.int32) if n_cells < 1 << 31 else cells, return_counts=True)
    counts = np.bincount(cells, minlength=n_cells)
    found = np.flatnonzero(counts)
    return found, counts[found]


def list_topics(
    doc_ptr: Integers, place: Unsigned32, topic: AnySigned, n_topics: int
) -> tuple[Unsigned32, TopicLists]:
    """Return the document of each token, word-major, and the topic lists of documents.

    The lists are in the order of the topics.

    Parameters
    ----------
    doc_ptr, place
        Of the TokenShard.
    topic : (n_tokens,) uint8, int16 or int32
        Topics, word-major.
    n_topics : int
        K.
    """
    lengths = np.diff(doc_ptr)
    rows = rows_of_lists(doc_ptr, topic[place], n_topics)
    ptr = offsets_of(np.minimum(lengths, n_topics))
    n = np.diff(rows.ptr)
    lists = TopicLists(
        ptr, n.astype(np.int32), np.zeros(ptr[-1], topic.dtype), np.zeros(ptr[-1], np.int32)
    )
    at = spans(ptr[:-1], n)
    lists.topic[at] = rows.topic
    lists.tokens[at] = rows.tokens
    return documents_of_places(doc_ptr, place), lists


def some_words(ptr: Integers) -> list[IntPair]:
    """Return ranges of words, each with at most `AT_ONCE` entries before its last word."""
    cuts = np.searchsorted(ptr, np.arange(0, ptr[-1], AT_ONCE))
    return list(pairwise(np.unique(np.concatenate([[0], cuts, [len(ptr) - 1]])).tolist()))


def rows_of_counts(counts: Integers32) -> TopicRows:
    """Return the rows of words, given dense ones of shape (n_words, n_topics)."""
    word, topic = np.nonzero(counts)
    ptr = np.searchsorted(word, np.arange(len(counts) + 1))
    return TopicRows(ptr, topic.astype(np.int32), counts[word, topic])


def stack_rows(pieces: Sequence[TopicRows]) -> TopicRows:
    """Return the rows of all pieces, one after the other; if only one has words, without a copy."""
    pieces = [piece for piece in pieces if len(piece.ptr) > 1] or pieces[:1]
    if len(pieces) == 1:
        return pieces[0]
    ptr = offsets_of(np.concatenate([np.diff(piece.ptr) for piece in pieces]))
    return TopicRows(ptr, *(np.concatenate([piece[i] for piece in pieces]) for i in (1, 2)))


def counts_of_rows(
    pieces: Sequence[TopicRows],
    layout: Layout,
    n_topics: int,
    empty: Callable[[int, Any], Array] = np.empty,
) -> sparse.csc_array:
    """Return the counts as an int32 array of shape (n_topics, n_words).

    They come from the rows of all blocks in layout order.

    The rows of a single block whose words are in the order of the columns are not copied; else
    `empty` makes arrays.
    """
    n_words = len(layout.column)
    ptr = np.zeros(n_words + 1, np.int64)
    begins = offsets_of([len(piece.ptr) - 1 for piece in pieces])
    ptr[1:][layout.column] = np.concatenate([np.diff(piece.ptr) for piece in pieces])
    np.cumsum(ptr, out=ptr)
    if len(pieces) == 1 and (layout.column == np.arange(n_words)).all():
        # Arrays that were sent may be at unaligned addresses.
        topic, tokens = (
            np.require(one, requirements=["ALIGNED", "WRITEABLE"]) for one in pieces[0][1:]
        )
    else:
        topic = empty(int(ptr[-1]), np.int32)
        tokens = empty(int(ptr[-1]), np.int32)
        for piece, begin in zip(pieces, begins, strict=False):
            column = layout.column[begin : begin + len(piece.ptr) - 1]
            for first, last in some_words(piece.ptr):
                entries = slice(piece.ptr[first], piece.ptr[last])
                to = spans(ptr[column[first:last]], np.diff(piece.ptr[first : last + 1]))
                topic[to] = piece.topic[entries]
                tokens[to] = piece.tokens[entries]
    if (
        ptr[-1] <= np.iinfo(np.int32).max
    ):  # with int64 offsets SciPy would convert the topics to int64, too
        ptr = ptr.astype(np.int32)
    return sparse.csc_array((tokens, topic, ptr), shape=(n_topics, n_words))


def rows_of_counts_array(counts: sparse.csc_array) -> TopicRows:
    """Return the rows by column of what `counts_of_rows` returned, or of a similar array."""
    return TopicRows(
        np.asarray(counts.indptr, np.int64), np.asarray(counts.indices, np.int32), counts.data
    )


def widened(counts: sparse.csc_array, n_words: int) -> sparse.csc_array:
    """Return the same array (K, V) with `n_words` columns: new ones at the end have nothing."""
    ptr = np.pad(counts.indptr, (0, n_words - counts.shape[1]), "edge")
    return sparse.csc_array((counts.data, counts.indices, ptr), shape=(counts.shape[0], n_words))


def topic_totals(counts: sparse.csc_array) -> Any:
    """Return the number of tokens of each topic: int64, or float64 of fractions."""
    is_whole = counts.dtype.kind == "i"
    totals: Array = np.zeros(counts.shape[0], np.int64 if is_whole else np.float64)
    add_at(totals, counts.indices, counts.data)
    return totals


class WordPart(NamedTuple):
    """The tokens of one shard for the words of a block."""

    #: (n_words,) tokens of each word.
    lengths: Integers32
    #: Topics of the tokens of words with fewer than ``HEAD * K`` of them.
    lists: AnySigned
    #: (n_dense, K) counts of the other words.
    dense: Integers32


#: Parts of one shard, by the numbers of their blocks.
WordParts = dict[int, WordPart]


def make_parts(
    shard: TokenShard, topic: Array, n_components: int, n_words: Integers | None = None
) -> WordParts:
    """Return the parts of a shard, by the numbers of the blocks.

    Parameters
    ----------
    shard : TokenShard
    topic : (n_tokens,) uint8, int16 or int32
        Topics of its tokens, word-major.
    n_components : int
        K.
    n_words : (n_blocks,) int64, optional
        How many words of each block the parts have, the first ones; by default all.
    """
    sizes = np.diff(shard.block_ptr) if n_words is None else n_words
    topic = freeze(topic)
    parts = WordParts()
    for block, (begin, n) in enumerate(zip(shard.block_ptr.tolist(), sizes.tolist(), strict=False)):
        word_ptr = freeze(shard.word_ptr[begin : begin + n + 1])
        lists, dense = pack_rows(word_ptr, topic, n_components)
        parts[block] = freeze(WordPart(np.diff(word_ptr).astype(np.int32), lists, dense))
    return parts


def combine_parts(parts: Sequence[WordPart], n_components: int) -> WordBlock:
    """Return a block, made from the parts of all shards.

    Lists are joined word by word, dense rows are added up.
    """
    total = np.zeros(len(parts[0].lengths), np.int64)
    for part in parts:
        total += part.lengths
    n_heads = int(np.count_nonzero(total >= HEAD * n_components))
    tail_ptr = offsets_of(total[n_heads:])
    heads = np.zeros((n_heads, n_components), np.int32)
    tails = np.empty(tail_ptr[-1], parts[0].lists.dtype)
    cursor = tail_ptr[:-1].copy()
    for part in parts:
        unpack_rows(part.lengths, part.lists, part.dense, heads, tails, cursor)
    return WordBlock(heads, tail_ptr, tails)


def rows_of_tokens(word_ptr: Integers, topic: Array, n_components: int) -> WordBlock:
    """Return the block of words whose tokens are all given, in word-major order.

    All rows are lists of topics.
    """
    return WordBlock(np.zeros((0, n_components), np.int32), word_ptr, topic)


def harvest_rows(block: WordBlock, n_components: int) -> TopicRows:
    """Return the word rows of a block as sparse rows."""
    tails = rows_of_lists(block.tail_ptr, block.tails, n_components)
    return stack_rows([rows_of_counts(block.heads), tails])
