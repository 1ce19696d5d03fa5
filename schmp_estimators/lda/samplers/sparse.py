"""Exact collapsed Gibbs sampling, document by document, with short sums.

This is SparseLDA (Yao et al., KDD 2009, section 3.4).

A token of word w in document d gets a new topic, with its own topic taken out of all counts, with
probabilities::

    p(k)  proportional to  n_wk (n_dk + alpha_k) / (n_k + V beta)    word: the topics of the word
                         + beta n_dk / (n_k + V beta)                document: those of the document
                         + beta alpha_k / (n_k + V beta)             smoothing: all topics

and if the word is seeded also those of the topics of its seeds, as if they were tokens of it.

Only the topics of the word have to be summed up for a token.  If a word occurs again in the
document, and no token has moved, their sum is known.  The token's own topic comes first in the
draw, with all three parts at once: mostly it is kept, and nothing has to be searched.  Then come
seeds, word, document, smoothing.  The topics of a word begin with the most frequent ones, and those
of the smoothing are leaves of an F+ tree.
"""

from typing import NamedTuple

import numpy as np
from numpy import uint64 as index
from numpy.typing import NDArray

from schmp_estimators.core.typing import Arguments, Floats
from schmp_estimators.sampling import (
    At,
    DocumentSampler,
    TopicLists,
    beta_of,
    build_tree,
    document_loop,
    find_in_document,
    find_in_tree,
    find_seed,
    freeze,
    inlined,
    inverse_totals,
    is_rounding,
    kernel,
    list_words,
    maker,
    mix,
    move_in_list,
    place_of,
    prefetch,
    put_in_tree,
    sum_list,
    sum_others,
    tree_levels,
    unit,
)

#: Scalars that the sampler keeps: `smooth`, the sum of the tree; `word`, whose topics have been
#: summed up; `version`, that of the document (`documents._NOW`) at that time; `of_word`, the sum;
#: `old_at` and `new_at`, the entries of the old and of the new topic of the token that is to move.
_KEPT = np.dtype(
    [
        ("smooth", "f8"),
        ("word", "i8"),
        ("version", "i8"),
        ("of_word", "f8"),
        ("old_at", "u8"),
        ("new_at", "u8"),
    ]
)


class Sparse(NamedTuple):
    """What the sampler keeps."""

    kept: NDArray[np.void]
    #: The topics of words.
    lists: TopicLists
    #: (K,) leaves of the tree, ``alpha_k / (n_k + V beta)``, and its sums.
    spread: Floats
    sums: Floats


@maker
def _begin(cell):
    """Return what is kept of a block."""
    (level_ptr,) = cell.extra
    kept = np.zeros(1, _KEPT)
    sums = np.empty(level_ptr[-1])
    spread, _ = inverse_totals(cell)
    for k in range(len(spread)):
        spread[k] *= cell.alpha[k]
    kept[0].smooth = build_tree(spread, level_ptr, sums)
    return Sparse(kept, list_words(cell.block, len(cell.total)), spread, sums)


@inlined
def _find_entry(topics, tokens, start, end, skipped, weights, point):
    """Return the place at `point` in the sum of ``tokens * weights[topic]``, and the sum so far.

    The topic `skipped` is left out.  Beyond all entries the place is `end`.
    """
    at = index(start)
    before = 0.0
    while at < end:
        k = index(topics[at])
        if k != skipped:
            before += weights[k] * tokens[at]
            if before > point:
                break
        at += index(1)
    return at, before


@inlined
def _find_by_prior(own, cell, old, point):
    """Return the topic at a point of the smoothing, from which the old topic is left out."""
    (level_ptr,) = cell.extra
    smooth = own.kept[0].smooth
    weight = own.spread[old]
    put_in_tree(own.spread, level_ptr, own.sums, smooth, old, 0.0)
    new = index(find_in_tree(own.spread, level_ptr, own.sums, point))
    put_in_tree(own.spread, level_ptr, own.sums, smooth, old, weight)
    return new


