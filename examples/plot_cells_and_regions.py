"""
Cells and regions: topics of binary counts
==========================================

In single-cell ATAC data a row is a cell, a column is a region of the genome, and an entry is 1 if
the region is open.  A topic is then a set of regions that are open together, and the topic shares
of a cell describe its type.  The matrix of such a data set, ``AnnData.X``, is sparse.
``DistributedLDA`` takes it unchanged, and treats regions as words of a document.
"""

# %%
# We generate two thousand cells of eight types, with 20,000 regions.  A program is a group of
# regions that are open together, and each type mixes a few.  A third of the open regions do not
# depend on the type.  For each cell we draw 300 to 1,500 regions.
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
# There is one topic more than programs, for regions that are open anywhere.  The prior of a cell is
# small, so each cell has few topics.
lda = DistributedLDA(
    n_programs + 1, doc_topic_prior=0.1, topic_word_prior=0.01, max_iter=60, random_state=0
)
shares = lda.fit_transform(X)

# %%
# The fit has not seen the types.  A classifier, fitted to the shares of half of the cells, predicts
# the types of the others.
nearest = KNeighborsClassifier(15).fit(shares[::2], types[::2])
accuracy = nearest.score(shares[1::2], types[1::2])
print(f"{accuracy:.1%} of the other cells get the right type from their neighbours")

# %%
# The picture shows mean shares by type.  Below are the regions with the largest weights in one
# topic.
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
