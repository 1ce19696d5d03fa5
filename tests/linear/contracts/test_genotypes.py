"""Genotypes are read, selected and packed as PLINK's documentation says; bad files are named."""

import os
import pickle
import re

import numpy as np
import pytest
from plink import write_plink
from sklearn.model_selection import train_test_split

import schmp_estimators as se
from schmp_estimators.genotypes import pack, read_plink

RNG = np.random.default_rng(0)


def doses(n_people, n_variants):
    return RNG.integers(-1, 3, (n_people, n_variants))


def known(values):
    return np.where(values < 0, np.nan, values)


@pytest.mark.parametrize("n_people", [1, 2, 3, 4, 5, 8, 9, 251, 252, 253, 257, 2003])
def test_files_are_read_and_packed(tmp_path, n_people):
    given = doses(n_people, 7)
    found = read_plink(write_plink(tmp_path / "a", given))
    np.testing.assert_array_equal(np.asarray(found), known(given))
    np.testing.assert_array_equal(pack(given.astype(np.int8)).to_array(), known(given))
    other = read_plink(tmp_path / "a.bed", count_a1=False)
    np.testing.assert_array_equal(other.to_array(), 2 - known(given))
    assert (found.shape, found.ndim, len(found)) == ((n_people, 7), 2, n_people)
    assert found.sample_ids[-1].tolist() == [f"f{(n_people - 1) // 2}", f"i{n_people - 1}"]
    assert found.variant_names.tolist() == [f"rs{j}" for j in range(7)]
    assert found.positions.tolist() == [100 * j for j in range(7)]
    assert found.chromosomes.tolist() == [str(1 + j) for j in range(7)]
    assert (found.alleles[0].tolist(), other.alleles[0].tolist()) == (["A", "G"], ["G", "A"])
    assert np.isnan(found.phenotype).all()


@pytest.mark.parametrize("count_a1", [True, False])
def test_files_are_those_of_bed_reader(tmp_path, count_a1):
    """The same values and names, of a file that we wrote, and of one that bed-reader wrote."""
    theirs = pytest.importorskip("bed_reader")
    for n_people in (1, 4, 7, 257):
        path, other = write_plink(tmp_path / "a", doses(n_people, 5)), tmp_path / "b.bed"
        with theirs.open_bed(path.with_suffix(".bed"), count_A1=count_a1) as file:
            values, properties = file.read(dtype="float64"), file.properties
        theirs.to_bed(other, values, properties=properties, count_A1=count_a1)
        for found in (read_plink(path, count_a1=count_a1), read_plink(other, count_a1=count_a1)):
            np.testing.assert_array_equal(found.to_array(), values)
            assert found.sample_ids[:, 1].tolist() == properties["iid"].tolist()
            assert found.variant_names.tolist() == properties["sid"].tolist()
            assert found.positions.tolist() == properties["bp_position"].tolist()
            counted, _ = found.alleles.T
            assert (counted == properties["allele_1" if count_a1 else "allele_2"]).all()


def test_blocks_of_people_travel_packed():
    """Two bits a value; eight bytes for the number of a person or variant, and for its mean."""
    G = pack(doses(3000, 400)).filled(np.ones(400))
    for start in (0, 1000, 2000):
        size = len(pickle.dumps(G.rows(np.arange(start, start + 1000)), 5))
        assert size < 1000 * 400 / 4 + 8 * 1000 + 16 * 400 + 2000


@pytest.mark.parametrize("kind", ["file", "small file", "memory"])
def test_rows_and_columns_are_those_of_numpy(tmp_path, kind):
    given = doses(300 if kind == "file" else 61, 40)
    path = write_plink(tmp_path / "a", given, np.arange(len(given)) + 3)
    G, values = pack(given) if kind == "memory" else read_plink(path), known(given)
    mask, some = RNG.random(len(given)) < 0.5, np.array([7, -1, 7, 0])
    for chosen in (
        *(mask, some, some.tolist(), slice(None, None, -1), slice(0, 0), (some, ...)),
        *((some, slice(3, 9)), (slice(None), some), (mask, RNG.random(40) < 0.5)),
    ):
        rows, columns = chosen if isinstance(chosen, tuple) else (chosen, ...)
        columns = slice(None) if columns is ... else columns
        expected = values[rows][:, columns]
        for found in (G[chosen], G[rows][:, columns], pickle.loads(pickle.dumps(G[chosen]))):
            np.testing.assert_array_equal(found.to_array(), expected)
        if kind != "memory":
            assert found.phenotype.tolist() == (np.arange(len(given)) + 3.0)[rows].tolist()
            assert found.positions.tolist() == (100 * np.arange(40))[columns].tolist()
    assert G[5].shape == (1, 40)
    with pytest.raises(IndexError):
        G[[len(given)]]
    train, test = train_test_split(G, random_state=0)
    again = train_test_split(values, random_state=0)
    np.testing.assert_array_equal(train.to_array(), again[0])
    np.testing.assert_array_equal(test.to_array(), again[1])


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "2", "-9", "0", "NA"], [1, 2, np.nan, np.nan, np.nan]),
        (["1.5", "0", "-9", "NA", "2"], [1.5, 0, np.nan, np.nan, 2]),
        (["1", "0", "-9.0", "0", "-9"], [1, np.nan, np.nan, np.nan, np.nan]),
    ],
)
def test_phenotypes_are_those_of_plink(tmp_path, texts, expected):
    found = read_plink(write_plink(tmp_path / "a", doses(5, 3), texts))
    np.testing.assert_array_equal(found.phenotype, expected)


