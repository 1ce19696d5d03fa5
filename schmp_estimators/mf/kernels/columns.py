"""Sparse linear models of items: a non-negative elastic net on the other items for each item.

A column w of the model minimises ``½‖x_j − X w‖² + l1 Σ w + l2/2 ‖w‖²`` over w ≥ 0 with ``w_j =
0``; X ≥ 0 holds the clicks, x_j is its column j.  The gradient ``g_i = x_i·(x_j − X w)`` then never
exceeds ``x_i·x_j``, its value at zero. So items with ``x_i·x_j ≤ l1`` have the coefficient 0: only
the others, the candidates of j, are looked at.

With l2 > 0 the residual is a point of the dual problem, and the duality gap is a sum over the
candidates: ``(g − l1 − l2 w)²/(2 l2)`` where ``g > l1``, else ``(l1 + l2 w/2 − g) w``.  With l1 > 0
the residual can be scaled until no gradient exceeds l1.  The smaller gap of both points counts.

There are two ways to a gradient, and a fit uses both.  *Rare* items take it from the residual over
the users. *Frequent* items have a column in a table of inner products; their gradients are kept,
and change with every step.  The residual does not contain what frequent items predict.
"""

from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.jit import index, inlined, kernel
from schmp_estimators.core.typing import Floats, Floats32, Integers, Integers32
from schmp_estimators.mf.kernels.lists import ONE, Lists, add_to, sum_of, value_of


class Clicks(NamedTuple):
    """A matrix of users and items, with inner products of its columns."""

    by_user: Lists
    by_item: Lists
    squares: Floats  #: (n_items,) squared lengths of the columns
    column: Integers32  #: (n_items,) column of a frequent item in `products`, -1 of a rare one
    products: Floats32  #: (n_items, n_frequent)


class Columns(NamedTuple):
    """Columns of the model, one after the other."""

    offsets: Integers  #: (n_columns + 1,) int64
    items: Integers32
    values: Floats32
    gaps: Floats  #: (n_columns,)
    n_passes: Integers32  #: (n_columns,)


class _Work(NamedTuple):
    """Room for the work on a column, for candidates in the order in which they are found."""

    residual: Floats  #: (n_users,) zeros between columns
    common: Floats  #: (n_items,) zeros between columns
    rest: Floats  #: (n_frequent,) gradients of the frequent items
    frequent: Floats  #: (n_frequent,) their coefficients
    used: Any  #: uint32: number of frequent items with coefficients above 0, and their columns
    candidates: Any  #: (n_items + 1,) uint32
    live: Any  #: (n_items,) uint32: places of candidates that may have a coefficient above 0
    starts: Integers  #: (n_items + 1,) where the clicks of a candidate begin
    at_zero: Floats  #: (n_items,) gradients at zero
    weights: Floats  #: (n_items,) coefficients
    gains: Floats  #: (n_items,) by how much a candidate alone would lower the objective, twice


@inlined
def _clear(lists, start, stop, vector):
    """Set the entries of a vector to zero that some entries name."""
    at, end = index(start), index(stop)
    while at < end:
        vector[lists.ids[at]] = 0.0
        at += ONE


@inlined
def _forget(users, own, near, n_near, work):
    """Set the residual of a column to zero."""
    _clear(users, own[0], own[1], work.residual)
    _clear(near, 0, n_near, work.residual)
    work.used[0] = 0


@inlined
def _count(clicks, item, work):
    """Add products of an item with all items to `work.common`; return how many items have any."""
    rows, users = clicks.by_user, clicks.by_item
    n_found = index(0)
    at, last = index(users.offsets[item]), index(users.offsets[item + 1])
    while at < last:
        user = users.ids[at]
        own = value_of(users, at)
        at += ONE
        entry, end = index(rows.offsets[user]), index(rows.offsets[user + 1])
        while entry < end:
            other = rows.ids[entry]
            value = own * value_of(rows, entry)
            work.candidates[n_found] = other
            if work.common[other] == 0.0:
                n_found += ONE
            work.common[other] += value
            entry += ONE
    return np.int64(n_found)


