"""Names of words: where they come from, and in which order."""

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np

from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.typing import Array
from schmp_estimators.lda.data.counts import Columns

#: How scikit-learn's error about columns in another order begins.
MISMATCH = "The feature names should match those that were passed during fit. "


def names_of_words(estimator: Any, X: Any, n_words: int, *, is_first: bool) -> Array | None:
    """Return names of words: `feature_names`, else those of columns, or of the first batch."""
    own = getattr(estimator, "feature_names_in_", None)
    if own is None:
        own = labels_of(X, n_words)
    if own is None and not is_first:
        own = getattr(estimator, "feature_names_", None)
    given = estimator.feature_names
    return own if given is None else read_names(given, n_words, own)


def columns_by_name(X: Any, given: Any, known: Array | None) -> tuple[Array, Columns]:
    """Return all names, new ones after those that are `known`, and where those of X are among them.

    `given` are the names of the columns of X, or a vectorizer that has them.

    Raises
    ------
    ValueError
        If the names are not those of columns, or two of them are the same.
    """
    width = getattr(X, "shape", ())[1:]
    n_words = int(width[0]) if width and isinstance(width[0], Integral) else None
    names = read_names(given, n_words, None)
    if n_words is None:
        n_words = len(names)
    if (labels := labels_of(X, n_words)) is not None:
        check_order(names.tolist(), labels.tolist(), "feature_names")
    own = [] if known is None else known.tolist()
    for some, what in ((own, "the model"), (names.tolist(), "feature_names")):
        if len({*some}) < len(some):
            twice = next(name for name in some if some.count(name) > 1)
            raise ValueError(
                f"{what} has several words with the name {twice!r}; give each its own name"
            )
    place = {name: at for at, name in enumerate(own)}
    of_input = np.array([place.setdefault(name, len(place)) for name in names.tolist()], np.int32)
    together = np.array([*place, None], object)[:-1]  # NumPy makes tuples alone to rows
    return together, Columns(of_input, len(place))


def labels_of(X: Any, n_words: int) -> Array | None:
    """Return the labels of the columns of a data frame, unless they are 0, 1, 2 and so on."""
    labels = getattr(X, "column_names", getattr(X, "columns", None))
    found = None if labels is None else np.asarray(labels)
    is_named = (
        found is not None and found.shape == (n_words,) and found.tolist() != [*range(n_words)]
    )
    return found if is_named else None


def read_names(given: Any, n_words: int | None, known: Array | None) -> Array:
    """Return names of words that are given as an array, or by a fitted vectorizer.

    Raises
    ------
    ValueError
        If the vectorizer knows none, if there is not one for each word, or if one is the name of
        another word among the names that are `known`.
    """
    names = unmask(
        _names_of(given) if hasattr(given, "get_feature_names_out") else given, "feature_names"
    )
    # NumPy would make numbers beside strings to strings.
    names = np.array(names, object if isinstance(names, list | tuple) else None)
    n_words = len(names) if n_words is None else n_words
    if names.shape != (n_words,):
        raise ValueError(
            f"feature_names has shape {names.shape}, but there are {n_words} words; give one name "
            "for each column, for example vectorizer.get_feature_names_out()"
        )
    if known is not None:
        check_order(names.tolist(), known.tolist(), "feature_names")
    return names


def _names_of(vectorizer: Any) -> Any:
    try:
        return vectorizer.get_feature_names_out()
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"feature_names is a {type(vectorizer).__name__} that has no names ({error}). It must "
            "be the object that is fitted in front, as in make_pipeline(vectorizer, "
            "DistributedLDA(feature_names=vectorizer)). Searches, cross-validation and "
            "Pipeline(memory=...) fit copies of it: for these give the words to both, "
            "CountVectorizer(vocabulary=words) and DistributedLDA(feature_names=words)"
        ) from error


def check_labels(table: Any, axis: int, known: Iterable[Any], name: str) -> None:
    """Raise ValueError if a data frame or a series gives a row or column the label of another.

    `known` are the names of all rows, or columns, in their order.
    """
    if hasattr(table, "iloc"):
        check_order(table.axes[axis].tolist(), known, f"{name} is a {type(table).__name__} that")


def check_order(names: Iterable[Any], known: Iterable[Any], what: str) -> None:
    """Raise ValueError if a name is where another one belongs; new names are accepted."""
    known = [*known]
    place = {name: at for at, name in enumerate(known)}
    for at, (name, own) in enumerate(zip(names, known, strict=False)):
        if name != own and (other := place.get(name)) is not None:
            raise ValueError(
                f"{what} has {name!r} at place {at}, where {own!r} belongs; {name!r} belongs to "
                f"place {other}. Bring all into this order, or take names or labels away"
            )
