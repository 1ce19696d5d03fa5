"""What Dask knows of us, and what we may ask of Dask in each of its modes."""

import os
import subprocess
import sys
from textwrap import dedent

import numpy as np
import pytest
from dask.sizeof import sizeof
from scipy import sparse

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


@pytest.mark.cluster
def test_dask_loads_us_without_loading_anything_heavy():
    """Dask imports the package while it is being imported itself; who only uses Dask must not pay for numba."""
    script = """
        import sys, dask
        assert "schmp_estimators.core.inputs.sizeof" in sys.modules
        print(sorted({"numba", "sklearn", "scipy", "dask.array", "distributed"} & set(sys.modules)))
    """
    assert run(script).strip() == "[]"
