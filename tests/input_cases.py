"""Word counts in many forms: the inputs of the tests of inputs."""

import dask
import dask.array as da
import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator

COUNTS = np.random.default_rng(0).poisson(0.4, (13, 7))
NAMES = [f"word{i}" for i in range(7)]


class Reader(BaseEstimator):
    """The least of an estimator."""


def chunked(chunks, form=None, counts=COUNTS):
    array = da.from_array(counts, chunks=chunks)
    return array if form is None else array.map_blocks(form, dtype=counts.dtype, meta=form((1, 1), dtype=counts.dtype))


def unknown(chunks, form=None):
    array = da.from_array(COUNTS, chunks=chunks)
    array = array[da.from_array(np.ones(len(COUNTS), bool), chunks=chunks[0])]
    return array if form is None else array.map_blocks(form, dtype=COUNTS.dtype, meta=form((1, 1), dtype=COUNTS.dtype))


def delayed_chunks():
    makers = [(np.copy, COUNTS[:5]), (sparse.coo_matrix, COUNTS[5:6]), (pd.DataFrame, COUNTS[6:])]
    return [dask.delayed(make)(rows) for make, rows in makers]
