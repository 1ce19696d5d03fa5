"""Metropolis–Hastings with constant time for each token, document by document.

This is LightLDA (Yuan et al., WWW 2015).

A token of word w in document d is offered topics in turn by its word and by its document, all
counts without the token itself::

    by the word      q(t) proportional to n_wt + beta
                     accepted with f_t / f_s,  f_k = (n_dk + alpha_k) / (n_k + V beta)
    by the document  q(t) proportional to n_dt + alpha_t
                     accepted with g_t / g_s,  g_k = (n_wk + beta) / (n_k + V beta)

Both draw either the topic of a random other token, of the word or of the document, or from the
prior, which includes the seeds of the word.  The paper draws from the document in this way, but
from the word by an alias table, which is made of older counts and includes the token itself.  Here
topics of tokens are up to date, and the token itself is left out.  So both proposals are
independent of the present topic, the counts that they are drawn from cancel in the acceptance, and
with one shard the sampler is exact.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy import uint64 as index

from schmp_estimators.core.typing import Arguments, Floats, Integers, Integers32
from schmp_estimators.sampling import (
    GAMMA,
    At,
    DocumentSampler,
    WordBlock,
    add_to,
    beta_of,
    build_alias,
    cell_of,
    copy_to,
    count_of,
    document_loop,
    draw_alias,
    draw_of_prior,
    inlined,
    kernel,
    make_rows,
    maker,
    mix,
    nothing,
    part,
    prefetch,
    prior_mass,
    take_one,
    uniform24,
    uniform40,
)


@maker
def _fill_slots(cell):
    """Return the block of a `Cell` with lists for all words, and the array `shift` of `Light`.

    The block is as the shard sees it.

    Slot ``r`` of the list of a word is its token of rank ``r`` in document order.  Tail words have
    such lists already.  Of a head word the shard knows only its own tokens one by one.  The topics
    of other shards' tokens, which do not change in this cell, fill the other slots, in topic order.

    Notes
    -----
    1 ns per token of the block, 3 ns for one of a head word.
    """
    shard = cell.shard
    block = cell.block
    visits = cell.state.visits
    topic = cell.state.topic
    first = cell.first
    n_heads = len(block.heads)
    n_words = n_heads + len(block.tail_ptr) - 1
    ptr = np.zeros(n_words + 1, np.int64)
    shift = np.empty(n_words, np.int64)
    for word in range(n_words):
        ptr[word + 1] = ptr[word] + shard.word_total[first + word]
        shift[word] = ptr[word] + shard.word_rank[first + word] - shard.word_ptr[first + word]
    slots = np.empty(ptr[n_words], topic.dtype)
    copy_to(block.tails, slots[ptr[n_heads] :])
    if n_heads > 0:
        rest = block.heads.copy()
        for visit in range(visits.ptr[cell.number, 0], visits.ptr[cell.number, -1]):
            word = visits.word[visit]
            if word < n_heads:
                token = visits.token[visit]
                k = topic[token]
                slots[shift[word] + np.int64(shard.place[token])] = k
                rest[word, k] -= 1
        for word in range(n_heads):
            own = shard.word_ptr[first + word] + shift[word]
            own_end = shard.word_ptr[first + word + 1] + shift[word]
            at = ptr[word]
            for k in range(rest.shape[1]):
                for _ in range(rest[word, k]):
                    if at == own:
                        at = own_end
                    slots[at] = k
                    at += 1
    return WordBlock(block.heads[:0], ptr, slots), shift


class Light(NamedTuple):
    """What the sampler keeps."""

    #: From `kernels.rows.make_rows`.
    rows: Integers
    cells: Integers32
    #: From `_fill_slots`; and (n_words,) what has to be added to a token's place in word-major
    #: order to get its slot.
    slots: WordBlock
    shift: Integers
    #: (K,) the alias table of the document-topic prior, and (1,) the prior's sum.
    share: Floats
    other: Integers32
    alpha_sum: Floats


@maker
def _begin(cell):
    """Return what is kept of a block."""
    n_topics = len(cell.total)
    rows, cells = make_rows(cell.block, n_topics)
    share = np.empty(n_topics)
    other = np.empty(n_topics, np.int32)
    alpha_sum = np.empty(1)
    alpha_sum[0] = build_alias(cell.alpha, share, other, np.empty(n_topics, np.int32))
    return Light(rows, cells, *_fill_slots(cell), share, other, alpha_sum)


@inlined
def row_of(own, word):
    """Return where the row of a word begins in `cells`, and its mask."""
    return own.rows[index(2 * word)], own.rows[index(2 * word + 1)]


@inlined
def _point(bits, total):
    """Return a point between 0 and `total`, from the bits for proposals."""
    return uniform40(bits) * total


@inlined
def _fetch(own, cell, near, far):
    """Fetch the rows of words that come later."""
    slots = own.slots
    visits = cell.state.visits
    prefetch(own.rows, 2 * far)
    prefetch(slots.tail_ptr, far)
    prefetch(own.shift, far)
    coming = np.int64(visits.word[near])
    token = index(visits.token[near])
    start, mask = row_of(own, coming)
    prefetch(own.cells, cell_of(start, mask, cell.state.topic[token]))
    at = slots.tail_ptr[index(coming)]
    n = slots.tail_ptr[index(coming + 1)] - at
    address = index(cell.shard.first_token) + token
    bits = mix(cell.key + address * np.uint64(cell.n_random) * GAMMA)
    prefetch(slots.tails, at + np.int64(_point(bits, n - 1.0)))


@inlined
def _propose_by_word(own, cell, word, own_slot, n_slots, x):
    """Return the topic at x in the word's `n_slots` other tokens, then its prior.

    `own_slot` is left out.
    """
    slots = own.slots
    if x < n_slots:
        at = slots.tail_ptr[index(word)] + np.int64(x)
        return index(slots.tails[index(at + 1 if at >= own_slot else at)])
    n_topics = len(cell.total)
    point = x - n_slots
    smooth = n_topics * cell.beta
    return index(
        draw_of_prior(cell.seeds, cell.first + word, point, smooth, point / cell.beta, n_topics)
    )


@inlined
def _propose_by_document(own, cell, document, token, n_others, x):
    """Return the topic at x in the document's other tokens, and then its prior."""
    if x < n_others:
        at = document.now[0].start + np.int64(x)
        return index(cell.state.topic[index(at + 1 if at >= np.int64(token) else at)])
    y = (x - n_others) / own.alpha_sum[0]
    return index(draw_alias(own.share, own.other, 0, len(own.share), y))


