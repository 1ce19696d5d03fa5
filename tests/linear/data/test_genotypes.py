"""Genotypes are read, selected and packed as PLINK's documentation says; bad files are named."""

import os
import pickle
import re
import sys

import numpy as np
import pytest
from plink import write_chromosomes, write_plink
from sklearn.model_selection import train_test_split

import schmp_estimators as se
from schmp_estimators.genotypes import join, pack, read_plink

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
    assert max(G.people) // 4 < first + count <= G.sources[0].shape[1]
    assert count >= 64
    first, count = join(pack(doses(1001, 2))[200:256], pack(doses(256, 2))[200:])._bytes
    assert (first, count) == (0, 64)


@pytest.mark.parametrize("n_people", [61, 300])
def test_chromosomes_are_joined(tmp_path, n_people):
    """Their genotypes and names are those of one file; some may be in memory."""
    given = doses(n_people, 40)
    parts, whole = write_chromosomes(tmp_path, given, np.arange(n_people) + 3)
    G, whole = join(*map(read_plink, parts)), read_plink(whole)
    mask, some = RNG.random(n_people) < 0.5, np.array([39, 2, 14, 2])
    for chosen in slice(None), mask, (slice(None), some), (mask, slice(9, 30, 4)):
        there = whole[chosen]
        for found in G[chosen], pickle.loads(pickle.dumps(G[chosen])):
            np.testing.assert_array_equal(found.to_array(), there.to_array())
            for name in (
                *("sample_ids", "phenotype", "variant_names"),
                *("chromosomes", "positions", "alleles"),
            ):
                np.testing.assert_array_equal(getattr(found, name), getattr(there, name))
    rows = slice(200, 256) if n_people > 256 else slice(20, 40)
    small = join(read_plink(parts[0])[rows], pack(given[: rows.stop, 14:])[rows])
    np.testing.assert_array_equal(small.to_array(), known(given)[rows])
    missing = (given[rows] < 0).sum(axis=0)
    np.testing.assert_allclose(small.known_sums(np.ones(len(small)))[1], missing)
    rows = join(read_plink(parts[0])[mask], pack(given[:, 14:])[mask])
    np.testing.assert_array_equal(rows.to_array(), known(given)[mask])
    assert rows.variant_names is None
    rows = pickle.loads(pickle.dumps(join(pack(given[:, :9]), pack(given[:, 9:]))[::-1]))
    np.testing.assert_array_equal(rows.to_array(), known(given)[::-1])


def test_genotypes_that_cannot_be_joined_are_named(tmp_path):
    (one, other, two), _ = write_chromosomes(tmp_path, doses(61, 9))
    G, H = read_plink(one), read_plink(other)
    strangers = read_plink(edited(other, ".fam", rb"i60 ", b"x "))
    for parts, said in (
        ((G, G), "two columns with the name 'rs0'"),
        ((G, H[::-1]), r"genotypes 1 of join .* have other people .*--indiv-sort"),
        ((G, H, strangers), r"genotypes 2 of join"),
        ((G[:20], pack(doses(21, 2))), "other people"),
        ((G, read_plink(two, count_a1=False)), "genotypes 1 of join have another count_a1"),
        ((pack(doses(9, 2)), np.ones(9)), r"got an array of shape \(9,\)"),
    ):
        with pytest.raises(ValueError, match=said):
            join(*parts)
    with pytest.raises(TypeError, match="join needs genotypes"):
        join(np.ones((9, 2)))


class Pgen:
    """Files of PLINK 2, written by pgenlib."""

    def __init__(self, prefix, given):
        pgenlib = pytest.importorskip("pgenlib")
        self.prefix, path = prefix, bytes(prefix.with_suffix(".pgen"))
        writer = pgenlib.PgenWriter(path, len(given), variant_ct=given.shape[1], nonref_flags=False)
        writer.append_biallelic_batch(np.where(given < 0, -9, given).astype(np.int8).T.copy())
        writer.close()
        self.texts(".psam", "#FID", "IID\tSEX\tAGE", lambda i: f"f{i // 2} i{i} 1 {i}", len(given))
        columns = "POS\tID\tREF\tALT"
        self.texts(".pvar", "#CHROM", columns, lambda j: f"X {7 * j} rs{j} A G", given.shape[1])

    def texts(self, suffix, begin, columns, line, count):
        lines = ["##comment", f"{begin}\t{columns}"] if columns else []
        lines += ["\t".join(line(number).split()) for number in range(count)]
        self.prefix.with_suffix(suffix).write_text("\n".join([*lines, ""]))


