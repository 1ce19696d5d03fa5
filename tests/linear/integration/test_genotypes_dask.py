"""Worker processes map the file of the client, and refuse another one at its path."""

import dask
import numpy as np
import pytest
from clusters import at
from oracles.rounds import by_rounds
from plink import write_plink

import schmp_estimators as se
from schmp_estimators.exceptions import NotSharedError
from schmp_estimators.genotypes import pack, read_plink


@pytest.mark.slow
def test_workers_compare_their_file_with_that_of_the_client(apart, processes, monkeypatch):
    by_rounds(monkeypatch)
    rng = np.random.default_rng(0)
    doses, y = rng.integers(-1, 3, (300, 50)), rng.normal(size=300)
    path, (own, *others) = apart
    for folder in (own, *others):
        write_plink(folder / "a", doses)
    lasso, G = se.PrioritizedLasso(0.02, tol=1e-9, n_shards=3), read_plink(f"{path}/a")
    here = lasso.fit(G, y).coef_
    with at(processes):
        np.testing.assert_array_equal(lasso.fit(G, y).coef_, here)
        write_plink(others[1] / "a", doses[::-1])
        with pytest.raises(
            NotSharedError, match=r"does not find in '.*here/a.bed' what X had there"
        ):
            lasso.fit(G, y)
        (others[1] / "a.bed").unlink()
        with pytest.raises(NotSharedError, match=r"cannot read '.*here/a.bed'"):
            lasso.fit(G, y)


def test_delayed_genotypes_are_chunks_of_rows():
    rng = np.random.default_rng(0)
    doses, y = rng.integers(-1, 3, (90, 8)), rng.normal(size=90)
    chunks = [dask.delayed(pack)(part) for part in np.split(doses, 3)]
    found = se.PrioritizedLasso(0.01, tol=1e-10, missing_values=np.nan).fit(chunks, y)
    there = se.PrioritizedLasso(0.01, tol=1e-10).fit(pack(doses), y)
    np.testing.assert_allclose(found.coef_, there.coef_, atol=1e-7)
    np.testing.assert_allclose(found.fill_values_, there.fill_values_)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        se.PrioritizedLasso(0.01).fit(chunks, y)
