"""What estimators with checkpoints keep to: they go on from their own, refuse all others, and outlive the disk."""

import errno
import json
import os
import re
import warnings

import numpy as np
import pytest
from corpora import SMALL
from sklearn.exceptions import NotFittedError

import schmp_estimators.lda.checkpoint as lda_module
import schmp_estimators.mf.checkpoint as mf_module
from schmp_estimators import DistributedLDA, ModelParallelMF
from schmp_estimators.exceptions import CheckpointMismatchError, CheckpointWarning

rng = np.random.default_rng(3)
RATINGS = np.where(rng.random((20, 15)) < 0.5, rng.normal(size=(20, 15)), np.nan)


def lda(**parameters):
    return DistributedLDA(**{"n_components": 3, "max_iter": 3, "random_state": 7, "n_shards": 2} | parameters)


def mf(**parameters):
    return ModelParallelMF(**{"n_components": 3, "max_iter": 3, "random_state": 7, "n_shards": 2} | parameters)


def early(**parameters):
    return mf(**{"early_stopping": True, "validation_fraction": 0.2, "n_iter_no_change": 99} | parameters)


#: Documents of more than 600 tokens.
LONG = 100 * SMALL

CASES = {
    "warp": (lda, {"sampler": "warp"}, SMALL),
    "fplus": (lda, {"sampler": "fplus"}, SMALL),
    "frozen": (lda, {"sampler": "frozen"}, SMALL),
    "saber": (lda, {"sampler": "saber"}, SMALL),
    "hybrid": (lda, {"sampler": "hybrid", "n_components": 700}, LONG),
    "data-parallel": (lda, {"sampler": "data-parallel"}, SMALL),
    "rotation": (mf, {}, RATINGS),
    "ccd": (early, {"solver": "ccd"}, RATINGS),
    "bsp": (early, {"schedule": "bsp", "learning_rate": 0.03}, RATINGS),
}


@pytest.fixture(params=CASES)
def case(request):
    """A function that makes the estimator, what it fits, and what it leaves behind."""
    make, parameters, X = CASES[request.param]

    def made(**more):
        return make(**parameters | more)

    return made, X


def left_by(estimator):
    """What a fit leaves behind, as bytes."""
    names = ("user_factors_", "components_", "user_bias_", "item_bias_", "n_iter_")
    return [np.asarray(getattr(estimator, name)).tobytes() for name in names if hasattr(estimator, name)]


class Interrupt:
    """Ends the fit with an error after a sweep, as a crash would."""

    def __init__(self, at):
        self.at = at

    def setup(self, estimator, context): ...
    def teardown(self, estimator, context): ...
    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context):
        if context.task_name == "sweep" and estimator.n_iter_ == self.at:
            raise KeyboardInterrupt


# Damage.  Checksums are right throughout: this is what a broken tool would write, not a broken disk.


def opened(place):
    with np.load(place) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(arrays.pop("header").tobytes()), arrays


def rewrite(place, header, arrays):
    with open(place, "wb") as file:
        np.savez(file, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)


