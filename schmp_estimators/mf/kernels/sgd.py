"""Stochastic gradient descent over one block of ratings.

Every user and item has an adaptive step.

The objective is
``Σ (a − b_u − b_i − w_u·h_i)² + Σ_u λ_u (‖w_u‖² + b_u²) + Σ_i λ_i (‖h_i‖² + b_i²)``.  A rating of a
row with n ratings carries λ n^(ν−1), its share of the penalty λ n^ν of the row (Kim et al., EuroSys
2016, §4.3, with ν = 0).

The step is that of Chin et al., "A Learning-rate Schedule for Stochastic Gradient Methods to Matrix
Factorization" (PAKDD 2015), §3: rate / √(sum of mean squared gradients of the row).  The squared
gradient of a row follows from ‖w‖², ‖h‖² and w·h, and the norms after a step follow from those
before it, so no further pass over the rows is needed.

Losses that rank compare each observed pair with an item that is drawn.  A user took item i, and
item j is drawn from the items that the user has not taken.  With the scores s = c_i + w·h_i and t =
c_j + w·h_j, a loss returns its value and its pull on each score, which is a negative derivative.
The steps are those for ratings, with the pulls as errors: first that of i, then that of j, whose
product uses the user's row after the first step.  Both pulls are computed before the steps.  Draws
are addressed: they depend only on a key, the user's number in the whole data, the item and the
attempt.

The bits are those of one rating after the other.  But consecutive ratings without a common row are
processed together: the steps of two in one register, and the product of a rating while the rows of
an earlier one change.  A processor does not find this by itself, because hundreds of instructions
in between wait for an error.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.addresses import array_at
from schmp_estimators.core.jit import by_types, index, inlined, kernel, part
from schmp_estimators.core.lanes import ONE, ZERO, row_dot
from schmp_estimators.core.rng import GAMMA, below, mix
from schmp_estimators.core.typing import Function
from schmp_estimators.core.values import freeze, part_of_each
from schmp_estimators.mf.kernels.steps import BIAS, NORM, NUMBERS, move_rows, take_steps

#: If rows are longer, the eight rows of two pairs of ratings do not stay in the first cache.
_LONG_ROW = 512
#: Number of random bits that are left out, and the factor of the others.
_DRAWN_BITS, _UNIT = np.uint64(40), np.float32(2.0**-23)
#: The column as an unsigned index.
_BIAS = np.uint64(BIAS)


class RatingBlock(NamedTuple):
    """The ratings of one user shard on one item block, in the order in which they are visited."""

    users: np.ndarray  #: (n,) int32, row of the user in the shard's factors
    items: np.ndarray  #: (n,) int32, row of the item in the block's factors
    values: np.ndarray  #: (n,) float32


class FactorBlock(NamedTuple):
    """Rows of one factor, with all that stochastic gradient descent stores about them."""

    factors: np.ndarray  #: (n, width) float32; `width` is padded, see `lanes.padded_width`
    numbers: np.ndarray  #: (n, NUMBERS) float32, in the columns that `steps` names
    counts: np.ndarray  #: (n,) int32, ratings of the row

    @property
    def biases(self) -> np.ndarray:
        """(n,) float32, a view."""
        return self.numbers[:, BIAS]


class StepSizes(NamedTuple):
    """Numbers that every rating of a fit shares, float32, in the order of `take_steps`."""

    rate: np.float32  #: numerator of the factors' step
    bias_rate: np.float32  #: numerator of the biases' step; 0 keeps the biases as they are
    inverse_rank: np.float32  #: 1 / (number of components)


@kernel
def draw_factors(ids, first, n_components, key, centre, spread, out):
    """Fill ``out[r, k]`` with ``centre + spread * u``, u uniform on [−1, 1).

    u is a hash of (key, ids[r], first + k) only.

    Parameters
    ----------
    ids : (n,) int64
        Numbers of the users or items in the whole data.
    first, n_components : int
        The first component, and the number of columns to fill.
    key : uint64
        From `rng.stream_key`.
    centre, spread : float32
    out : (n, width) float32
        Mutated.
    """
    for row in range(ids.size):
        row_key = mix(key + GAMMA * np.uint64(ids[row] + 1))
        for k in range(n_components):
            bits = mix(row_key + GAMMA * np.uint64(first + k + 1)) >> _DRAWN_BITS
            out[row, k] = centre + spread * (np.float32(bits) * _UNIT - ONE)


@part
def clip_row(side, row):
    """Set negative factors of `row` to zero, and its squared length.

    Mutates `side`, a `FactorBlock`.
    """
    factors = side.factors[row]
    for k in range(factors.size):
        factors[k] = max(ZERO, factors[k])
    side.numbers[row, NORM] = row_dot(side.factors, row, side.factors, row)


@inlined
def _error(ratings, position, users, user, items, item, product):
    biases = users.numbers[user, _BIAS], items.numbers[item, _BIAS]
    return ratings.values[position] - biases[0] - biases[1] - product


@inlined
def _step(users, user, items, item, sizes, positive, error, product, following):
    """Take the step of one rating; return the product of two other rows, as `move_rows` does."""
    rows = (user,), (item,)
    (factors,) = take_steps(
        users.numbers, rows[0], items.numbers, rows[1], *sizes, (error,), (product,)
    )
    product = move_rows(users.factors, user, items.factors, item, factors, *following)
    if positive:
        clip_row(users, user)
        clip_row(items, item)
    return product


@inlined
def _differ(first, second, third, fourth):
    """Return whether the last two differ from each other and from the first two."""
    return not (
        (first == third)
        | (first == fourth)
        | (second == third)
        | (second == fourth)
        | (third == fourth)
    )


@part
def _one_by_one(ratings, start, stop, users, items, sizes, positive):
    """Visit the ratings from `start` to `stop`, at least one.

    Return the sum of the squared errors.
    """
    total = 0.0
    last = index(stop - 1)
    # An unsigned index needs no check whether it counts from the end.
    rows = index(ratings.users[start]), index(ratings.items[start])
    product = row_dot(users.factors, rows[0], items.factors, rows[1])
    for number in range(start, stop):
        position = index(number)
        after = min(position + index(1), last)
        following = index(ratings.users[after]), index(ratings.items[after])
        error = _error(ratings, position, users, rows[0], items, rows[1], product)
        total += error * error
        product = _step(users, rows[0], items, rows[1], sizes, positive, error, product, following)
        if following[0] == rows[0] or following[1] == rows[1]:
            product = row_dot(users.factors, following[0], items.factors, following[1])
        rows = following
    return total


@part
def _two_by_two(ratings, users, items, sizes, positive):
    """Visit all ratings, two at a time if they share no row.

    Return the sum of the squared errors.
    """
    total = 0.0
    number = 0
    size = ratings.values.size
    w, h = users.factors, items.factors
    while number < size:
        first = index(number)
        second = index(min(number + 1, size - 1))
        pair_users = index(ratings.users[first]), index(ratings.users[second])
        pair_items = index(ratings.items[first]), index(ratings.items[second])
        if pair_users[0] == pair_users[1] or pair_items[0] == pair_items[1]:
            total += _one_by_one(ratings, number, number + 1, users, items, sizes, positive)
            number += 1
            continue
        products = (
            row_dot(w, pair_users[0], h, pair_items[0]),
            row_dot(w, pair_users[1], h, pair_items[1]),
        )
        apart = True
        while apart:  # these two ratings share no row with the two before
            one, two = index(number), index(number + 1)
            errors = (
                _error(ratings, one, users, pair_users[0], items, pair_items[0], products[0]),
                _error(ratings, two, users, pair_users[1], items, pair_items[1], products[1]),
            )
            total += errors[0] * errors[0]
            total += errors[1] * errors[1]
            moved = take_steps(
                users.numbers, pair_users, items.numbers, pair_items, *sizes, errors, products
            )
            number += 2
            first = index(min(number, size - 1))
            second = index(min(number + 1, size - 1))
            next_users = index(ratings.users[first]), index(ratings.users[second])
            next_items = index(ratings.items[first]), index(ratings.items[second])
            apart = _differ(*pair_users, *next_users) and _differ(*pair_items, *next_items)
            products = (
                move_rows(
                    w, pair_users[0], h, pair_items[0], moved[0], next_users[0], next_items[0]
                ),
                move_rows(
                    w, pair_users[1], h, pair_items[1], moved[1], next_users[1], next_items[1]
                ),
            )
            if positive:
                for side in range(2):
                    clip_row(users, pair_users[side])
                    clip_row(items, pair_items[side])
            pair_users, pair_items = next_users, next_items
    return total


@part
def _visit(ratings, users, items, steps, positive):
    """Visit all ratings of a block, as `sgd_block`."""
    size = ratings.values.size
    if not size:
        return 0.0
    sizes = steps.rate, steps.bias_rate, steps.inverse_rank
    if users.factors.shape[1] > _LONG_ROW:
        return _one_by_one(ratings, 0, size, users, items, sizes, positive)
    return _two_by_two(ratings, users, items, sizes, positive)


@kernel
def sgd_block(ratings, users, items, steps, positive):
    """Visit each rating once in the order of storage.

    Each step moves the row of one user and of one item.

    Parameters
    ----------
    ratings : RatingBlock
    users, items : FactorBlock
        Mutated.
    steps : StepSizes
    positive : bool
        Whether to clip the factors at zero after every step.

    Returns
    -------
    float
        Sum of the squared errors, each taken just before its step.

    Notes
    -----
    Kim et al., "STRADS" (EuroSys 2016), §4.3.  4·K flops on 2·K numbers per rating.
    """
    return _visit(ratings, users, items, steps, positive)


@inlined
def _block_at(place, width, like):
    """Return the `FactorBlock`, without counts, whose addresses and number of rows are given."""
    factors = array_at(place[0], (place[2], width), like)
    numbers = array_at(place[1], (place[2], NUMBERS), like)
    return FactorBlock(factors, numbers, array_at(place[0], 0, like))


@kernel
def sgd_blocks(visits, ratings, offsets, users, items, width, types, steps, positive):
    """Do the same as `sgd_block` for many blocks, one after the other; return the sum of each.

    Parameters
    ----------
    visits : (n_visits, 3) int64
        Place of a shard below, number of a block, and its place among `items`.
    ratings : (n_shards, 3) int64
        Addresses of the arrays in the `RatingBlock` of all ratings of a shard.
    offsets : (n_shards, n_blocks + 1) int64
        Where those of each block begin.
    users, items : (n, 3) int64
        Address of the factors of each `FactorBlock`, that of its numbers, and how many rows it has;
        mutated there.
    width : int
        Columns of factors.
    types : RatingBlock
        It has the dtypes of the ratings.
    steps, positive
        As in `sgd_block`.
    """
    like = types.values
    totals = np.empty(len(visits))
    for number in range(len(visits)):
        shard, block, place = visits[number, 0], visits[number, 1], visits[number, 2]
        first = offsets[shard, block]
        size = offsets[shard, block + 1] - first
        found = ratings[shard]
        some = RatingBlock(
            array_at(found[0] + types.users.itemsize * first, size, types.users),
            array_at(found[1] + types.items.itemsize * first, size, types.items),
            array_at(found[2] + like.itemsize * first, size, like),
        )
        mine = _block_at(users[shard], width, like)
        theirs = _block_at(items[place], width, like)
        totals[number] = _visit(some, mine, theirs, steps, positive)
    return totals


@kernel
def squared_error(ratings, users, items):
    """Return the sum of squared errors over `ratings`, with the rows of two `FactorBlock`.

    It is added up in float64.
    """
    total = 0.0
    for position in range(ratings.values.size):
        user = ratings.users[position]
        item = ratings.items[position]
        product = row_dot(users.factors, user, items.factors, item)
        error = np.float64(
            ratings.values[position]
            - users.numbers[user, BIAS]
            - items.numbers[item, BIAS]
            - product
        )
        total += error * error
    return total


#: Number of draws for a pair; the first item that the user has not taken is used, and without one
#: the pair is skipped.
ATTEMPTS = 8
_NEXT = np.uint64(1)


def pull(loss: Any, taken: float, drawn: float) -> tuple[float, float, float]:
    """Return ``loss.pull(taken, drawn)``; in kernels a named tuple has no methods."""
    found: tuple[float, float, float] = loss.pull(taken, drawn)
    return found


@by_types(pull, copied=True, strict=False)
def _pull(loss: Any, taken: Any, drawn: Any) -> Function | None:
    return getattr(getattr(loss, "instance_class", None), "pull", None)


@inlined
def log_odds(x):
    """Return ln(1 + eˣ) and its derivative σ(x) = 1/(1 + e^−x)."""
    small = math.exp(-abs(x))
    return math.log1p(small) + max(x, 0.0), (1.0 if x > 0.0 else small) / (1.0 + small)


@inlined
def _has_taken(items, start, stop, item):
    """Return whether `item` is among ``items[start:stop]``, which are in ascending order."""
    end = stop
    while start < stop:
        middle = (start + stop) >> 1
        if items[middle] < item:
            start = middle + 1
        else:
            stop = middle
    return start < end and items[start] == item


def candidates_of(counts: np.ndarray) -> np.ndarray:
    """Return (n,) int64 the rows that may be drawn.

    Each is there as often as the root of its number of pairs, rounded up.

    If all were drawn equally often, most draws would be items that few users take, which teach
    little about the first places of a ranking.
    """
    return freeze(part_of_each(np.ceil(np.sqrt(counts)).astype(np.int64)))


@part
def draw_item(candidates, items, start, stop, key, user_number, item):
    """Return one of `candidates` that is not among ``items[start:stop]``.

    It is -1 if no attempt finds one.
    """
    address = mix(
        mix(key + GAMMA * (np.uint64(user_number) + _NEXT)) + GAMMA * (np.uint64(item) + _NEXT)
    )
    for attempt in range(ATTEMPTS):
        drawn = candidates[
            np.int64(below(mix(address + GAMMA * np.uint64(attempt + 1)), candidates.size))
        ]
        if not _has_taken(items, start, stop, drawn):
            return np.int64(drawn)
    return np.int64(-1)


@kernel
def rank_block(loss, pairs, taken, candidates, user_ids, key, users, items, steps, positive):
    """Visit each pair once in the order of storage.

    The rows of its user, its item and an item that is drawn are moved.

    Parameters
    ----------
    loss : NamedTuple
        A loss with a method `pull`.
    pairs : RatingBlock
        The pairs; their values are not used.
    taken : tuple of (n_users + 1,) int64 and (n,) int32
        Offsets, and the items of each user in this block, ascending.
    candidates : (n_candidates,) int64
        Items that may be drawn, from `candidates_of`.
    user_ids : (n_users,) int64
        Numbers of the users in the whole data.
    key : uint64
        From `rng.stream_key`.
    users, items : FactorBlock
        Mutated.  Users have no biases.
    steps : StepSizes
    positive : bool
        Whether to clip the factors at zero after every step.

    Returns
    -------
    float
        Sum of the losses, each computed just before its steps; a skipped pair adds nothing.
    """
    total = 0.0
    offsets, own = taken
    sizes = (steps.rate, steps.bias_rate, steps.inverse_rank)
    for position in range(pairs.users.size):
        user = index(pairs.users[position])
        item = index(pairs.items[position])
        start, stop = offsets[user], offsets[user + _NEXT]
        other = draw_item(candidates, own, start, stop, key, user_ids[user], item)
        if other < 0:
            continue
        drawn = index(other)
        first = row_dot(users.factors, user, items.factors, item)
        second = row_dot(users.factors, user, items.factors, drawn)
        scores = items.numbers[item, _BIAS] + first, items.numbers[drawn, _BIAS] + second
        value, up, down = pull(loss, np.float64(scores[0]), np.float64(scores[1]))
        total += value
        _step(users, user, items, item, sizes, positive, np.float32(up), first, (user, drawn))
        second = row_dot(users.factors, user, items.factors, drawn)
        _step(users, user, items, drawn, sizes, positive, np.float32(down), second, (user, item))
    for row in range(users.numbers.shape[0]):
        users.numbers[row, BIAS] = np.float32(0)
    return total


@kernel
def fold_in_drawn(loss, pairs, candidates, features, biases, numbers, n_epochs, key, positive, out):
    """Take the steps of the users alone, while the items stay as they are.

    Parameters
    ----------
    loss, candidates, key, positive
        As in `rank_block`.
    pairs : UserRatings
        The pairs; their values are not used.
    features : (n_items, K) float64
    biases : (n_items,) float64
    numbers : tuple of two float
        Rate of the steps, and the penalty of each step.
    n_epochs : int
    out : (n_users, K) float64
        Zeros; mutated.  A row depends only on the pairs of its user.
    """
    (rate, penalty), size = numbers, features.shape[1]
    gradient = np.empty(size)
    for user in range(out.shape[0]):
        row = out[user]
        start = pairs.indptr[user]
        stop = pairs.indptr[user + 1]
        square = 1.0
        for epoch in range(n_epochs):
            own_key = mix(key + GAMMA * np.uint64(epoch + 1))
            for position in range(start, stop):
                item = pairs.items[position]
                drawn = draw_item(candidates, pairs.items, start, stop, own_key, 0, item)
                if drawn < 0:
                    continue
                taken = biases[item]
                other = biases[drawn]
                squares = 0.0
                for k in range(size):
                    taken += row[k] * features[item, k]
                    other += row[k] * features[drawn, k]
                _, up, down = pull(loss, taken, other)
                for k in range(size):
                    gradient[k] = (
                        up * features[item, k] + down * features[drawn, k] - 2 * penalty * row[k]
                    )
                    squares += gradient[k] * gradient[k]
                step = rate / np.sqrt(square)
                for k in range(size):
                    row[k] += step * gradient[k]
                    if positive:
                        row[k] = max(row[k], 0.0)
                square += squares / size