def edited(path, suffix, old, new):
    file = path.with_suffix(suffix)
    file.write_bytes(re.sub(old, new, file.read_bytes(), count=1))
    return path


@pytest.mark.parametrize(
    ("suffix", "old", "new", "said"),
    [
        (".bed", rb"\A\x6c", b"m", "is no .bed file of PLINK 1"),
        (".bed", rb"\A(..)\x01", rb"\1\000", "not in the order of variants.*--make-bed"),
        (".bed", rb"(?s).\Z", b"", "has 32 bytes, but 17 people .* and 6 variants .* take 33"),
        (".fam", rb"f1 i2 ", b"f1 i3 ", r"two people .* \('f1', 'i3'\)"),
        (".fam", rb"0 0 0 -9", b"0 0 -9", "line 1 has 5 fields instead of 6"),
        (".fam", rb"-9", b"tall", "a.fam has 'tall' where a number should be"),
        (".bim", rb"rs2", b"rs3", "two variants have the name 'rs3'"),
        (".bim", rb"\t100\t", b"\tp\t", "a.bim has 'p' where a number should be"),
        (".bim", rb"(?s).+", b"", "a.bim is empty"),
    ],
)
def test_bad_files_are_named(tmp_path, suffix, old, new, said):
    path = edited(write_plink(tmp_path / "a", doses(17, 6)), suffix, old, new)
    with pytest.raises(ValueError, match=said):
        read_plink(path)


@pytest.mark.parametrize("how", ["written", "replaced", "cut", "gone"])
def test_a_file_that_changes_is_named(tmp_path, how):
    path, y = write_plink(tmp_path / "a", doses(300, 6)), RNG.normal(size=300)
    G, bed = read_plink(path), path.with_suffix(".bed")
    sent = pickle.dumps(G)
    fitted = se.PrioritizedLasso(0.01).fit(G, y)
    if how == "written":
        bed.write_bytes(bed.read_bytes()[:-1] + b"\x03")
    elif how == "replaced":
        os.replace(write_plink(tmp_path / "b", doses(300, 6)).with_suffix(".bed"), bed)
    elif how == "cut":
        os.truncate(bed, 3)
    else:
        bed.unlink()
    for act in (lambda: fitted.predict(G), lambda: fitted.fit(G, y), G.to_array):
        with pytest.raises(ValueError, match=r"a.bed' has changed since it was opened"):
            act()
    with pytest.raises(ValueError, match=r"cannot read .*a.bed'|does not find in .*a.bed'"):
        pickle.loads(sent).to_array()


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        ([[0, 3]], {}, "row 0, column 1 of doses is 3; give 0, 1, 2, or missing=-1"),
        ([[0, -1]], {"missing": 9}, "column 1 of doses is -1"),
        ([[0.5, 1.0]], {}, "array of integers; got float64"),
        ([0, 1], {}, "two-dimensional"),
        ([[0, 1]], {"variant_names": ["a", "a"]}, "two variants have the name 'a'"),
        ([[0, 1]], {"variant_names": ["a"]}, "1 variant_names for 2 columns"),
    ],
)
def test_what_cannot_be_packed_is_named(given, options, said):
    with pytest.raises(ValueError, match=said):
        pack(given, **options)


def test_another_number_may_stand_for_missing():
    np.testing.assert_array_equal(
        pack([[9, 0], [2, 1]], missing=9).to_array(), [[np.nan, 0], [2, 1]]
    )


def test_large_genotypes_do_not_become_dense_by_accident():
    G = pack(np.zeros((300, 1), np.int8))[:, np.zeros(2**18, int)]
    with pytest.raises(TypeError, match=r"would be 0.6 GiB of float64.*to_array"):
        np.asarray(G)
    with pytest.raises(ValueError, match="always a copy"):
        np.asarray(G[:, :5], copy=False)


@pytest.mark.parametrize("rows", [[0], [-1], [3, -2], [700], slice(None)])
def test_kernels_read_within_the_rows_of_a_file(rows):
    G = pack(doses(1001, 2))[rows]
    first, count = G._bytes
    assert 0 <= first <= min(G.people) // 4
    assert max(G.people) // 4 < first + count <= G.source.codes.shape[1]
    assert count >= 64
