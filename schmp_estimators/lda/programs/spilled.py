"""The frozen-count sampler on shards that are on disk: one visit of each in a sweep, and word rows in memory.

All words are one block, with the rows that a sweep reads and, as far as it has got, those that it makes.  The block
goes from shard to shard.  Topics are all that is kept of a state: proposals that wait for the word pass follow from
them and from the canonical positions of tokens (`kernels.lda_warp_documents`), so they are drawn again.

Shards are handles, through which this program, unlike others, reads and writes files; so one engine may run it, the
serial one, which visits them in turn.

It is LightLDA's way with data beyond memory (Yuan et al., WWW 2015, section 5.3), but for what a visit does: there a
block of data meets slices of the model in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.program import Program
from schmp_estimators.core.stages import At, Order, Stage, changes, each, observes
from schmp_estimators.core.values import freeze, own
from schmp_estimators.lda.blocks import TopicRows, WordBlock
from schmp_estimators.lda.data.spilled import SpilledShard
from schmp_estimators.lda.programs import blocks
from schmp_estimators.lda.programs.learning import Exposure
from schmp_estimators.lda.programs.topics import Measured
from schmp_estimators.lda.programs.warp import WarpLDA
from schmp_estimators.lda.programs.warp_values import WarpAnswer, WarpModel, WarpReport, WarpState


class SpilledState(NamedTuple):
    """What is in memory of the state of a shard."""

    #: Which file has its topics.
    generation: int
    #: As in `WarpState`, of the last visit.
    totals: NDArray[np.int64]
    moved_by_words: int = 0
    moved_by_documents: int = 0


class SpilledPart(NamedTuple):
    """What a shard contributes to the first rows: its topics, wherever they are."""

    shard: SpilledShard
    generation: int


class SpilledRows(NamedTuple):
    """The word rows of all words."""

    #: At the end of the last sweep.
    now: WordBlock
    #: What shards have contributed in the present sweep, None between sweeps.
    making: blocks.RowsInMaking | None = None


@dataclass(frozen=True)
class SpilledLDA(Program[SpilledState, SpilledRows, WarpModel, Any]):
    """A frozen-count sampler whose shards are on disk, for the serial engine.

    Parameters
    ----------
    warp : WarpLDA
        The sampler.
    """

    name: ClassVar[str] = "lda"
    saves_blocks: ClassVar[bool] = False

    warp: WarpLDA

    def n_blocks(self, n_shards: int) -> int:
        """Return 1: all words are one block."""
        return 1

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return one visit of each shard in turn, and what looks at the result."""
        stages = [changes(self.sample, order=_turns(n_shards)), each(self.settle)]
        if self.warp.learns(sweep):
            stages.append(observes(self.expose))
        return [*stages, self.measuring(n_shards)] if self.warp.measures(sweep) else stages

    def init(self, at: At) -> tuple[SpilledState, dict[int, SpilledPart]]:
        """Draw first topics."""
        shard, _ = at.shard.load(None)
        state, _ = self.warp.init(at._replace(shard=shard))
        kept = self._keep(at.shard, 0, state, self.warp.save(at._replace(shard=shard), state))
        return kept, {0: SpilledPart(at.shard, 0)}

    def restore(self, at: At, saved: SpilledState) -> tuple[SpilledState, dict[int, SpilledPart]]:
        """Go on with topics that are there."""
        return own(saved), {0: SpilledPart(at.shard, saved.generation)}

    def combine(self, index: int, parts: Sequence[SpilledPart]) -> SpilledRows:
        """Add up what the topics of one shard after the other contribute."""
        first = parts[0].shard
        rows = blocks.begin_rows(first.corpus.word_total, self.warp.n_components, first.corpus.dtype)
        for part in parts:
            shard, topic = part.shard.load(part.generation)
            blocks.add_part(rows, blocks.make_parts(shard, by_word(shard.place, topic), self.warp.n_components)[0])
        return SpilledRows(blocks.end_rows(rows, first.fixed))

    def sample(self, at: At, state: SpilledState, rows: SpilledRows) -> tuple[SpilledState, SpilledRows]:
        """Do both passes of one shard, and add its topics to the rows of the next sweep."""
        spilled, old, new = at.shard, state.generation, 1 - state.generation
        if at.number == 0:
            making = blocks.begin_rows(spilled.corpus.word_total, self.warp.n_components, spilled.corpus.dtype)
            rows = rows._replace(making=making)
        assert rows.making is not None
        shard, topic = spilled.load(old, self._next(at, old, new))
        at = at._replace(shard=shard)
        warp, saved = visit(self.warp, at, topic, [WarpAnswer(freeze(rows.now), topic[:0].reshape(0, 1), 0)])
        blocks.add_part(rows.making, self.warp.parts(at, warp)[0])
        if at.number == at.n_shards - 1:
            rows = SpilledRows(blocks.end_rows(rows.making, rows.now.fixed))
        return self._keep(spilled, new, warp, saved), rows

    def settle(self, at: At, state: SpilledState) -> SpilledState:
        """Wait until the topics are on disk."""
        at.shard.corpus.store.settle()
        return state

    def report(self, at: At, state: SpilledState) -> WarpReport:
        """Return the topic totals, with those of earlier batches that the shard speaks for."""
        nothing = np.empty((0, 1), at.shard.corpus.dtype)
        return self.warp.report(at, WarpState(nothing, *state[1:]))

    def aggregate(self, model: WarpModel | None, reports: Sequence[Any]) -> WarpModel:
        """Make the model as the sampler does."""
        return self.warp.aggregate(model, reports)

    def expose(self, at: At, state: SpilledState) -> Exposure:
        """Return what learning of priors must know of a shard."""
        return self.warp.expose(*self._look(at, state))

    def measuring(self, n_shards: int) -> Stage:
        """Return the stage that measures the joint log-likelihood."""
        return observes(self.measure, order=_turns(n_shards))

    def measure(self, at: At, state: SpilledState, rows: SpilledRows) -> Measured:
        """Return the shard's share of the joint log-likelihood; the first shard measures the words, too."""
        opened, warp = self._look(at, state)
        if at.number == 0:
            return self.warp.measure(opened, warp, rows.now)
        return replace(self.warp, seeds=None).measure(opened, warp)

    def record(self, sweep: int, model: WarpModel) -> dict[str, Any]:
        """Return the record of the sampler."""
        return self.warp.record(sweep, model)

    def harvest(self, at: At, state: SpilledState) -> None:
        """Return nothing, but let go of what had been read ahead: there is other work for memory."""
        at.shard.corpus.store.forget_ahead()

    def harvest_block(self, block: SpilledRows) -> TopicRows:
        """Return the word rows, without the fixed ones, in layout order."""
        return self.warp.harvest_block(block.now)

    def _look(self, at: At, state: SpilledState) -> tuple[At, WarpState]:
        """Return the shard as it is at the end of a sweep, without proposals."""
        shard, topic = at.shard.load(state.generation, self._next(at, state.generation, state.generation))
        tokens = by_word(shard.place, topic).reshape(-1, 1)
        return at._replace(shard=shard), WarpState(tokens, state.totals)

    def _keep(
        self, shard: SpilledShard, generation: int, state: WarpState, topic: NDArray[np.signedinteger]
    ) -> SpilledState:
        shard.write(generation, topic)
        return SpilledState(generation, *state[1:])

    def _next(self, at: At, generation: int, after: int) -> tuple[int, int] | None:
        """Return what will be read next, if these are the generations of this turn and of the one after it."""
        if at.n_shards == 1:
            return None
        return (0, after) if at.number == at.n_shards - 1 else (at.number + 1, generation)


def _turns(n_shards: int) -> Order:
    """Return the order in which shards meet the only block one after the other."""
    return tuple([tuple([0 if p == step else -1 for p in range(n_shards)]) for step in range(n_shards)])


def visit(
    warp: WarpLDA, at: At, topic: NDArray[np.signedinteger], answers: Sequence[WarpAnswer]
) -> tuple[WarpState, NDArray[np.signedinteger]]:
    """Do both passes of a shard with the rows of all words, given its topics; return them in document order, too.

    Proposals that wait for the word pass are drawn again.
    """
    state, _ = warp.restore(at._replace(sweep=at.sweep - 1), topic)
    return warp.sample_topics(at, state, warp.take_words(at, state, answers))


def by_word(place: NDArray[np.uint32], topic: NDArray[Any]) -> NDArray[Any]:
    """Return topics in word-major order."""
    found = np.empty_like(topic)
    found[place] = topic
    return found
