"""First topics of tokens, drawn from the few that each word may begin in."""

import numpy as np

from schmp_estimators.core.jit import kernel
from schmp_estimators.core.rng import GAMMA, mix


@kernel
def draw_of_words(shard, n_topics, n_choices, words, tokens, out):
    """Draw a topic for each token from `n_choices` topics that its word has drawn, with equal chances.

    Parameters
    ----------
    shard : TokenShard
        Any.  A word is known by its canonical address, and a token by its number in the corpus, so that topics do not
        depend on how documents are divided among shards.
    n_topics, n_choices : int
        Both at least 1.  A word may draw the same topic twice.
    words, tokens : uint64
        Streams of the topics of words, and of what their tokens take.
    out : (n_tokens,) int16 or int32
        Mutated: topics in document order.

    Notes
    -----
    5 to 10 ns per token, and 4 bytes for each while it runs.
    """
    count, half = np.uint64(n_topics), np.uint64(32)
    word_of = np.empty(len(out), np.int32)
    for word in range(len(shard.word_first)):
        for slot in range(shard.word_ptr[word], shard.word_ptr[word + 1]):
            word_of[slot] = word
    for token in range(len(out)):
        drawn = mix(tokens + np.uint64(shard.first_token + token) * GAMMA)
        choice = (drawn >> half) * np.uint64(n_choices) >> half
        address = np.uint64(shard.word_first[word_of[shard.place[token]]])
        bits = mix(words + (address * np.uint64(n_choices) + choice) * GAMMA)
        out[token] = np.int64((bits >> half) * count >> half)
