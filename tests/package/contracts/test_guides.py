"""The code in the user guide runs, page by page, in its order, as it stands: what it does not define is small."""

import contextlib
import io
import re
from pathlib import Path

import dask
import dask.array as da
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import scipy
from sklearn.feature_extraction.text import CountVectorizer

from schmp_estimators import datasets

GUIDE = Path(__file__).parents[3] / "docs" / "user_guide"


def code_on(page):
    found = re.findall(r"code-block:: python\n\n((?: {3}.*\n|\n)+)", (GUIDE / f"{page}.rst").read_text())
    return [re.sub(r"^ {3}", "", block, flags=re.MULTILINE) for block in found]


def run(page, names, left_out=()):
    """Run the code of a page, but for blocks with certain words; returns how many ran."""
    blocks = [block for block in code_on(page) if not any(word in block for word in left_out)]
    with contextlib.redirect_stdout(io.StringIO()):  # progress bars
        for block in blocks:
            exec(block, names)
    return len(blocks)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # checkpoints have relative names
    mpl.use("Agg")
    yield tmp_path
    mpl.pyplot.close("all")


@pytest.mark.slow
def test_topic_models(here, monkeypatch):
    small = datasets.load_docstrings(["dask"])
    monkeypatch.setattr(datasets, "load_docstrings", lambda packages: small)
    X = CountVectorizer(stop_words="english", min_df=5, max_df=0.5).fit_transform(small.data)
    for name in ("data", "indices", "indptr"):
        np.save(f"{name}.npy", getattr(X, name))
    frame = pd.DataFrame(X[:, :4].toarray(), columns=["war", "army", "tax", "tariff"])
    names = {"frame": frame, "labels": np.arange(X.shape[0]) % 2}
    names |= {"X_held_out": X[:50], "X_lazy": da.from_array(X.toarray())}
    names |= {"batches": [X[:100], X[100:]], "paths": [0, 100], "read_counts": lambda at: X[at : at + 100]}
    assert run("lda", names, ["pyLDAvis", "/fast/disk"]) == 17
    assert (here / "lda.npz").exists()
    assert [part.shape for part in dask.compute(*names["theta"])] == [(100, 1000)] * 2


@pytest.mark.slow
def test_ratings(here):
    frame = pd.DataFrame({"user": ["ada", "bob", "ada"], "item": ["x", "y", "z"], "rating": [5.0, 3.0, 4.0]})
    names = {"df": frame, "in_stock": [3, 4, 5]}
    rng = np.random.default_rng(0)
    names["matrix"] = scipy.sparse.csr_array(rng.integers(1, 6, (60, 50)) * (rng.random((60, 50)) < 0.4))
    assert run("mf", names) == 11
    assert names["items"].tolist()[0][-8:] == [-1] * 8  # of three in stock, one is known
    assert set(names["items"].ravel()) == {4, 5, -1}
    assert names["others"].shape == (1, 5)
    assert (here / "mf.npz").exists()


@pytest.mark.slow
def test_linear_models(here):
    names = {"patients": np.arange(300) % 8}
    assert run("l1", names, ["from_zarr"]) == 7
    assert (here / "lasso.npz").exists()
    X = np.random.default_rng(0).normal(size=(80, 12))
    names = {"X": X, "y": np.where(2 * X[:, 0] - X[:, 3] > 0, 1.0, -1.0)}
    names["counts"] = np.random.default_rng(1).poisson(1.0, 80)
    assert run("penalties", names) == 1
