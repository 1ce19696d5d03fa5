"""Parts of pairs to fit on and to judge by, for scikit-learn's cross-validation."""

from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length

from schmp_estimators.core.inputs.validation import is_missing, read_chunk
from schmp_estimators.core.typing import Array, Integers, Masks, Positions
from schmp_estimators.mf.data.ids import at_least_one
from schmp_estimators.mf.data.inputs import (
    check_duplicates_kept,
    ratings_of_rows,
    read_column,
    read_pairs,
)
from schmp_estimators.mf.kernels.layout import pairs_of


def as_pairs(X: Any) -> tuple[Integers, Array]:
    """Convert a matrix of ratings to pairs of user and item, so that splitters accept it.

    Parameters
    ----------
    X : matrix of shape (n_users, n_items)
        A matrix as in `ModelParallelMF.fit`, in memory.  Ratings are the stored entries of a sparse
        matrix, or the entries of a dense matrix that are not missing.

    Returns
    -------
    pairs : ndarray of shape (n_ratings, 2), int64
        Row number and column number of each rating.
    ratings : ndarray of shape (n_ratings,)
        The ratings, in the same order.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from schmp_estimators.ranking import as_pairs
    >>> pairs, ratings = as_pairs(csr_array([[0, 4], [5, 3]]))
    >>> pairs.tolist(), ratings.tolist()
    ([[0, 1], [1, 0], [1, 1]], [4, 5, 3])
    """
    rows = read_chunk(X, missing=True)
    check_duplicates_kept(X, rows)
    users, items, values = pairs_of(ratings_of_rows(rows))
    return np.column_stack([users, items]).astype(np.int64), values.astype(rows.dtype)


