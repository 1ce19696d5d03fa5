"""Collapsed Gibbs sampling token by token: slow and obvious, for exact comparison."""

import numpy as np
from oracles.lda_warp import Tokens, bits_at

from schmp_estimators.core.rng import stream_key


def tempered(alpha, hot, n_topics):
    """The document-topic priors of all topics, whose mean is at least `hot`."""
    mean = float(np.mean(alpha))
    return np.broadcast_to(alpha * (max(mean, hot) / mean) if np.ndim(alpha) else max(alpha, hot), n_topics)


class FPlusOracle(Tokens):
    """Counts (documents × words) in, topics in document order after every sweep out.

    Documents are cut into shards, words into blocks by the layout.  A shard knows the true topic totals at the start of
    a step, and its own changes since.
    """

    def __init__(self, counts, n_topics, alpha, beta, seed, bounds, layout, fixed=None, seeds=None):
        super().__init__(counts, n_topics, seed, fixed, seeds)
        self.alpha, self.beta, self.bounds, self.layout, self.s_error = alpha, beta, bounds, layout, 0.0
        self.address = {i: address for address, i in enumerate(np.argsort(self.word, kind="stable").tolist())}

    def run(self):
        """Do one sweep."""
        key = stream_key(self.seed, self.sweep, 0)
        by_document, by_word = self.tables()
        lists = [
            sorted(([int(count), k] for k, count in enumerate(row) if count), key=lambda entry: (-entry[0], entry[1]))
            for row in by_document
        ]
        n, self.s_error = len(self.bounds) - 1, 0.0
        for step in range(n):
            totals = [by_word.sum(0) for _ in range(n)]
            for shard in range(n):
                block = (shard + step) % n
                for word in self.layout.column[self.layout.block_ptr[block] : self.layout.block_ptr[block + 1]]:
                    for i in range(len(self.topic)):
                        mine = self.bounds[shard] <= self.document[i] < self.bounds[shard + 1]
                        if mine and self.word[i] == word:
                            uniform = (bits_at(key, self.address[i]) >> 11) * 2.0**-53
                            d = self.document[i]
                            self.sample(i, uniform, lists[d], by_document[d], by_word[word], totals[shard])
            off = sum(abs(total - by_word.sum(0)).sum() for total in totals)
            self.s_error = max(self.s_error, off / max(1, n * len(self.topic)))
        self.sweep += 1
        return np.array(self.topic)

    def sample(self, i, uniform, entries, of_document, of_word, total):
        """Take a token out, draw its topic, and put it back."""
        old = self.topic[i]
        for counts in (of_document, of_word, total):
            counts[old] -= 1
        mine = next(entry for entry in entries if entry[1] == old)
        mine[0] -= 1
        q = (of_word + self.seeds[self.word[i]] + self.beta) / (total + self.n_words * self.beta + self.seeds.sum(0))
        weights = [count * q[k] for count, k in entries] + list(self.alpha * q)
        topics = [k for _, k in entries] + list(range(self.n_topics))
        gibbs = (of_document + self.alpha) * q
        np.testing.assert_allclose(np.bincount(topics, weights, self.n_topics), gibbs, rtol=1e-12)
        new = topics[min(np.searchsorted(np.cumsum(weights), uniform * sum(weights), side="right"), len(topics) - 1)]
        self.topic[i] = new
        for counts in (of_document, of_word, total):
            counts[new] += 1
        if new == old:
            mine[0] += 1
            return
        found = [entry for entry in entries if entry[1] == new]
        if found:
            found[0][0] += 1
            if mine[0] == 0:
                mine[:] = entries[-1]
                entries.pop()
        elif mine[0] == 0:
            mine[:] = [1, new]
        else:
            entries.append([1, new])


class CopiesOracle(FPlusOracle):
    """The oracle of exact sampling, but that a shard has copies of all tables for a whole sweep."""

    def run(self):
        tables = self.tables()
        key, n = stream_key(self.seed, self.sweep, 0), len(self.bounds) - 1
        ends = []
        for shard in range(n):
            of_documents, of_words = (table.copy() for table in tables)
            total = of_words.sum(0)
            lists = [
                sorted(([int(c), k] for k, c in enumerate(row) if c), key=lambda entry: (-entry[0], entry[1]))
                for row in of_documents
            ]
            for step in range(n):
                block = (shard + step) % n
                for word in self.layout.column[self.layout.block_ptr[block] : self.layout.block_ptr[block + 1]]:
                    for i in range(len(self.topic)):
                        mine = self.bounds[shard] <= self.document[i] < self.bounds[shard + 1]
                        if mine and self.word[i] == word:
                            super().sample(
                                i, self.uniform(key, i), lists[self.document[i]], of_documents[self.document[i]],
                                of_words[word], total,
                            )  # fmt: skip
            ends.append(total)
        self.sweep += 1
        truth = self.tables()[1].sum(0)
        self.s_error = sum(np.abs(end - truth).sum() for end in ends) / max(1, n * len(self.topic))
        return np.array(self.topic)

    def uniform(self, key, i):
        return (bits_at(key, self.address[i]) >> 11) * 2.0**-53
