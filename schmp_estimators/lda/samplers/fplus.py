"""Exact collapsed Gibbs sampling, word by word (F+LDA: Yu et al., WWW 2015, section 3.2).

A token of word w in document d gets a new topic, with its own topic taken out of all counts, with
probabilities::

    p(k)  proportional to  n_dk q_k + alpha_k q_k,      q_k = (n_wk + beta) / (n_k + V beta)

The first part has a term for each topic of the document; these are kept in a list.  The second part
depends on the word only.  Its sum is the root of an F+ tree, which is updated as counts change.
One random number picks a point in the sum of both, the list first.  Its bits are addressed by the
token's rank among the tokens of its word.
"""

from typing import NamedTuple

import numpy as np
from numpy import uint64 as index
from numpy.typing import NDArray

from schmp_estimators.core.typing import Arguments, Floats
from schmp_estimators.sampling import (
    At,
    WordSampler,
    build_tree,
    find_in_list,
    find_in_tree,
    freeze,
    inlined,
    kernel,
    maker,
    mix,
    move_in_list,
    part,
    place_of,
    prefetch,
    put_in_tree,
    sum_list,
    tree_levels,
    unit,
    word_loop,
)

#: The tree is rebuilt for a word with more than ``K / _FEW`` tokens; for others it is updated topic
#: by topic.
_FEW = 16
#: The lists of the document that comes so many tokens later are fetched into the cache: this gained
#: 15 to 60 %.
_AHEAD = 8

#: Scalars that the sampler keeps: `is_base`, whether the weights are those of a word without
#: tokens, or were before the present word; `smooth`, the sum of the tree; `document`, whose list
#: has been summed up, -1 for none; `mass`, its sum; `old_at` and `new_at`, the places in this list
#: of the old and of the new topic of the token that is to move.
_KEPT = np.dtype(
    [
        ("is_base", "?"),
        ("smooth", "f8"),
        ("document", "i8"),
        ("mass", "f8"),
        ("old_at", "u8"),
        ("new_at", "u8"),
    ]
)


class FPlus(NamedTuple):
    """What the sampler keeps."""

    kept: NDArray[np.void]
    #: (K,) q; the leaves of the tree, ``alpha_k q_k``; and its sums.
    q: Floats
    leaves: Floats
    sums: Floats


@maker
def begin(cell):
    """Return what is kept of a block."""
    n_topics = len(cell.total)
    n_nodes = cell.extra[0][-1]
    return FPlus(np.zeros(1, _KEPT), np.empty(n_topics), np.empty(n_topics), np.empty(n_nodes))


@inlined
def put(own, cell, topic, weight):
    """Set the weight q of a topic (uint64), and update the tree; 1 ns per level."""
    kept = own.kept[0]
    own.q[topic] = weight
    kept.smooth = put_in_tree(
        own.leaves, cell.extra[0], own.sums, kept.smooth, topic, cell.alpha[topic] * weight
    )


@inlined
def _put_topics(own, cell, row, topics):
    """Set the weights of some topics to those of the row; 5 ns each."""
    for topic in topics:
        k = index(topic)
        weight = (row.tokens[k] + cell.beta) * row.inverse[k]
        if own.q[k] != weight:
            put(own, cell, k, weight)


@part
def _put_row(own, cell, row, word):
    """Set the weights of the topics of a tail word to those of the row."""
    block = cell.block
    tail = word - len(cell.block.heads)
    _put_topics(own, cell, row, block.tails[block.tail_ptr[tail] : block.tail_ptr[tail + 1]])


@part
def _build(own, cell, row, is_base):
    """Compute all weights, with the row or without tokens (`is_base`); 1 ns each."""
    for k in range(len(own.q)):
        own.q[k] = ((0 if is_base else row.tokens[k]) + cell.beta) * row.inverse[k]
        own.leaves[k] = cell.alpha[k] * own.q[k]
    own.kept[0].smooth = build_tree(own.leaves, cell.extra[0], own.sums)


