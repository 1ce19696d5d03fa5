"""The frozen-count sampler on groups of shards that are on the disks of workers.

Groups exchange word rows: after a sweep each of them knows what its own tokens add to the rows of all words, the owner
of a block adds up what all groups have for it, and every group gets all rows before it visits its slices, one after the
other.  Nothing but rows travels, and each slice is read and written once in a sweep, as in one process
(`programs.spilled`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from schmp_estimators.core.places.disks import Kept
from schmp_estimators.core.stages import At, Stage, each, exchanges, observes
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TopicRows
from schmp_estimators.lda.programs import measures
from schmp_estimators.lda.programs.blocks import WordPart
from schmp_estimators.lda.programs.groups import GroupProgram, GroupState, Visits, load_slice
from schmp_estimators.lda.programs.spilled import by_word, visit
from schmp_estimators.lda.programs.topics import Measured
from schmp_estimators.lda.programs.warp_values import WarpAnswer, WarpState


@dataclass(frozen=True)
class SpilledGroups(GroupProgram):
    """A frozen-count sampler whose shards are groups on disks, and exchange rows.

    Parameters
    ----------
    warp : WarpLDA
        The sampler.
    """

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the exchange of rows, one visit of each slice, and what looks at the result."""
        stages = [exchanges(self.add_rows, split=self.split), each(self.sample, merge=self.merge)]
        if self.warp.learns(sweep):
            stages.append(observes(self.expose, merge=self.merge_exposed))
        return [*stages, self.measuring(n_shards)] if self.warp.measures(sweep) else stages

    def restore(self, at: At, saved: Kept) -> tuple[GroupState, dict[int, Any]]:
        """Go on with topics that were kept."""
        group, done, k = at.shard, at.sweep + 1, self.warp.n_components
        written = group.bring(saved, done)
        visits = Visits(self.warp, group)
        with group.opened(done) as slices:
            for number, one in enumerate(slices):
                shard, topic = load_slice(one, done, slices[number + 1 :])
                visits.add(WarpState(by_word(shard, topic), np.bincount(topic, minlength=k).astype(np.int64)), shard)
        return visits.state(done, written), {}

    def split(self, at: At, state: GroupState) -> list[WordPart]:
        """Return what the group knows of the words of each block."""
        return state.parts.parts

    def add_rows(self, at: At, pieces: Sequence[WordPart]) -> list[WarpAnswer]:
        """Make the rows of the words of a block, for all."""
        answer = WarpAnswer(self.warp.combine(at.number, pieces), None, 0)
        return [answer] * at.n_shards

    def sample(self, at: At, state: GroupState, answers: Sequence[WarpAnswer]) -> GroupState:
        """Do both passes of each slice, and add its topics to the rows of the next sweep."""
        visits, group, done = Visits(self.warp, at.shard), at.shard, state.done + 1
        with group.opened(state.done) as found:
            slices, is_drawn = group.begin(found, done)
            for number, one in enumerate(slices):
                shard, before = load_slice(one, state.done, slices[number + 1 :], is_drawn=is_drawn)
                topic = one.room(done)
                warp = visit(self.warp, at._replace(shard=shard), before, answers, topic)
                visits.add(warp, shard)
                one.write(done, topic, warp.tokens)
            return visits.state(done, group.end(slices, done))

    def measuring(self, n_shards: int) -> Stage:
        """Return the stage that measures the joint log-likelihood."""
        return observes(self.measure, split=self.split, merge=self.merge_measured)

    def measure(self, at: At, state: GroupState, parts: Sequence[WordPart]) -> Measured:
        """Return the group's share of the joint log-likelihood, and that of the words that it owns."""
        at, plain = at._replace(block=at.number, n_blocks=at.n_shards), replace(self.warp, seeds=None)
        block, found = freeze(self.warp.combine(at.number, parts)), list[Measured]()
        for there, looked in self.look(at, state):
            found.append(plain.measure(there, looked) if found else self.warp.measure(there, looked, block))
        return found[0]._replace(shard=reduce(measures.merge_shards, [one.shard for one in found]))

    def harvesting(self, n_shards: int) -> Stage:
        """Return the stage in which groups make the rows of the words that they own."""
        return observes(self.harvest_rows, split=self.split)

    def harvest_rows(self, at: At, state: GroupState, parts: Sequence[WordPart]) -> TopicRows:
        """Return the rows of the words that a group owns, without the fixed ones, in layout order."""
        return self.warp.harvest_block(self.warp.combine(at.number, parts))
