"""What Dask knows of us, and what we may ask of Dask in each of its modes."""

import os
import subprocess
import sys
from textwrap import dedent

import dask
import numpy as np
import pytest
from dask.sizeof import sizeof
from dask.utils import Dispatch
from scipy import sparse

from schmp_estimators.core.door.dask_registry import register_sizeof

FORMATS = ["csr", "csc", "coo", "dia", "bsr", "lil", "dok"]


def run(script, **environment):
    arguments = [sys.executable, "-W", "error", "-c", dedent(script)]
    done = subprocess.run(
        arguments, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("name", FORMATS)
def test_dask_knows_the_size_of_sparse_data(name, kind):
    diagonal = sparse.diags_array(np.ones(1000), format="csr")
    matrix = getattr(sparse, f"{name}_{kind}")(diagonal)
    assert 8_000 <= sizeof(matrix) <= 200_000


def test_a_csr_array_weighs_its_arrays():
    matrix = sparse.random_array((100, 50), density=0.1, format="csr", rng=0)
    arrays = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
    assert arrays <= sizeof(matrix) <= arrays + 200


def test_registering_twice_does_no_harm():
    dispatch = Dispatch("sizeof")
    for _ in range(2):
        register_sizeof(dispatch)
        assert dispatch(sparse.csr_array(np.eye(1000))) > 16_000


@pytest.mark.cluster
def test_dask_loads_us_without_loading_anything_heavy():
    """Dask imports the package while it is being imported itself; who only uses Dask must not pay for numba."""
    script = """
        import sys, dask
        assert "schmp_estimators.core.door.dask_registry" in sys.modules
        print(sorted({"numba", "sklearn", "scipy", "dask.array", "distributed"} & set(sys.modules)))
    """
    assert run(script).strip() == "[]"


QUERY_PLANNED = """
    from contextlib import closing
    import dask, dask.array as da, dask.dataframe as dd, numpy as np, pandas as pd
    from distributed import Client, LocalCluster
    from scipy import sparse
    from sklearn.base import BaseEstimator
    from schmp_estimators.core.places.dask import DaskPlace
    from schmp_estimators.core.places.place import Place
    from schmp_estimators.lda.data.corpus import open_corpus
    from schmp_estimators.core.door.inputs import map_rows

    assert dask.config.get("array.query-planning") is True
    X = np.random.default_rng(0).poisson(0.4, (13, 7))

    def chunked(chunks, form):
        return da.from_array(X, chunks=chunks).map_blocks(form, dtype=X.dtype, meta=form((1, 1), dtype=X.dtype))

    def total(rows, factor):
        return np.asarray(rows.sum(axis=1)).reshape(-1, 1) * factor

    lazy = [
        da.from_array(X, chunks=(4, 7)),
        da.from_array(X, chunks=(4, 3)),
        chunked((4, 7), sparse.csr_array),
        chunked((4, 3), sparse.csc_matrix),
    ]
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=3)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for place in (Place(), DaskPlace(client)):
            for input in (*lazy, frame, frame.to_delayed()):
                estimator = BaseEstimator()
                with closing(open_corpus(input, estimator, place=place)) as corpus:
                    assert (corpus.lengths == X.sum(axis=1)).all()
                    assert (corpus.word_totals == X.sum(axis=0)).all()
                try:
                    out = map_rows(total, input, estimator, 2, n_outputs=1, dtype=X.dtype, name="total")
                except NotImplementedError:  # so Dask says of frames as arrays while it plans queries
                    assert input is frame
                    continue
                parts = out if isinstance(out, list) else [out]
                values = dask.compute(*parts, scheduler="sync") if place is None else client.compute(parts, sync=True)
                assert (np.concatenate(values) == 2 * X.sum(axis=1, keepdims=True)).all()
    print("done")
"""


@pytest.mark.slow
@pytest.mark.skipif("query-planning" not in dask.config.get("array", {}), reason="this Dask has no query planning")
def test_query_planning_makes_no_difference():
    assert run(QUERY_PLANNED, DASK_ARRAY__QUERY_PLANNING="True").strip() == "done"
