"""A corpus: the documents of an input as canonical counts, and what must be known of them before work is divided."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.door.inputs import check_width
from schmp_estimators.core.door.rows import Rows, open_rows
from schmp_estimators.core.places.place import Place
from schmp_estimators.lda.data.counts import Counts, document_lengths, read_counts, take_rows, word_totals
from schmp_estimators.lda.data.faults import Fault, raise_fault
from schmp_estimators.lda.data.partition import locate_shards


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents as canonical counts, here or on a cluster; `close` lets go of them, and of their shards."""

    n_features: int
    #: (n_docs,) tokens of each document.
    lengths: NDArray[np.int64]
    #: (n_features,) tokens of each word.
    word_totals: NDArray[np.int64]
    #: (n_partitions,) documents of each partition.
    partition_rows: NDArray[np.int64]
    #: The counts: values of type `Counts`, or futures of them.
    rows: Rows

    def shards(self, bounds: NDArray[np.int64]) -> list[Any]:
        """Return the documents from ``bounds[s]`` to ``bounds[s + 1]``, for every s.

        Each shard is a list of `Counts`, views of one or more partitions one after the other, or a future of one.
        """
        places = locate_shards(bounds, self.partition_rows)
        arguments = [
            ([rows for _, rows in place], *(self.rows.partitions[number] for number, _ in place)) for place in places
        ]
        return self.rows.tasks(take_rows, arguments, "cut-shards")

    def close(self) -> None:
        """Let go of what is on the cluster.  Closing twice does no harm."""
        self.rows.close()

    def __enter__(self) -> Corpus:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def open_corpus(X: Any, estimator: Any, *, place: Place | None = None, reset: bool = True) -> Corpus:
    """Let documents of any kind of input in, and check every count before any work.

    Parameters
    ----------
    X : input of any kind, of shape (n_docs, n_features)
        Word counts.
    estimator : estimator
        Gets the number and names of the features, or is asked for them.
    client : distributed.Client, default=None
        The cluster that shall hold a Dask input.
    reset : bool, default=True
        Whether this is a fit.

    Raises
    ------
    ValueError
        If an entry is no count, with its place in X and the remedy; if there are no documents or no features.
    """
    rows = open_rows(read_counts, X, estimator, place=place, reset=reset, ensure_all_finite=False)
    try:
        surveys = rows.here(rows.each(_survey, "survey-rows"))
        _raise_first_fault(surveys)
        n_features = _common_width(surveys, estimator, reset=reset)
        lengths = np.concatenate([survey.lengths for survey in surveys])
        if not lengths.size:
            raise ValueError(
                f"Found array with 0 sample(s) (shape=(0, {n_features})) while a minimum of 1 is required by "
                f"{type(estimator).__name__}."
            )
        if reset and not lengths.any():
            warnings.warn(
                f"X holds no counts: all {lengths.size} documents are empty, so that nothing can be learned of topics. "
                "Look at the vocabulary with which they were counted.",
                UserWarning,
                stacklevel=2,
            )
        sizes = np.array([survey.lengths.size for survey in surveys], np.int64)
        return Corpus(n_features, lengths, rows.reduce(word_totals, sum, "count-words"), sizes, rows)
    except BaseException:
        rows.close()
        raise


class _Survey(NamedTuple):
    """What the client must know of one partition."""

    lengths: NDArray[np.int64]
    n_features: int
    fault: Fault | None


def _survey(piece: Counts | Fault) -> _Survey:
    if isinstance(piece, Fault):
        return _Survey(np.zeros(0, np.int64), -1, piece)
    return _Survey(document_lengths(piece), piece.n_features, None)


def _raise_first_fault(surveys: list[_Survey]) -> None:
    first_row = 0
    for survey in surveys:
        if survey.fault is not None:
            raise_fault(survey.fault, first_row)
        first_row += survey.lengths.size


def _common_width(surveys: list[_Survey], estimator: Any, *, reset: bool) -> int:
    """Return the number of columns that all partitions have; they are known by now, whatever X was."""
    n_features = surveys[0].n_features
    for number, survey in enumerate(surveys):
        if survey.n_features != n_features:
            raise ValueError(
                f"The chunks of X differ in width: chunk 0 has {n_features} columns, chunk {number} has "
                f"{survey.n_features}. Build all chunks with the same columns, for example one vocabulary."
            )
    check_width(n_features, estimator)
    if reset:
        estimator.n_features_in_ = n_features
    elif n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {n_features} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} "
            "features as input."
        )
    return n_features
