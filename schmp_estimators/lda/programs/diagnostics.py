"""MALLET's measures of topics, from words alone and from topics of tokens, and its state file."""

import gzip
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators.core.typing import Array, Floats, Integers, Integers32
from schmp_estimators.core.values import offsets_of, part_of_each
from schmp_estimators.lda.blocks import TopicRows
from schmp_estimators.lda.data.counts import LARGEST, Counts, add_at, canonical_counts, sum_rows
from schmp_estimators.lda.programs.coherence import BestWords, count_pairs


class DocumentCounts(NamedTuple):
    """Counts of the topics of tokens in documents.

    They are integers, so that parts can be added in any order.
    """

    #: (K, LARGEST + 1): in how many documents a topic has so many tokens.
    times: sparse.csr_array
    #: (K,) documents in which the topic has most tokens; of equal topics, the one with the lowest
    #: number.
    first: Integers
    #: (K, n_pairs) documents in which both of two best words have tokens of the topic, as
    #: `count_pairs` numbers pairs.
    together: Integers


def count_topics(counts: Counts, topics: Integers32, best: Integers) -> DocumentCounts:
    """Count what `document_measures` needs of some documents.

    Parameters
    ----------
    counts : Counts
        The documents.
    topics : (n_tokens,) int32
        Topics of their tokens, in canonical order.
    best : (K, n_best) int64
        Best words of each topic.
    """
    n_docs = len(counts.indptr) - 1
    n_topics = len(best)
    ptr = offsets_of(sum_rows(counts.indptr, counts.data))
    docs = part_of_each(np.diff(ptr))
    table = sparse.csr_array(
        (np.ones(len(topics), np.int32), topics, ptr), shape=(n_docs, n_topics)
    )
    table.sum_duplicates()
    shape = n_topics, LARGEST + 1
    times = sparse.coo_array(
        (np.ones(table.nnz, np.int64), (table.indices, table.data)), shape=shape
    ).tocsr()
    rows = part_of_each(np.diff(table.indptr))
    by_size = np.lexsort((table.indices, -table.data, rows))
    largest = table.indices[by_size[table.indptr[:-1][np.diff(table.indptr) > 0]]]
    slots, found = _slots(np.repeat(counts.indices, counts.data), topics, best, counts.n_features)
    cells = sparse.coo_array(
        (np.ones(len(slots), np.int8), (docs[found], slots)), shape=(n_docs, best.size)
    ).tocsr()
    itself = np.arange(best.size + 1)
    together = count_pairs(
        canonical_counts(cells.astype(bool)), BestWords(itself, itself[:-1], *best.shape)
    )
    return DocumentCounts(times, np.bincount(largest, minlength=n_topics), together)


def _slots(
    words: Integers32, topics: Integers32, best: Integers, n_words: int
) -> tuple[Integers, Integers]:
    """Return ``topic * n_best + rank`` for tokens, and the numbers of these tokens.

    They are those whose word is among the best of their topic.
    """
    keys = (np.arange(len(best))[:, None] * n_words + best).reshape(-1)
    order = np.argsort(keys)
    sought = topics * np.int64(n_words) + words
    at = order[np.minimum(np.searchsorted(keys[order], sought), len(keys) - 1)]
    found = np.flatnonzero(keys[at] == sought)
    return at[found], found


def document_measures(counted: DocumentCounts, prior: float, n_best: int) -> dict[str, Floats]:
    """Return the measures that need documents; NaN for topics that no token has."""
    n_topics = len(counted.first)
    rows = sparse.coo_array(counted.times)
    size = rows.col.astype(np.float64)
    times = rows.data
    n_docs, tokens, logs = (
        np.bincount(rows.row, weight, n_topics)
        for weight in (times, times * size, times * size * np.log(size))
    )
    rank, other = np.tril_indices(n_best, -1)
    pairs = np.log(counted.together + prior)
    scores = pairs[:, rank * (rank + 1) // 2 + other] - pairs[:, other * (other + 3) // 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "document_entropy": np.log(tokens) - logs / tokens,
            "rank_1_docs": counted.first / n_docs,
            "coherence": np.where(n_docs > 0, scores.sum(axis=1), np.nan),
        }


def word_measures(rows: TopicRows, n_topics: int) -> dict[str, Floats]:
    """Return the measures of topics as distributions of the tokens of words.

    NaN for topics without tokens.
    """
    n_words = len(rows.ptr) - 1
    tokens = rows.tokens.astype(np.float64)
    totals = np.zeros(n_topics)
    add_at(totals, rows.topic, tokens)
    share = tokens / totals[rows.topic]
    of_word = np.repeat(sum_rows(rows.ptr, tokens) / max(1.0, tokens.sum()), np.diff(rows.ptr))

    def sums(values: Floats) -> Floats:
        found = np.bincount(rows.topic, values, n_topics)
        return np.where(totals > 0, found, np.nan)

    return {
        "uniform_dist": sums(share * np.log(share * n_words)),
        "corpus_dist": sums(share * np.log(share / of_word)),
        "eff_num_words": 1.0 / sums(share**2),
    }


def exclusivity(
    rows: TopicRows, totals: NDArray[np.number], prior: float, words: Integers, weights: Floats
) -> Floats:
    """Return how much of the probability of its best words, over all topics, is that of a topic.

    Parameters
    ----------
    rows, totals : TopicRows and (K,)
        Tokens of words in topics, seeds included, and of topics.
    prior : float
        The topic-word prior.
    words, weights : (K, n_best)
        As `top_words` returns them, but weight 0 for words without tokens in the topic.
    """
    inverse = 1.0 / (totals + (len(rows.ptr) - 1) * prior)
    everywhere = sum_rows(rows.ptr, rows.tokens * inverse[rows.topic]) + prior * inverse.sum()
    return np.asarray((weights * inverse[:, None] / everywhere[words]).mean(axis=1))


def plain_names(names: Iterable[Any]) -> Array:
    """Return names as strings without blanks, not empty, and unique.

    If need be, the numbers of the words make them so.
    """
    plain = [re.sub(r"\s", "_", str(name)) or "_" for name in names]
    while len(times := Counter(plain)) < len(plain):
        plain = [f"{one}#{w}" if times[one] > 1 else one for w, one in enumerate(plain)]
    return np.array(plain, object)


#: Lines that are put together in memory at a time.
_LINES = 1 << 16


def write_state(
    file: IO[bytes], tokens: Mapping[str, Array], names: Array, alpha: Floats, beta: float
) -> None:
    """Write tokens to a file in the format of MALLET's ``printState``, packed by gzip.

    Parameters
    ----------
    file : binary file
    tokens : mapping
        ``document``, ``word`` and ``topic`` of each token, by documents.
    names : (n_words,)
        Names of the words, as `plain_names` returns them.
    alpha : (K,) float64
        Document-topic priors.
    beta : float
        Topic-word prior.
    """
    document = tokens["document"]
    word = tokens["word"]
    position = np.arange(len(document)) - np.searchsorted(document, document)
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        numbers = " ".join(map(repr, alpha.tolist()))
        packed.write(
            "#doc source pos typeindex type topic\n"
            f"#alpha : {numbers} \n"
            f"#beta : {beta!r}\n".encode()
        )
        for first in range(0, len(document), _LINES):
            some = slice(first, first + _LINES)
            columns = (
                document[some],
                position[some],
                word[some],
                names[word[some]],
                tokens["topic"][some],
            )
            rows = zip(*(column.tolist() for column in columns), strict=True)
            packed.write(
                "".join(
                    f"{doc} NA {at} {w} {name} {topic}\n" for doc, at, w, name, topic in rows
                ).encode()
            )
