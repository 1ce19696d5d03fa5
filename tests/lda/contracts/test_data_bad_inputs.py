"""Bad input is refused before any work, with the place, the value and the remedy, here and on a cluster."""

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import place_of
from input_cases import COUNTS, Reader, chunked, unknown
from scipy import sparse

from schmp_estimators.core.inputs.validation import map_rows
from schmp_estimators.lda.data.corpus import open_corpus
from schmp_estimators.lda.data.counts import canonical_counts


@pytest.mark.covering
@pytest.mark.parametrize("value", [-1, 0.25, np.nan, np.inf, 2.0**31])
@pytest.mark.parametrize("row", [0, 6, 12])
def test_bad_counts_are_placed_in_the_whole_input(value, row, place):
    bad = COUNTS.astype(float)
    bad[row, 5] = value
    for X in (bad, sparse.csr_array(bad), chunked((4, 3), counts=bad), chunked((4, 7), sparse.csr_array, bad)):
        with pytest.raises(ValueError, match=rf"X\[{row}, 5\] is {value}".replace("nan", "NaN")):
            open_corpus(X, Reader(), place=place_of(place))


@pytest.mark.parametrize("dtype", ["M8[D]", "m8[s]"])
def test_dates_and_times_are_no_numbers(dtype, place):
    dates = COUNTS.astype(int).astype(dtype)
    for X in (dates, da.from_array(dates, chunks=(5, -1))):
        with pytest.raises(ValueError, match=r"X holds dates or times \((datetime|timedelta)64\[.\]\), not numbers"):
            open_corpus(X, Reader(), place=place_of(place))


def test_bad_counts_met_lazily_are_placed_in_their_chunk():
    bad = COUNTS.copy()
    bad[6, 5] = -1
    reader = Reader()
    reader.n_features_in_ = 7
    lazy = map_rows(
        lambda rows, _: canonical_counts(rows), chunked((4, 7), counts=bad), reader, 0, n_outputs=1, dtype=int, name="t"
    )
    with pytest.raises(ValueError, match=r"X\[2, 5\]") as caught:
        lazy.compute(scheduler="sync")
    assert "numbered from the start of their chunk" in caught.value.__notes__[0]


class LabelledArray:
    """What matters of an xarray.DataArray on Dask."""

    dims = ("document", "word")

    def __init__(self, data):
        self.data, self.shape, self.ndim = data, data.shape, data.ndim

    def __dask_graph__(self):
        return self.data.__dask_graph__()


def with_entry(entry):
    table = COUNTS.astype(object)
    table[2, 3] = entry
    return table


