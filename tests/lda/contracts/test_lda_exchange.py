"""How words travel between shards."""

import pickle
import tracemalloc
import weakref

import numpy as np
import pytest
from dask.sizeof import sizeof
from hypothesis import given
from hypothesis import strategies as st
from lda_cases import make_shards, old_rows, random_counts
from scipy import sparse

from schmp_estimators.core.door.rows import sums_before
from schmp_estimators.core.errors import WorkLostError
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import HEAD, no_rows
from schmp_estimators.lda.data.corpus import narrow
from schmp_estimators.lda.data.counts import canonical_counts
from schmp_estimators.lda.data.met_shards import (
    LARGEST_SHARE,
    ROW_BYTES,
    WORK_BYTES,
    MetPlan,
    make_met_shard,
    words_at_home,
)
from schmp_estimators.lda.data.parcels import Packing, Parcel
from schmp_estimators.lda.data.tokens import make_layout
from schmp_estimators.lda.kernels.exchange import (
    MOST_BYTES,
    MetLengths,
    code_lengths,
    merge_topics,
    read_lengths,
)
from schmp_estimators.lda.programs.topics import topic_dtype
from schmp_estimators.lda.programs.warp import WarpLDA
from schmp_estimators.lda.programs.warp_values import WarpReport


def zipf(n_words=3000, n_tokens=10**6):
    weights = 1.0 / np.arange(2, n_words + 2)
    return np.rint(n_tokens * weights / weights.sum()).astype(np.int64)


def bytes_of_a_word(n, n_shards, n_topics, *, home):
    """What a word costs, by hand: two proposals, topics and counts of two bytes, as many tokens in every shard."""
    others = n_shards - 1
    if not home:
        return 2 * 6 * n * others / n_shards
    if n < HEAD * n_topics:
        return others * (2 * n / n_shards + 2 * n + ROW_BYTES)
    return others * (2 * 2 * n_topics + ROW_BYTES + WORK_BYTES * n_topics)


@pytest.mark.parametrize("n_shards", [2, 3, 4, 5, 8, 40])
@pytest.mark.parametrize("n_topics", [5, 100, 3000])
def test_as_many_words_have_rows_that_travel_as_cost_least(n_shards, n_topics):
    totals = zipf()
    layout = make_layout(totals, n_shards)
    home = words_at_home(totals, layout, n_topics, 2, 6, far=True)
    for block, n_home in enumerate(home):
        first, last = layout.block_ptr[block : block + 2]
        n = totals[layout.column[first:last]]  # heaviest first
        costs = np.array([[bytes_of_a_word(one, n_shards, n_topics, home=home) for one in n] for home in (True, False)])
        of_first = [costs[0, :k].sum() + costs[1, k:].sum() for k in range(len(n) + 1)]
        too_heavy = np.count_nonzero(n > LARGEST_SHARE * totals.sum() / n_shards)
        assert n_home >= too_heavy
        assert of_first[n_home] == pytest.approx(min(of_first[too_heavy:]), rel=1e-9)


def test_rows_of_few_shards_travel_and_nothing_does_in_one_process():
    totals = zipf()
    for n_shards, share in ((2, 1.0), (3, 1.0), (8, 0.0)):
        layout = make_layout(totals, n_shards)
        home = words_at_home(totals, layout, 30_000, 2, 6, far=True)
        at_home = [totals[layout.column[b : b + n]].sum() for b, n in zip(layout.block_ptr, home, strict=False)]
        assert sum(at_home) / totals.sum() == pytest.approx(share, abs=0.15)
        assert words_at_home(totals, layout, 3000, 2, 6, far=False).sum() < 0.01 * len(totals)


def test_lists_of_long_topics_do_not_travel():
    totals = zipf()
    layout = make_layout(totals, 2)
    for n_topics, all_of_them in ((30_000, True), (10**6, False)):
        packing = Packing.of(n_topics, 3, topic_dtype(n_topics))
        home = words_at_home(totals, layout, n_topics, packing.shortest.itemsize, packing.nbytes, far=True)
        assert home.sum() == (len(totals) if all_of_them else 0)
    many = 1 << 16
    home = words_at_home(1_000 * totals, layout, many, 2, 6, far=True)  # but head words' rows do
    assert 0 < home.sum() < len(totals)
    assert (1_000 * totals[layout.column[: home[0]]] >= HEAD * many).all()


