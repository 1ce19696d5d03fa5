"""Fits on worker processes.

Rows that are on Dask stay there, and workers that die cost only time.
"""

from functools import partial

import numpy as np
import pytest
from checkpoints import left_by
from clusters import Killer, keys_left
from corpora import planted
from input_cases import chunked
from scipy import sparse
from untouchable import make_untouchable

from schmp_estimators import DistributedLDA, ModelParallelMF

LDA = partial(DistributedLDA, 3, max_iter=8, n_shards=2, random_state=7)
MF = partial(ModelParallelMF, 9, max_iter=8, tol=0.0, n_shards=4, random_state=0)
FITS = {
    **{name: partial(LDA, sampler=name) for name in ("warp", "fplus", "frozen", "saber")},
    "sgd": MF,
    "ccd": partial(MF, solver="ccd"),
    "clicks": partial(MF, solver="ccd", unobserved_weight=0.2),
}
TABLE = planted(n_docs=90, seed=3)[0]
ROWS = sparse.csr_array(TABLE)
slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "lazy"), [("warp", False), slow("sgd", False), *(slow(name, True) for name in FITS)]
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning:distributed")
def test_a_killed_worker_does_not_change_a_bit(processes, name, lazy):
    killer, expected = Killer(processes, at=3), FITS[name]().fit(ROWS)
    with processes.as_current():
        found = (
            FITS[name]()
            .set_callbacks(killer)
            .fit(chunked(TABLE, 20, form=sparse.csr_array) if lazy else ROWS)
        )
    assert killer.killed
    assert left_by(found) == left_by(expected)
    assert keys_left(processes) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["warp", "sgd", "ccd"])
def test_the_client_never_has_the_rows(processes, name):
    meta = sparse.csr_array((1, 1), dtype=TABLE.dtype)
    rows, expected = (
        chunked(TABLE, 20).map_blocks(make_untouchable, meta=meta),
        FITS[name]().fit(ROWS),
    )
    with processes.as_current():
        with pytest.raises(AssertionError, match="the client has got a chunk"):
            rows[:5].compute()  # so it would be noticed
        found = FITS[name]().fit(rows)
        assert left_by(found) == left_by(expected)
        np.testing.assert_array_equal(found.transform(rows).compute(), expected.transform(ROWS))
        if name == "warp":
            assert found.perplexity(rows) == expected.perplexity(ROWS)
        else:
            with pytest.raises(ValueError, match="not kept with the model; pass exclude=None"):
                found.recommend([0])
    assert keys_left(processes) == []
