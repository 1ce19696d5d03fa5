"""Who has rated what: it is left out of recommendations, and no pair is rated twice."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.mf.kernels.layout import Placement


class Seen(NamedTuple):
    """Which items each user has rated, held-out ones included."""

    indptr: NDArray[np.int64]
    items: NDArray[Any]  #: rows in `SeenItems.item_ids`; uint16 where that is enough, else int32


class SeenItems(NamedTuple):
    """Which items each user has rated in one fit, shard by shard."""

    parts: tuple[Seen, ...]
    users: Placement
    #: (n_items,) numbers of the items in the whole data.
    item_ids: NDArray[np.int64]

    def of(self, user: int) -> NDArray[np.int64]:
        """Return the items that `user` has rated; none, if the user is not known."""
        if user >= self.users.group.size:
            return np.empty(0, np.int64)
        indptr, items = self.parts[self.users.group[user]]
        row = self.users.row[user]
        return self.item_ids[items[indptr[row] : indptr[row + 1]]]


class DuplicateRatingError(ValueError):
    """A user rated an item twice.

    Parameters
    ----------
    user, item
        Which.
    """

    def __init__(self, user: Any, item: Any) -> None:
        super().__init__(user, item)  # what it takes to make it anew where it has travelled to
        self.user, self.item = user, item

    def __str__(self) -> str:
        """Name both, and the remedy."""
        return (
            f"user {self.user} rated item {self.item} more than once; keep one rating of each pair, for example the "
            "mean (pandas: frame.groupby(['user', 'item']).mean())"
        )
