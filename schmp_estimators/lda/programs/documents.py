"""The loop over documents that samplers share.

A sampler is a file like `sparse`.  It defines what it keeps for a block of words (`begin`) and how
a token gets its topic (`draw`).  It may define how a token that has moved changes what is kept
(`moved`), and what to load into the cache early (`fetch`).  `document_loop` makes a loop of these
functions, and a kernel of one line compiles it.

All counts are up to date at every token.  The loop keeps those of the document and the totals of
topics; the rows of words are in the `Cell`.  What the sampler keeps is made anew for every cell.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.jit import index, inlined, maker, part, ready
from schmp_estimators.core.rng import GAMMA
from schmp_estimators.core.stages import At
from schmp_estimators.core.typing import AnySigned, Array, Floats, Integers, Integers32, Unsigned32
from schmp_estimators.core.values import offsets_of, part_of_each
from schmp_estimators.lda.blocks import TokenShard, words_of_places
from schmp_estimators.lda.data.topic_rows import WordParts
from schmp_estimators.lda.programs.sequential import (
    SequentialSampler,
    inverse_totals,
    move_total,
    nothing,
    write_row,
)


class Visits(NamedTuple):
    """The tokens of each block of words in document order."""

    #: (n_blocks, n_docs + 1) offsets of the documents in each block, in the arrays below.
    ptr: Integers
    #: (n_tokens,) number of the token in document order.
    token: Unsigned32
    #: (n_tokens,) number of its word in the block.
    word: Integers32


def order_visits(shard: TokenShard) -> Visits:
    """Return the tokens of a shard, divided by the blocks of their words."""
    n_blocks = len(shard.block_ptr) - 1
    n_docs = len(shard.doc_ptr) - 1
    word = words_of_places(shard)[shard.place]
    block = part_of_each(np.diff(shard.block_ptr), np.int16)[word]
    documents = part_of_each(np.diff(shard.doc_ptr))
    sizes = np.bincount(block * np.int64(n_docs) + documents, minlength=n_blocks * n_docs)
    first = n_docs * np.arange(n_blocks)[:, None]
    ptr = offsets_of(sizes)[first + np.arange(n_docs + 1)]
    token = np.argsort(block, kind="stable").astype(np.uint32)
    word -= shard.block_ptr[block].astype(np.int32)
    return Visits(ptr, token, word[token])


#: Scalars of a document: `start` and `end`, where its tokens begin and end in document order;
#: `n_listed`, how many topics they have; `sum`, the sum of `Document.part`; `version`, which grows
#: with every token that moves, and with every document.
_NOW = np.dtype(
    [("start", "i8"), ("end", "i8"), ("n_listed", "i8"), ("sum", "f8"), ("version", "i8")]
)


#: How many tokens ahead rows and lists of words, and before that their bounds, are fetched into the
#: cache.
_NEAR, _FAR = 8, 16


class Document(NamedTuple):
    """The counts of the current document, all tokens included, and values computed from them."""

    #: (1,) see `_NOW`.
    now: NDArray[np.void]
    #: (K,) tokens of each topic: n_dk.
    tokens: Integers32
    #: (K,) its topics, and where among them each topic is.
    listed: Integers32
    place: Integers32
    #: (K,) ``1 / (n_k + V beta)``, and the same with one token less.
    inverse: Floats
    inverse_less: Floats
    #: (K,) ``n_dk * inverse`` and ``(n_dk + alpha_k) * inverse``.
    part: Floats
    factor: Floats


@inlined
def find_in_document(document, skipped, point):
    """Return the topic at `point` in the sum of `part` without `skipped`, and the sum up to it.

    Beyond all topics it returns `skipped`.
    """
    found = skipped
    before = 0.0
    for j in range(document.now[0].n_listed):
        k = index(document.listed[index(j)])
        if k != skipped:
            before += document.part[k]
            if before > point:
                found = k
                break
    return found, before


@inlined
def is_rounding(rest, whole):
    """Return whether a sum's rest, after a term was taken out, may be only rounding errors."""
    return rest < 1e-9 * whole


@inlined
def sum_others(document, skipped):
    """Return the sum of `part` over the topics but one."""
    total = document.now[0].sum - document.part[skipped]
    if is_rounding(total, document.now[0].sum):
        _, total = find_in_document(document, skipped, np.inf)
    return total


@inlined
def _weigh(cell, document, k):
    """Compute the values that depend on the counts of a topic."""
    document.part[k] = document.tokens[k] * document.inverse[k]
    document.factor[k] = (document.tokens[k] + cell.alpha[k]) * document.inverse[k]


@inlined
def _list(document, k):
    """Put a topic at the end of the document's list."""
    now = document.now[0]
    document.place[k] = now.n_listed
    document.listed[index(now.n_listed)] = k
    now.n_listed += 1


@part
def _enter(cell, document, d):
    """Count the topics of a document."""
    now = document.now[0]
    topic = cell.state.topic
    now.start = cell.shard.doc_ptr[d]
    now.end = cell.shard.doc_ptr[d + 1]
    now.n_listed = 0
    now.sum = 0.0
    now.version += 1
    for i in range(now.start, now.end):
        k = index(topic[index(i)])
        if document.tokens[k] == 0:
            _list(document, k)
        document.tokens[k] += 1
    for j in range(now.n_listed):
        k = index(document.listed[j])
        _weigh(cell, document, k)
        now.sum += document.part[k]


@part
def _leave(cell, document):
    """Set all counts to those of an empty document."""
    for j in range(document.now[0].n_listed):
        k = index(document.listed[j])
        document.tokens[k] = 0
        _weigh(cell, document, k)