@inlined
def enter(own, cell, row, word, is_seeded):
    """Prepare the weights for a word."""
    kept = own.kept[0]
    block = cell.block
    tail = word - len(cell.block.heads)
    kept.document = -1
    has_few = False
    if tail >= 0 and not is_seeded:
        has_few = (block.tail_ptr[tail + 1] - block.tail_ptr[tail]) * _FEW <= len(own.q)
    if not (has_few and kept.is_base):
        _build(own, cell, row, has_few)
    kept.is_base = has_few
    if has_few:
        _put_row(own, cell, row, word)


@inlined
def leave(own, cell, row, word):
    """Set the weights to those of a word without tokens, if that is faster than to compute all."""
    if own.kept[0].is_base:
        _put_row(own, cell, row, word)


@inlined
def fetch(own, cell, token):
    """Fetch the list of a document that comes later."""
    document = cell.state.document
    lists = cell.state.lists
    if token + index(_AHEAD) < index(len(document)):
        start = lists.ptr[index(document[token + index(_AHEAD)])]
        for line in range(2):
            prefetch(lists.topic, start + 32 * line)
        for line in range(3):
            prefetch(lists.tokens, start + 16 * line)


@inlined
def draw(own, cell, row, token, word, old, counter):
    """Return the new topic of a token.

    It takes 1.5 ns per topic of the document for the first of a word's tokens in it.

    If it is another topic, the token is then left out of `own` and of the document's list.
    """
    ptr, length, topics, tokens = cell.state.lists
    kept = own.kept[0]
    q = own.q
    d = index(cell.state.document[token])
    start, n = ptr[d], np.int64(length[d])
    if (
        np.int64(d) != kept.document
    ):  # else the sum is up to date: a word often occurs several times in a document
        kept.document = np.int64(d)
        kept.mass = sum_list(topics, tokens, start, n, q)
    old_at = place_of(topics, start, start + n - 1, old)
    before = q[old]
    smooth_before = kept.smooth
    put(own, cell, old, (row.tokens[old] - 1 + cell.beta) * row.inverse_less[old])
    mass = kept.mass + (tokens[old_at] - 1) * q[old] - tokens[old_at] * before
    tokens[old_at] -= 1
    point = unit(mix(counter)) * (mass + kept.smooth)
    if point < mass:
        new_at = find_in_list(topics, tokens, start, n, q, point)
        new = index(topics[new_at])
    else:
        new = index(find_in_tree(own.leaves, cell.extra[0], own.sums, point - mass))
        new_at = place_of(topics, start, start + n, new)
    if new == old:
        tokens[old_at] += 1
        put(own, cell, old, before)
        kept.smooth = smooth_before
    else:
        kept.mass = mass
        kept.old_at = old_at
        kept.new_at = new_at
    return new


@inlined
def moved(own, cell, row, token, word, old, new):
    """Add the token to the tree and to the document's list; 50 ns."""
    _, length, topics, tokens = cell.state.lists
    kept = own.kept[0]
    q = own.q
    d = index(cell.state.document[token])
    start = cell.state.lists.ptr[d]
    before = q[new]
    end = index(start + length[d])
    n_new = np.int64(tokens[kept.new_at]) if kept.new_at < end else np.int64(0)
    put(own, cell, new, (row.tokens[new] + cell.beta) * row.inverse[new])
    kept.mass += (n_new + 1) * q[new] - n_new * before
    length[d] += move_in_list(topics, tokens, end, kept.old_at, kept.new_at, new)


_loop = word_loop(begin, draw, moved, enter, leave, fetch)


@kernel
def sample_fplus(cell):
    """Sample the tokens of a `Cell` whose extra is the `tree_levels` of K; see `word_loop`."""
    return _loop(cell)


class FPlusLDA(WordSampler):
    """Latent Dirichlet allocation by collapsed Gibbs sampling, word by word, with an F+ tree.

    With one shard the sampler is exact; with more, topic totals are stale (`SequentialSampler`).

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, hot_priors,
    hot_sweeps, own_alphas, learn_every, drawn_alphas, seed_totals, begins_seeded, far
        As in `TopicSampler`.
    """

    kernel = staticmethod(sample_fplus)

    def extra(self, at: At) -> Arguments:
        """Return the levels of the tree."""
        return (freeze(tree_levels(self.n_components)),)
