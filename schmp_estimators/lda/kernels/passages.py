"""Passages of documents, from which topics begin."""

import numpy as np

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.rng import GAMMA, below, mix


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
