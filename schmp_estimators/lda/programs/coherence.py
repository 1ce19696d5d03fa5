"""Whether the best words of a topic occur together: coherence, from counts of documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.data.counts import Counts
from schmp_estimators.lda.kernels.cooccurrence import count_together

#: Share of documents that is added to that of a pair, so that there is a logarithm: that of gensim.
_EPSILON = 1e-12
#: Cells that are turned into measures at a time.
_CELLS_AT_ONCE = 1 << 20


class BestWords(NamedTuple):
    """Where each word is among the best ones of topics."""

    #: (n_words + 1,) offsets of the words in `slot`.
    slot_ptr: NDArray[np.int64]
    #: (n_topics * n_best,) ``topic * n_best + rank``.
    slot: NDArray[np.int64]
    n_topics: int
    n_best: int


def find_slots(words: NDArray[np.int64], n_words: int) -> BestWords:
    """Return where each of `n_words` words is in `words`, of shape (n_topics, n_best)."""
    ptr = np.zeros(n_words + 1, np.int64)
    np.cumsum(np.bincount(words.reshape(-1), minlength=n_words), out=ptr[1:])
    return BestWords(ptr, np.argsort(words.reshape(-1), kind="stable"), *words.shape)


def count_pairs(counts: Counts, best: BestWords) -> NDArray[np.int64]:
    """Return how many documents have each pair of best words, as `count_together` numbers pairs."""
    documents = np.zeros((best.n_topics, n_pairs(best.n_best)), np.int64)
    given = freeze((counts.indptr, counts.indices, best.slot_ptr, best.slot))
    count_together(*given, best.n_best, documents)
    return documents


def n_pairs(n_best: int) -> int:
    """Return how many pairs of words there are, those of a word with itself included."""
    return n_best * (n_best + 1) // 2


def merge_pairs(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the counts of all documents from those of some."""
    return np.sum(parts, axis=0)


def npmi(pair: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the normalised pointwise mutual information of pairs, from shares of documents; 0 if a word is in none."""
    both = pair + _EPSILON
    values = np.log(both / (lower * upper)) / -np.log(both)
    return np.where((lower > 0) & (upper > 0), values, 0.0)


def u_mass(pair: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of the chance of a word where the more probable one is; 0 if that is nowhere."""
    return np.where(upper > 0, np.log((pair + _EPSILON) / upper), 0.0)


MEASURES: dict[str, Callable[..., NDArray[np.float64]]] = {"npmi": npmi, "u_mass": u_mass}


def mean_over_pairs(documents: NDArray[np.int64], n_documents: int, n_best: int, measure: str) -> NDArray[np.float64]:
    """Return the mean of a measure over the pairs of each topic; NaN if there are none.

    Parameters
    ----------
    documents : (n_topics, n_pairs) int64
        As `count_pairs` returns them.
    n_documents : int
        Number of all documents.
    n_best : int
        Best words of a topic.
    measure : {"npmi", "u_mass"}
        Which measure.
    """
    found = np.full(len(documents), np.nan)
    rank, other = np.tril_indices(n_best)  # in the order of the cells
    is_pair = rank != other
    if not is_pair.any():
        return found
    at_once = max(1, _CELLS_AT_ONCE // n_pairs(n_best))
    for first in range(0, len(found), at_once):
        shares = documents[first : first + at_once] / n_documents
        alone = shares[:, ~is_pair]
        lower, upper = alone[:, rank[is_pair]], alone[:, other[is_pair]]
        with np.errstate(divide="ignore", invalid="ignore"):
            values = MEASURES[measure](shares[:, is_pair], lower, upper)
        found[first : first + at_once] = values.mean(axis=1)
    return found
