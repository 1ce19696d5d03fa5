"""What a fit is remembered by.

A digest of every bit, and a few figures that any machine must come near.
"""

import hashlib
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from schmp_estimators.core.places.answers import fingerprint

TABLE = Path(__file__).with_name("table.json")


class Result(NamedTuple):
    """All that is remembered of a fit."""

    #: Of every array and number of the result, with its name, dtype and shape.
    digest: str
    #: What another machine is compared by; see `TOLERANCES`.
    figures: dict[str, float]


#: How far another machine may be off, relatively: samplers draw another sample there, descent ends
#: elsewhere within its tolerance.  Objectives of L1 models are compared by their gaps instead.
TOLERANCES = {"log_likelihood": 0.05, "perplexity": 0.1, "rmse": 0.05, "loss": 0.01, "scores": 0.02}


def machine():
    """Return what bits may depend on, by the package's own account.

    The library that splits the data for cross-validation is there, too.
    """
    found = {name: value for name, value in fingerprint().items() if name != "schmp-estimators"}
    return found | {
        "scikit-learn": version("scikit-learn"),
        "BLAS kernels": os.environ.get("OPENBLAS_CORETYPE", ""),
    }


def result(figures, **values):
    """Return the `Result` of arrays, sparse arrays, numbers and lists of them."""
    sha = hashlib.sha256()
    for name, value in sorted(values.items()):
        _update(sha, name, value)
    return Result(sha.hexdigest()[:20], {name: float(value) for name, value in figures.items()})


def _update(sha: Any, name: str, value: Any) -> None:
    if sparse.issparse(value):
        value = sparse.csr_array(value)
        value.sort_indices()
        for part in ("indptr", "indices", "data"):
            _update(sha, f"{name}.{part}", getattr(value, part))
        return
    array = np.ascontiguousarray(value)
    kind = "i" if array.dtype.kind in "iu" else str(array.dtype)
    # Platforms differ in their default integers; the values are meant.
    array = array.astype(np.int64) if kind == "i" else array
    content = str(array.tolist()).encode() if kind == "object" else array.tobytes()
    sha.update(f"{name} {kind} {array.shape}".encode() + content)


def assert_as_remembered(found, expected, same_machine):
    """Assert that a result is the one in the table.

    It is so to the bit on the machine that made it, else to tolerance.
    """
    if same_machine:
        assert found.digest == expected["digest"], (found.figures, expected["figures"])
        return
    assert found.figures.keys() == expected["figures"].keys()
    for name, value in found.figures.items():
        wanted = expected["figures"][name]
        if name == "objective":
            # both are above one minimum, by no more than their gaps
            slack = found.figures["dual_gap"] + expected["figures"]["dual_gap"] + 1e-6 * abs(wanted)
            assert abs(value - wanted) <= slack, (name, value, wanted)
        elif name == "dual_gap":
            assert value <= max(2 * wanted, found.figures["tolerance"]), (name, value, wanted)
        elif name != "tolerance":
            assert abs(value - wanted) <= TOLERANCES[name] * abs(wanted) + 1e-12, (
                name,
                value,
                wanted,
            )
