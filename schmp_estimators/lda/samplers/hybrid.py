"""Gibbs sampling word by word, where long documents are left to Metropolis–Hastings (LDA*: Yu et al., VLDB 2017, §3.2).

A token of a short document is drawn from its conditional, as in `fplus`: that takes time for every topic of the
document.  A token of a long one makes proposals instead, by turns from its word and from its document, all counts being
live and without the token itself::

    from the word       q(k) proportional to alpha_k (n_wk + beta) / (n_k + V beta)
                        accept by  (n_dk + alpha_k) / alpha_k
    from the document   q(k) proportional to n_dk + alpha_k
                        accept by  (n_wk + beta) / (n_k + V beta)

The first are drawn from the F+ tree of "fplus".  The second are the topic of a random other token of the document, or
a topic drawn from the prior.  Both proposals and both acceptances use exact counts, so the sampler is exact, too.
Random bits are addressed by the token's rank among the tokens of its word.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import inlined, kernel, part
from schmp_estimators.core.rng import GAMMA, MASK_PROPOSE, SCALE_PROPOSE, mix, stream_key
from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.kernels import ftree
from schmp_estimators.lda.kernels.draw import first_above, uniform24
from schmp_estimators.lda.kernels.lists import place_of
from schmp_estimators.lda.samplers import fplus
from schmp_estimators.lda.samplers.words import word_loop

#: Stream of random numbers of proposals.
_PROPOSALS = 1


class Proposing(NamedTuple):
    """What the sampler needs beside the counts."""

    level_ptr: NDArray[np.int64]
    #: Documents with more tokens make proposals: so many for each token, with this stream of random numbers.
    long_document: int
    n_steps: int
    key: np.uint64
    #: (K,) cumulative sums of the document-topic priors.
    alpha_ends: NDArray[np.float64]


@inlined
def _tokens_in(lists, d, topic):
    """Return how many tokens a document has in a topic."""
    end = lists.ptr[d] + lists.length[d]
    at = place_of(lists.topic, lists.ptr[d], end, topic)
    return np.int64(lists.tokens[at]) if at < np.uint64(end) else np.int64(0)


@inlined
def _propose_by_document(cell, token, d, uniform):
    """Return a topic drawn from document d without a token, given a number in [0, 1)."""
    first, last, ends = (
        cell.shard.doc_ptr[d],
        cell.shard.doc_ptr[d + np.uint64(1)],
        cell.extra.alpha_ends,
    )
    n_others = last - first - 1
    y = uniform * (np.float64(n_others) + ends[-1])
    if y < np.float64(n_others):
        at = np.uint64(cell.shard.place[np.uint64(first + np.int64(y))])
        if at == token:
            at = np.uint64(cell.shard.place[np.uint64(last - 1)])
        return np.uint64(cell.state.topic[at])
    return np.uint64(first_above(ends, 0, len(ends), y - np.float64(n_others)))


@part
def _draw_by_proposals(own, cell, row, token, old, counter):
    """Return the new topic of a token; if it is another one, the token is then left out, as in `fplus.draw`."""
    lists, doing, q, alpha, kept = cell.state.lists, cell.extra, own.q, cell.alpha, own.kept[0]
    d, before, smooth_before = np.uint64(cell.state.document[token]), q[old], kept.smooth
    old_at = place_of(lists.topic, lists.ptr[d], lists.ptr[d] + lists.length[d] - 1, old)
    fplus.put(own, cell, old, (row.tokens[old] - 1 + cell.beta) * row.inverse_less[old])
    lists.tokens[old_at] -= 1
    new, count = old, np.int64(lists.tokens[old_at])
    counter = doing.key + (counter - cell.key) * np.uint64(doing.n_steps)
    for step in range(doing.n_steps):
        bits = mix(counter + np.uint64(step) * GAMMA)
        proposed, uniform = old, np.float64(np.int64(bits & MASK_PROPOSE)) * SCALE_PROPOSE
        if step & 1:
            proposed = _propose_by_document(cell, token, d, uniform)
            accept = np.float64(uniform24(bits)) * q[new] < q[proposed]
            proposed_count = _tokens_in(lists, d, proposed) if accept else count
        else:
            proposed = np.uint64(
                ftree.find(own.leaves, doing.level_ptr, own.sums, uniform * kept.smooth)
            )
            proposed_count = _tokens_in(lists, d, proposed)
            answer = np.float64(uniform24(bits)) * ((count + alpha[new]) / alpha[new])
            accept = answer < (proposed_count + alpha[proposed]) / alpha[proposed]
        if accept:
            new, count = proposed, proposed_count
    if new == old:
        lists.tokens[old_at] += 1
        fplus.put(own, cell, old, before)
        kept.smooth = smooth_before
    else:
        kept.old_at, kept.new_at = (
            old_at,
            place_of(lists.topic, lists.ptr[d], lists.ptr[d] + lists.length[d], new),
        )
    return new


@inlined
def _draw(own, cell, row, token, word, old, counter):
    """Return the new topic of a token."""
    d = np.uint64(cell.state.document[token])
    if cell.shard.doc_ptr[d + np.uint64(1)] - cell.shard.doc_ptr[d] > cell.extra.long_document:
        new = _draw_by_proposals(own, cell, row, token, old, counter)
    else:
        new = fplus.draw(own, cell, row, token, word, old, counter)
    return new


_loop = word_loop(fplus.begin, _draw, fplus.moved, fplus.enter, fplus.leave, fplus.fetch)


@kernel
def sample_hybrid(cell):
    """Sample the tokens of a `Cell` whose extra is `Proposing`; see `word_loop`."""
    return _loop(cell)


@dataclass(frozen=True)
class HybridLDA(fplus.FPlusLDA):
    """Latent Dirichlet allocation by collapsed Gibbs sampling, with Metropolis–Hastings for long documents.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, hot_priors,
    hot_sweeps, own_alphas, learn_every, drawn_alphas, seeds, far
        As in `TopicProgram`.
    mh_steps : int, at least 1
        Proposals for each token of a long document in a sweep.
    long_document : int
        Documents with more tokens are sampled by proposals, if there are more topics than that, too.
    """

    kernel = staticmethod(sample_hybrid)

    mh_steps: int = 2
    long_document: int = 600

    def extra(self, at: At) -> Proposing:
        """Return the levels of the tree, and how long documents make proposals."""
        limit = (
            self.long_document if self.n_components > self.long_document else np.iinfo(np.int64).max
        )
        (level_ptr,) = super().extra(at)
        key = stream_key(self.seed, at.sweep, _PROPOSALS)
        return Proposing(
            level_ptr,
            limit,
            int(self.mh_steps),
            key,
            freeze(np.cumsum(self.alphas(at.sweep, at.model))),
        )
