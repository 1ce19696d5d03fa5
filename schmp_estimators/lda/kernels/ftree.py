"""A tree of partial sums over K weights: change a weight, or draw a topic, in O(log K).

This is the F+ tree of F+LDA (Yu et al., WWW 2015, section 3.1) with sixteen children to a node instead of two: changes
are far more frequent than draws, and cost one addition per level.  The lowest level is the weights themselves; above it
each level has a sixteenth of the nodes of the one below, until sixteen or fewer are left.  `sums` holds the levels one
after the other, from the lowest up, and `level_ptr` their offsets.
"""

import numpy as np

from schmp_estimators.core.jit import index, inlined, part

#: log2 of the number of children of a node.
BITS = 4


def tree_levels(n_topics: int) -> np.ndarray:
    """Return the offsets of the levels of sums over `n_topics` weights: one more than levels, int64."""
    ptr = [0]
    while n_topics > 1 << BITS:
        n_topics = -(-n_topics >> BITS)
        ptr.append(ptr[-1] + n_topics)
    return np.array(ptr, np.int64)


@part
def build_tree(weights, level_ptr, sums):
    """Fill `sums` (level_ptr[-1],) float64 from `weights` (K,) float64, and return the total; 0.5 ns per weight."""
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
    """Set the weight of a topic (uint64) and mend the sums that it is part of; return the new total; 1 ns per level."""
    change = weight - weights[topic]
    weights[topic] = weight
    node = topic
    for level in range(len(level_ptr) - 1):
        node >>= index(BITS)
        sums[index(level_ptr[level]) + node] += change
    return total + change


@part
def find_in_tree(weights, level_ptr, sums, point):
    """Return the topic k for which `point` lies between the sums of the weights before k and up to k.

    A point beyond the total, which rounding can make, finds the last topic.  8 ns per level.
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
