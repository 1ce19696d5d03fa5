"""Seeds of words, and the first topics of tokens: uniform ones, and those of seed words.

Programs know seeded words by canonical addresses, so that seeds fit any division of the words.  A token is known by its
number in the corpus, so that first topics do not depend on how documents are divided among shards.  These are drawn in
NumPy, some tokens at a time: a kernel would take longer to compile than most corpora take here.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from schmp_estimators.core.rng import GAMMA, below, mix, unit
from schmp_estimators.core.typing import AnyIntegers, Array, Floats, Integers
from schmp_estimators.core.values import freeze, offsets_of, spans
from schmp_estimators.lda.blocks import TokenShard, WordBlock, words_of_places
from schmp_estimators.lda.kernels.likelihood import rising
from schmp_estimators.lda.kernels.priors import SeedRows
from schmp_estimators.lda.kernels.rows import look_up


class WordSeeds(NamedTuple):
    """Imaginary tokens of words in topics, for words that are known by their addresses."""

    #: (n_seeded,) canonical addresses of the seeded words that have tokens, ascending.
    address: Integers
    #: (n_seeded + 1,) offsets of these words in what follows.
    ptr: Integers
    topic: AnyIntegers
    weight: Floats
    #: Cumulative weights within each word.
    ends: Floats
    #: (K,) seeds of each topic, those of words without tokens included.
    total: Floats
    #: (n_rest,) seeds of words that only earlier batches have, and the tokens that they have in these topics.
    rest_weight: Floats
    rest_tokens: Integers

    def digest(self) -> str:
        """Return what identifies the seeds."""
        return hashlib.sha256(
            b"".join(np.ascontiguousarray(one).tobytes() for one in self)
        ).hexdigest()


class SeedCounts(NamedTuple):
    """How many tokens seeded words have in the topics that they are seeded in."""

    #: Numbers of the seeds.
    seed: Integers
    tokens: Integers


def word_seeds(
    seeds: sparse.csc_array, word_totals: Integers, earlier: sparse.csc_array | None = None
) -> WordSeeds:
    """Return seeds (K, V) as programs hold them, given the tokens of each word, and the counts of earlier batches."""
    seeds = sparse.csc_array(seeds)
    per_word = np.diff(seeds.indptr)
    kept = np.flatnonzero((per_word > 0) & (word_totals > 0))
    taken = sparse.csc_array(seeds[:, kept])
    taken.sort_indices()
    total = np.asarray(np.bincount(seeds.indices, seeds.data, seeds.shape[0]), np.float64)
    address = np.cumsum(word_totals) - word_totals
    absent = np.flatnonzero((per_word > 0) & (word_totals == 0))
    rest = sparse.coo_array(seeds[:, absent])
    tokens = np.zeros(rest.nnz, np.int64)
    if earlier is not None and rest.nnz:
        tokens = np.asarray(
            sparse.csr_array(earlier[:, absent])[rest.row, rest.col], np.int64
        ).reshape(-1)
    ptr, weight = taken.indptr.astype(np.int64), taken.data.astype(np.float64)
    before = offsets_of(weight)
    ends = before[1:] - np.repeat(before[ptr[:-1]], np.diff(ptr))
    topic = taken.indices.astype(np.min_scalar_type(len(total) - 1))
    of_words = ptr, topic, weight, ends, total
    of_rest = rest.data.astype(np.float64)[tokens > 0], tokens[tokens > 0]
    return WordSeeds(address[kept].astype(np.int64), *of_words, *of_rest)


def seed_rows(
    seeds: WordSeeds, shard: TokenShard, words: AnyIntegers | slice = slice(None)
) -> SeedRows:
    """Return the seeds by the numbers of words in a shard, or by places among some of these words."""
    used = shard.word_total[words] > 0  # a word without tokens has the address of the next one
    first = shard.word_first[words]
    at = np.minimum(np.searchsorted(seeds.address, first), max(0, len(seeds.address) - 1))
    found = used & (seeds.address[at] == first) if len(seeds.address) else np.zeros(len(used), bool)
    return freeze(SeedRows(np.where(found, at, -1).astype(np.int32), *seeds[1:5]))


def count_seeds(
    seeds: WordSeeds, shard: TokenShard, block: WordBlock, first: int, n_topics: int
) -> SeedCounts:
    """Count the tokens of the seeded words of a block, earlier batches included.

    The first word of the block has number `first` in the shard.
    """
    rows = seed_rows(seeds, shard)
    words = np.flatnonzero(rows.number[first : first + len(block.fixed.ptr) - 1] >= 0)
    numbers = rows.number[first + words]
    sizes = np.diff(rows.ptr)[numbers]
    found = spans(rows.ptr[numbers], sizes)
    tokens = np.empty(len(found), np.int64)
    look_up(*freeze((block, words, offsets_of(sizes), rows.topic[found])), n_topics, tokens)
    return SeedCounts(found, tokens)


def chain_seeds(pieces: Sequence[SeedCounts]) -> SeedCounts:
    """Return the counts of several sets of words as one."""
    nothing = np.empty(0, np.int64)
    return SeedCounts(*(np.concatenate([nothing, *(piece[i] for piece in pieces)]) for i in (0, 1)))


def seeded_word_log_likelihood(
    plain: float,
    seeds: WordSeeds,
    counts: SeedCounts,
    topic_total: Integers,
    beta: float,
    n_words: int,
) -> float:
    """Return the word part of the joint log-likelihood, given what it would be without seeds."""
    smooth = n_words * beta
    weight = np.concatenate([seeds.weight[counts.seed], seeds.rest_weight])
    tokens = np.concatenate([counts.tokens, seeds.rest_tokens])
    of_topics = rising(smooth, topic_total) - rising(smooth + seeds.total, topic_total)
    return plain + of_topics + rising(beta + weight, tokens) - rising(beta, tokens)


#: Tokens whose topics are drawn at a time: what is made for them stays in the cache.
_AT_ONCE = 1 << 14


def _some_tokens(
    n_tokens: int, first_token: int, key: np.uint64
) -> Iterator[tuple[slice, NDArray[np.uint64]]]:
    """Yield ranges of the tokens of a shard, in document order, with random bits for each token."""
    for begin in range(0, n_tokens, _AT_ONCE):
        end = min(n_tokens, begin + _AT_ONCE)
        address = np.arange(first_token + begin, first_token + end, dtype=np.uint64)
        yield slice(begin, end), mix.py_func(key + address * GAMMA)


def draw_uniform_topics(first_token: int, key: np.uint64, n_topics: int, out: Array) -> None:
    """Write a uniform topic for every token of a shard, in document order; token i is number `first_token` + i."""
    for span, bits in _some_tokens(len(out), first_token, key):
        out[span] = below.py_func(bits, n_topics)


def draw_of_seeds(shard: TokenShard, seeds: SeedRows, key: np.uint64, out: Array) -> None:
    """Draw the first topics of tokens of seed words; other tokens keep theirs.

    Parameters
    ----------
    shard : TokenShard
        Any; a token is known by its number in the corpus.
    seeds : SeedRows
        Of all words.
    key : uint64
        Stream of random numbers.
    out : (n_tokens,) uint8, int16 or int32
        Mutated: topics in document order.
    """
    number_of = seeds.number[words_of_places(shard)]
    ends = offsets_of(seeds.weight)
    for span, bits in _some_tokens(len(out), shard.first_token, key):
        number = number_of[shard.place[span]]
        seeded = np.flatnonzero(number >= 0)
        first = seeds.ptr[number[seeded]]
        last = seeds.ptr[number[seeded] + 1]
        y = ends[first] + unit.py_func(bits[seeded]) * (ends[last] - ends[first])
        found = np.minimum(np.searchsorted(ends, y, side="right") - 1, last - 1)
        out[seeded + span.start] = seeds.topic[found]
