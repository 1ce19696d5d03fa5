"""A draw from the products of two float32 rows, in vectors, with sums whose order is written down.

The products of topics j, j + 16, j + 32, … are added up in lane j of a vector, one after the other; the sums of the
lanes are then added up in steps that double (Hillis and Steele, "Data parallel algorithms", CACM 1986).  A point in the
total falls into a lane, and in the lane into a topic: the lane is found by counting sums that are no greater, the topic
by halving, without a branch that the processor would have to guess.  The additions, and so the bits, are the same on
every processor.

A draw takes three functions, so that several draws can be made side by side: see `frozen`.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from schmp_estimators.core.jit import index, inlined
from schmp_estimators.core.rng import SCALE_ACCEPT, SHIFT_ACCEPT
from schmp_estimators.core.typing import Unary

#: Topics of a vector; rows are padded with zeros to a multiple of it.
LANES = 16

_INDEX, _WORD = ir.IntType(64), ir.IntType(32)
_FLOAT = ir.FloatType()
_VECTOR, _WORDS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_WORD, LANES)


def padded(n_topics: int) -> int:
    """Return the length of a row of `n_topics` weights: a multiple of `LANES`."""
    return -(-n_topics // LANES) * LANES


def address(context: Any, builder: Any, kind: Any, array: Any, start: Any) -> Any:
    """Emit the address of an element of a contiguous array."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [start])


def vector_at(builder: Any, data: Any, offset: Any, kind: Any = _VECTOR) -> Any:
    """Emit the address of a vector that begins at an element."""
    return builder.bitcast(builder.gep(data, [offset]), kind.as_pointer())


def shifted(builder: Any, vector: Any, distance: int) -> Any:
    """Emit a float32 vector whose lanes have moved up, with zeros below."""
    n = vector.type.count
    order = [lane - distance if lane >= distance else n + lane for lane in range(n)]
    return builder.shuffle_vector(
        vector, vector.type([0.0] * n), ir.Constant(ir.VectorType(_WORD, n), order)
    )


def in_all_lanes(builder: Any, value: Any, n: int = LANES) -> Any:
    """Emit a vector of n times the same number."""
    none = ir.Constant(ir.VectorType(value.type, n), ir.Undefined)
    one = builder.insert_element(none, value, _WORD(0))
    return builder.shuffle_vector(one, none, ir.Constant(ir.VectorType(_WORD, n), [0] * n))


def add_up(builder: Any, out: Any, width: Any, n: int, weigh: Unary) -> Any:
    """Emit the sum, in n lanes, of the vectors that ``weigh(start)`` emits for start = 0, n, 2 n, … below `width`.

    From `out` on the sums of the lanes are stored after every vector, and then the sums of all lanes up to each one.
    The sum of all lanes is returned.
    """
    kind = ir.VectorType(_FLOAT, n)
    lanes = cgutils.alloca_once_value(builder, ir.Constant(kind, [0.0] * n))
    distance = 1
    with cgutils.for_range_slice(builder, _INDEX(0), width, _INDEX(n)) as (start, _):
        so_far = builder.fadd(builder.load(lanes), weigh(start))
        builder.store(so_far, lanes)
        builder.store(so_far, vector_at(builder, out, start, kind), align=4)
    up_to = builder.load(lanes)
    while distance < n:
        up_to = builder.fadd(up_to, shifted(builder, up_to, distance))
        distance = 2 * distance
    builder.store(up_to, vector_at(builder, out, width, kind), align=4)
    return builder.extract_element(up_to, _WORD(n - 1))


@intrinsic
def add_products(
    typingctx, left, left_start, right, right_start, width, own, own_weight, sums, sums_start
):
    """Add up the products of two rows in `LANES` lanes, and return the sum of all.

    Parameters
    ----------
    left, right : contiguous float32 arrays of one dimension
        The rows, without negative numbers, are those from `left_start` and `right_start`.
    width : int
        Length of the rows, a multiple of `LANES`.
    own, own_weight : int and float32
        A topic, and its weight instead of the product.
    sums : (at least sums_start + width + LANES,) float32
        Mutated from `sums_start` on: what `add_up` stores.
    """

    def generate(context, builder, signature, arguments):
        width, own, own_weight = arguments[4:7]
        first, second, out = (
            address(context, builder, signature.args[i], arguments[i], arguments[i + 1])
            for i in (0, 2, 7)
        )
        own_lanes = in_all_lanes(builder, builder.trunc(own, _WORD))
        own_weights = in_all_lanes(builder, own_weight)

        def weigh(start):
            one, other = (
                builder.load(vector_at(builder, row, start), align=4) for row in (first, second)
            )
            begin = in_all_lanes(builder, builder.trunc(start, _WORD))
            topics = builder.add(begin, ir.Constant(_WORDS, list(range(LANES))))
            is_own = builder.icmp_unsigned("==", topics, own_lanes)
            return builder.select(is_own, own_weights, builder.fmul(one, other))

        return add_up(builder, out, width, LANES, weigh)

    number, weight = types.intp, types.float32
    return weight(left, number, right, number, number, number, weight, sums, number), generate


@intrinsic
def select(typingctx, condition, yes, no):
    """Return `yes` or `no`, which have the same type, without a branch that the processor would have to guess."""
    if condition != types.boolean or yes != no:
        return None

    def codegen(context, builder, signature, args):
        chosen = builder.select(*args)
        chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
        return chosen

    return yes(condition, yes, no), codegen


@inlined
def find_lane(sums, end, n, point):
    """Return the lane in which a point below the sum lies, and its distance from the beginning of the lane.

    Parameters
    ----------
    sums : float32
        What `add_up` has stored for n lanes; the sums of all lanes up to each one begin at `end`.
    point : float32
        From 0 on.
    """
    lane = 0
    for j in range(n - 1):
        lane += sums[index(end + j)] <= point
    before = sums[index(end + max(lane - 1, 0))]
    return lane, point - select(lane > 0, before, np.float32(0.0))


@inlined
def find_topic(sums, start, width, lane, rest):
    """Return the topic of a lane in whose weight a point lies, by halving.

    Parameters
    ----------
    sums, start, width
        What `add_products` has stored.
    lane, rest
        From `find_lane`, `rest` less than the sum of the lane.

    Returns
    -------
    int
        Its weight is positive, but for rounding where all weights of a lane are zero; always less than `width`.
    """
    topic, n_left = lane, width // LANES
    while n_left > 1:
        half = n_left >> 1
        coming = topic + half * LANES
        topic = select(sums[index(start + coming - LANES)] <= rest, coming, topic)
        n_left -= half
    return topic


@inlined
def first_above(ends, begin, end, x):
    """Return the first place from `begin` whose cumulative sum is above x, or the last one before `end`; by halving."""
    at, n_left = np.int64(begin), np.int64(end - begin)
    while n_left > 1:
        half = n_left >> 1
        at = select(ends[index(at + half - 1)] <= x, at + half, at)
        n_left -= half
    return at


@inlined
def uniform24(bits):
    """Return the upper 24 of 64 random bits as a float32 in [0, 1)."""
    return np.float32(np.int64(bits >> SHIFT_ACCEPT)) * SCALE_ACCEPT


@inlined
def at_most(value, last):
    """Return `value` as an integer, `last` if it is no less: a float beyond all integers must not be converted."""
    return np.int64(value) if value < np.float64(last) else np.int64(last)
