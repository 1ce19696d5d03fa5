"""Samplers that go from cell to cell, token by token: slow and obvious, for exact comparison."""

import numpy as np
from oracles.lda_warp import Tokens, bits_at, topic_in_order, uniform

from schmp_estimators.core.rng import stream_key


class CellOracle(Tokens):
    """Counts (documents × words) in, topics in document order after every sweep out.

    Documents are cut into shards, words into blocks by the layout.  A shard knows the true topic
    totals at the start of a step, and its own changes since.  A subclass says in which order tokens
    of a cell are sampled, and how.
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.alpha, self.s_error = np.broadcast_to(self.alpha, self.n_topics), 0.0
        self.topic, self.beta_sum = (
            np.array(self.topic, int),
            self.n_words * self.beta + self.seeds.sum(0),
        )

    def run(self):
        """Do one sweep."""
        key = stream_key(self.seed, self.sweep, 0)
        self.by_document, self.by_word = self.tables()
        self.begin_sweep()
        n, self.s_error = len(self.bounds) - 1, 0.0
        for step in range(n):
            totals = [self.by_word.sum(0) for _ in range(n)]
            for shard in range(n):
                self.total = totals[shard]
                self.sample_cell(shard, (shard + step) % n, key)
            off = sum(abs(total - self.by_word.sum(0)).sum() for total in totals)
            self.s_error = max(self.s_error, off / max(1, n * len(self.topic)))
        self.sweep += 1
        return self.topic.copy()

    def sample_cell(self, shard, block, key):
        words = self.layout.column[self.layout.block_ptr[block] : self.layout.block_ptr[block + 1]]
        for i in self.tokens_of(shard, words):
            for counts in self.counts_of(i):
                counts[self.topic[i]] -= 1
            new = self.sample(i, key)
            for counts in self.counts_of(i):
                counts[new] += 1
            self.topic[i] = new

    def counts_of(self, i):
        """The token's rows of counts, which change with it."""
        return self.by_document[self.document[i]], self.by_word[self.word[i]], self.total

    def gibbs(self, i):
        """The weights of all topics for a token that is in none of the counts."""
        of_document, of_word, total = self.counts_of(i)
        return (
            (of_document + self.alpha)
            * (of_word + self.beta + self.seeds[self.word[i]])
            / (total + self.beta_sum)
        )

    def begin_sweep(self):
        """Make what is made anew for each sweep."""

    def tokens_of(self, shard, words):
        """Yield the tokens of a cell in their order."""
        raise NotImplementedError

    def sample(self, i, key):
        """Return the new topic of a token that is in none of the counts."""
        raise NotImplementedError


class ByDocumentOracle(CellOracle):
    """Documents one after the other, whose topics are listed.

    A subclass says what is made anew for every cell.
    """

    def tokens_of(self, shard, words):
        self.shard = shard
        self.begin_cell(words)
        for d in range(self.bounds[shard], self.bounds[shard + 1]):
            mine = np.flatnonzero((self.document == d) & np.isin(self.word, words))
            self.listed = list(dict.fromkeys(self.topic[self.document == d].tolist()))
            yield from mine

    def begin_cell(self, words):
        """Make what is made anew for each cell."""

    def list_again(self, of_document, old, new):
        """Mend the list of a document's topics after a token has moved.

        `of_document` does not count this token.
        """
        if of_document[new] == 0:
            self.listed.append(new)
        if of_document[old] == 0:
            self.listed[self.listed.index(old)] = self.listed[-1]
            self.listed.pop()


class GibbsOracle(ByDocumentOracle):
    """All topics, one after the other."""

    def sample(self, i, key):
        ends = np.cumsum(self.gibbs(i))
        point = (bits_at(key, int(i)) >> 11) * 2.0**-53 * ends[-1]
        return min(np.searchsorted(ends, point, side="right"), self.n_topics - 1)