def test_no_word_is_more_than_a_share_of_an_owners_work():
    totals = np.array([10**6, *[100] * 50], np.int64)
    layout = make_layout(totals, 4)
    home = words_at_home(totals, layout, 10**6, 4, 12, far=False)
    assert home[np.flatnonzero(layout.column[layout.block_ptr[:-1]] == 0)].tolist() == [1]
    assert home.sum() == 1
    assert words_at_home(totals, layout, 10**6, 4, 12, far=False, alone=True).tolist() == [0, 0, 0, 0]


def test_words_of_lone_shards_stay_at_home():
    totals = zipf()
    program = WarpLDA(100, len(totals), 0.1, 0.01)
    assert program.words_at_home(totals, make_layout(totals, 1)) is None
    assert program.words_at_home(totals, make_layout(totals, 9)) is not None


@given(seed=st.integers(0, 10**6), n_shards=st.integers(1, 5))
def test_topics_are_merged_word_by_word(seed, n_shards):
    lengths = np.random.default_rng(seed).poisson(1.0, (7, n_shards))
    at = iter(range(lengths.sum()))
    topics = [[[next(at) for _ in range(n)] for n in of_shard] for of_shard in lengths.T]
    expected = [topic for word in range(7) for of_shard in topics for topic in of_shard[word]]
    merged = np.full(len(expected), -1, np.int16)
    topics, where = freeze(np.arange(len(expected), dtype=np.int16)), met_lengths(lengths)
    merge_topics(where._replace(begin=freeze(where.begin * 2 + topics.ctypes.data)), merged)
    np.testing.assert_array_equal(merged, expected)


def met_lengths(lengths):
    """A table of words and shards as `MetLengths`, by hand."""
    begin = (np.cumsum(lengths.T) - lengths.T.ravel()).reshape(lengths.T.shape).T
    ptr = np.concatenate([[0], np.cumsum((lengths > 0).sum(axis=1))])
    return freeze(MetLengths(ptr, begin[lengths > 0], lengths[lengths > 0].astype(np.uint32)))


MANY_WORDS = 2000
numbers = st.one_of(st.integers(1, 3), st.integers(1, 300), st.integers(1, 2**31))


@given(st.lists(st.lists(st.tuples(numbers, numbers), max_size=5), min_size=1, max_size=4))
def test_lengths_are_read_as_they_were_coded(shards):
    codes, entries = [], []
    for shard, of_shard in enumerate(shards):
        word = np.cumsum([gap for gap, _ in of_shard], dtype=np.int64) - 1
        kept = word < MANY_WORDS
        word, n = word[kept], np.array([n for _, n in of_shard], np.int64)[kept]
        out = np.empty(MOST_BYTES * len(word), np.uint8)
        codes.append(out[: code_lengths(*freeze((word, n)), out)])
        entries += [(w, shard, x) for w, x in zip(word.tolist(), n.tolist(), strict=True)]
    code, sizes = np.concatenate(codes), np.cumsum([len(one) for one in codes])
    starts = 10**9 * np.arange(len(shards)) + 5
    ptr, begin, n_tokens = read_lengths(*freeze((code, sizes, starts)), 6, MANY_WORDS)
    ordered = sorted(entries)
    tokens_before = {
        entry: starts[shard] + 6 * sum(n for _, other, n in entries[:at] if other == shard)
        for at, entry in enumerate(entries)
        for shard in [entry[1]]
    }
    np.testing.assert_array_equal(ptr[[0, -1]], [0, len(entries)])
    np.testing.assert_array_equal(np.repeat(np.arange(MANY_WORDS), np.diff(ptr)), [word for word, *_ in ordered])
    np.testing.assert_array_equal(n_tokens, [n for *_, n in ordered])
    np.testing.assert_array_equal(begin, [tokens_before[entry] for entry in ordered])


def test_the_length_of_a_word_that_comes_once_is_a_byte():
    out = np.empty(3 * MOST_BYTES, np.uint8)
    assert code_lengths(*freeze((np.array([0, 63, 127]), np.array([1, 1, 1]))), out) == 3
    assert code_lengths(*freeze((np.array([0, 63, 128]), np.array([1, 2, 1]))), out) == 5


def arrays_of(value):
    """All arrays in tuples and lists."""
    if isinstance(value, np.ndarray):
        return [value]
    return [array for part in value for array in arrays_of(part)] if isinstance(value, (tuple, list)) else []


