"""The topics of documents as lists, which tokens in word-major order can look at; see `listed` for their layout."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.prefetch import prefetch
from schmp_estimators.lda.kernels.listed import LANES


class DocumentLists(NamedTuple):
    """The topics of a shard's documents, in the order in which they come first in the document."""

    #: (n_tokens,) document of each token, word-major.
    document: NDArray[np.uint32]
    #: (n_docs + 1,) number of the first block of each document: there is room for all the topics that it can have.
    ptr: NDArray[np.int64]
    #: (n_docs,) blocks of its list.
    n_blocks: NDArray[np.int32]
    #: (n_blocks * 2 * LANES,) topics and counts; int16 or int32.
    lists: NDArray[np.signedinteger]


def make_lists(doc_ptr: NDArray[np.int64], n_topics: int) -> DocumentLists:
    """Return empty lists for documents of such lengths."""
    lengths = np.diff(doc_ptr)
    ptr = np.zeros(len(doc_ptr), np.int64)
    np.cumsum(-(-np.minimum(lengths, n_topics) // LANES), out=ptr[1:])
    narrow = max(n_topics, int(lengths.max(initial=0))) <= np.iinfo(np.int16).max
    number: type[np.signedinteger] = np.int16 if narrow else np.int32
    lists = np.empty(int(ptr[-1]) * 2 * LANES, number)
    return DocumentLists(np.empty(int(doc_ptr[-1]), np.uint32), ptr, np.zeros(len(lengths), np.int32), lists)


@kernel
def number_documents(doc_ptr, place, out):
    """Write the document of each token, word-major; 2 ns per token."""
    for doc in range(len(doc_ptr) - 1):
        for i in range(doc_ptr[doc], doc_ptr[doc + 1]):
            out[np.uint64(place[np.uint64(i)])] = doc


@kernel
def list_documents(first, last, doc_ptr, place, topic, ptr, n_blocks, lists, totals):
    """List the topics of some documents.

    Parameters
    ----------
    first, last : int
        Range of documents.
    doc_ptr, place
        Of the `TokenShard`.
    topic : (n_tokens,) int16 or int32
        Topics, word-major.
    ptr, n_blocks, lists
        Of the `DocumentLists`; the last two are mutated.
    totals : (K,) int64
        Mutated: the tokens' topics are added.

    Notes
    -----
    9 ns per token.
    """
    row, found = np.zeros(len(totals), np.int32), np.empty(len(totals), np.int32)
    for doc in range(first, last):
        n_found = 0
        for i in range(doc_ptr[doc], doc_ptr[doc + 1]):
            if i + 16 < len(place):
                prefetch(topic, np.int64(place[np.uint64(i + 16)]))
            k = np.uint32(topic[np.uint64(place[np.uint64(i)])])
            if row[k] == 0:
                found[np.uint64(n_found)] = k
                n_found += 1
            row[k] += 1
        n = (n_found + LANES - 1) // LANES
        n_blocks[doc] = n
        base = ptr[doc] * 2 * LANES
        for j in range(n * LANES):
            at = np.uint64(base + (j // LANES) * 2 * LANES + j % LANES)
            topic_of_list, count = 0, 0
            if j < n_found:
                topic_of_list = found[np.uint64(j)]
                count = row[np.uint32(topic_of_list)]
                totals[topic_of_list] += count
                row[np.uint32(topic_of_list)] = 0
            lists[at] = topic_of_list
            lists[at + np.uint64(LANES)] = count
