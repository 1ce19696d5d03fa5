"""The code on pages runs, in its order, as it stands: what it does not define is small."""

import contextlib
import doctest
import io
import re
from collections import Counter
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy
from dask import bag
from pages import ROOT, code_on, example
from plink import write_plink
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.linear_model import ElasticNet, Lasso
from sklearn.model_selection import GridSearchCV

from schmp_estimators import DistributedLDA, datasets, schmp
from schmp_estimators.lda.data.shards import TOKENS_OF_EXCHANGE, TOKENS_PER_CELL
from schmp_estimators.mf.data.ratings import UNDIVIDED


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # checkpoints have relative names
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        yield tmp_path


def run(page, names, left_out=()):
    """Run the code of a page, but for blocks with certain words; returns how many ran."""
    blocks = [block for block in code_on(page) if not any(word in block for word in left_out)]
    with contextlib.redirect_stdout(io.StringIO()):  # progress bars
        for block in blocks:
            exec(block, names)
    return len(blocks)


def test_texts_on_workers(here):
    words = ["sparse", "matrix", "solver", "linear", "topic", "model", "words", "counts"]
    texts = [" ".join(words[n % 5 : n % 5 + 4]) for n in range(40)] + ["of rare occurrence"]
    names = {"dask": dask, "bag": bag.from_sequence(texts, npartitions=3)}
    for one in (CountVectorizer, HashingVectorizer, Counter, DistributedLDA):
        names[one.__name__] = one
    blocks = [block for block in code_on("dask") if "Vectorizer(" in block]
    assert len(blocks) == 2
    exec(blocks[0], names)
    assert names["lda"].get_feature_names_out().shape == (20,)
    assert names["vectorizer"].vocabulary == sorted(words)
    expected = DistributedLDA(20, random_state=0).fit(names["vectorizer"].transform(texts))
    assert (names["lda"].topic_word_counts_ != expected.topic_word_counts_).nnz == 0
    exec(blocks[1], names)
    assert names["lda"].n_features_in_ == 2**16


def test_searches_take_rows_of_arrays_of_known_lengths():
    X = da.from_array(np.random.default_rng(0).poisson(0.5, (40, 9)), chunks=(15, -1))
    search = GridSearchCV(DistributedLDA(2, max_iter=2, random_state=0), {"n_components": [2, 3]})
    unknown = X[X.sum(axis=1) > 0]
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        search.fit(unknown)
    here = search.fit(X.compute()).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(search.fit(X).cv_results_["mean_test_score"], here)


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
    names |= {
        "batches": [X[:100], X[100:]],
        "batches_of_texts": [small.data[:100], small.data[100:]],
        "paths": [0, 100],
        "read_counts": lambda at: X[at : at + 100],
    }
    assert run("user_guide/lda", names, ["/fast/disk"]) == 19
    assert names["found"].table_["n_components"].tolist() == [10, 20, 40, 80]
    assert names["wide"].refits.shape[1:] == names["shares"].share.shape
    assert (here / "lda.npz").exists()
    assert [part.shape for part in dask.compute(*names["theta"])] == [(100, 1000)] * 2


@pytest.mark.slow
def test_ratings(here):
    frame = pd.DataFrame(
        {"user": ["ada", "bob", "ada"], "item": ["x", "y", "z"], "rating": [5.0, 3.0, 4.0]}
    )
    rng = np.random.default_rng(0)
    matrix = scipy.sparse.csr_array(rng.integers(1, 6, (60, 50)) * (rng.random((60, 50)) < 0.4))
    names = {"df": frame, "in_stock": [3, 4, 5], "matrix": matrix}
    assert run("user_guide/mf", names) == 12
    assert names["items"].tolist()[0][-8:] == [-1] * 8  # of three in stock, one is known
    assert set(names["items"].ravel()) == {4, 5, -1}
    assert names["others"].shape == (1, 5)
    assert (here / "mf.npz").exists()


def test_settings_of_papers():
    names = {}
    assert run("user_guide/papers", names) == 7
    assert names["mf"].alpha_ == 0.1 / names["ratings"].std()


@pytest.mark.slow
def test_linear_models(here):
    assert run("user_guide/l1", {"patients": np.arange(300) % 8}, ["from_zarr"]) == 10
    assert (here / "lasso.npz").exists()
    X = np.random.default_rng(0).normal(size=(80, 12))
    names = {"X": X, "y": np.where(2 * X[:, 0] - X[:, 3] > 0, 1.0, -1.0)}
    names["counts"] = np.random.default_rng(1).poisson(1.0, 80)
    assert run("user_guide/penalties", names) == 1


def test_parts_of_your_own(here):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 12))
    pairs = [(user, item) for user in range(30) for item in range(12) if (user + item) % 3]
    names = {"np": np, "schmp": schmp, "X": X, "y": X[:, 3] + rng.normal(size=60), "pairs": pairs}
    shown = ROOT / "examples" / "plot_lasso_parallel.py"
    classes = re.findall(
        r"^class (?:Neighbours|InARow)(?:.*\n|\n)+?(?=\n\n)", shown.read_text(), re.M
    )
    exec("\n\n".join(classes), names)
    assert run("user_guide/plugs", names) == 3
    assert np.abs(names["lasso"].coef_).argmax() == 3
    losses = [record["running_loss"] for record in names["ranked"].history_]
    assert losses[-1] < 0.8 * losses[0] < 0.4
    assert (
        0
        <= names["share_of_new"](names["DistributedSLIM"]().fit(pairs, [1] * len(pairs)), pairs, 0)
        <= 1
    )


