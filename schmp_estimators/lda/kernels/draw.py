"""A draw from the products of two float32 rows, in vectors, with sums whose order is written down.

The products of topics j, j + 16, j + 32, … are added up in lane j of a vector, one after the other;
the sums of the lanes are then added up in steps that double (Hillis and Steele, "Data parallel
algorithms", CACM 1986).  A point in the total falls into a lane, and in the lane into a topic: the
lane is found by counting sums that are no greater, the topic by halving, without a branch that the
processor would have to guess.  The additions, and so the bits, are the same on every processor.

A draw takes three functions, so that several draws can be made side by side: see `frozen`.

From weights that change one at a time, topics are drawn by a tree of partial sums: change a weight,
or draw a topic, in O(log K).  This is the F+ tree of F+LDA (Yu et al., WWW 2015, section 3.1) with
sixteen children to a node instead of two: changes are far more frequent than draws, and cost one
addition per level.  The lowest level is the weights themselves; above it each level has a sixteenth
of the nodes of the one below, until sixteen or fewer are left.  `sums` holds the levels one after
the other, from the lowest up, and `level_ptr` their offsets.
"""

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from schmp_estimators.core.jit import index, inlined, part
from schmp_estimators.core.lanes import NUMBER, SHORT, Value, emitted
from schmp_estimators.core.rng import SCALE_ACCEPT, SHIFT_ACCEPT

#: Topics of a vector; rows are padded with zeros to a multiple of it.
LANES = 16

_VECTOR = ir.VectorType(NUMBER, LANES)


def padded(n_topics: int) -> int:
    """Return the length of a row of `n_topics` weights: a multiple of `LANES`."""
    return -(-n_topics // LANES) * LANES


def add_up(code, out, at, width, n, weigh):
    """Emit the sum, in n lanes, of the vectors that ``weigh(start)`` emits.

    The starts are 0, n, 2 n, … below `width`.

    From ``out[at]`` on the sums of the lanes are stored after every vector, and then the sums of
    all lanes up to each one.  The sum of all lanes is returned.
    """
    [total] = code.totals(1, ir.VectorType(NUMBER, n))
    with code.loop(0, width, n) as start:
        total.add(weigh(start))
        out.store(at + start, total.value)
    up_to = total.value
    distance = 1
    while distance < n:
        moved = [lane - distance if lane >= distance else n + lane for lane in range(n)]
        up_to = up_to + up_to.mixed(up_to.constant(0.0), moved)  # zeros come in from below
        distance *= 2
    out.store(at + width, up_to)
    return up_to.lane(n - 1)


@emitted(lambda *kinds: types.float32)
def add_products(
    code, left, left_start, right, right_start, width, own, own_weight, sums, sums_start
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
    own_lanes = own.narrowed(SHORT).spread(LANES)
    own_weights = own_weight.spread(LANES)
    numbers = Value(code.builder, ir.VectorType(SHORT, LANES)(list(range(LANES))))

    def weigh(start):
        one = left.load(left_start + start, _VECTOR)
        other = right.load(right_start + start, _VECTOR)
        topics = start.narrowed(SHORT).spread(LANES) + numbers
        return (one * other).where(topics.equals(own_lanes), own_weights)

    return add_up(code, sums, sums_start, width, LANES, weigh)


@intrinsic
def select(typingctx, condition, yes, no):
    """Return `yes` or `no`, which have the same type, without a branch.

    The processor would have to guess a branch.
    """
    if condition != types.boolean or yes != no:
        return None

    def codegen(context, builder, signature, args):
        chosen = builder.select(*args)
        chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
        return chosen

    return yes(condition, yes, no), codegen


@inlined
def find_lane(sums, end, n, point):
    """Return the lane in which a point below the sum lies, and its distance from the lane's start.

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
        Its weight is positive, but for rounding where all weights of a lane are zero; always less
        than `width`.
    """
    topic = lane
    n_left = width // LANES
    while n_left > 1:
        half = n_left >> 1
        coming = topic + half * LANES
        topic = select(sums[index(start + coming - LANES)] <= rest, coming, topic)
        n_left -= half
    return topic


@inlined
def first_above(ends, begin, end, x):
    """Return the first place from `begin` whose cumulative sum is above x.

    If there is none, it is the last place before `end`.  A binary search finds it.
    """
    at = np.int64(begin)
    n_left = np.int64(end - begin)
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
    """Return `value` as an integer, `last` if it is no less.

    A float beyond all integers must not be converted.
    """
    return np.int64(value) if value < np.float64(last) else np.int64(last)


#: log2 of the number of children of a node.
BITS = 4


def tree_levels(n_topics: int) -> np.ndarray:
    """Return the offsets of the levels of sums over `n_topics` weights.

    It is an int64 array with one element more than levels.
    """
    ptr = [0]
    while n_topics > 1 << BITS:
        n_topics = -(-n_topics >> BITS)
        ptr.append(ptr[-1] + n_topics)
    return np.array(ptr, np.int64)


@part
def build_tree(weights, level_ptr, sums):
    """Fill `sums` from `weights` (K,) float64, and return the total; 0.5 ns per weight.

    `sums` is a float64 array of shape (level_ptr[-1],).
    """
    below = weights
    for level in range(len(level_ptr) - 1):
        nodes = sums[level_ptr[level] : level_ptr[level + 1]]
        for node in range(len(nodes)):
            total = 0.0
            for child in range(node << BITS, min((node + 1) << BITS, len(below))):
                total += below[child]
            nodes[node] = total
        below = nodes
    total = 0.0
    for weight in below:
        total += weight
    return total


@inlined
def put_in_tree(weights, level_ptr, sums, total, topic, weight):
    """Set the weight of a topic (uint64), mend the sums with it, and return the new total.

    1 ns per level.
    """
    change = weight - weights[topic]
    weights[topic] = weight
    node = topic
    for level in range(len(level_ptr) - 1):
        node >>= index(BITS)
        sums[index(level_ptr[level]) + node] += change
    return total + change


@part
def find_in_tree(weights, level_ptr, sums, point):
    """Return the topic k for which `point` lies between the sums of weights before and up to k.

    A point beyond the total, which rounding can make, finds the last topic.  This takes 8 ns per
    level.
    """
    node = 0
    for level in range(len(level_ptr) - 2, -2, -1):
        nodes = weights if level < 0 else sums[level_ptr[level] : level_ptr[level + 1]]
        last = min(node + (1 << BITS), len(nodes)) - 1
        while node < last and point >= nodes[node]:
            point -= nodes[node]
            node += 1
        node <<= BITS
    return node >> BITS
