"""Recommendations of a fitted model: the best items for users, and what a ranking is judged by."""

import math
from collections.abc import Callable, Mapping
from copy import copy
from operator import is_not
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from schmp_estimators.core.estimators import undone_on_error
from schmp_estimators.core.inputs.rows import Rows
from schmp_estimators.core.inputs.validation import is_dask, validate_in_memory
from schmp_estimators.core.later import Later
from schmp_estimators.core.places.place import Place, choose_place, retry
from schmp_estimators.core.typing import (
    Array,
    Floats,
    Function,
    Integers,
    Integers32,
    Masks,
    Named,
    Positions,
)
from schmp_estimators.mf.data.ids import (
    KINDS,
    Known,
    as_objects,
    at_least_one,
    is_text,
    look_up,
    number,
    read_ids,
    warn_of_unknown,
)
from schmp_estimators.mf.data.inputs import (
    are_pairs,
    check_no_text,
    pair_columns,
    read_pairs,
    read_ratings,
    user_ratings,
    warn_unused,
)
from schmp_estimators.mf.data.ratings import choose_hold_out, held_out_mask
from schmp_estimators.mf.data.rows import RatingRows, Wanted, check_pair_columns, open_ratings
from schmp_estimators.mf.data.seen import DuplicateRatingError
from schmp_estimators.mf.kernels.ccd import UserRatings
from schmp_estimators.mf.kernels.layout import UserRows, pairs_of, rows_of, select, sort_items
from schmp_estimators.mf.kernels.sgd import RatingBlock
from schmp_estimators.mf.metrics import Hits, find_hits

dask: Any = Later("dask")
#: What `exclude` may be, if it is a matrix.
_ROWS = (
    "a sparse matrix with a row for each user asked for, in their order; "
    "matrix, users = to_matrix(pairs, ratings) makes one from ids"
)
#: Lists of items, one for each of some users: offsets and items.
Lists = tuple[Integers, Integers32]

#: Key of the hashes that choose them: the choice depends only on row and column, and is the same
#: for every call.
_KEY = np.uint64(0)


