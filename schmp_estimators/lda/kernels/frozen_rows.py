"""The word rows of frozen-count Gibbs sampling: one for every word that a shard has, made anew for each sweep."""

import numpy as np

from schmp_estimators.core.jit import copy_to, inlined, kernel
from schmp_estimators.lda.kernels.word_priors import add_seeds, make_row


@inlined
def _finish(row, fixed, word, inverse, beta, out):
    """Write the weights of a word to `out`, given its counts and seeds but for the fixed ones, and clear these."""
    for i in range(fixed.ptr[word], fixed.ptr[word + 1]):
        row[fixed.topic[i]] += fixed.tokens[i]
    n_topics = len(row)
    for k in range(n_topics):
        out[k] = (row[k] + beta) * inverse[k]
        row[k] = 0
    out[n_topics:] = 0.0


@kernel
def make_rows(first, last, words, word_ptr, topic, total, fixed, beta, beta_sum, rows, seeds):
    """Write rows of words, all of whose tokens are in the shard.

    Parameters
    ----------
    first, last : int
        Range of rows.
    words : (n_rows,) int64
        Word of each row.
    word_ptr : (n_words + 1,) int64
        Offsets of the words in `topic`.
    topic : (n_tokens,) int16 or int32
        Topics in word-major order.
    total : (K,) int64
        Counts of the topics, earlier batches included.
    fixed : TopicRows
        Counts of earlier batches for all words.
    beta : float
        Topic-word prior.
    beta_sum : float or (K,) float64
        V beta; where words are seeded, with the seeds of each topic.
    rows : (n_rows, padded K) float32
        Mutated: ``(n_wk + beta) / (n_k + V beta)``, with seeds where there are, then zeros.
    seeds : SeedRows or None
        Of the words that have rows.

    Notes
    -----
    0.5 ns per token, and 0.3 ns per entry of the rows.
    """
    inverse, row = 1.0 / (total + beta_sum), make_row(seeds, len(total))
    for at in range(first, last):
        word = words[at]
        for i in range(word_ptr[word], word_ptr[word + 1]):
            row[np.uint32(topic[np.uint64(i)])] += 1
        add_seeds(seeds, at, row)
        _finish(row, fixed, word, inverse, beta, rows[at])


@kernel
def take_rows(first, last, words, block, total, beta, beta_sum, rows, seeds):
    """Write rows of words of a block; parameters are those of `make_rows`, `words` are numbers in the block.

    1 ns per token of a tail word in all shards, and 0.3 ns per entry of the rows.
    """
    inverse, row, n_heads = 1.0 / (total + beta_sum), make_row(seeds, len(total)), len(block.heads)
    for at in range(first, last):
        word = words[at]
        if word < n_heads:
            copy_to(block.heads[word], row)
        else:
            for i in range(block.tail_ptr[word - n_heads], block.tail_ptr[word - n_heads + 1]):
                row[np.uint32(block.tails[np.uint64(i)])] += 1
        add_seeds(seeds, at, row)
        _finish(row, block.fixed, word, inverse, beta, rows[at])
