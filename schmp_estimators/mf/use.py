"""Uses of a fitted factorisation beside recommending: new users, predictions, scores."""

from functools import partial
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from schmp_estimators.core.inputs.validation import (
    is_dask,
    map_rows,
    refuse_container,
    validate_in_memory,
)
from schmp_estimators.core.lanes import pad_rows
from schmp_estimators.core.typing import Arguments, Array, FloatPair, Floats, Floats32, Named
from schmp_estimators.core.values import freeze
from schmp_estimators.mf.data import inputs
from schmp_estimators.mf.data.ids import KINDS, number
from schmp_estimators.mf.data.rows import map_chunks
from schmp_estimators.mf.factor_ranking import FactorRanking, vectors_of
from schmp_estimators.mf.folding import (
    Items,
    as_ratings,
    features_of,
    find_vectors,
    in_ratings,
    predict_rows,
    solve,
)
from schmp_estimators.mf.kernels.ccd import UserRatings
from schmp_estimators.mf.kernels.foldin import predict_pairs
from schmp_estimators.mf.kernels.sgd import candidates_of
from schmp_estimators.mf.losses import ranking_loss
from schmp_estimators.mf.metrics import RankingScorer
from schmp_estimators.mf.parameters import power_of, refuse_weights


class FactorModel(FactorRanking, ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """The methods of a fitted factorisation."""

    rating_scale_: float
    rating_range_: FloatPair
    _n_epochs: int

    def transform(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Any:
        """Return the vectors of users.

        The items stay fixed.  With the squared loss, the vectors of new users are found by ridge
        regression, non-negative if `positive`.  With `unobserved_weight`, items without a rating
        count, too, as in the fit.  With a ranking `loss`, the vectors start at zero, and are
        updated by as many epochs of gradient descent as the model had.

        Parameters
        ----------
        X : matrix of shape (n_new_users, n_items), or pairs of shape (n_pairs, 2)
            A matrix of ratings as in `fit`, with a column for each item in `item_ids_`, or pairs of
            ids.
        y : array-like of shape (n_pairs,), default=None
            The ratings of pairs.  If y is given, the vectors are found from these ratings, even for
            users of the fit.  Pairs with unknown items are ignored, with a warning.  If y is None
            and X holds pairs, the fitted vectors of their users are returned.
        sample_weight : array-like of shape (n_ratings,), default=None
            Weights of the ratings, as in `fit`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n_new_users, n_components) or (n_pairs, n_components),
        float64
            The vector of the user of each row or pair.  It is zero for a row without ratings, and,
            if y is None, for an unknown user.  The vector of a row depends only on the ratings in
            this row.  With the squared loss, the vector and bias of a user minimise the objective
            for fixed items, with `positive` up to a small tolerance.  For a Dask collection the
            result is lazy.

        Raises
        ------
        ValueError
            As in `fit`.  If X is on Dask, and `y` or `sample_weight` is given.
        """
        check_is_fitted(self)
        refuse_container(self, X)
        if is_dask(X) and (y is not None or sample_weight is not None):
            raise ValueError(
                "transform takes y and sample_weight with X in memory only; call X.compute() first"
            )
        if sample_weight is not None:
            refuse_weights(self, self._loss)
        if inputs.are_pairs(X, y):
            return self._fold_in_pairs(X, y, sample_weight)
        rank = self.components_.shape[0]
        if y is None and self._are_pairs(X, "never"):
            self._check_columns(X)
            model = self.user_ids_, self.user_factors_
            return map_chunks(_known_vectors, X, model, name="mf-fold-in", shape=(rank,))
        items = self._items()
        owner = self._for_matrices(X)
        if y is not None:
            inputs.warn_unused(y, len(X) if isinstance(X, list) else X.shape[0])
        if sample_weight is None:
            return map_rows(
                find_vectors, X, owner, items, n_outputs=rank, dtype=np.float64, name="mf-fold-in"
            )
        rows = validate_in_memory(X, owner, reset=False, ensure_all_finite=False)
        ratings = inputs.user_ratings(rows, inputs.weights_of(X, rows, sample_weight))
        return in_ratings(solve(ratings, items), items)[0]

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit, and return the vectors of the users, as ``fit(X, y).transform(X)`` does.

        Parameters
        ----------
        X : matrix of shape (n_users, n_items), or pairs of shape (n_ratings, 2)
            Ratings, as in `fit`.
        y : array-like of shape (n_ratings,), default=None
            As in `fit`.
        **fit_params : dict
            ``sample_weight``, as in `fit`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n_users, n_components) or (n_ratings, n_components)
            Vectors of the users.
        """
        refuse_container(self, X)
        self.fit(X, y, **fit_params)
        weights = {} if inputs.are_pairs(X, y) else fit_params
        return self.transform(X, **weights)

    def predict(self, X: Any) -> Any:
        """Predict ratings, or scores with a ranking `loss`.

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2), or of shape (n_new_users, n_items)
            Pairs of the ids of a user and an item, or a dense matrix as in `fit` with the ratings
            of new users.  If one id of a pair is unknown, the prediction is the global mean plus
            the bias of the other id.

        Returns
        -------
        ndarray or dask.array.Array of shape (n_pairs,) or (n_new_users, n_items), float64
            A prediction for each pair, or for each entry of the matrix.  The users of a matrix are
            folded in as by `transform`.  With "logistic", ``scipy.special.expit`` of a score is the
            modelled probability that the pair is a click and not one of the random pairs of the
            fit.  For a Dask collection the result is lazy.
        """
        check_is_fitted(self)
        if self._are_pairs(X):
            self._check_columns(X)
            model = self._pair_model(is_here=not is_dask(X))
            return map_chunks(_predict_pairs, X, model, name="mf-predict")
        owner = self._for_matrices(X)
        n_items = len(self.item_bias_)
        if self._fitted_on_pairs and getattr(X, "shape", ())[1:] == (3,) and n_items != 3:
            raise ValueError(
                "X has 3 columns; predict takes two, the ids of a user and an item, or a matrix "
                f"with a column for each of the {n_items} items. Of a table with ratings pass the "
                "first two: predict(df[['user', 'item']])."
            )
        how: Named = {"n_outputs": n_items, "dtype": np.float64, "name": "mf-predict-rows"}
        return map_rows(predict_rows, X, owner, self._items(), **how)

    def score(self, X: Any, y: Any = None) -> float:
        """Return R² of predictions, or the NDCG of recommendations.

        The score is the normalised discounted cumulative gain (NDCG) with `unobserved_weight` or a
        ranking `loss`, and otherwise R².

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2), or matrix of shape (n_new_users, n_items)
            Pairs of ids, or a matrix as in `fit`, whose users are :term:`folded in <fold-in>`.
        y : array-like of shape (n_pairs,), default=None
            Ratings of the pairs.  For a matrix, y is not used.

        Returns
        -------
        float
            R² is the coefficient of determination of the predicted ratings.  If X is a matrix,
            about a tenth of its ratings is judged, and users are folded in from the others.  Of
            fewer than a thousand ratings, about a hundred are judged, or about half if there are
            fewer than 200.  The NDCG is that of ten recommendations (`ranking.RankingScorer()`).
            Items with judged ratings above 0 are relevant.  For a matrix, items from which the user
            is folded in are not recommended.  For pairs, items that the user rated in the fit are
            not recommended, unless the ratings were a Dask collection on a cluster.  R² and NDCG
            cannot be compared.  So pass `RankingScorer()` as `scoring` to choose among losses, or
            among values of `unobserved_weight` that include 0.

        Raises
        ------
        ValueError
            As in `fit`.  If the score is the NDCG, and no judged rating is above 0.  If a matrix
            has fewer than two ratings.
        """
        check_is_fitted(self)
        if self._ranks:
            return RankingScorer()(self, X, y)
        if inputs.are_pairs(X, y):
            ratings = self._judged_pairs(X, y)
            return float(r2_score(ratings.values, _predict_ids(ratings[:2], self._pair_model())))
        told, judged = self._divided(X, y)
        items = self._items()
        sides = solve(told, items)[judged.users], items.features[judged.items]
        predicted = np.einsum("nk,nk->n", *sides) + items.bias[judged.items]
        return float(r2_score(judged.values, as_ratings(predicted, items)))

    def _fold_in_pairs(self, X: Any, y: Any, weights: Any) -> Floats:
        """Return the vector of the user of each pair, folded in from the ratings of these pairs."""
        _, rows, ratings = self._told_by(X, y, weights)
        model = self._items()
        return in_ratings(solve(ratings, model), model)[0][rows]

    def _of_ratings(self, told: UserRatings) -> tuple[Floats32, Floats]:
        items = self._items()
        vectors, biases = in_ratings(solve(told, items), items)
        return vectors.astype(np.float32), items.mean + biases

    def _pair_model(self, is_here: bool = True) -> Arguments:
        """Return what is needed to predict; the functions that find ids stay in this process."""
        users = self._once("users", lambda users: freeze(pad_rows(users)), self.user_factors_)
        items = self._once("items", lambda items: freeze(pad_rows(items.T)), self.components_)
        sides = users, items, *freeze((self.user_bias_, self.item_bias_))
        tables = [
            (self._ids_of(kind), kind, "pairs", self._looked_up(kind) if is_here else None)
            for kind in KINDS
        ]
        return tables, sides, self.global_mean_, self._limits()

    def _items(self) -> Items:
        parameters: Any = self
        unit = float(self.rating_scale_)
        fit_bias = bool(parameters.fit_bias) and not self._ranks  # whether users have biases
        make = partial(features_of, unit, fit_bias)
        features, gram = self._once(f"features, {fit_bias}", make, self.components_)
        weight, n_items = self._unobserved, len(self.item_bias_)
        drawing: Any = None
        if (loss := ranking_loss(self._loss)) is not None:
            candidates = self._once(
                "candidates", lambda counts: candidates_of(counts[:, 0]), self._counts[1]
            )
            drawing = loss, candidates, float(parameters.learning_rate), self._n_epochs
        return Items(
            features,
            self.item_bias_.astype(np.float64) / unit,
            self.global_mean_,
            unit,
            self.alpha_,
            *power_of(parameters.penalty, weight * n_items),
            bool(parameters.positive),
            fit_bias,
            weight,
            weight * gram,
            self._limits(),
            parameters.confidence,
            drawing,
        )

    def _limits(self) -> FloatPair:
        """Return the range of predictions."""
        parameters: Any = self
        return self.rating_range_ if parameters.clip else (-np.inf, np.inf)


def _predict_pairs(pairs: Any, model: Arguments) -> Floats:
    return _predict_ids(inputs.read_pairs(pairs), model)


def _predict_ids(pairs: tuple[Array, ...], model: Arguments) -> Floats:
    tables, sides, mean, limits = model
    users, items = (number(column, *table) for column, table in zip(pairs, tables, strict=True))
    out = np.empty(users.size)
    predict_pairs(*freeze((users, items)), *sides, mean, out)
    return np.clip(out, *limits, out=out)


def _known_vectors(pairs: Any, model: tuple[Array, Floats32]) -> Floats:
    """Return the vectors of the users of pairs; zeros for unknown users."""
    ids, factors = model
    return vectors_of(number(inputs.read_pairs(pairs)[0], ids, "user"), factors).astype(np.float64)
