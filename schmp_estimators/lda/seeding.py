"""Names of words and seed words, as users of `DistributedLDA` give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators.core.door.masks import unmask
from schmp_estimators.lda.priors import MOST

#: Stands for the number of a column where several have the same name.
_TWICE = -1
#: What is said of words where columns have no names.
_NAMELESS = (
    "X has no names of columns: give numbers of columns, or feature_names, a list of names or the vectorizer in front, "
    "as in make_pipeline(vectorizer, DistributedLDA(feature_names=vectorizer))"
)


def word_names(estimator: Any, n_words: int) -> NDArray[Any] | None:
    """Return the names of the words, those of `feature_names` or of the columns of X; None if there are none."""
    if estimator.feature_names is None:
        return getattr(estimator, "feature_names_in_", None)
    return read_names(estimator.feature_names, n_words)


def read_names(given: Any, n_words: int) -> NDArray[Any]:
    """Return names of words that are given as an array, or by a fitted vectorizer.

    Raises
    ------
    ValueError
        If the vectorizer knows none, or if there is not one for each word.
    """
    names = unmask(_names_of(given) if hasattr(given, "get_feature_names_out") else given, "feature_names")
    names = np.array(names)
    if names.shape != (n_words,):
        raise ValueError(
            f"feature_names has shape {names.shape}, but there are {n_words} words; give one name for each column, for "
            "example vectorizer.get_feature_names_out()"
        )
    return names


def _names_of(vectorizer: Any) -> Any:
    try:
        return vectorizer.get_feature_names_out()
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"feature_names is a {type(vectorizer).__name__} that has no names ({error}). It must be the object that "
            "is fitted in front, as in make_pipeline(vectorizer, DistributedLDA(feature_names=vectorizer)). Searches, "
            "cross-validation and Pipeline(memory=...) fit copies of it: for these give the words to both, "
            "CountVectorizer(vocabulary=words) and DistributedLDA(feature_names=words)"
        ) from error


def seed_counts(estimator: Any, word_totals: NDArray[np.int64], names: NDArray[Any] | None) -> sparse.csc_array | None:
    """Return the imaginary tokens of words (V) in topics (K) that the parameters ask for, None if there are none.

    `names` are those of the words.

    Raises
    ------
    ValueError
        If what is given are no such tokens.
    """
    given = estimator.seed_words
    if given is None:
        return None
    shape = (estimator.n_components, len(word_totals))
    is_dict = isinstance(given, Mapping)
    found = _of_dict(estimator, given, word_totals, names) if is_dict else _of_array(unmask(given, "seed_words"), shape)
    found.sum_duplicates()
    found.eliminate_zeros()
    return found if found.nnz else None


def seeds_of_first_batch(estimator: Any, asked: sparse.csc_array | None) -> sparse.csc_array | None:
    """Return the seeds that a later batch is sampled with: those of the first one, in whose tokens they are weighed.

    Raises
    ------
    ValueError
        If the parameters ask for others by now: for other words or topics, or for other numbers in an array.
    """
    fitted: sparse.csc_array | None = getattr(estimator, "seed_counts_", None)
    is_same = asked is fitted
    if asked is not None and fitted is not None:
        by_name = isinstance(estimator.seed_words, Mapping)
        is_same = ((asked != 0) != (fitted != 0) if by_name else asked != fitted).nnz == 0
    if not is_same:
        raise ValueError(
            "seed_words are not those of the first batch, which partial_fit keeps: give the same, or begin anew by fit"
        )
    return fitted


def _of_dict(
    estimator: Any, given: Mapping[Any, Any], word_totals: NDArray[np.int64], names: NDArray[Any] | None
) -> sparse.csc_array:
    n_topics, columns = estimator.n_components, dict[Any, int]()
    for at, name in enumerate([] if names is None else names.tolist()):
        columns[name] = _TWICE if name in columns else at
    cells: dict[tuple[int, int], float] = {}
    for topic, words in given.items():
        if not isinstance(topic, (int, np.integer)) or not 0 <= topic < n_topics:
            raise ValueError(f"seed_words has the topic {topic!r}; topics are numbers from 0 to {n_topics - 1}")
        if isinstance(words, (str, bytes)) or not np.iterable(words):
            raise ValueError(f"seed_words[{topic}] is {words!r}; give a list of words")
        for word in words:
            column = _column(word, columns, len(word_totals), f"seed_words[{topic}]")
            cells[int(topic), column] = float(estimator.seed_weight) * max(1, int(word_totals[column]))
    rows, found = np.array(list(cells), np.int64).reshape(-1, 2).T
    return sparse.csc_array((np.array(list(cells.values())), (rows, found)), shape=(n_topics, len(word_totals)))


def _column(word: Any, columns: Mapping[str, int], n_words: int, where: str) -> int:
    if isinstance(word, str):
        if columns.get(word) == _TWICE:
            raise ValueError(f"{where} has the word {word!r}, which several columns have as their name: give numbers")
        if word in columns:
            return columns[word]
        known = "X has no such column" if columns else _NAMELESS
        raise ValueError(f"{where} has the word {word!r}, but {known}")
    if isinstance(word, (int, np.integer)) and 0 <= word < n_words:
        return int(word)
    raise ValueError(f"{where} has the word {word!r}; words are names of columns, or numbers from 0 to {n_words - 1}")


def _of_array(given: Any, shape: tuple[int, int]) -> sparse.csc_array:
    try:
        found = sparse.csc_array(given if sparse.issparse(given) else np.asarray(given, np.float64), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"seed_words must be a dictionary or an array of numbers: {error}") from error
    if found.shape != shape:
        raise ValueError(
            f"seed_words has shape {found.shape}; an array must have shape (n_components, n_features) = {shape}"
        )
    if not ((found.data >= 0) & (found.data <= MOST)).all():
        raise ValueError(
            "seed_words has values that are negative or not finite, or above "
            f"{MOST:g}; they are numbers of tokens, 0 for none"
        )
    return found.copy()