class Recommender:
    """The methods of a fitted model that rank items; a model says how by four of its own."""

    user_ids_: Array
    item_ids_: Array
    n_features_in_: int
    _fitted_on_pairs: bool
    #: Which users and which items have had ratings.
    _occur: tuple[Masks, Masks]

    #: Returns what the model knows of users, given their rows; rows beyond the last one are unknown
    #: users.
    _of_users: Callable[[Integers], Any]
    #: Returns what `_of_users` would know of new users with these ratings.
    _of_ratings: Callable[[UserRatings], Any]
    #: Returns the items that users have rated in fits; None if that is not known.
    _rated: Callable[[Integers], Lists | None]
    #: Returns the best items for users among some, without those in their lists, and their scores.
    _best_items: Callable[[Any, Lists, int, Masks], tuple[Integers, Floats]]

    def recommend(
        self, users: Any, n: int = 10, *, exclude: Any = "fitted", items: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        """Return the items with the highest predictions for each user.

        Items without ratings are not recommended.

        Parameters
        ----------
        users : array-like of shape (m,), or matrix of shape (m, n_items)
            Ids of users, or a matrix with the ratings of new users.  A `ModelParallelMF` of ratings
            gives unknown users the items with the highest biases.  With `unobserved_weight` or a
            ranking `loss`, and from `DistributedSLIM`, unknown users get the items with the highest
            mean predictions over all users.  So do users whose clicks contribute to no score.
        n : int, default=10
            Number of items for each user.
        exclude : "fitted", None, ids, pairs or sparse matrix of shape (m, n_items), \
                default="fitted"
            Items not to recommend.  With "fitted", they are the items that the user rated in `fit`
            or `partial_fit`, or in the row of a new user.  None excludes no items.  A list of item
            ids excludes these items for all users.  If `users` are ids, you can also pass pairs of
            a user and an item.  Each pair excludes the item for this user only.  Unknown ids are
            ignored.  A sparse matrix excludes its stored entries.  It needs a row for each of the m
            `users`, in their order, and a column for each item.  `to_matrix` makes such a matrix
            from pairs of ids, with users in ascending order.
        items : array-like of shape (n_candidates,), default=None
            Ids of the items that may be recommended, for example those in stock.  Unknown ids are
            ignored, and a warning names some.  None means all items with ratings.

        Returns
        -------
        items : ndarray of shape (m, n)
            Ids of items, best first.  If fewer than n items remain, the missing ids are -1, None
            for strings, or ``2**64 - 1`` for uint64.
        scores : ndarray of shape (m, n), float64
            Predicted ratings or scores, and -inf for missing ids.

        Raises
        ------
        ValueError
            If ids have another type than those of the fit, or are negative or missing.  If `n` is
            not positive.  If a matrix does not have a column for each item.  If `exclude` is none
            of the types listed above, or is a matrix that does not have a row for each of `users`.
            If `exclude` is "fitted", but a `ModelParallelMF` has not kept the ratings, because they
            were a Dask collection on a cluster.

        Examples
        --------
        >>> from schmp_estimators import ModelParallelMF
        >>> pairs = [["ada", "Emma"], ["ada", "Persuasion"], ["cy", "Emma"]]
        >>> pairs += [["bob", "Dune"], ["bob", "Solaris"]]
        >>> mf = ModelParallelMF(2, unobserved_weight=0.1, random_state=0).fit(pairs, [1] * 5)
        >>> books, scores = mf.recommend(["cy"], n=1)
        >>> books.tolist()
        [['Persuasion']]
        """
        check_is_fitted(self)
        at_least_one(n, "n", "a number of items, ")
        if sparse.issparse(users) or dimensions(users) == 2:
            remedy = "give ids as a list, or a row of ratings for each new user"
            told = self._read(self._matrix(users, "users", remedy))
            asked = np.arange(told.indptr.size - 1)
            of_fit: Any = told[:2]
            of_users = self._of_ratings(told)
        else:
            asked = self._rows_of(users, "user")
            of_fit = None
            of_users = self._of_users(asked)
        lists = self._lists(asked, exclude, of_fit)
        may_be = self._occur[1]
        if items is not None:
            wanted = self._rows_of(items, "item", warns=True)
            may_be = may_be & np.isin(np.arange(may_be.size), wanted)
        found, scores = self._best_items(of_users, lists, n, may_be)
        return named(found, self.item_ids_), scores

    def to_matrix(self, X: Any, y: Any) -> tuple[Any, Array]:
        """Convert pairs and their ratings to a matrix for `recommend`, with a column for each item.

        Parameters
        ----------
        X : pairs of shape (n_ratings, 2)
            Ids of users and items.  Users may be known or new.  Pairs with unknown items are
            ignored, and a warning names some of these items.
        y : array-like of shape (n_ratings,)
            Ratings of the pairs.

        Returns
        -------
        matrix : csr_array of shape (n_users_of_X, n_items), float64
            Ratings, with a row for each user in X.
        users : ndarray of shape (n_users_of_X,)
            Id of the user of each row, in ascending order.

        Raises
        ------
        ValueError
            As in `fit`.

        Examples
        --------
        >>> from schmp_estimators import ModelParallelMF
        >>> pairs = [["ada", "Emma"], ["ada", "Persuasion"], ["cy", "Emma"]]
        >>> pairs += [["bob", "Dune"], ["bob", "Solaris"]]
        >>> mf = ModelParallelMF(2, unobserved_weight=0.1, random_state=0).fit(pairs, [1] * 5)
        >>> matrix, users = mf.to_matrix([["dee", "Solaris"]], [1])
        >>> mf.recommend(matrix, n=1)[0].tolist()
        [['Dune']]
        """
        check_is_fitted(self)
        who, _, (indptr, items, values) = self._told_by(X, y, None)
        return sparse.csr_array(
            (values.astype(np.float64), items, indptr), shape=(who.size, len(self.item_ids_))
        ), who

    def _told_by(self, X: Any, y: Any, weights: Any) -> tuple[Array, Positions, UserRatings]:
        """Return the users of pairs, each pair's position among them, and their ratings.

        The ratings are those of known items, sorted.
        """
        self._check_columns(X)
        users, items, values = read_ratings(X, y, weights, clicks=True)
        who, rows = np.unique(users, return_inverse=True)
        columns = self._number(items, "item")
        n_items = len(self.item_ids_)
        warn_of_unknown(items[columns >= n_items], "item", "X")
        known = RatingBlock(*(array[columns < n_items] for array in (rows, columns, values)))
        told, twice = sort_items(rows_of(known, who.size), n_items)
        if twice:
            raise DuplicateRatingError(who[twice[0]], self.item_ids_[twice[1]])
        return who, rows, UserRatings(*told[1:])

    def _check_columns(self, X: Any) -> None:
        """Compare the names of the columns of pairs with those of a fit of pairs."""
        if self._fitted_on_pairs:
            check_pair_columns(X, self, reset=False)

    def _lists(self, ids: Array, exclude: Any, of_new: Lists | None) -> Lists:
        """Return lists of the items that are not to be recommended to each of `ids`.

        `of_new`: the items of new users, None for known ones.
        """
        if exclude is None:
            return no_lists(ids)
        if isinstance(exclude, str) and exclude == "fitted":
            rated = of_new or self._rated(ids)
            if rated is None:
                raise ValueError(
                    "the ratings of a Dask input are not kept with the model; pass exclude=None, "
                    f"pairs of users and items, or {_ROWS}"
                )
            return rated
        n_users, n_items = len(self.user_ids_), len(self.item_ids_)
        if sparse.issparse(exclude):
            matrix = self._matrix(exclude, "exclude", "it has a row for each user asked for")
            if matrix.shape[0] != ids.size:
                raise ValueError(
                    f"exclude has {matrix.shape[0]} rows, but users has {ids.size}; pass {_ROWS}"
                )
            entries = np.ones(matrix.nnz), matrix.indices, matrix.indptr
            listed = sparse.csr_array(entries, matrix.shape, copy=True)
            listed.sum_duplicates()  # this also sorts them
            return _as_lists(listed)
        is_plain = not isinstance(exclude, str | Mapping)
        if is_plain and dimensions(exclude) == 1:
            items = np.unique(self._rows_of(exclude, "item"))
            items = items[items < n_items].astype(np.int32)
            return np.arange(ids.size + 1) * items.size, np.tile(items, ids.size)
        if not (is_plain and of_new is None and pair_columns(exclude)):
            raise ValueError(
                f"exclude is of type {type(exclude).__name__}, {exclude!r:.80}; it must be "
                "'fitted', None, ids of items that no user gets, pairs of ids of known users and "
                f"items, or {_ROWS}"
            )
        pairs = read_pairs(exclude, "exclude")
        users, items = map(self._number, pairs, KINDS, ("exclude", "exclude"))
        known = (users < n_users) & (items < n_items)
        # the last row is that of unknown users
        given = np.ones(known.sum()), (users[known], items[known])
        return _as_lists(sparse.csr_array(given, (n_users + 1, n_items))[ids])

    def _matrix(self, given: Any, name: str, remedy: str) -> Any:
        """Validate a matrix of ratings, and return it.

        Raises
        ------
        ValueError
            If it does not have a column for each item.
        """
        if np.shape(given)[1:] != (n_items := len(self.item_ids_),):
            raise ValueError(
                f"{name} has shape {np.shape(given)}, but must have a column for each of the "
                f"{n_items} items, in the order of item_ids_; {remedy}"
            )
        owner = self._for_matrices(given)
        return validate_in_memory(
            given, owner, reset=False, name=name, ensure_all_finite=False, ensure_min_samples=0
        )

    def _hits(self, X: Any, y: Any, k: int, threshold: float) -> Hits:
        """Return what is right among k recommendations for the users of judged ratings.

        The ratings are pairs or a matrix.
        """
        check_is_fitted(self)
        if are_pairs(X, y):
            users, items, values = self._judged_pairs(X, y)
            who, rows = np.unique(users, return_inverse=True)
            wanted, asked = self._number(items, "item"), self._number(who, "user")
            lists = self._rated(asked) or no_lists(asked)
            of_users = self._of_users(asked)
        else:
            told, (rows, wanted, values) = self._divided(X, y)
            lists = told[:2]
            of_users = self._of_ratings(told)
        right = values > threshold
        if not right.any():
            raise ValueError(
                f"no rating that is judged is above {threshold:g}: there is nothing to recommend"
            )
        may_be = self._occur[1]
        found, _ = self._best_items(of_users, lists, k, may_be)
        n_candidates = int(may_be.sum()) - np.diff(lists[0])
        return find_hits(found, rows[right], wanted[right], n_candidates, may_be.size)

    def _judged_pairs(self, X: Any, y: Any) -> RatingBlock:
        """Return the judged pairs, in memory."""
        self._check_columns(X)
        return read_ratings(*(dask.compute(X, y) if is_dask(X) or is_dask(y) else (X, y)))

    def _read(self, rows: Any) -> UserRatings:
        """Return what a model takes of the entries of a matrix."""
        return user_ratings(rows)

    def _divided(self, X: Any, y: Any) -> tuple[UserRatings, RatingBlock]:
        """Divide the ratings of a matrix into those to fold users in, and those that are judged.

        Raises
        ------
        ValueError
            If there are fewer than two ratings.
        """
        if y is None and self._are_pairs(X):
            raise ValueError("X holds pairs of ids: pass their ratings, as score(pairs, ratings)")
        rows = validate_in_memory(X, self._for_matrices(X), reset=False, ensure_all_finite=False)
        warn_unused(y, rows.shape[0])
        ratings = self._read(rows)
        every = UserRows(np.arange(len(ratings.indptr) - 1, dtype=np.int32), *ratings)
        # a tenth is judged; of few ratings about a hundred, up to half of them
        share = max(0.1, min(0.5, 100 / max(1, ratings.values.size)))
        judged = held_out_mask(pairs_of(every), choose_hold_out(Rows([every]), _KEY, share))
        return UserRatings(*select(every, ~judged)[1:]), pairs_of(select(every, judged))

    def _are_pairs(self, X: Any, among_two: str = "integers") -> bool:
        """Return whether X is pairs.

        For a model of two items, two columns are pairs only if integers, or never.
        """
        if (columns := pair_columns(X)) is None:
            return False
        if self._fitted_on_pairs or len(self.item_ids_) != 2:
            return True
        return among_two != "never" and all(np.asarray(one).dtype.kind != "f" for one in columns)

    def _for_matrices(self, X: Any) -> Any:
        """Return this estimator as if fitted on a matrix like X, with the same users and items."""
        check_no_text(X)
        if not self._fitted_on_pairs:
            return self
        twin: Any = copy(self)
        twin.n_features_in_ = len(self.item_ids_)
        twin.__dict__.pop("feature_names_in_", None)
        # only frames have names: other inputs need no warning that names are missing
        if hasattr(X, "columns") and is_text(self.item_ids_):
            twin.feature_names_in_ = self.item_ids_
        return twin

    def _fit_ratings(
        self,
        X: Any,
        y: Any,
        wanted: Wanted,
        fit: Callable[[RatingRows, Place], Named],
        *,
        anew: bool,
        label: str,
        work: float = math.inf,
        weights: Any = None,
    ) -> None:
        """Set the fitted attributes that `fit` returns for the ratings of an input.

        `work` is about how many seconds it takes.
        """
        estimator: Any = self
        known = None if anew else Known(self.user_ids_, self.item_ids_)
        with (
            undone_on_error(self),
            estimator._progress_bar(),
            choose_place(estimator.n_jobs, is_dask=is_dask(X), label=label, work=work) as place,
        ):

            def fitted() -> Named:
                with open_ratings(
                    X, y, self, wanted, weights=weights, place=place, earlier=known
                ) as ratings:
                    return fit(ratings, place)

            attributes = retry(place, fitted)
        self.__dict__.update(attributes)
        # after a fit of pairs, a model of a matrix has the columns of all items
        if not self._fitted_on_pairs and self.n_features_in_ != len(self.item_ids_):
            self.n_features_in_ = len(self.item_ids_)
            self.__dict__.pop("feature_names_in_", None)

    def _once(self, name: str, make: Function, *arrays: Any) -> Any:
        """Return what `make` returns for fitted arrays.

        It is called once, as long as the model has these arrays.

        The arrays become read-only, so that the result stays valid.
        """
        tables: Named = self.__dict__.setdefault("_tables", {})
        found = tables.get(name)
        if found is None or any(map(is_not, found[0], arrays)):
            for array in arrays:
                array.flags.writeable = False
            found = tables[name] = arrays, make(*arrays)
        return found[1]

    def __getstate__(self) -> Any:
        """Return the state to pickle.

        Results of `_once` are left out, because they can be made again.
        """
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_tables"}

    def _rows_of(self, ids: Any, kind: str, *, warns: bool = False) -> Integers:
        """Return the rows of users or items, given their ids; perhaps warn of unknown ones."""
        if dimensions(ids) != 1:
            remedy = f"Pass [{ids!r}] for one {kind}" if np.isscalar(ids) else "Pass a flat list"
            raise ValueError(f"{kind}s must be a list or array of ids; got {ids!r:.200}. {remedy}.")
        name = f"{kind}s"
        found = read_ids(as_objects(ids) if isinstance(ids, list | tuple) else ids, kind, name)
        rows = self._number(found, kind, name)
        if warns:
            unknown = np.flatnonzero(rows >= len(self._ids_of(kind)))
            warn_of_unknown(np.asarray(ids, object)[unknown], kind, name)
        return rows

    def _number(self, ids: Array, kind: str, source: str = "pairs") -> Integers:
        """Return the rows of ids that have been read."""
        return number(ids, self._ids_of(kind), kind, source, self._looked_up(kind))

    def _ids_of(self, kind: str) -> Array:
        return self.user_ids_ if kind == "user" else self.item_ids_

    def _looked_up(self, kind: str) -> Any:
        return self._once(f"{kind} ids", look_up, self._ids_of(kind))


def dimensions(given: Any) -> int:
    """Return the number of dimensions of an array-like, or -1 if its rows differ in length."""
    try:
        return np.ndim(given)
    except ValueError:
        return -1


def _as_lists(rows: Any) -> Lists:
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int32)


def no_lists(asked: Integers) -> Lists:
    """Return empty lists."""
    return np.zeros(asked.size + 1, np.int64), np.empty(0, np.int32)


def named(rows: Integers, table: Array) -> Array:
    """Return the ids of rows; for negative rows -1, in the dtype of the ids, or None."""
    nothing = None if is_text(table) else np.array(-1).astype(table.dtype)
    named = table[rows]
    named[rows < 0] = nothing
    return named
