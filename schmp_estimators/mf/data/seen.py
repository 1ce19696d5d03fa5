"""The items that each user has rated.

They are left out of recommendations, and no pair may be rated twice.
"""

from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.typing import Array, Integers, Masks
from schmp_estimators.mf.kernels.layout import (
    NOWHERE,
    Placement,
    UserRows,
    pairs_of,
    rated,
    rows_of,
    select,
)
from schmp_estimators.mf.kernels.sgd import RatingBlock


class Seen(NamedTuple):
    """The items that each user has rated, including held-out ones."""

    indptr: Integers
    items: Array  #: rows in `SeenItems.item_ids`; uint16 if that is enough, else int32


class SeenItems(NamedTuple):
    """The items that each user has rated in one fit, shard by shard."""

    parts: tuple[Seen, ...]
    users: Placement
    #: (n_items,) numbers of the items in the whole data.
    item_ids: Integers

    def of(self, user: int) -> Integers:
        """Return the items that `user` has rated; none for an unknown user."""
        if user >= self.users.group.size or self.users.group[user] == NOWHERE:
            return np.empty(0, np.int64)
        indptr, items = self.parts[self.users.group[user]]
        row = self.users.row[user]
        return self.item_ids[items[indptr[row] : indptr[row + 1]]]

    def pairs(self, among: Masks) -> Integers:
        """Return the pairs of users that are true in `among`, each as one number.

        A number has 32 bits of user, then those of the item.
        """
        found = [np.empty(0, np.int64)]
        for (indptr, items), members in zip(self.parts, self.users.members, strict=True):
            users = np.repeat(members, np.diff(indptr))
            kept = among[users]
            found.append(users[kept] << 32 | self.item_ids[items[kept]])
        return np.concatenate(found)


class RepeatedCallError(Exception):
    """Raised if all ratings are those of an earlier call."""


class DuplicateRatingError(ValueError):
    """A user rated an item twice.

    Parameters
    ----------
    user, item
        The pair.
    earlier : bool, default=False
        Whether the pair was rated in an earlier call.
    """

    def __init__(self, user: Any, item: Any, earlier: bool = False) -> None:
        super().__init__(
            user, item, earlier
        )  # the arguments with which it is unpickled in another process
        self.user = user
        self.item = item
        self.earlier = earlier

    def __str__(self) -> str:
        """Return a message with the pair and the remedy."""
        if self.earlier:
            return (
                f"user {self.user} rated item {self.item} in an earlier call; leave the pairs of "
                "earlier calls out of partial_fit, or begin anew with fit and one rating of each "
                "pair"
            )
        return (
            f"user {self.user} rated item {self.item} more than once; keep one rating of each "
            "pair, for example the mean (pandas: frame.groupby(['user', 'item']).mean()); for "
            "clicks, keep their number (….size()) and set confidence=numpy.log1p"
        )


def pairs_of_all(seen: tuple[SeenItems, ...]) -> Integers:
    """Return all pairs of some fits, as `SeenItems.pairs` does, in ascending order."""
    return np.sort(np.concatenate([one.pairs(one.users.group != NOWHERE) for one in seen]))


def rows_of_pairs(pairs: Integers, n_users: int) -> UserRows:
    """Return the pairs as ratings of 1."""
    users, items = (side.astype(np.int32) for side in np.divmod(pairs, 2**32))
    return rated(rows_of(RatingBlock(users, items, np.ones(pairs.size, np.float32)), n_users))


def without_pairs(ratings: UserRows, pairs: Integers) -> UserRows:
    """Return those ratings whose pairs are not among `pairs`."""
    users, items, _ = pairs_of(ratings)
    return select(ratings, ~np.isin(users.astype(np.int64) << 32 | items, pairs))


def check_not_seen(now: SeenItems, earlier: tuple[SeenItems, ...]) -> None:
    """Raise DuplicateRatingError for the first pair of `now` that is in any of `earlier`."""
    rating = now.users.group != NOWHERE
    pairs = now.pairs(rating)
    again = [np.intersect1d(pairs, seen.pairs(rating), assume_unique=True) for seen in earlier]
    if any(found.size for found in again):
        first = min(int(found[0]) for found in again if found.size)
        raise DuplicateRatingError(*divmod(first, 2**32), earlier=True)
