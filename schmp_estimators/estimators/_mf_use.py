"""What a fitted factorisation is used for: to fold in new users, to predict and to recommend."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted, column_or_1d

from schmp_estimators.data.inputs import map_rows, refuse_container, validate_in_memory
from schmp_estimators.data.rating_inputs import check_pairs, looks_like_pairs, user_ratings
from schmp_estimators.data.ratings import SeenItems
from schmp_estimators.data.values import freeze
from schmp_estimators.kernels.lanes import pad_rows
from schmp_estimators.kernels.mf_ccd import UserRatings
from schmp_estimators.kernels.mf_foldin import fold_in, predict_pairs, top_items


class _Items(NamedTuple):
    """What it takes to fold in a user."""

    features: NDArray[np.float64]
    bias: NDArray[np.float64]
    mean: float
    alpha: float
    per_rating: bool
    positive: bool
    fit_bias: bool


class FactorModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """The methods of a fitted factorisation."""

    components_: NDArray[np.float32]
    user_factors_: NDArray[np.float32]
    user_bias_: NDArray[np.float32]
    item_bias_: NDArray[np.float32]
    global_mean_: float
    n_features_in_: int
    #: Who has rated what, for each fit; None if that is not known.
    _seen: tuple[SeenItems, ...] | None

    def transform(self, X: Any) -> Any:
        """Fold in users: find their vectors by ridge regression on the items, which stay as they are.

        Parameters
        ----------
        X : matrix of shape (n_new_users, n_items)
            Ratings, as in `fit`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n_new_users, n_components), float64
            The exact minimisers, jointly with the users' biases.  Each row depends on its own ratings only; a row
            without ratings gives zeros.  For a Dask collection the result is lazy.
        """
        check_is_fitted(self)
        refuse_container(self, X)
        items, rank = self._items(), self.components_.shape[0]
        return map_rows(_vectors, X, self, items, n_outputs=rank, dtype=np.float64, name="mf-fold-in")

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit, then fold in the same users: the same as ``fit(X).transform(X)``.

        Parameters
        ----------
        X : matrix of shape (n_users, n_items)
            Ratings, as in `fit`.
        y : None
            Ignored.
        **fit_params : dict
            Ignored metadata is refused by `fit`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n_users, n_components)
            Vectors of the users.
        """
        refuse_container(self, X)
        return self.fit(X, y, **fit_params).transform(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict ratings.

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2), or of shape (n_new_users, n_items)
            Two columns of integers: numbers of a user and an item.  Unknown users or items get what the mean and the
            other bias say.  Or a dense matrix as in `fit`, with the ratings of new users.

        Returns
        -------
        ndarray of shape (n_pairs,), float32, or of shape (n_new_users, n_items), float64
            For a matrix, the predictions of all its entries after folding its users in.
        """
        check_is_fitted(self)
        if looks_like_pairs(X):
            return self._predict_pairs(*(ids.astype(np.int64) for ids in check_pairs(X)))
        if sparse.issparse(X):
            raise ValueError("predict takes pairs of ids or a dense matrix, not a sparse one; use transform(X)")
        rows = validate_in_memory(X, self, reset=False, ensure_all_finite=False)
        items = self._items()
        solved = _fold_in(rows, items)
        return items.mean + items.bias + solved @ items.features.T

    def score(self, X: Any, y: Any = None) -> float:
        """Return the coefficient of determination R² of predictions; 1 is best.

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2), or matrix of shape (n_new_users, n_items)
            Pairs of ids; or a matrix as in `fit`, whose users are folded in.
        y : array-like of shape (n_pairs,), default=None
            The ratings of the pairs; for a matrix ignored.

        Returns
        -------
        float
            R² over the pairs, or over the observed entries of the matrix.
        """
        check_is_fitted(self)
        if y is not None and looks_like_pairs(X):
            return float(r2_score(column_or_1d(y), self.predict(X)))
        rows = validate_in_memory(X, self, reset=False, ensure_all_finite=False)
        ratings, items = user_ratings(rows), self._items()
        solved = _fold_in(rows, items)
        users = np.repeat(np.arange(len(solved)), np.diff(ratings.indptr))
        predicted = np.einsum("nk,nk->n", solved[users], items.features[ratings.items])
        return float(r2_score(ratings.values, predicted + items.mean + items.bias[ratings.items]))

    def recommend(self, users: ArrayLike, n: int = 10, *, exclude: Any = "fitted") -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the items with the highest predictions for each user.

        Parameters
        ----------
        users : array-like of shape (m,)
            Numbers of users; an unknown user gets the items with the highest biases.
        n : int, default=10
            Number of items for each user.
        exclude : "fitted", None or sparse matrix of shape (n_users, n_items), default="fitted"
            Items not to recommend: those the user rated in `fit` or in a `partial_fit` since, none, or those that the
            matrix stores for the user.

        Returns
        -------
        items : ndarray of shape (m, n), int64
            Best first; -1 where no item is left.
        scores : ndarray of shape (m, n), float32
            Predicted ratings; -inf where no item is left.

        Raises
        ------
        ValueError
            If ids are not integers at or above 0, `n` is not positive, or nothing is known about fitted ratings.
        """
        check_is_fitted(self)
        ids = _check_users(users, n)
        known = ids < len(self.user_bias_)
        rows = np.zeros((ids.size, self.components_.shape[0]), np.float32)
        rows[known] = self.user_factors_[ids[known]]
        level = np.full(ids.size, self.global_mean_, np.float32)
        level[known] += self.user_bias_[ids[known]]
        shape = ids.size, min(int(n), len(self.item_bias_))
        items, scores = np.full((ids.size, n), -1), np.full((ids.size, n), -np.inf, np.float32)
        best, values = np.empty(shape, np.int64), np.empty(shape, np.float32)
        arrays = freeze((np.arange(ids.size), pad_rows(rows), pad_rows(self.components_.T), np.array(self.item_bias_)))
        top_items(*arrays, *freeze(self._lists(ids, exclude)), best, values)
        items[:, : shape[1]], scores[:, : shape[1]] = best, values + level[:, None]
        return items, scores

    def _lists(self, ids: NDArray[Any], exclude: Any) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return offsets and items of the lists of items not to recommend to each of `ids`."""
        if exclude is None:
            return np.zeros(ids.size + 1, np.int64), np.empty(0, np.int32)
        if not isinstance(exclude, str):
            matrix = validate_in_memory(exclude, self, reset=False, name="exclude", ensure_all_finite=False)
            given = user_ratings(matrix)
            lists = [given.items[slice(*given.indptr[i : i + 2])] if i < matrix.shape[0] else () for i in ids]
        elif exclude != "fitted":
            raise ValueError(f"exclude={exclude!r}; it must be 'fitted', None, or a matrix of ratings")
        elif self._seen is None:
            raise ValueError(
                "the ratings of a Dask input are not kept with the model; pass exclude=None, or as a sparse matrix the "
                "ratings of the users asked for"
            )
        else:
            lists = [np.unique(np.concatenate([seen.of(i) for seen in self._seen])) for i in ids]
        offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])])
        return offsets.astype(np.int64), np.concatenate([*lists, []]).astype(np.int32)

    def _predict_pairs(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.float32]:
        out = np.empty(users.size, np.float32)
        sides = pad_rows(self.user_factors_), pad_rows(self.components_.T), self.user_bias_, self.item_bias_
        predict_pairs(*freeze((users, items, *sides)), np.float32(self.global_mean_), out)
        return out

    def _items(self) -> _Items:
        parameters: Any = self
        features = self.components_.T.astype(np.float64)
        if parameters.fit_bias:
            features = np.hstack([features, np.ones((len(features), 1))])
        per_rating = parameters.penalty == "per_rating"
        flags = per_rating, bool(parameters.positive), bool(parameters.fit_bias)
        bias = self.item_bias_.astype(np.float64)
        return _Items(features, bias, self.global_mean_, float(parameters.alpha), *flags)


def _check_users(users: Any, n: Any) -> NDArray[np.int64]:
    ids = column_or_1d(users, input_name="users")
    if ids.dtype.kind not in "iu" or (ids.size and ids.min() < 0):
        raise ValueError(f"users must be integers, from 0 on; got {ids!r}")
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n={n!r}; it is a number of items, an integer of at least 1")
    return ids.astype(np.int64)


def _vectors(rows: Any, items: _Items) -> NDArray[np.float64]:
    return np.ascontiguousarray(_fold_in(rows, items)[:, : items.features.shape[1] - items.fit_bias])


def _fold_in(rows: Any, items: _Items) -> NDArray[np.float64]:
    """Return (n, n_features) the solution for each row."""
    ratings = user_ratings(rows)
    left = (ratings.values - items.mean - items.bias[ratings.items]).astype(np.float32)
    weights = np.diff(ratings.indptr) if items.per_rating else np.ones(rows.shape[0])
    features = items.features
    out = np.zeros((rows.shape[0], features.shape[1]))
    shared = freeze((UserRatings(ratings.indptr, ratings.items, left), features, items.alpha * weights))
    fold_in(*shared, features.shape[1] - items.fit_bias, items.positive, out)
    return out