class SparseOracle(ByDocumentOracle):
    """SparseLDA: the token's own topic comes first.

    Then come those of its word's seeds, of its word, of its document, and all.
    """

    def begin_cell(self, words):
        self.lists = {
            w: sorted(
                ([int(n), k] for k, n in enumerate(self.by_word[w]) if n),
                key=lambda e: (-e[0], e[1]),
            )
            for w in words
        }

    def sample(self, i, key):
        old, entries = self.topic[i], self.lists[self.word[i]]
        of_document, _, total = self.counts_of(i)
        gibbs = self.gibbs(i)
        inverse = 1.0 / (total + self.beta_sum)
        parts = [(old, gibbs[old])]
        parts += [
            (k, seed * (of_document[k] + self.alpha[k]) * inverse[k])
            for k, seed in enumerate(self.seeds[self.word[i]])
            if seed and k != old
        ]
        parts += [
            (k, n * (of_document[k] + self.alpha[k]) * inverse[k]) for n, k in entries if k != old
        ]
        parts += [(k, self.beta * of_document[k] * inverse[k]) for k in self.listed if k != old]
        topics, weights = (np.array(part) for part in zip(*parts, strict=True))
        smoothing = self.beta * self.alpha * inverse
        smoothing[old] = 0.0
        topics, weights = np.append(topics, np.arange(self.n_topics)), np.append(weights, smoothing)
        np.testing.assert_allclose(np.bincount(topics, weights, self.n_topics), gibbs, rtol=1e-12)
        point = (bits_at(key, int(i)) >> 11) * 2.0**-53 * weights.sum()
        new = topics[min(np.searchsorted(np.cumsum(weights), point, side="right"), len(topics) - 1)]
        if new != old:
            self.mend(entries, old, new)
            self.list_again(of_document, old, new)
        return new

    @staticmethod
    def mend(entries, old, new):
        """Move a token between the entries of a word.

        One that has grown may change places with that before it.
        """
        at = {k: j for j, (_, k) in enumerate(entries)}
        mine = entries[at[old]]
        mine[0] -= 1
        if new not in at:
            if mine[0] == 0:
                mine[:] = [1, new]
            else:
                entries.append([1, new])
            return
        j = at[new]
        entries[j][0] += 1
        if j and entries[j][0] > entries[j - 1][0]:
            entries[j - 1], entries[j] = entries[j], entries[j - 1]
        if mine[0] == 0:
            last = entries.pop()
            if last is not mine:
                entries[next(j for j, entry in enumerate(entries) if entry is mine)] = last


def alias_table(weights):
    """The share of each slot that is its own, whose the rest is, and the sum of the weights."""
    n, total = len(weights), 0.0
    for weight in weights:
        total += weight
    share, other = [float(weight) * (n / total) for weight in weights], list(range(n))
    small, large = [i for i in range(n) if share[i] < 1.0], [i for i in range(n) if share[i] >= 1.0]
    while small and large:
        i, j = small.pop(), large[-1]
        other[i] = j
        share[j] -= 1.0 - share[i]
        if share[j] < 1.0:
            small.append(large.pop())
    for i in small:
        share[i] = 1.0
    return share, other, total


def draw_alias(table, uniform):
    """The slot of a table for a number in [0, 1)."""
    y = uniform * len(table[0])
    slot = min(int(y), len(table[0]) - 1)
    return slot if y - slot < table[0][slot] else table[1][slot]


