"""What a fitted factorisation is used for beside recommending: to fold in new users, to predict, to be scored."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from schmp_estimators.core.door.inputs import is_dask, map_rows, refuse_container, validate_in_memory
from schmp_estimators.core.lanes import pad_rows
from schmp_estimators.core.later import Later
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.data.ids import Known, number
from schmp_estimators.mf.data.inputs import (
    are_pairs,
    clicks_of,
    hold_floats,
    pair_columns,
    read_pairs,
    read_ratings,
    user_ratings,
    warn_unused,
)
from schmp_estimators.mf.data.ratings import HoldOut, draw_hold_out, held_out_mask, settle_hold_out
from schmp_estimators.mf.data.rows import check_pair_columns, map_chunks
from schmp_estimators.mf.kernels.ccd import UserRatings
from schmp_estimators.mf.kernels.foldin import fold_in, predict_pairs
from schmp_estimators.mf.kernels.sgd import RatingBlock
from schmp_estimators.mf.parameters import choose_solver
from schmp_estimators.mf.programs.factors import Factors, Side
from schmp_estimators.mf.recommend import Recommender

dask: Any = Later("dask")
#: Share of the ratings of a matrix that `score` judges, without telling them to the fold-in.
_HELD_BACK = 0.1
#: Where that would be fewer ratings than this, it judges more of them, up to half.
_FEWEST_JUDGED = 100
#: Which of them follows from this, the row and the item: the same for every call.
_KEY = np.uint64(0)


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
    #: Weight of the pairs without a rating.
    unobserved: float
    #: (n_features, n_features) products of the features times that weight.
    gram: NDArray[np.float64]
    limits: tuple[float, float]
    confidence: Any


class _Pairs(NamedTuple):
    """What it takes to predict ratings of pairs."""

    known: Known
    #: By what their numbers are found, or None.
    looked_up: tuple[Any, Any]
    #: Padded factors and the biases of users and items, as `predict_pairs` takes them.
    sides: tuple[NDArray[np.float32], ...]
    mean: float
    limits: tuple[float, float]


class FactorModel(Recommender, ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """The methods of a fitted factorisation."""

    global_mean_: float
    rating_scale_: float
    alpha_: float
    rating_range_: tuple[float, float]
    _fitted_on_pairs: bool

    def transform(self, X: Any) -> Any:
        """Fold in users: find their vectors by ridge regression on the items, which stay as they are.

        With `unobserved_weight` the items without a rating count, too, as in the fit.

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
        items, rank, owner = self._items(), self.components_.shape[0], self._for_matrices(X)
        return map_rows(_vectors, X, owner, items, n_outputs=rank, dtype=np.float64, name="mf-fold-in")

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit, then fold in the same users: the same as ``fit(X).transform(X)``.

        Parameters
        ----------
        X : matrix of shape (n_users, n_items)
            Ratings, as in `fit`.
        y : array-like of shape (n_users,), default=None
            Not used, as in `fit`.
        **fit_params : dict
            Ignored metadata is refused by `fit`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n_users, n_components)
            Vectors of the users.
        """
        refuse_container(self, X)
        if are_pairs(X, y):
            raise ValueError("fit_transform takes a matrix; of pairs fit(X, y) has the users' vectors as user_factors_")
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
        owner, n_items = self._for_matrices(X), len(self.item_bias_)
        if self._fitted_on_pairs and getattr(X, "shape", ())[1:] == (3,) and n_items != 3:
            raise ValueError(
                "X has 3 columns; predict takes two, the ids of a user and an item, or a matrix with a column for each "
                f"of the {n_items} items. Of a table with ratings pass the first two: predict(df[['user', 'item']])."
            )
        return map_rows(
            _predict_rows, X, owner, self._items(), n_outputs=n_items, dtype=np.float64, name="mf-predict-rows"
        )

    def score(self, X: Any, y: Any = None) -> float:
        """Return how good predictions are, 1 at best: R², or for implicit feedback the NDCG of recommendations.

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2), or matrix of shape (n_new_users, n_items)
            Pairs of ids; or a matrix as in `fit`, whose users are folded in.
        y : array-like of shape (n_pairs,), default=None
            The ratings of the pairs; beside a matrix not used, as in `fit`.

        Returns
        -------
        float
            R², the coefficient of determination, over the pairs; or over a tenth of the ratings of a matrix, where the
            users are folded in from the others.  (Of fewer than a thousand ratings about a hundred are judged, at most
            half.)  Which ones are judged follows from the numbers of their rows and columns alone.  With
            `unobserved_weight` it is the mean over the users in X of the normalised discounted cumulative gain of ten
            recommendations, of which those are right that the pairs, or this tenth of the matrix, have with a rating
            above 0.  Items that the user rated in the fit, or that the user of a matrix is folded in from, are left
            out.

        Raises
        ------
        ValueError
            As in `fit`; if a matrix has fewer than two ratings; if no rating that is judged is above 0, with
            `unobserved_weight`.
        """
        check_is_fitted(self)
        if are_pairs(X, y):
            return self._score_pairs(X, y)
        if y is None and self._are_pairs(X):
            raise ValueError("X holds pairs of ids: pass their ratings, as score(pairs, ratings)")
        rows = validate_in_memory(X, self._for_matrices(X), reset=False, ensure_all_finite=False)
        if y is not None:
            warn_unused(y, rows.shape[0])
        told, judged = _divided(user_ratings(rows))
        items = self._items()
        solved = _solve(told, items)
        if self._unobserved:
            return self._score_rows(told, judged, solved.astype(np.float32))
        predicted = np.einsum("nk,nk->n", solved[judged.users], items.features[judged.items])
        predicted = np.clip(items.mean + (predicted + items.bias[judged.items]) * items.unit, *items.limits)
        return float(r2_score(judged.values, predicted))

    def _score_pairs(self, X: Any, y: Any) -> float:
        if self._fitted_on_pairs:
            check_pair_columns(X, self, reset=False)
        ratings = read_ratings(*(dask.compute(X, y) if is_dask(X) or is_dask(y) else (X, y)))
        if self._unobserved:
            return self._score_ranking(ratings)
        return float(r2_score(ratings.values, _predict_ids(ratings[:2], self._pair_model())))

    def _as_factors(self) -> Factors:
        """Return the fitted attributes as a fit returns them."""
        users, items = Side(self.user_factors_, self.user_bias_), Side(self.components_.T, self.item_bias_)
        return Factors(users, items, self.global_mean_)

    def _as_attributes(self, factors: Factors, fit: Any) -> dict[str, Any]:
        """Return what a fit returns as fitted attributes."""
        (users, items, mean), parameters = factors, cast(Any, self)
        return {
            "components_": np.ascontiguousarray(items.factors.T),
            "user_factors_": users.factors,
            "user_bias_": users.bias,
            "item_bias_": items.bias,
            "global_mean_": mean,
            "rating_scale_": fit.scale.unit,
            "solver_": choose_solver(self),
            "alpha_": fit.alpha,
            "user_ids_": fit.known.users,
            "item_ids_": fit.known.items,
            "n_shards_": fit.n_shards,
            "_fitted_on_pairs": fit.on_pairs,
            "_occur": fit.occur,
            "_counts": fit.counts,
            "_unobserved": float(parameters.unobserved_weight),
            "rating_range_": fit.range,
            "_tables": {},
        }

    def _are_pairs(self, X: Any) -> bool:
        """Return whether X is pairs: two columns, but of no floats where the fit was one of a matrix of two items."""
        columns = pair_columns(X)
        ambiguous = not self._fitted_on_pairs and len(self.item_bias_) == 2
        return columns is not None and not (ambiguous and hold_floats(columns))

    def _for_matrices(self, X: Any) -> Any:
        """Return this estimator as it would be if it had been fitted on a matrix like X of the same users and items."""
        if not self._fitted_on_pairs:
            return self
        twin: Any = copy(self)
        twin.n_features_in_ = len(self.item_bias_)
        twin.__dict__.pop("feature_names_in_", None)
        # only frames have names: of others nobody has to be warned that they have none
        if self.item_ids_ is not None and hasattr(X, "columns") and all(isinstance(one, str) for one in self.item_ids_):
            twin.feature_names_in_ = self.item_ids_
        return twin

    def _predict_pairs(self, X: Any) -> Any:
        if self._fitted_on_pairs:
            check_pair_columns(X, self, reset=False)
        return map_chunks(_predict_pairs, X, self._pair_model(is_here=not is_dask(X)), name="mf-predict")

    def _pair_model(self, is_here: bool = True) -> _Pairs:
        """Return what it takes to predict; what ids are found by does not travel."""
        users = self._once("users", lambda users: freeze(pad_rows(users)), self.user_factors_)
        sides = users, self._padded_items(), freeze(self.user_bias_), freeze(self.item_bias_)
        looked_up = (self._looked_up("user"), self._looked_up("item")) if is_here else (None, None)
        return _Pairs(Known(self.user_ids_, self.item_ids_), looked_up, sides, self.global_mean_, self._limits())

    def _items(self) -> _Items:
        parameters: Any = self
        unit = float(self.rating_scale_)
        fit_bias = bool(parameters.fit_bias) and not self._unobserved
        features, gram = self._once(f"features, {fit_bias}", partial(_features, unit, fit_bias), self.components_)
        per_rating = parameters.penalty == "per_rating"
        flags = per_rating, bool(parameters.positive), fit_bias
        bias = self.item_bias_.astype(np.float64) / unit
        weight, limits = self._unobserved, self._limits()
        alpha = self.alpha_ if parameters.alpha == "auto" else float(parameters.alpha)
        numbers = self.global_mean_, unit, alpha
        return _Items(features, bias, *numbers, *flags, weight, weight * gram, limits, parameters.confidence)

    def _folded(self, rows: Any) -> tuple[UserRatings, NDArray[np.float32], NDArray[np.float64]]:
        told, items = user_ratings(rows), self._items()
        solved, rank = _solve(told, items), self.components_.shape[0]
        level = np.full(len(solved), items.mean)
        if items.fit_bias:
            level += solved[:, rank] * items.unit
        return told, (solved[:, :rank] * np.sqrt(items.unit)).astype(np.float32), level

    def _limits(self) -> tuple[float, float]:
        """Return between which numbers predictions lie."""
        parameters: Any = self
        return self.rating_range_ if parameters.clip else (-np.inf, np.inf)


def _features(
    unit: float, fit_bias: bool, components: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what items are for standardised ratings, ones for the users' biases behind them, and all products."""
    features = np.ascontiguousarray(components.T, np.float64) / np.sqrt(unit)
    if fit_bias:
        features = np.hstack([features, np.ones((len(features), 1))])
    with one_blas_thread():
        return freeze((features, features.T @ features))


