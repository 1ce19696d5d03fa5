"""Documents that are read again and again: a second look must find what the first one did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.door.rows import Again, forget_last
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.counts import Counts, token_counts
from schmp_estimators.lda.data.faults import changed


def documents_as_counted(corpus: Corpus, documents: Sequence[Any], bounds: NDArray[np.int64]) -> list[Any]:
    """Return what stands for the documents of every shard; reading them raises if they are no longer as they were.

    Kernels write into arrays that have the sizes counted before.
    """
    given = zip(documents, bounds[:-1], bounds[1:], strict=True)
    return corpus.rows.tasks(_as_counted, [(one, corpus.lengths[a:b]) for one, a, b in given], "check-documents")


def _as_counted(pieces: Sequence[Counts], lengths: NDArray[np.int64]) -> Sequence[Counts]:
    if not np.array_equal(np.concatenate([token_counts(piece)[0] for piece in pieces]), lengths):
        raise changed()
    return pieces


def made_again(make: Callable[..., Any], documents: Sequence[Again], *args: Any) -> Any:
    """Return what is made of documents that are read here and now, of what stands for them, and of other arguments."""
    try:
        return make(documents[0](), *args)
    finally:
        forget_last()
