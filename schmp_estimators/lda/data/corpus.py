"""The documents of an input as canonical counts, with the totals by which work is divided."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_n_features

from schmp_estimators.core.inputs.rows import Again, Rows, forget_last, open_rows
from schmp_estimators.core.inputs.validation import check_width
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.typing import AnyIntegers, Function, Integers, Integers32
from schmp_estimators.core.values import offsets_of
from schmp_estimators.lda.data import counts
from schmp_estimators.lda.data.shards import locate_shards


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents as canonical counts, in this process or on a cluster.

    `close` releases them and their shards.
    """

    n_features: int
    #: (n_docs,) tokens of each document.
    lengths: Integers
    #: (n_features,) tokens of each word.
    word_totals: Integers
    #: (n_partitions,) documents of each partition.
    partition_rows: Integers
    #: The counts: values of type `Counts`, or futures of them.
    rows: Rows

    def shards(self, bounds: Integers) -> list[Any]:
        """Return the documents from ``bounds[s]`` to ``bounds[s + 1]``, for every s.

        Each shard is a list of `Counts`, of one or more partitions one after the other, or a future
        of one.
        """
        arguments = []
        for place in locate_shards(bounds, self.partition_rows):
            numbers, rows = zip(*place, strict=True)
            arguments.append((rows, *map(self.rows.partitions.__getitem__, numbers)))
        if self.rows.place.n_processes > 1:
            return self.rows.cut(counts.copy_rows, arguments, "cut-shards")
        return self.rows.tasks(counts.take_rows, arguments, "cut-shards")

    def tasks(self, function: Function, name: str, *shared: Any) -> list[Any]:
        """Return ``function(documents, *shared)`` of all partitions: values, or futures of them."""
        given = [self.rows.place.share(one) for one in shared]
        return self.rows.tasks(
            function, [(partition, *given) for partition in self.rows.partitions], name
        )

    def digest(self) -> str:
        """Return a hash of the documents in their order, whatever partitions they are in."""
        documents = self.rows.here(self.rows.each(counts.hash_documents, "hash-documents"))
        return hashlib.sha256(np.concatenate(documents).tobytes()).hexdigest()

    def count_some(
        self, parts: list[Any], columns: Integers32, sizes: Sequence[int]
    ) -> list[tuple[Integers, ...]]:
        """Return how many tokens of some words earlier shards have, and how many each has itself.

        `sizes` says how many consecutive parts are a shard.
        """
        found = self.word_totals[columns][None]
        if len(sizes) > 1:
            shared = self.rows.place.share(columns)
            given = [(one, shared, self.n_features) for one in parts] if len(columns) else []
            own = self.rows.here(self.rows.tasks(_count_some, given, "count-words"))
            of_parts = np.array(own, np.int64).reshape(len(parts), -1)
            found = np.add.reduceat(of_parts, offsets_of(sizes)[:-1])
        return list(zip(np.cumsum(found, axis=0) - found, found, strict=True))

    def held(self) -> Corpus:
        """Return the same corpus with its counts in memory.

        They are not computed again each time.
        """
        return replace(self, rows=self.rows.held())

    def close(self) -> None:
        """Release what is on the cluster.  Closing twice does no harm."""
        self.rows.close()


def open_corpus(
    X: Any, estimator: Any, *, place: Place | None = None, reset: bool = True, again: bool = False,
    columns: counts.Columns | None = None,
) -> Corpus:  # fmt: skip
    """Read documents from any kind of input, and check every count before any work.

    Parameters
    ----------
    X : input of any kind, of shape (n_docs, n_features)
        Word counts.
    estimator : estimator
        In a fit it gets the number and the names of the features, else it has them.
    place : Place, default=None
        Where a Dask input is held.
    reset : bool, default=True
        Whether this is a fit.
    again : bool, default=False
        Whether counts are not kept, but computed again whenever they are needed; see `Corpus.held`.
    columns : Columns, optional
        Where the columns of X are in the model; then the estimator is one of X's width.

    Raises
    ------
    ValueError
        If an entry is not a count, with its place in X and the remedy; if there are no documents or
        no features.
    """
    rows = open_rows(
        partial(counts.read_counts, columns=columns),
        X,
        estimator,
        place=place,
        reset=reset,
        again=again,
        ensure_all_finite=False,
    )
    try:
        parts, widths, fault, totals = rows.reduce(_survey, _merge, "survey-rows")
        if fault is not None:
            counts.raise_fault(fault)
        n_features = widths[0]
        lengths = np.concatenate(parts)
        known = getattr(estimator, "n_features_in_", None)
        if columns is None and {*widths} != {known}:
            _check_widths(widths, estimator, reset=reset)
        if not lengths.size:
            raise ValueError(
                f"Found array with 0 sample(s) (shape=(0, {n_features})) while a minimum of 1 is "
                f"required by {type(estimator).__name__}."
            )
        if reset and not lengths.any():
            warnings.warn(
                f"X holds no counts: all {lengths.size} documents are empty, so that nothing can "
                "be learned of topics. Look at the vocabulary with which they were counted.",
                UserWarning,
                stacklevel=2,
            )
        return Corpus(
            n_features,
            lengths,
            totals.astype(np.int64),
            np.array([*map(len, parts)], np.int64),
            rows,
        )
    except BaseException:
        rows.close()
        raise


