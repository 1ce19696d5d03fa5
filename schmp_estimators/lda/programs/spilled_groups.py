"""The frozen-count sampler on groups of shards that are on the disks of workers.

Groups exchange word rows: after a sweep each of them knows what its own tokens add to the rows of all words, the owner
of a block adds up what all groups have for it, and every group gets all rows before it visits its slices, one after the
other.  Nothing but rows travels, and each slice is read and written once in a sweep, as in one process
(`programs.spilled`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.places.disks import Kept
from schmp_estimators.core.program import Program
from schmp_estimators.core.stages import At, Stage, each, exchanges, observes
from schmp_estimators.core.store import Written
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, TopicRows, no_rows
from schmp_estimators.lda.data.spilled import Reading, SpilledShard
from schmp_estimators.lda.data.spilled_groups import Group
from schmp_estimators.lda.programs import blocks, learning, measures
from schmp_estimators.lda.programs.blocks import RowsInMaking, WordPart
from schmp_estimators.lda.programs.learning import Exposure
from schmp_estimators.lda.programs.spilled import by_word, visit
from schmp_estimators.lda.programs.topics import Measured
from schmp_estimators.lda.programs.warp import WarpLDA
from schmp_estimators.lda.programs.warp_values import WarpAnswer, WarpModel, WarpReport, WarpState


class Parts:
    """What a group contributes to the rows of each block; engines pass it on as it is, without a copy."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[WordPart]) -> None:
        self.parts = parts

    def __sizeof__(self) -> int:
        """Return the bytes of the arrays, for Dask."""
        return sum(one.lengths.nbytes + one.lists.nbytes + one.dense.nbytes for one in self.parts)


class GroupState(NamedTuple):
    """What is in memory of the state of a group."""

    #: Sweeps done, which tell the file of its topics, and how that was written.
    done: int
    written: tuple[Written, ...]
    #: As in `WarpState`, of the last visits.
    totals: NDArray[np.int64]
    moved_by_words: int
    moved_by_documents: int
    parts: Parts


