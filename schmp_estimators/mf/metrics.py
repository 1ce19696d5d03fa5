"""Measures of recommended lists against held-out items, and scorers that use them."""

from collections.abc import Callable, Set
from itertools import chain
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.inputs.validation import is_missing
from schmp_estimators.core.typing import Array, Floats, Integers, Masks, Positions
from schmp_estimators.core.values import part_of_each
from schmp_estimators.mf.data.ids import (
    as_objects,
    at_least_one,
    distinct,
    is_text,
    look_up,
    merge,
    read_ids,
)

#: The relevant items of each user: the entries above 0 of a matrix with a row for each user, or
#: their ids.
Relevant = Any


class Hits(NamedTuple):
    """Which items of ranked lists are relevant, and how many could have been.

    There are only users with relevant items.
    """

    #: (m, k) whether the item in this place is relevant, and whether the place is empty.
    right: Masks
    empty: Masks
    #: (m,) number of relevant items, and of other items that could have been recommended.
    relevant: Integers
    others: Integers


def precision_at_k(items: ArrayLike, relevant: Relevant, k: int = 10) -> float:
    """Return the share of the k recommendations that are relevant, as a mean over users.

    Parameters
    ----------
    items : array-like of shape (n_users, n), n >= k
        Ids of recommended items, best first, as `ModelParallelMF.recommend` returns them.  Empty
        places (-1, None, NaN or ``2**64 - 1``) count as items that are not relevant.
    relevant : sparse matrix of shape (n_users, n_items), or sequence of n_users array-likes
        The relevant items of each user.  In a matrix, they are the columns with entries above 0 in
        the row of the user, and `items` are column numbers.  A sequence has a list, set or array of
        ids for each user.  An id that occurs twice counts once.  Users without relevant items are
        left out of the mean.
    k : int, default=10
        Number of recommendations to judge.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If `items` and `relevant` have different numbers of users.  If k is less than 1 or larger
        than n.  If no user has relevant items.  If an item occurs twice among the k recommendations
        of a user.  If `relevant` is neither a sparse matrix nor a sequence with ids for each user.

    Examples
    --------
    >>> from schmp_estimators.ranking import precision_at_k
    >>> recommended = [["Emma", "Dune"], ["Dune", "Solaris"]]
    >>> precision_at_k(recommended, [["Emma"], ["Dune", "Solaris"]], k=2)
    0.75
    """
    return _mean("precision", items, relevant, k)


def recall_at_k(items: ArrayLike, relevant: Relevant, k: int = 10) -> float:
    """Return the share of relevant items that are among k recommendations, as a mean over users.

    Parameters and errors are as in `precision_at_k`.
    """
    return _mean("recall", items, relevant, k)


def average_precision_at_k(items: ArrayLike, relevant: Relevant, k: int = 10) -> float:
    """Return the mean over users of the average precision (MAP) of k recommendations.

    For each relevant item in the list, compute the precision of the list down to that item.  The
    average precision of a user is the sum of these precisions, divided by the smaller of k and the
    number of relevant items.  Parameters and errors are as in `precision_at_k`.
    """
    return _mean("average_precision", items, relevant, k)


def ndcg_at_k(items: ArrayLike, relevant: Relevant, k: int = 10) -> float:
    """Return the mean normalised discounted cumulative gain (NDCG) of k recommendations.

    A relevant item at position r, counted from 1, has the gain 1 / log2(r + 1).  The sum of the
    gains in a user's list is divided by that of the best possible list.  Parameters and errors are
    as in `precision_at_k`.
    """
    return _mean("ndcg", items, relevant, k)


def auc_at_k(
    items: ArrayLike, relevant: Relevant, k: int = 10, *, n_candidates: Any = None
) -> float:
    """Return the area under the ROC curve (AUC), as a mean over users.

    The AUC of a user is the probability that a random relevant item is ranked above a random item
    that is not relevant.  Items outside the k recommendations count as if they followed in random
    order.  Empty places are ignored.  With k equal to the number of candidates, this is the AUC of
    the whole ranking.

    Parameters
    ----------
    items, relevant, k
        As in `precision_at_k`.
    n_candidates : int or array-like of shape (n_users,), default=None
        Number of items that could have been recommended to each user, including the relevant items.
        It must be at least the number of different items of the user in the k recommendations and
        `relevant` together.  None means the number of columns of `relevant`, which must then be a
        matrix.
    """
    return _mean("auc", items, relevant, k, n_candidates)


def _average_precision(hits: Hits) -> Floats:
    k = hits.right.shape[1]
    precisions = np.cumsum(hits.right, axis=1) / np.arange(1, k + 1)
    return np.sum(precisions * hits.right, axis=1) / np.minimum(hits.relevant, k)


def _ndcg(hits: Hits) -> Floats:
    gains = 1 / np.log2(np.arange(2, hits.right.shape[1] + 2))
    ideal = np.cumsum(gains)[np.minimum(hits.relevant, gains.size) - 1]
    return np.asarray(hits.right @ gains / ideal)


