"""The best words of each topic, and whether they occur together: coherence.

It follows from counts of documents or of windows.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from schmp_estimators.core.typing import Array, Floats, Function, Integers, Integers32
from schmp_estimators.core.values import freeze, offsets_of
from schmp_estimators.lda.blocks import TopicRows
from schmp_estimators.lda.data.counts import AT_ONCE, Counts, sum_rows
from schmp_estimators.lda.kernels.tokens import count_in_windows

#: Share of documents that is added to that of a pair, so that there is a logarithm: that of gensim.
_EPSILON = 1e-12
#: Measures that slide windows over texts, and how many tokens these have by themselves: those of
#: gensim.
WINDOWS = {"c_npmi": 10, "c_v": 110}


class BestWords(NamedTuple):
    """The topics of which a word is one of the best words."""

    #: (n_words + 1,) offsets of the words in `slot`.
    slot_ptr: Integers
    #: (n_topics * n_best,) ``topic * n_best + rank``.
    slot: Integers
    n_topics: int
    n_best: int


def find_slots(words: Integers, n_words: int) -> BestWords:
    """Return where each of `n_words` words is in `words`, of shape (n_topics, n_best)."""
    ptr = offsets_of(np.bincount(words.reshape(-1), minlength=n_words))
    return BestWords(ptr, np.argsort(words.reshape(-1), kind="stable"), *words.shape)


def count_pairs(counts: Counts, best: BestWords) -> Integers:
    """Return how many documents have each pair, numbered as by `count_in_windows`.

    The pairs are of best words.
    """
    return _count(
        counts.indptr, counts.indices, best, 1 + int(np.diff(counts.indptr).max(initial=0))
    )


def _count(ptr: Integers, words: Integers32, best: BestWords, width: int) -> Integers:
    documents = np.zeros((best.n_topics, n_pairs(best.n_best)), np.int64)
    since = np.full((best.n_topics, best.n_best), -1)
    count_in_windows(*freeze((ptr, words, best.slot_ptr, best.slot)), width, since, documents)
    return documents


def count_windows(
    texts: Iterable[Any], best: BestWords, columns: Mapping[Any, int], width: int
) -> tuple[Integers, int]:
    """Return how many windows of texts have each pair of best words, and how many there are.

    Pairs are in the order of `count_pairs` of documents.

    Texts are lists of words; `columns` has the numbers of best words.
    """
    parts = [_columns_of(text, columns, number) for number, text in enumerate(texts)]
    lengths = np.array([*map(len, parts)], np.int64)
    words = np.concatenate(parts) if parts else np.zeros(0, np.int32)
    documents = _count(offsets_of(lengths), words, best, width)
    return documents, int(np.maximum(1, lengths - width + 1).sum())


def _columns_of(text: Any, columns: Mapping[Any, int], number: int) -> Integers32:
    try:
        if isinstance(text, str | bytes):
            raise TypeError("it is one string")
        return np.fromiter(map(columns.get, text, repeat(-1)), np.int32)
    except TypeError as error:
        raise ValueError(
            f"text {number} of X is {text!r:.50}, not a list of words ({error}); split texts as "
            "the vectorizer does, for example by [*map(vectorizer.build_analyzer(), texts)]"
        ) from error


def n_pairs(n_best: int) -> int:
    """Return how many pairs of words there are, those of a word with itself included."""
    return n_best * (n_best + 1) // 2


def npmi(pair: Floats, lower: Floats, upper: Floats) -> Floats:
    """Return the normalised pointwise mutual information of pairs, from shares of documents.

    It is 0 if a word is in none.
    """
    both = pair + _EPSILON
    values = np.log(both / (lower * upper)) / -np.log(both)
    return np.where((lower > 0) & (upper > 0), values, 0.0)


def u_mass(pair: Floats, lower: Floats, upper: Floats) -> Floats:
    """Return the logarithm of the chance of a word where the more probable one is.

    0 if that is nowhere.
    """
    return np.where(upper > 0, np.log((pair + _EPSILON) / upper), 0.0)


#: What `mean_over_pairs` takes the mean of.
MEASURES: dict[str, Function] = {"npmi": npmi, "u_mass": u_mass, "c_npmi": npmi, "c_v": npmi}


def _similarity_to_all(values: Floats, rank: Integers, other: Integers) -> Floats:
    """Return the mean cosine between vectors of words, a value for each word, and their sum.

    The sum is that of the vectors.
    """
    n_best = rank[-1] + 1
    vectors = np.empty((len(values), n_best, n_best))
    vectors[:, rank, other] = vectors[:, other, rank] = values
    whole = vectors.sum(axis=1, keepdims=True)
    dots = (vectors * whole).sum(axis=2)
    scales = np.linalg.norm(vectors, axis=2) * np.linalg.norm(whole, axis=2)
    return np.asarray(
        np.divide(dots, scales, out=np.zeros_like(dots), where=scales > 0).mean(axis=1)
    )


def mean_over_pairs(documents: Integers, n_documents: int, n_best: int, measure: str) -> Floats:
    """Return the mean of a measure over the pairs of each topic; NaN if there are none.

    Parameters
    ----------
    documents : (n_topics, n_pairs) int64
        As `count_pairs` returns them, or `count_windows`.
    n_documents : int
        Number of all documents, or windows.
    n_best : int
        Best words of a topic.
    measure : key of `MEASURES`
        Which measure.
    """
    found = np.full(len(documents), np.nan)
    rank, other = np.tril_indices(n_best)  # in the order of the cells
    is_pair = rank != other
    if not is_pair.any():
        return found
    cells = is_pair | (measure == "c_v")
    at_once = max(1, AT_ONCE // n_pairs(n_best))
    for first in range(0, len(found), at_once):
        shares = documents[first : first + at_once] / n_documents
        alone = shares[:, ~is_pair]
        lower = alone[:, rank[cells]]
        upper = alone[:, other[cells]]
        with np.errstate(divide="ignore", invalid="ignore"):
            values = MEASURES[measure](shares[:, cells], lower, upper)
        mean = _similarity_to_all(values, rank, other) if measure == "c_v" else values.mean(axis=1)
        found[first : first + at_once] = mean
    return found


def top_words(
    rows: TopicRows | Any, n_topics: int, prior: float, n_best: int, relevance: float | None = None
) -> tuple[Integers, Floats]:
    """Return the best words of each topic, and their weights: tokens plus prior.

    A word scores its weight in the topic; by relevance the logarithm of it, less what it has in the
    model.  Of equal scores the larger weight comes first, then the lower number.

    Parameters
    ----------
    rows : TopicRows
        Tokens of all words, which may be fractions.
    n_topics : int
        Number of topics K.
    prior : float
        What every word has in every topic, beta.
    n_best : int
        How many words; no more than there are.
    relevance : float, optional
        Lambda, from 0 to 1; None ranks by probability.

    Returns
    -------
    words : (n_topics, n_best) int64
    weights : (n_topics, n_best) float64
    """
    n_words = len(rows.ptr) - 1
    discount = np.zeros(n_words)
    if relevance is not None:
        discount = (1.0 - relevance) * np.log(sum_rows(rows.ptr, rows.tokens) + n_topics * prior)
    scale: Callable[[Array], Array] = np.asarray if relevance is None else np.log
    order = np.argsort(discount, kind="stable")
    is_own = np.zeros(n_words, bool)
    words = np.empty((n_topics, n_best), np.int64)
    weights = np.empty((n_topics, n_best))
    table = sparse.csc_array((rows.tokens, rows.topic, rows.ptr), shape=(n_topics, n_words)).tocsr()
    for k, (begin, end) in enumerate(pairwise(table.indptr.tolist())):
        own = table.indices[begin:end]
        is_own[own] = True
        others = order[: n_best + len(own)]  # words that it has no tokens of
        others = others[~is_own[others]][:n_best]
        is_own[own] = False
        word = np.concatenate([own, others])
        weight = np.concatenate([table.data[begin:end] + prior, np.full(len(others), float(prior))])
        score = scale(weight) - discount[word]
        last = np.partition(score, len(score) - n_best)[len(score) - n_best]
        kept = np.flatnonzero(score >= last)
        best = kept[np.lexsort((word[kept], -weight[kept], -score[kept]))[:n_best]]
        words[k] = word[best]
        weights[k] = weight[best]
    return words, weights
