"""Fits beyond memory: whether and where documents go to disk, into how many shards, and how such a fit goes on."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.io.checkpoint import check_sweeps
from schmp_estimators.core.io.files import local_folder
from schmp_estimators.core.places.memory import memory_left
from schmp_estimators.core.program import Saved
from schmp_estimators.core.store import SpillWarning, Store, open_store
from schmp_estimators.lda.blocks import HEAD
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.spilled import topics_file
from schmp_estimators.lda.programs.spilled import SpilledState
from schmp_estimators.lda.programs.topics import topic_dtype
from schmp_estimators.lda.programs.warp import WarpLDA
from schmp_estimators.lda.programs.warp_values import WarpModel, WarpReport

#: What a fit may use of the memory that is left: the rest is for what is made of the input, and of the result.
SHARE = 0.5
#: The same of what the workers of a cluster may take until Dask lets them write results to disk, well below the limit:
#: in memory, and with slices, of which it is better known what they take.
WORKER_SHARE, SLICES_SHARE = 0.8, 0.95
#: Bytes of tokens that a worker of a cluster is sending, or is being sent, where workers exchange tokens through files.
ON_THEIR_WAY = 1 << 25
#: Bytes of what is known there of a slice of words in a slice of documents.
TABLES_OF_SLICES = 64
_CONFIG = "dask.config.set({'schmp-estimators.memory-limit': ...})"


def check_spill(estimator: Any, earlier: Any) -> None:
    """Raise ValueError if the parameters do not go with `spill`; `earlier` are counts of earlier documents."""
    if estimator.spill is None:
        return
    if estimator.sampler not in ("auto", "warp"):
        raise ValueError(
            f"spill goes with sampler='warp' or 'auto', and sampler={estimator.sampler!r} needs all tokens in memory; "
            "choose one of these, or set spill=None"
        )
    if estimator.checkpoint is not None:
        raise ValueError(
            "spill and checkpoint do not go together: a folder given as spill is a checkpoint, too; set checkpoint=None"
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
            "a folder given as spill goes with a fit that starts anew; set spill='auto' for partial_fit and for "
            "warm_start"
        )


class Sizes(NamedTuple):
    """What the memory of a fit depends on."""

    n_tokens: int
    longest: int
    n_topics: int
    mh_steps: int
    #: Bytes of what is there whatever the number of shards: word rows, and arrays over words, topics and documents.
    fixed: int
    #: Bytes of the rows of all words, and number of words.
    rows: int = 0
    n_words: int = 0
    #: Tokens of the word that has most.
    heaviest: int = 0

    @classmethod
    def of(cls, corpus: Corpus, n_topics: int, mh_steps: int) -> Sizes:
        """Return those of a corpus and a model."""
        total, topic = corpus.word_totals, np.dtype(topic_dtype(n_topics)).itemsize
        is_head = total >= HEAD * n_topics
        n_heads, n_tail_tokens = int(np.count_nonzero(is_head)), int(total[~is_head].sum())
        rows = 4 * n_topics * n_heads + topic * n_tail_tokens + 16 * len(total)
        # Two generations of rows; offsets of three shards, and what all of them have in common.
        fixed = 2 * rows + 100 * len(total) + 100 * n_topics + 32 * len(corpus.lengths)
        longest = int(corpus.lengths.max(initial=0))
        heaviest = int(total.max(initial=0))
        return cls(int(corpus.lengths.sum()), longest, n_topics, mh_steps, fixed, rows, len(total), heaviest)

    @property
    def in_memory(self) -> int:
        """Bytes of the tokens if all were in memory, while a fit is set up or harvested."""
        topic = np.dtype(topic_dtype(self.n_topics)).itemsize
        return self.n_tokens * (4 + 3 * (2 + self.mh_steps) * topic) + self.fixed

    def on_cluster(self, n_shards: int) -> int:
        """Bytes of the fit if the workers of a cluster had all tokens in memory, with what they exchange."""
        topic = np.dtype(topic_dtype(self.n_topics)).itemsize
        return self.n_tokens * (4 + (5 * (1 + self.mh_steps) + 3) * topic) + 64 * self.n_words * n_shards

    @property
    def of_a_token(self) -> int:
        """Bytes of a token of a shard.

        Its place, its topic and its proposals are there twice, as the next shard is read and the last one written; then
        its topic in document order, to go to disk and on its way there, and as it has come if proposals are drawn anew.
        """
        topic = np.dtype(topic_dtype(self.n_topics)).itemsize
        return 2 * (4 + (1 + self.mh_steps) * topic) + 3 * topic


class Division(NamedTuple):
    """How a fit is divided so that it keeps to its share of the memory limit."""

    #: Number of shards, or of slices of each shard of a cluster.
    n_shards: int
    #: Whether the rows of all words are in memory; else words are divided, too, into as many slices.
    has_rows: bool


def divide(sizes: Sizes, n_docs: int) -> Division:
    """Return into how many shards documents have to be cut, with rows of words in memory if they fit.

    Raises
    ------
    MemoryError
        If that is not possible.
    """
    share = int(SHARE * memory_left())
    # A shard has up to the longest document more than an equal share, and a slice up to the heaviest word.
    with_rows, longer = sizes.fixed, (sizes.longest + sizes.heaviest) * sizes.of_a_token
    if (found := _shards(sizes, share, with_rows + sizes.longest * sizes.of_a_token)[0]) is not None:
        return Division(max(1, min(n_docs, found)), has_rows=True)
    found, needed = _shards(sizes, share, with_rows - 2 * sizes.rows + longer)
    if found is not None:
        return Division(max(1, min(n_docs, found)), has_rows=False)
    raise MemoryError(
        f"arrays over {sizes.n_words} words, {n_docs} documents and n_components={sizes.n_topics} topics, the longest "
        f"document ({sizes.longest} tokens) and the word with most ({sizes.heaviest} tokens) need "
        f"{needed / 2**30:.3g} GiB, more than a fit may use: {share / 2**30:.3g} GiB, {SHARE:.0%} of what is left of "
        "the memory limit. spill keeps tokens and rows of words on disk, not these: fit fewer topics, leave out the "
        f"most frequent words, cut long documents, or raise the limit with {_CONFIG}"
    )


def _shards(sizes: Sizes, share: int, least: int) -> tuple[int | None, float]:
    """Return into how many shards documents must be cut if so many bytes are there in any case; None if into none.

    The second number is the fewest bytes that any number of shards needs.
    """
    # The topic totals of a shard are there twice in the end.
    tokens, of_a_shard, room = sizes.n_tokens * sizes.of_a_token, 16 * sizes.n_topics, share - least
    # n shards need of_a_shard * n + tokens / n: the least n for which that is no more than there is room.
    square = room * room - 4 * of_a_shard * tokens
    if room > 0 and square >= 0:
        return math.ceil(2 * tokens / (room + math.sqrt(square))), 0.0
    return None, least + 2 * math.sqrt(of_a_shard * tokens)


def divide_group(sizes: Sizes, n_shards: int, left: int) -> Division:
    """Return into how many slices each shard of a cluster has to be cut, if there are `left` bytes for it.

    Raises
    ------
    MemoryError
        If that is not possible.
    """
    # Arrays over words of the shard, and of the slices that are read, sampled and written.
    arrays = 200 * sizes.n_words + 100 * sizes.n_topics
    of_a_token, tokens = sizes.of_a_token, -(-sizes.n_tokens // n_shards)
    # Rows of all words, what the shard has added to them, what it adds now, and that as it will be sent.
    room = int(SLICES_SHARE * left) - arrays
    with_rows = room - 4 * sizes.rows - sizes.longest * of_a_token
    if with_rows > 0:
        return Division(math.ceil((tokens + sizes.longest) * of_a_token / with_rows), has_rows=True)
    # A shard owns up to the heaviest word more than an equal share of the tokens, and so has a slice of these.
    longer = sizes.longest + sizes.heaviest
    without, tokens_bytes = room - ON_THEIR_WAY - longer * of_a_token, (tokens + longer) * of_a_token
    # n slices have tables of of_tables * n * n bytes, for which there is a tenth of the room.
    of_tables = TABLES_OF_SLICES * n_shards
    least = (tokens_bytes * math.sqrt(10 * of_tables) / 0.9) ** (2 / 3)
    if without >= least:
        return Division(math.ceil(tokens_bytes / (0.9 * without)), has_rows=False)
    needed = arrays + ON_THEIR_WAY + longer * of_a_token + least
    raise MemoryError(
        f"arrays over {sizes.n_words} words and n_components={sizes.n_topics} topics, what workers send each other, "
        f"the longest document ({sizes.longest} tokens) and the word with most ({sizes.heaviest} tokens) need "
        f"{needed / 2**30:.3g} GiB, more than a shard may use: {SLICES_SHARE * left / 2**30:.3g} GiB, "
        f"{SLICES_SHARE:.0%} of what a worker may take until Dask spills. spill keeps tokens and rows of words on "
        "disk, not these: fit fewer topics, leave out the most frequent words, cut long documents, or use workers "
        "with more memory"
    )


def must_spill(estimator: Any, sizes: Sizes) -> bool:
    """Return whether a fit that may go to disk does so."""
    return estimator.spill != "auto" or sizes.in_memory > SHARE * memory_left()


@contextmanager
def opened(estimator: Any, sizes: Sizes) -> Iterator[Store]:
    """Give the store of a fit, and say so if the user has not named a folder."""
    named = None if estimator.spill == "auto" else estimator.spill
    with open_store(named) as store:
        if named is None:
            topic = np.dtype(topic_dtype(sizes.n_topics)).itemsize
            warnings.warn(
                f"the fit would need about {sizes.in_memory / 2**30:.3g} GiB, more than {SHARE:.0%} of the "
                f"{memory_left() / 2**30:.3g} GiB that are left of the memory limit: it puts "
                f"{sizes.n_tokens * (4 + (1 + sizes.mh_steps) * topic)} bytes of tokens into {store.folder!r}, in "
                "Dask's temporary directory, and removes them in the end. Give a folder as spill to choose where, and "
                "to be able to go on after an interruption.",
                SpillWarning,
                stacklevel=2,
            )
        yield store


class Resumed(NamedTuple):
    """A fit that goes on from its folder."""

    done: int
    topic_total: NDArray[np.int64]
    moved: tuple[int, int]
    #: Where document-topic priors have been learned: those that drew the pending proposals, and the next ones.
    alphas: tuple[NDArray[np.float64], ...]
    history: list[dict[str, Any]]
    hot_sweeps: int

    def model(self, program: WarpLDA) -> WarpModel:
        """Return the model at the end of the last sweep."""
        model = program.aggregate(None, [WarpReport(self.topic_total, self.moved, self.done)])
        if self.alphas:
            model = model._replace(alphas_before=self.alphas[0], alphas=self.alphas[1])
        return model

    def saved(self, program: WarpLDA, n_shards: int) -> Saved:
        """Return what a run of a program in so many shards goes on from."""
        state = SpilledState(self.done % 2, False, np.zeros_like(self.topic_total))
        return Saved(self.model(program), [state] * n_shards, [])


def commit(
    store: Store, fingerprint: dict[str, Any], model: WarpModel, history: list[dict[str, Any]], hot_sweeps: int
) -> None:
    """Let a later process go on from the end of the last sweep."""
    store.commit(fingerprint, topics_file(len(history)), values_of(model, history, hot_sweeps))


def values_of(model: WarpModel, history: list[dict[str, Any]], hot_sweeps: int) -> dict[str, Any]:
    """Return what a manifest says beside where the topics are."""
    learned = [] if model.alphas is None else [model.alphas_before, model.alphas]
    return {
        "done": len(history), "history": history, "hot_sweeps": hot_sweeps,
        "topic_total": np.asarray(model.topic_total, np.int64), "moved": list(model.moved), "alphas": learned,
    }  # fmt: skip


def resume(store: Store, fingerprint: dict[str, Any], *, n_tokens: int, n_topics: int, max_iter: int) -> Resumed | None:
    """Return what a fit goes on from, None if there is nothing in its folder; whatever else is there is removed."""
    check = partial(_check, store.folder, n_tokens, n_topics, max_iter)
    found: Resumed | None = store.read_manifest(fingerprint, check)
    kept = {"manifest", topics_file(found.done)} if found else set()
    store.remove(kept.__contains__)
    return found


def _check(folder: str, n_tokens: int, n_topics: int, max_iter: int, name: str, size: int, values: Any) -> Resumed:
    if name != topics_file(values["done"]):
        raise ValueError(f"topics in {name} after {values['done']!r} sweeps")
    return check_values(folder, n_tokens, n_topics, max_iter, size, values)


def check_values(folder: str, n_tokens: int, n_topics: int, max_iter: int, size: int, values: Any) -> Resumed:
    """Return what a manifest says, given the bytes of the topics that were found; raise if it is wrong."""
    done, history, hot_sweeps = values["done"], values["history"], values["hot_sweeps"]
    check_sweeps(folder, done, max_iter)
    if size != n_tokens * np.dtype(topic_dtype(n_topics)).itemsize:
        raise ValueError(f"{size} bytes of topics after {done} sweeps")
    words, documents = map(int, values["moved"])
    return Resumed(done, values["topic_total"], (words, documents), tuple(values["alphas"]), history, hot_sweeps)
