"""Outputs of Dask inputs stay on Dask.

A data frame in memory is refused, and nothing is computed to find that out.
"""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from schmp_estimators import DistributedLDA, ModelParallelMF
from schmp_estimators.core.inputs.validation import is_dask

VALUES = np.random.default_rng(0).integers(1, 5, (12, 6))


def never(block):
    raise AssertionError("a chunk was computed")


@pytest.fixture(params=[DistributedLDA, ModelParallelMF])
def model(request):
    return request.param(2, max_iter=2, random_state=0).fit(VALUES.astype(float))


LAZY = {
    "array": lambda: da.from_array(VALUES, chunks=4).map_blocks(
        never, dtype=int, meta=np.empty((0, 0), int)
    ),
    "frame": lambda: dd.from_pandas(pd.DataFrame(VALUES), npartitions=2),
    "delayed": lambda: [dask.delayed(never)(VALUES)],
}


@pytest.mark.parametrize("kind", LAZY)
@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_frames_in_memory_are_refused_before_any_work(model, kind, container):
    with (
        config_context(transform_output=container),
        pytest.raises(ValueError, match='transform="default"'),
    ):
        model.transform(LAZY[kind]())
    before = vars(model).copy()
    model.set_output(transform=container)
    for method in (model.transform, model.fit_transform):
        with pytest.raises(
            ValueError, match=rf'{container}.*Call set_output\(transform="default"\)'
        ):
            method(LAZY[kind]())
    assert all(getattr(model, name) is value for name, value in before.items())
    model.set_output(transform="default")
    with config_context(transform_output=container):
        assert is_dask(model.transform(LAZY[kind]()))
