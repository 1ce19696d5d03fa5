"""L1 fits go on from their own checkpoints, refuse all others, and outlive the disk."""

import errno
import json
import os
import re

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import schmp_estimators.linear.checkpoint as checkpoint_module
from schmp_estimators import PrioritizedLasso, SparseLogisticRegression
from schmp_estimators.exceptions import CheckpointMismatchError, CheckpointWarning

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 40)) + np.where(np.arange(40) % 5, 0.0, 1e4)
X[:, 7] = 1.0 / 3.0
Y = X[:, 0] - X[:, 1] - X[:, 2] + 0.5 * RNG.normal(size=60)
Y -= Y.mean()
SCHEDULED = {"schedule": "priority", "n_parallel": 4, "random_state": 7, "tol": 1e-2, "n_shards": 2}

CASES = {
    "lasso": (PrioritizedLasso, {"alpha": 0.01, "tol": 1e-9, "n_shards": 2}, np.column_stack([Y, Y[::-1]])),
    "priority": (PrioritizedLasso, {"alpha": 0.2, **SCHEDULED}, Y),
    "round robin": (PrioritizedLasso, {"alpha": 0.2, **SCHEDULED, "schedule": "round_robin"}, Y),
    "logistic": (SparseLogisticRegression, {"tol": 1e-9, "n_shards": 2}, Y > 0),
}


@pytest.fixture(params=CASES)
def case(request):
    """A function that makes the estimator, and the responses."""
    kind, parameters, y = CASES[request.param]
    return lambda **more: kind(**parameters | more), y


def opened(place):
    with np.load(place) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(arrays.pop("header").tobytes()), arrays


def rewrite(place, header, arrays):
    with open(place, "wb") as file:
        np.savez(file, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)


def leaves(node, path=()):
    """The places of all plain values in a header."""
    [(kind, value)] = node.items()
    if kind == "value":
        yield (*path, "value")
    elif kind == "plain":
        yield from ((*path, "plain", name) for name in value)
    elif kind == "list":
        for number, part in enumerate(value):
            yield from leaves(part, (*path, "list", number))
    elif kind == "dict":
        for name, part in value.items():
            yield from leaves(part, (*path, "dict", name))


