"""Recommendations of a fitted factorisation: products of vectors, and similar vectors."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from schmp_estimators.core.lanes import padded_width
from schmp_estimators.core.places.place import Place, n_threads
from schmp_estimators.core.typing import Array, Floats, Floats32, Integers, Masks
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.data.ids import KINDS, at_least_one
from schmp_estimators.mf.data.seen import SeenItems
from schmp_estimators.mf.kernels.ranking import Vectors, as_vectors, top_items
from schmp_estimators.mf.recommend import Lists, Recommender, named

#: Vectors of users, and the levels to which products of vectors are added.
_OfUsers = tuple[Floats32, Floats]
#: Vectors in an order, and this order.
Others = tuple[Vectors, Integers]
#: Users of a job: their vectors stay in the second cache.
_AT_ONCE = 128


class FactorRanking(Recommender):
    """The methods of a fitted factorisation that rank items or users."""

    global_mean_: float
    user_factors_: Floats32
    components_: Floats32
    user_bias_: Floats32
    item_bias_: Floats32
    alpha_: float
    n_jobs: int | None
    #: `unobserved_weight` of the fit.
    _unobserved: float
    #: `loss` of the fit.
    _loss: Any
    #: Numbers of ratings, or sums of their weights, of users and of items so far.
    _counts: tuple[Floats32, ...]
    #: For each fit, the items that each user has rated; None if that is not known.
    _seen: tuple[SeenItems, ...] | None

    def similar_items(self, items: ArrayLike, n: int = 10) -> tuple[Array, Array]:
        """Return the items with the largest cosine similarity to each item.

        Parameters
        ----------
        items : array-like of shape (m,)
            Ids of items.
        n : int, default=10
            Number of similar items for each item.

        Returns
        -------
        similar : ndarray of shape (m, n)
            Ids of items, the most similar first.  The item itself is not in its row.  Items without
            ratings are in no row, nor are items whose vector is zero up to rounding errors.  After
            a fit with ``alpha=0`` and without `unobserved_weight`, items with fewer ratings than
            `n_components` are in no row either, because so few ratings do not determine a
            direction.  All ids are missing in the row of an unknown item, or of an item that is in
            no row.  Missing ids have the same values as in `recommend`.  A warning names some
            unknown items.
        scores : ndarray of shape (m, n), float64
            Cosines of the angles between the vectors; -inf for missing ids.

        Raises
        ------
        ValueError
            If ids have another type than those of the fit, or are negative or missing.  If `n` is
            not positive.

        Examples
        --------
        >>> from schmp_estimators import ModelParallelMF
        >>> pairs = [["ada", "Emma"], ["ada", "Persuasion"], ["bob", "Dune"], ["bob", "Solaris"]]
        >>> mf = ModelParallelMF(2, unobserved_weight=0.1, random_state=0).fit(pairs, [1] * 4)
        >>> books, cosines = mf.similar_items(["Dune"], n=1)
        >>> books.tolist()
        [['Solaris']]
        """
        check_is_fitted(self)
        return self._most_similar("item", self._rows_of(items, "item", warns=True), n)

    def similar_users(self, users: ArrayLike, n: int = 10) -> tuple[Array, Array]:
        """Return the users with the largest cosine similarity to each user.

        Parameters
        ----------
        users : array-like of shape (m,)
            Ids of users.
        n : int, default=10
            Number of similar users for each user.

        Returns
        -------
        similar : ndarray of shape (m, n)
            Ids of users, the most similar first.  Users are left out as items are in
            `similar_items`.
        scores : ndarray of shape (m, n), float64
            Cosines of the angles between the vectors; -inf for missing ids.
        """
        check_is_fitted(self)
        return self._most_similar("user", self._rows_of(users, "user", warns=True), n)

    def _most_similar(self, kind: str, rows: Integers, n: int) -> tuple[Array, Floats]:
        """Return the ids with the largest cosines to those of each row; none for unknown rows."""
        at_least_one(n, "n", f"a number of {kind}s, ")
        side = KINDS.index(kind)
        # without a penalty only as many ratings as a vector has entries say what it is
        least = 0 if self.alpha_ or self._unobserved else self.components_.shape[0]

        def make(factors: Floats32, occur: Masks, counts: Floats32) -> Any:
            return _directions(factors.T if side else factors, occur & (counts[:, 0] >= least))

        factors = self.components_ if side else self.user_factors_
        given = factors, self._occur[side], self._counts[side]
        directions, bias = self._once(f"similar {kind}s", make, *given)
        known = np.flatnonzero(rows < len(bias))
        known = known[bias[rows[known]] == 0.0]
        lists = np.arange(known.size + 1), rows[known].astype(np.int32)
        found = np.full((rows.size, n), -1)
        scores = np.full((rows.size, n), -np.inf)
        asked = directions[0].rows[rows[known]]
        found[known], scores[known] = _best(asked, directions, bias, lists, n, self.n_jobs)
        return named(found, self._ids_of(kind)), scores

    def _of_users(self, rows: Integers) -> _OfUsers:
        """Return the vectors of users, and the levels to which their products are added."""
        known = rows < len(self.user_bias_)
        level = np.full(rows.size, self.global_mean_)
        level[known] += self.user_bias_[rows[known]]
        return vectors_of(rows, self.user_factors_), level

    def _rated(self, rows: Integers) -> Lists | None:
        if self._seen is None:
            return None
        lists = [seen.of(row) for seen in self._seen for row in rows]
        users = np.tile(np.arange(rows.size), len(self._seen)).repeat(list(map(len, lists)))
        # one number for each pair, whose lower half is the item
        pairs = np.unique(users << 32 | np.concatenate([*lists, []]).astype(np.int64))
        offsets = np.searchsorted(pairs, np.arange(rows.size + 1) << 32)
        return offsets, pairs.astype(np.int32)

    def _best_items(
        self, of_users: _OfUsers, lists: Lists, n: int, may_be: Masks
    ) -> tuple[Integers, Floats]:
        vectors, level = of_users
        items = self._once("vectors", _longest_first, self.components_)
        bias = self._once("biases", _biases, items[1], self.item_bias_, may_be)
        found, scores = _best(self._or_mean(vectors), items, bias, lists, n, self.n_jobs)
        return found, scores + level[:, None]

    @property
    def _ranks(self) -> bool:
        """Whether the model ranks items instead of predicting ratings."""
        return bool(self._unobserved or self._loss != "squared")

    def _or_mean(self, vectors: Floats32) -> Floats32:
        """Return vectors of users; if the model ranks, zero ones become the mean.  Mutates them."""
        if self._ranks:  # users have no biases
            mean = partial(np.mean, axis=0, dtype=np.float64)
            vectors[~vectors.any(axis=1)] = self._once("mean", mean, self.user_factors_)
        return vectors


def vectors_of(rows: Integers, factors: Floats32) -> Floats32:
    """Return the vectors of users, given their rows; zeros for unknown users."""
    vectors = factors.take(rows, 0, mode="clip")
    vectors[rows >= len(factors)] = 0
    return vectors


def _best(
    rows: Floats32, others: Others, bias: Floats32, lists: Lists, n: int, n_jobs: int | None
) -> tuple[Integers, Floats]:
    """Return the best of `others` for rows, without those in lists, and the products."""
    best, values = np.empty((len(rows), n), np.int64), np.empty((len(rows), n), np.float32)
    mine, (offsets, items) = as_vectors(rows), lists

    def rank(start: int) -> None:
        some = slice(start, start + _AT_ONCE)
        users = Vectors._make(one[some] for one in mine)
        given = users, *others, bias, offsets[start : start + _AT_ONCE + 1], items
        top_items(*freeze(given), best[some], values[some])

    jobs = range(0, len(rows), _AT_ONCE)
    place = Place(n_threads(n_jobs) if len(jobs) > 1 else 1)
    place.each(rank, jobs)
    place.close()
    return best, values.astype(np.float64)


def _longest_first(factors: Floats32) -> Others:
    """Return vectors of items, the longest first.

    Their products are large, and others need not be read.
    """
    squares = np.einsum("kn,kn->n", factors, factors, dtype=np.float64)
    order = np.argsort(-squares, kind="stable")
    return as_vectors(factors.T[order]), order


def _biases(order: Integers, bias: Array, may_be: Masks) -> Floats32:
    """Return biases in the order of items; -inf for those that may not be found."""
    found = np.full(padded_width(bias.size), -np.inf, np.float32)
    found[: bias.size] = np.where(may_be, bias, -np.float32(np.inf))[order]
    return found


def _directions(factors: Floats32, occur: Masks) -> tuple[Others, Floats32]:
    """Return directions, and 0, or −inf for vectors that do not occur or are about zero."""
    lengths = np.sqrt(np.einsum("nk,nk->n", factors, factors, dtype=np.float64)) * occur
    lengths[lengths <= np.finfo(np.float32).eps * lengths.max(initial=0.0)] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        directions = np.where(lengths[:, None] > 0, factors / lengths[:, None], 0.0).astype(
            np.float32
        )
    order = np.arange(len(lengths))
    return (as_vectors(directions), order), _biases(order, np.zeros(order.size), lengths > 0)
