"""Frozen-count Gibbs sampling, token by token: slow and obvious, for exact comparison."""

import numpy as np
from oracles.lda_warp import FrozenCounts, bits_at, uniform

LANES = 16


def draw(weights, u):
    """A topic by its float32 weights, added up in lanes; None where they are next to nothing."""
    n = len(weights)
    table = np.zeros((-(-n // LANES), LANES), np.float32)
    table.reshape(-1)[:n] = weights
    ends = [table[0]]
    for line in table[1:]:
        ends.append(ends[-1] + line)
    up_to = ends[-1].copy()
    for distance in (1, 2, 4, 8):
        up_to[distance:] = up_to[distance:] + up_to[:-distance]
    total = up_to[-1]
    point = np.float32(u) * total
    lane = min(int((up_to <= point).sum()), LANES - 1)
    column = [end[lane] for end in ends]
    rest = min(point - (up_to[lane - 1] if lane else np.float32(0)), np.nextafter(column[-1], np.float32(0)))
    topic = sum(bool(end <= rest) for end in column[:-1]) * LANES + lane
    return None if total < np.float32(1e-30) or topic >= n else topic


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
                new = min(int(np.searchsorted(np.cumsum(fine), float(u) * fine.sum(), side="right")), len(fine) - 1)
            self.topic[i] = new
        self.sweep += 1
        return list(self.topic)
