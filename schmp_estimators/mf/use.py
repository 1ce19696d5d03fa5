"""What a fitted factorisation is used for: to fold in new users, to predict and to recommend."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted, column_or_1d

from schmp_estimators.core.door.inputs import map_rows, refuse_container, validate_in_memory
from schmp_estimators.core.lanes import pad_rows
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.data.ids import Known, is_text, number, read_ids
from schmp_estimators.mf.data.inputs import looks_like_pairs, read_pairs, user_ratings
from schmp_estimators.mf.data.ratings import SeenItems
from schmp_estimators.mf.data.rows import check_pair_columns, map_chunks
from schmp_estimators.mf.kernels.ccd import UserRatings
from schmp_estimators.mf.kernels.foldin import fold_in, predict_pairs, top_items


class _Items(NamedTuple):
    """What it takes to fold in a user, for ratings that are standardised."""

    features: NDArray[np.float64]
    bias: NDArray[np.float64]
    mean: float
    unit: float
    alpha: float
    per_rating: bool
    positive: bool
    fit_bias: bool


class _Pairs(NamedTuple):
    """What it takes to predict ratings of pairs."""

    known: Known
    #: Padded factors and the biases of users and items, as `predict_pairs` takes them.
    sides: tuple[NDArray[np.float32], ...]
    mean: float


class FactorModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """The methods of a fitted factorisation."""

    components_: NDArray[np.float32]
    user_factors_: NDArray[np.float32]
    user_bias_: NDArray[np.float32]
    item_bias_: NDArray[np.float32]
    global_mean_: float
    rating_scale_: float
    user_ids_: NDArray[Any] | None
    item_ids_: NDArray[Any] | None
    n_features_in_: int
    _fitted_on_pairs: bool
    #: Who has rated what, for each fit; None if that is not known.
    _seen: tuple[SeenItems, ...] | None

    def transform(self, X: Any) -> Any:
        """Fold in users: find their vectors by ridge regression on the items, which stay as they are.

        Parameters
        ----------
        X : matrix of shape (n_new_users, n_items)
            Ratings, as in `fit`; the columns are those of `components_`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n_new_users, n_components), float64
            The minimisers of the objective, jointly with the users' biases: solutions of linear equations in float64
            (with `positive`, to a relative 1e-9).  Each row depends on its own ratings only; a row without ratings
            gives zeros.  For a Dask collection the result is lazy.
        """
        check_is_fitted(self)
        refuse_container(self, X)
        items, rank, owner = self._items(), self.components_.shape[0], self._for_matrices()
        return map_rows(_vectors, X, owner, items, n_outputs=rank, dtype=np.float64, name="mf-fold-in")

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

    def predict(self, X: Any) -> Any:
        """Predict ratings.

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2), or of shape (n_new_users, n_items)
            Two columns: ids of a user and an item.  Unknown users or items get what the mean and the other bias say.
            Or a dense matrix as in `fit`, with the ratings of new users.

        Returns
        -------
        ndarray or dask.array.Array of shape (n_pairs,) or (n_new_users, n_items), float64
            For a matrix, the predictions of all its entries after folding its users in.  For a Dask collection the
            result is lazy.
        """
        check_is_fitted(self)
        if self._are_pairs(X):
            return self._predict_pairs(X)
        if sparse.issparse(X):
            raise ValueError("predict takes pairs of ids or a dense matrix, not a sparse one; use transform(X)")
        owner, n_items = self._for_matrices(), len(self.item_bias_)
        return map_rows(
            _predict_rows, X, owner, self._items(), n_outputs=n_items, dtype=np.float64, name="mf-predict-rows"
        )

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
        if self._are_pairs(X):
            if y is None:
                raise ValueError("X holds pairs of ids: pass their ratings, as score(pairs, ratings)")
            return float(r2_score(column_or_1d(y), self.predict(X)))
        rows = validate_in_memory(X, self._for_matrices(), reset=False, ensure_all_finite=False)
        ratings, items = user_ratings(rows), self._items()
        solved = _solve(ratings, items)
        users = np.repeat(np.arange(len(solved)), np.diff(ratings.indptr))
        predicted = np.einsum("nk,nk->n", solved[users], items.features[ratings.items])
        return float(r2_score(ratings.values, items.mean + (predicted + items.bias[ratings.items]) * items.unit))

    def recommend(self, users: ArrayLike, n: int = 10, *, exclude: Any = "fitted") -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the items with the highest predictions for each user.

        Parameters
        ----------
        users : array-like of shape (m,)
            Ids of users; an unknown user gets the items with the highest biases.
        n : int, default=10
            Number of items for each user.
        exclude : "fitted", None or sparse matrix of shape (n_users, n_items), default="fitted"
            Items not to recommend: those the user rated in `fit` or in a `partial_fit` since, none, or those that the
            matrix stores for the user; its rows and columns are those of `user_factors_` and `components_`.

        Returns
        -------
        items : ndarray of shape (m, n)
            Ids of items, best first.  Where no item is left: -1, None for ids that are strings, or the largest number
            of the dtype for ids that are uint64.
        scores : ndarray of shape (m, n), float64
            Predicted ratings; -inf where no item is left.

        Raises
        ------
        ValueError
            If ids are of another kind than those of the fit, negative or missing, `n` is not positive, or nothing is
            known about fitted ratings.
        """
        check_is_fitted(self)
        ids = self._check_users(users, n)
        known = ids < len(self.user_bias_)
        rows = np.zeros((ids.size, self.components_.shape[0]), np.float32)
        rows[known] = self.user_factors_[ids[known]]
        level = np.full(ids.size, self.global_mean_)
        level[known] += self.user_bias_[ids[known]]
        shape = ids.size, min(int(n), len(self.item_bias_))
        items, scores = np.full((ids.size, n), -1), np.full((ids.size, n), -np.inf)
        best, values = np.empty(shape, np.int64), np.empty(shape, np.float32)
        arrays = freeze((np.arange(ids.size), pad_rows(rows), pad_rows(self.components_.T), np.array(self.item_bias_)))
        top_items(*arrays, *freeze(self._lists(ids, exclude)), best, values)
        items[:, : shape[1]], scores[:, : shape[1]] = best, values + level[:, None]
        return self._named(items), scores

    def _lists(self, ids: NDArray[Any], exclude: Any) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return offsets and items of the lists of items not to recommend to each of `ids`."""
        if exclude is None:
            return np.zeros(ids.size + 1, np.int64), np.empty(0, np.int32)
        if not isinstance(exclude, str):
            owner = self._for_matrices()
            matrix = validate_in_memory(exclude, owner, reset=False, name="exclude", ensure_all_finite=False)
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

    def _named(self, items: NDArray[np.int64]) -> NDArray[Any]:
        """Return the ids of items; what is no item stays -1, or becomes None."""
        if self.item_ids_ is None:
            return items
        nothing = None if is_text(self.item_ids_) else np.array(-1).astype(self.item_ids_.dtype)
        named = self.item_ids_[items]
        named[items < 0] = nothing
        return named

    def _check_users(self, users: Any, n: Any) -> NDArray[np.int64]:
        """Return the rows of users."""
        if np.ndim(users) != 1:
            raise ValueError(f"users must be a list or array of ids; got {users!r}. Pass [{users!r}] for one user.")
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise ValueError(f"n={n!r}; it is a number of items, an integer of at least 1")
        return number(read_ids(users, "user", "users"), self.user_ids_, "user", "users")

    def _are_pairs(self, X: Any) -> bool:
        """Return whether X is two columns of ids, and not a complete matrix of two items, if those of the fit were."""
        if not looks_like_pairs(X):
            return False
        kinds = {getattr(kind, "kind", "O") for kind in getattr(X, "dtypes", [getattr(X, "dtype", None)])}
        return self._fitted_on_pairs or len(self.item_bias_) != 2 or "f" not in kinds

    def _for_matrices(self) -> Any:
        """Return this estimator as it would be if it had been fitted on a matrix of the same users and items."""
        if not self._fitted_on_pairs:
            return self
        twin: Any = copy(self)
        twin.n_features_in_ = len(self.item_bias_)
        twin.__dict__.pop("feature_names_in_", None)
        if self.item_ids_ is not None and all(isinstance(name, str) for name in self.item_ids_):
            twin.feature_names_in_ = self.item_ids_
        return twin

    def _predict_pairs(self, X: Any) -> Any:
        if self._fitted_on_pairs:
            check_pair_columns(X, self, reset=False)
        sides = pad_rows(self.user_factors_), pad_rows(self.components_.T), self.user_bias_, self.item_bias_
        model = _Pairs(Known(self.user_ids_, self.item_ids_), freeze(sides), self.global_mean_)
        return map_chunks(_predict_pairs, X, model, name="mf-predict")

    def _items(self) -> _Items:
        parameters: Any = self
        unit = float(self.rating_scale_)
        features = self.components_.T.astype(np.float64) / np.sqrt(unit)
        if parameters.fit_bias:
            features = np.hstack([features, np.ones((len(features), 1))])
        per_rating = parameters.penalty == "per_rating"
        flags = per_rating, bool(parameters.positive), bool(parameters.fit_bias)
        bias = self.item_bias_.astype(np.float64) / unit
        return _Items(features, bias, self.global_mean_, unit, float(parameters.alpha), *flags)


def _predict_pairs(pairs: Any, model: _Pairs) -> NDArray[np.float64]:
    ids = zip(read_pairs(pairs), model.known, ("user", "item"), strict=True)
    users, items = (number(column, table, kind) for column, table, kind in ids)
    out = np.empty(users.size)
    predict_pairs(*freeze((users, items)), *model.sides, model.mean, out)
    return out


def _predict_rows(rows: Any, items: _Items) -> NDArray[np.float64]:
    if sparse.issparse(rows):
        raise ValueError("predict takes pairs of ids or a dense matrix, not a sparse one; use transform(X)")
    return items.mean + (items.bias + _fold_in(rows, items) @ items.features.T) * items.unit


def _vectors(rows: Any, items: _Items) -> NDArray[np.float64]:
    solved = _fold_in(rows, items)[:, : items.features.shape[1] - items.fit_bias]
    return np.ascontiguousarray(solved) * np.sqrt(items.unit)


def _fold_in(rows: Any, items: _Items) -> NDArray[np.float64]:
    """Return (n, n_features) the solution for each row, for standardised ratings."""
    return _solve(user_ratings(rows), items)


def _solve(ratings: UserRatings, items: _Items) -> NDArray[np.float64]:
    left = (ratings.values - items.mean) / items.unit - items.bias[ratings.items]
    counts = np.diff(ratings.indptr)
    features = items.features
    out = np.zeros((counts.size, features.shape[1]))
    penalties = items.alpha * (counts if items.per_rating else np.ones(counts.size))
    shared = freeze((UserRatings(ratings.indptr, ratings.items, left), features, penalties))
    fold_in(*shared, features.shape[1] - items.fit_bias, items.positive, out)
    return out
