"""
Watch a fit: the ring and the exchange
======================================

While a fit runs on a cluster, the page ``/schmp`` of Dask's dashboard shows its progress and what
every worker does (:ref:`watching`).

.. container:: wide

   .. image:: /_static/dashboard.png
      :class: diagram
      :alt: The page of fits: a table of fits, curves of their objective, and what workers did.

After the fit, the scheduler remembers for a while what each worker did, and when.
`~schmp_estimators.ScheduleDisplay` draws a row for each worker, with a bar for each :term:`stage`
of each :term:`shard`.  A thin bar below shows the time in which the worker waited for another one.
"""

# %%
from itertools import pairwise

import numpy as np
from distributed import Client
from scipy import sparse

from schmp_estimators import DistributedLDA, ModelParallelMF, ScheduleDisplay

rng = np.random.default_rng(0)
rows, columns = rng.integers(0, 30_000, 2_000_000), rng.integers(0, 4_000, 2_000_000)
ratings = sparse.coo_array((rng.normal(size=len(rows)), (rows, columns))).tocsr()
client = Client(n_workers=4, threads_per_worker=1, processes=False, dashboard_address=":0")

# %%
# The first fit is a matrix factorisation by stochastic gradient descent.  Each of four workers has
# a quarter of the users.  The items are four blocks, which rotate over the workers.  Follow a
# colour from row to row.  At the end of a sweep all workers wait for each other.
ModelParallelMF(64, max_iter=3, n_shards=4, random_state=0).fit(ratings)
ring = ScheduleDisplay.from_client(client, by="block", sweeps=(1, 3))
ring.ax_.set_title("Two sweeps of the ring: four blocks of items, four shards of users")

# %%
# Topic models with "warp" use an exchange instead of a rotation.  In the pass over words, each word
# belongs to one shard.  All shards send their tokens of the word to this shard, and get them back
# with new topics.  Then every shard makes a pass over its own documents.
counts = sparse.coo_array((np.ones(len(rows), int), (rows, columns**2 // 4_000))).tocsr()
DistributedLDA(100, sampler="warp", max_iter=4, n_shards=4, random_state=0).fit(counts)
exchange = ScheduleDisplay.from_client(client, sweeps=(1, 3))
exchange.ax_.set_title("Two sweeps of the exchange")

# %%
# In the rotation no block is ever in two places, so the bars of a colour do not overlap.
client.close()
of_block = {block: [] for block in range(4)}
for one in ring.spans:
    if one.block is not None and one.name != "wait":
        of_block[one.block].append((one.start, one.stop))
for block, spans in of_block.items():
    spans.sort()
    assert len(spans) == 2 * 4, block  # in each sweep it meets each shard
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), block
print({f"block {block}": f"{len(spans)} cells" for block, spans in of_block.items()})
