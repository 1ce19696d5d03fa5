"""Fits beyond memory: whether arrays are in files, how many slices there are, and the folder.

A slice is a part of the documents.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from schmp_estimators.core.errors import SpillWarning
from schmp_estimators.core.inputs.files import marked, memory_of_workers
from schmp_estimators.core.inputs.rows import RowsAgain
from schmp_estimators.core.io.files import INPUT, local_folder, named_folder, temporary_directory
from schmp_estimators.core.io.slices import Slices, memory_left
from schmp_estimators.core.places.place import Place
from schmp_estimators.lda.blocks import HEAD
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.shards import LARGEST_SHARE
from schmp_estimators.lda.programs.topics import TopicSampler, topic_bytes

#: Share of the free memory that a fit may use; the rest is for the input and the result.
SHARE = 0.5
#: The same on a cluster, as shares of the memory below which Dask does not write results to disk:
#: of all workers for a fit in memory, and of each worker for its slices, whose size is known
#: better.
WORKER_SHARE, SLICES_SHARE = 0.8, 0.95
#: Bytes of the record of a piece that one slice sends to another, and of a word or a topic in
#: arrays of a fit.
OF_A_PIECE, OF_A_WORD = 1 << 10, 100
_CONFIG = "dask.config.set({'schmp-estimators.memory-limit': ...})"


def check_spill(estimator: Any, earlier: Any) -> None:
    """Raise ValueError if the parameters do not go with `spill`.

    `earlier` are counts that `warm_start` begins with.
    """
    if estimator.spill is None:
        return
    if estimator.checkpoint is not None:
        raise ValueError(
            "spill and checkpoint do not go together; set checkpoint=None: a folder given as spill "
            "is a checkpoint, too"
        )
    if estimator.spill == "auto":
        return
    local_folder(estimator.spill)  # raises if there is none
    if not isinstance(estimator.random_state, Integral):
        raise ValueError(
            "a folder given as spill needs an int as random_state, to recognise its own fit; got "
            f"{estimator.random_state!r}; or let spill='auto' choose a temporary one"
        )
    if earlier is not None:
        raise ValueError(
            "a folder given as spill goes with a fit that starts anew; set spill='auto' for "
            "warm_start"
        )


class Sizes(NamedTuple):
    """The sizes on which the memory of a fit depends."""

    n_tokens: int
    n_docs: int
    n_words: int
    n_topics: int
    #: Tokens of the longest document.
    longest: int
    #: Bytes of the state of a token, and of the table of weights of all words, if the sampler keeps
    #: one.
    state: int
    table: int
    #: Bytes of the rows of all words.
    rows: int
    #: Whether rows go round a ring, and tokens are not exchanged.
    rotates: bool = False

    @classmethod
    def of(cls, corpus: Corpus, program: TopicSampler[Any]) -> Sizes:
        """Return those of a corpus and a program."""
        total = corpus.word_totals
        n_topics = program.n_components
        is_head = total >= HEAD * n_topics
        rows = 4 * n_topics * int(np.count_nonzero(is_head)) + topic_bytes(n_topics) * int(
            total[~is_head].sum()
        )
        longest = int(corpus.lengths.max(initial=0))
        counted = int(corpus.lengths.sum()), len(corpus.lengths), len(total), n_topics, longest
        table = program.row_bytes() * int(np.count_nonzero(total))
        return cls(*counted, program.state_bytes(), table, rows, program.rotates)

    @property
    def arrays(self) -> int:
        """Bytes of arrays over words, topics and documents."""
        return OF_A_WORD * (self.n_words + self.n_topics) + 32 * self.n_docs + self.table

    @property
    def in_memory(self) -> int:
        """Bytes of the fit in memory.

        They are tokens, at most three copies of their states, and two sets of rows.
        """
        return (
            self.n_tokens * (4 + 3 * self.state + 3 * topic_bytes(self.n_topics))
            + 2 * self.rows
            + self.arrays
        )

    def on_cluster(self, n_shards: int) -> int:
        """Bytes of the fit if the workers of a cluster had all tokens in memory.

        There is one place for each token, and at most three copies of states and of blocks with a
        topic for each token.  Of tokens that shards exchange there are two more copies: together at
        their owners, and as answers.  In this case shards have arrays only over words that they
        need.
        """
        exchanged = n_shards > 1 and not self.rotates
        n_words = (
            min(self.n_words * n_shards, self.n_words + self.n_tokens)
            if exchanged
            else self.n_words * n_shards
        )
        of_a_token = 4 + (5 if exchanged else 3) * self.state + 3 * topic_bytes(self.n_topics)
        return self.n_tokens * of_a_token + 64 * n_words + 3 * self.table * n_shards

    @property
    def of_a_token(self) -> int:
        """Bytes of a token in a slice.

        There are two slices, while one is read and one is written, and topics for the others.
        """
        return 2 * (4 + self.state) + 3 * topic_bytes(self.n_topics)

    def with_slices(self, n: int, n_processes: int = 1) -> int:
        """Return the bytes that each of some processes needs, all of which have `n` slices."""
        largest = (1 + LARGEST_SHARE) * self.n_tokens / (n * n_processes) + self.longest
        of_slices = 16 * self.n_topics + OF_A_PIECE * n * n_processes
        return int(self.arrays + n * of_slices + largest * self.of_a_token)


def count_slices(sizes: Sizes, room: float, n_processes: int = 1) -> int:
    """Return how many slices each process has to make, so that `room` bytes suffice.

    A process cuts its documents into slices.

    Raises
    ------
    MemoryError
        If they never do.
    """
    n = 1
    needed = sizes.with_slices(1, n_processes)
    while needed > room:
        following = sizes.with_slices(n + 1, n_processes)
        if following >= needed:
            raise MemoryError(
                f"arrays over {sizes.n_words} words, {sizes.n_docs} documents and "
                f"n_components={sizes.n_topics} topics, and the longest document ({sizes.longest} "
                f"tokens) need {needed / 2**30:.3g} GiB, more than a process may use: "
                f"{room / 2**30:.3g} GiB of what is left of its memory limit. spill keeps tokens "
                "and rows of words on disk, not these: fit fewer topics, leave out the most "
                f"frequent words, cut long documents, or raise the limit with {_CONFIG}, or that "
                "of the workers"
            )
        n, needed = n + 1, following
    return n


class Spilling(NamedTuple):
    """A fit whose arrays are in files."""

    #: Slices of all documents.
    n_slices: int
    #: Bytes that the fit would need in memory, and those of tokens in files: the place of each, and
    #: its state.
    needed: int
    in_files: int
    #: The folder that the user has named; None for a temporary one.
    named: str | None

    @contextmanager
    def opened(self, corpus: Corpus, place: Place) -> Iterator[tuple[Slices, Corpus]]:
        """Yield the slices of a fit, and the corpus as workers read it.

        Warn if the user has not named a folder.

        Raises
        ------
        NotSharedError
            If workers do not reach the folder that the user has named, or files of the corpus.
        """
        with ExitStack() as stack:
            if self.named is not None:
                folder = stack.enter_context(named_folder(self.named))
            else:
                folder = temporary_directory()
                where = "workers, in their folders (local_directory)"
                if place.is_local:
                    where = f"{folder!r}, Dask's temporary directory"
                warnings.warn(
                    f"the fit would need about {self.needed / 2**30:.3g} GiB, more than it may use "
                    f"of what is left of the memory limit: it puts {self.in_files} bytes of tokens "
                    f"into files of {where}, and removes them in the end. Give a folder as spill "
                    "to choose where, and to go on after an interruption.",
                    SpillWarning,
                    stacklevel=1,
                )
            if not place.is_local:
                if self.named is not None:
                    stack.enter_context(marked(place, folder))
                if isinstance(rows := corpus.rows, RowsAgain):
                    copies = None if self.named is None else os.path.join(folder, INPUT)
                    corpus = replace(
                        corpus, rows=stack.enter_context(rows.elsewhere(place, copies))
                    )
            yield Slices(folder, is_named=self.named is not None), corpus


def choose_spilling(
    estimator: Any, program: TopicSampler[Any], corpus: Corpus, place: Place, n_shards: int
) -> Spilling | None:
    """Return how a fit uses files, or None if it stays in memory; raises as `count_slices`."""
    if estimator.spill is None:
        return None
    sizes = Sizes.of(corpus, program)
    n_processes = place.n_processes
    if place.is_local:
        room = SHARE * memory_left()
        needed = sizes.in_memory
        most = room
    else:
        left = memory_of_workers(place)
        room = SLICES_SHARE * min(left, default=0)
        most = WORKER_SHARE * sum(left)
        needed = sizes.on_cluster(n_processes)
    if estimator.spill == "auto" and needed <= most:
        return None
    named = None if estimator.spill == "auto" else os.fspath(estimator.spill)
    n_slices = min(n_processes * count_slices(sizes, room, n_processes), sizes.n_docs)
    if n_slices > n_shards and not program.partition_invariant:
        raise MemoryError(
            f"spill needs {n_slices} slices of the documents, and n_shards={n_shards}, on which "
            f"the topics of sampler={estimator.sampler!r} depend; set n_shards={n_slices} or more, "
            f"take sampler='auto', or raise the memory limit, here with {_CONFIG}"
        )
    return Spilling(n_slices, needed, sizes.n_tokens * (4 + sizes.state), named)
