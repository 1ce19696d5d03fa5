"""Exact collapsed Gibbs sampling, document by document, with short sums (SparseLDA: Yao et al., KDD 2009, section 3.4).

A token of word w in document d gets a new topic, with its own topic taken out of all counts, with probabilities::

    p(k)  proportional to  n_wk (n_dk + alpha_k) / (n_k + V beta)      word: the topics of the word
                         + beta n_dk / (n_k + V beta)                  document: those of the document
                         + beta alpha_k / (n_k + V beta)               smoothing: all topics

and if the word is seeded also those of the topics of its seeds, as if they were tokens of it.

Only the topics of the word have to be summed up for a token; not even these for a word that comes again in the
document, as long as nothing has moved.  The token's own topic comes first in the draw, with all three parts at once:
mostly it is kept, and nothing has to be searched.  Then come seeds, word, document, smoothing; the topics of a word
begin with the most frequent ones, and those of the smoothing are leaves of an F+ tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import inlined, kernel, maker
from schmp_estimators.core.rng import mix, unit
from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.kernels import ftree
from schmp_estimators.lda.kernels.word_lists import entry_of, fetch_lists, find_entry, list_words, sum_entries
from schmp_estimators.lda.kernels.word_priors import beta_of, find_seed
from schmp_estimators.lda.samplers.documents import (
    ROUNDING,
    DocumentLDA,
    document_loop,
    find_in_document,
    sum_others,
)
from schmp_estimators.lda.samplers.sequential import inverse_totals

#: Scalars that the sampler keeps.
_KEPT = np.dtype(
    [
        #: Sum of the tree.
        ("smooth", np.float64),
        #: The word whose topics have been summed up, when (`Document.now`), and their sum.
        ("word", np.int64),
        ("version", np.int64),
        ("of_word", np.float64),
        #: Entries of the token that is to move: of its old topic, and of its new one.
        ("old_at", np.int64),
        ("new_at", np.int64),
    ]
)


class Sparse(NamedTuple):
    """What the sampler keeps."""

    kept: NDArray[np.void]
    #: As in `word_lists.WordLists`.
    bounds: NDArray[np.int64]
    entries: NDArray[np.int32]
    #: (K,) leaves of the tree, ``alpha_k / (n_k + V beta)``, and its sums.
    spread: NDArray[np.float64]
    sums: NDArray[np.float64]


@maker
def _begin(cell):
    """Return what is kept of a block."""
    (level_ptr,) = cell.extra
    bounds, entries = list_words(cell.block, len(cell.total))
    kept, sums = np.zeros(1, _KEPT), np.empty(level_ptr[-1])
    spread, _ = inverse_totals(cell)
    for k in range(len(spread)):
        spread[k] *= cell.alpha[k]
    kept[0].smooth = ftree.build(spread, level_ptr, sums)
    return Sparse(kept, bounds, entries, spread, sums)


@inlined
def _find_by_prior(own, cell, old, point):
    """Return the topic in which a point of the smoothing lies, the old one left out."""
    (level_ptr,), smooth, weight = cell.extra, own.kept[0].smooth, own.spread[old]
    ftree.put(own.spread, level_ptr, own.sums, smooth, old, 0.0)
    new = np.uint64(ftree.find(own.spread, level_ptr, own.sums, point))
    ftree.put(own.spread, level_ptr, own.sums, smooth, old, weight)
    return new


@inlined
def _draw(own, cell, document, token, word, old, counter):
    """Return the new topic of a token.

    0.7 ns per topic of the word for the first of its tokens in a document, 50 ns beside.
    """
    kept, entries, factor, inverse, n_dk = own.kept[0], own.entries, document.factor, document.inverse, document.tokens
    alpha, beta, seeds, layout = cell.alpha, cell.beta, cell.seeds, cell.first + word
    start, end = own.bounds[np.uint64(2 * word)], own.bounds[np.uint64(2 * word + 1)]
    if word != kept.word or document.now[0].version != kept.version:
        kept.word, kept.version = word, document.now[0].version
        kept.of_word = sum_entries(entries, start, end, factor)
    old_at = entry_of(entries, start, end, old)
    n_old = entries[np.uint64(2 * old_at + 1)]
    weight = (n_dk[old] - 1 + alpha[old]) * (n_old - 1 + beta_of(seeds, layout, old, beta)) * document.inverse_less[old]
    _, of_seeds = find_seed(seeds, layout, old, n_dk, alpha, inverse, np.inf)
    of_word = kept.of_word - n_old * factor[old]
    if of_word < ROUNDING * kept.of_word:
        _, of_word = find_entry(entries, start, end, old, factor, np.inf)
    of_document = sum_others(document, old)
    smooth = max(0.0, kept.smooth - own.spread[old])
    point = unit(mix(counter)) * (weight + of_seeds + of_word + beta * (of_document + smooth)) - weight
    if point < 0.0:
        return old
    new, new_at = old, end
    if point < of_seeds:
        new, _ = find_seed(seeds, layout, old, n_dk, alpha, inverse, point)
    elif point - of_seeds < of_word:
        new_at, _ = find_entry(entries, start, end, old, factor, point - of_seeds)
        if new_at < end:
            new = np.uint64(entries[np.uint64(2 * new_at)])
    else:
        point = (point - of_seeds - of_word) / beta
        if point < of_document:
            new, _ = find_in_document(document, old, point)
        else:
            new = _find_by_prior(own, cell, old, point - of_document)
    if new_at == end:
        new_at = entry_of(entries, start, end, new)
    kept.old_at, kept.new_at = old_at, new_at
    return new


@inlined
def _move_entry(entries, start, end, old_at, new_at, new):
    """Move a token between entries of a list, to `new_at` or, if that is `end`, to a new one; return the new end.

    An entry that has grown changes places with the one before if that is smaller.
    """
    old_count, new_count = np.uint64(2 * old_at + 1), np.uint64(2 * new_at + 1)
    entries[old_count] -= 1
    if new_at == end:
        if entries[old_count] == 0:
            entries[np.uint64(2 * old_at)] = new
            entries[old_count] = 1
            return end
        entries[np.uint64(2 * end)] = new
        entries[np.uint64(2 * end + 1)] = 1
        return end + 1
    entries[new_count] += 1
    before = new_count - np.uint64(2)
    if new_at > start and entries[new_count] > entries[before]:
        count = entries[new_count]
        entries[new_count] = entries[before]
        entries[new_count - np.uint64(1)] = entries[before - np.uint64(1)]
        entries[before] = count
        entries[before - np.uint64(1)] = new
        if old_at == new_at - 1:
            old_count = new_count
    if entries[old_count] > 0:
        return end
    last = np.uint64(2 * end - 1)
    entries[old_count] = entries[last]
    entries[old_count - np.uint64(1)] = entries[last - np.uint64(1)]
    return end - 1


@inlined
def _moved(own, cell, document, token, word, old, new):
    """Move the token in the list of its word, and mend the tree; 100 ns."""
    kept, alpha, (level_ptr,) = own.kept[0], cell.alpha, cell.extra
    start, end = own.bounds[np.uint64(2 * word)], own.bounds[np.uint64(2 * word + 1)]
    own.bounds[np.uint64(2 * word + 1)] = _move_entry(own.entries, start, end, kept.old_at, kept.new_at, new)
    for k in (old, new):
        weight = alpha[k] * document.inverse[k]
        kept.smooth = ftree.put(own.spread, level_ptr, own.sums, kept.smooth, k, weight)


_loop = document_loop(_begin, _draw, _moved, fetch_lists)


@kernel
def sample_sparse(cell):
    """Sample the tokens of a `Cell` whose extra is the `ftree.level_offsets` of K; see `document_loop`."""
    return _loop(cell)


@dataclass(frozen=True)
class SparseLDA(DocumentLDA):
    """Latent Dirichlet allocation by collapsed Gibbs sampling, document by document, with sparse sums.

    With one shard the sampler is exact; with more, topic totals are stale (`SequentialProgram`).

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, topics_of_word,
    from_passages, hot_priors, hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds, far
        As in `TopicProgram`.
    """

    sampler: ClassVar[str] = "sparse"
    kernel = staticmethod(sample_sparse)

    def extra(self, at: At) -> tuple[Any, ...]:
        """Return the levels of the tree."""
        return (freeze(ftree.level_offsets(self.n_components)),)
