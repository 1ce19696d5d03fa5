"""The code in the user guide runs, page by page, in its order, on small data of the kind that it speaks of."""

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

import schmp_estimators
from schmp_estimators import datasets

GUIDE = Path(__file__).parents[3] / "docs" / "user_guide"


def code_on(page):
    found = re.findall(r"code-block:: python\n\n((?: {3}.*\n|\n)+)", (GUIDE / f"{page}.rst").read_text())
    return [re.sub(r"^ {3}", "", block, flags=re.MULTILINE) for block in found]


def public():
    return {name: getattr(schmp_estimators, name) for name in schmp_estimators.__all__}


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
def test_topic_models(here):
    docstrings = datasets.load_docstrings(["dask"])
    texts, labels = docstrings.data, np.arange(len(docstrings.data)) % 2
    vectorizer = CountVectorizer(stop_words="english", min_df=5, max_df=0.5)
    X = vectorizer.fit_transform(texts)
    for name in ("data", "indices", "indptr"):
        np.save(f"{name}.npy", getattr(X, name))
    frame = pd.DataFrame(X[:, :4].toarray(), columns=["war", "army", "tax", "tariff"])
    names = {**public(), "texts": texts, "labels": labels, "vectorizer": vectorizer, "X": X, "frame": frame}
    names |= {"X_held_out": X[:50], "words": vectorizer.get_feature_names_out(), "X_lazy": da.from_array(X.toarray())}
    names |= {"batches": [X[:100], X[100:]], "paths": [0, 100], "read_counts": lambda at: X[at : at + 100]}
    names |= {"numpy": np, "scipy": scipy, "shape": X.shape}
    assert run("lda", names, ["pyLDAvis", "/fast/disk"]) == 15
    assert (here / "lda.npz").exists()
    assert [part.shape for part in dask.compute(*names["theta"])] == [(100, 1000)] * 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of pyLDAvis, which leaves files open
def test_the_page_of_pyldavis_has_the_same_words(here):
    pytest.importorskip("pyLDAvis", reason="pip install pyLDAvis")
    vectorizer = CountVectorizer(stop_words="english", min_df=5, max_df=0.5)
    X = vectorizer.fit_transform(datasets.load_docstrings(["dask"]).data)
    lda = schmp_estimators.DistributedLDA(4, max_iter=20, random_state=0).fit(X)
    [block] = [block for block in code_on("lda") if "pyLDAvis" in block]
    names = {"lda": lda, "vectorizer": vectorizer, "X": X}
    exec(block, names)
    assert (here / "topics.html").exists()
    found = names["data"].topic_info.assign(relevance=lambda one: 0.6 * one.logprob + 0.4 * one.loglift)
    for topic, words in enumerate(lda.top_words(5, feature_names=vectorizer.get_feature_names_out())):
        theirs = found[found["Category"] == f"Topic{topic + 1}"].set_index("Term")["relevance"]
        best = theirs.sort_values(ascending=False)
        np.testing.assert_allclose(theirs[words], best[:5], atol=0.02)  # near ties may change places


@pytest.mark.slow
def test_ratings(here):
    rng = np.random.default_rng(0)
    pairs = np.argwhere(rng.random((60, 50)) < 0.4)
    ratings, clicks = rng.integers(1, 6, len(pairs)).astype(float), np.ones(len(pairs))
    frame = pd.DataFrame({"user": ["ada", "bob", "ada"], "item": ["x", "y", "z"], "rating": [5.0, 3.0, 4.0]})
    names = {**public(), "pairs": pairs, "ratings": ratings, "clicks": clicks, "users": [7, 8], "df": frame}
    names["new_users"] = scipy.sparse.csr_array([[5.0, 0, 0], [0, 1.0, 2.0]])
    names["matrix"] = scipy.sparse.csr_array((ratings, pairs.T))
    assert run("mf", names) == 9
    assert names["scores"].shape == names["best"].shape == (2, 3)
    assert names["best"][0, 2] == 0 and names["best"][1, 0] == 0
    assert names["others"].shape == (1, 5)
    assert (here / "mf.npz").exists()


@pytest.mark.slow
def test_linear_models(here):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 12))
    y = 2 * X[:, 0] - X[:, 3] + rng.normal(size=80)
    names = {**public(), "np": np, "X": X, "X_new": X[:3], "y": y, "weight": y, "labels": y > 0}
    names |= {"genotypes": rng.integers(0, 3, (80, 30)).astype(np.int8), "patients": np.arange(80) % 8}
    assert run("l1", names, ["from_zarr"]) == 6
    assert (here / "lasso.npz").exists()
    assert run("penalties", names | {"y": np.where(y > 0, 1.0, -1.0)}) == 1