@inlined
def _gradient(clicks, near, place, work):
    """Return the gradient of a candidate."""
    item = work.candidates[place]
    column = clicks.column[item]
    if column >= 0:
        return work.rest[column]
    total = sum_of(near, work.starts[place], work.starts[place + 1], work.residual)
    products = clicks.products[item]
    for number in range(work.used[0]):
        at = work.used[1 + number]
        total -= np.float64(products[at]) * work.frequent[at]
    return total


@inlined
def _drop(column, work):
    """Remove a frequent item from this list, which keeps its order."""
    at = 1
    n_used = work.used[0]
    while work.used[at] != column:
        at += 1
    for later in range(at, n_used):
        work.used[later] = work.used[later + 1]
    work.used[0] = n_used - 1


@inlined
def _move(clicks, near, place, step, work):
    """Change the coefficient of a candidate."""
    item = work.candidates[place]
    before = work.weights[place]
    after = before + step
    work.weights[place] = after
    column, products = clicks.column[item], clicks.products[item]
    for number in range(products.size):
        work.rest[number] -= step * np.float64(products[number])
    if column >= 0:
        work.frequent[column] = after
        if before == 0.0:
            work.used[0] += 1
            work.used[work.used[0]] = column
        elif after == 0.0:
            _drop(column, work)
    else:
        add_to(-step, near, work.starts[place], work.starts[place + 1], work.residual)


@inlined
def _excess(slope, weight, l1, l2):
    """Return the part of a candidate in the duality gap; `l2` is above 0."""
    if slope > l1:
        return (slope - l1 - l2 * weight) ** 2 / (2.0 * l2)
    return (l1 + 0.5 * l2 * weight - slope) * weight


@inlined
def _pass(clicks, near, n_live, l1, l2, work):
    """Improve all live coefficients once; return how many are left, and about the gap before."""
    n_left, gap = 0, 0.0
    for number in range(n_live):
        place = work.live[number]
        slope = _gradient(clicks, near, place, work)
        weight = work.weights[place]
        if weight == 0.0 and slope <= l1:
            continue
        work.live[n_left] = place
        n_left += 1
        square = clicks.squares[work.candidates[place]] + l2
        step = max((slope - l1 - l2 * weight) / square, -weight)
        gap += _excess(slope, weight, l1, l2) if l2 > 0.0 else step * step * square
        if step != 0.0:
            _move(clicks, near, place, step, work)
    return n_left, gap


@inlined
def _check(clicks, near, size, square, l1, l2, work):
    """Compute all gradients, and list live candidates; return the duality gap and their number.

    `square` is twice the objective at zero.
    """
    n_live = 0
    steepest = l1
    gap, fitted, weights, products = 0.0, 0.0, 0.0, 0.0
    for place in range(size):
        slope = _gradient(clicks, near, place, work)
        weight = work.weights[place]
        steepest = max(steepest, slope)
        if slope > l1 or weight > 0.0:
            work.live[n_live] = place
            n_live += 1
            if l2 > 0.0:
                gap += _excess(slope, weight, l1, l2)
            fitted += work.at_zero[place] * weight
            products += slope * weight
            weights += (l1 + 0.5 * l2 * weight) * weight
    if l1 == 0.0:
        return gap, n_live
    # The point that no gradient exceeds: the residual r times a share s.  ‖r‖² = ‖x‖² − w·(g at
    # zero) − w·g.
    loss = square - fitted - products
    share = min(l1 / steepest, (square - fitted) / loss if loss > 0.0 else 1.0)
    scaled = 0.5 * loss + weights - share * (square - fitted) + 0.5 * share * share * loss
    return min(gap, scaled) if l2 > 0.0 else scaled, n_live


