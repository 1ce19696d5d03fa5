"""Sampling of short documents by their conditional and of long ones by proposals: slow and obvious."""

import numpy as np
from oracles.lda_fplus import FPlusOracle
from oracles.lda_warp import bits_at, uniform

from schmp_estimators.core.rng import stream_key


class HybridOracle(FPlusOracle):
    """As its base, with documents of more than `long_document` tokens sampled by proposals."""

    def __init__(self, *args, long_document, mh_steps=2, **kwargs):
        super().__init__(*args, **kwargs)
        self.long_document, self.n_steps = long_document, mh_steps

    def sample(self, i, u, entries, of_document, of_word, total):
        tokens = [j for j, d in enumerate(self.document) if d == self.document[i]]
        if len(tokens) <= self.long_document:
            super().sample(i, u, entries, of_document, of_word, total)
            return
        old = self.topic[i]
        for counts in (of_document, of_word, total):
            counts[old] -= 1
        q = of_word + self.seeds[self.word[i]] + self.beta
        q /= total + self.n_words * self.beta + self.seeds.sum(0)
        prior, others, new = np.full(self.n_topics, self.alpha), [j for j in tokens if j != i], old
        if i != tokens[-1]:  # the last token takes the place of this one
            others.insert(tokens.index(i), others.pop())
        key = stream_key(self.seed, self.sweep, 1)
        for step in range(self.n_steps):
            bits = bits_at(key, self.address[i] * self.n_steps + step)
            x = (bits & ((1 << 40) - 1)) * 2.0**-40
            if step % 2:
                y = x * (len(others) + prior.sum())
                if y < len(others):
                    proposed = self.topic[others[int(y)]]
                else:
                    found = np.searchsorted(np.cumsum(prior), y - len(others), side="right")
                    proposed = min(int(found), self.n_topics - 1)
                answer = q
            else:
                found = np.searchsorted(np.cumsum(q), x * q.sum(), side="right")
                proposed, answer = min(int(found), self.n_topics - 1), of_document + prior
            if float(uniform(bits)) * answer[new] < answer[proposed]:
                new = proposed
        self.topic[i] = new
        for counts in (of_document, of_word, total):
            counts[new] += 1
