"""The checkpoint file: what goes in comes out, nothing else is accepted, and it is never half written."""

import json
import os
import zipfile

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, integer_dtypes

from schmp_estimators.state.checkpoint import (
    CheckpointMismatchError,
    read_checkpoint,
    remove_checkpoint,
    write_checkpoint,
)

MARK = {"data": "abc", "sizes": (1, 2), "ratio": 0.1}
plain = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(max_size=5)
leaves = plain | arrays(integer_dtypes(), array_shapes(min_side=0, max_dims=3)) | arrays(np.float32, 3)
nested = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


def assert_alike(one, other):
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, strict=True)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            assert_alike(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_alike(a, b)
    else:
        assert (type(one), one) == (type(other), other)


@settings(max_examples=60)
@given(values=nested)
def test_what_goes_in_comes_out(values, tmp_path_factory):
    place = tmp_path_factory.mktemp("checkpoint") / "state"
    write_checkpoint(place, MARK, values)
    assert_alike(read_checkpoint(place, MARK), values)


def test_tuples_become_lists_and_numpy_numbers_plain_ones(tmp_path):
    write_checkpoint(tmp_path / "state", MARK, (np.int64(3), (np.float32(0.5), np.bool_(True))))
    assert read_checkpoint(tmp_path / "state", MARK) == [3, [0.5, True]]


def test_no_checkpoint_is_no_error(tmp_path):
    assert read_checkpoint(tmp_path / "state", MARK) is None
    remove_checkpoint(tmp_path / "state")


def test_folders_are_made_and_files_replaced_and_removed(tmp_path):
    place = tmp_path / "some" / "folder" / "state"
    for values in ([1], [2]):
        write_checkpoint(place, MARK, values)
    assert read_checkpoint(place, MARK) == [2]
    assert os.listdir(place.parent) == ["state"]
    remove_checkpoint(place)
    assert read_checkpoint(place, MARK) is None


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_checkpoint("state", MARK, [1])
    assert read_checkpoint(tmp_path / "state", MARK) == [1]


def test_any_file_system(tmp_path):
    for url in ("memory://some/state", f"file://{tmp_path}/state"):
        write_checkpoint(url, MARK, [np.arange(3)])
        assert_alike(read_checkpoint(url, MARK), [np.arange(3)])
        remove_checkpoint(url)
        assert read_checkpoint(url, MARK) is None
    assert not fsspec.filesystem("memory").exists("/some/state")


def test_a_failed_write_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    place = tmp_path / "state"
    write_checkpoint(place, MARK, [1])

    def full(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_checkpoint(place, MARK, [2])
    assert read_checkpoint(place, MARK) == [1]
    assert os.listdir(tmp_path) == ["state"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": "abd"}, "data: 'abc' there, 'abd' here"),
        ({"sizes": [1, 3]}, r"sizes: \[1, 2\] there, \[1, 3\] here"),
        ({"ratio": 0.2, "data": ""}, "data: .* there, '' here; ratio: 0.1 there, 0.2 here"),
        ({"more": 1}, "more: None there, 1 here"),
    ],
)
def test_another_fit_is_refused_and_what_differs_is_said(change, message, tmp_path):
    write_checkpoint(tmp_path / "state", MARK, [1])
    with pytest.raises(CheckpointMismatchError, match=message) as caught:
        read_checkpoint(tmp_path / "state", {**MARK, **change})
    assert str(tmp_path / "state") in str(caught.value)
    assert "give another path, or remove the file" in str(caught.value)


def test_there_is_no_pickle_in_it(tmp_path):
    write_checkpoint(tmp_path / "state", MARK, {"a": [np.arange(3), 4]})
    with np.load(tmp_path / "state", allow_pickle=False) as archive:
        assert sorted(archive.files) == ["array0", "header"]
        header = json.loads(archive["header"].tobytes())
    assert header["fingerprint"] == json.loads(json.dumps(MARK))
    with pytest.raises((TypeError, ValueError)):
        write_checkpoint(tmp_path / "other", MARK, [object()])
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 cut short", None])
def test_a_file_that_is_no_checkpoint_is_refused(content, tmp_path):
    place = tmp_path / "state"
    if content is None:  # an archive, but another one
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr("notes.txt", "hello")
    else:
        place.write_bytes(content)
    before = place.read_bytes()
    with pytest.raises(CheckpointMismatchError, match=r"no checkpoint.*give another path, or remove the file"):
        read_checkpoint(place, MARK)
    assert place.read_bytes() == before


def test_arrays_of_objects_are_refused(tmp_path):
    with pytest.raises(TypeError, match="object"):
        write_checkpoint(tmp_path / "state", MARK, [np.array([None, {}], object)])
    assert os.listdir(tmp_path) == []