@inlined
def _screen(item, n_found, l1, work):
    """Keep those items that may have a coefficient above 0, and return their number."""
    size = 0
    for number in range(n_found):
        other = work.candidates[number]
        if work.common[other] > l1 and other != item:
            work.candidates[size] = other
            work.at_zero[size] = work.common[other]
            size += 1
        work.common[other] = 0.0
    return size


@inlined
def _keep_best(clicks, size, l1, most, work):
    """Keep the candidates that alone would lower the objective most; of equal ones the first."""
    highest = 0.0
    for place in range(size):
        slope = work.at_zero[place] - l1
        work.gains[place] = slope * slope / clicks.squares[work.candidates[place]]
        highest = max(highest, work.gains[place])
    low, middle, high = 0.0, highest, 2.0 * highest  # at least `most` gain `low`, fewer `high`
    n_above = 0
    while low < middle < high:
        n_least = 0
        for place in range(size):
            n_least += work.gains[place] >= middle
        if n_least >= most:
            low = middle
        else:
            high = middle
        middle = 0.5 * (low + high)
    for place in range(size):
        n_above += work.gains[place] > low
    n_kept = 0
    n_equal = most - n_above
    for place in range(size):
        is_equal = work.gains[place] == low
        if work.gains[place] > low or (is_equal and n_equal > 0):
            n_equal -= is_equal
            work.candidates[n_kept] = work.candidates[place]
            work.at_zero[n_kept] = work.at_zero[place]
            n_kept += 1
    return n_kept


@inlined
def _begin(clicks, size, work):
    """Set coefficients to zero, and find where the clicks of each candidate begin, and the end."""
    users = clicks.by_item
    for place in range(size):
        other = work.candidates[place]
        work.weights[place] = 0.0
        work.live[place] = place
        length = users.offsets[other + ONE] - users.offsets[other]
        work.starts[place + 1] = work.starts[place] + (length if clicks.column[other] < 0 else 0)
    return work.starts[size]


@inlined
def _gather(clicks, size, near, work):
    """Copy the clicks of the rare candidates, so that each pass reads them in order."""
    users = clicks.by_item
    for place in range(size):
        to, end = index(work.starts[place]), index(work.starts[place + 1])
        at = index(users.offsets[work.candidates[place]])
        while to < end:
            near.ids[to] = users.ids[at]
            if users.values.size:
                near.values[to] = users.values[at]
            to += ONE
            at += ONE


@inlined
def _go_on(clicks, near, start, number, size, work):
    """Begin with given coefficients, but those of no candidate; return whether there are any."""
    for at in range(start.offsets[number], start.offsets[number + 1]):
        work.common[start.items[at]] = start.values[at]
    for place in range(size):
        weight = work.common[work.candidates[place]]
        if weight > 0.0:
            _move(clicks, near, place, weight, work)
    for at in range(start.offsets[number], start.offsets[number + 1]):
        work.common[start.items[at]] = 0.0
    return start.offsets[number + 1] > start.offsets[number]


@kernel
def _room(size, like):
    """Return lists without offsets, with room for entries, and for values if others have them."""
    return Lists(
        np.empty(0, np.int64), np.empty(size, np.uint32),
        np.empty(size if like.values.size else 0, np.float32),
    )  # fmt: skip