class LightOracle(ByDocumentOracle):
    """LightLDA: proposals of the word and of the document in turn.

    They follow the topics of other tokens.
    """

    def __init__(self, *arguments, mh_steps=2, asked=("word", "document"), **options):
        super().__init__(*arguments, **options)
        self.mh_steps, self.asked, self.table = mh_steps, asked, alias_table(self.alpha)

    def begin_cell(self, words):
        self.lists = {}
        low, high = self.bounds[self.shard : self.shard + 2]
        for w in words:
            tokens = np.flatnonzero(self.word == w)
            topics = self.topic[tokens]
            foreign = (self.document[tokens] < low) | (self.document[tokens] >= high)
            if len(tokens) >= 2 * self.n_topics:
                topics[foreign] = np.sort(topics[foreign])
            self.lists[w] = dict(zip(tokens.tolist(), topics.tolist(), strict=True))

    def sample(self, i, key):
        d, w, old = self.document[i], self.word[i], self.topic[i]
        of_document, of_word, total = self.counts_of(i)
        inverse, prior = 1.0 / (total + self.beta_sum), self.beta + self.seeds[w]
        by_document, by_word = (of_document + self.alpha) * inverse, (of_word + prior) * inverse
        of_the_word = [k for token, k in self.lists[w].items() if token != i]
        of_the_document = [
            self.topic[token] for token in np.flatnonzero(self.document == d) if token != i
        ]
        s = old
        for step in range(2 * self.mh_steps):
            bits = bits_at(key, 2 * self.mh_steps * int(i) + step)
            uniform, point = (bits >> 40) * 2.0**-24, (bits & ((1 << 40) - 1)) * 2.0**-40
            if self.asked[step % 2] == "word":
                n = len(of_the_word)
                x = point * (n + (self.n_topics * self.beta + self.seeds[w].sum()))
                if x < n:
                    t = of_the_word[int(x)]
                elif x < n + self.n_topics * self.beta or not self.seeds[w].any():
                    t = min(int((x - n) / self.beta), self.n_topics - 1)
                else:
                    t = topic_in_order(self.seeds[w], x - n - self.n_topics * self.beta)
                ratio = by_document
            else:
                n = len(of_the_document)
                x = point * (n + self.table[2])
                t = (
                    of_the_document[int(x)]
                    if x < n
                    else draw_alias(self.table, (x - n) / self.table[2])
                )
                ratio = by_word
            if t != s and uniform * ratio[s] < ratio[t]:
                s = t
        self.lists[w][int(i)] = s
        return s


class AliasOracle(ByDocumentOracle):
    """AliasLDA: proposals from exact sums and from tables.

    Sums are over the document's topics, tables are those of the beginning.
    """

    def __init__(self, *arguments, mh_steps=2, **options):
        super().__init__(*arguments, **options)
        self.mh_steps = mh_steps

    def begin_cell(self, words):
        self.stale, self.inverse, self.table_of = (
            self.by_word.copy(),
            1.0 / (self.total + self.beta_sum),
            {},
        )
        for w in words:
            row = self.stale[w]
            topics = sorted(np.flatnonzero(row).tolist(), key=lambda k, row=row: (-row[k], k))
            weights = [row[k] * self.alpha[k] * self.inverse[k] for k in topics]
            self.table_of[w] = topics, alias_table(weights) if topics else ([], [], 0.0)
        self.smoothing = alias_table(self.alpha * self.inverse)

    def sample(self, i, key):
        w, old = self.word[i], int(self.topic[i])
        of_document, of_word, total = self.counts_of(i)
        weight = (of_word + self.beta + self.seeds[w]) / (total + self.beta_sum)
        p, fresh = (of_document + self.alpha) * weight, of_document * weight
        q = fresh + (self.stale[w] + self.beta) * self.alpha * self.inverse
        topics, table = self.table_of[w]
        masses = fresh.sum(), table[2], self.beta * self.smoothing[2]
        np.testing.assert_allclose(sum(masses), q.sum(), rtol=1e-9)
        s = old
        for step in range(self.mh_steps):
            bits, second = (bits_at(key, 2 * (self.mh_steps * int(i) + step) + j) for j in range(2))
            point = (bits >> 11) * 2.0**-53 * sum(masses)
            if point < masses[0]:
                ends = np.cumsum(fresh[self.listed])
                t = self.listed[min(np.searchsorted(ends, point, side="right"), len(ends) - 1)]
            elif point - masses[0] < masses[1]:
                t = topics[draw_alias(table, (point - masses[0]) / masses[1])]
            else:
                t = draw_alias(self.smoothing, (point - masses[0] - masses[1]) / masses[2])
            if t != s and (second >> 11) * 2.0**-53 * p[s] * q[t] < p[t] * q[s]:
                s = t
        if s != old:
            self.list_again(of_document, old, s)
        return s