@inlined
def weigh(own, cell, document, word, topic, less):
    """Return what the word weighs in a topic without `less` tokens: the token itself, or none."""
    start, mask = row_of(own, word)
    count = (
        count_of(own.cells, start, mask, topic)
        - less
        + beta_of(cell.seeds, cell.first + word, topic, cell.beta)
    )
    return count * (document.inverse_less[topic] if less else document.inverse[topic])


@inlined
def _draw(own, cell, document, token, word, old, counter):
    """Return the new topic of a token, after `cell.n_random` proposals.

    35 ns for each, whatever K.
    """
    slots = own.slots
    s = old
    n_slots = slots.tail_ptr[index(word + 1)] - slots.tail_ptr[index(word)] - 1
    own_slot = own.shift[index(word)] + np.int64(cell.shard.place[token])
    word_mass = n_slots + prior_mass(cell.seeds, cell.first + word, cell.beta, len(cell.total))
    n_others = document.now[0].end - document.now[0].start - 1
    # What document and word weigh in the topic of the token without it.
    factor = (document.tokens[old] - 1 + cell.alpha[old]) * document.inverse_less[old]
    weight = weigh(own, cell, document, word, old, 1)
    for step in range(cell.n_random):
        bits = mix(counter)
        counter += GAMMA
        if cell.extra[step & 1]:
            t = _propose_by_word(own, cell, word, own_slot, n_slots, _point(bits, word_mass))
            s_answer = factor if s == old else document.factor[s]
            t_answer = factor if t == old else document.factor[t]
        else:
            t = _propose_by_document(
                own, cell, document, token, n_others, _point(bits, n_others + own.alpha_sum[0])
            )
            s_answer = weight if s == old else weigh(own, cell, document, word, s, 0)
            t_answer = weight if t == old else weigh(own, cell, document, word, t, 0)
        if t != s and np.float64(uniform24(bits)) * s_answer < t_answer:
            s = t
    if s != old:
        slots.tails[index(own_slot)] = s
    return s


@inlined
def moved(own, cell, document, token, word, old, new):
    """Move the token in the row of its word."""
    start, mask = row_of(own, word)
    take_one(own.cells, start, mask, old)
    add_to(own.cells, start, mask, new, np.int32(1))


@part
def _write_back(own, cell):
    """Write the topics of the slots to the rows of the block.

    1 ns per token, where writing each at once takes 50.
    """
    block = cell.block
    slots = own.slots
    copy_to(slots.tails[slots.tail_ptr[len(block.heads)] :], block.tails)
    block.heads[:] = 0
    for word in range(len(block.heads)):
        for i in range(slots.tail_ptr[word], slots.tail_ptr[word + 1]):
            block.heads[word, np.uint32(slots.tails[index(i)])] += 1


_loop = document_loop(_begin, _draw, moved, _fetch, nothing, _write_back)


@kernel
def sample_light(cell):
    """Sample the tokens of a `Cell`; see `document_loop`.

    Its extra says of two proposals that follow each other whether they are those of the word.
    5 ns for each of the block's tokens, of whichever shard, beside what the loop takes.
    """
    return _loop(cell)


@dataclass(frozen=True)
class LightLDA(DocumentSampler):
    """Latent Dirichlet allocation by Metropolis–Hastings.

    A token's word and its document make proposals in turn.

    With one shard the sampler is exact; with more, topic totals are stale (`SequentialSampler`).

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, hot_priors,
    hot_sweeps, own_alphas, learn_every, drawn_alphas, seed_totals, begins_seeded, far
        As in `TopicSampler`.
    mh_steps : int, at least 1
        Proposals of the word, and of the document, for each token in a sweep.
    """

    kernel = staticmethod(sample_light)
    #: See `sample_light`.
    kinds: ClassVar[tuple[bool, bool]] = True, False

    mh_steps: int = 2

    def takes(self, mh_steps: int | str, size: int) -> bool:
        """Return whether it makes so many proposals."""
        return mh_steps in range(1, 17)

    @property
    def n_random(self) -> int:
        """How many random numbers a token may use."""
        return 2 * int(self.mh_steps)

    def extra(self, at: At) -> Arguments:
        """Return which proposals there are."""
        return self.kinds
