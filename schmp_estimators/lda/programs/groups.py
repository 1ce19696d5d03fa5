"""What programs share whose shards are groups on the disks of workers (`data.spilled_groups`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.places.disks import Kept
from schmp_estimators.core.program import Program
from schmp_estimators.core.stages import At, Stage
from schmp_estimators.core.store import Written
from schmp_estimators.lda.blocks import TokenShard, no_rows
from schmp_estimators.lda.data.spilled import Reading, SpilledShard
from schmp_estimators.lda.data.spilled_groups import Group
from schmp_estimators.lda.programs import blocks, learning
from schmp_estimators.lda.programs.blocks import RowsInMaking, WordPart
from schmp_estimators.lda.programs.learning import Exposure
from schmp_estimators.lda.programs.spilled import by_word
from schmp_estimators.lda.programs.topics import Measured
from schmp_estimators.lda.programs.warp import WarpLDA
from schmp_estimators.lda.programs.warp_values import WarpModel, WarpReport, WarpState


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
class GroupProgram(Program[GroupState, Any, WarpModel, Any]):
    """Base of the frozen-count samplers whose shards are groups on disks.

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

    def init(self, at: At) -> tuple[GroupState, dict[int, Any]]:
        """Draw first topics."""
        visits, group = Visits(self.warp, at.shard), at.shard
        with group.opened() as found:
            slices, _ = group.begin(found, at.sweep + 1)
            for number, one in enumerate(slices):
                shard, _ = load_slice(one, None, slices[number + 1 :])
                state, _ = self.warp.init(at._replace(shard=shard))
                topic = self.warp.save(at._replace(shard=shard), state)
                visits.add(state, shard)
                one.write(at.sweep + 1, topic, state.tokens)
            return visits.state(at.sweep + 1, group.end(slices, at.sweep + 1)), {}

    def save(self, at: At, state: GroupState) -> Kept:
        """Keep the topics, where they survive this worker."""
        kept: Kept = at.shard.keep(state.done, state.written)
        return kept

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
        return learning.merge_exposures([self.warp.expose(*looked) for looked in self.look(at, state)])

    def merge_exposed(self, one: Exposure, other: Exposure) -> Exposure:
        """Take what two groups report together."""
        return self.warp.merge_exposed(one, other)

    @abstractmethod
    def measuring(self, n_shards: int) -> Stage:
        """Return the stage that measures the joint log-likelihood."""

    def merge_measured(self, one: Measured, other: Measured) -> Measured:
        """Take what two groups have measured together."""
        return self.warp.merge_measured(one, other)

    def record(self, sweep: int, model: WarpModel) -> dict[str, Any]:
        """Return the record of the sampler."""
        return self.warp.record(sweep, model)

    def look(self, at: At, state: GroupState) -> Iterator[tuple[At, WarpState]]:
        """Yield the slices as they are at the end of a sweep, without proposals."""
        with at.shard.opened(state.done) as slices:
            for number, one in enumerate(slices):
                shard, topic = load_slice(one, state.done, slices[number + 1 :])
                yield at._replace(shard=shard), WarpState(by_word(shard, topic), state.totals)


class Visits:
    """What the slices of a group come to, one after the other."""

    def __init__(self, warp: WarpLDA, group: Group) -> None:
        self._group, self._n_topics = group, warp.n_components
        self._totals, self._moved = np.zeros(warp.n_components, np.int64), [0, 0]
        cut = group.block_ptr[1:-1]
        self._own = np.split(group.own, cut)
        #: Groups that exchange tokens make no rows.
        self._rows = (
            []
            if group.exchange
            else [
                blocks.begin_rows(total, warp.n_components, group.dtype, own)
                for total, own in zip(np.split(group.word_total, cut), self._own, strict=True)
            ]
        )

    def add(self, state: WarpState, shard: TokenShard) -> None:
        """Add a slice."""
        self._totals += state.totals
        self._moved[0] += state.moved_by_words
        self._moved[1] += state.moved_by_documents
        for block, rows in enumerate(self._rows):
            blocks.add_shard(rows, shard, block, state.tokens[:, 0])

    def state(self, done: int, written: tuple[Written, ...]) -> GroupState:
        """Return the state of the group once all slices have been added."""
        parts = [self._part(b, rows, own) for b, (rows, own) in enumerate(zip(self._rows, self._own, strict=False))]
        words, documents = self._moved
        return GroupState(done, written, self._totals, words, documents, Parts(parts))

    def _part(self, block: int, rows: RowsInMaking, own: NDArray[np.int64]) -> WordPart:
        fixed = self._group.fixed if block == self._group.number else no_rows()
        return blocks.part_of_rows(rows, own, self._n_topics, fixed)


def load_slice(
    one: SpilledShard, done: int | None, following: Sequence[SpilledShard], *, is_drawn: bool = False
) -> tuple[TokenShard, NDArray[np.signedinteger]]:
    """Return a slice with its topics after so many sweeps, and let the next one be read."""
    coming = Reading(following[0].number, done, is_drawn) if following else None
    shard, tokens = one.load(Reading(one.number, done, is_drawn), coming)
    return shard._replace(number=-1), tokens  # no block's fixed rows are those of a slice
