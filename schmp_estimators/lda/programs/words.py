"""The loop over words that samplers share.

It is the counterpart of `documents`: tokens are in word-major order, the row of the present word is
dense, and the topics of documents are short lists.
"""

from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.jit import index, inlined, maker, part, ready
from schmp_estimators.core.rng import GAMMA
from schmp_estimators.core.stages import At
from schmp_estimators.core.typing import AnySigned, Floats, Integers, Integers32, Unsigned32
from schmp_estimators.lda.data.topic_rows import WordParts, list_topics
from schmp_estimators.lda.kernels.lists import TopicLists, order_lists
from schmp_estimators.lda.kernels.priors import add_seeds, make_row
from schmp_estimators.lda.kernels.rows import add_row
from schmp_estimators.lda.programs.sequential import (
    SequentialSampler,
    inverse_totals,
    move_total,
    nothing,
    write_row,
)


class Row(NamedTuple):
    """The counts of the current word, all its tokens included, and of all topics."""

    #: (K,) tokens of each topic: n_wk, int32; float64, with its seeds, where words are seeded.
    tokens: Integers32
    #: (K,) ``1 / (n_k + V beta)``, and the same with one token less.
    inverse: Floats
    inverse_less: Floats


@maker
def _no_word(cell):
    """Return the Row that has no tokens."""
    inverse, inverse_less = inverse_totals(cell)
    return Row(make_row(cell.seeds, len(cell.total)), inverse, inverse_less)


@part
def _clear(cell, word, is_seeded, tokens):
    """Set the row of a word to zero."""
    block = cell.block
    tail = word - len(cell.block.heads)
    if tail < 0 or is_seeded:
        tokens[:] = 0
        return
    for i in range(block.tail_ptr[tail], block.tail_ptr[tail + 1]):
        tokens[np.uint32(block.tails[index(i)])] = 0


@inlined
def _move(cell, row, token, word, old, new):
    """Give a token its new topic, in all counts but those of its document."""
    cell.state.topic[token] = new
    write_row(cell, np.int64(token), word, old, new)
    row.tokens[old] -= 1
    row.tokens[new] += 1
    move_total(cell, row.inverse, row.inverse_less, old, new)


def word_loop(
    begin: Any,
    draw: Any,
    moved: Any,
    enter: Any = nothing,
    leave: Any = nothing,
    fetch: Any = nothing,
) -> Any:
    """Return a kernel: a loop over tokens that calls these functions.

    It takes a `Cell`, and returns how many tokens moved to another topic.

    Parameters
    ----------
    begin : ``begin(cell) -> own``
        Returns a tuple of arrays, ``own`` below.  Compiled by `core.jit.maker`.
    draw : ``draw(own, cell, row, token, word, old, counter) -> topic``
        Returns the new topic (uint64) of a token, given its place in word-major order and its topic
        (both uint64), and its word in the block.  All counts include the token.  Its random bits
        are ``mix(counter)``, ``mix(counter + GAMMA)`` and so on, ``n_random`` of them.  Compiled by
        `core.jit.inlined`, like the functions below.
    moved : ``moved(own, cell, row, token, word, old, new)``
        Called after a move, when all counts have changed except the list of the document, which it
        must change.
    enter : ``enter(own, cell, row, word, is_seeded)``, optional
        Called before the first token of a word.
    leave : ``leave(own, cell, row, word)``, optional
        Called after the last token of a word, when the row is that of no word.
    fetch : ``fetch(own, cell, token)``, optional
        Called before each token.
    """
    begin = ready(begin, maker)
    draw, moved, enter, leave, fetch = map(ready, (draw, moved, enter, leave, fetch))

    @maker
    def sample_words(cell):
        shard = cell.shard
        topic = cell.state.topic
        step = np.uint64(cell.n_random) * GAMMA
        own = begin(cell)
        row = _no_word(cell)
        n_moved = 0
        for word in range(len(cell.block.heads) + len(cell.block.tail_ptr) - 1):
            at = cell.first + word
            start = shard.word_ptr[at]
            end = shard.word_ptr[at + 1]
            if start == end:
                continue
            add_row(cell.block, word, row.tokens)
            is_seeded = add_seeds(cell.seeds, at, row.tokens)
            enter(own, cell, row, word, is_seeded)
            counter = cell.key + np.uint64(shard.word_first[at] + shard.word_rank[at]) * step
            for i in range(start, end):
                token = index(i)
                fetch(own, cell, token)
                old = index(topic[token])
                new = draw(own, cell, row, token, word, old, counter)
                counter += step
                if new != old:
                    n_moved += 1
                    _move(cell, row, token, word, old, new)
                    moved(own, cell, row, token, word, old, new)
            _clear(cell, word, is_seeded, row.tokens)
            leave(own, cell, row, word)
        return n_moved

    return sample_words


class WordState(NamedTuple):
    """The state of a shard, and `document`, which is kept because it takes long to make."""

    #: (n_tokens,) topics, word-major; see `topic_dtype`.
    topic: AnySigned
    #: (n_tokens,) document of each token, word-major.
    document: Unsigned32
    #: Topics of the documents.
    lists: TopicLists
    #: (K,) the shard's tokens of each topic.
    total: Integers
    #: For "data-parallel": the same at the beginning of the sweep, and the tokens that have moved
    #: since.
    began: Integers
    moved: int = 0


class WordSampler(SequentialSampler[WordState]):
    """Base of samplers that go word by word within a cell.

    Parameters
    ----------
    n_components, n_words, doc_topic_prior, topic_word_prior, seed, evaluate_every, hot_priors,
    hot_sweeps, own_alphas, learn_every, drawn_alphas, seed_totals, begins_seeded, far
        As in `TopicSampler`.
    """

    def restore(self, at: At, saved: AnySigned) -> tuple[WordState, WordParts]:
        """Return topics that were saved in document order, with their lists."""
        shard = at.shard
        _, topic, total = self.begun(at, saved)
        document, lists = list_topics(shard.doc_ptr, shard.place, topic, self.n_components)
        order_lists(lists)
        state = WordState(topic, document, lists, total, total.copy())
        return state, self.parts(at, state)

    def end_sweep(self, at: At, state: WordState) -> WordState:
        """Put the lists in the order in which `restore` makes them."""
        order_lists(state.lists)
        return state