def test_what_is_said_to_be_frozen_is():
    counts = random_counts(13, 300, 40, 0.3)
    shards, _ = make_shards(counts, [100, 200], old_rows(3, counts, 5), exchanged=True)
    program, ats, states = WarpLDA(5, 40, 0.3, 0.1, seed=5), [], []
    for shard in shards:
        at = At(shard, None, -1, shard.number, len(shards))
        ats.append(at)
        states.append(program.init(at)[0])  # which may be written into
    model = freeze(program.aggregate(None, [program.report(*one) for one in zip(ats, states, strict=True)]))
    for split in (program.split, program.split_topics):
        pieces = [split(at, state) for at, state in zip(ats, states, strict=True)]
        for at, *of_all in zip(ats, *pieces, strict=True):
            answers = program.sample_words(at._replace(model=model, sweep=0), of_all) if split == program.split else []
            found = arrays_of([of_all, answers])
            assert all(freeze(one) is one for one in found)
            assert len(found) > 2 * len(shards)


@given(st.integers(1, 2**31), st.integers(2, 5), st.data())
def test_tokens_travel_packed_where_that_is_shorter_and_come_back(n_topics, width, data):
    dtype = np.int16 if n_topics < 2**15 else np.int32
    last = st.integers(0, n_topics - 1) | st.just(n_topics - 1)
    given = data.draw(st.lists(st.tuples(*[last] * width), max_size=4))
    tokens = np.array(given, dtype).reshape(-1, width)
    packing = Packing.of(n_topics, width, dtype)
    packed = packing.pack(tokens)
    least = next(size for size in (1, 2, 4) if n_topics <= 1 << 8 * size)
    if 0 < (n_topics - 1).bit_length() * width <= 64 and least * width > 8:
        assert packing.nbytes == 8
        assert packed.tolist() == [sum(n << i * (n_topics - 1).bit_length() for i, n in enumerate(t)) for t in given]
    else:
        np.testing.assert_array_equal(packed, tokens)
        assert packed.flags.c_contiguous and packed.itemsize == least
        assert packing.nbytes == width * least
        return
    back = np.empty_like(tokens)
    packing.write(packed, back)
    np.testing.assert_array_equal(back, tokens)


PLAIN, PACKED = Packing.of(7, 3, np.int16), Packing.of(10**6, 3, np.int32)


def on_its_way(value, *, shift=0, read_only=False):
    """What arrives in another process, with arrays at odd addresses if `shift` is 1."""
    buffers = []
    text = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    come = []
    for buffer in buffers:
        room = np.empty(len(buffer.raw()) + shift, np.uint8)
        room[shift:] = buffer.raw()
        room.flags.writeable = not read_only
        come.append(room[shift:])
    return pickle.loads(text, buffers=come), come


@pytest.mark.parametrize("packing", [PLAIN, PACKED])
@pytest.mark.parametrize("options", [{}, {"shift": 1}, {"read_only": True}])
def test_tokens_come_out_of_a_parcel_as_they_were_and_can_be_changed(packing, options):
    tokens = freeze(np.arange(12, dtype=packing.dtype).reshape(4, 3))
    parcel = Parcel(tokens, packing, np.array([3, 1], np.uint8))
    other, come = on_its_way(parcel, **options)
    assert other.lengths.tolist() == [3, 1]
    assert sum(one.nbytes for one in come) == 4 * packing.nbytes
    for one in (parcel, other):
        assert sizeof(one) > 4 * packing.nbytes
        taken = one.take()
        assert taken.flags.writeable and taken.flags.aligned and taken.flags.c_contiguous
        np.testing.assert_array_equal(taken, tokens)
        taken[:] = 0
    np.testing.assert_array_equal(tokens, np.arange(12).reshape(4, 3))


@pytest.mark.parametrize("packing", [PLAIN, PACKED])
def test_a_parcel_that_has_come_is_opened_once_and_then_keeps_nothing(packing):
    tokens = freeze(np.arange(12, dtype=packing.dtype).reshape(4, 3))
    parcel, out = Parcel(tokens, packing), np.empty_like(tokens)
    for _ in range(2):  # where it was made it is a view
        parcel.write(out)
        np.testing.assert_array_equal(out, tokens)
        parcel.take()
    other, come = on_its_way(parcel, shift=1)
    passed_on, _ = on_its_way(other)
    held = weakref.ref(come[0].base)
    other.write(out)
    del come
    assert held() is None
    np.testing.assert_array_equal(out, tokens)
    for used in (other, on_its_way(other)[0]):
        for ask in (used.take, lambda used=used: used.write(out)):
            with pytest.raises(WorkLostError, match="used before"):
                ask()
        assert sizeof(used) < 4 * packing.nbytes + 100
    passed_on.write(out)
    np.testing.assert_array_equal(out, tokens)