def _divided(ratings: UserRatings) -> tuple[UserRatings, RatingBlock]:
    """Return the ratings of a matrix that its users are folded in from, and those that are judged.

    Raises
    ------
    ValueError
        If there are fewer than two.
    """
    if ratings.values.size < 2:
        raise ValueError(
            f"X holds {ratings.values.size} ratings, but score judges some of them by what the others say of their "
            "users; pass more rows"
        )
    users = np.repeat(np.arange(ratings.indptr.size - 1, dtype=np.int32), np.diff(ratings.indptr))
    every = RatingBlock(users, ratings.items, ratings.values)
    share = max(_HELD_BACK, min(0.5, _FEWEST_JUDGED / users.size))
    part = HoldOut(_KEY, np.uint64(share * 2.0**64))
    judged = held_out_mask(every, settle_hold_out(part, draw_hold_out(every, part)))
    told, rest = (RatingBlock(*(array[chosen] for array in every)) for chosen in (~judged, judged))
    indptr = np.searchsorted(told.users, np.arange(ratings.indptr.size))
    return UserRatings(indptr, told.items, told.values), rest


def _predict_pairs(pairs: Any, model: _Pairs) -> NDArray[np.float64]:
    return _predict_ids(read_pairs(pairs), model)


def _predict_ids(pairs: Any, model: _Pairs) -> NDArray[np.float64]:
    ids = zip(pairs, model.known, ("user", "item"), model.looked_up, strict=True)
    users, items = (number(column, table, kind, looked_up=found) for column, table, kind, found in ids)
    out = np.empty(users.size)
    predict_pairs(*freeze((users, items)), *model.sides, model.mean, out)
    return np.clip(out, *model.limits, out=out)


