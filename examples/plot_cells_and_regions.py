"""
Cells and regions: topics of binary counts
==========================================

In single-cell ATAC data a row is a cell, a column is a region of the genome, and an entry says that
the region is open.  Topics then are sets of regions that are open together, and the shares of a
cell describe its type.  The matrix of such a data set, ``AnnData.X``, is a sparse matrix, which
``DistributedLDA`` takes as it is: entries are the number of times that a "word" occurs.
"""

# %%
# Two thousand cells of eight types and 20,000 regions.  Each type has programs of regions that are
# open together, and shares two of them with others; a third of the open regions are open anywhere.
# A cell shows between 300 and 1,500 open regions.
import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse
from sklearn.neighbors import KNeighborsClassifier

from schmp_estimators import DistributedLDA

rng = np.random.default_rng(0)
n_cells, n_regions, n_programs, n_types = 2000, 20_000, 12, 8
programs = rng.dirichlet(np.full(n_regions, 0.02), n_programs)
anywhere = rng.dirichlet(np.full(n_regions, 0.5))
of_type = rng.dirichlet(np.full(n_programs, 0.2), n_types)
types = rng.integers(0, n_types, n_cells)
rows = []
for cell_type in types:
    shares = 0.67 * rng.dirichlet(30 * of_type[cell_type] + 0.01)
    chances = shares @ programs + 0.33 * anywhere
    n_open = int(rng.uniform(300, 1500))
    rows.append(np.unique(rng.choice(n_regions, n_open, p=chances)))
indptr = np.append(0, np.cumsum([len(row) for row in rows]))
ones = np.ones(indptr[-1], np.int8)
X = sparse.csr_array((ones, np.concatenate(rows), indptr), (n_cells, n_regions))
print(f"{X.shape[0]} cells, {X.shape[1]} regions, {X.nnz:,} open ones")

# %%
# One topic more than there are programs, for what is open anywhere.  The prior of a cell is low:
# few topics for each.
lda = DistributedLDA(
    n_programs + 1, doc_topic_prior=0.1, topic_word_prior=0.01, max_iter=60, random_state=0
)
shares = lda.fit_transform(X)

# %%
# The shares know the types, which the fit has not seen: half of the cells tell those of the others.
nearest = KNeighborsClassifier(15).fit(shares[::2], types[::2])
accuracy = nearest.score(shares[1::2], types[1::2])
print(f"{accuracy:.1%} of the other cells get the right type from their neighbours")

# %%
# Mean shares by type.  A topic is a list of regions, those with the largest weights first.
mean = np.array([shares[types == one].mean(axis=0) for one in range(n_types)])
figure, axes = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
image = axes.imshow(mean, cmap="viridis", vmin=0)
axes.set(xlabel="topic", ylabel="type of the cell", title="Mean share of each topic")
axes.set_xticks(range(lda.n_components))
figure.colorbar(image)
plt.show()

weights = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
first = np.argsort(-weights[mean[0].argmax()])[:5]
print("the main topic of the first type opens regions", *first)

# %%
assert accuracy > 0.9
