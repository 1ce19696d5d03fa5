"""What the dashboard shows is what docs/dask.rst says it shows."""

import re
from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split
from distributed import SchedulerPlugin

from schmp_estimators import DistributedLDA, ModelParallelMF, PrioritizedLasso, SparseLogisticRegression

GUIDE = Path(__file__).parents[3] / "docs" / "dask.rst"
OURS = re.compile("(read|survey|count|cut|draw|weigh|hash|join|lda|mf|lasso|logistic)(-|$)")
#: What may stand in front of a task of a run, for which the tables have an ellipsis.
PROGRAM = re.compile("^(lda|mf-sgd|mf-bsp|mf-ccd|lasso|logistic)-")


class Names(SchedulerPlugin):
    """Notes the names of all tasks that the scheduler gets to know, and of data that it is given."""

    name = "names"

    def __init__(self):
        self.seen = set()

    def transition(self, key, start, finish, *args, **kwargs):
        self.seen.add(key_split(key))


def documented():
    """Return the names in the first column of the tables."""
    text = GUIDE.read_text(encoding="utf-8").split("What the dashboard shows", 1)[1].split("When a worker dies", 1)[0]
    rows = re.findall(r"^   \* - ((?:.|\n)*?)\n     - ", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"``([^`]+)``", row)}


def fit_all(folder):
    counts = np.random.default_rng(0).poisson(1.0, (60, 30))
    lazy, values = da.from_array(counts, chunks=(20, -1)), counts - 1.0
    lazy_values, y = da.from_array(values, chunks=(20, -1)), values[:, 0] + values[:, 1] + 0.5
    frame = dd.from_pandas(pd.DataFrame(counts, columns=[f"w{i}" for i in range(30)]), npartitions=2)
    for sampler in ("warp", "fplus", "frozen", "saber", "data-parallel"):
        for X in (frame, counts, lazy):
            lda = DistributedLDA(3, sampler=sampler, max_iter=3, n_shards=2, random_state=0)
            lda.set_params(checkpoint=folder / f"{sampler}-{type(X).__name__}").fit(X)
            lda.set_params(max_iter=4, evaluate_every=2).fit(X)  # goes on from the checkpoint
        DistributedLDA(3, sampler=sampler, init="documents", n_shards=2, max_iter=2, random_state=0).fit(lazy)
        lda.set_params(checkpoint=None, warm_start=True, evaluate_every=1).fit(lazy)
        lda.partial_fit(lazy).perplexity(lazy)
    DistributedLDA(3, doc_topic_prior="learn", n_shards=2, max_iter=12, random_state=0).fit(lazy).coherence(lazy)
    lda.transform(lazy).compute()
    lda.transform(list(lazy.to_delayed().ravel()))[0].compute()
    pairs, ratings = np.argwhere(counts), counts[counts > 0].astype(float)
    inputs = [(counts.astype(float), None), (lazy.astype(float), None), (da.from_array(pairs, (300, 2)), ratings)]
    for options in ({}, {"schedule": "bsp"}, {"solver": "ccd"}):
        for number, given in enumerate(inputs):
            mf = ModelParallelMF(2, max_iter=3, n_shards=2, evaluate_every=1, random_state=0, **options)
            mf.set_params(checkpoint=folder / f"{options}-{number}").fit(*given).set_params(max_iter=4).fit(*given)
    mf.set_params(checkpoint=None).fit(lazy.astype(float)).transform(lazy.astype(float)).compute()
    for schedule in ("resolve", "priority", "random", "round_robin"):
        for target in (y, values[:, :2]):  # the first is led by a worker
            for X in (values, lazy_values, lazy_values + 1e9 * (np.arange(30) == 3)):  # a column far from zero
                options = {"schedule": schedule, "max_iter": 8, "tol": 1e-12, "random_state": 0}
                lasso = PrioritizedLasso(0.01, checkpoint=folder / "lasso", **options).fit(X, target)
                (folder / "lasso").unlink()
    lasso.predict(lazy_values).compute()
    for X, target in ((values, y > 0), (lazy_values, y > 0), (lazy_values, np.digitize(y, [0, 1]))):
        logistic = SparseLogisticRegression(C=0.3, max_iter=80).fit(X, target)
    logistic.predict_proba(lazy_values).compute()
    logistic.predict(lazy_values).compute()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_tables_name_all_tasks(client, tmp_path):
    names = Names()
    client.cluster.scheduler.add_plugin(names)
    try:
        with client.as_current():
            fit_all(tmp_path)
    finally:
        client.cluster.scheduler.remove_plugin(Names.name)
    seen = {name.removesuffix("-getitem") for name in names.seen if OURS.match(name)}  # Dask's own slicing
    named = documented()
    run = {name for name in seen if name not in named}
    assert {PROGRAM.sub("…-", name) for name in run} <= named
    assert named <= seen | {PROGRAM.sub("…-", name) for name in run}