def _count_some(pieces: Sequence[counts.Counts], columns: Integers32, n_words: int) -> Integers:
    return counts.count_words(pieces, n_words)[columns].astype(np.int64)


#: What the client must know of consecutive partitions: tokens of each document; columns of each
#: partition; the first fault, its row counted from the first of these partitions; tokens of each
#: word, in few bits, since many of them meet in one place.  Partitions that are at fault, or differ
#: in width, have none of words.
_Survey = tuple[list[Integers], list[int], counts.Fault | None, AnyIntegers]


def _survey(piece: counts.Counts | counts.Fault) -> _Survey:
    if isinstance(piece, counts.Fault):
        return [np.zeros(0, np.int64)], [-1], piece, np.zeros(0, np.int64)
    lengths, totals = counts.token_counts(piece)
    return [lengths], [piece.n_features], None, narrow(totals)


def _merge(parts: list[_Survey]) -> _Survey:
    lengths = list[Integers]()
    widths = list[int]()
    fault = None
    for some, some_widths, found, _ in parts:
        if fault is None and found is not None:
            fault = found._replace(row=found.row + sum(map(len, lengths)))
        lengths += some
        widths += some_widths
    alike = len({len(part[3]) for part in parts}) == 1
    totals = np.zeros(len(parts[0][3]) if alike else 0, np.int64)
    for part in parts if alike else ():
        totals += part[3]
    return lengths, widths, fault, narrow(totals)


def narrow(totals: AnyIntegers) -> AnyIntegers:
    """Return numbers of tokens in as few bits as the largest needs."""
    largest = int(totals.max(initial=0))
    return totals.astype(np.min_scalar_type(largest)) if largest < 2**32 else totals


def _check_widths(widths: list[int], estimator: Any, *, reset: bool) -> None:
    """Raise if partitions differ in their columns, or from those of earlier batches.

    Else set their number.
    """
    n_features = widths[0]
    for number, width in enumerate(widths):
        if width != n_features:
            raise ValueError(
                f"The chunks of X differ in width: chunk 0 has {n_features} columns, chunk "
                f"{number} has {width}. Build all chunks with the same columns, for example one "
                "vocabulary."
            )
    check_width(n_features, estimator)
    _check_n_features(estimator, np.empty((0, n_features)), reset=reset)


def documents_as_counted(corpus: Corpus, documents: Sequence[Any], bounds: Integers) -> list[Any]:
    """Return tasks that read the documents of every shard.

    They raise if lengths are not those counted at first.

    Kernels write into arrays of the sizes that were counted then.
    """
    given = zip(documents, bounds[:-1], bounds[1:], strict=True)
    return corpus.rows.tasks(
        _as_counted, [(one, corpus.lengths[a:b]) for one, a, b in given], "check-documents"
    )


def _as_counted(pieces: Sequence[counts.Counts], lengths: Integers) -> Sequence[counts.Counts]:
    if not np.array_equal(
        np.concatenate([counts.token_counts(piece)[0] for piece in pieces]), lengths
    ):
        raise counts.changed()
    return pieces


def made_again(make: Function, documents: Sequence[Again], *args: Any) -> Any:
    """Read the documents of a shard again, and return ``make(documents, *args)``."""
    try:
        return make(documents[0](), *args)
    finally:
        forget_last()


def some_documents(corpus: Corpus, choose: Function, name: str) -> Corpus:
    """Return the documents that ``choose(counts)`` returns of each partition, in the same place."""
    rows = Rows(corpus.rows.each(choose, name), corpus.rows.place)
    parts, _, _, totals = rows.reduce(_survey, _merge, "survey-rows")
    sizes = np.array([*map(len, parts)], np.int64)
    return Corpus(corpus.n_features, np.concatenate(parts), totals.astype(np.int64), sizes, rows)
