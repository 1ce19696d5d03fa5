"""A draw from the products of two float32 rows, in vectors, with sums whose order is written down.

The products of topics j, j + 16, j + 32, … are added up in lane j of a vector, one after the other; the sums of the
lanes are then added up in steps that double (Hillis and Steele, "Data parallel algorithms", CACM 1986).  A point in the
total falls into a lane, and in the lane into a topic: both are found by counting sums that are no greater, without a
branch that the processor would have to guess.  The additions, and so the bits, are the same on every processor.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

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


def _address(context: Any, builder: Any, kind: Any, array: Any, start: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [start])


def _vector_at(builder: Any, data: Any, offset: Any) -> Any:
    return builder.bitcast(builder.gep(data, [offset]), _VECTOR.as_pointer())


def _shifted(builder: Any, vector: Any, distance: int) -> Any:
    """Return a vector whose lanes have moved up, with zeros below."""
    order = [lane - distance if lane >= distance else LANES + lane for lane in range(LANES)]
    return builder.shuffle_vector(vector, _ZEROS, ir.Constant(_WORDS, order))


def _in_all_lanes(builder: Any, value: Any) -> Any:
    none = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    one = builder.insert_element(none, value, _WORD(0))
    return builder.shuffle_vector(one, none, ir.Constant(_WORDS, [0] * LANES))


def _draw(
    typing_context: Any,
    left: Any,
    left_start: Any,
    right: Any,
    right_start: Any,
    width: Any,
    own: Any,
    own_weight: Any,
    uniform: Any,
    ends: Any,
) -> Any:
    """Draw a topic with chances proportional to the products of two rows.

    Parameters
    ----------
    left, right : contiguous float32 arrays of one dimension
        The rows, without negative numbers, are those from `left_start` and `right_start`.
    width : int
        Length of the rows, a multiple of `LANES`.
    own, own_weight : int and float32
        A topic, and its weight instead of the product.
    uniform : float32
        In [0, 1).
    ends : (at least width + LANES,) float32
        Mutated: for use here only.

    Returns
    -------
    topic : int
        Its weight is positive, but for rounding where all weights of a lane are zero; always less than `width`.
    total : float32
        The sum of the weights.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds, (width, own, own_weight, uniform) = signature.args, arguments[4:8]
        first = _address(context, builder, kinds[0], arguments[0], arguments[1])
        second = _address(context, builder, kinds[2], arguments[2], arguments[3])
        sums = _address(context, builder, kinds[8], arguments[8], _INDEX(0))
        stride = _INDEX(LANES)
        before_last = builder.sub(width, stride)

        def as_word(number: Any) -> Any:
            return builder.trunc(number, _WORD)

        # The sums of the lanes so far: after every vector of topics they are kept, for the search.
        own_lanes, own_weights = _in_all_lanes(builder, as_word(own)), _in_all_lanes(builder, own_weight)
        numbers = ir.Constant(_WORDS, list(range(LANES)))
        lanes = cgutils.alloca_once_value(builder, _ZEROS)
        with cgutils.for_range_slice(builder, _INDEX(0), width, stride) as (start, _):
            one = builder.load(_vector_at(builder, first, start), align=4)
            other = builder.load(_vector_at(builder, second, start), align=4)
            topics = builder.add(numbers, _in_all_lanes(builder, as_word(start)))
            is_own = builder.icmp_unsigned("==", topics, own_lanes)
            weights = builder.select(is_own, own_weights, builder.fmul(one, other))
            so_far = builder.fadd(builder.load(lanes), weights)
            builder.store(so_far, lanes)
            builder.store(so_far, _vector_at(builder, sums, start), align=4)
        up_to = builder.load(lanes)
        for distance in (1, 2, 4, 8):
            up_to = builder.fadd(up_to, _shifted(builder, up_to, distance))
        total = builder.extract_element(up_to, _WORD(LANES - 1))
        point = builder.fmul(uniform, total)

        # The lane: as many lanes end no later than the point as there are before it.
        passed = builder.fcmp_ordered("<=", up_to, _in_all_lanes(builder, point))
        bits = builder.zext(builder.bitcast(passed, ir.IntType(LANES)), _WORD)
        count, last = builder.zext(builder.ctpop(bits), _INDEX), _INDEX(LANES - 1)
        lane = builder.select(builder.icmp_unsigned("<", count, last), count, last)
        builder.store(_shifted(builder, up_to, 1), _vector_at(builder, sums, width), align=4)
        rest = builder.fsub(point, builder.load(builder.gep(sums, [builder.add(width, lane)])))

        # The topic in the lane, by counting again: halving would take fewer steps, but each would wait for the one
        # before it, and a token took 1.5 times as long.  A point that rounding has put beyond the lane finds its last
        # topic of any weight: it is moved to the largest number below the lane's sum.
        column = builder.gep(sums, [lane])
        most = builder.load(builder.gep(column, [before_last]))
        below = builder.bitcast(builder.sub(builder.bitcast(most, _WORD), _WORD(1)), _FLOAT)
        rest = builder.select(builder.fcmp_ordered("<", rest, below), rest, below)
        topic = cgutils.alloca_once_value(builder, lane)
        with cgutils.for_range_slice(builder, _INDEX(0), before_last, stride) as (start, _):
            passed_one = builder.fcmp_ordered("<=", builder.load(builder.gep(column, [start])), rest)
            step = builder.select(passed_one, stride, _INDEX(0))
            builder.store(builder.add(builder.load(topic), step), topic)
        return context.make_tuple(builder, signature.return_type, [builder.load(topic), total])

    number, weight = types.intp, types.float32
    given = (left, number, right, number, number, number, weight, weight, ends)
    return types.Tuple((number, weight))(*given), generate


draw: Any = intrinsic(_draw)
