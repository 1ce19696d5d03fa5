"""Word rows in their three forms: topics of tokens in word-major order, rows of a block, and sparse rows."""

import numpy as np

from schmp_estimators.core.jit import kernel, part
from schmp_estimators.lda.blocks import HEAD

#: Topics of which `list_rows` knows together whether a word has one of them.
GROUP = 32
#: Words with no more tokens, and with no more than there are groups, have their topics sorted by insertion.
SHORT = 64


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


@part
def _insert(topic, start, at, row_topic, row_tokens):
    """Add a token to a row that begins at `start`, of ascending topics, and return where the row ends."""
    end = at
    while at > start and row_topic[at - 1] > topic:
        at -= 1
    if at > start and row_topic[at - 1] == topic:
        row_tokens[at - 1] += 1
        return end
    for i in range(end, at, -1):
        row_topic[i] = row_topic[i - 1]
        row_tokens[i] = row_tokens[i - 1]
    row_topic[at] = topic
    row_tokens[at] = 1
    return end + 1


@kernel
def list_rows(word_ptr, topic, count, seen, row_ptr, row_topic, row_tokens):
    """Write the sparse rows of words, given their tokens' topics.

    Parameters
    ----------
    word_ptr : (n_words + 1,) int64
        Offsets of the words in `topic`.
    topic : (n_tokens,) int16 or int32
        Topics, perhaps a strided view.
    count, seen : (at least K, a multiple of GROUP,) int32 and (len(count) / GROUP,) bool
        Zeros, for use here: tokens of each topic, and whether any of a group of topics has some.
    row_ptr : (n_words + 1,) int64
        Mutated: offsets of the rows.
    row_topic, row_tokens : (room for all entries,) int32
        Mutated: topics, ascending, and their counts.

    Notes
    -----
    3 ns per token, and per word K / GROUP and up to GROUP for each of its topics.
    """
    at = np.int64(0)
    for word in range(len(word_ptr) - 1):
        first, last, start = word_ptr[word], word_ptr[word + 1], at
        if last - first <= SHORT and last - first <= len(seen):
            for i in range(first, last):
                at = _insert(np.int64(topic[i]), start, at, row_topic, row_tokens)
            row_ptr[word + 1] = at
            continue
        for i in range(first, last):
            k = np.uint32(topic[i])
            count[k] += 1
            seen[k // np.uint32(GROUP)] = True
        for group in range(len(seen)):
            if seen[group]:
                seen[group] = False
                for k in range(group * GROUP, (group + 1) * GROUP):
                    if count[k] > 0:
                        row_topic[at] = k
                        row_tokens[at] = count[k]
                        count[k] = 0
                        at += 1
        row_ptr[word + 1] = at


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