def _predict_rows(rows: Any, items: _Items) -> NDArray[np.float64]:
    if sparse.issparse(rows):
        raise ValueError("predict takes pairs of ids or a dense matrix, not a sparse one; use transform(X)")
    return np.clip(items.mean + (items.bias + _fold_in(rows, items) @ items.features.T) * items.unit, *items.limits)


def _vectors(rows: Any, items: _Items) -> NDArray[np.float64]:
    solved = _fold_in(rows, items)[:, : items.features.shape[1] - items.fit_bias]
    return np.ascontiguousarray(solved) * np.sqrt(items.unit)


def _fold_in(rows: Any, items: _Items) -> NDArray[np.float64]:
    """Return (n, n_features) the solution for each row, for standardised ratings."""
    return _solve(user_ratings(rows), items)


def _solve(ratings: UserRatings, items: _Items) -> NDArray[np.float64]:
    values, confidences = ratings.values, np.ones(ratings.values.size)
    if items.confidence is not None:
        values, confidences = clicks_of(values, items.confidence)
    left = ((values - items.mean) / items.unit - items.bias[ratings.items]) * confidences
    counts = np.diff(ratings.indptr)
    features = items.features
    out = np.zeros((counts.size, features.shape[1]))
    penalties = items.alpha * (counts if items.per_rating else np.ones(counts.size))
    own = UserRatings(ratings.indptr, ratings.items, left)
    shared = freeze((own, confidences - items.unobserved, features, penalties, items.gram))
    fold_in(*shared, features.shape[1] - items.fit_bias, items.positive, out)
    return out
