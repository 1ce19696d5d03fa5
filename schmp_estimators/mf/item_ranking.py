"""Uses of a fitted item model: recommendations, similar items, scores and what made them."""

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from schmp_estimators.core.inputs.validation import map_rows
from schmp_estimators.core.typing import Arguments, Array, Floats, Integers, Masks
from schmp_estimators.core.values import freeze, offsets_of
from schmp_estimators.mf.data.clicks import amounts_of, lists_of
from schmp_estimators.mf.data.ids import at_least_one, number
from schmp_estimators.mf.data.inputs import read_pairs, user_ratings
from schmp_estimators.mf.data.rows import map_chunks
from schmp_estimators.mf.kernels.ccd import UserRatings
from schmp_estimators.mf.kernels.lists import Lists, rank_rows, score_pairs
from schmp_estimators.mf.metrics import RankingScorer
from schmp_estimators.mf.recommend import Lists as ListsOfItems
from schmp_estimators.mf.recommend import Recommender, named, no_lists

#: What helps if clicks of users are not there.
_GIVE_THEM = "pass a matrix of their clicks, for example from to_matrix(pairs, values)"


class ItemRanking(Recommender):
    """The methods of a fitted item model."""

    coef_: Any
    clicks_: Any
    confidence: Any
    #: (n_items,) mean scores of all users.
    _usual: Floats

    def similar_items(self, items: ArrayLike, n: int = 10) -> tuple[Array, Array]:
        """Return, for each item, the items whose scores rise most after a click on it.

        Parameters
        ----------
        items : array-like of shape (m,)
            Ids of items.
        n : int, default=10
            Number of similar items for each item.

        Returns
        -------
        similar : ndarray of shape (m, n)
            Ids of items, the largest coefficient first.  Items with coefficients of 0 are left out.
            Missing ids have the same values as in `recommend`.
        scores : ndarray of shape (m, n), float64
            Entries of `coef_` in the row of the item, and -inf for missing ids.

        Raises
        ------
        ValueError
            If ids have another type than those of the fit, or are negative or missing.  If `n` is
            not positive.

        Examples
        --------
        >>> from schmp_estimators import DistributedSLIM
        >>> pairs = [["ada", "Emma"], ["ada", "Persuasion"], ["bob", "Dune"], ["cy", "Emma"]]
        >>> slim = DistributedSLIM(l2_reg=1).fit(pairs, [1] * 4)
        >>> slim.similar_items(["Emma"], n=1)[0].tolist()
        [['Persuasion']]
        """
        check_is_fitted(self)
        at_least_one(n, "n", "a number of items, ")
        rows = self._rows_of(items, "item", warns=True)
        n_items = self.coef_.shape[0]
        known = rows[rows < n_items]
        told = UserRatings(offsets_of(rows < n_items), known, np.ones(known.size))
        nothing = no_lists(rows), self._occur[1], np.zeros(n_items)
        found, scores = self._ranked(told, *nothing, n)
        unspoken = ~(scores > 0)
        found[unspoken], scores[unspoken] = -1, -np.inf
        return named(found, self.item_ids_), scores

    def explain(self, user: Any, item: Any, n: int = 10) -> tuple[Array, Floats]:
        """Return the clicks of a user that add most to the score of an item.

        Parameters
        ----------
        user : id, or matrix of shape (1, n_items)
            Id of a user, or a matrix of one row with the clicks of a new user.
        item : id
            Id of an item.
        n : int, default=10
            Largest number of clicks to return.

        Returns
        -------
        items : ndarray of shape (m,)
            Ids of clicked items, the largest contribution to the score of `item` first.  Items that
            contribute nothing are left out, so m ≤ `n`.
        parts : ndarray of shape (m,), float64
            Contribution of each item to the score of `item`, above 0.  The contributions of all the
            user's clicks add up to the score.

        Raises
        ------
        ValueError
            If `user` or `item` is unknown.  If `n` is not positive.

        Examples
        --------
        >>> from schmp_estimators import DistributedSLIM
        >>> pairs = [["ada", "Emma"], ["ada", "Persuasion"], ["bob", "Dune"], ["cy", "Emma"]]
        >>> slim = DistributedSLIM(l2_reg=1).fit(pairs, [1] * 4)
        >>> slim.explain("cy", "Persuasion")[0].tolist()
        ['Emma']
        """
        check_is_fitted(self)
        at_least_one(n, "n", "a number of clicks, ")
        column = self._known_row(item, "item")
        if sparse.issparse(user) or np.ndim(user) == 2:
            told = self._of_ratings(
                user_ratings(self._matrix(user, "user", "give an id, or one row of clicks"))
            )
        else:
            told = self._of_users(np.array([self._known_row(user, "user")]))
        if told.indptr.size != 2:
            raise ValueError(f"user has {told.indptr.size - 1} rows; explain takes one user")
        parts = told.values * self.coef_[told.items][:, [column]].toarray()[:, 0].astype(np.float64)
        order = np.argsort(-parts, kind="stable")[:n]
        order = order[parts[order] > 0]
        return self.item_ids_[told.items[order]], parts[order]

    def predict(self, X: Any) -> Any:
        """Return scores, the products of the clicks of users and the columns of `coef_`.

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2), or of shape (n_new_users, n_items)
            Pairs of the ids of a user and an item, or a dense matrix as in `fit` with the clicks of
            new users.  A sparse X raises an error: without `confidence`, compute ``X @ coef_``.

        Returns
        -------
        ndarray or dask.array.Array of shape (n_pairs,) or (n_new_users, n_items), float64
            A score for each pair, or for each entry of the matrix.  Scores are zero for an unknown
            user or item.  For a Dask collection the result is lazy.
        """
        check_is_fitted(self)
        if self._are_pairs(X):
            self._check_columns(X)
            tables = self.user_ids_, self.item_ids_
            model = tables, self._kept_clicks(), self.confidence, self._coefficients()
            return map_chunks(_score_pairs, X, model, name="slim-predict")
        owner = self._for_matrices(X)
        how: Any = {"n_outputs": len(self.item_ids_), "dtype": np.float64, "name": "slim-rows"}
        return map_rows(_score_rows, X, owner, (self.coef_, self.confidence), **how)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean normalised discounted cumulative gain (NDCG) of ten recommendations.

        The score is that of `ranking.RankingScorer()`.

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2), or matrix of shape (n_new_users, n_items)
            Pairs of ids, or a matrix as in `fit`.  Of a matrix, some clicks are held out, as in
            `ModelParallelMF.score`; recommendations are made from the other clicks.
        y : array-like of shape (n_pairs,), default=None
            Values of the pairs.  Pairs with values above 0 are relevant.  If X is a matrix, y is
            not used.

        Returns
        -------
        float
            The score.  For pairs, items on which the user clicked in the fit are not recommended.
            For a matrix, items of the other clicks are not recommended.

        Raises
        ------
        ValueError
            As in `fit`.  If no judged value is above 0.
        """
        return RankingScorer()(self, X, y)

    def without_clicks(self) -> Any:
        """Return a smaller copy without the clicks of the users.

        Returns
        -------
        DistributedSLIM
            A copy with ``clicks_=None``.  Its methods need matrices of clicks instead of ids of
            users.
        """
        check_is_fitted(self)
        smaller = copy(self)
        smaller.clicks_ = None
        return smaller

    def _known_row(self, one: Any, kind: str) -> int:
        [row] = self._rows_of([one], kind)
        if row >= len(self._ids_of(kind)):
            raise ValueError(f"{kind}={one!r} is not among the {kind}s of the fit")
        return int(row)

    def _coefficients(self) -> Lists:
        """Return the rows of `coef_` for kernels."""
        found: Lists = self._once("rows", lambda data: lists_of(self.coef_), self.coef_.data)
        return found

    def _kept_clicks(self, remedy: str = _GIVE_THEM) -> Any:
        """Return `clicks_`, or raise ValueError if they were left out."""
        if self.clicks_ is None:
            raise ValueError(f"this model was stored without the clicks of its users; {remedy}")
        return self.clicks_

    def _read(self, rows: Any) -> UserRatings:
        """Return the clicks of a matrix: what is above 0."""
        indptr, items, values = user_ratings(rows)
        kept = values != 0
        return UserRatings(offsets_of(kept)[indptr], items[kept], values[kept])

    def _of_users(self, rows: Integers) -> UserRatings:
        return _rows_of(self._kept_clicks(), rows, self.confidence)

    def _of_ratings(self, told: UserRatings) -> UserRatings:
        return told._replace(values=amounts_of(told.values, self.confidence))

    def _rated(self, rows: Integers) -> ListsOfItems | None:
        if self.clicks_ is None:
            return None
        told = _rows_of(self.clicks_, rows, None)
        return told.indptr, told.items.astype(np.int32)

    def _best_items(
        self, of_users: UserRatings, lists: ListsOfItems, n: int, may_be: Masks
    ) -> tuple[Integers, Floats]:
        return self._ranked(of_users, lists, may_be, self._usual, n)

    def _ranked(
        self, told: UserRatings, lists: ListsOfItems, may_be: Masks, usual: Floats, n: int
    ) -> tuple[Integers, Floats]:
        """Return the best items for rows; `usual` are scores where no coefficient speaks."""
        best = np.empty((told.indptr.size - 1, n), np.int64)
        values = np.empty(best.shape)
        given = _as_lists(told), self._coefficients(), usual, may_be, *lists
        rank_rows(*freeze(given), best, values)
        return best, values


def _rows_of(clicks: Any, rows: Integers, confidence: Any) -> UserRatings:
    """Return what stands in rows of clicks; rows beyond the last one are empty."""
    known = rows < clicks.shape[0]
    told = clicks[rows[known]]
    counts = np.zeros(rows.size, np.int64)
    counts[known] = np.diff(told.indptr)
    amounts = amounts_of(told.data, confidence)
    return UserRatings(offsets_of(counts), told.indices, amounts.astype(np.float64))


def _as_lists(told: UserRatings) -> Lists:
    items = told.items.astype(np.int32, copy=False).view(np.uint32)
    return Lists(told.indptr.astype(np.int64), items, told.values.astype(np.float32))


def _score_pairs(pairs: Any, model: Arguments) -> Floats:
    (user_ids, item_ids), clicks, confidence, coefficients = model
    users, items = read_pairs(pairs)
    rows, columns = number(users, user_ids, "user"), number(items, item_ids, "item")
    out = np.zeros(rows.size)
    known = (rows < len(user_ids)) & (columns < len(item_ids))
    who, places = np.unique(rows[known], return_inverse=True)
    told = _as_lists(_rows_of(clicks, who, confidence))
    found = np.empty(places.size)
    score_pairs(*freeze((places, columns[known], told, coefficients)), found)
    out[known] = found
    return out


def _score_rows(rows: Any, model: Arguments) -> Floats:
    if sparse.issparse(rows):
        raise ValueError(
            "predict takes pairs of ids or a dense matrix, not a sparse one, whose scores are "
            "X @ coef_"
        )
    coefficients, confidence = model
    told = user_ratings(rows)
    amounts = amounts_of(told.values, confidence)
    given = sparse.csr_array((amounts, told.items, told.indptr), rows.shape)
    found: Floats = (given @ coefficients).toarray()
    return found