def _auc(hits: Hits) -> Floats:
    wrong = ~hits.right & ~hits.empty
    before = np.cumsum(hits.right, axis=1)
    found = hits.right.sum(axis=1)
    n_wrong = wrong.sum(axis=1)
    ahead = np.sum(before * wrong, axis=1) + (found + hits.relevant) / 2 * (hits.others - n_wrong)
    with np.errstate(invalid="ignore"):
        return np.where(hits.others > 0, ahead / (hits.relevant * hits.others), 1.0)


#: By name, functions that return the value of each user.
METRICS: dict[str, Callable[[Hits], Floats]] = {
    "precision": lambda hits: hits.right.mean(axis=1),
    "recall": lambda hits: hits.right.sum(axis=1) / hits.relevant,
    "average_precision": _average_precision,
    "ndcg": _ndcg,
    "auc": _auc,
}


class RankingScorer:
    """Scorer of k recommendations to each user, for the parameter `scoring` of scikit-learn.

    If X holds pairs, the item of a pair is relevant for its user if y is above `threshold`.  Items
    that the user rated in the fit are not recommended, except after a fit of `ModelParallelMF` to a
    Dask collection on a cluster.  So leave out pairs that were also in the fit: their items count
    as relevant, but are never recommended.  If X is a matrix, users are :term:`folded in <fold-in>`
    from a part of the ratings, and the other ratings are judged, as in `ModelParallelMF.score`.

    Parameters
    ----------
    metric : {"ndcg", "precision", "recall", "average_precision", "auc"}, default="ndcg"
        Name of the measure.  For example, "ndcg" is the measure of `ndcg_at_k`.
    k : int, default=10
        Number of recommendations to each user.
    threshold : float, default=0.0
        Items with ratings above `threshold` are relevant.

    Raises
    ------
    ValueError
        If `metric` is unknown, k is not positive, or `threshold` is not a number.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from schmp_estimators import ModelParallelMF
    >>> from schmp_estimators.ranking import LeaveLastOut, RankingScorer
    >>> pairs = [[user, item] for user in range(6) for item in range(4) if (user + item) % 3]
    >>> model = ModelParallelMF(2, unobserved_weight=0.1, random_state=0)
    >>> scoring = RankingScorer("recall", k=2)
    >>> cross_val_score(model, pairs, [1] * len(pairs), cv=LeaveLastOut(), scoring=scoring).shape
    (1,)
    """

    def __init__(self, metric: str = "ndcg", k: int = 10, threshold: Any = 0.0) -> None:
        if str(metric) not in METRICS:
            raise ValueError(f"metric={metric!r}; it is one of {', '.join(METRICS)}")
        if not isinstance(threshold, Real) or np.isnan(float(threshold)):
            raise ValueError(
                f"threshold={threshold!r}; it is a number: ratings above it are relevant"
            )
        self.metric = metric
        self.threshold = threshold
        self.k = at_least_one(k, "k", "a number of recommendations, ")

    def __call__(self, estimator: Any, X: Any, y: Any = None) -> float:
        """Return the measure for a fitted model on pairs with y, or on a matrix."""
        if not hasattr(estimator, "recommend"):
            raise ValueError(
                "RankingScorer judges a fitted ModelParallelMF or DistributedSLIM, not "
                f"{type(estimator).__name__}"
            )
        hits: Hits = estimator._hits(X, y, self.k, self.threshold)
        return float(METRICS[self.metric](hits).mean())

    def __repr__(self) -> str:
        """Name the parameters."""
        return f"RankingScorer({self.metric!r}, k={self.k}, threshold={self.threshold})"


