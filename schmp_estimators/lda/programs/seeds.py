"""Seeds of words in the joint log-likelihood, and first topics that are uniform.

A token is known by its number in the corpus, so that first topics do not depend on how documents
are divided among shards.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from schmp_estimators.core.rng import GAMMA, below, mix
from schmp_estimators.core.typing import Array, Floats, Integers
from schmp_estimators.core.values import freeze, offsets_of, spans
from schmp_estimators.lda.blocks import SeedRows, WordBlock
from schmp_estimators.lda.kernels.likelihood import rising
from schmp_estimators.lda.kernels.rows import look_up


class SeedCounts(NamedTuple):
    """How many tokens seeded words have in the topics that they are seeded in."""

    #: (n,) the seeds, and the tokens.
    weight: Floats
    tokens: Integers


def count_seeds(rows: SeedRows, block: WordBlock, first: int, n_topics: int) -> SeedCounts:
    """Count the tokens of the seeded words of a block.

    Its first word has number `first` among those with `rows`.
    """
    n_words = len(block.heads) + len(block.tail_ptr) - 1
    words = np.flatnonzero(rows.number[first : first + n_words] >= 0)
    numbers = rows.number[first + words]
    sizes = np.diff(rows.ptr)[numbers]
    found = spans(rows.ptr[numbers], sizes)
    tokens = np.empty(len(found), np.int64)
    look_up(*freeze((block, words, offsets_of(sizes), rows.topic[found])), n_topics, tokens)
    return SeedCounts(rows.weight[found], tokens)


def chain_seeds(pieces: Sequence[SeedCounts]) -> SeedCounts:
    """Return the counts of several sets of words as one."""
    nothing = SeedCounts(np.empty(0), np.empty(0, np.int64))
    return SeedCounts(*map(np.concatenate, zip(nothing, *pieces, strict=True)))


def seeded_word_log_likelihood(
    plain: float,
    seed_totals: Floats,
    counts: SeedCounts,
    topic_total: Integers,
    beta: float,
    n_words: int,
) -> float:
    """Return the word part of the joint log-likelihood, given what it would be without seeds."""
    smooth = n_words * beta
    of_topics = rising(smooth, topic_total) - rising(smooth + seed_totals, topic_total)
    of_words = rising(beta + counts.weight, counts.tokens) - rising(beta, counts.tokens)
    return plain + of_topics + of_words


#: Tokens whose topics are drawn at a time: what is made for them stays in the cache.
_AT_ONCE = 1 << 14


def draw_uniform_topics(first_token: int, key: np.uint64, n_topics: int, out: Array) -> None:
    """Write a uniform topic for every token of a shard, in document order.

    Token i is number `first_token` + i.

    In NumPy: a kernel would take longer to compile than most corpora take here.
    """
    for begin in range(0, len(out), _AT_ONCE):
        end = min(len(out), begin + _AT_ONCE)
        address = np.arange(first_token + begin, first_token + end, dtype=np.uint64)
        out[begin:end] = below.py_func(mix.py_func(key + address * GAMMA), n_topics)
