"""The frozen-count sampler on groups that exchange tokens through files: the rows of all words are nowhere in memory.

A group owns a block of words, and does their word pass slice by slice, with the tokens that all groups have of a slice;
then every group does the document pass of its slices of documents, with the tokens that all owners have sampled
(`data.met_groups`).  So a worker has two slices in memory at a time, of words or of documents, as one process has in
`programs.spilled_words`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.places.disks import Held, Kept
from schmp_estimators.core.stages import At, Stage, each, exchanges, observes
from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, no_topics, nothing_sent
from schmp_estimators.lda.data.met_groups import Coming, GroupAnswer, GroupPiece, Meeting, Sampled
from schmp_estimators.lda.data.packed import Packing
from schmp_estimators.lda.data.spilled_groups import Group
from schmp_estimators.lda.data.topic_rows import cut_rows, rows_of_lists
from schmp_estimators.lda.kernels.likelihood import word_histogram
from schmp_estimators.lda.programs import measures
from schmp_estimators.lda.programs.groups import GroupProgram, GroupState, Visits, load_slice
from schmp_estimators.lda.programs.met_words import MetWords
from schmp_estimators.lda.programs.seeds import count_seeds
from schmp_estimators.lda.programs.topics import Measured, chain_seeds
from schmp_estimators.lda.programs.warp_values import WarpState


class RowsThere(NamedTuple):
    """The rows of a slice of words in a file: topics, then tokens, both int32."""

    file: Held
    #: (n_words,) topics of each word that have tokens.
    sizes: NDArray[np.int64]


@dataclass(frozen=True)
class SlicedGroups(GroupProgram):
    """A frozen-count sampler whose shards are groups on disks, and exchange tokens.

    Parameters
    ----------
    warp : WarpLDA
        The sampler.
    """

    def schedule(self, sweep: int, n_shards: int) -> list[Stage]:
        """Return the word pass of each owner, the document pass of each group, and what looks at the result."""
        stages = [
            exchanges(self.sample_words, split=self.split_tokens),
            each(self.sample_documents, merge=self.merge),
        ]
        if self.warp.learns(sweep):
            stages.append(observes(self.expose, merge=self.merge_exposed))
        return [*stages, self.measuring(n_shards)] if self.warp.measures(sweep) else stages

    def restore(self, at: At, saved: Kept) -> tuple[GroupState, dict[int, Any]]:
        """Go on with topics that were kept, and draw their proposals again."""
        group, done = at.shard, at.sweep + 1
        written = group.bring(saved, done)
        visits = Visits(self.warp, group)
        with group.opened(done) as found:
            slices, _ = group.begin(found, done)
            for number, one in enumerate(slices):
                shard, topic = load_slice(one, done, slices[number + 1 :])
                state, _ = self.warp.restore(at._replace(shard=shard), topic)
                visits.add(state, shard)
                one.write(done, None, state.tokens)
            group.end(slices, done)
        return visits.state(done, written), {}

    def split_tokens(self, at: At, state: GroupState) -> list[GroupPiece]:
        """Return where each owner finds the tokens of its words."""
        found: list[GroupPiece] = at.shard.drawn(state.done)
        return found

    def sample_words(self, at: At, pieces: Sequence[GroupPiece]) -> list[GroupAnswer]:
        """Do the word pass of the words that a group owns, slice by slice."""
        group: Group = at.shard
        met = Meeting(group.disk, group.number, pieces, group.packing)
        sampled, moved = Sampled(pieces, group.packing), 0
        with group.meeting(at.sweep, sampled.nbytes) as (store, name, held):
            for number in range(met.n_slices):
                found, owner = met.read(store, number), owner_of(group, number)
                words = MetWords.of_slice(owner, found.pieces, found.lengths)
                moved += self.warp.sample_met(at._replace(shard=owner), words, group.packing)
                sampled.write(store, name, number, found.pieces)
                del found, words
        return sampled.answers(held, moved)

    def sample_documents(self, at: At, state: GroupState, answers: Sequence[GroupAnswer]) -> GroupState:
        """Do the document pass of each slice of documents."""
        visits, group, done = Visits(self.warp, at.shard), at.shard, state.done + 1
        coming = Coming(group.disk, group.number, answers, group.packing)
        with group.opened(state.done) as found:
            slices, _ = group.begin(found, done)
            slices = [one._replace(corpus=one.corpus._replace(come=coming.read)) for one in slices]
            for number, one in enumerate(slices):
                shard, tokens = load_slice(one, state.done, slices[number + 1 :], is_drawn=True)
                topic, given = one.room(done), WarpState(tokens, np.empty(0, np.int64))
                warp = self.warp.pass_documents(at._replace(shard=shard), given, 0 if number else coming.moved, topic)
                visits.add(warp, shard)
                one.write(done, topic, warp.tokens)
            return visits.state(done, group.end(slices, done))

    def split_topics(self, at: At, state: GroupState) -> list[GroupPiece]:
        """Return where each owner finds the topics of its words."""
        found: list[GroupPiece] = at.shard.topics(state.done)
        return found

    def measuring(self, n_shards: int) -> Stage:
        """Return the stage that measures the joint log-likelihood."""
        return observes(self.measure, split=self.split_topics, merge=self.merge_measured)

    def measure(self, at: At, state: GroupState, pieces: Sequence[GroupPiece]) -> Measured:
        """Return the group's share of the joint log-likelihood, and that of the words that it owns."""
        there, plain = at._replace(n_blocks=at.n_shards), replace(self.warp, seeds=None)
        shards = [plain.measure(*looked).shard for looked in self.look(there, state)]
        words, seeds = [], []
        for owner, ptr, topic in self._topics_of_slices(at, pieces):
            words.append(word_histogram(freeze(ptr), freeze(topic), self.warp.n_components, owner.fixed))
            if (rows := self.warp.seeds_of(owner)) is not None:
                seeds.append(count_seeds(rows, owner._replace(word_ptr=ptr), topic, None, 0))
        of_seeds = chain_seeds(seeds) if seeds else None
        return Measured(reduce(measures.merge_shards, shards), measures.merge_some(*words), of_seeds)

    def harvesting(self, n_shards: int) -> Stage:
        """Return the stage in which groups make the rows of the words that they own."""
        return observes(self.harvest_rows, split=self.split_topics)

    def harvest_rows(self, at: At, state: GroupState, pieces: Sequence[GroupPiece]) -> list[RowsThere]:
        """Write the rows of the words that a group owns, without the fixed ones, to files; return where they are."""
        group, found = at.shard, list[RowsThere]()
        for number, (_, ptr, topic) in enumerate(self._topics_of_slices(at, pieces)):
            rows = rows_of_lists(ptr, topic, self.warp.n_components)
            found.append(RowsThere(group.write_rows(number, state.done, rows), np.diff(rows.ptr)))
        return found

    def _topics_of_slices(
        self, at: At, pieces: Sequence[GroupPiece]
    ) -> Iterator[tuple[TokenShard, NDArray[np.int64], NDArray[np.signedinteger]]]:
        """Yield the topics of each slice of a group's own words, word after word, and where each word begins."""
        group: Group = at.shard
        met = Meeting(group.disk, group.number, pieces, Packing(1, 0, group.dtype))
        with group.disk.opened(group.number) as store:
            for number in range(met.n_slices):
                found, owner = met.read(store, number), owner_of(group, number)
                words = MetWords.of_slice(owner, freeze(found.pieces), found.lengths)
                del found
                yield owner, words.ptr, words.together()


def owner_of(group: Group, number: int) -> TokenShard:
    """Return what the owner of a slice of words knows of these, as if they were the only ones, without tokens."""
    assert group.exchange is not None
    first, last = group.exchange.slices.words[group.exchange.firsts[group.number] + number :][:2].tolist()
    begin, words, none = int(group.block_ptr[group.number]), slice(first, last), np.zeros(1, np.int64)
    fixed = cut_rows(group.fixed, first - begin, last - begin)
    shard = TokenShard(
        none, np.zeros(0, np.uint32), np.zeros(last - first + 1, np.int64), np.zeros(last - first, np.int64),
        group.word_first[words], group.word_total[words], np.array([0, last - first]), 0, 0, fixed, no_topics(), none,
        *nothing_sent(1),
    )  # fmt: skip
    return freeze(shard)
