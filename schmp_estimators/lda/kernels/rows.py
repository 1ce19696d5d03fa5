"""Word rows in their three forms: topics of tokens in word-major order, rows of a block, and sparse rows."""

import numpy as np

from schmp_estimators.core.jit import kernel
from schmp_estimators.lda.blocks import HEAD


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


@kernel
def count_distinct(word_ptr, topic, n_topics):
    """Return how many different topics each word has, given its tokens' topics: (n_words,) int64; 2 ns per token."""
    stamp = np.full(n_topics, -1, np.int32)
    distinct = np.zeros(len(word_ptr) - 1, np.int64)
    for word in range(len(word_ptr) - 1):
        for i in range(word_ptr[word], word_ptr[word + 1]):
            k = np.uint32(topic[i])
            if stamp[k] != word:
                stamp[k] = word
                distinct[word] += 1
    return distinct


@kernel
def list_rows(word_ptr, topic, n_topics, row_ptr, row_topic, row_tokens):
    """Write the sparse rows of words, given their tokens' topics.

    Parameters
    ----------
    word_ptr : (n_words + 1,) int64
        Offsets of the words in `topic`.
    topic : (n_tokens,) int16 or int32
        Topics, perhaps a strided view.
    n_topics : int
        K.
    row_ptr : (n_words + 1,) int64
        Offsets of the rows.
    row_topic, row_tokens : (n_entries,) int32
        Mutated: topics, ascending, and their counts.

    Notes
    -----
    3 ns per token, and per word the lesser of K and sorting its topics.
    """
    count = np.zeros(n_topics, np.int32)
    for word in range(len(word_ptr) - 1):
        at, end = row_ptr[word], row_ptr[word + 1]
        for i in range(word_ptr[word], word_ptr[word + 1]):
            k = int(topic[i])
            if count[k] == 0 and 8 * (end - row_ptr[word]) < n_topics:
                row_topic[at] = k
                at += 1
            count[k] += 1
        if 8 * (end - row_ptr[word]) < n_topics:
            row_topic[row_ptr[word] : end].sort()
        else:
            for k in range(n_topics):
                if count[k]:
                    row_topic[at] = k
                    at += 1
        for i in range(row_ptr[word], end):
            row_tokens[i] = count[row_topic[i]]
            count[row_topic[i]] = 0


@kernel
def move_rows(ptr, topic, tokens, to, out_topic, out_tokens):
    """Copy sparse rows to other places.

    Parameters
    ----------
    ptr, topic, tokens
        As in `TopicRows`.
    to : (n_words,) int64
        Where the entries of each word shall begin.
    out_topic, out_tokens : int32
        Mutated.

    Notes
    -----
    1 ns per entry.
    """
    for word in range(len(to)):
        at, first = to[word], ptr[word]
        for i in range(ptr[word + 1] - first):
            out_topic[np.uint64(at + i)] = topic[np.uint64(first + i)]
            out_tokens[np.uint64(at + i)] = tokens[np.uint64(first + i)]
