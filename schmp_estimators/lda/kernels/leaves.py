"""The leaves of the tree of exact sampling, for both types of document-topic prior.

With a float, alpha, they are the weights q of the topics, and the sum of the tree counts in units of alpha.  With an
array of one prior for each topic they are the products.
"""

import numpy as np
from numba import types

from schmp_estimators.core.jit import by_types, inlined
from schmp_estimators.lda.kernels import ftree


def make_leaves(q, alpha):
    """Return the array of the leaves: q itself, or one of its own."""
    raise NotImplementedError("for kernels")


@by_types(make_leaves)
def _make_leaves(q, alpha):
    if isinstance(alpha, types.Float):
        return lambda q, alpha: q
    return lambda q, alpha: np.empty_like(q)


def fill_leaves(q, leaves, alpha):
    """Bring all leaves up to the weights; 0.5 ns per topic where they are not the same."""
    raise NotImplementedError("for kernels")


@by_types(fill_leaves)
def _fill_leaves(q, leaves, alpha):
    if isinstance(alpha, types.Float):
        return lambda q, leaves, alpha: None

    def multiply(q, leaves, alpha):
        for k in range(len(q)):
            leaves[k] = alpha[k] * q[k]

    return multiply


def leaf_of(weight, alpha, topic):
    """Return the leaf of a topic (uint64) with this weight."""
    raise NotImplementedError("for kernels")


@by_types(leaf_of, copied=True)
def _leaf_of(weight, alpha, topic):
    if isinstance(alpha, types.Float):
        return lambda weight, alpha, topic: weight
    return lambda weight, alpha, topic: alpha[topic] * weight


def keep_weight(q, topic, weight, alpha):
    """Write the weight of a topic (uint64) to `q`, if it is no leaf, which is written already."""
    raise NotImplementedError("for kernels")


@by_types(keep_weight, copied=True)
def _keep_weight(q, topic, weight, alpha):
    if isinstance(alpha, types.Float):
        return lambda q, topic, weight, alpha: None

    def keep(q, topic, weight, alpha):
        q[topic] = weight

    return keep


@inlined
def put(q, leaves, level_ptr, sums, total, topic, weight, alpha):
    """Set the weight of a topic (uint64), and mend the tree; return the new total; 1 ns per level."""
    keep_weight(q, topic, weight, alpha)
    return ftree.put(leaves, level_ptr, sums, total, topic, leaf_of(weight, alpha, topic))


def in_prior_units(total, alpha):
    """Return the sum of ``alpha_k q_k`` over the topics, from the sum of the tree."""
    raise NotImplementedError("for kernels")


@by_types(in_prior_units, copied=True)
def _in_prior_units(total, alpha):
    if isinstance(alpha, types.Float):
        return lambda total, alpha: alpha * total
    return lambda total, alpha: total


def in_leaf_units(point, alpha):
    """Return a point in the sum of ``alpha_k q_k`` as one in the sum of the tree."""
    raise NotImplementedError("for kernels")


@by_types(in_leaf_units, copied=True)
def _in_leaf_units(point, alpha):
    if isinstance(alpha, types.Float):
        return lambda point, alpha: point / alpha
    return lambda point, alpha: point
