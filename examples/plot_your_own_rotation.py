"""
Your own program: Poisson factorisation on a ring
=================================================

We model word counts of documents as Poisson variables.  The mean of a count is the product of two
short vectors, the factors of its document and word.  The factors are fitted by
expectation–maximisation.  Each worker keeps the factors of its documents.  The factors of words are
divided into blocks, which rotate over the workers.  Each worker adds its expected counts to a
block, and the last worker computes the new factors of the block.
"""

from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster
from scipy import sparse
from sklearn.decomposition import NMF
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators.datasets import load_docstrings
from schmp_estimators.schmp import Program, changes, each, reads, run, schedule_rotation


class Shard(NamedTuple):
    cells: tuple  # for each block counts, their documents, their words
    documents: np.ndarray  # factors at the start
    words: np.ndarray  # the same, of the words in the block with the number of the shard


class Side(NamedTuple):  # documents as the state of a shard, words as a block
    factors: np.ndarray
    expected: np.ndarray  # counts that each factor has made, as far as we know
    # sums of a block's factors and log-likelihood of its counts; a shard notes those of one block
    totals: np.ndarray


class PoissonFactorization(Program):
    name = "poisson"

    def schedule(self, sweep, n_shards):
        order = schedule_rotation(n_shards)
        return (
            reads(self.meet, order=order),
            each(self.renew),
            changes(self.collect, order=order),
            each(self.note),
        )

    def init(self, at):
        totals = np.append(at.shard.words.sum(axis=0), 0)
        documents, words = (
            Side(1 * one, 0 * one, 1 * totals) for one in (at.shard.documents, at.shard.words)
        )
        return documents, {at.number: words}

    def expect(self, at, documents, words):
        counts, rows, columns = at.shard.cells[at.block]
        means = (documents.factors[rows] * words.factors[columns]).sum(axis=1)
        shape = len(documents.factors), len(words.factors)
        return sparse.coo_array((counts / means, (rows, columns)), shape), counts @ np.log(means)

    def meet(self, at, documents, words):
        documents.expected[:] += self.expect(at, documents, words)[0] @ words.factors
        return documents

    def renew(self, at, documents):
        documents.factors[:] *= documents.expected / at.model[1]
        documents.expected[:] = 0
        return documents

    def collect(self, at, documents, words):
        ratios, likelihood = self.expect(at, documents, words)
        words.expected[:] += ratios.T @ documents.factors
        words.totals[-1] += likelihood
        if at.is_last:  # for this shard, and so for this block
            words.factors[:] *= words.expected / at.model[0]
            documents.totals[:] = [*words.factors.sum(axis=0), words.totals[-1]]
            words.expected[:], words.totals[-1] = 0, 0
        return documents, words

    def note(self, at, documents):
        return documents

    def report(self, at, documents):
        return documents.factors.sum(axis=0), documents.totals

    def aggregate(self, model, reports):
        document_sums, totals = map(sum, zip(*reports, strict=True))
        return (
            document_sums,
            totals[:-1],
            float(totals[-1] - model[0] @ model[1]) if model else -np.inf,
        )

    def record(self, sweep, model):
        return {"log_likelihood": model[-1]}

    def harvest_block(self, words):
        return words.factors


def make_shards(X, documents, words, n_shards):
    rows, columns = (np.array_split(np.arange(size), n_shards) for size in X.shape)
    cells = [[X[mine][:, theirs].tocoo() for theirs in columns] for mine in rows]
    cells = [tuple((cell.data, cell.row, cell.col) for cell in line) for line in cells]
    return [Shard(cells[p], documents[rows[p]], words[columns[p]]) for p in range(n_shards)]


# %%
# Scikit-learn's ``NMF`` makes the same updates in one process, so we compare the factors.
X = CountVectorizer(stop_words="english", min_df=5, dtype=float).fit_transform(
    load_docstrings(["sklearn"]).data
)
documents, words = (np.random.default_rng(0).uniform(0.1, 1, (size, 8)) for size in X.shape)
shards = make_shards(X, documents, words, 4)
records, harvest = run(PoissonFactorization(), shards, sweeps=20, n_jobs=2)
with LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster, Client(cluster):
    on_cluster, _ = run(PoissonFactorization(), shards, sweeps=10)
nmf = NMF(8, init="custom", solver="mu", beta_loss="kullback-leibler", tol=0, max_iter=20)
nmf.fit(X, W=documents.copy(), H=words.T.copy())
difference = abs(np.concatenate(harvest.blocks) - nmf.components_.T).max() / nmf.components_.max()
print(
    f"{X.shape[0]:,} documents, {X.shape[1]:,} words; difference from scikit-learn's factors: "
    f"{difference:.0e}"
)
curve = [record["log_likelihood"] / X.sum() for record in records]
assert difference < 1e-9 and on_cluster == records[:10] and (np.diff(curve) > 0).all()
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.plot(range(1, len(curve) + 1), curve, marker=".")
ax.set(
    title="The likelihood never falls",
    xlabel="Sweeps",
    xticks=range(0, 21, 5),
    ylabel="Log-likelihood per word",
)
plt.show()