TEXTS = ["the cat", "the dog"]
BAD = {
    "text": (TEXTS, ValueError, "CountVectorizer"),
    "one text": ("the cat", ValueError, "CountVectorizer"),
    "array of text": (np.array(TEXTS), ValueError, "CountVectorizer"),
    "series of text": (pd.Series(TEXTS), ValueError, "CountVectorizer"),
    "one column of text": (pd.DataFrame({"text": TEXTS}), ValueError, "CountVectorizer, alone"),
    "lists of words": ([["the", "cat"], [], ["the"]], ValueError, r"no number: .*CountVectorizer\(analyzer=list\)"),
    "lists of pairs": ([[(0, 1), (3, 2)], [(2, 1)]], ValueError, r"no number: .*gensim.matutils.corpus2csc\(X\).T"),
    "table of text": ([TEXTS], ValueError, "strings|convert"),
    "a dict": (with_entry({}), TypeError, "X has an entry that is no number: .*dict"),
    "a list in a list": (with_entry([1]), ValueError, "X has an entry that is no number: .*sequence"),
    "a missing value of pandas": (with_entry(pd.NA), TypeError, "X has an entry that is no number: .*NAType"),
    "a huge number": (with_entry(10**400), OverflowError, "X has an entry that is no number: int too large"),
    "1-d": ([1, 2, 3], ValueError, "Reshape your data"),
    "1-d sparse": (sparse.coo_array(np.ones(3)), ValueError, "2D"),
    "3-d": (np.ones((2, 2, 2)), ValueError, "dim 3"),
    "complex": (COUNTS + 0j, ValueError, "Complex data not supported"),
    "no documents": (COUNTS[:0], ValueError, r"0 sample\(s\)"),
    "no features": (COUNTS[:, :0], ValueError, r"0 feature\(s\)"),
}
BAD_ON_DASK = {
    "array of text": (lambda: da.from_array(np.array([TEXTS])), ValueError, "CountVectorizer"),
    "chunk of text": (lambda: [dask.delayed(list)(TEXTS)], ValueError, "CountVectorizer"),
    "1-d": (lambda: da.ones(3, chunks=2), ValueError, "Reshape your data"),
    "3-d": (lambda: da.ones((2, 2, 2), chunks=1), ValueError, "Expected 2D array, got 3D"),
    "a dict in a chunk": (
        lambda: [dask.delayed(with_entry({}))],
        TypeError,
        "X has an entry that is no number: .*dict",
    ),
    "1-d chunk": (lambda: [dask.delayed(np.ones)(3)], ValueError, "Expected 2D array"),
    "complex": (lambda: da.from_array(COUNTS + 0j), ValueError, "Complex data not supported"),
    "complex chunk": (lambda: [dask.delayed(np.ones)((2, 2), complex)], ValueError, "Complex data not supported"),
    "masked": (lambda: da.from_array(np.ma.masked_equal(COUNTS, 2), chunks=(4, 3)), ValueError, "X has masked entries"),
    "masked where none is told": (
        lambda: chunked((4, 3)).map_blocks(np.ma.masked_equal, 2, dtype=int, meta=np.empty((0, 0), int)),
        ValueError,
        "X has masked entries",
    ),
    "masked, delayed": (lambda: [dask.delayed(np.ma.masked_equal)(COUNTS, 2)], ValueError, "X has masked entries"),
    "no documents": (lambda: chunked((4, 7))[:0], ValueError, r"0 sample\(s\) .* required by Reader"),
    "no documents in any chunk": (lambda: [dask.delayed(COUNTS[:0])] * 2, ValueError, r"0 sample\(s\)"),
    "no features": (lambda: da.zeros((3, 0)), ValueError, r"0 feature\(s\)"),
    "different widths": (
        lambda: [dask.delayed(COUNTS), dask.delayed(COUNTS[:, :3])],
        ValueError,
        "chunk 0 has 7 columns, chunk 1 has 3.*same columns",
    ),
    "unknown widths": (
        lambda: da.concatenate([unknown((4, 7)).T] * 2, axis=1, allow_unknown_chunksizes=True),
        ValueError,
        "compute_chunk_sizes",
    ),
    "series": (lambda: dd.from_pandas(pd.Series([1, 2]), npartitions=1), TypeError, "one two-dimensional Dask array"),
    "series of text": (
        lambda: dd.from_pandas(pd.Series(TEXTS), npartitions=1),
        TypeError,
        r"of type Series.*text.*vectorizer.*X.to_delayed\(\)",
    ),
    "bag": (lambda: db.from_sequence(TEXTS), TypeError, "of type Bag.*text.*vectorizer"),
    "labelled array": (lambda: LabelledArray(da.ones((2, 2))), TypeError, "such as X.data of an xarray"),
    "list of arrays": (lambda: [da.ones((2, 2))], TypeError, "of type list.*one two-dimensional Dask array"),
    "list with a gap": (lambda: [dask.delayed(COUNTS), None], TypeError, "list of Delayed"),
    "one delayed": (lambda: dask.delayed(COUNTS), TypeError, "list of Delayed .* chunk of rows[.]"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_in_memory(kind):
    X, error, message = BAD[kind]
    with pytest.raises(error, match=message):
        open_corpus(X, Reader())


@pytest.mark.parametrize("kind", BAD_ON_DASK)
def test_bad_input_on_dask(kind, place):
    make, error, message = BAD_ON_DASK[kind]
    with pytest.raises(error, match=message):
        open_corpus(make(), Reader(), place=place_of(place))