@kernel
def solve_columns(items, clicks, start, l1, l2, most, tol, max_passes):
    """Solve the columns of some items.

    Parameters
    ----------
    items : (n,) int64
    clicks : Clicks
    start : Columns
        Coefficients to begin with for each of `items`; there may be none.
    l1, l2 : float
        Weights of the sum of the coefficients and of half their squares; not both 0.
    most : int
        Number of candidates at most; those that alone would lower the objective most are kept.
    tol : float
        A column is solved when its duality gap is at most `tol` times its objective at zero.
    max_passes : int
        Passes over a column at most.

    Returns
    -------
    Columns
    """
    n_users, n_items = clicks.by_user.offsets.size - 1, clicks.by_item.offsets.size - 1
    n_frequent = clicks.products.shape[1]
    work = _Work(
        np.zeros(n_users), np.zeros(n_items), np.empty(n_frequent), np.empty(n_frequent),
        np.zeros(n_frequent + 1, np.uint32),
        np.empty(n_items + 1, np.uint32), np.empty(n_items, np.uint32),
        np.zeros(n_items + 1, np.int64),
        np.empty(n_items), np.empty(n_items), np.empty(n_items),
    )  # fmt: skip
    near = _room(1 << 12, clicks.by_item)
    offsets = np.zeros(items.size + 1, np.int64)
    found, values = np.empty(1 << 12, np.int32), np.empty(1 << 12, np.float32)
    gaps = np.zeros(items.size)
    n_passes = np.zeros(items.size, np.int32)
    for number in range(items.size):
        item = items[number]
        own = clicks.by_item.offsets[item], clicks.by_item.offsets[item + 1]
        n_found = _count(clicks, item, work)
        size = _screen(item, n_found, l1, work)
        if size > most:
            size = _keep_best(clicks, size, l1, most, work)
        n_near = _begin(clicks, size, work)
        if n_near > near.ids.size:
            near = _room(2 * n_near, clicks.by_item)
        _gather(clicks, size, near, work)
        add_to(1.0, clicks.by_item, own[0], own[1], work.residual)
        for column in range(n_frequent):
            work.rest[column] = clicks.products[item, column]
        square = clicks.squares[item]
        n_live = size
        estimate = 0.0
        goal = tol * 0.5 * square
        known = _go_on(clicks, near, start, number, size, work)
        while True:
            if not known:
                n_live, estimate = _pass(clicks, near, n_live, l1, l2, work)
                n_passes[number] += 1
            known = False
            # about the gap before the pass: it may be a multiple of what is left
            if estimate > 8.0 * goal and n_passes[number] < max_passes:
                continue
            gaps[number], n_live = _check(clicks, near, size, square, l1, l2, work)
            if gaps[number] <= goal or n_passes[number] >= max_passes:
                break
        written = offsets[number]
        if written + size > found.size:
            more_items = np.empty(2 * (written + size), np.int32)
            more_values = np.empty(2 * (written + size), np.float32)
            for at in range(written):
                more_items[at], more_values[at] = found[at], values[at]
            found, values = more_items, more_values
        for place in range(size):
            if work.weights[place] > 0.0:
                found[written], values[written] = work.candidates[place], work.weights[place]
                written += 1
        offsets[number + 1] = written
        _forget(clicks.by_item, own, near, n_near, work)
    return Columns(offsets, found[: offsets[-1]], values[: offsets[-1]], gaps, n_passes)


@kernel
def count_candidates(items, clicks, l1, most, out):
    """Add to `out` (n_items,) for each item of how many others among `items` it is a candidate."""
    n_items = clicks.by_item.offsets.size - 1
    none = np.empty(0)
    room = np.empty(n_items + 1, np.uint32)
    starts = np.empty(0, np.int64)
    work = _Work(
        none, np.zeros(n_items), none, none, room, room, room, starts, np.empty(n_items), none,
        np.empty(n_items),
    )  # fmt: skip
    for item in items:
        size = _screen(item, _count(clicks, item, work), l1, work)
        if size > most:
            size = _keep_best(clicks, size, l1, most, work)
        for place in range(size):
            out[work.candidates[place]] += 1.0


@kernel
def multiply(clicks, items, out):
    """Add the inner products of some items with all items to `out` (n, n_items)."""
    for number in range(items.size):
        users = clicks.by_item
        for at in range(users.offsets[items[number]], users.offsets[items[number] + 1]):
            user = users.ids[at]
            own = value_of(users, at)
            first, last = clicks.by_user.offsets[user], clicks.by_user.offsets[user + ONE]
            add_to(own, clicks.by_user, first, last, out[number])
