"""Rows of counts on their way between processes."""

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lda_cases import CUTS, fit, old_rows, random_counts
from numpy.testing import assert_array_equal

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.kernels.coded_rows import add_coded_rows, code_rows, code_topics, most_bytes
from schmp_estimators.lda.programs import coded_rows
from schmp_estimators.lda.programs.blocks import begin_rows
from schmp_estimators.lda.programs.coded_rows import CodedPart, DamagedRowsError

LARGEST = 2**31 - 1


def number(n):
    """Seven bits a byte, lowest first, by hand."""
    return [n] if n < 128 else [n % 128 + 128, *number(n // 128)]


def listed(row):
    """A row (dict) by the definition."""
    code, last = [0], -1
    for topic, n in sorted(row.items()):
        code += number(2 * (topic - last - 1) + (n > 1)) + (number(n - 2) if n > 1 else [])
        last = topic
    return code


def marked(row, n_topics):
    """A row by the definition."""
    has = np.zeros(n_topics, bool)
    has[list(row)] = True
    bits = np.packbits(has, bitorder="little").tolist()
    counts = [n for _, n in sorted(row.items())]
    halves = [min(n - 1, 15) for n in counts] + [0]
    halves = [low + 16 * high for low, high in zip(halves[:-1:2], halves[1::2], strict=True)]
    return [*number(len(row)), *bits, *halves, *(byte for n in counts if n > 15 for byte in number(n - 16))]


def dense(rows, n_topics):
    table = np.zeros((len(rows), n_topics), np.int32)
    for at, row in enumerate(rows):
        table[at, list(row)] = list(row.values())
    return table


def coded(table):
    n_rows, n_topics = table.shape
    out = np.full(most_bytes(n_rows, int(table.sum()), n_topics) + 1, 77, np.uint8)
    code = out[: code_rows(freeze(table), out[:-1])]
    assert len(code) < len(out) and out[-1] == 77  # nothing was written where there is no room
    return code


def read(code, table, into=None):
    found = np.zeros_like(table) if into is None else into
    totals = freeze(table.sum(axis=1, dtype=np.int64))
    return add_coded_rows(totals, freeze(np.array(code, np.uint8)), found), found


counts = st.one_of(
    st.sampled_from([1, 1, 2, 3, 15, 16, 17]), st.sampled_from([129, 130, 143, 144]), st.integers(1, LARGEST)
)


@st.composite
def tables(draw):
    """Some sparse rows, some dense, some empty."""
    n_topics = draw(st.sampled_from([1, 2, 7, 8, 9, 63, 64, 65, 200, 1000]))
    n_rows, most = draw(st.integers(0, 4)), draw(st.sampled_from([3, n_topics]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = []
    for _ in range(n_rows):
        topics = rng.choice(n_topics, rng.integers(0, min(most, n_topics) + 1), replace=False).tolist()
        some = draw(st.lists(counts, min_size=1, max_size=6))
        rows.append({topic: some[i % len(some)] for i, topic in enumerate(topics)})
    return n_topics, rows


@given(tables())
@example((10**6, [{}, {0: LARGEST, 10**6 - 1: 1}, {500_000: LARGEST}]))
@example((10**5, [dict.fromkeys(range(0, 10**5, 7), 17)]))
@example((900, [{0: 129, 64: 1, 128: 130, 199: 131, 262: 2, 326: 1, 391: 1}]))
@example((9, [dict(enumerate([15, 16, 17, 142, 143, 144, 145, 1, 2]))]))
@example((300, [{0: LARGEST, 299: LARGEST}, dict.fromkeys(range(300), LARGEST)]))
def test_rows_come_back_and_are_as_the_definition_says(given):
    n_topics, rows = given
    table = dense(rows, n_topics)
    code = coded(table)
    expected = []
    for row in rows:
        if row:
            listed_bytes = len(row) + sum(n > 1 for n in row.values())
            marked_bytes = n_topics // 8 + len(row) // 2 + sum(n > 15 for n in row.values())
            expected += listed(row) if listed_bytes <= marked_bytes else marked(row, n_topics)
    assert code.tolist() == expected
    for way in (listed, lambda row: marked(row, n_topics)):
        is_read, found = read([byte for row in rows if row for byte in way(row)], table)
        assert is_read
        assert_array_equal(found, table)


@given(tables(), st.integers(1, 3))
def test_topics_of_tokens_are_coded_like_their_counts_and_rows_of_shards_are_added(given, n_shards):
    n_topics, rows = given
    rows = [{topic: min(n, 200) for topic, n in row.items()} for row in rows]
    table = dense(rows, n_topics)
    topics = np.concatenate([[], *[np.repeat(list(row), list(row.values())) for row in rows if row]]).astype(np.int16)
    ptr = np.concatenate([[0], np.cumsum(table.sum(axis=1))]).astype(np.int64)
    out = np.empty(most_bytes(len(rows), len(topics), n_topics), np.uint8)
    cuts = np.array([0, len(rows) // 2, len(rows)])
    strided = freeze(np.stack([topics, topics + 1], axis=1))[:, 0]
    ends = code_topics(*freeze((ptr, cuts[:-1], np.diff(cuts))), strided, n_topics, out)
    half = coded(table[: cuts[1]])
    assert ends[0] == len(half)
    assert_array_equal(out[: ends[1]], coded(table))
    several = freeze(np.tile(out[: ends[1]], n_shards))
    found = np.ones_like(table)
    assert add_coded_rows(freeze(np.tile(np.diff(ptr), n_shards)), several, found)
    assert_array_equal(found, 1 + n_shards * table)


@given(tables(), st.data())
def test_damaged_rows_are_told_and_written_nowhere_else(given, data):
    n_topics, rows = given
    table = dense(rows, n_topics)
    code = coded(table).tolist()
    for wrong in (code[:-1], [*code, 0]):
        if wrong != code:
            assert not read(wrong, table)[0]
    for _ in range(5):
        damaged = list(code)
        for _ in range(data.draw(st.integers(1, 3))):
            if damaged:
                damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        guarded = np.zeros((len(rows) + 2, n_topics), np.int32)
        is_read, found = read(damaged, table, guarded[1:-1])
        assert not guarded[[0, -1]].any()
        if is_read:  # it is the code of some rows with these totals
            assert_array_equal(found.sum(axis=1, dtype=np.int64), table.sum(axis=1, dtype=np.int64))
            assert (found >= 0).all()


@pytest.mark.parametrize(
    "code",
    [
        [],
        [0],
        [0, 1],
        [0, 9, 1],  # a topic beyond the last one
        [0, 1, 9],  # too many tokens
        [0, 0],  # too few
        [128, 128, 128, 128, 128, 0],  # a number that does not end
        [3, 0b11, 0x10],  # more bits than topics are said to be
        [1, 0b11, 0x10],  # fewer
        [2, 0b10001, 0x10],  # a bit beyond the last topic
        [2, 0b11, 0x20],
        [2, 0b11, 0x00],
        [2, 0b11, 0x0F],
        [5, 0b11111, 0, 0, 0],  # more topics than there are
    ],
)
def test_what_is_no_row_of_three_tokens_in_four_topics(code):
    table = np.array([[1, 2, 0, 0]], np.int32)
    assert not read(code, table)[0]
    assert read([2, 0b11, 0x10], table)[0]


def test_damaged_rows_are_a_named_error():
    rows, fresh = (begin_rows(np.array([20, 3]), 5, np.int16) for _ in range(2))
    lengths, lists = np.array([20, 3], np.int32), np.array([1, 2, 3], np.int16)
    part = CodedPart(lengths, lists, np.array([0, 1, 17], np.uint8))
    with pytest.raises(DamagedRowsError, match=re.escape("3 bytes have come that are not the rows of 1 words in 5")):
        coded_rows._add_coded(rows, [part])
    coded_rows._add_coded(fresh, [part._replace(code=np.array([0, 1, 18], np.uint8))])
    assert fresh.heads.tolist() == [[20, 0, 0, 0, 0]]
    assert fresh.tails.tolist() == [1, 2, 3]


@pytest.mark.parametrize("cuts", [CUTS[1], *(pytest.param(cuts, marks=pytest.mark.slow) for cuts in CUTS[2:])])
@pytest.mark.parametrize("has_old", [False, True])
def test_coded_rows_change_no_bit(cuts, has_old):
    counts = random_counts(3, rate=4.0)
    fixed = old_rows(3, counts, 3) if has_old else None
    near, far = (fit(counts, 3, cuts=cuts, fixed=fixed, mh_steps=1, far=far) for far in (False, True))
    for one, other in zip(near.topics, far.topics, strict=True):
        assert_array_equal(one, other)
    assert near.records == far.records
    for one, other in zip(near.rows, far.rows, strict=True):
        assert_array_equal(one, other)