@pytest.mark.slow
def test_genotypes(here):
    rng = np.random.default_rng(0)
    doses = rng.binomial(2, 0.3, (120, 30))
    trait = 2.0 * doses[:, 3] + rng.normal(size=120)
    doses[rng.random(doses.shape) < 0.02] = -1
    write_plink(here / "study", doses, ["NA", *trait[1:].round(3)])
    write_plink(here / "cases", doses, ["0", *(1 + (trait[1:] > 1.0))])
    table = pd.DataFrame({"age": rng.normal(50.0, 9.0, 120)}, index=[f"i{i}" for i in range(120)])
    table.iloc[::-1].to_csv("covariates.csv", index_label="IID")
    names = {"np": np}
    assert run("user_guide/genotypes", names, ["chr{k}"]) == 2
    assert names["selected"][3]
    assert names["stable"].selected[3]


def test_programs():
    rng = np.random.default_rng(0)
    names = {name: getattr(schmp, name) for name in schmp.__all__}
    for module in (example("plot_your_own_svm"), example("plot_your_own_rotation")):
        names |= {name: value for name, value in vars(module).items() if not name.startswith("__")}
    X = scipy.sparse.csr_array(1.0 + rng.poisson(1.0, (12, 9)))
    names["shards"] = names["make_shards"](
        X, rng.uniform(0.1, 1, (12, 2)), rng.uniform(0.1, 1, (9, 2)), 3
    )
    names["pieces"] = [rng.uniform(0, 60, 50) for _ in range(4)]
    shortest, static, kept, quantile, keeper = code_on("user_guide/programs")
    exec(shortest, names)
    assert names["result"] == pytest.approx(7.0, abs=1e-3)
    serial, threads = re.findall(r"^records.*$", static, re.MULTILINE)
    exec(static.replace(threads, ""), names)
    expected, factors = names["records"], names["result"].blocks
    exec(static.replace(serial, ""), names)
    assert names["records"] == expected
    assert len(expected) == 20
    assert all(np.array_equal(*both) for both in zip(names["result"].blocks, factors, strict=True))
    exec(kept, names)
    assert names["records"][:20] == expected
    exec(quantile, names)
    assert names["result"] == pytest.approx(np.sort(np.concatenate(names["pieces"]))[99], abs=1e-3)
    assert {path.name for path in Path().iterdir()} == {"poisson.npz", "quantile.npz"}
    exec(keeper, names)
    piece = names["Slice"](np.eye(2), np.zeros(2))
    restored = names["keeper"].restore(
        piece, names["keeper"].save(piece._replace(weights=np.ones(2)))
    )
    np.testing.assert_array_equal(restored.weights, 1.0)
    assert restored.X is piece.X


def test_getting_started():
    names = {}
    assert run("getting_started", names, ["Client("]) == 3
    assert set(names["lda"].top_words(1).ravel()) <= {"cat", "dog", "sleeps", "bark", "dogs"}
    assert names["books"].tolist() == [["Persuasion", "Dune"]]
    assert names["lasso"].dual_gap_ < 1.0


def test_coming_from_elsewhere():
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.5, (40, 30))
    X = rng.normal(size=(60, 12))
    y = 2 * X[:, 0] - X[:, 3] + 0.1 * rng.normal(size=60)
    people = rng.choice(["ada", "bob", "cy", "di"], 60)
    frame = pd.DataFrame(
        {"user": people, "item": rng.integers(0, 12, 60), "rating": rng.integers(1, 6, 60)}
    )
    names = {
        "counts": counts,
        "lists_of_words": [["cats", "purr"], ["dogs", "bark"], ["cats", "sleep"]] * 5,
        "bags": [[(0, 2), (1, 1)], [(1, 3)]],
        "frame": frame.drop_duplicates(["user", "item"]),
        **{"X": X, "y": y, "labels": y > 0},
    }
    assert run("coming_from", names) == 6
    np.testing.assert_allclose(names["proportions"].sum(axis=1), 1.0)
    np.testing.assert_allclose(names["topics"].sum(axis=1), 1.0)
    assert names["counts"].toarray().tolist() == [[2, 1], [0, 3]]
    assert set(names["items"].ravel()).isdisjoint(frame["item"][frame["user"] == "ada"])
    assert names["others"].shape == (2, 3)
    np.testing.assert_allclose(
        names["lasso"].coef_, Lasso(0.05, tol=1e-8).fit(X, y).coef_, atol=1e-5
    )
    np.testing.assert_allclose(
        names["net"].coef_, ElasticNet(0.05, l1_ratio=0.7).fit(X, y).coef_, atol=1e-2
    )
    assert names["model"].alpha_ <= names["model"].alpha_1se_


def test_numbers_of_the_pages_are_those_of_the_code():
    pages = {
        name: " ".join((ROOT / "docs" / f"{name}.rst").read_text().split())
        for name in ("dask", "user_guide/mf")
    }
    assert f"is 1 for fewer than {UNDIVIDED:,} ratings" in pages["user_guide/mf"]
    assert f"square root of tokens / {TOKENS_OF_EXCHANGE:,}" in pages["dask"]
    assert f"at least {TOKENS_PER_CELL:,} tokens for each pair" in pages["dask"]


WATCHING = ROOT / "docs" / "user_guide" / "watching.rst"


def test_watching():
    failed, tried = doctest.testfile(str(WATCHING), module_relative=False)
    assert not failed
    assert tried > 5
