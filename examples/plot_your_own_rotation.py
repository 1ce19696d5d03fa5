"""
Your own program: Poisson factorisation on a ring
=================================================

Counts of words in documents are Poisson variables whose means are products of few factors, found by
expectation–maximisation.  Each worker keeps the factors of its documents.  Those of the words go round in blocks: a
block collects what every worker expects of its words, and the last one on its way makes the new factors.
"""

from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster
from scipy import sparse
from sklearn.decomposition import NMF
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators.datasets import load_docstrings
from schmp_estimators.schmp import Local, Outcome, Program, Rotation, run, schedule_rotation


class Shard(NamedTuple):
    number: int
    cells: tuple  # for each block counts, their documents, their words
    documents: np.ndarray  # factors at the start
    words: np.ndarray  # the same, of the words in block `number`


class Side(NamedTuple):  # documents as the state of a shard, words as a block
    factors: np.ndarray
    expected: np.ndarray  # counts that each factor has made, as far as we know
    totals: np.ndarray  # sums of a block's factors and log-likelihood of its counts; a shard notes those of one block


class PoissonFactorization(Program):
    name = "poisson"

    def schedule(self, sweep, n_shards):
        order = schedule_rotation(n_shards)
        read = Rotation("documents", order, moves=False, divided=False)
        return read, Local("renew-documents"), Rotation("words", order, moves=True, divided=False), Local("add-up")

    def start(self, shard, saved, each):
        totals = np.append(shard.words.sum(axis=0), 0)
        state, block = (Side(factors, 0 * factors, totals) for factors in (shard.documents, shard.words))
        parts = [block if index == shard.number else () for index in range(len(shard.cells))]
        return self.report(Side(*map(np.array, saved or state)))._replace(parts=parts)

    def start_block(self, index, parts, saved):
        return Side(*map(np.array, saved or parts[index]))

    def update(self, visit):
        shard, state, block = visit.shard, visit.state, visit.block
        document_sums, word_sums, _ = visit.model
        if visit.stage == "renew-documents":
            state.factors[:] *= state.expected / word_sums
            state.expected[:] = 0
        if block is None:
            return self.report(state)
        counts, documents, words = shard.cells[visit.block_index]
        means = (state.factors[documents] * block.factors[words]).sum(axis=1)
        ratios = sparse.coo_array((counts / means, (documents, words)), (len(state.factors), len(block.factors)))
        if visit.stage == "documents":
            state.expected[:] += ratios @ block.factors
            return Outcome(state)
        block.expected[:] += ratios.T @ state.factors
        block.totals[-1] += counts @ np.log(means)
        if (visit.block_index + 1) % len(shard.cells) == shard.number:  # the last visit of this block
            block.factors[:] *= block.expected / document_sums
            state.totals[:] = [*block.factors.sum(axis=0), block.totals[-1]]
            block.expected[:], block.totals[-1] = 0, 0
        return Outcome(state, block=block)

    def report(self, state):
        return Outcome(state, partial=(state.factors.sum(axis=0), state.totals))

    def aggregate(self, model, partials):
        document_sums, totals = map(sum, zip(*partials, strict=True))
        return document_sums, totals[:-1], float(totals[-1] - model[0] @ model[1]) if model else -np.inf

    def progress(self, sweep, model, shards, blocks):
        return {"log_likelihood": model[-1]}

    def save(self, shard, state):
        return Side(*map(np.array, state))

    def save_block(self, block):
        return Side(*map(np.array, block))

    def harvest_block(self, block):
        return np.array(block.factors)


def make_shards(X, documents, words, n_shards):
    rows, columns = (np.array_split(np.arange(size), n_shards) for size in X.shape)
    cells = [[X[mine][:, theirs].tocoo() for theirs in columns] for mine in rows]
    cells = [tuple((cell.data, cell.row, cell.col) for cell in line) for line in cells]
    return [Shard(p, cells[p], documents[rows[p]], words[columns[p]]) for p in range(n_shards)]


# %%
# Scikit-learn's ``NMF`` takes the same steps, with all words in one place.
X = CountVectorizer(stop_words="english", min_df=5, dtype=float).fit_transform(load_docstrings(["sklearn"]).data)
documents, words = (np.random.default_rng(0).uniform(0.1, 1, (size, 8)) for size in X.shape)
shards = make_shards(X, documents, words, 4)
records, harvest = run(PoissonFactorization(), shards, n_sweeps=20, n_jobs=2)
with LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster, Client(cluster):
    on_cluster, _ = run(PoissonFactorization(), shards, n_sweeps=10)
nmf = NMF(8, init="custom", solver="mu", beta_loss="kullback-leibler", tol=0, max_iter=20)
nmf.fit(X, W=documents.copy(), H=words.T.copy())
difference = abs(np.concatenate(harvest.blocks) - nmf.components_.T).max() / nmf.components_.max()
print(f"{X.shape[0]:,} documents, {X.shape[1]:,} words; difference from scikit-learn's factors: {difference:.0e}")
curve = [record["log_likelihood"] / X.sum() for record in records]
assert difference < 1e-9 and on_cluster == records[:10] and (np.diff(curve) > 0).all()
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.plot(range(1, len(curve) + 1), curve, marker=".")
ax.set(title="The likelihood never falls", xlabel="Sweeps", xticks=range(0, 21, 5), ylabel="Log-likelihood per word")
plt.show()