def test_arrays_over_topics_arrive_where_no_task_has_to_copy_them():
    program = WarpLDA(3, 10, 0.1, 0.01)
    model = program.aggregate(None, [WarpReport(np.array([1, 300, 2]), (p, 2 * p), 4) for p in range(3)])
    come, buffers = on_its_way(model, shift=1)
    assert sum(one.nbytes for one in buffers) == sum(one.nbytes for one in model[:2])  # which are not copied to be sent
    assert all(one.flags.aligned for one in come[:2])
    for one, other in zip(come[:2], model[:2], strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert come[2:] == model[2:] and type(come) is type(model)


@pytest.mark.parametrize("cuts", [[4, 9], [0, 2, 2, 5, 11]])
def test_a_shard_knows_the_words_that_it_has_to_do_with(cuts):
    counts = random_counts(3, n_words=40, rate=0.3)
    shards, layout = make_shards(counts, cuts, exchanged=True)
    everything, _ = make_shards(counts, cuts)
    n_met = 0
    for shard, full in zip(shards, everything, strict=True):
        begin, end = layout.block_ptr[shard.number : shard.number + 2]
        at_home = np.concatenate(
            [np.arange(first, first + n) for first, n in zip(layout.block_ptr, shard.home, strict=False)]
        )
        has = np.flatnonzero(np.diff(full.word_ptr))
        met = np.union1d(np.union1d(has, at_home), np.arange(begin, end)).astype(int)
        n_met += len(met)
        np.testing.assert_array_equal(shard.block_ptr, np.searchsorted(met, layout.block_ptr))
        np.testing.assert_array_equal(np.diff(shard.word_ptr), np.diff(full.word_ptr)[met])
        asked = np.isin(met, at_home) | (begin <= met) & (met < end)
        np.testing.assert_array_equal(shard.word_first, np.where(asked, full.word_first[met], 0))
        np.testing.assert_array_equal(shard.word_total, np.where(asked, full.word_total[met], 0))
        np.testing.assert_array_equal(shard.word_rank, np.where(np.isin(met, at_home), full.word_rank[met], 0))
        word, known = (np.repeat(np.arange(len(one.word_ptr) - 1), np.diff(one.word_ptr)) for one in (full, shard))
        np.testing.assert_array_equal(met[known][shard.place], word[full.place])
        assert (shard.first_token, shard.number) == (full.first_token, full.number)
        np.testing.assert_array_equal(shard.doc_ptr, full.doc_ptr)
    assert n_met < len(shards) * counts.shape[1]


def test_what_a_shard_holds_follows_its_tokens_and_not_the_vocabulary():
    n_words, n_shards, n_topics = 200_000, 50, 100
    counts = sparse.random_array((60, n_words), density=0.0005, format="csr", rng=0, dtype=np.int32)
    counts.data[:] = 1
    pieces, total = [canonical_counts(counts[:12])], counts.sum(axis=0).astype(np.int64)
    layout = make_layout(total, n_shards)
    home = words_at_home(total, layout, n_topics, 2, 6, far=True)
    before = np.zeros(int(home.sum()), np.int64)
    plan = MetPlan(0, layout, narrow(total), home, 0, no_rows(int(layout.block_ptr[1])))
    make_met_shard(pieces, before, plan)  # compiles
    tracemalloc.start()
    try:
        shard = make_met_shard(pieces, before, plan)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    n_met = len(pieces[0].data) + int(layout.block_ptr[1]) + int(home.sum())
    assert len(shard.word_ptr) - 1 <= n_met < n_words // 20
    assert held < 60 * n_met + 20_000
    assert peak < 13 * n_words  # and while it is made there are eight bytes for a word at most, and some bits


@pytest.mark.parametrize("n", [1, 2, 16, 17, 40, 300])
def test_sums_of_what_came_before(n):
    arrays = list(np.random.default_rng(n).integers(0, 9, (n, 3)))
    found = sums_before(Place(), arrays, "counts")
    np.testing.assert_array_equal(found, np.cumsum(arrays, axis=0) - arrays)