@inlined
def write_at_once(own, cell, token, word, old, new):
    """Give a token its new topic in the row of its word."""
    write_row(cell, np.int64(cell.shard.place[token]), word, old, new)


@inlined
def _move(cell, document, token, old, new):
    """Give a token its new topic, in all counts but those of its word."""
    now = document.now[0]
    tokens = document.tokens
    cell.state.topic[token] = new
    now.version += 1
    now.sum -= document.part[old] + document.part[new]
    tokens[old] -= 1
    tokens[new] += 1
    if tokens[new] == 1:
        _list(document, new)
    if tokens[old] == 0:
        now.n_listed -= 1
        last = document.listed[index(now.n_listed)]
        document.listed[index(document.place[old])] = last
        document.place[index(last)] = document.place[old]
    move_total(cell, document.inverse, document.inverse_less, old, new)
    _weigh(cell, document, old)
    _weigh(cell, document, new)
    now.sum += document.part[old] + document.part[new]


@maker
def _no_document(cell):
    """Return an empty `Document`."""
    n_topics = len(cell.total)
    inverse, inverse_less = inverse_totals(cell)
    tokens = np.zeros(n_topics, np.int32)
    listed = np.empty(n_topics, np.int32)
    place = np.empty(n_topics, np.int32)
    now = np.zeros(1, _NOW)
    part = np.zeros(n_topics)
    factor = np.empty(n_topics)
    document = Document(now, tokens, listed, place, inverse, inverse_less, part, factor)
    for k in range(n_topics):
        _weigh(cell, document, k)
    return document


def document_loop(
    begin: Any,
    draw: Any,
    moved: Any = nothing,
    fetch: Any = nothing,
    write: Any = write_at_once,
    end: Any = nothing,
) -> Any:
    """Return a kernel: a loop over tokens that calls these functions.

    It takes a `Cell`, and returns how many tokens moved to another topic.

    Parameters
    ----------
    begin : ``begin(cell) -> own``
        Returns a tuple of arrays, ``own`` below.  Compiled by `core.jit.maker`.
    draw : ``draw(own, cell, document, token, word, old, counter) -> topic``
        Returns the new topic (uint64) of a token, given its number in document order and its topic
        (both uint64), and its word in the block.  All counts include the token.  Its random bits
        are ``mix(counter)``, ``mix(counter + GAMMA)`` and so on, ``n_random`` of them.  Compiled by
        `core.jit.inlined`, like the functions below.
    moved : ``moved(own, cell, document, token, word, old, new)``, optional
        Called after a move, when all counts have changed.
    fetch : ``fetch(own, cell, near, far)``, optional
        Called before each token but the last ones.  ``near`` is the number, in
        ``cell.state.visits``, of a token that comes soon, and ``far`` is the word of a later one.
    write : ``write(own, cell, token, word, old, new)``, optional
        Writes the new topic of a token into the rows of the block; by default at once.
    end : ``end(own, cell)``, optional
        Called after the last token.

    Notes
    -----
    The loop itself takes 2 ns for each token of the document, in any block.
    """
    begin = ready(begin, maker)
    draw, moved, fetch, write, end = map(ready, (draw, moved, fetch, write, end))

    @maker
    def sample_documents(cell):
        own = begin(cell)
        document = _no_document(cell)
        n_moved = 0
        visit_ptr = cell.state.visits.ptr[cell.number]
        visits = cell.state.visits
        topic = cell.state.topic
        for d in range(len(visit_ptr) - 1):
            if visit_ptr[d] == visit_ptr[d + 1]:
                continue
            _enter(cell, document, d)
            for visit in range(visit_ptr[d], visit_ptr[d + 1]):
                if visit + _FAR < visit_ptr[-1]:
                    near = index(visit + _NEAR)
                    fetch(own, cell, near, np.int64(visits.word[index(visit + _FAR)]))
                token = index(visits.token[index(visit)])
                word = np.int64(visits.word[index(visit)])
                old = index(topic[token])
                address = index(cell.shard.first_token) + token
                counter = cell.key + address * np.uint64(cell.n_random) * GAMMA
                new = draw(own, cell, document, token, word, old, counter)
                if new != old:
                    n_moved += 1
                    _move(cell, document, token, old, new)
                    write(own, cell, token, word, old, new)
                    moved(own, cell, document, token, word, old, new)
            _leave(cell, document)
        end(own, cell)
        return n_moved

    return sample_documents


class DocumentState(NamedTuple):
    """What changes of a shard, and `visits`, which are kept because they take long to make."""

    #: (n_tokens,) topics in document order; see `topic_dtype`.
    topic: AnySigned
    visits: Visits
    #: (K,) the shard's tokens of each topic.
    total: Integers


class DocumentSampler(SequentialSampler[DocumentState]):
    """Base of samplers that go document by document within a cell.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, hot_priors,
    hot_sweeps, own_alphas, learn_every, drawn_alphas, seed_totals, begins_seeded, far
        As in `TopicSampler`.
    """

    def restore(self, at: At, saved: AnySigned) -> tuple[DocumentState, WordParts]:
        """Return topics that were saved in document order, and the order of the visits."""
        shard = at.shard
        topic, _, total = self.begun(at, saved)
        state = DocumentState(topic, order_visits(shard), total)
        return state, self.parts(at, state)

    def by_word(self, at: At, state: DocumentState) -> Array:
        """Return the topics of a shard's tokens in word-major order."""
        topic = np.empty_like(state.topic)
        topic[at.shard.place] = state.topic
        return topic

    def save(self, at: At, state: DocumentState) -> AnySigned:
        """Return the topics in document order."""
        return state.topic

    def state_bytes(self) -> int:
        """Return how many bytes of a shard's state there are for each token.

        They are for its topic, and for how it is visited.
        """
        return super().state_bytes() // 6 + 8
