"""A draw from the products of two float32 rows, in vectors, with sums whose order is written down.

The products of topics j, j + 16, j + 32, … are added up in lane j of a vector, one after the other; the sums of the
lanes are then added up in steps that double (Hillis and Steele, "Data parallel algorithms", CACM 1986).  A point in the
total falls into a lane, and in the lane into a topic: the lane is found by counting sums that are no greater, the topic
by halving, without a branch that the processor would have to guess.  The additions, and so the bits, are the same on
every processor.

These are three functions, for who makes several draws at a time: see `frozen`.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from schmp_estimators.core.jit import inlined
from schmp_estimators.core.rng import SCALE_ACCEPT, SHIFT_ACCEPT

#: Topics of a vector: rows are padded with zeros to a multiple of it.
LANES = 16

_INDEX, _WORD = ir.IntType(64), ir.IntType(32)
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)
_WORDS = ir.VectorType(_WORD, LANES)
_ZEROS = ir.Constant(_VECTOR, [0.0] * LANES)


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
    return builder.shuffle_vector(vector, vector.type([0.0] * n), ir.Constant(ir.VectorType(_WORD, n), order))


def in_all_lanes(builder: Any, value: Any, n: int = LANES) -> Any:
    """Emit a vector of n times the same number."""
    none = ir.Constant(ir.VectorType(value.type, n), ir.Undefined)
    one = builder.insert_element(none, value, _WORD(0))
    return builder.shuffle_vector(one, none, ir.Constant(ir.VectorType(_WORD, n), [0] * n))


def _add_products(
    typing_context: Any,
    left: Any,
    left_start: Any,
    right: Any,
    right_start: Any,
    width: Any,
    own: Any,
    own_weight: Any,
    numbers: Any,
    sums: Any,
    sums_start: Any,
) -> Any:
    """Add up the products of two rows in the lanes, and keep the sums after every vector.

    Parameters
    ----------
    left, right : contiguous float32 arrays of one dimension
        The rows, without negative numbers, are those from `left_start` and `right_start`.
    width : int
        Length of the rows, a multiple of `LANES`.
    own, own_weight : int and float32
        A topic, and its weight instead of the product.
    numbers : (at least width,) int32
        0, 1, 2, …
    sums : (at least sums_start + width,) float32
        Mutated from `sums_start` on.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds, (width, own, own_weight) = signature.args, arguments[4:7]
        first = address(context, builder, kinds[0], arguments[0], arguments[1])
        second = address(context, builder, kinds[2], arguments[2], arguments[3])
        topics = address(context, builder, kinds[7], arguments[7], _INDEX(0))
        out = address(context, builder, kinds[8], arguments[8], arguments[9])
        own_lanes = in_all_lanes(builder, builder.trunc(own, _WORD))
        own_weights = in_all_lanes(builder, own_weight)
        lanes = cgutils.alloca_once_value(builder, _ZEROS)
        with cgutils.for_range_slice(builder, _INDEX(0), width, _INDEX(LANES)) as (start, _):
            one = builder.load(vector_at(builder, first, start), align=4)
            other = builder.load(vector_at(builder, second, start), align=4)
            here = builder.bitcast(builder.gep(topics, [start]), _WORDS.as_pointer())
            is_own = builder.icmp_unsigned("==", builder.load(here, align=4), own_lanes)
            weights = builder.select(is_own, own_weights, builder.fmul(one, other))
            so_far = builder.fadd(builder.load(lanes), weights)
            builder.store(so_far, lanes)
            builder.store(so_far, vector_at(builder, out, start), align=4)
        return context.get_dummy_value()

    number, weight = types.intp, types.float32
    return types.none(left, number, right, number, number, number, weight, numbers, sums, number), generate


def _find_lane(typing_context: Any, sums: Any, start: Any, width: Any, uniform: Any) -> Any:
    """Find the lane into which a point in the total falls.

    Parameters
    ----------
    sums, start, width
        What `add_products` has kept; the next `LANES` numbers of `sums` are for use here only.
    uniform : float32
        In [0, 1).

    Returns
    -------
    lane : int
    rest : float32
        How far in the lane the point is: less than the lane's sum.  A point that rounding has put beyond is moved to
        the largest number below it, and so finds the last topic of any weight.
    total : float32
        The sum of the weights.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        width, uniform = arguments[2:]
        own = address(context, builder, signature.args[0], arguments[0], arguments[1])
        before_last = builder.sub(width, _INDEX(LANES))
        up_to = builder.load(vector_at(builder, own, before_last), align=4)
        for distance in (1, 2, 4, 8):
            up_to = builder.fadd(up_to, shifted(builder, up_to, distance))
        total = builder.extract_element(up_to, _WORD(LANES - 1))
        point = builder.fmul(uniform, total)

        # As many lanes end no later than the point as there are before its own.
        passed = builder.fcmp_ordered("<=", up_to, in_all_lanes(builder, point))
        bits = builder.zext(builder.bitcast(passed, ir.IntType(LANES)), _WORD)
        count, last = builder.zext(builder.ctpop(bits), _INDEX), _INDEX(LANES - 1)
        lane = builder.select(builder.icmp_unsigned("<", count, last), count, last)
        builder.store(shifted(builder, up_to, 1), vector_at(builder, own, width), align=4)
        rest = builder.fsub(point, builder.load(builder.gep(own, [builder.add(width, lane)])))
        most = builder.load(builder.gep(own, [builder.add(before_last, lane)]))
        below = builder.bitcast(builder.sub(builder.bitcast(most, _WORD), _WORD(1)), _FLOAT)
        rest = builder.select(builder.fcmp_ordered("<", rest, below), rest, below)
        return context.make_tuple(builder, signature.return_type, [lane, rest, total])

    number, weight = types.intp, types.float32
    return types.Tuple((number, weight, weight))(sums, number, number, weight), generate


add_products: Any = intrinsic(_add_products)
find_lane: Any = intrinsic(_find_lane)


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
def find_topic(sums, start, width, lane, rest):
    """Return the topic of a lane into whose weight a point falls, by halving.

    Parameters
    ----------
    sums, start, width
        What `add_products` has kept.
    lane, rest
        From `find_lane`.

    Returns
    -------
    int
        Its weight is positive, but for rounding where all weights of a lane are zero; always less than `width`.
    """
    topic, n_left = lane, width // LANES
    while n_left > 1:
        half = n_left >> 1
        coming = topic + half * LANES
        topic = select(sums[np.uint64(start + coming - LANES)] <= rest, coming, topic)
        n_left -= half
    return topic


@inlined
def first_above(ends, begin, end, x):
    """Return the first place from `begin` whose cumulative sum is above x, or the last one before `end`; by halving."""
    at, n_left = np.int64(begin), np.int64(end - begin)
    while n_left > 1:
        half = n_left >> 1
        at = select(ends[np.uint64(at + half - 1)] <= x, at + half, at)
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
