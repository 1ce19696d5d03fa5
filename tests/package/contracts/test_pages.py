"""The code on the page "Write your own program" runs, in its order, and does what the page says."""

import importlib.util
import re
import sys
from pathlib import Path

import dask
import numpy as np
import pytest
from scipy import sparse

from schmp_estimators import schmp

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "user_guide" / "programs.rst"


def definitions_of(name):
    """Return the names that an example defines, without running what follows them."""
    path = ROOT / "examples" / f"{name}.py"
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, path))
    sys.modules[name] = module  # where dataclasses and pickles look for them
    exec(compile(path.read_text().partition("\n# %%\n")[0], path, "exec"), module.__dict__)
    return {key: value for key, value in vars(module).items() if not key.startswith("__")}


def code_on_page():
    found = re.findall(r"code-block:: python\n\n((?: {3}.*\n|\n)+)", PAGE.read_text())
    return [re.sub(r"^ {3}", "", block, flags=re.MULTILINE) for block in found]


@pytest.fixture
def names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # checkpoints have relative names
    rng = np.random.default_rng(0)
    names = {**definitions_of("plot_your_own_svm"), **definitions_of("plot_your_own_rotation")}
    names.update((name, getattr(schmp, name)) for name in schmp.__all__)
    X = sparse.csr_array(1.0 + rng.poisson(1.0, (12, 9)))
    names["shards"] = names["make_shards"](X, rng.uniform(0.1, 1, (12, 2)), rng.uniform(0.1, 1, (9, 2)), 3)
    names["pieces"] = [rng.uniform(0, 60, 50) for _ in range(4)]
    return names


def test_the_page_runs(names):
    static, kept, quantile, keeper = code_on_page()
    with dask.config.set({"schmp-estimators.runtime": "local"}):
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
    restored = names["keeper"].restore(piece, names["keeper"].save(piece._replace(weights=np.ones(2))))
    np.testing.assert_array_equal(restored.weights, 1.0)
    assert restored.X is piece.X
