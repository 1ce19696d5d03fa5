"""Ranks that share a program: how they talk, where blocks go, and what travels."""

from collections import Counter
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranks import in_ranks
from toys import bits

from schmp_estimators.core.cluster.wire import pack, unpack
from schmp_estimators.core.engine.communicator import MANY, SMALL
from schmp_estimators.core.reduction import add_up, tree_sum
from schmp_estimators.core.schedules.rotation import plan_legs, plan_route, schedule_rotation

# How ranks talk


@pytest.mark.parametrize("size", [6, 9, 13, 21])
def test_small_and_large_values_arrive_at_all_ranks(size):
    """Small ones go by way of others, in few messages, and each rank may find other ones small."""
    rng = np.random.default_rng(size)
    lengths = rng.choice([1, SMALL // 8, SMALL // 8 + 1], p=[0.8, 0.1, 0.1], size=(size, size))
    sent = Counter()

    def talk(communicator):
        rank, plain = communicator.rank, communicator.send

        def send(to, value):
            sent[rank] += 1
            plain(to, value)

        communicator.send = send
        return communicator.alltoall(
            [np.full(lengths[rank, to], float(size * rank + to)) for to in range(size)]
        )

    for to, found in enumerate(in_ranks(size, talk)):
        for source, value in enumerate(found):
            assert bits(value) == bits(np.full(lengths[source, to], float(size * source + to)))
    large = (lengths > SMALL // 8).sum(1) - (lengths.diagonal() > SMALL // 8)
    rows = 2 * np.ceil(np.sqrt(size)) - 2
    assert all(
        sent[rank] <= (size - 1 if size < MANY else large[rank] + rows) for rank in range(size)
    )


@pytest.mark.parametrize("size", [1, 2, 5, 9])
@pytest.mark.parametrize("in_order", [True, False])
def test_sums_of_ranks_have_the_bits_of_one_sum(size, in_order):
    rng = np.random.default_rng(size)
    for count in (size, 2 * size + 1, 23):
        parts = [rng.normal(size=3) * 10.0 ** rng.integers(-8, 8) for _ in range(count)]
        owner = np.arange(count) * size // count if in_order else rng.integers(size, size=count)

        def reduce(talk, owner=owner, parts=parts, count=count):
            return talk.reduce(
                add_up({(0, p): parts[p] for p in np.flatnonzero(owner == talk.rank)}, count), count
            )

        first, *others = in_ranks(size, reduce)
        assert others == [None] * (size - 1)
        [total] = first.values()
        assert bits(total) == bits(tree_sum(parts))


@given(st.integers(1, 40), st.integers(1, 2), st.randoms())
def test_parts_of_a_tree_are_merged_in_any_order_of_arrival(count, least, random):
    """What has been merged stands for its parts, in their order.

    There are never more of them than the tree has there.
    """
    arriving, nodes = list(range(count)), {}
    random.shuffle(arriving)
    for p in arriving:
        nodes = add_up(nodes | {(0, p): [p]}, count, lambda left, right: left + right, least)
        for (level, place), one in nodes.items():
            assert one == list(range(place << level, min(place + 1 << level, count)))
    assert len(nodes) == min(least, count)
    assert [p for place in sorted(nodes) for p in nodes[place]] == list(range(count))


# Where blocks go


@st.composite
def orders(draw):
    n_shards, n_blocks = draw(st.integers(1, 7)), draw(st.integers(1, 9))
    order = draw(st.permutations(schedule_rotation(n_shards, n_blocks)))
    order = [[b if draw(st.integers(0, 3)) else -1 for b in line] for line in order]
    rank_of = draw(st.lists(st.integers(0, 3), min_size=n_shards, max_size=n_shards))
    ranks = tuple(sorted(set(rank_of)).index(rank) for rank in rank_of)
    return tuple(map(tuple, order)), ranks, n_blocks


@given(orders())
def test_legs_have_every_visit_once_and_wait_for_earlier_ones_only(drawn):
    order, group_of, _ = drawn
    legs = plan_legs(order, group_of)
    visits = [visit for leg in legs for visit in leg.visits]
    assert sorted(visits) == [
        (s, p, b) for s, line in enumerate(order) for p, b in enumerate(line) if b >= 0
    ]
    assert len({(leg.number, leg.group) for leg in legs}) == len(legs)
    assert all(group_of[visit.shard] == leg.group for leg in legs for visit in leg.visits)
    place = {visit: (n, leg) for n, leg in enumerate(legs) for visit in leg.visits}
    for field in ("shard", "block"):
        ways = {}
        for visit in sorted(visits):
            ways.setdefault(getattr(visit, field), []).append(visit)
        for before, after in (pair for way in ways.values() for pair in pairwise(way)):
            (first, one), (second, other) = place[before], place[after]
            assert first < second or (
                one is other and one.visits.index(before) < one.visits.index(after)
            )
            assert one.group == other.group or one.number < other.number


@given(orders(), st.randoms())
def test_every_block_is_where_it_is_wanted_and_nobody_waits_for_himself(drawn, random):
    """Ranks are followed through two rotations, one message or leg at a time.

    They come in any order that waiting allows.

    Blocks may begin anywhere.
    """
    order, rank_of, n_blocks = drawn
    size = max(rank_of) + 1
    holders = tuple(random.choices(range(size), k=n_blocks))
    for _ in range(2):
        routes = [plan_route(order, rank_of, holders, rank) for rank in range(size)]
        assert len({route.holders for route in routes}) == 1
        here = [{b for b, holder in enumerate(holders) if holder == rank} for rank in range(size)]
        under_way, ahead = Counter(), [list(route.legs) for route in routes]
        for rank, route in enumerate(routes):
            send(here[rank], rank, route.leaves, under_way)
        while any(ahead):
            ready = [
                rank
                for rank, legs in enumerate(ahead)
                if legs and all(under_way[source, rank, b] for b, source in legs[0].comes.items())
            ]
            assert ready, "all ranks wait"
            rank = random.choice(ready)
            leg = ahead[rank].pop(0)
            for b, source in leg.comes.items():
                under_way[source, rank, b] -= 1
                here[rank].add(b)
            assert {visit.block for visit in leg.visits} <= here[rank]
            send(here[rank], rank, leg.goes, under_way)
        assert not +under_way
        holders = routes[0].holders
        assert [b in here[holder] for b, holder in enumerate(holders)] == [True] * n_blocks
        assert sum(map(len, here)) == n_blocks


def send(here, rank, leaving, under_way):
    for b, to in leaving.items():
        assert to != rank
        here.remove(b)
        under_way[rank, to, b] += 1


# What travels


class Inner(NamedTuple):
    numbers: np.ndarray
    pair: tuple


class Outer(NamedTuple):
    inner: Inner
    anything: Any
    count: int


@pytest.mark.parametrize(
    ("dtype", "low", "high", "needed"),
    [("i8", -1, 1, 1), ("u8", 0, 255, 1), ("i4", 0, 256, 2), ("i2", -128, 127, 1),
     ("i8", -129, 200, 2), ("i8", -5, 1 << 15, 4), ("i8", 0, 1 << 32, 8), ("i1", -1, 1, 1),
     ("u2", 0, 256, 2), ("f8", 0, 1, 8)],
)  # fmt: skip
def test_what_travels_between_ranks_arrives_as_it_was_in_fewer_bytes(dtype, low, high, needed):
    dtype = np.dtype(dtype)
    is_whole = dtype.kind in "iu"
    array = np.asfortranarray(np.resize(np.array([low, high, 0]).astype(dtype), (600, 5)))
    array.flags.writeable = False
    few, none = array[:3, :1], array[:0]
    travels, n_bytes = pack(Outer(Inner(array, ("text", few)), {"own": [array.copy(), none]}, 1))
    least = 2 * 3000 * (min(needed, dtype.itemsize) if is_whole else dtype.itemsize)
    assert least <= n_bytes - len(travels["form"]) < least + 100
    found = unpack({**travels, "buffer": travels["buffer"].data})
    assert found.inner.pair[0] == "text"
    np.testing.assert_array_equal(found.inner.pair[1], few)
    assert found.anything["own"][1].shape == (0, 5)
    assert not found.inner.numbers.flags.writeable and found.anything["own"][0].flags.writeable
    for one in (found.inner.numbers, found.anything["own"][0]):
        assert one.dtype == dtype
        np.testing.assert_array_equal(one, array)
    assert found.inner.numbers.flags.f_contiguous


def pairwise_sum(parts):
    """Return the sum over a tree that pairs neighbours, level by level."""
    return (
        parts[0]
        if len(parts) == 1
        else pairwise_sum([sum(parts[i : i + 2]) for i in range(0, len(parts), 2)])
    )


def test_sums_of_partitions_are_those_of_a_balanced_tree():
    rng = np.random.default_rng(0)
    for count in range(1, 12):
        parts = (rng.normal(size=count) * 10.0 ** rng.integers(-8, 8, count)).tolist()
        assert tree_sum(parts) == pairwise_sum(parts)
    assert tree_sum([1.0, 1e16, -1e16, 1.0]) != tree_sum([1e16, -1e16, 1.0, 1.0]) == 2.0
