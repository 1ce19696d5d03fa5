"""The checkpoint file.

What goes in comes out, nothing else is accepted, and it is never half written.
"""

import io
import json
import multiprocessing
import os
import struct
import threading
import tracemalloc
import warnings
import zipfile
from collections import Counter
from contextlib import closing
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from checkpoints import full_disk
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, integer_dtypes
from toys import Ring, make_shards

from schmp_estimators.core.engine.running import static_run
from schmp_estimators.core.io import checkpoint as checkpoints
from schmp_estimators.core.io.checkpoint import (
    Checkpoint,
    CheckpointMismatchError,
    CheckpointWarning,
)
from schmp_estimators.core.io.files import replace_file
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.program import Source


class Pair(NamedTuple):
    left: object
    right: object


class Triple(NamedTuple):
    left: object
    right: object
    weight: float


MARK = {"data": "abc", "sizes": (1, 2), "ratio": 0.1}
plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**99), 2**99)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
)
SCALARS = (
    np.float32(0.1),
    np.int8(3),
    np.bool_(True),
    np.float64(-0.0),
    np.str_("a"),
    np.uint64(2**63),
)
leaves = (
    plain
    | st.sampled_from(SCALARS)
    | arrays(integer_dtypes(), array_shapes(min_side=0, max_dims=3))
    | arrays(np.float32, 3)
)
nested = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.builds(Pair, inner, inner)
        | st.dictionaries(
            st.text(max_size=4) | st.integers() | st.tuples(st.integers()), inner, max_size=3
        )
    ),
)


def alike(value):
    """Return what a value and only its like have, types included."""
    if isinstance(value, np.ndarray):
        content = (
            value.tolist() if value.dtype.names else value.tobytes()
        )  # gaps between fields mean nothing
        return type(value), value.dtype, value.shape, value.flags.f_contiguous, content
    if isinstance(value, dict):
        return dict, [(name, alike(one)) for name, one in value.items()]
    return type(value), [*map(alike, value)] if isinstance(value, (list, tuple)) else repr(value)


@settings(max_examples=50)
@given(values=nested)
def test_what_goes_in_comes_out(values, tmp_path_factory):
    place = tmp_path_factory.mktemp("checkpoint") / "state"
    Checkpoint(place, MARK).write(1, values)
    assert alike(Checkpoint(place, MARK).read()) == alike(values)


def test_numpy_reads_arrays_of_any_order(tmp_path):
    table = np.arange(200_000).reshape(400, 500)
    given = [
        table,
        np.asfortranarray(table),
        table[:0],
        np.array(3.5),
        np.array(["a", "bcd"]),
        np.array([1j]),
        table.T,
    ]
    given += [
        np.zeros(2, np.dtype("i1, f8", align=True)),
        np.array(["2020-01-01"], "M8[D]"),
        table.astype(">i2"),
    ]
    Checkpoint(tmp_path / "state", MARK).write(1, [*given, table[::3, ::7]])
    *found, strided = Checkpoint(tmp_path / "state", MARK).read()
    assert alike(found) == alike(given)
    np.testing.assert_array_equal(strided, table[::3, ::7])
    with open(tmp_path / "state", "rb") as file, np.load(file) as archive:
        for number, array in enumerate(given):
            np.testing.assert_array_equal(archive[f"array{number}"], array, strict=True)


class Local:
    """Where a named tuple may be defined, too."""

    class Inner(NamedTuple):
        number: int


def test_named_tuples_come_back_in_their_type_or_not_at_all(tmp_path, monkeypatch):
    given = {"a": Local.Inner(1), "b": [Pair(np.arange(2), Pair(1, (2,)))]}
    Checkpoint(tmp_path / "state", MARK).write(1, given)
    assert alike(Checkpoint(tmp_path / "state", MARK).read()) == alike(given)
    with monkeypatch.context() as patch:
        patch.setattr(f"{__name__}.Pair", Triple)
        with pytest.raises(
            CheckpointMismatchError, match="has the fields left, right, weight, and had left, right"
        ):
            Checkpoint(tmp_path / "state", MARK).read()
        patch.setattr(f"{__name__}.Pair", len)
        with pytest.raises(CheckpointMismatchError, match="a damaged one"):
            Checkpoint(tmp_path / "state", MARK).read()
        patch.delattr(f"{__name__}.Pair")
        with pytest.raises(
            CheckpointMismatchError, match=r"there is no named tuple .*:Pair: import or define it"
        ):
            Checkpoint(tmp_path / "state", MARK).read()