def find_hits(
    found: Integers,
    rows: Integers,
    wanted: Integers,
    n_candidates: Any,
    n_items: int,
) -> Hits:
    """Find the relevant items in lists of item numbers, for users with relevant items.

    Parameters
    ----------
    found : (m, k) int64
        Numbers of items, -1 for an empty place.
    rows, wanted : (n,) int64
        Users and their relevant items; items with numbers from `n_items` on could not be
        recommended.
    n_candidates : int or (m,) int64
        Number of items that could be recommended to each user.
    n_items : int
    """
    width = n_items + 1
    known = wanted < n_items
    keys = np.unique(rows[known] * width + wanted[known])
    could_be = np.bincount(keys // width, minlength=len(found))
    relevant = could_be + np.bincount(rows[~known], minlength=len(found))
    right = np.isin(np.arange(len(found))[:, None] * width + found, keys) & (found >= 0)
    some = relevant > 0
    return Hits(right[some], found[some] < 0, relevant[some], (n_candidates - could_be)[some])


def _mean(
    metric: str, items: ArrayLike, relevant: Relevant, k: int, n_candidates: Any = None
) -> float:
    k = at_least_one(k, "k", "a number of recommendations, ")
    ranked, nothing = _read_lists(items)
    rows, wanted, n_users = _read_relevant(relevant)
    if len(ranked) != n_users:
        raise ValueError(
            f"items has shape {ranked.shape}, but relevant has {n_users} rows; each user has a row "
            "in both"
        )
    if ranked.shape[1] < k:
        raise ValueError(
            f"k={k}, but items has {ranked.shape[1]} columns; recommend more, as recommend(users, "
            f"n={k})"
        )
    if n_candidates is None:
        n_candidates = relevant.shape[1] if sparse.issparse(relevant) else None
    if n_candidates is None and metric == "auc":
        raise ValueError(
            "n_candidates must be given, unless relevant is a matrix with a column for each item"
        )
    if not rows.size:
        raise ValueError("nothing is relevant to anybody: relevant has no entry above 0, or no ids")
    listed = read_ids(ranked[~nothing], "item", "items")
    table = merge([distinct(wanted), distinct(listed)], "item")
    row_of = look_up(table)
    found = np.full(ranked.shape, -1)
    found[~nothing] = row_of(listed)
    found = found[:, :k]
    ascending = np.sort(found, axis=1)
    twice = np.argwhere((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0))
    if twice.size:
        row, place = twice[0]
        raise ValueError(
            f"items holds {table[ascending[row, place]]} more than once in row {row}; recommend "
            "each item once"
        )
    sizes = _read_sizes(0 if n_candidates is None else n_candidates, n_users)
    hits = find_hits(found, rows, row_of(wanted), sizes, table.size)
    n_wrong = np.sum(~hits.right & ~hits.empty, axis=1)
    if n_candidates is not None and (hits.others < n_wrong).any():
        user = int(np.argmax(hits.others < n_wrong))
        row = np.unique(rows)[user]
        raise ValueError(
            f"n_candidates is {sizes[row]} in row {row}, but {hits.relevant[user]} relevant items "
            f"and {n_wrong[user]} others that are recommended are candidates at least"
        )
    return float(METRICS[metric](hits).mean())


def _read_lists(items: ArrayLike) -> tuple[Array, Masks]:
    """Return recommended items in a table, and the places of none.

    None stands as -1, None, NaN, or the largest uint64.
    """
    ranked = unmask(items, "items")
    try:
        is_plain = isinstance(ranked, np.ndarray) and ranked.dtype.kind in "iuf"
        ranked = ranked if is_plain else np.array(ranked, object)
    except ValueError:  # rows of different lengths
        ranked = np.empty(0)
    if ranked.ndim != 2:
        raise ValueError(
            "items must be a table with a row of recommended ids for each user, all of one length; "
            "where there are fewer, add -1, or None among strings"
        )
    if ranked.dtype == object:
        with np.errstate(invalid="ignore"):  # on some Pythons comparisons with NaN raise this flag
            return ranked, np.frompyfunc(_is_nothing, 1, 1)(ranked).astype(bool)
    return ranked, _is_nothing(ranked) | np.isnan(ranked)


def _is_nothing(ids: Any) -> Any:
    """Return whether ids stand for no item.

    The largest uint64 and missing objects also do.
    """
    return not isinstance(ids, str) and (is_missing(ids) or (ids == -1) | (ids == 2**64 - 1))


def _read_relevant(relevant: Relevant) -> tuple[Positions, Array, int]:
    """Return the rows and ids of relevant items, and the number of rows."""
    relevant = unmask(relevant, "relevant")
    if sparse.issparse(relevant):
        rows, columns = sparse.csr_array(relevant > 0).nonzero()
        return rows, columns.astype(np.int64), relevant.shape[0]
    whole = hasattr(relevant, "columns") or not _is_list(relevant) or isinstance(relevant, Set)
    lists: list[Any] = [None] if whole else list(relevant)
    if (row := next((n for n, one in enumerate(lists) if not _is_list(one)), -1)) >= 0:
        raise ValueError(
            "relevant must be a sparse matrix, or have a list of ids for each user, but row "
            f"{row} is none: {relevant!r:.200}. If each user has one relevant item, pass [[item] "
            "for item in relevant]"
        )
    lists = list(map(list, lists))
    wanted = read_ids(as_objects(chain.from_iterable(lists)), "item", "relevant")
    rows = part_of_each(list(map(len, lists)))
    if wanted.size > 2 * len(lists) and not is_text(wanted) and wanted.max() < 2:
        raise ValueError(
            "relevant holds zeros and ones, as a dense matrix does; pass lists of ids, or "
            "scipy.sparse.csr_array(relevant)"
        )
    return rows, wanted, len(lists)


def _is_list(one: Any) -> bool:
    return hasattr(one, "__iter__") and not isinstance(one, str | bytes | dict)


def _read_sizes(n_candidates: Any, n_users: int) -> Integers:
    sizes = np.asarray(n_candidates)
    if sizes.dtype.kind not in "iu" or sizes.shape not in ((), (n_users,)):
        raise ValueError(
            f"n_candidates={n_candidates!r:.100}; it is a whole number, or one for each of the "
            f"{n_users} users"
        )
    return np.broadcast_to(sizes.astype(np.int64), n_users)
