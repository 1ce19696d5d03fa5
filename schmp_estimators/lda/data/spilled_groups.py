"""Groups of shards on the disk of a worker: what a worker of a cluster has of a corpus that is larger than memory.

To the engine a group is one shard.  It is worked upon slice by slice; each slice is a shard on disk as one process has
them.  Every sweep writes a file of topics, ``topics-<sweeps done>``, so that a task can be told from an earlier one.

Topics with proposals are in one file, ``drawn-<sweeps done>``, in which a sweep writes where it has read.  It has a
name that nobody else knows meanwhile, so a task that comes later, or a second time, finds it whole or not at all; then
it draws the proposals again, which follow from the topics.

Where groups exchange tokens (`data.met_groups`), that file has them slice of words by slice of words, and has its name
until all owners of words have read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.places.disks import Disk, Held, Kept, number_of
from schmp_estimators.core.places.errors import WorkLostError
from schmp_estimators.core.places.rereading import Again
from schmp_estimators.core.places.rereading_there import forget_last
from schmp_estimators.core.store import Store, Written
from schmp_estimators.lda.blocks import TopicRows, WordTopics, no_rows, no_topics
from schmp_estimators.lda.data.counts import count_words
from schmp_estimators.lda.data.met_groups import (
    OF_A_SWEEP,
    Exchange,
    GroupPiece,
    WordSlices,
    cut_pieces,
    gather_codes,
    read_exchange,
)
from schmp_estimators.lda.data.packed import Packing
from schmp_estimators.lda.data.spilled import Reading, SpilledCorpus, SpilledShard, changed, shard_file
from schmp_estimators.lda.data.spilled_words import code_slices
from schmp_estimators.lda.data.tokens import Layout, Plan, ShardOffsets, make_shard

_READY = "ready"
#: How files begin of an owner's tokens.
_MEETING = "met-", "meeting-"


class GroupPlan(NamedTuple):
    """What it takes beside documents to make a group."""

    disk: Disk
    number: int
    #: (n_slices + 1,) number of the first document of each slice, and of the first token.
    documents: NDArray[np.int64]
    tokens: NDArray[np.int64]
    layout: Layout
    #: (n_words,) by column: tokens in earlier groups, in this one, and in all.
    before: NDArray[np.int64]
    own: NDArray[np.int64]
    total: NDArray[np.int64]
    #: Of topics with their proposals in files.
    packing: Packing
    #: Rows of earlier batches for the words of the block with this number, and topics in which words may begin.
    fixed: TopicRows
    first: WordTopics = no_topics()
    #: Where groups exchange tokens, the slices of words.
    words: WordSlices | None = None


class Group(NamedTuple):
    """Consecutive documents on the disk of a worker."""

    disk: Disk
    number: int
    documents: NDArray[np.int64]
    tokens: NDArray[np.int64]
    #: (n_words,) in layout order, as in `TokenShard`, and the tokens of this group.
    word_first: NDArray[np.int64]
    word_total: NDArray[np.int64]
    own: NDArray[np.int64]
    block_ptr: NDArray[np.int64]
    packing: Packing
    fixed: TopicRows
    first: WordTopics
    #: Where groups exchange tokens, where those of each slice of words are.
    exchange: Exchange | None = None

    @contextmanager
    def opened(self, done: int | None = None) -> Iterator[list[SpilledShard]]:
        """Give the slices, and their topics after so many sweeps, while nobody else works upon them in this task.

        Raises
        ------
        WorkLostError
            If they are not on the disk of this worker.
        """
        with self.disk.opened(self.number) as store:
            if store.size(_READY) < 0:
                raise WorkLostError(f"the tokens of shard {self.number} are not on this worker's disk")
            if done is not None and store.size(f"topics-{done}") != self.n_bytes:
                raise WorkLostError(f"the topics of shard {self.number} after {done} sweeps are not on this disk")
            yield self._slices(store)
            store.settle()

    def _slices(self, store: Store) -> list[SpilledShard]:
        common = SpilledCorpus(
            store, self.documents, self.tokens, self.word_first, self.word_total, self.block_ptr,
            self.packing, int(self.tokens[0]), by_sweep=True, slices=self.exchange.slices if self.exchange else None,
        )  # fmt: skip
        return [SpilledShard(common, number, first=self.first) for number in range(len(self.tokens) - 1)]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of topic numbers."""
        return self.packing.dtype

    @property
    def n_bytes(self) -> int:
        """Bytes of the topics of all tokens."""
        return self._n_tokens * self.dtype.itemsize

    @property
    def _n_bytes_drawn(self) -> int:
        return self._n_tokens * self.packing.nbytes

    @property
    def _n_tokens(self) -> int:
        return int(self.tokens[-1] - self.tokens[0])

    def begin(self, slices: Sequence[SpilledShard], done: int) -> tuple[list[SpilledShard], bool]:
        """Make room for what there will be after so many sweeps; topics older than those of the last sweep go.

        Returns
        -------
        list of SpilledShard
            The slices, which write topics with proposals where nobody else does.
        bool
            Whether they have those of the last sweep there.
        """
        common, name = slices[0].corpus, f"drawing-{uuid4().hex}"
        store, last = common.store, f"drawn-{done - 1}"

        def stays(other: str) -> bool:
            if other.startswith(("topics-", *OF_A_SWEEP)):
                return number_of(other) >= done - 1
            return other == last or not other.startswith("draw")

        store.remove(stays)
        is_drawn = store.take_name(last, name)
        store.allocate(name, self._n_bytes_drawn)
        store.allocate(f"topics-{done}", self.n_bytes)
        common = common._replace(drawn=name)
        return [one._replace(corpus=common) for one in slices], is_drawn

    def end(self, slices: Sequence[SpilledShard], done: int) -> tuple[Written, ...]:
        """Wait until all is written that there is after so many sweeps, and return how the topics were."""
        store = slices[0].corpus.store
        store.settle()
        store.take_name(slices[0].corpus.drawn, f"drawn-{done}")
        return tuple(store.written(f"topics-{done}"))

    def drawn(self, done: int) -> list[GroupPiece]:
        """Return what the group has for each owner of words after so many sweeps: topics with proposals."""
        assert self.exchange is not None
        with self.disk.opened(self.number) as store:
            if store.size(name := f"drawn-{done}") != self._n_bytes_drawn:
                raise WorkLostError(f"the tokens of shard {self.number} after {done} sweeps are not on this disk")
        return cut_pieces(self.disk, self.number, self.exchange, name)

    def topics(self, done: int) -> list[GroupPiece]:
        """Return the same of topics alone, which are written by slice of words if they are not there."""
        assert self.exchange is not None
        shorter = self.packing.nbytes // self.dtype.itemsize
        with self.opened(done) as slices:
            store, name = slices[0].corpus.store, f"words-{done}"
            if store.size(name) < 0:
                part = f"wording-{uuid4().hex}"
                store.allocate(part, self.n_bytes)
                for number, one in enumerate(slices):
                    store.settle()  # so that no more than one waits
                    shard, topic = one.load(Reading(number, done))
                    found, first = np.empty_like(topic), 0
                    found[shard.place] = topic
                    for at, n_tokens in one.corpus.proposals(number):
                        store.scribble_behind(part, at // shorter, found[first : first + n_tokens])
                        first += n_tokens
                store.settle()
                store.take_name(part, name)
        return cut_pieces(self.disk, self.number, self.exchange, name, shorter=shorter)

    @contextmanager
    def meeting(self, sweep: int, n_bytes: int) -> Iterator[tuple[Store, str, Held]]:
        """Give the file into which the owner of words writes their tokens, and what others know of it then."""
        last, met = f"met-{sweep - 1}", f"met-{sweep}"
        with self.disk.opened(self.number) as store:
            store.remove(lambda name: name == last or not name.startswith(_MEETING))
            name = f"meeting-{uuid4().hex}"
            store.take_name(last, name)
            store.allocate(name, n_bytes)
            yield store, name, self.disk.held(self.number, met)
            store.settle()
            store.take_name(name, met)

    def write_rows(self, number: int, done: int, rows: TopicRows) -> Held:
        """Write the rows of a slice of words after so many sweeps, and return what others know of the file."""
        with self.disk.opened(self.number) as store:
            store.write(name := f"rows-{number}-{done}", rows.topic, rows.tokens)
        return self.disk.held(self.number, name)

    def keep(self, done: int, written: Sequence[Written]) -> Kept:
        """Keep the topics after so many sweeps."""
        return self.disk.keep(self.number, f"topics-{done}", self.n_bytes, written)

    def bring(self, kept: Kept, done: int) -> tuple[Written, ...]:
        """Go on with topics that were kept after so many sweeps."""
        self.disk.bring(self.number, kept, f"topics-{done}")
        return kept.written


def make_group(slices: Sequence[Again], plan: GroupPlan) -> Group:
    """Place the tokens of documents on the disk of this worker, slice after slice, unless they are there.

    Parameters
    ----------
    slices : sequence of Again
        What makes the documents of each slice, a list of `Counts`.
    plan : GroupPlan
    """
    layout, first = plan.layout, (np.cumsum(plan.total) - plan.total)[plan.layout.column]
    total, own, coded = plan.total[layout.column], plan.own[layout.column], []
    with plan.disk.opened(plan.number) as store:
        if store.size(_READY) < 0:
            rank, n_words = plan.before, len(plan.total)
            for number, again in enumerate(slices):
                pieces = again()
                counts = count_words(pieces, n_words)
                offsets = ShardOffsets(rank[layout.column], first, total, int(plan.tokens[number]), -1)
                shard = make_shard(pieces, Plan(counts, layout, offsets, no_rows()))
                store.write(shard_file(number), shard.doc_ptr, shard.word_ptr, shard.word_rank, shard.place)
                if plan.words is not None:
                    coded.append(code_slices(store, number, shard.word_ptr, plan.words.words))
                rank = rank + counts
                del pieces, shard
            forget_last()
            if not np.array_equal(rank, plan.before + plan.own):
                raise changed()
            if plan.words is not None:
                gather_codes(store, coded)
            store.write(_READY)
        sizes = len(plan.tokens) - 1, plan.packing.nbytes
        exchange = None if plan.words is None else read_exchange(store, plan.words, *sizes)
    return Group(
        plan.disk, plan.number, plan.documents, plan.tokens, first, total, own, layout.block_ptr,
        plan.packing, plan.fixed, plan.first, exchange,
    )  # fmt: skip
