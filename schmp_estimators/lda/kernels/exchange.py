"""Tokens of words that several shards have, put together word by word, and cut apart again."""

import numpy as np

from schmp_estimators.core.jit import kernel


@kernel
def merge_tokens(lengths, cursor, pieces, width, merged):
    """Put the tokens of words together: of each word those of the first shard, of the second, and so on.

    Parameters
    ----------
    lengths : (n_words, n_shards) int32
        Tokens of each word in each shard.
    cursor : (n_shards,) int64
        Mutated: where the tokens of the first word begin among `pieces`, for each shard.
    pieces : (n_tokens * width,) int16 or int32
        Word-major tokens of the first shard, then those of the second, and so on.
    width : int
        Numbers that a token consists of.
    merged : (n_merged * width,) int16 or int32
        Mutated.

    Notes
    -----
    2 ns per token.
    """
    to = np.uint64(0)
    for word in range(lengths.shape[0]):
        for shard in range(lengths.shape[1]):
            n = lengths[word, shard]
            if n:
                first = np.uint64(cursor[shard] * width)
                for i in range(n * width):
                    merged[to + np.uint64(i)] = pieces[first + np.uint64(i)]
                to += np.uint64(n * width)
                cursor[shard] += n


@kernel
def cut_tokens(lengths, cursor, merged, width, pieces):
    """Do what undoes `merge_tokens`, with the same parameters; `pieces` is mutated instead of `merged`."""
    at = np.uint64(0)
    for word in range(lengths.shape[0]):
        for shard in range(lengths.shape[1]):
            n = lengths[word, shard]
            if n:
                first = np.uint64(cursor[shard] * width)
                for i in range(n * width):
                    pieces[first + np.uint64(i)] = merged[at + np.uint64(i)]
                at += np.uint64(n * width)
                cursor[shard] += n
