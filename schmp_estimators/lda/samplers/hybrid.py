"""Gibbs sampling word by word, with Metropolis–Hastings for long documents.

This is the sampler of LDA* (Yu et al., VLDB 2017, §3.2).

A token of a short document is drawn from its conditional, as in `fplus`: that takes time for every
topic of the document.  A token of a long one makes proposals instead, by turns from its word and
from its document, all counts being live and without the token itself::

    from the word       q(k) proportional to alpha_k (n_wk + beta) / (n_k + V beta)
                        accept by  (n_dk + alpha_k) / alpha_k
    from the document   q(k) proportional to n_dk + alpha_k
                        accept by  (n_wk + beta) / (n_k + V beta)

The first are drawn from the F+ tree of "fplus".  The second are the topic of a random other token
of the document, or a topic drawn from the prior.  Both proposals and both acceptances use exact
counts, so the sampler is exact, too.  Random bits are addressed by the token's rank among the
tokens of its word.

With ``mh_steps="acceptance"`` a token makes ⌈1/π⌉ proposals, where π is the share of proposals that
were accepted in the sweep before: then about one is accepted, as if drawn from the conditional
(§3.2.2).  π is a ratio of integers, summed over all shards.  A sweep keeps the posterior, however
many proposals there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
from numpy import uint64 as index

from schmp_estimators.core.typing import Floats, Integers, IntPair, Named
from schmp_estimators.lda.samplers import fplus
from schmp_estimators.sampling import (
    GAMMA,
    At,
    Cell,
    SweepModel,
    find_in_tree,
    first_above,
    freeze,
    inlined,
    kernel,
    mix,
    part,
    place_of,
    uniform24,
    uniform40,
    word_loop,
)

#: The most proposals for a token in a sweep.
MOST_STEPS = 16


class Proposing(NamedTuple):
    """What the sampler needs beside the counts."""

    level_ptr: Integers
    #: Documents with more tokens make proposals: so many for each token, with this stream of random
    #: numbers.
    long_document: int
    n_steps: int
    key: np.uint64
    #: (K,) cumulative sums of the document-topic priors.
    alpha_ends: Floats
    #: (2,) tokens that have made proposals, and proposals accepted; mutated.
    counted: Integers


@inlined
def _tokens_in(lists, d, topic):
    """Return how many tokens a document has in a topic."""
    end = lists.ptr[d] + lists.length[d]
    at = place_of(lists.topic, lists.ptr[d], end, topic)
    return np.int64(lists.tokens[at]) if at < index(end) else np.int64(0)


@inlined
def _propose_by_document(cell, token, d, uniform):
    """Return a topic drawn from document d without a token, given a number in [0, 1)."""
    first = cell.shard.doc_ptr[d]
    last = cell.shard.doc_ptr[d + index(1)]
    ends = cell.extra.alpha_ends
    n_others = last - first - 1
    y = uniform * (np.float64(n_others) + ends[-1])
    if y < np.float64(n_others):
        at = index(cell.shard.place[index(first + np.int64(y))])
        if at == token:
            at = index(cell.shard.place[index(last - 1)])
        return index(cell.state.topic[at])
    return index(first_above(ends, 0, len(ends), y - np.float64(n_others)))


@part
def _draw_by_proposals(own, cell, row, token, old, counter):
    """Return the new topic of a token.

    If it is another one, the token is then left out, as in `fplus.draw`.
    """
    lists = cell.state.lists
    doing = cell.extra
    q = own.q
    alpha = cell.alpha
    kept = own.kept[0]
    d = index(cell.state.document[token])
    before = q[old]
    smooth_before = kept.smooth
    old_at = place_of(lists.topic, lists.ptr[d], lists.ptr[d] + lists.length[d] - 1, old)
    fplus.put(own, cell, old, (row.tokens[old] - 1 + cell.beta) * row.inverse_less[old])
    lists.tokens[old_at] -= 1
    new = old
    count = np.int64(lists.tokens[old_at])
    counter = doing.key + (counter - cell.key) * np.uint64(doing.n_steps)
    doing.counted[0] += 1
    for step in range(doing.n_steps):
        bits = mix(counter + np.uint64(step) * GAMMA)
        proposed = old
        uniform = uniform40(bits)
        if step & 1:
            proposed = _propose_by_document(cell, token, d, uniform)
            accept = np.float64(uniform24(bits)) * q[new] < q[proposed]
            proposed_count = _tokens_in(lists, d, proposed) if accept else count
        else:
            proposed = index(
                find_in_tree(own.leaves, doing.level_ptr, own.sums, uniform * kept.smooth)
            )
            proposed_count = _tokens_in(lists, d, proposed)
            answer = np.float64(uniform24(bits)) * ((count + alpha[new]) / alpha[new])
            accept = answer < (proposed_count + alpha[proposed]) / alpha[proposed]
        if accept:
            doing.counted[1] += 1
            new, count = proposed, proposed_count
    if new == old:
        lists.tokens[old_at] += 1
        fplus.put(own, cell, old, before)
        kept.smooth = smooth_before
    else:
        kept.old_at = old_at
        kept.new_at = place_of(lists.topic, lists.ptr[d], lists.ptr[d] + lists.length[d], new)
    return new


@inlined
def _draw(own, cell, row, token, word, old, counter):
    """Return the new topic of a token."""
    d = index(cell.state.document[token])
    if cell.shard.doc_ptr[d + index(1)] - cell.shard.doc_ptr[d] > cell.extra.long_document:
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
    """Latent Dirichlet allocation by Gibbs sampling, with Metropolis–Hastings in long documents.

    The Gibbs sampling is collapsed.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, hot_priors,
    hot_sweeps, own_alphas, learn_every, drawn_alphas, seed_totals, begins_seeded, far
        As in `TopicSampler`.
    mh_steps : int, at least 1, or "acceptance"
        Proposals for each token of a long document in a sweep; by acceptance, at most `MOST_STEPS`.
    long_document : int
        Documents with more tokens are sampled by proposals, if there are more topics than that,
        too.
    before : tuple of two ints
        Proposals in the sweep before the first one, and how many were accepted; by default, two
        steps follow.
    """

    mh_steps: int | str = 2
    long_document: int = 600
    before: IntPair = field(default=(2, 1), repr=False, compare=False)

    def takes(self, mh_steps: int | str, size: int) -> bool:
        """Return whether so many proposals are made, given topics and the longest document."""
        steps = range(1, MOST_STEPS + 1)
        return size > self.long_document and (mh_steps == "acceptance" or mh_steps in steps)

    @staticmethod
    def kernel(cell: Cell) -> Integers:
        """Sample; return how many tokens moved and proposed, and proposals, all and accepted."""
        moved = sample_hybrid(cell)
        n_tokens, accepted = cell.extra.counted
        return np.array([moved, n_tokens, n_tokens * cell.extra.n_steps, accepted])

    def following(self, history: Sequence[Named]) -> Self:
        """Return the program of a run that goes on after these records."""
        last = history[-1]
        return (
            replace(self, before=(last["proposals"], last["accepted"]))
            if "proposals" in last
            else self
        )

    def moves(self, model: SweepModel) -> Named:
        """Return how many tokens moved, the s-error, and if there were proposals, their numbers."""
        moved, n_tokens, proposals, accepted = np.resize(model.moved, 4).tolist()
        found = super().moves(model._replace(moved=moved))
        if n_tokens:
            found |= {
                "mh_steps": proposals // n_tokens,
                "proposals": proposals,
                "accepted": accepted,
            }
        return found

    def _n_steps(self, model: SweepModel) -> int:
        """Return how many proposals a token makes in the next sweep."""
        if self.mh_steps != "acceptance":
            return int(self.mh_steps)
        proposals, accepted = model.moved[2:] if np.ndim(model.moved) else self.before
        return min(-(-int(proposals) // int(accepted)), MOST_STEPS) if accepted else MOST_STEPS

    def extra(self, at: At) -> Proposing:
        """Return the levels of the tree, and how long documents make proposals."""
        limit = (
            self.long_document if self.n_components > self.long_document else np.iinfo(np.int64).max
        )
        (level_ptr,) = super().extra(at)
        key = self.key(at, 1)
        return Proposing(
            level_ptr,
            limit,
            self._n_steps(at.model),
            key,
            freeze(np.cumsum(self.alphas(at.sweep, at.model))),
            np.zeros(2, np.int64),
        )