class _Splitter(BaseCrossValidator):
    n_splits: int

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of splits."""
        return self.n_splits

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[Positions, Positions]]:
        """Yield the numbers of the rows to fit, and of the held-out rows, for each split.

        Parameters
        ----------
        X : pairs of shape (n_ratings, 2)
            Ids of a user and an item in each row.
        y : object
            Not used.
        groups : array-like of shape (n_ratings,), default=None
            Times of the pairs, numbers or dates of one kind; `UserShareSplit` ignores them.

        Raises
        ------
        ValueError
            If X does not hold pairs.  With `LeaveLastOut` or `TimeSplit`, if times are missing, are
            strings or cannot be compared.  If a split has no rows to fit, or none to hold out.
        """
        for fitted, judged in self._masks(X, groups):
            if not (fitted.any() and judged.any()):
                raise ValueError(
                    f"{self}: of {fitted.size} pairs {fitted.sum()} are left to fit on, and "
                    f"{judged.sum()} to judge by"
                )
            yield np.flatnonzero(fitted), np.flatnonzero(judged)

    #: Yields which rows each split fits, and which it holds out.
    _masks: Callable[[Any, Any], Iterator[tuple[Masks, Masks]]]


class LeaveLastOut(_Splitter):
    """Splitter that holds out the last pairs of each user.

    Pass the times of the pairs as `groups` to `split`.  Without times, the rows must be in the
    order of time.

    Parameters
    ----------
    n_last : int, default=1
        Number of pairs of each user to hold out.  If a user has no other pairs, all pairs of the
        user are fitted.
    n_splits : int, default=1
        Number of splits.  The first split holds out the last pairs of each user.  Each further
        split holds out the pairs before those of the previous split, and leaves out all later
        pairs.

    Examples
    --------
    >>> from schmp_estimators.ranking import LeaveLastOut
    >>> pairs = [["ada", "Emma"], ["bob", "Dune"], ["ada", "Dune"], ["bob", "Emma"]]
    >>> splits = LeaveLastOut().split(pairs, groups=[3, 1, 2, 4])
    >>> [(fit.tolist(), last.tolist()) for fit, last in splits]
    [([1, 2], [0, 3])]
    """

    def __init__(self, n_last: int = 1, n_splits: int = 1) -> None:
        self.n_last = at_least_one(n_last, "n_last")
        self.n_splits = at_least_one(n_splits, "n_splits")

    def _masks(self, X: Any, groups: Any) -> Iterator[tuple[Masks, Masks]]:
        """Yield which rows each split fits, and which it holds out."""
        users = _users_of(X)
        times = _times_of(X, groups)
        place, sizes = _places(users, times)
        from_end = sizes[users] - 1 - place
        for first in range(0, self.n_splits * self.n_last, self.n_last):
            later = from_end < first
            last = from_end < first + self.n_last
            has_more = sizes[users] > first + self.n_last
            yield ~later & ~(last & has_more), ~later & last & has_more


class TimeSplit(_Splitter):
    """Splitter that holds out the latest pairs of all users.

    Pairs of the same time stay together.

    Pass the times of the pairs as `groups` to `split`.  Without times, the rows must be in the
    order of time.

    Parameters
    ----------
    n_splits : int, default=1
        Number of splits.  The first split holds out the latest pairs.  Each further split holds out
        the pairs before those of the previous split, and leaves out all later pairs.
    test_size : float, default=0.2
        Share of the pairs that a split holds out.

    Examples
    --------
    >>> from schmp_estimators.ranking import TimeSplit
    >>> pairs = [["ada", "Emma"], ["bob", "Dune"], ["ada", "Dune"], ["bob", "Emma"]]
    >>> splits = TimeSplit(test_size=0.25).split(pairs, groups=[3, 1, 2, 4])
    >>> [(fit.tolist(), last.tolist()) for fit, last in splits]
    [([0, 1, 2], [3])]
    """

    def __init__(self, n_splits: int = 1, test_size: float = 0.2) -> None:
        self.n_splits, self.test_size = at_least_one(n_splits, "n_splits"), _share(test_size)

    def _masks(self, X: Any, groups: Any) -> Iterator[tuple[Masks, Masks]]:
        """Yield which rows each split fits, and which it holds out."""
        times = _times_of(X, groups)
        size = times.size
        earlier = np.searchsorted(np.sort(times), times)
        ascending = np.sort(earlier)
        for number in range(self.n_splits):
            starts = [round(size * (1 - self.test_size * n)) for n in (number + 1, number)]
            if starts[0] <= 0:
                raise ValueError(
                    f"n_splits={self.n_splits} of test_size={self.test_size} leave nothing to fit "
                    f"on, of {size} pairs"
                )
            # entries are counted as earlier, also behind the last one
            before, to_last = (earlier < np.append(ascending, size)[start] for start in starts)
            yield before, ~before & to_last


class UserShareSplit(_Splitter):
    """Splitter that holds out a random share of each user's pairs.

    At least one pair of each user is fitted.

    Parameters
    ----------
    n_splits : int, default=5
        Number of splits.  Each split is a new random draw.
    test_size : float, default=0.2
        Share of each user's pairs that a split holds out.  For each user, the number of pairs is
        randomly rounded up or down.
    random_state : int, RandomState instance or None, default=None
        Seed of the random draws.  An int gives the same splits every time.

    Examples
    --------
    >>> from schmp_estimators.ranking import UserShareSplit
    >>> pairs = [[user, item] for user in range(3) for item in range(10)]
    >>> [judged.size for _, judged in UserShareSplit(2, test_size=0.3, random_state=0).split(pairs)]
    [9, 9]
    """

    def __init__(self, n_splits: int = 5, test_size: float = 0.2, random_state: Any = None) -> None:
        self.n_splits, self.test_size = at_least_one(n_splits, "n_splits"), _share(test_size)
        self.random_state = random_state

    def _masks(self, X: Any, groups: Any) -> Iterator[tuple[Masks, Masks]]:
        """Return an iterator over rows to fit and rows that are held out.

        It is as in `LeaveLastOut.split`, but without times.
        """
        users = _users_of(X)
        random = check_random_state(self.random_state)
        for _ in range(self.n_splits):
            place, sizes = _places(users, random.uniform(size=users.size))
            n_judged = np.floor(self.test_size * sizes + random.uniform(size=sizes.size))
            judged = place < np.minimum(n_judged, sizes - 1)[users]
            yield ~judged, judged


def _share(share: Any) -> float:
    if not (isinstance(share, Real) and 0 < float(share) < 1):
        raise ValueError(f"test_size={share!r}; it is a share of the entries, between 0 and 1")
    return float(share)


def _users_of(X: Any) -> Positions:
    """Return numbers for the users of pairs."""
    return np.unique(read_pairs(X, "X")[0], return_inverse=True)[1]


def _times_of(X: Any, times: Any) -> Array:
    """Return times, or numbers in the same order."""
    if times is None:
        return np.arange(len(read_pairs(X, "X")[0]))
    check_consistent_length(X, times)
    found = read_column(times, "groups", "time")
    objects = found.dtype.kind == "O"
    # NaN and NaT differ from themselves
    lacks = list(map(is_missing, found)) if objects else np.not_equal(found, found)
    if (missing := np.flatnonzero(lacks)).size:
        raise ValueError(
            f"groups, the times of the pairs, holds {found[missing[0]]} in row {missing[0]}; drop "
            "these rows"
        )
    kinds = {type(one).__name__ for one in found} if objects else {found.dtype.name}
    cause = None
    if found.dtype.kind in "OiufmM" and not {"str", "bytes"} & kinds:
        try:
            return np.unique(found, return_inverse=True)[1] if objects else found
        except TypeError as error:  # they cannot be compared
            cause = error
    raise ValueError(
        f"groups, the times of the pairs, holds {', '.join(sorted(kinds))}, which cannot be put in "
        "the order of time; pass numbers, or dates of one kind, all with or all without a time "
        "zone, for example pandas.to_datetime(groups, utc=True)"
    ) from cause


def _places(users: Positions, order: Array) -> tuple[Positions, Positions]:
    """Return each entry's place among those of its user, and the users' sizes.

    The entries are sorted by `order` (stable).
    """
    by_user = np.lexsort((order, users))
    sizes = np.bincount(users)
    place = np.empty(users.size, np.intp)
    place[by_user] = np.arange(users.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return place, sizes
