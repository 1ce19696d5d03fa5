"""The frozen-count sampler on shards that are on disk: one visit of each in a sweep, and word rows in memory.

All words are one block, with the rows that a sweep reads and, as far as it has got, those that it makes.  The block
goes from shard to shard.  A shard's topics and pending proposals are read as the word pass needs them, and written as
the document pass leaves them, so that a visit does what it would do in memory.  A fit that goes on has topics only;
proposals follow from them and from the canonical positions of tokens (`kernels.lda_warp_documents`), so they are drawn
again.

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
from schmp_estimators.lda.blocks import TokenShard, TopicRows, WordBlock
from schmp_estimators.lda.data.corpus import narrow
from schmp_estimators.lda.data.spilled import Reading, SpilledShard
from schmp_estimators.lda.programs import blocks
from schmp_estimators.lda.programs.learning import Exposure
from schmp_estimators.lda.programs.topics import Measured
from schmp_estimators.lda.programs.warp import WarpLDA
from schmp_estimators.lda.programs.warp_values import WarpAnswer, WarpModel, WarpReport, WarpState


class SpilledState(NamedTuple):
    """What is in memory of the state of a shard."""

    #: Which file has its topics.
    generation: int
    #: Whether it has proposals, too.
    is_drawn: bool
    #: As in `WarpState`, of the last visit.
    totals: NDArray[np.integer]
    moved_by_words: int = 0
    moved_by_documents: int = 0


def in_memory(generation: int, warp: WarpState) -> SpilledState:
    """Return what stays in memory; totals in as few bits as they need, since every shard has some of its own."""
    return SpilledState(generation, True, narrow(warp.totals), warp.moved_by_words, warp.moved_by_documents)


class SpilledPart(NamedTuple):
    """What a shard contributes to the first rows: its topics, wherever they are."""

    shard: SpilledShard
    reading: Reading


class SpilledRows(NamedTuple):
    """The word rows of all words."""

    #: At the end of the last sweep.
    now: WordBlock
    #: What shards have contributed in the present sweep, None between sweeps.
    making: blocks.RowsInMaking | None = None


@dataclass(frozen=True)
class SpilledLDA(Program[SpilledState, SpilledRows, WarpModel, Any]):
    """A frozen-count sampler whose shards are on disk, for runs in this process.

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
        shard, _ = at.shard.load(Reading(at.number, None))
        opened = at._replace(shard=shard)
        warp, _ = self.warp.init(opened)
        at.shard.write(0, self.warp.save(opened, warp) if at.shard.corpus.store.is_kept else None, warp.tokens)
        return in_memory(0, warp), {0: SpilledPart(at.shard, Reading(at.number, 0, True))}

    def restore(self, at: At, saved: SpilledState) -> tuple[SpilledState, dict[int, SpilledPart]]:
        """Go on with topics that are there."""
        return own(saved), {0: SpilledPart(at.shard, Reading(at.number, saved.generation, saved.is_drawn))}

    def combine(self, index: int, parts: Sequence[SpilledPart]) -> SpilledRows:
        """Add up what the topics of one shard after the other contribute."""
        first = parts[0].shard
        rows = blocks.begin_rows(first.corpus.word_total, self.warp.n_components, first.corpus.dtype)
        for part in parts:
            shard, tokens = part.shard.load(part.reading)
            blocks.add_shard(rows, shard, 0, (tokens if part.reading.is_drawn else by_word(shard, tokens))[:, 0])
        return SpilledRows(blocks.end_rows(rows, first.fixed))

    def sample(self, at: At, state: SpilledState, rows: SpilledRows) -> tuple[SpilledState, SpilledRows]:
        """Do both passes of one shard, and add its topics to the rows of the next sweep."""
        spilled, new = at.shard, 1 - state.generation
        if at.number == 0:
            making = blocks.begin_rows(spilled.corpus.word_total, self.warp.n_components, spilled.corpus.dtype)
            rows = rows._replace(making=making)
        assert rows.making is not None
        reading = Reading(at.number, state.generation, state.is_drawn)
        shard, before = spilled.load(reading, _next(at, reading, Reading(0, new, True)))
        topic = spilled.room(new) if spilled.corpus.store.is_kept else None
        warp = visit(self.warp, at._replace(shard=shard), before, [WarpAnswer(freeze(rows.now), None, 0)], topic)
        blocks.add_shard(rows.making, shard, 0, warp.tokens[:, 0])
        if at.number == at.n_shards - 1:
            rows = SpilledRows(blocks.end_rows(rows.making, rows.now.fixed))
        spilled.write(new, topic, warp.tokens)
        return in_memory(new, warp), rows

    def settle(self, at: At, state: SpilledState) -> SpilledState:
        """Wait until the topics are on disk."""
        at.shard.corpus.store.settle()
        return state

    def report(self, at: At, state: SpilledState) -> WarpReport:
        """Return the topic totals, with those of earlier batches that the shard speaks for."""
        nothing = np.empty((0, 1), at.shard.corpus.dtype)
        return self.warp.report(at, WarpState(nothing, *state[2:]))

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
        """Return the shard as it is at the end of a sweep."""
        reading = Reading(at.number, state.generation, state.is_drawn)
        shard, tokens = at.shard.load(reading, _next(at, reading, reading._replace(number=0)))
        return at._replace(shard=shard), WarpState(tokens if state.is_drawn else by_word(shard, tokens), state.totals)


def _next(at: At, now: Reading, after: Reading) -> Reading | None:
    """Return what will be read next, if this is read now, and the other one after this turn."""
    if at.n_shards == 1:
        return None
    return after if at.number == at.n_shards - 1 else now._replace(number=at.number + 1)


def _turns(n_shards: int) -> Order:
    """Return the order in which shards meet the only block one after the other."""
    return tuple([tuple([0 if p == step else -1 for p in range(n_shards)]) for step in range(n_shards)])


def visit(
    warp: WarpLDA,
    at: At,
    tokens: NDArray[np.signedinteger],
    answers: Sequence[WarpAnswer],
    saved: NDArray[np.signedinteger] | None,
) -> WarpState:
    """Do both passes of a shard with the rows of all words, given its topics with proposals, which are changed.

    Given topics alone, in document order, proposals that wait for the word pass are drawn again.  To `saved` topics are
    written in document order.
    """
    if tokens.ndim == 1:
        state, _ = warp.restore(at._replace(sweep=at.sweep - 1), tokens)
    else:
        state = WarpState(tokens, np.empty(0, np.int64))
    return warp.sample_topics(at, state, answers, saved)


def by_word(shard: TokenShard, topic: NDArray[Any]) -> NDArray[Any]:
    """Return topics in word-major order, (n_tokens, 1), as tokens that have no proposals."""
    found = np.empty_like(topic)
    found[shard.place] = topic
    return found.reshape(-1, 1)