def unnamed():
    return NamedTuple("Hidden", [("number", int)])


@pytest.mark.parametrize(
    "value",
    [{1, 2}, Counter("a"), b"x", 1j, object(), len, np.array([None, {}], object), np.ma.ones(3),
     np.datetime64("2020-01-01"),
     type("Hidden", (unnamed(),), {"__qualname__": "f.<locals>.Hidden"})(1)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_cannot_be_kept_is_named_whatever_the_disk(value, tmp_path):
    kept = Checkpoint(tmp_path / "state", MARK)
    for write in (kept.write, kept.write_behind):
        with pytest.raises(
            TypeError, match=r"cannot keep rows\[1\]\.left, of type .*; use numbers, strings"
        ):
            write(1, {"rows": [1, Pair(value, 2)]})
    assert os.listdir(tmp_path) == []


def test_folders_are_made_and_files_replaced_on_any_file_system(tmp_path):
    for url in (
        tmp_path / "folder" / "state",
        "memory://some/state",
        f"file://{tmp_path}/other/state",
    ):
        assert Checkpoint(url, MARK).read() is None
        for values in ([1], [np.arange(3)]):
            Checkpoint(url, MARK).write(1, values)
        assert alike(Checkpoint(url, MARK).read()) == alike([np.arange(3)])
    assert os.listdir(tmp_path / "folder") == os.listdir(tmp_path / "other") == ["state"]


def test_another_fit_is_refused_and_what_differs_is_said(tmp_path):
    Checkpoint(tmp_path / "state", MARK).write(1, [1])
    said = "ratio: 0.1 there, 0.2 here; more: None there, 1 here; data: 'abc' there, None here"
    with pytest.raises(
        CheckpointMismatchError, match=rf"/state.*{said}.*give another path, or remove the file"
    ):
        Checkpoint(tmp_path / "state", {"sizes": MARK["sizes"], "ratio": 0.2, "more": 1}).read()


def test_a_file_of_another_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "FORMAT", 99)
    Checkpoint(tmp_path / "state", MARK).write(1, [1])
    monkeypatch.undo()
    with pytest.raises(
        CheckpointMismatchError, match=rf"format: 99 there, {checkpoints.FORMAT} here"
    ):
        Checkpoint(tmp_path / "state", MARK).read()


# Damage.

VALUES = {
    "done": 3,
    "topics": [np.arange(40, dtype=np.int16), np.linspace(0, 1, 9)],
    "names": Pair("a", None),
}
NONE = r"is no checkpoint, or a damaged one .*; give another path, or remove the file"


def written(place, values=VALUES):
    Checkpoint(place, MARK).write(1, values)
    return place.read_bytes()


def test_a_file_with_a_flipped_bit_or_of_another_length_is_refused_or_means_the_same(tmp_path):
    place = tmp_path / "state"
    whole = written(place)

    def is_refused(content):
        place.write_bytes(content)
        try:
            found = Checkpoint(place, MARK).read()
        except CheckpointMismatchError as error:
            assert "give another path, or remove the file" in str(error)
            return True
        assert alike(found) == alike(VALUES)
        return False

    assert all(is_refused(whole[:end]) for end in range(0, len(whole), 7))
    assert is_refused(whole[: len(whole) // 2] + bytes(50) + whole[len(whole) // 2 :])
    flipped = [
        whole[:i] + bytes([whole[i] ^ 1 << i % 8]) + whole[i + 1 :] for i in range(0, len(whole), 3)
    ]
    # what remains are times, versions and other things that no reader looks at
    assert sum(map(is_refused, flipped)) > 0.2 * len(whole)


def test_a_folder_or_another_archive_is_no_checkpoint(tmp_path):
    with pytest.raises(
        CheckpointMismatchError,
        match=r"cannot be read \(OSError: it is no file\); give another path",
    ):
        Checkpoint(tmp_path, MARK).read()
    np.savez(tmp_path / "state.npz", header=np.zeros(1))
    with pytest.raises(CheckpointMismatchError, match=NONE):
        Checkpoint(tmp_path / "state.npz", MARK).read()


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def pickled():
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.array([Bomb()]), allow_pickle=True)
    return buffer.getvalue()


HEAD = {"format": checkpoints.FORMAT, "version": checkpoints.__version__, "identity": MARK}
NOT_AS = r"array topics\[0\] is not as .*"


def header(**members):
    return lambda whole: json.dumps([members, []])


HEADERS = {
    "missing": lambda whole: None,
    "empty": lambda whole: b"",
    "no fingerprint": header(format=checkpoints.FORMAT, version=checkpoints.__version__),
    "values of no kind": header(**HEAD, tree={}),
    "values of an unknown kind": header(**HEAD, tree={"pickle": 1}),
    "an array that is not there": header(**HEAD, tree={"array": 99}),
    "a type that is none": header(
        **HEAD, tree={"named": ["os:system", ["a"], [{"plain": "exit"}]]}
    ),
    "deeply nested": lambda whole: header(**HEAD, tree=0)(whole).replace(
        "0}, [", 5000 * '{"list": [' + 5000 * "]}" + "}, ["
    ),
}
ARRAYS = {
    "missing": lambda whole: None,
    "cut short": lambda whole: whole[:-3],
    "with more behind it": lambda whole: whole + b"more",
    "of fewer numbers than there are": lambda whole: whole.replace(b"(40,)", b"(39,)"),
    "of enormous shape": lambda whole: whole.replace(b"(40,), }        ", b"(4000000000000,),"),
    "of a smaller type": lambda whole: whole.replace(b"<i2", b"<i1"),
    "a pickle": lambda whole: pickled(),
    "of another value": lambda whole: whole[:-2] + b"\x63\x00",
}


@pytest.mark.parametrize(
    ("member", "change", "said"),
    [
        *(
            pytest.param("header.json", change, "", id=f"header, {name}")
            for name, change in HEADERS.items()
        ),
        *(
            pytest.param("array0.npy", change, NOT_AS, id=f"array, {name}")
            for name, change in ARRAYS.items()
        ),
    ],
)
def test_what_is_not_what_it_says_is_refused(member, change, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "state"
    with zipfile.ZipFile(io.BytesIO(written(place))) as archive:
        members = {one: archive.read(one) for one in archive.namelist()}
    changed = members | {member: change(members[member])}
    assert changed != members
    with zipfile.ZipFile(place, "w") as archive:
        for one, content in changed.items():
            if content is not None:
                archive.writestr(one, content)
    with pytest.raises(CheckpointMismatchError, match=NONE.replace(".*", f".*{said}", 1)):
        Checkpoint(place, MARK).read()
    assert os.listdir(tmp_path) == ["state"]


def rewritten(place, change, compress=zipfile.ZIP_STORED):
    """Change the members of a checkpoint, and write them again with right checksums."""
    with zipfile.ZipFile(io.BytesIO(written(place))) as archive:
        members = {one: archive.read(one) for one in archive.namelist()}
    change(members)
    with zipfile.ZipFile(place, "w", compress) as archive:
        for one, content in members.items():
            archive.writestr(one, content)


def in_header(change):
    def rewrite(members):
        head, arrays = json.loads(members["header.json"])
        change(head, arrays)
        members["header.json"] = json.dumps([head, arrays])

    return rewrite


FORGED = {
    "an array twice": in_header(lambda head, _: head.update(tree={"list": [{"array": 0}] * 2})),
    "a scalar of a gigabyte": in_header(
        lambda head, _: head.update(tree={"scalar": ["|V8", 1 << 30]})
    ),
    "a long identity": in_header(lambda head, _: head["identity"].update(data="x" * 1_000_000)),
    "an identity without end": in_header(
        lambda head, _: head["identity"].update(a="x" * 20_000_000)
    ),
    "other values": in_header(lambda head, _: head.update(tree={"list": []})),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_forged_files_are_refused_in_few_words_and_little_memory(change, tmp_path):
    rewritten(tmp_path / "state", change)
    with pytest.raises(CheckpointMismatchError) as caught:
        Checkpoint(tmp_path / "state", MARK).read(lambda found: found["done"])
    assert len(str(caught.value)) <= 500
    assert str(caught.value).endswith("give another path, or remove the file to start anew")


def test_compressed_members_are_refused_unread(tmp_path):
    def grow(members):
        members["array0.npy"] += bytes(100_000_000)

    rewritten(tmp_path / "state", grow, zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    with pytest.raises(CheckpointMismatchError, match="is compressed, or larger than the file"):
        Checkpoint(tmp_path / "state", MARK).read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("member", ["header.json", "array0.npy"])
@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_a_member_that_is_there_twice_is_refused(member, first, tmp_path):
    """Which one counts is not the same for all who read archives."""
    content = written(tmp_path / "state")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(one, archive.read(one)) for one in archive.namelist()]
    again = [(member, b"[]"), *members] if first else [*members, (member, dict(members)[member])]
    with zipfile.ZipFile(tmp_path / "state", "w") as archive:
        for one, content in again:
            archive.writestr(one, content)
    with pytest.raises(CheckpointMismatchError, match="several members of one name") as caught:
        Checkpoint(tmp_path / "state", MARK).read()
    assert len(str(caught.value)) <= 500


def zip64(content, member, field, size, words):
    """Let the directory say that a field of a member is in an extra field of Zip64, and what it is.

    The field is at these bytes.
    """
    at = content.rindex(member.encode()) - 46
    assert content[at : at + 4] == b"PK\x01\x02"
    end = content.rindex(b"PK\x05\x06")
    extra = struct.pack(f"<HH{words}Q", 1, 8 * words, *[size] * words)
    changed = bytearray(content)
    changed[end + 12 : end + 16] = struct.pack("<I", end - directory(content) + len(extra))
    changed[at + 30 : at + 32] = struct.pack("<H", len(extra))
    changed[at + field.start : at + field.stop] = b"\xff" * (field.stop - field.start)
    behind = at + 46 + len(member)
    return bytes(changed[:behind] + extra + changed[behind:])


def directory(content):
    end = content.rindex(b"PK\x05\x06")
    return struct.unpack("<I", content[end + 16 : end + 20])[0]


def zip64_directory(content, size, offset):
    """Let the end of an archive say where its directory is by a record of Zip64."""
    end = content.rindex(b"PK\x05\x06")
    sizes = size if size >= 0 else end - directory(content), max(offset, 0) or directory(content)
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 2, 2, *sizes)
    found = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1)
    return content[:end] + record + found + content[end:][:8] + b"\xff" * 12 + b"\0\0"


LYING = {
    f"{what} of {member}, {size:x}": partial(zip64, member=member, field=field, size=size, words=n)
    for member in ("header.json", "array0.npy")
    for size in (3, 1 << 20, 1 << 40, (1 << 64) - 1)
    for what, field, n in (
        ("size", slice(24, 28), 1),
        ("sizes", slice(20, 28), 2),
        ("place", slice(42, 46), 1),
    )
} | {
    f"directory {size:x} {place:x}": partial(zip64_directory, size=size, offset=place)
    for size, place in (
        (1 << 40, 0),
        ((1 << 64) - 1, 0),
        (0, 0),
        (-1, 1 << 40),
        (-1, (1 << 64) - 1),
    )
}


@pytest.mark.parametrize("lie", LYING.values(), ids=LYING)
def test_lies_about_sizes_are_refused_in_few_words_and_little_memory(lie, tmp_path):
    place = tmp_path / "state"
    content = written(place)
    place.write_bytes(zip64_directory(content, -1, 0))  # the truth
    assert Checkpoint(place, MARK).read() is not None
    place.write_bytes(lie(content))
    tracemalloc.start()
    with pytest.raises(CheckpointMismatchError) as caught:
        Checkpoint(place, MARK).read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(str(caught.value)) <= 500 and peak < 5_000_000


@pytest.mark.parametrize("target", ["/etc/hostname", "/dev/zero", "/"])
def test_links_to_what_is_no_checkpoint_are_refused(target, tmp_path):
    if not os.path.exists(target):
        pytest.skip("the system has no such file")
    (tmp_path / "state").symlink_to(target)
    with pytest.raises(CheckpointMismatchError, match=r"cannot be read|is no checkpoint") as caught:
        Checkpoint(tmp_path / "state", MARK).read()
    assert len(str(caught.value)) <= 500


def test_a_member_that_claims_to_be_a_link_is_not_followed(tmp_path):
    content = written(tmp_path / "state")
    (tmp_path / "secret").write_text("secret")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {one: archive.read(one) for one in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "state", "w") as archive:
        for one in members:
            link = zipfile.ZipInfo(one)
            link.create_system, link.external_attr = 3, 0o120777 << 16
            archive.writestr(link, str(tmp_path / "secret"))
    with pytest.raises(CheckpointMismatchError, match="is no checkpoint") as caught:
        Checkpoint(tmp_path / "state", MARK).read()
    assert len(str(caught.value)) <= 500


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_pipes_and_devices_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises(
            CheckpointMismatchError, match=r"cannot be read \(OSError: it is no file"
        ):
            Checkpoint(path, MARK).read()


# Writing.


def parts(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".part"))


def write_and_die(place, ready):
    def die(file):
        file.write(bytes(1000))
        file.flush()
        ready.set()
        threading.Event().wait()

    replace_file(place, die)


@pytest.mark.slow
def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    place, spawn = tmp_path / "state", multiprocessing.get_context("spawn")
    (tmp_path / "state.x.part").write_bytes(b"not ours")
    ready = spawn.Event()
    writer = spawn.Process(target=write_and_die, args=(place, ready), daemon=True)
    writer.start()
    assert ready.wait(300)
    assert len(parts(tmp_path)) == 2
    written(place)  # a writer that is alive is left in peace
    assert len(parts(tmp_path)) == 2
    writer.kill()
    writer.join()
    writer.close()
    written(place)
    assert parts(tmp_path) == ["state.x.part"]
    assert alike(Checkpoint(place, MARK).read()) == alike(VALUES)


def test_a_full_disk_is_said_once_each_time_it_begins(tmp_path):
    checkpoint, place = Checkpoint(tmp_path / "state", MARK), tmp_path / "state"
    checkpoint.write(5, [5])
    with full_disk():
        with pytest.warns(
            CheckpointWarning,
            match=r"state' could not be written after iteration 10 .*No space left",
        ):
            checkpoint.write(10, [10])
        checkpoint.write(15, [15])
    assert Checkpoint(place, MARK).read() == [5]
    assert os.listdir(tmp_path) == ["state"]
    checkpoint.write(20, [20])
    assert checkpoint.read() == [20]
    with full_disk(), pytest.warns(CheckpointWarning, match="after iteration 25"):
        checkpoint.write(25, [25])


def run(tmp_path, n_threads=2, *, n_sweeps=3):
    """Keep every sweep of a run, and return the checkpoint.

    Its last sweep is to be kept still.
    """
    sources, checkpoint = (
        [Source(np.array, (shard,)) for shard in make_shards(2)],
        Checkpoint(tmp_path / "state", MARK),
    )
    with (
        closing(Place(n_threads)) as place,
        static_run(Ring(), sources, place, n_sweeps=n_sweeps) as going,
    ):
        for number, _ in enumerate(going, 1):
            going.keep(checkpoint, number, lambda saved, number=number: [number, saved.shards])
            yield number, going.save().shards


@pytest.mark.parametrize("n_threads", [1, 2])
def test_sweeps_go_on_while_a_thread_writes(n_threads, tmp_path, monkeypatch):
    replace, may_end, began = checkpoints.replace_file, threading.Event(), []

    def slow(*given):
        began.append(given)
        assert may_end.wait(60)
        replace(*given)

    monkeypatch.setattr(checkpoints, "replace_file", slow)
    going = run(tmp_path, n_threads, n_sweeps=2)
    _, first = next(going)
    assert not (tmp_path / "state").exists()
    may_end.set()
    _, last = next(going)  # which waits for the one before
    assert len(began) == 2
    assert [*going] == []  # what ends waits for the last one
    assert alike(Checkpoint(tmp_path / "state", MARK).read()) == alike([2, last])
    assert any((one != other).any() for one, other in zip(first, last, strict=True))
    for thread in threading.enumerate():
        if thread.name.startswith("schmp-checkpoint"):  # which has written, and ends
            thread.join(60)
            assert not thread.is_alive()


def test_an_error_of_the_run_is_what_counts(tmp_path):
    with warnings.catch_warnings(), full_disk():
        warnings.simplefilter("error", CheckpointWarning)
        going = run(tmp_path)
        next(going)
        with pytest.raises(ZeroDivisionError):
            going.throw(ZeroDivisionError())
        with pytest.raises(CheckpointWarning, match="after iteration 1"):
            [*run(tmp_path, n_sweeps=1)]
