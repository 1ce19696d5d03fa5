"""How a fit of `DistributedLDA` starts.

With larger priors, topics are not yet set on what chance gave them.  With passages, each topic begins with some tokens
of one document (`data.passages`): what topics have to tell apart is there from the first sweep on, and what is together
in a topic belongs together.  With words that begin in two topics each, only the former is so.

Measured in docs/measurements/lda.
"""

from __future__ import annotations

#: Larger priors of a tempered start, in units of those asked for.
HOT_DOCUMENT, HOT_WORD = 5.0, 10.0
#: Where documents have so many tokens on average, only the prior for documents is larger.
LONG_DOCUMENT = 500
#: From so many topics on, "auto" begins with passages, unless topics have more tokens than so many on average: beyond
#: these, longer fits end better without.
MANY_TOPICS, TOKENS_OF_TOPIC = 50, 100_000
#: Among how many topics, drawn for each word, its tokens begin in a sparse start.
TOPICS_OF_WORD = 2
#: The most sweeps of a tempered start.
HOT_SWEEPS = 30


def suits_passages(n_tokens: int, n_topics: int) -> bool:
    """Return whether "auto" begins with passages."""
    return n_topics >= MANY_TOPICS and n_tokens <= TOKENS_OF_TOPIC * n_topics


def hot_priors(
    priors: tuple[float, float], n_tokens: int, n_docs: int, n_used_words: int, n_topics: int
) -> tuple[float, float]:
    """Return the priors of documents and words for a tempered start, 0 where text would not outweigh a larger one.

    Parameters
    ----------
    priors : tuple of two floats
        Alpha and beta as asked for.
    n_tokens, n_docs, n_used_words, n_topics : int
        Sizes of the corpus, without words that no document has, and of the model.
    """
    alpha, beta = priors
    length = n_tokens / max(1, n_docs)
    # K alpha is no more than half an average document.
    hot_document, hot_word = min(HOT_DOCUMENT * alpha, length / (2 * n_topics)), HOT_WORD * beta
    suits = length < LONG_DOCUMENT and 4 * n_used_words * hot_word <= n_tokens / n_topics
    return hot_document, hot_word if suits else 0.0


def hot_sweeps(max_iter: int, done: int = 0, begun_with: int = HOT_SWEEPS) -> int:
    """Return how many sweeps a tempered start has: no more than half of them, so that a fit ends with its own priors.

    Parameters
    ----------
    max_iter : int
        Number of sweeps of the fit.
    done : int
        Sweeps that a checkpoint has behind it: theirs are what they were.
    begun_with : int
        What the fit of that checkpoint was to have.  More sweeps than it had asked for are not tempered again; if there
        are to be fewer, the rest of them may be no longer.
    """
    return min(begun_with, max(done, max_iter // 2))