@pytest.mark.parametrize("n_people", [1, 7, 257])
def test_files_of_plink_2_are_those_of_pgenlib(tmp_path, n_people, monkeypatch):
    monkeypatch.setattr("schmp_estimators.linear.genotypes._TOGETHER", 4)
    given = doses(n_people, 11)
    files = Pgen(tmp_path / "a", given)
    G = read_plink(tmp_path / "a")
    np.testing.assert_array_equal(G.to_array(), known(given))
    other = read_plink(tmp_path / "a.pgen", count_a1=False)
    np.testing.assert_array_equal(other.to_array(), 2 - known(given))
    assert (G.alleles[0].tolist(), other.alleles[0].tolist()) == (["G", "A"], ["A", "G"])
    assert G.sample_ids[-1].tolist() == [f"f{(n_people - 1) // 2}", f"i{n_people - 1}"]
    assert G.phenotype.tolist() == list(range(n_people)) or n_people == 1
    assert G.variant_names.tolist() == [f"rs{j}" for j in range(11)]
    assert G.positions.tolist() == [7 * j for j in range(11)]
    assert set(G.chromosomes) == {"X"}
    files.texts(".psam", "#IID", "SEX", lambda i: f"i{i} 2", n_people)
    files.texts(".pvar", "", "", lambda j: f"1 v{j} 0 {j} C T", 11)
    G = read_plink(tmp_path / "a")
    np.testing.assert_array_equal(G.to_array(), known(given))
    assert (G.alleles[0].tolist(), G.chromosomes[0]) == (["C", "T"], "1")
    assert G.sample_ids[0].tolist() == ["0", "i0"]
    assert np.isnan(G.phenotype).all()
    write_plink(tmp_path / "a", 2 - np.maximum(given, 0))  # now there are both
    np.testing.assert_array_equal(read_plink(tmp_path / "a"), 2 - np.maximum(given, 0))
    np.testing.assert_array_equal(read_plink(tmp_path / "a.pgen"), known(given))


def test_bad_files_of_plink_2_are_named(tmp_path, monkeypatch):
    files, path = Pgen(tmp_path / "a", doses(9, 5)), tmp_path / "a.pgen"
    pgen = path.read_bytes()
    for suffix, begin, columns, line, said in (
        (".psam", "#FID", "SEX", lambda i: f"{i} 1", "a.psam has no column IID"),
        (".psam", "#IID", "SEX", lambda i: f"{i}", "a.psam: line 3 has 1 fields instead of 2"),
        (".psam", "#IID", "", lambda i: "", "instead of 6"),
        (".psam", "#IID", "SEX", lambda i: "i 1", "a.psam: two people .*'i'"),
        (".psam", "#IID", "AGE", lambda i: f"i{i} old", "a.psam has 'old' where a number"),
        (".pvar", "#CHROM", "POS\tID\tREF\tALT", lambda j: f"1 {j} rs A G", "name 'rs'"),
        (".pvar", "#CHROM", "POS\tID\tREF\tALT", lambda j: f"1 {j} r{j} A G,T", "two alleles"),
    ):
        kept = path.with_suffix(suffix).read_text()
        files.texts(suffix, begin, columns, line, 9 if suffix == ".psam" else 5)
        with pytest.raises(ValueError, match=said):
            read_plink(path)
        path.with_suffix(suffix).write_text(kept)
    for content in b"no such file, but a text", pgen[:-4]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"pgenlib cannot read .*a.pgen"):
            read_plink(path)
    monkeypatch.setitem(sys.modules, "pgenlib", None)
    with pytest.raises(ImportError, match=r"pip install pgenlib, or convert it with plink2"):
        read_plink(path)


@pytest.mark.parametrize("exponent", [-290, 0, 300])
def test_sums_have_the_order_that_is_written_down(exponent):
    """Eight lanes of four sums each, in blocks of 256 people; one rounding for each addition."""
    given = np.abs(doses(768, 3))
    vector = RNG.normal(size=768) * 10.0**exponent
    totals = np.zeros((4, 8, 3))
    for block in range(0, 768, 256):
        for person in range(32):
            people = np.arange(block + person, block + 256, 32)
            totals[person % 4] += given[people] * vector[people, None]
    lanes = (totals[0] + totals[2]) + (totals[1] + totals[3])
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    np.testing.assert_array_equal(pack(given).gradient(vector, None), lanes[0])
