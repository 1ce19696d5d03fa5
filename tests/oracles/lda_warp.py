"""The frozen-count sampler, token by token: slow and obvious, for exact comparison."""

import numpy as np

from schmp_estimators.core.rng import stream_key
from schmp_estimators.lda.kernels.priors import topic_priors

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


def splitmix(x):
    x &= MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def bits_at(key, address):
    return splitmix(int(key) + address * GAMMA)


def uniform(bits):
    return np.float32(bits >> 40) * np.float32(2.0**-24)


def topic_in_order(row, x):
    """The topic of slot x when all tokens of a row are lined up by topic."""
    return int(np.searchsorted(np.cumsum(row), x, side="right"))


def propose(bits, slots, prior, n_topics, seeds=()):
    """Map the lower 40 bits to a topic: a slot, any topic, or one in which the word is seeded."""
    n, prior = len(slots), float(np.float32(prior))
    smooth = n_topics * prior
    y = (bits & ((1 << 40) - 1)) * ((n + smooth + sum(seeds)) * 2.0**-40)
    if y >= n + smooth and sum(seeds):
        return topic_in_order(seeds, y - n - smooth)
    if y < n:
        return int(slots[int(y)])
    return min(int((y - n) * (1.0 / prior)), n_topics - 1)


def propose_from_document(bits, slots, alphas, table):
    """Map the lower 40 bits to a token's topic.

    Or map all of them to one drawn from the prior by its alias table.
    """
    total = float(np.cumsum(alphas.astype(np.float32), dtype=float)[-1])
    y = (bits & ((1 << 40) - 1)) * ((len(slots) + total) * 2.0**-40)
    if y < len(slots):
        return int(slots[int(y)])
    fresh = splitmix(bits)
    slot = (fresh >> 32) * len(alphas) >> 32
    return slot if fresh & 0xFFFFFFFF < int(table.own[slot]) else int(table.other[slot])


def accept(topic, proposals, count, prior, inverse, draws):
    """Go through a token's proposals; `count` excludes the token."""

    def weight(k):
        return (
            np.float32(count[k]) + np.float32(prior if np.ndim(prior) == 0 else prior[k])
        ) * inverse[k]

    for proposed, bits in zip(proposals, draws, strict=True):
        if uniform(bits) * weight(topic) < weight(proposed):
            topic = proposed
    return topic


