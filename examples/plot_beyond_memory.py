"""
My corpus does not fit into memory
==================================

A topic model needs some bytes for every :term:`token`: for its position, its topic, and the topics
proposed for it.  With ``spill`` these bytes are kept in files, and a fit works on one slice of the
documents at a time.  The result does not change.  Here the corpus is small, so we can fit it with
and without ``spill`` and compare the memory.  On a Dask cluster the same parameter uses the disks
of the workers.
"""

# %%
# The counts are in memory-mapped files, so rows are read when they are needed.  A Dask collection
# works as well; its chunks are loaded one at a time.
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
from scipy import sparse

from schmp_estimators import DistributedLDA

rng, n_docs, n_words, length = np.random.default_rng(0), 12_000, 2_000, 300
topics = rng.dirichlet(np.full(n_words, 0.02), 20).cumsum(axis=1)
folder = Path(tempfile.mkdtemp())
rows = []
for _ in range(n_docs):
    words = np.searchsorted(topics[rng.integers(20)], rng.random(length) * 0.999999)
    rows.append(np.bincount(words, minlength=1))
columns = [np.flatnonzero(row).astype(np.int32) for row in rows]
arrays = {
    "data": np.concatenate([row[row > 0] for row in rows]).astype(np.int32),
    "indices": np.concatenate(columns),
    "indptr": np.concatenate([[0], np.cumsum(list(map(len, columns)))]).astype(np.int32),
}
for name, array in arrays.items():
    np.save(folder / f"{name}.npy", array)
del rows, columns, arrays, array
parts = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("data", "indices", "indptr")]
X = sparse.csr_array(tuple(parts), shape=(n_docs, n_words), copy=False)
print(f"{n_docs:,} documents, {X.sum():,} tokens")

# %%
# We run both fits, and measure the peak memory of their arrays.  The number of slices depends on
# the memory that is left.  Here there is plenty, so we ask for many small :term:`shards <shard>`,
# because each has at least one slice.


def fit(**parameters):
    """Return a fitted model and the MiB that it took at most."""
    tracemalloc.start()
    lda = DistributedLDA(20, sampler="warp", max_iter=10, random_state=0, **parameters).fit(X)
    most = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return lda, most


DistributedLDA(20, sampler="warp", max_iter=2, spill=folder / "small", n_shards=2).set_params(
    random_state=0
).fit(X[:9])
in_memory, with_memory = fit()
on_disk, with_disk = fit(spill=folder / "topics", n_shards=20)
written = {path.name: path.stat().st_size for path in sorted((folder / "topics").iterdir())}
print(f"at most {with_memory:.0f} MiB in memory, {with_disk:.0f} MiB with tokens on disk")
print("what is left there, in bytes:", written)

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6.5, 2.2), layout="constrained")
axes.barh(["spill=folder", "spill=None"], [with_disk, with_memory], color=["#e08e45", "#2f7ea6"])
axes.set(title="Memory of a fit at its peak", xlabel="MiB of arrays")
axes.grid(axis="y", visible=False)
plt.show()

# %%
# The folder is also a checkpoint.  After an interruption the same call continues the fit.  A larger
# ``max_iter`` continues a fit that has ended.
same = (in_memory.topic_word_counts_ != on_disk.topic_word_counts_).nnz == 0
print("the same counts:", same)
assert same
assert with_disk < with_memory / 2