@inlined
def _draw(own, cell, document, token, word, old, counter):
    """Return the new topic of a token.

    0.7 ns per topic of the word for the first of its tokens in a document, 50 ns beside.
    """
    kept = own.kept[0]
    ptr, length, topics, tokens = own.lists
    factor = document.factor
    n_dk = document.tokens
    alpha = cell.alpha
    beta = cell.beta
    seeds = cell.seeds
    layout = cell.first + word
    inverse = document.inverse
    start = ptr[index(word)]
    n = np.int64(length[index(word)])
    end = index(start + n)
    if word != kept.word or document.now[0].version != kept.version:
        kept.word = word
        kept.version = document.now[0].version
        kept.of_word = sum_list(topics, tokens, start, n, factor)
    old_at = place_of(topics, start, end, old)
    n_old = tokens[old_at]
    weight = (
        (n_dk[old] - 1 + alpha[old])
        * (n_old - 1 + beta_of(seeds, layout, old, beta))
        * document.inverse_less[old]
    )
    _, of_seeds = find_seed(seeds, layout, old, n_dk, alpha, inverse, np.inf)
    of_word = kept.of_word - n_old * factor[old]
    if is_rounding(of_word, kept.of_word):
        _, of_word = _find_entry(topics, tokens, start, end, old, factor, np.inf)
    of_document = sum_others(document, old)
    smooth = max(0.0, kept.smooth - own.spread[old])
    point = (
        unit(mix(counter)) * (weight + of_seeds + of_word + beta * (of_document + smooth)) - weight
    )
    if point < 0.0:
        return old
    new, new_at = old, end
    if point < of_seeds:
        new, _ = find_seed(seeds, layout, old, n_dk, alpha, inverse, point)
    elif point - of_seeds < of_word:
        new_at, _ = _find_entry(topics, tokens, start, end, old, factor, point - of_seeds)
        if new_at < end:
            new = index(topics[new_at])
    else:
        point = (point - of_seeds - of_word) / beta
        if point < of_document:
            new, _ = find_in_document(document, old, point)
        else:
            new = _find_by_prior(own, cell, old, point - of_document)
    if new_at == end:
        new_at = place_of(topics, start, end, new)
    kept.old_at = old_at
    kept.new_at = new_at
    return new


@inlined
def _move_entry(topics, tokens, start, end, old_at, new_at, new):
    """Move a token between entries of a list as `move_in_list` does, from `old_at`.

    The token is still there.

    An entry that becomes larger than the one before changes places with it.
    """
    before = new_at - index(1)
    tokens[old_at] -= 1
    if start < new_at < end and tokens[new_at] >= tokens[before]:
        topics[new_at] = topics[before]
        topics[before] = new
        tokens[new_at], tokens[before] = tokens[before], tokens[new_at]
        if old_at == before:
            old_at = new_at
        new_at = before
    return move_in_list(topics, tokens, end, old_at, new_at, new)


@inlined
def _moved(own, cell, document, token, word, old, new):
    """Move the token in the list of its word, and update the tree; 100 ns."""
    kept = own.kept[0]
    alpha = cell.alpha
    (level_ptr,) = cell.extra
    ptr, length, topics, tokens = own.lists
    start = index(ptr[index(word)])
    end = start + index(length[index(word)])
    length[index(word)] += _move_entry(topics, tokens, start, end, kept.old_at, kept.new_at, new)
    for k in (old, new):
        weight = alpha[k] * document.inverse[k]
        kept.smooth = put_in_tree(own.spread, level_ptr, own.sums, kept.smooth, k, weight)


@inlined
def _fetch(own, cell, near, far):
    """Fetch the lists of words that come later."""
    lists = own.lists
    prefetch(lists.ptr, far)
    coming = lists.ptr[index(cell.state.visits.word[near])]
    for line in range(3):
        prefetch(lists.topic, coming + 16 * line)
        prefetch(lists.tokens, coming + 16 * line)


_loop = document_loop(_begin, _draw, _moved, _fetch)


@kernel
def sample_sparse(cell):
    """Sample the tokens of a `Cell` whose extra is the `tree_levels` of K; see `document_loop`."""
    return _loop(cell)


class SparseLDA(DocumentSampler):
    """Latent Dirichlet allocation by collapsed Gibbs sampling with sparse sums.

    It goes document by document.

    With one shard the sampler is exact; with more, topic totals are stale (`SequentialSampler`).

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, hot_priors,
    hot_sweeps, own_alphas, learn_every, drawn_alphas, seed_totals, begins_seeded, far
        As in `TopicSampler`.
    """

    kernel = staticmethod(sample_sparse)

    def extra(self, at: At) -> Arguments:
        """Return the levels of the tree."""
        return (freeze(tree_levels(self.n_components)),)