def damaged(array):
    """Arrays that cannot be meant: of another shape or type, or with values that are none."""
    yield array[: len(array) // 2]
    yield np.concatenate([array, array])
    yield array[:, None]
    yield array.astype(np.float16)
    yield array.astype(array.dtype.newbyteorder())
    yield np.full_like(array, np.nan if array.dtype.kind == "f" else -1)
    if array.dtype.kind == "f":
        yield np.full_like(array, -np.inf)


@pytest.mark.parametrize("in_turn", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_arrays_of_other_shapes_types_or_ranges_are_refused(case, in_turn, tmp_path):
    """Each array with each damage, or, of five damages to its form, with one of them in turn."""
    make, X = case
    place = tmp_path / "state"
    make(checkpoint=place).fit(X)
    header, arrays = opened(place)
    assert arrays
    for number, (name, array) in enumerate(arrays.items()):
        if not array.size:  # room that is empty in a file
            continue
        ways = [*damaged(array)]
        for bad in [ways[number % 5], *ways[5:]] if in_turn else ways:
            if np.array_equal(bad, array) and bad.dtype == array.dtype:
                continue
            rewrite(place, header, arrays | {name: bad})
            with pytest.raises(CheckpointMismatchError, match=r"no checkpoint, or a damaged one.*give another path"):
                make(checkpoint=place, max_iter=6).fit(X)


@pytest.mark.parametrize("sampler", ["warp", "fplus"])
def test_topics_beyond_the_last_are_refused(sampler, tmp_path):
    place = tmp_path / "state"
    lda(checkpoint=place, sampler=sampler).fit(SMALL)
    header, arrays = opened(place)
    for name, array in arrays.items():
        changed = array.copy()
        changed[-1] = 3
        rewrite(place, header, arrays | {name: changed})
        with pytest.raises(CheckpointMismatchError, match=r"topics: values from 0 to 3, which must be in \[0, 2\]"):
            lda(checkpoint=place, sampler=sampler, max_iter=6).fit(SMALL)


@pytest.mark.parametrize("what", ["done", "history", "saved", "shards", "nothing"])
def test_values_of_another_shape_are_refused(case, what, tmp_path):
    make, X = case
    place = tmp_path / "state"
    make(checkpoint=place).fit(X)
    header, arrays = opened(place)
    values = header["values"]["dict"]
    if what == "done":
        values["done"]["value"] += 1
    elif what == "history":
        del values["history"]["list"][1]
    elif what == "saved":
        values["saved"] = {"list": []}
    elif what == "shards":
        shards = values["saved"]["list"][1]["list"]
        shards.append(shards[0])
    else:
        values.clear()
    rewrite(place, header, arrays)
    estimator = make(checkpoint=place, max_iter=6)
    with pytest.raises(CheckpointMismatchError, match=r"no checkpoint, or a damaged one.*give another path"):
        estimator.fit(X)
    assert not hasattr(estimator, "history_")


# Whose it is.


@pytest.mark.parametrize("entry", ["estimator", "version", "data", "program", "n_components", "seed", "n_shards"])
def test_every_entry_of_the_fingerprint_matters(case, entry, tmp_path):
    make, X = case
    place = tmp_path / "state"
    make(checkpoint=place).fit(X)
    header, arrays = opened(place)
    assert entry in header["fingerprint"]
    header["fingerprint"][entry] = "other"
    rewrite(place, header, arrays)
    with pytest.raises(CheckpointMismatchError, match=f"{entry}: 'other' there, .* here"):
        make(checkpoint=place).fit(X)


def test_another_version_of_this_package_is_refused(case, tmp_path, monkeypatch):
    make, X = case
    make(checkpoint=tmp_path / "state").fit(X)
    for module in (lda_module, mf_module):
        monkeypatch.setattr(module, "__version__", "0.0")
    with pytest.raises(CheckpointMismatchError, match=r"version: '.*' there, '0.0' here"):
        make(checkpoint=tmp_path / "state").fit(X)


def test_a_subclass_has_checkpoints_of_its_own(case, tmp_path):
    make, X = case
    made = make(checkpoint=tmp_path / "state").fit(X)
    other = type("Other", (type(made),), {"__init__": type(made).__init__})(**made.get_params())
    with pytest.raises(CheckpointMismatchError, match=f"estimator: '{type(made).__name__}' there, 'Other' here"):
        other.fit(X)


OTHERS = {
    "warp": {
        "n_components": 4, "doc_topic_prior": 0.2, "topic_word_prior": 0.2, "mh_steps": 1, "random_state": 8,
        "init": "uniform", "sampler": "fplus",
    },
    "fplus": {"n_components": 4, "doc_topic_prior": 0.2, "topic_word_prior": 0.2, "random_state": 8, "n_shards": 3},
    "rotation": {
        "n_components": 4, "alpha": 0.3, "penalty": "per_row", "fit_bias": False, "positive": True,
        "learning_rate": 0.05, "random_state": 8, "n_shards": 3, "schedule": "bsp", "solver": "ccd",
        "early_stopping": True,
    },
    "ccd": {"n_components": 4, "alpha": 0.3, "fit_bias": False, "positive": True, "validation_fraction": 0.5},
}  # fmt: skip


#: What programs call parameters that estimators call otherwise, or what follows from them.
NAMES = {
    "random_state": "seed", "init": "hot_priors", "alpha": "penalty", "penalty": "per_rating", "sampler": "program",
    "solver": "program", "schedule": "program", "early_stopping": "validates", "validation_fraction": "data",
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, changes in OTHERS.items() for name in changes])
def test_every_parameter_that_makes_another_fit_is_noticed(kind, name, tmp_path):
    make, parameters, X = CASES[kind]
    make(**parameters, checkpoint=tmp_path / "state").fit(X)
    changed = parameters | {name: OTHERS[kind][name]}
    named = {"n_shards": "n_shards: 2 there, 3 here", **NAMES}.get(name, f"{name}: .* there, .* here")
    with pytest.raises(CheckpointMismatchError, match=rf"belongs to another fit \(.*{named}"):
        make(**changed, checkpoint=tmp_path / "state").fit(X)


def test_other_data_are_noticed(case, tmp_path):
    make, X = case
    make(checkpoint=tmp_path / "state").fit(X)
    more = X.copy()
    more[np.unravel_index(np.nanargmax(X), X.shape)] += 1
    for other in (X[::-1], more):
        with pytest.raises(CheckpointMismatchError, match=r"data: '[0-9a-f]{64}' there, '[0-9a-f]{64}' here"):
            make(checkpoint=tmp_path / "state").fit(other)


# Disks.


def test_a_full_disk_costs_the_checkpoint_but_not_the_fit(case, tmp_path, monkeypatch):
    make, X = case
    place = tmp_path / "state"
    expected = make(max_iter=6).fit(X)
    with pytest.raises(KeyboardInterrupt):
        make(max_iter=6, checkpoint=place, checkpoint_every=2).set_callbacks(Interrupt(4)).fit(X)
    kept = place.read_bytes()
    with monkeypatch.context() as patch, pytest.warns(CheckpointWarning) as caught:
        patch.setattr(os, "fsync", full)
        estimator = make(max_iter=6, checkpoint=place, checkpoint_every=1).fit(X)
    assert left_by(estimator) == left_by(expected)
    [warning] = caught
    assert re.search(r"state' could not be written after iteration 5 .*No space left on device", str(warning.message))
    assert place.read_bytes() == kept
    assert os.listdir(tmp_path) == ["state"]
    assert left_by(make(max_iter=6, checkpoint=place).fit(X)) == left_by(expected)


def full(descriptor):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_that_cannot_be_made_costs_the_checkpoint_but_not_the_fit(case, tmp_path):
    make, X = case
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(CheckpointWarning, match="could not be written after iteration 2 "):
        estimator = make(checkpoint=tmp_path / "file" / "state", checkpoint_every=2).fit(X)
    assert left_by(estimator) == left_by(make().fit(X))


def test_a_fit_ends_with_its_checkpoint_if_that_is_asked_for(case, tmp_path, monkeypatch):
    make, X = case
    monkeypatch.setattr(os, "fsync", full)
    estimator = make(checkpoint=tmp_path / "state")
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)
        with pytest.raises(CheckpointWarning, match="after iteration 3"):
            estimator.fit(X)
    with pytest.raises(NotFittedError):
        estimator.transform(X)
    assert os.listdir(tmp_path) == []
