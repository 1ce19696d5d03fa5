"""Folding in: vectors of users from their ratings, while the items stay as they are."""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from schmp_estimators.core.jit import compiled_for
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.core.typing import FloatPair, Floats, Floats32, Integers
from schmp_estimators.core.values import freeze, part_of_each
from schmp_estimators.mf.data.inputs import check_taken, clicks_of, user_ratings
from schmp_estimators.mf.kernels.ccd import UserRatings
from schmp_estimators.mf.kernels.foldin import fold_in
from schmp_estimators.mf.kernels.sgd import fold_in_drawn

#: Key of the draws of items, which depend only on this, the epoch and the item, and so are the same
#: for every call.
_KEY = np.uint64(0)


class Items(NamedTuple):
    """All that is needed to fold in a user, for standardised ratings."""

    features: Floats
    bias: Floats
    mean: float
    unit: float
    alpha: float
    #: The exponent of the penalty, and what missing pairs add to the number of ratings in it.
    power: float
    missing: float
    positive: bool
    fit_bias: bool
    #: Weight of missing pairs.
    unobserved: float
    #: (n_features, n_features) products of the features times that weight.
    gram: Floats
    limits: FloatPair
    confidence: Any
    #: For a loss that ranks: the loss, the items that may be drawn, the first step and the number
    #: of epochs; else None.
    drawing: tuple[Any, Integers, float, int] | None


def features_of(unit: float, fit_bias: bool, components: Floats32) -> tuple[Floats, Floats]:
    """Return features of items for standardised ratings, and all their products.

    The features have ones for the users' biases.
    """
    features = np.ascontiguousarray(components.T, np.float64) / np.sqrt(unit)
    if fit_bias:
        features = np.hstack([features, np.ones((len(features), 1))])
    with one_blas_thread():
        return freeze((features, features.T @ features))


def predict_rows(rows: Any, items: Items) -> Floats:
    """Return the predictions of all entries of a dense matrix."""
    if sparse.issparse(rows):
        raise ValueError(
            "predict takes pairs of ids or a dense matrix, not a sparse one; use transform(X)"
        )
    return as_ratings(solve(user_ratings(rows), items) @ items.features.T + items.bias, items)


def as_ratings(predicted: Floats, items: Items) -> Floats:
    """Return predictions for standardised ratings in the units of ratings, within their limits."""
    return np.clip(items.mean + predicted * items.unit, *items.limits)


def find_vectors(rows: Any, items: Items) -> Floats:
    """Return the vectors of the users of a matrix."""
    return in_ratings(solve(user_ratings(rows), items), items)[0]


def in_ratings(solved: Floats, items: Items) -> tuple[Floats, Floats]:
    """Return solutions as vectors and biases of users, in the units of ratings."""
    vectors, biases = np.split(solved, [items.features.shape[1] - items.fit_bias], axis=1)
    return vectors * np.sqrt(items.unit), biases.sum(axis=1) * items.unit


def solve(ratings: UserRatings, items: Items) -> Floats:
    """Return (n_users, n_features) the solution for each user, for standardised ratings."""
    if items.drawing is not None:
        return _by_steps(ratings, items)
    values = ratings.values.real
    weights = np.ones(ratings.values.size)
    counts = np.diff(ratings.indptr)
    if items.confidence is not None:
        values, weights = clicks_of(values, items.confidence)
    sizes: Any = counts
    if np.iscomplexobj(ratings.values):
        weights = ratings.values.imag
        if not items.unobserved:
            sizes = np.bincount(part_of_each(counts), weights, counts.size)
    left = ((values - items.mean) / items.unit - items.bias[ratings.items]) * weights
    features = items.features
    out = np.zeros((counts.size, features.shape[1]))
    penalties = items.alpha * (sizes + items.missing) ** items.power
    own = UserRatings(ratings.indptr, ratings.items, left)
    shared = freeze((own, weights - items.unobserved, features, penalties, items.gram))
    fold_in(*shared, features.shape[1] - items.fit_bias, items.positive, out)
    return out


def _by_steps(ratings: UserRatings, items: Any) -> Floats:
    """Return the vectors to which the fit's steps take users from zero, for a loss that ranks."""
    check_taken(float(ratings.values.min(initial=1.0)))
    loss, candidates, rate, n_epochs = items.drawing
    n_users = ratings.indptr.size - 1
    out = np.zeros((n_users, items.features.shape[1]))
    given = freeze((ratings, candidates, items.features, items.bias))
    how = (rate, items.alpha), n_epochs, _KEY, items.positive
    compiled_for(loss, fold_in_drawn)(loss, *given, *how, out)
    return out
