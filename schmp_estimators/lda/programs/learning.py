"""The joint log-likelihood of topic programs, and learning of priors, both from integers.

Document-topic priors are learned from the topics of documents, and the topic-word prior from words.

The topics of a document are drawn from a Dirichlet–multinomial distribution, whose parameters alpha
have a fixed point (Minka, "Estimating a Dirichlet distribution", 2000, equation 55; for topic
models, with a symmetric prior of words: Wallach, Mimno and McCallum, NIPS 2009)::

    alpha_k  <-  alpha_k  sum over d of [psi(n_dk + alpha_k) - psi(alpha_k)]  /  exposure
    exposure  =  sum over d of [psi(L_d + A) - psi(A)],      A = sum of alpha

Alpha_k times the sum over d is the expected number of *turns* to topic k: tokens whose topic was
drawn from the prior, and not because of other tokens of the document with this topic.  `MORE_TURNS`
are added to it, fewer the larger A is.  The result is the most likely prior under a Gamma
distribution of that shape.  Without them, priors learned from a few hundred documents are too small
for new documents, which the topics fit less well.  With many documents they make no difference.

Counts are integers, and all else is computed in one place and in one order.  So the priors have the
same bits however the documents are divided.

The words of a topic are drawn from such a distribution, too, whose V parameters are all beta.  Its
fixed point (as in MALLET, without additional turns) is::

    beta  <-  beta  sum over (w, k) of [psi(n_wk + beta) - psi(beta)]  /  exposure
    exposure  =  V sum over k of [psi(n_k + V beta) - psi(V beta)]

Where a word has s_wk seeds in a topic, the same bounds of Minka give this step with ``beta + s_wk``
for beta inside of psi, and with ``V beta + sum of s_wk`` for V beta.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import psi

from schmp_estimators.core.typing import Floats, Integers
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import WordBlock
from schmp_estimators.lda.kernels.likelihood import (
    TopicCounts,
    count_table,
    merge_counts,
    topic_counts,
)
from schmp_estimators.lda.programs.seeds import SeedCounts

#: Steps of the fixed point each time.
STEPS = 10
#: Every topic has at least so many turns, and its prior is at least this share of the mean prior,
#: so that an empty topic can get tokens again.  Without the second, perplexity was 2 % higher for
#: 500 documents and 100 topics.
LEAST_TURNS, LEAST_SHARE = 1.0, 0.1
#: Turns that are added for each topic if A is near 0, and the share of a mean document from which
#: on none are added: with fewer than two tokens of a document for each topic A would grow without
#: end.
MORE_TURNS, LARGE_SHARE = 20.0, 0.25
#: The most steps of the topic-word prior each time, and the relative change in a step at which they
#: end.
BETA_STEPS, BETA_CHANGE = 200, 1e-6
#: V beta is at least so many tokens: if each topic has one word, nothing else would keep it from 0.
#: It is at most the tokens of a mean topic: with more, the prior would count for more than the
#: text.
LEAST_BETA_SUM = 0.01


class Learned(NamedTuple):
    """Priors that have been learned, None for those that have not."""

    #: (K,) document-topic priors.
    alphas: Floats | None = None
    #: The topic-word prior.
    beta: float | None = None


class Cells(NamedTuple):
    """Counts with Dirichlet priors; equal counts are together."""

    #: (n,) positive counts.
    tokens: Integers
    #: (n,) how many cells have that count; negative where cells are counted elsewhere.
    often: Integers
    #: (n,) what is added to the learned prior: seeds.
    more: Floats

    def rise(self, prior: float) -> float:
        """Return the sum of ``psi(count + prior) - psi(prior)``, correctly rounded."""
        start = prior + self.more
        return math.fsum(self.often * (psi(start + self.tokens) - psi(start)))


def learn_alphas(
    alphas: Floats, counts: TopicCounts, singles: TopicCounts, lengths: TopicCounts
) -> Floats:
    """Return the priors (K,) after some steps of the fixed point.

    Their sum is at most a mean document.

    Parameters
    ----------
    alphas : (K,) float64
        The priors so far.
    counts, singles : TopicCounts
        Of all documents, and of those with a single token, which are left out.
    lengths : TopicCounts
        Lengths of all documents, as if all their tokens had topic 0.
    """
    is_long = lengths.tokens > 1  # a single token does not say which topics occur together
    lengths = TopicCounts(lengths.cell[is_long], lengths.often[is_long])
    counts = merge_counts([counts, singles._replace(often=-singles.often)])
    n_documents = int(lengths.often.sum())
    if n_documents == 0:
        return alphas
    topic = counts.topic
    tokens = counts.tokens
    length = int(lengths.often @ lengths.tokens) / n_documents
    for _ in range(STEPS):
        total = math.fsum(alphas)
        alpha = alphas[topic]
        exposure = math.fsum(lengths.often * (psi(lengths.tokens + total) - psi(total)))
        # NumPy adds up weights one by one, in the order of the cells.
        turns = alphas * np.bincount(
            topic, counts.often * (psi(alpha + tokens) - psi(alpha)), len(alphas)
        )
        least = max(LEAST_TURNS, LEAST_SHARE * math.fsum(turns) / len(turns))
        alphas = np.maximum(turns, least) / exposure
        # The sum is at most a mean document, and added turns do not raise it above `LARGE_SHARE`.
        most = min(length, max(math.fsum(alphas), LARGE_SHARE * length))
        alphas += MORE_TURNS * max(0.0, 1.0 - total / (LARGE_SHARE * length)) / exposure
        alphas *= min(1.0, most / math.fsum(alphas))
    return alphas


def word_cells(words: TopicCounts, seeded: SeedCounts) -> Cells:
    """Return the cells of words in topics.

    Those with seeds are also among `words`, from which they are subtracted.
    """
    tokens, often = words.terms
    own = seeded.tokens
    one = np.ones(len(own), np.int64)
    more = np.concatenate([np.zeros(len(tokens) + len(own)), seeded.weight])
    return Cells(np.concatenate([tokens, own, own]), np.concatenate([often, -one, one]), more)


def topic_cells(totals: Integers, seed_totals: Floats | None) -> Cells:
    """Return the cells of topics with these totals (K,)."""
    if seed_totals is None:
        return Cells(*count_table(totals).terms, np.zeros(1))
    return Cells(totals, np.ones(len(totals), np.int64), seed_totals)


def learn_beta(beta: float, n_words: int, words: Cells, topics: Cells) -> float:
    """Return the topic-word prior after the fixed point, begun at `beta`.

    It is `beta` if there is nothing to learn from.
    """
    n_topics = int(topics.often @ (topics.tokens > 0))
    if topics.tokens.max(initial=0) < 2:
        return beta
    most = int(topics.often @ topics.tokens) / n_topics
    for _ in range(BETA_STEPS):
        before = beta
        exposure = topics.rise(n_words * beta)
        beta = min(max(beta * words.rise(beta) / exposure, LEAST_BETA_SUM), most) / n_words
        if abs(beta - before) <= BETA_CHANGE * before:
            break
    return beta


def mean_alpha(alphas: Floats) -> float:
    """Return the mean prior, rounded once, so that it has the same bits wherever it is computed."""
    return math.fsum(alphas) / len(alphas)


def measure_block(block: WordBlock, n_components: int) -> TopicCounts:
    """Return the counts of topics in the words of a block."""
    ptr, in_order, tails = freeze(
        (block.tail_ptr, np.arange(len(block.tails), dtype=np.uint32), block.tails)
    )
    found = topic_counts(ptr, in_order, tails, n_components)
    return merge_counts([count_table(block.heads), found._replace(cell=found.tokens)])
