"""Recommendations of a fitted factorisation: the best items for users, similar items and similar users."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from schmp_estimators.core.inputs.validation import validate_in_memory
from schmp_estimators.core.lanes import pad_rows
from schmp_estimators.core.typing import (
    Array,
    Floats,
    Floats32,
    Function,
    Integers,
    Integers32,
    Masks,
    Named,
    Positions,
)
from schmp_estimators.core.values import freeze, offsets_of
from schmp_estimators.mf.data.ids import (
    KINDS,
    as_objects,
    at_least_one,
    is_text,
    look_up,
    number,
    read_ids,
)
from schmp_estimators.mf.data.inputs import read_ratings
from schmp_estimators.mf.data.rows import check_pair_columns
from schmp_estimators.mf.data.seen import DuplicateRatingError, SeenItems
from schmp_estimators.mf.kernels.ccd import UserRatings
from schmp_estimators.mf.kernels.foldin import top_items
from schmp_estimators.mf.kernels.layout import RatingBlock, repeated, sort_ratings
from schmp_estimators.mf.losses import RANKING

#: What `exclude` may be, if it is a matrix.
_ROWS = (
    "a sparse matrix with a row for each user asked for, in their order; "
    "matrix, users = to_matrix(pairs, ratings) makes one from ids"
)
#: Lists of items, one for each of some users: offsets and items.
_Lists = tuple[Integers, Integers32]


class Recommender:
    """The methods of a fitted factorisation that rank items or users."""

    components_: Floats32
    user_factors_: Floats32
    user_bias_: Floats32
    item_bias_: Floats32
    global_mean_: float
    alpha_: float
    user_ids_: Array
    item_ids_: Array
    n_features_in_: int
    _fitted_on_pairs: bool
    #: For each fit, the items that each user has rated; None if that is not known.
    _seen: tuple[SeenItems, ...] | None
    #: `unobserved_weight` of the fit.
    _unobserved: float
    #: `loss` of the fit.
    _loss: str
    #: Numbers of ratings, or sums of their weights, of users and of items so far.
    _counts: tuple[Floats32, ...]
    #: Which users and which items have had ratings.
    _occur: tuple[Masks, Masks]
    #: Returns an estimator of the same items, as if fitted on a matrix like the given one.
    _for_matrices: Any
    #: Returns the ratings of new users, their vectors, and the levels to which products of vectors are added.
    _folded: Callable[[Any], tuple[UserRatings, Floats32, Floats]]

    def recommend(
        self, users: Any, n: int = 10, *, exclude: Any = "fitted", items: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        """Return the items with the highest predictions for each user, among items with ratings.

        Parameters
        ----------
        users : array-like of shape (m,), or matrix of shape (m, n_items)
            Ids of users; or a matrix with the ratings of new users, who are folded in as by `transform`.  An unknown
            user gets the items with the highest biases.  With `unobserved_weight` or a `loss` that ranks, unknown users
            and users without clicks get the items with the highest mean predictions over all users.
        n : int, default=10
            Number of items for each user.
        exclude : "fitted", None or sparse matrix of shape (m, n_items), default="fitted"
            Items not to recommend.  "fitted": those that the user rated in `fit`, in a later `partial_fit`, or in the
            row of a new user.  None: no items.  A sparse matrix: its stored entries.  It has a row for each of the m
            `users`, in their order, and the columns of `components_`.  `to_matrix` makes one from pairs of ids.
        items : array-like of shape (n_candidates,), default=None
            Ids of the items that may be recommended, for example those in stock; unknown ids are ignored.  None: all
            items with ratings.

        Returns
        -------
        items : ndarray of shape (m, n)
            Ids of items, best first.  If too few items remain, the missing ids are -1.  They are None if ids are
            strings, and the largest number if ids are uint64.
        scores : ndarray of shape (m, n), float64
            Predicted ratings or scores; -inf for missing ids.

        Raises
        ------
        ValueError
            If ids have another type than those of the fit, or are negative or missing; if `n` is not positive; if a
            matrix does not have the columns of `components_`; if `exclude` is dense, or does not have a row for each
            of `users`; if the ratings of the fit were not kept.

        Examples
        --------
        >>> from schmp_estimators import ModelParallelMF
        >>> pairs = [["ada", "Emma"], ["ada", "Persuasion"], ["bob", "Dune"], ["bob", "Solaris"], ["cy", "Emma"]]
        >>> mf = ModelParallelMF(2, unobserved_weight=0.1, random_state=0).fit(pairs, [1] * 5)
        >>> books, scores = mf.recommend(["cy"], n=1)
        >>> books.tolist()
        [['Persuasion']]
        """
        check_is_fitted(self)
        at_least_one(n, "n", "a number of items, ")
        if sparse.issparse(users) or dimensions(users) == 2:
            rows = self._matrix(
                users, "users", "give ids as a list, or a row of ratings for each new user"
            )
            told, vectors, level = self._folded(rows)
            ids = np.arange(len(level))
            of_fit = told[:2]
        else:
            ids = self._rows_of(users, "user")
            of_fit = None
            known = ids < len(self.user_bias_)
            vectors = vectors_of(ids, self.user_factors_)
            level = np.full(ids.size, self.global_mean_)
            level[known] += self.user_bias_[ids[known]]
        lists = of_fit if of_fit and _is_fitted(exclude) else self._lists(ids, exclude)
        found, scores = self._best_items(self._or_mean(vectors), lists, n, items)
        return _named(found, self.item_ids_), scores + level[:, None]

    def to_matrix(self, X: Any, y: Any) -> tuple[Any, Array]:
        """Convert the ratings of pairs to a matrix with the columns of `components_`, for `recommend`.

        Parameters
        ----------
        X : pairs of shape (n_ratings, 2)
            Ids of users, known or new, and of items.  Pairs with unknown items are ignored.
        y : array-like of shape (n_ratings,)
            Their ratings.

        Returns
        -------
        matrix : csr_array of shape (n_users_of_X, n_items), float64
        users : ndarray of shape (n_users_of_X,)
            Ids of the rows, in ascending order.

        Raises
        ------
        ValueError
            As in `fit`.

        Examples
        --------
        >>> from schmp_estimators import ModelParallelMF
        >>> pairs = [["ada", "Emma"], ["ada", "Persuasion"], ["bob", "Dune"], ["bob", "Solaris"], ["cy", "Emma"]]
        >>> mf = ModelParallelMF(2, unobserved_weight=0.1, random_state=0).fit(pairs, [1] * 5)
        >>> matrix, users = mf.to_matrix([["dee", "Solaris"]], [1])
        >>> mf.recommend(matrix, n=1)[0].tolist()
        [['Dune']]
        """
        check_is_fitted(self)
        who, _, (indptr, items, values) = self._told_by(X, y, None)
        return sparse.csr_array(
            (values.astype(np.float64), items, indptr), shape=(who.size, len(self.item_bias_))
        ), who

    def similar_items(self, items: ArrayLike, n: int = 10) -> tuple[Array, Array]:
        """Return the items with the largest cosine similarity to each item.

        Parameters
        ----------
        items : array-like of shape (m,)
            Ids of items.
        n : int, default=10
            Number of similar items for each.

        Returns
        -------
        similar : ndarray of shape (m, n)
            Ids of items, the most similar first.  The item itself, items without ratings, and items whose vector is
            zero but for rounding are left out.  So are, after a fit with ``alpha=0`` and without `unobserved_weight`,
            items with fewer ratings than `n_components`: their vectors may point anywhere.  Missing ids, and those for
            an unknown or left-out item, are as in `recommend`.
        scores : ndarray of shape (m, n), float64
            Cosines of the angles between the vectors; -inf for missing ids.

        Raises
        ------
        ValueError
            If ids have another type than those of the fit, or are negative or missing; if `n` is not positive.

        Examples
        --------
        >>> from schmp_estimators import ModelParallelMF
        >>> pairs = [["ada", "Emma"], ["ada", "Persuasion"], ["bob", "Dune"], ["bob", "Solaris"], ["cy", "Emma"]]
        >>> mf = ModelParallelMF(2, unobserved_weight=0.1, random_state=0).fit(pairs, [1] * 5)
        >>> books, cosines = mf.similar_items(["Dune"], n=1)
        >>> books.tolist()
        [['Solaris']]
        """
        check_is_fitted(self)
        return self._most_similar("item", items, n, self.components_, lambda items: items.T)

    def similar_users(self, users: ArrayLike, n: int = 10) -> tuple[Array, Array]:
        """Return the users with the largest cosine similarity to each user.

        Parameters
        ----------
        users : array-like of shape (m,)
            Ids of users.
        n : int, default=10
            Number of similar users for each.

        Returns
        -------
        similar : ndarray of shape (m, n)
            Ids of users, the most similar first, as `similar_items` returns items.
        scores : ndarray of shape (m, n), float64
            Cosines of the angles between the vectors; -inf for missing ids.
        """
        check_is_fitted(self)
        return self._most_similar("user", users, n, self.user_factors_, np.asarray)

    def _most_similar(
        self, kind: str, asked: Any, n: int, factors: Floats32, rows: Function
    ) -> tuple[Array, Floats]:
        """Return the ids with the largest cosines, and these; none for unknown ids.

        `rows` returns the vectors of `factors`.
        """
        at_least_one(n, "n", f"a number of {kind}s, ")
        side = KINDS.index(kind)
        rank = self.components_.shape[0]
        # without a penalty only as many ratings as a vector has entries say what it is
        least = 0 if self.alpha_ or self._unobserved else rank
        directions, bias = self._once(
            f"similar {kind}s",
            lambda factors, occur, counts: _directions(
                rows(factors), occur & (counts[:, 0] >= least)
            ),
            factors,
            self._occur[side],
            self._counts[side],
        )
        ids = self._rows_of(asked, kind)
        known = np.flatnonzero(ids < len(bias))
        known = known[bias[ids[known]] == 0.0]
        lists = np.arange(known.size + 1), ids[known].astype(np.int32)
        found = np.full((ids.size, n), -1)
        scores = np.full((ids.size, n), -np.inf)
        found[known], scores[known] = _best(directions[ids[known]], directions, bias, lists, n)
        return _named(found, self._ids_of(kind)), scores

    def _told_by(self, X: Any, y: Any, weights: Any) -> tuple[Array, Positions, UserRatings]:
        """Return the users of pairs, the position of each pair among them, and their ratings of known items, sorted."""
        self._check_columns(X)
        users, items, values = read_ratings(X, y, weights, clicks=True)
        who, rows = np.unique(users, return_inverse=True)
        columns = number(items, self.item_ids_, "item", rows=self._looked_up("item"))
        n_items = len(self.item_bias_)
        known = RatingBlock(*(array[columns < n_items] for array in (rows, columns, values)))
        indptr, told = sort_ratings(known, who.size, n_items)
        if (again := repeated(told.users, told.items)).size:
            raise DuplicateRatingError(
                who[told.users[again[0]]], self.item_ids_[told.items[again[0]]]
            )
        return who, rows, UserRatings(indptr, told.items, told.values)

    def _check_columns(self, X: Any) -> None:
        """Compare the names of the columns of pairs with those of the fit, if the fit was one of pairs."""
        if self._fitted_on_pairs:
            check_pair_columns(X, self, reset=False)

    def _lists(self, ids: Array, exclude: Any) -> _Lists:
        """Return lists of the items that are not to be recommended to each of `ids`."""
        if exclude is None:
            return np.zeros(ids.size + 1, np.int64), np.empty(0, np.int32)
        if _is_fitted(exclude):
            if self._seen is None:
                raise ValueError(
                    f"the ratings of a Dask input are not kept with the model; pass exclude=None, or {_ROWS}"
                )
            lists = [np.unique(np.concatenate([seen.of(i) for seen in self._seen])) for i in ids]
            offsets = offsets_of([len(one) for one in lists])
            return offsets.astype(np.int64), np.concatenate([*lists, []]).astype(np.int32)
        if not sparse.issparse(exclude):
            raise ValueError(
                f"exclude is of type {type(exclude).__name__}, {exclude!r:.80}; it must be 'fitted', None, or {_ROWS}"
            )
        matrix = self._matrix(exclude, "exclude", "it has a row for each user asked for")
        if matrix.shape[0] != ids.size:
            raise ValueError(
                f"exclude has {matrix.shape[0]} rows, but users has {ids.size}; pass {_ROWS}"
            )
        stored = sparse.csr_array(
            (np.ones(matrix.nnz), matrix.indices, matrix.indptr), matrix.shape
        )
        stored.sum_duplicates()  # this also sorts them
        return stored.indptr.astype(np.int64), stored.indices.astype(np.int32)

    def _matrix(self, given: Any, name: str, remedy: str) -> Any:
        """Validate a matrix of ratings, and return it.

        Raises
        ------
        ValueError
            If it does not have the columns of `components_`.
        """
        if np.shape(given)[1:] != (n_items := len(self.item_bias_),):
            raise ValueError(
                f"{name} has shape {np.shape(given)}, but must have a column for each of the {n_items} items, as "
                f"components_ has; {remedy}"
            )
        owner = self._for_matrices(given)
        return validate_in_memory(
            given, owner, reset=False, name=name, ensure_all_finite=False, ensure_min_samples=0
        )

    @property
    def _ranks(self) -> bool:
        """Whether the model ranks items instead of predicting ratings."""
        return bool(self._unobserved or self._loss in RANKING)

    def _or_mean(self, vectors: Floats32) -> Floats32:
        """Return vectors of users; if the model ranks, zero vectors become the mean over all users.  Mutates them."""
        if self._ranks:  # users have no biases
            mean = self._once(
                "mean", lambda users: users.mean(axis=0, dtype=np.float64), self.user_factors_
            )
            vectors[~vectors.any(axis=1)] = mean
        return vectors

    def _best_items(
        self, rows: Floats32, lists: _Lists, n: int, candidates: ArrayLike | None = None
    ) -> tuple[Integers, Floats]:
        """Return the items with the highest predictions that occur and are not in the lists, and the predictions."""
        may_be = self._occur[1]
        if candidates is not None:
            wanted = self._rows_of(candidates, "item")
            may_be = may_be & np.isin(np.arange(may_be.size), wanted)
        bias = np.where(may_be, self.item_bias_, -np.float32(np.inf))
        return _best(rows, self._padded_items(), bias, lists, n)

    def _padded_items(self) -> Floats32:
        padded: Floats32 = self._once(
            "items", lambda items: freeze(pad_rows(items.T)), self.components_
        )
        return padded

    def _once(self, name: str, make: Function, *arrays: Any) -> Any:
        """Return what `make` returns for fitted arrays; it is called once, as long as the model has these arrays.

        The arrays become read-only, so that the result stays valid.
        """
        tables: Named = self.__dict__.setdefault("_tables", {})
        found = tables.get(name)
        if found is None or any(
            array is not now for array, now in zip(found[0], arrays, strict=True)
        ):
            for array in arrays:
                array.flags.writeable = False
            found = tables[name] = arrays, make(*arrays)
        return found[1]

    def __getstate__(self) -> Any:
        """Return the state to pickle; results of `_once` are left out, because they can be made again."""
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_tables"}

    def _rows_of(self, ids: Any, kind: str) -> Integers:
        """Return the rows of users or items, given their ids."""
        if dimensions(ids) != 1:
            remedy = f"Pass [{ids!r}] for one {kind}" if np.isscalar(ids) else "Pass a flat list"
            raise ValueError(f"{kind}s must be a list or array of ids; got {ids!r:.200}. {remedy}.")
        return number(
            read_ids(as_objects(ids) if isinstance(ids, list | tuple) else ids, kind, f"{kind}s"),
            self._ids_of(kind),
            kind,
            f"{kind}s",
            self._looked_up(kind),
        )

    def _ids_of(self, kind: str) -> Array:
        return self.user_ids_ if kind == "user" else self.item_ids_

    def _looked_up(self, kind: str) -> Any:
        return self._once(f"{kind} ids", look_up, self._ids_of(kind))


def dimensions(given: Any) -> int:
    """Return the number of dimensions of an array-like, or -1 if its rows have different lengths."""
    try:
        return np.ndim(given)
    except ValueError:
        return -1


def vectors_of(rows: Integers, factors: Floats32) -> Floats32:
    """Return the vectors of users, given their rows; zeros for unknown users."""
    known = rows < len(factors)
    vectors = np.zeros((rows.size, factors.shape[1]), np.float32)
    vectors[known] = factors[rows[known]]
    return vectors


def _is_fitted(exclude: Any) -> bool:
    """Return whether to exclude the items that users have rated."""
    return isinstance(exclude, str) and exclude == "fitted"


def _best(
    rows: Floats32,
    others: Floats32,
    bias: Floats32,
    lists: _Lists,
    n: int,
) -> tuple[Integers, Floats]:
    """Return the rows of `others`, except those in the lists, with the largest products with each row; and these."""
    shape = len(rows), min(int(n), len(others))
    found = np.full((len(rows), n), -1)
    scores = np.full((len(rows), n), -np.inf)
    best = np.empty(shape, np.int64)
    values = np.empty(shape, np.float32)
    padded = rows if rows.shape[1:] == others.shape[1:] else pad_rows(rows)
    top_items(*freeze((np.arange(len(rows)), padded, others, bias, *lists)), best, values)
    found[:, : shape[1]] = best
    scores[:, : shape[1]] = values
    return found, scores


def _directions(factors: Floats32, occur: Masks) -> tuple[Floats32, Floats32]:
    """Return padded directions of vectors, and 0, or −inf for vectors that do not occur or are as good as zero."""
    lengths = np.sqrt(np.einsum("nk,nk->n", factors, factors, dtype=np.float64)) * occur
    lengths[lengths <= np.finfo(np.float32).eps * lengths.max(initial=0.0)] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        directions = np.where(lengths[:, None] > 0, factors / lengths[:, None], 0.0).astype(
            np.float32
        )
    return freeze((pad_rows(directions), np.where(lengths > 0, 0.0, -np.inf).astype(np.float32)))


def _named(rows: Integers, table: Array) -> Array:
    """Return the ids of rows; for negative rows -1, in the dtype of the ids, or None."""
    nothing = None if is_text(table) else np.array(-1).astype(table.dtype)
    named = table[rows]
    named[rows < 0] = nothing
    return named