@dataclass(frozen=True)
class SpilledGroups(Program[GroupState, Any, WarpModel, Any]):
    """A frozen-count sampler whose shards are groups on disks.

    Parameters
    ----------
    warp : WarpLDA
        The sampler.
    """

    name: ClassVar[str] = "lda"
    saves_blocks: ClassVar[bool] = False

    warp: WarpLDA

    def n_blocks(self, n_shards: int) -> int:
        """Return 0: what groups know of a word they exchange, in every sweep."""
        return 0

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the exchange of rows, one visit of each slice, and what looks at the result."""
        stages = [exchanges(self.add_rows, split=self.split), each(self.sample, merge=self.merge)]
        if self.warp.learns(sweep):
            stages.append(observes(self.expose, merge=self.merge_exposed))
        return [*stages, self.measuring(n_shards)] if self.warp.measures(sweep) else stages

    def init(self, at: At) -> tuple[GroupState, dict[int, Any]]:
        """Draw first topics."""
        visits, group = _Visits(self.warp, at.shard), at.shard
        with group.opened() as found:
            slices, _ = group.begin(found, at.sweep + 1)
            for number, one in enumerate(slices):
                shard, _ = _load(one, None, slices[number + 1 :])
                state, _ = self.warp.init(at._replace(shard=shard))
                topic = self.warp.save(at._replace(shard=shard), state)
                visits.add(state, shard)
                one.write(at.sweep + 1, topic, state.tokens)
            return visits.state(at.sweep + 1, group.end(slices, at.sweep + 1)), {}

    def restore(self, at: At, saved: Kept) -> tuple[GroupState, dict[int, Any]]:
        """Go on with topics that were kept."""
        group, done, k = at.shard, at.sweep + 1, self.warp.n_components
        written = group.bring(saved, done)
        visits = _Visits(self.warp, group)
        with group.opened(done) as slices:
            for number, one in enumerate(slices):
                shard, topic = _load(one, done, slices[number + 1 :])
                visits.add(WarpState(by_word(shard, topic), np.bincount(topic, minlength=k).astype(np.int64)), shard)
        return visits.state(done, written), {}

    def save(self, at: At, state: GroupState) -> Kept:
        """Keep the topics, where they survive this worker."""
        kept: Kept = at.shard.keep(state.done, state.written)
        return kept

    def split(self, at: At, state: GroupState) -> list[WordPart]:
        """Return what the group knows of the words of each block."""
        return state.parts.parts

    def add_rows(self, at: At, pieces: Sequence[WordPart]) -> list[WarpAnswer]:
        """Make the rows of the words of a block, for all."""
        answer = WarpAnswer(self.warp.combine(at.number, pieces), None, 0)
        return [answer] * at.n_shards

    def sample(self, at: At, state: GroupState, answers: Sequence[WarpAnswer]) -> GroupState:
        """Do both passes of each slice, and add its topics to the rows of the next sweep."""
        visits, group, done = _Visits(self.warp, at.shard), at.shard, state.done + 1
        with group.opened(state.done) as found:
            slices, is_drawn = group.begin(found, done)
            for number, one in enumerate(slices):
                shard, before = _load(one, state.done, slices[number + 1 :], is_drawn=is_drawn)
                topic = one.room(done)
                warp = visit(self.warp, at._replace(shard=shard), before, answers, topic)
                visits.add(warp, shard)
                one.write(done, topic, warp.tokens)
            return visits.state(done, group.end(slices, done))

    def report(self, at: At, state: GroupState) -> WarpReport:
        """Return the topic totals, with those of earlier batches that the group speaks for."""
        totals = state.totals.copy()
        np.add.at(totals, at.shard.fixed.topic, at.shard.fixed.tokens)
        return WarpReport(totals, (state.moved_by_words, state.moved_by_documents), at.sweep + 1)

    def merge(self, report: WarpReport, other: WarpReport) -> WarpReport:
        """Add up what two groups report."""
        return self.warp.merge(report, other)

    def aggregate(self, model: WarpModel | None, reports: Sequence[Any]) -> WarpModel:
        """Make the model as the sampler does."""
        return self.warp.aggregate(model, reports)

    def expose(self, at: At, state: GroupState) -> Exposure:
        """Return what learning of priors must know of a group."""
        return learning.merge_exposures([self.warp.expose(*looked) for looked in self._look(at, state)])

    def merge_exposed(self, one: Exposure, other: Exposure) -> Exposure:
        """Take what two groups report together."""
        return self.warp.merge_exposed(one, other)

    def measuring(self, n_shards: int) -> Stage:
        """Return the stage that measures the joint log-likelihood."""
        return observes(self.measure, split=self.split, merge=self.merge_measured)

    def measure(self, at: At, state: GroupState, parts: Sequence[WordPart]) -> Measured:
        """Return the group's share of the joint log-likelihood, and that of the words that it owns."""
        at, plain = at._replace(block=at.number, n_blocks=at.n_shards), replace(self.warp, seeds=None)
        block, found = freeze(self.warp.combine(at.number, parts)), list[Measured]()
        for there, looked in self._look(at, state):
            found.append(plain.measure(there, looked) if found else self.warp.measure(there, looked, block))
        return found[0]._replace(shard=reduce(measures.merge_shards, [one.shard for one in found]))

    def merge_measured(self, one: Measured, other: Measured) -> Measured:
        """Take what two groups have measured together."""
        return self.warp.merge_measured(one, other)

    def record(self, sweep: int, model: WarpModel) -> dict[str, Any]:
        """Return the record of the sampler."""
        return self.warp.record(sweep, model)

    def harvesting(self, n_shards: int) -> Stage:
        """Return the stage in which groups make the rows of the words that they own."""
        return observes(self.harvest_rows, split=self.split)

    def harvest_rows(self, at: At, state: GroupState, parts: Sequence[WordPart]) -> TopicRows:
        """Return the rows of the words that a group owns, without the fixed ones, in layout order."""
        return self.warp.harvest_block(self.warp.combine(at.number, parts))

    def _look(self, at: At, state: GroupState) -> Iterator[tuple[At, WarpState]]:
        """Yield the slices as they are at the end of a sweep, without proposals."""
        with at.shard.opened(state.done) as slices:
            for number, one in enumerate(slices):
                shard, topic = _load(one, state.done, slices[number + 1 :])
                yield at._replace(shard=shard), WarpState(by_word(shard, topic), state.totals)


class _Visits:
    """What the slices of a group come to, one after the other."""

    def __init__(self, warp: WarpLDA, group: Group) -> None:
        self._group, self._n_topics = group, warp.n_components
        self._totals, self._moved = np.zeros(warp.n_components, np.int64), [0, 0]
        cut = group.block_ptr[1:-1]
        self._own = np.split(group.own, cut)
        self._rows = [
            blocks.begin_rows(total, warp.n_components, group.dtype, own)
            for total, own in zip(np.split(group.word_total, cut), self._own, strict=True)
        ]

    def add(self, state: WarpState, shard: TokenShard) -> None:
        """Add a slice."""
        self._totals += state.totals
        self._moved[0] += state.moved_by_words
        self._moved[1] += state.moved_by_documents
        for block, rows in enumerate(self._rows):
            blocks.add_shard(rows, shard, block, state.tokens[:, 0])

    def state(self, done: int, written: tuple[Written, ...]) -> GroupState:
        """Return the state of the group once all slices have been added."""
        parts = [self._part(b, rows, own) for b, (rows, own) in enumerate(zip(self._rows, self._own, strict=True))]
        words, documents = self._moved
        return GroupState(done, written, self._totals, words, documents, Parts(parts))

    def _part(self, block: int, rows: RowsInMaking, own: NDArray[np.int64]) -> WordPart:
        fixed = self._group.fixed if block == self._group.number else no_rows()
        return blocks.part_of_rows(rows, own, self._n_topics, fixed)


def _load(
    one: SpilledShard, done: int | None, following: Sequence[SpilledShard], *, is_drawn: bool = False
) -> tuple[TokenShard, NDArray[np.signedinteger]]:
    """Return a slice with its topics after so many sweeps, and let the next one be read."""
    coming = Reading(following[0].number, done, is_drawn) if following else None
    shard, tokens = one.load(Reading(one.number, done, is_drawn), coming)
    return shard._replace(number=-1), tokens  # no block's fixed rows are those of a slice