class FPlusOracle(CellOracle):
    """Words one after the other, by exact sampling.

    Topics of documents are listed, and lists are mended.
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.address = {
            i: address for address, i in enumerate(np.argsort(self.word, kind="stable").tolist())
        }

    def begin_sweep(self):
        self.lists = [
            sorted(
                ([int(count), k] for k, count in enumerate(row) if count),
                key=lambda entry: (-entry[0], entry[1]),
            )
            for row in self.by_document
        ]

    def tokens_of(self, shard, words):
        mine = (self.document >= self.bounds[shard]) & (self.document < self.bounds[shard + 1])
        for word in words:
            yield from np.flatnonzero(mine & (self.word == word))

    def conditional(self, i, of_word, total):
        """The weights of all topics by words alone."""
        return (of_word + self.seeds[self.word[i]] + self.beta) / (
            total + self.n_words * self.beta + self.seeds.sum(0)
        )

    def sample(self, i, key):
        old, entries = self.topic[i], self.lists[self.document[i]]
        of_document, of_word, total = self.counts_of(i)
        mine = next(entry for entry in entries if entry[1] == old)
        mine[0] -= 1
        q = self.conditional(i, of_word, total)
        weights = [count * q[k] for count, k in entries] + list(self.alpha * q)
        topics = [k for _, k in entries] + list(range(self.n_topics))
        gibbs = (of_document + self.alpha) * q
        np.testing.assert_allclose(np.bincount(topics, weights, self.n_topics), gibbs, rtol=1e-12)
        point = (bits_at(key, self.address[i]) >> 11) * 2.0**-53 * sum(weights)
        new = topics[min(np.searchsorted(np.cumsum(weights), point, side="right"), len(topics) - 1)]
        if new == old:
            mine[0] += 1
            return new
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
        return new


class CopiesOracle(FPlusOracle):
    """The oracle of exact sampling, but that a shard has copies of all tables for a whole sweep."""

    def run(self):
        tables, ends = self.tables(), []
        key, n = stream_key(self.seed, self.sweep, 0), len(self.bounds) - 1
        for shard in range(n):
            self.by_document, self.by_word = (table.copy() for table in tables)
            self.total = self.by_word.sum(0)
            self.begin_sweep()
            for step in range(n):
                self.sample_cell(shard, (shard + step) % n, key)
            ends.append(self.total)
        self.sweep += 1
        truth = self.tables()[1].sum(0)
        self.s_error = sum(np.abs(end - truth).sum() for end in ends) / max(1, n * len(self.topic))
        return self.topic.copy()


class HybridOracle(FPlusOracle):
    """As its base, with documents of more than `long_document` tokens sampled by proposals.

    By "acceptance" they are the fewest, up to 16, of which one would have been accepted before.
    """

    def __init__(self, *arguments, long_document, mh_steps=2, **options):
        super().__init__(*arguments, **options)
        self.long_document, self.by_acceptance = long_document, mh_steps == "acceptance"
        self.next_steps = 2 if self.by_acceptance else mh_steps

    def run(self):
        self.n_steps, self.made, self.accepted = self.next_steps, 0, 0
        topic = super().run()
        self.told = {"mh_steps": self.n_steps, "proposals": self.made, "accepted": self.accepted}
        if self.by_acceptance:
            enough = [n for n in range(1, 16) if n * self.accepted >= self.made]
            self.next_steps = min([*enough, 16])
        return topic

    def sample(self, i, key):
        tokens = np.flatnonzero(self.document == self.document[i]).tolist()
        if len(tokens) <= self.long_document:
            return super().sample(i, key)
        new = self.topic[i]
        of_document, of_word, total = self.counts_of(i)
        q, others = self.conditional(i, of_word, total), [j for j in tokens if j != i]
        if i != tokens[-1]:  # the last token takes the place of this one
            others.insert(tokens.index(i), others.pop())
        key = stream_key(self.seed, self.sweep, 1)
        for step in range(self.n_steps):
            bits = bits_at(key, self.address[i] * self.n_steps + step)
            x = (bits & ((1 << 40) - 1)) * 2.0**-40
            if step % 2:
                y = x * (len(others) + self.alpha.sum())
                if y < len(others):
                    proposed = self.topic[others[int(y)]]
                else:
                    proposed = min(topic_in_order(self.alpha, y - len(others)), self.n_topics - 1)
                answer = q
            else:
                proposed = min(topic_in_order(q, x * q.sum()), self.n_topics - 1)
                answer = of_document + self.alpha
            self.made += 1
            if float(uniform(bits)) * answer[new] < answer[proposed]:
                self.accepted += 1
                new = proposed
        return new
