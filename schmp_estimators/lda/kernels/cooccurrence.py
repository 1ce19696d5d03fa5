"""How many documents have two words of a topic: integers, so that sums over documents can be made in any order."""

import numpy as np

from schmp_estimators.core.jit import kernel


@kernel
def count_together(indptr, indices, slot_ptr, slot, n_best, documents):
    """Count the documents of each pair among the best words of each topic.

    Parameters
    ----------
    indptr, indices : arrays of `Counts`
        The documents.
    slot_ptr : (n_words + 1,) int64
        Offsets of the words in `slot`.
    slot : (n_topics * n_best,) int64
        Where a word is among the best ones: ``topic * n_best + rank``.
    n_best : int
        Best words of a topic.
    documents : (n_topics, n_best * (n_best + 1) / 2) int64
        Mutated: adds one in cell ``i * (i + 1) / 2 + j`` of a topic for every document that has its words of rank i and
        j <= i.

    Notes
    -----
    Time is proportional to the entries and to the pairs that are found.
    """
    n_topics = documents.shape[0]
    ranks, found = np.empty((n_topics, n_best), np.int64), np.zeros(n_topics, np.int64)
    touched = np.empty(n_topics, np.int64)
    for doc in range(indptr.size - 1):
        n_touched = 0
        for entry in range(indptr[doc], indptr[doc + 1]):
            word = indices[entry]
            for at in range(slot_ptr[word], slot_ptr[word + 1]):
                k = slot[at] // n_best
                if found[k] == 0:
                    touched[n_touched] = k
                    n_touched += 1
                ranks[k, found[k]] = slot[at] - k * n_best
                found[k] += 1
        for k in touched[:n_touched]:
            for one in range(found[k]):
                for other in range(one + 1):
                    i, j = ranks[k, one], ranks[k, other]
                    if i < j:
                        i, j = j, i
                    documents[k, i * (i + 1) // 2 + j] += 1
            found[k] = 0
