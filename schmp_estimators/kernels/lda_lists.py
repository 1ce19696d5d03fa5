"""The topics of documents as short lists of (topic, count): what a Gibbs sampler runs through for every token."""

import numpy as np

from schmp_estimators.kernels._jit import kernel

#: Lists up to this length are sorted by insertion, which takes one pass where little has changed.
_SHORT = 48


@kernel
def list_topics(doc_ptr, place, topic, n_topics, document, ptr, length, listed, tokens):
    """Make the topic lists of documents from the topics of their tokens.

    Parameters
    ----------
    doc_ptr, place
        Of the TokenShard.
    topic : (n_tokens,) int16 or int32
        Topics, word-major.
    n_topics : int
        K.
    document : (n_tokens,) uint32
        Mutated: document of each token, word-major.
    ptr : (n_docs + 1,) int64
        Offsets of the lists.
    length : (n_docs,) int32
        Mutated: entries in use.
    listed, tokens : int16 or int32, int32
        Mutated: topics of a document and how many of its tokens each has, unordered.

    Notes
    -----
    8 ns per token.
    """
    slot = np.full(n_topics, -1, np.int32)
    for d in range(len(doc_ptr) - 1):
        start, n = ptr[d], 0
        for i in range(doc_ptr[d], doc_ptr[d + 1]):
            at = np.uint64(place[i])
            document[at] = d
            k = topic[at]
            if slot[k] < 0:
                slot[k] = n
                listed[start + n] = k
                tokens[start + n] = 0
                n += 1
            tokens[start + slot[k]] += 1
        for k in listed[start : start + n]:
            slot[k] = -1
        length[d] = n


@kernel
def order_lists(ptr, length, listed, tokens):
    """Sort the topic lists of documents by descending count, then topic; parameters are those of `list_topics`.

    Likely topics come first, so that searches are short.  1 ns per entry if little has changed.
    """
    for d in range(len(length)):
        topic, count = listed[ptr[d] : ptr[d] + length[d]], tokens[ptr[d] : ptr[d] + length[d]]
        if len(topic) <= _SHORT:
            for i in range(1, len(topic)):
                k, c, at = topic[i], count[i], i
                while at > 0 and (count[at - 1] < c or (count[at - 1] == c and topic[at - 1] > k)):
                    topic[at], count[at] = topic[at - 1], count[at - 1]
                    at -= 1
                topic[at], count[at] = k, c
        else:
            keys = np.empty(len(topic), np.int64)
            for i in range(len(topic)):
                keys[i] = (-np.int64(count[i]) << 32) + topic[i]
            keys.sort()
            for i in range(len(topic)):
                topic[i] = keys[i] & 0xFFFFFFFF
                count[i] = -(keys[i] >> 32)
