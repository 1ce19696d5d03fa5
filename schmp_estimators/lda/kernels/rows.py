"""Word rows in two forms: topics of tokens in word-major order, and rows of a block."""

import numpy as np

from schmp_estimators.core.jit import kernel, part
from schmp_estimators.lda.blocks import HEAD


@part
def add_row(block, word, row):
    """Add the counts of a word of a WordBlock, earlier batches included, to a dense row; 1 ns per token."""
    tail, fixed = word - len(block.heads), block.fixed
    if tail < 0:
        for k in range(len(row)):
            row[k] += block.heads[word, k]
    else:
        for i in range(block.tail_ptr[tail], block.tail_ptr[tail + 1]):
            row[np.uint32(block.tails[np.uint64(i)])] += 1
    for i in range(fixed.ptr[word], fixed.ptr[word + 1]):
        row[np.uint32(fixed.topic[i])] += fixed.tokens[i]


@kernel
def pack_rows(word_ptr, begins, n_words, topic, n_topics):
    """Pack the topics of a shard's tokens of some words: a dense row where that is shorter, else a list.

    Parameters
    ----------
    word_ptr : (n_words + 1,) int64
        Offsets of the words in `topic`.
    begins, n_words : (n_blocks,) int64
        Of each block, the number of its first word and how many words are packed from there on.
    topic : (n_tokens,) int16 or int32
        Topics in word-major order, perhaps a strided view.
    n_topics : int
        K.

    Returns
    -------
    lengths : (n_packed,) int32
        Tokens of each word, block after block.
    lists : int16 or int32
        Topics of the words with fewer than ``HEAD * K`` tokens, one after the other.
    dense : (n_dense, K) int32
        Counts of the others.
    ends : (n_blocks, 3) int64
        Where each block ends in the three of them.

    Notes
    -----
    1 ns per token.
    """
    limit = HEAD * n_topics
    ends = np.empty((len(begins), 3), np.int64)
    n_packed = n_listed = n_dense = 0
    for block in range(len(begins)):
        for word in range(begins[block], begins[block] + n_words[block]):
            n = word_ptr[word + 1] - word_ptr[word]
            if n >= limit:
                n_dense += 1
            else:
                n_listed += n
        n_packed += n_words[block]
        ends[block, 0] = n_packed
        ends[block, 1] = n_listed
        ends[block, 2] = n_dense
    lengths = np.empty(n_packed, np.int32)
    lists = np.empty(n_listed, topic.dtype)
    dense = np.zeros((n_dense, n_topics), np.int32)
    n_packed = n_listed = n_dense = 0
    for block in range(len(begins)):
        for word in range(begins[block], begins[block] + n_words[block]):
            first, last = word_ptr[word], word_ptr[word + 1]
            lengths[n_packed] = last - first
            n_packed += 1
            if last - first >= limit:
                row = dense[n_dense]
                n_dense += 1
                for i in range(first, last):
                    row[np.uint32(topic[np.uint64(i)])] += 1
            else:
                for i in range(first, last):
                    lists[np.uint64(n_listed)] = topic[np.uint64(i)]
                    n_listed += 1
    return lengths, lists, dense, ends


@kernel
def unpack_rows(lengths, lists, dense, heads, tails, cursor):
    """Add the packed rows of a shard to a block, or those of several shards, one after the other.

    Parameters
    ----------
    lengths, lists, dense
        From `pack_rows`; of several shards, each stacked.
    heads : (n_heads, K) int32
        Mutated: counts of the first words.
    tails : int16 or int32
        Mutated: topics of the tokens of the other words.
    cursor : (n_tails,) int64
        Mutated: next free slot of each of them.

    Notes
    -----
    1 ns per token of a list, 0.2 ns per entry of a dense row.
    """
    n_heads = len(heads)
    n_words = n_heads + len(cursor)
    limit = HEAD * heads.shape[1]
    at = row = 0
    word = -1
    for entry in range(len(lengths)):
        word = word + 1 if word + 1 < n_words else 0
        n = int(lengths[entry])
        if n >= limit:
            heads[word] += dense[row]
            row += 1
            continue
        if word < n_heads:
            for i in range(n):
                heads[word, np.uint32(lists[np.uint64(at + i)])] += 1
        else:
            start = cursor[word - n_heads]
            for i in range(n):
                tails[np.uint64(start + i)] = lists[np.uint64(at + i)]
            cursor[word - n_heads] = start + n
        at += n