def damaged(array):
    """Arrays that cannot be meant: of another shape or type, or with values that are none."""
    yield array[: len(array) // 2]
    yield np.concatenate([array, array])
    yield array[:, None]
    yield array.astype(np.float16)
    yield array.astype(array.dtype.newbyteorder())
    yield np.full_like(array, np.nan if array.dtype.kind == "f" else -1)
    yield np.full_like(array, -np.inf if array.dtype.kind == "f" else 40)


REFUSED = pytest.raises(CheckpointMismatchError, match=r"no checkpoint, or a damaged one.*give another path")


@pytest.mark.parametrize("in_turn", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_arrays_of_other_shapes_types_or_ranges_are_refused(case, in_turn, tmp_path):
    """Each array with each damage, or, of five damages to its form, with one of them in turn."""
    make, y = case
    place = tmp_path / "fit"
    make(checkpoint=place).fit(X, y)
    header, arrays = opened(place)
    assert len(arrays) > 10
    for number, (name, array) in enumerate(arrays.items()):
        if array.size:  # room that is empty in a file
            ways = [*damaged(array)]
            for bad in [ways[number % 5], *ways[5:]] if in_turn else ways:
                rewrite(place, header, arrays | {name: bad})
                with REFUSED:
                    make(checkpoint=place).fit(X, y)


#: What may be below zero.
SIGNED = {"touched", "accuracy", "energy", "objective", "gap"}


@pytest.mark.covering
@pytest.mark.parametrize(
    "bad", [None, "x", *[pytest.param(bad, marks=pytest.mark.slow) for bad in (float("nan"), {}, -1)]]
)
def test_values_of_other_types_or_ranges_are_refused(case, bad, tmp_path):
    make, y = case
    place = tmp_path / "fit"
    make(checkpoint=place).fit(X, y)
    text = json.dumps(opened(place)[0])
    arrays = opened(place)[1]
    anything = {"scope", "random", "next", "level", "balance"} if bad in (None, -1) else {"random"}
    changed = 0
    for path in leaves(json.loads(text)["values"]):
        signed = bad == -1 and ("history" in path or SIGNED & set(path[-2:]))
        if signed or anything & set(path):
            continue
        header = json.loads(text)
        node = header["values"]
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = bad
        rewrite(place, header, arrays)
        with REFUSED:
            make(checkpoint=place).fit(X, y)
        changed += 1
    assert changed > 20


@pytest.mark.parametrize("what", ["target", "finished", "state", "partitions", "history", "model", "seen", "schedule"])
def test_a_checkpoint_without_one_of_its_parts_is_refused(case, what, tmp_path):
    make, y = case
    make(checkpoint=tmp_path / "fit").fit(X, y)
    header, arrays = opened(tmp_path / "fit")
    values = header["values"]["dict"]
    if what == "schedule" and make().schedule == "resolve":
        return
    del (values["state"]["dict"] if what in ("model", "seen", "schedule") else values)[what]
    rewrite(tmp_path / "fit", header, arrays)
    estimator = make(checkpoint=tmp_path / "fit")
    with REFUSED:
        estimator.fit(X, y)
    assert not [name for name in vars(estimator) if name.endswith("_")]


def test_every_entry_of_the_fingerprint_matters(case, tmp_path):
    make, y = case
    make(checkpoint=tmp_path / "fit").fit(X, y)
    header, arrays = opened(tmp_path / "fit")
    entries = header["fingerprint"]
    assert {"estimator", "version", "data", "rows", "tol", "schedule", "fit_intercept", "dtype", "max_iter"} < set(
        entries
    )
    for entry in entries:
        rewrite(tmp_path / "fit", header | {"fingerprint": entries | {entry: "other"}}, arrays)
        with pytest.raises(CheckpointMismatchError, match=f"{entry}: 'other' there, .* here"):
            make(checkpoint=tmp_path / "fit").fit(X, y)


CHANGES = {
    "lasso": {
        "alpha": 0.02, "fit_intercept": False, "tol": 1e-8, "positive": True, "n_shards": 3, "schedule": "round_robin",
        "max_iter": 999,
    },
    "priority": {
        "n_parallel": 5, "max_correlation": 0.3, "pipeline_depth": 2, "random_state": 8, "schedule": "random",
    },
    "logistic": {"C": 2.0, "class_weight": {0: 1.0, 1: 2.0}, "fit_intercept": False},
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, changes in CHANGES.items() for name in changes])
def test_every_parameter_that_makes_another_fit_is_noticed(kind, name, tmp_path):
    make, parameters, y = CASES[kind]
    make(**parameters, checkpoint=tmp_path / "fit").fit(X, y)
    with pytest.raises(CheckpointMismatchError, match="belongs to another fit"):
        make(**parameters | {name: CHANGES[kind][name]}, checkpoint=tmp_path / "fit").fit(X, y)


def test_other_data_are_noticed(case, tmp_path):
    make, y = case
    make(checkpoint=tmp_path / "fit").fit(X, y)
    more, weights = X.copy(), np.ones(60)
    more[-1, -1] += 1.0
    weights[0] = 2.0
    other = y.copy()
    other.ravel()[0] = not other.ravel()[0]
    for arguments in ((more, y), (X[::-1], y), (X[:, ::-1], y), (X.astype(np.float32), y), (np.asfortranarray(X), y)):
        with pytest.raises(CheckpointMismatchError, match=r"data: '[0-9a-f]{64}' there"):
            make(checkpoint=tmp_path / "fit").fit(*arguments)
    for arguments in ((sp.csr_array(X), y), (X, other), (X, y, weights)):
        with pytest.raises(CheckpointMismatchError, match=r"data: '[0-9a-f]{64}' there"):
            make(checkpoint=tmp_path / "fit").fit(*arguments)


def test_another_version_or_class_is_refused(case, tmp_path, monkeypatch):
    make, y = case
    made = make(checkpoint=tmp_path / "fit").fit(X, y)
    other = type("Other", (type(made),), {"__init__": type(made).__init__})(**made.get_params())
    with pytest.raises(CheckpointMismatchError, match=f"estimator: '{type(made).__name__}' there, 'Other' here"):
        other.fit(X, y)
    monkeypatch.setattr(checkpoint_module, "__version__", "0.0")
    with pytest.raises(CheckpointMismatchError, match=r"version: '.*' there, '0.0' here"):
        make(checkpoint=tmp_path / "fit").fit(X, y)


def test_a_smaller_max_iter_is_refused(tmp_path):
    make, parameters, y = CASES["logistic"]
    steps = make(**parameters, checkpoint=tmp_path / "fit").fit(X, y).n_iter_[0]
    assert steps > 1
    with pytest.raises(CheckpointMismatchError, match=f"{steps} iterations behind it, and max_iter=1"):
        make(**parameters, checkpoint=tmp_path / "fit", max_iter=1).fit(X, y)


def test_what_cannot_be_known_again_is_refused_before_work(case, tmp_path):
    make, y = case
    if make().schedule == "priority":
        for seed in (None, np.random.RandomState(0)):
            with pytest.raises(ValueError, match="checkpoint needs an int as random_state"):
                make(random_state=seed, checkpoint=tmp_path / "fit").fit(None, None)
    else:
        make(random_state=None, checkpoint=tmp_path / "fit").fit(X, y)
    fitted = make(warm_start=True, checkpoint=tmp_path / "warm").fit(X, y)
    with pytest.raises(ValueError, match="set checkpoint=None for warm_start"):
        fitted.fit(None, None)
    with pytest.raises(ValueError, match="checkpoint_every"):
        make(checkpoint_every=0).fit(X, y)


def test_chunks_have_the_checkpoints_of_the_partitions_that_they_make(case, tmp_path):
    make, y = case
    here = make(checkpoint=tmp_path / "fit").fit(X, y)
    there = make(checkpoint=tmp_path / "fit").fit(da.from_array(X, chunks=(30, -1)), y)
    np.testing.assert_array_equal(there.coef_, here.coef_)
    assert [record["seconds"] for record in there.history_[:-1]] == [r["seconds"] for r in here.history_[:-1]]


def full(descriptor):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_costs_the_checkpoint_but_not_the_fit(case, tmp_path, monkeypatch):
    make, y = case
    expected = make().fit(X, y)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(CheckpointWarning) as caught:
        found = make(checkpoint=tmp_path / "fit", checkpoint_every=1).fit(X, y)
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    [warning] = [one for one in caught if one.category is CheckpointWarning]
    assert re.search(r"fit' could not be written after iteration 1 .*No space left on device", str(warning.message))
    assert os.listdir(tmp_path) == []


def test_checkpoints_are_written_as_often_as_asked_for(case, tmp_path, monkeypatch):
    make, y = case
    written = []
    monkeypatch.setattr(checkpoint_module.Checkpoint, "write", lambda self, done, values: written.append(done))
    n = len(make(checkpoint=tmp_path / "fit", checkpoint_every=2).fit(X, y).history_)
    assert set(range(2, n, 2)) <= set(written) <= set(range(1, n + 1))
    assert written[-1] == n and len(written) < n
