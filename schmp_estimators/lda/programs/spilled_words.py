"""The frozen-count sampler where neither documents nor the rows of words fit into memory: an exchange through files.

Tokens are on disk, slice of words after slice of words (`data.spilled_words`).  The word pass reads one slice, with the
tokens of all documents, so that the rows of its words can be made one at a time, as where one shard has all tokens;
the document pass reads one shard after the other.  What is in memory is two slices or two shards, and arrays over words
and topics, but no rows; each pass reads and writes all tokens once.  Rows are made when somebody asks for the topics,
slice by slice, and go to disk, too.

LightLDA (Yuan et al., WWW 2015, section 5) keeps rows elsewhere, and every block of documents has all of them sent to
it, slice by slice; here tokens come to the rows, which nobody has to send.

There are as many slices as shards.  It runs in one process, as `programs.spilled` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.program import Program
from schmp_estimators.core.stages import At, Stage, each, exchanges, observes
from schmp_estimators.core.values import freeze, own
from schmp_estimators.lda.blocks import TokenShard, no_topics, nothing_sent
from schmp_estimators.lda.data.spilled import Reading, SpilledShard
from schmp_estimators.lda.data.spilled_words import read_slice, write_slice
from schmp_estimators.lda.data.topic_rows import rows_of_lists
from schmp_estimators.lda.kernels.likelihood import word_histogram
from schmp_estimators.lda.programs.learning import Exposure
from schmp_estimators.lda.programs.met_words import MetWords
from schmp_estimators.lda.programs.seeds import count_seeds
from schmp_estimators.lda.programs.spilled import SpilledState, in_memory
from schmp_estimators.lda.programs.topics import Measured
from schmp_estimators.lda.programs.warp import WarpLDA
from schmp_estimators.lda.programs.warp_values import WarpModel, WarpReport, WarpState


class RowsOnDisk(NamedTuple):
    """The rows of a slice of words in a file: topics, then tokens, both int32."""

    file: str
    #: (n_words,) topics of each word that have tokens.
    sizes: NDArray[np.int64]


@dataclass(frozen=True)
class SlicedLDA(Program[SpilledState, None, WarpModel, Any]):
    """A frozen-count sampler whose tokens are on disk, by slices of words, for runs in this process.

    Parameters
    ----------
    warp : WarpLDA
        The sampler.
    """

    name: ClassVar[str] = "lda"
    saves_blocks: ClassVar[bool] = False

    warp: WarpLDA

    def n_blocks(self, n_shards: int) -> int:
        """Return 0: there are no rows to go round."""
        return 0

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the word pass, slice by slice, the document pass, shard by shard, and what looks at the result."""
        stages = [exchanges(self.sample_words, split=self.split), each(self.sample_documents)]
        if self.warp.learns(sweep):
            stages.append(observes(self.expose))
        return [*stages, self.measuring(n_shards)] if self.warp.measures(sweep) else stages

    def init(self, at: At) -> tuple[SpilledState, dict[int, None]]:
        """Draw first topics."""
        shard, _ = at.shard.load(Reading(at.number, None))
        opened = at._replace(shard=shard)
        warp, _ = self.warp.init(opened)
        at.shard.write(0, self.warp.save(opened, warp) if at.shard.corpus.store.is_kept else None, warp.tokens)
        return in_memory(0, warp), {}

    def restore(self, at: At, saved: SpilledState) -> tuple[SpilledState, dict[int, None]]:
        """Go on with topics that are there; if their proposals are not, draw them again."""
        if saved.is_drawn:
            return own(saved), {}
        shard, topic = at.shard.load(Reading(at.number, saved.generation))
        warp, _ = self.warp.restore(at._replace(shard=shard), topic)
        at.shard.write(saved.generation, None, warp.tokens)
        return in_memory(saved.generation, warp), {}

    def split(self, at: At, state: SpilledState) -> list[int]:
        """Return for the reader of each slice who has tokens of it: they are where all can read them."""
        return [at.number] * at.n_shards

    def sample_words(self, at: At, pieces: Sequence[int]) -> list[int]:
        """Do the word pass of a slice; return how many tokens moved, to the first shard."""
        corpus = at.shard.corpus
        tokens, words = self._slice(at)
        moved = self.warp.sample_met(at._replace(shard=words.owner), words, at.shard.corpus.packing)
        write_slice(corpus.store, corpus.drawn, corpus.slices, at.number, tokens)
        return [moved] + [0] * (at.n_shards - 1)

    def sample_documents(self, at: At, state: SpilledState, moved: Sequence[int]) -> SpilledState:
        """Do the document pass of a shard."""
        spilled, new = at.shard, 1 - state.generation
        shard, tokens = spilled.load(Reading(at.number, state.generation, True), _next(at, state))
        topic = spilled.room(new) if spilled.corpus.store.is_kept else None
        given = WarpState(tokens, np.empty(0, np.int64))
        warp = self.warp.pass_documents(at._replace(shard=shard), given, sum(moved), topic)
        spilled.write(new, topic, warp.tokens)
        return in_memory(new, warp)

    def report(self, at: At, state: SpilledState) -> WarpReport:
        """Return the topic totals, with those of earlier batches that the shard speaks for."""
        nothing = np.empty((0, 1), at.shard.corpus.dtype)
        return self.warp.report(at, WarpState(nothing, *state[2:]))

    def aggregate(self, model: WarpModel | None, reports: Sequence[Any]) -> WarpModel:
        """Make the model as the sampler does."""
        return self.warp.aggregate(model, reports)

    def expose(self, at: At, state: SpilledState) -> Exposure:
        """Return what learning of priors must know of a shard."""
        shard, tokens = at.shard.load(Reading(at.number, state.generation, True), _next(at, state))
        return self.warp.expose(at._replace(shard=shard), WarpState(tokens, state.totals))

    def measuring(self, n_shards: int) -> Stage:
        """Return the stage that measures the joint log-likelihood."""
        return observes(self.measure)

    def measure(self, at: At, state: SpilledState) -> Measured:
        """Return the share of the joint log-likelihood of a shard, and of a slice."""
        shard, tokens = at.shard.load(Reading(at.number, state.generation, True))
        opened, plain = at._replace(shard=shard, n_blocks=at.n_shards), replace(self.warp, seeds=None)
        measured = plain.measure(opened, WarpState(tokens, state.totals))
        del shard, tokens, opened  # before the slice comes
        owner, ptr, topic = self._topics_of_slice(at)
        counted = word_histogram(freeze(ptr), freeze(topic), self.warp.n_components, owner.fixed)
        seeds = None
        if (rows := self.warp.seeds_of(owner)) is not None:
            seeds = count_seeds(rows, owner._replace(word_ptr=ptr), topic, None, 0)
        return measured._replace(words=counted, seeds=seeds)

    def record(self, sweep: int, model: WarpModel) -> dict[str, Any]:
        """Return the record of the sampler."""
        return self.warp.record(sweep, model)

    def harvest(self, at: At, state: SpilledState) -> RowsOnDisk:
        """Write the rows of a slice, without the fixed ones, to a file, and return how long they are."""
        store = at.shard.corpus.store
        _, ptr, topic = self._topics_of_slice(at)
        rows = rows_of_lists(ptr, topic, self.warp.n_components)
        file = f"rows-{at.number}"
        store.write(file, rows.topic, rows.tokens)
        return RowsOnDisk(file, np.diff(rows.ptr))

    def _topics_of_slice(self, at: At) -> tuple[TokenShard, NDArray[np.int64], NDArray[np.signedinteger]]:
        """Return the topics of a slice, word after word, and where those of each word begin."""
        spilled = at.shard.corpus
        found = read_slice(spilled.store, spilled.drawn, spilled.slices, at.number, spilled.packing)
        topics = [freeze(spilled.packing.unpack(piece)[:, 0].copy()) for piece in found.pieces]
        owner, lengths = owner_of(at), found.lengths
        del found
        words = MetWords.of_slice(owner, topics, lengths)
        return owner, words.ptr, words.together()

    def _slice(self, at: At) -> tuple[NDArray[np.signedinteger], MetWords]:
        """Return the tokens of a slice, and the words in it."""
        spilled, after = at.shard.corpus, at.number + 1 if at.number + 1 < at.n_shards else None
        given = spilled.store, spilled.drawn, spilled.slices, at.number, spilled.packing
        found = read_slice(*given, after=after)
        return found.tokens, MetWords.of_slice(owner_of(at), found.pieces, found.lengths)


def owner_of(at: At) -> TokenShard:
    """Return what the slice with a shard's number knows of its words, as if it were the only one, without tokens."""
    spilled: SpilledShard = at.shard
    assert spilled.corpus.slices is not None
    first, last = spilled.corpus.slices.words[at.number : at.number + 2]
    words, none = slice(first, last), np.zeros(1, np.int64)
    shard = TokenShard(
        none, np.zeros(0, np.uint32), np.zeros(last - first + 1, np.int64), np.zeros(last - first, np.int64),
        spilled.corpus.word_first[words], spilled.corpus.word_total[words], np.array([0, last - first]), 0, 0,
        spilled.fixed, no_topics(), none, *nothing_sent(1),
    )  # fmt: skip
    return freeze(shard)


def _next(at: At, state: SpilledState) -> Reading | None:
    """Return what will be read after a shard, unless it is the last one: then it is not written yet."""
    return Reading(at.number + 1, state.generation, True) if at.number + 1 < at.n_shards else None