def sums_of_lanes(weights, n_lanes):
    """The sums of the lanes after each block of weights, and up to each lane, in float32."""
    table = np.zeros((-(-len(weights) // n_lanes), n_lanes), np.float32)
    table.reshape(-1)[: len(weights)] = weights
    ends = np.cumsum(table, axis=0, dtype=np.float32)
    up_to, distance = ends[-1:].sum(axis=0), 1
    while distance < n_lanes:
        up_to[distance:] = up_to[distance:] + up_to[:-distance]
        distance *= 2
    return ends, up_to


def tempered(alpha, hot, n_topics):
    """The document-topic priors of all topics, whose mean is at least `hot`."""
    mean = float(np.mean(alpha))
    return np.broadcast_to(
        alpha * (max(mean, hot) / mean) if np.ndim(alpha) else max(alpha, hot), n_topics
    )


class Tokens:
    """Those of counts (documents × words), in document order, and their first topics."""

    def __init__(
        self, counts, n_topics, alpha, beta, seed, bounds, layout, *, seeds=None, hot=(0.0, 0.0),
        hot_sweeps=0,
    ):  # fmt: skip
        self.n_topics, self.alpha, self.beta, self.seed, self.sweep = n_topics, alpha, beta, seed, 0
        self.bounds, self.layout, self.hot, self.hot_sweeps = bounds, layout, hot, hot_sweeps
        self.n_docs, self.n_words = counts.shape
        self.document, self.word = np.divmod(
            np.repeat(np.arange(counts.size), counts.ravel()), self.n_words
        )
        self.seeds = np.zeros((self.n_words, n_topics)) if seeds is None else seeds
        origin, of_seeds = stream_key(seed, 0, 2), stream_key(seed, 0, 8)
        self.topic = [(bits_at(origin, i) >> 32) * n_topics >> 32 for i in range(len(self.word))]
        for i, own in enumerate(self.seeds[self.word]):
            if own.any():
                self.topic[i] = topic_in_order(
                    own, (bits_at(of_seeds, i) >> 11) * 2.0**-53 * own.sum()
                )

    def tables(self):
        """Counts by document and by word."""
        by_document, by_word = (
            np.zeros((n, self.n_topics), int) for n in (self.n_docs, self.n_words)
        )
        np.add.at(by_document, (self.document, self.topic), 1)
        np.add.at(by_word, (self.word, self.topic), 1)
        return by_document, by_word


class FrozenCounts(Tokens):
    """Tokens whose words have the last sweep's counts, and priors that may be hot at first."""

    def begin(self):
        """Return the priors of a sweep, its key, and topics and word counts of the last sweep."""
        hot = self.hot if self.sweep < self.hot_sweeps else (0.0, 0.0)
        alpha, beta = tempered(self.alpha, hot[0], self.n_topics), max(self.beta, hot[1])
        _, by_word = self.tables()
        return alpha, beta, stream_key(self.seed, self.sweep, 0), np.array(self.topic, int), by_word


class WarpOracle(Tokens):
    """Counts (documents × words) in, topics in document order after every sweep out."""

    def __init__(self, *arguments, mh_steps=2, **options):
        super().__init__(*arguments, **options)
        self.alphas = self.alpha if np.ndim(self.alpha) else None
        self.alpha, self.steps = float(np.mean(self.alpha)), mh_steps
        self.documents = [np.flatnonzero(self.document == d).tolist() for d in range(self.n_docs)]
        self.words = [np.flatnonzero(self.word == w).tolist() for w in range(self.n_words)]
        self.proposals = [[] for _ in self.word]
        self.propose_from_documents(-1)

    def priors(self, sweep):
        """The priors of a sweep; the proposals before the first sweep are those of a sweep -1."""
        hot = self.hot if sweep < self.hot_sweeps else (0.0, 0.0)
        return max(self.alpha, hot[0]), max(self.beta, hot[1])

    def document_prior(self, sweep):
        """The document-topic prior of a sweep, a number or one for each topic."""
        mean = self.priors(sweep)[0]
        return mean if self.alphas is None else self.alphas * (mean / self.alpha)

    def propose_one(self, bits, topics, prior, table):
        if np.ndim(prior) == 0:
            return propose(bits, topics, prior, self.n_topics)
        return propose_from_document(bits, topics, prior, table)

    def draws(self, key, address):
        return [bits_at(key, address * self.steps + step) for step in range(self.steps)]

    def propose_from_documents(self, sweep):
        key, prior = stream_key(self.seed, sweep, 1), self.document_prior(sweep)
        table = topic_priors(prior) if np.ndim(prior) else None
        for tokens in self.documents:
            topics = [self.topic[i] for i in tokens]
            for i in tokens:
                self.proposals[i] = [
                    self.propose_one(b, topics, prior, table) for b in self.draws(key, i)
                ]

    def run(self):
        totals = np.bincount(self.topic, minlength=self.n_topics)
        beta_sum = self.n_words * np.float64(np.float32(self.priors(self.sweep)[1]))
        inverse = (1.0 / (totals + (beta_sum + self.seeds.sum(axis=0)))).astype(np.float32)
        self.word_pass(stream_key(self.seed, self.sweep, 0), inverse)
        self.document_pass(stream_key(self.seed, self.sweep, 1), inverse)
        self.propose_from_documents(self.sweep)
        self.sweep += 1
        return list(self.topic)

    def word_pass(self, key, inverse):
        address = self.moved_by_words = 0
        for tokens, seeds in zip(self.words, self.seeds, strict=True):
            topics = [self.topic[i] for i in tokens]
            row = np.bincount(topics, minlength=self.n_topics)
            slots = (
                topics
                if len(topics) < 2 * self.n_topics
                else np.repeat(np.arange(self.n_topics), row)
            )
            for i in tokens:
                count, old = row.copy(), self.topic[i]
                count[old] -= 1
                bits = self.draws(key, address)
                prior = self.priors(self.sweep)[1]
                if seeds.any():  # added up in 64 bits
                    count, prior = count + seeds + float(np.float32(prior)), 0.0
                self.topic[i] = accept(old, self.proposals[i], count, prior, inverse, bits)
                self.moved_by_words += self.topic[i] != old
                prior = self.priors(self.sweep)[1]
                self.proposals[i] = [propose(b, slots, prior, self.n_topics, seeds) for b in bits]
                address += 1

    def document_pass(self, key, inverse):
        for tokens in self.documents:
            count = np.bincount([self.topic[i] for i in tokens], minlength=self.n_topics)
            for i in tokens:
                count[self.topic[i]] -= 1
                bits = self.draws(key, i)
                self.topic[i] = accept(
                    self.topic[i],
                    self.proposals[i],
                    count,
                    self.document_prior(self.sweep),
                    inverse,
                    bits,
                )
                count[self.topic[i]] += 1
