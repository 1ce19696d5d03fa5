"""Compiled kernels on disk: what is damaged is named and compiled anew."""

import importlib.util
import logging

import numba
import numpy as np
import pytest

CODE = """
from schmp_estimators.core.jit import kernel

@kernel
def total(values):
    found = 0.0
    for value in values:
        found += value
    return found
"""


def scramble(data):
    """Change every byte of the last third but for the last few: machine code, and no checksum."""
    first, last = 2 * len(data) // 3, len(data) - 8
    return data[:first] + bytes(byte ^ 0x5A for byte in data[first:last]) + data[last:]


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Return a function that makes the same kernel anew, as another process would."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "summing.py"
    path.write_text(CODE)

    def load():
        spec = importlib.util.spec_from_file_location("summing", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.total

    return load


@pytest.mark.parametrize(
    ("damage", "suffix"),
    [(lambda data: data[:99], "nbi"), (lambda data: b"", "nbc"), (scramble, "nbc")],
)
def test_a_damaged_kernel_is_named_and_compiled_anew(load, tmp_path, caplog, damage, suffix):
    values = np.arange(5.0)
    assert load()(values) == 10.0
    (file,) = tmp_path.rglob(f"*.{suffix}")
    file.write_bytes(damage(file.read_bytes()))
    with caplog.at_level(logging.WARNING, "schmp_estimators.core.jit"):
        again = load()
        assert again(values) == 10.0
        (line,) = caplog.messages
        assert "total" in line and str(tmp_path / "cache") in line and "anew" in line
        caplog.clear()
        later = load()
        assert later(values) == 10.0
    assert not caplog.messages
    assert sum(again.stats.cache_hits.values()) == 0
    assert sum(later.stats.cache_hits.values()) == 1
