"""The influence of earlier ratings on a later fit.

A quadratic around the earlier vector of each row.

An earlier fit ends where the gradient of its objective is zero.  Take a row x with n ratings and
the earlier vector x̂, and rows of the other side with vectors y, of which row o has n_o ratings.
Near x̂ the objective is about

    Σ_k n (c_k + λ) (x_k − x̂_k)² ,      c_k = Σ n_o y_ok² / Σ n_o ,

so only the numbers n of the ratings must be kept.

For clicks, missing pairs count exactly: they have one weight u, so their part is the product of the
Gram matrices of both sides, u tr(WᵀW HᵀH).  The quadratic is about the rest: n c_k becomes a (C − u
n) c_k, where C is the sum of the row's confidences and a is `ALIKE`, and its gradient at x̂ is −2 u
G x̂, with the earlier Gram matrix G of the other side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.core.typing import Floats, Floats32, Integers
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.kernels.implicit import gram_rows

Chunks = Floats32

#: How much more the clicks of a row hold it than mean squares say: vectors of one user's clicks are
#: similar, and their products add up along the user's own vector.  With 1, known items fell behind
#: new ones: the NDCG of both was 11 % below that of a fit to all clicks; with 4 it is 2 % below.
ALIKE = 4


class Anchors(NamedTuple):
    """The quadratic ``Σ x (pull x − 2 target) + offset`` of some rows.

    It is without the penalty that their program adds.
    """

    pull: Chunks  #: (m, n, LANES)
    target: Chunks  #: (m, n, LANES)
    offset: float


class Anchored(NamedTuple):
    """The influence of earlier ratings on the problem of a shard."""

    users: Anchors
    #: For the chunks of the items that the shard stores.
    items: Anchors
    #: (n_chunks * LANES, n_chunks * LANES) products of the users who are in no shard; only the
    #: first shard has them, and only if missing pairs count.
    gram: Any


class Earlier(NamedTuple):
    """One side of an earlier fit."""

    rows: Chunks  #: (n_chunks, n, LANES)
    #: (n, 2) as in `MFFit.counts`: of each row the clicks and their confidences, or the ratings
    #: twice.
    counts: Floats32

    def pick(self, ids: Integers) -> Earlier:
        """Return the rows `ids`; rows that are not known are zeros, without ratings."""
        rows = self.rows.take(ids, 1, mode="clip")
        counts = self.counts.take(ids, 0, mode="clip")
        unknown = ids >= len(self.counts)
        rows[:, unknown] = 0
        counts[unknown] = 0
        return Earlier(rows, counts)

    def mean_squares(self) -> Floats32:
        """Return (n_chunks, LANES) each component's mean square, weighted by the rows' ratings."""
        weights = self.counts[:, 1].astype(np.float64)
        sums = [
            np.sum(weights[:, None] * rows.astype(np.float64) ** 2, axis=0) for rows in self.rows
        ]
        return (np.array(sums) / (weights.sum() or 1)).astype(np.float32)

    def gram(self) -> Floats:
        """Return the products of all components with each other."""
        rows = freeze(self.rows)
        n_chunks, n, _ = rows.shape
        return np.hstack([gram_rows(rows, rows, chunk * n, 1) for chunk in range(n_chunks)])


def anchor(
    earlier: Earlier, others: Earlier, own: Floats32, more: Floats32, *, unobserved: float
) -> Anchors:
    """Return the influence of earlier ratings on the rows `earlier`.

    Parameters
    ----------
    earlier : Earlier
        The rows.
    others : Earlier
        All rows of the other side.
    own : (n,) float32
        Weight of the penalty of each row in the earlier fit.
    more : (n,) float32
        What its penalty in this fit has beyond that of the program.
    unobserved : float
        Weight of missing pairs.
    """
    counts, confidences = earlier.counts.T
    seen = np.maximum(confidences - np.float32(unobserved) * counts, 0) * np.float32(
        ALIKE if unobserved else 1
    )
    pull = seen[:, None] * others.mean_squares()[:, None]
    full = pull + own[:, None]
    target = full * earlier.rows
    offset = np.sum(target * earlier.rows, dtype=np.float64)
    if unobserved:
        gram = (unobserved * others.gram()).astype(np.float32)
        with one_blas_thread():
            flat = np.hstack(list(earlier.rows)) @ gram
        missing = np.stack(np.split(flat, len(earlier.rows), axis=1))
        target += missing
        offset += 2 * np.sum(missing * earlier.rows, dtype=np.float64)
    return Anchors(pull + more[:, None], target, float(offset))


def distance(anchors: Anchors, rows: Any) -> float:
    """Return the quadratic at `rows`, (m, n, LANES) float32."""
    total = anchors.offset
    for pull, target, chunk in zip(anchors.pull, anchors.target, rows, strict=True):
        x = chunk.astype(np.float64)
        total += float(np.sum(x * (pull * x - 2.0 * target)))
    return total
