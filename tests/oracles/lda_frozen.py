"""Gibbs sampling with frozen counts of words, or of words and documents.

It goes token by token: slow and obvious.
"""

import numpy as np
from oracles.lda_warp import FrozenCounts, bits_at, sums_of_lanes, uniform

from schmp_estimators.lda.blocks import HEAD

LANES = 16


def draw(weights, u):
    """A topic by its float32 weights, added up in lanes; None where they are next to nothing."""
    ends, up_to = sums_of_lanes(weights, LANES)
    total = up_to[-1]
    point = np.float32(u) * total
    lane = min(int((up_to <= point).sum()), LANES - 1)
    column = [end[lane] for end in ends]
    rest = min(
        point - (up_to[lane - 1] if lane else np.float32(0)),
        np.nextafter(column[-1], np.float32(0)),
    )
    topic = sum(bool(end <= rest) for end in column[:-1]) * LANES + lane
    return None if total < np.float32(1e-30) or topic >= len(weights) else topic


class FrozenOracle(FrozenCounts):
    """Counts (documents × words) in, topics in document order after every sweep out."""

    def run(self):
        alpha, beta, key, before, by_word = self.begin()
        n_topic, beta_sum = by_word.sum(axis=0), self.n_words * beta + self.seeds.sum(0)
        total = n_topic + beta_sum
        rows = ((by_word + self.seeds + beta) * (1.0 / total)).astype(np.float32)
        for i, (d, w, old) in enumerate(zip(self.document, self.word, before, strict=True)):
            others = [k for k, other in zip(self.topic, self.document, strict=True) if other == d]
            count = np.bincount(others, minlength=self.n_topics)
            count[old] -= 1
            weights = (count + alpha).astype(np.float32) * rows[w]
            prior, inverse = beta + self.seeds[w], 1.0 / (n_topic - 1 + beta_sum)
            less = (count[old] + alpha[old]) * ((by_word[w, old] - 1 + prior[old]) * inverse[old])
            weights[old] = less
            if weights.sum() > 1e-20:
                out = (np.arange(self.n_topics) == old).astype(int)
                gibbs = (count + alpha) * (by_word[w] - out + prior) / (n_topic - out + beta_sum)
                np.testing.assert_allclose(weights, gibbs, rtol=1e-5, atol=1e-35)
            u = uniform(bits_at(key, i))
            new = draw(weights, u)
            if new is None:
                fine = (count + alpha) * rows[w].astype(float)
                fine[old] = less
                new = min(
                    int(np.searchsorted(np.cumsum(fine), float(u) * fine.sum(), side="right")),
                    len(fine) - 1,
                )
            self.topic[i] = new
        self.sweep += 1
        return list(self.topic)


SABER_LANES = 8


def first_seen(topics):
    """The topics of tokens, in the order in which they come first."""
    return list(dict.fromkeys(topics))


def find(ends, up_to, point):
    """The number of the weight into which a point falls."""
    lane = min(int((up_to <= point).sum()), SABER_LANES - 1)
    rest = point - (up_to[lane - 1] if lane else np.float32(0))
    return min(int((ends[:, lane] <= rest).sum()), len(ends) - 1) * SABER_LANES + lane


class SaberOracle(FrozenCounts):
    """Counts (documents × words) in, topics in document order after every sweep out."""

    def run(self):
        alpha, beta, key, before, by_word = self.begin()
        total = by_word.sum(axis=0) + self.n_words * beta + self.seeds.sum(0)
        inverse, beta = (1.0 / total).astype(np.float32), np.float32(beta)
        weight = alpha * inverse.astype(float)
        smooth = np.cumsum(float(beta) * weight)
        address = 0
        for w in range(self.n_words):
            mine = np.flatnonzero(self.word == w)
            row = by_word[w] + self.seeds[w] if self.seeds.any() else by_word[w]
            topics = first_seen(before[mine])
            if len(mine) >= HEAD * self.n_topics or self.seeds[w].any():
                topics = np.flatnonzero(row).tolist()
            ends = np.cumsum([row[k] * weight[k] for k in topics])
            for i in mine:
                self.topic[i] = self.draw(
                    i, before, row, topics, ends, smooth, inverse, weight, alpha, beta, address, key
                )
                address += 1
        self.sweep += 1
        return list(self.topic)

    def draw(
        self, i, before, row, topics, ends, smooth, inverse, weight, alpha, beta, address, key
    ):
        old, bits = before[i], bits_at(key, address)
        others = before[self.document == self.document[i]]
        listed, out = first_seen(others), (np.arange(self.n_topics) == old).astype(int)
        count = np.bincount(others, minlength=self.n_topics) - out
        q = ((row - out).astype(np.float32) + beta) * inverse
        products = count[listed].astype(np.float32) * q[listed]
        lanes, up_to = sums_of_lanes(products, SABER_LANES)
        rest = ends[-1] - weight[old]
        other = np.float32(rest + smooth[-1])
        gibbs = (count + alpha) * (row - out + float(beta)) * inverse
        if gibbs.sum() > 1e-20:
            parts = (
                np.bincount(listed, products, self.n_topics) + (row - out + float(beta)) * weight
            )
            np.testing.assert_allclose(parts, gibbs, rtol=1e-5, atol=1e-6 * gibbs.sum())
            np.testing.assert_allclose(up_to[-1] + other, gibbs.sum(), rtol=1e-5)
        point = uniform(bits) * (up_to[-1] + other)
        if point < up_to[-1]:
            at = find(lanes, up_to, point)
            return listed[at] if at < len(listed) else old
        y = (bits & (1 << 40) - 1) * 2.0**-40 * (rest + smooth[-1])
        if y >= rest:
            return min(int(np.searchsorted(smooth, y - rest, side="right")), self.n_topics - 1)
        own = topics.index(old)
        if y >= (ends[own - 1] if own else 0.0) + float(row[old] - 1) * weight[old]:
            y += weight[old]
        return topics[min(int(np.searchsorted(ends, y, side="right")), len(topics) - 1)]
