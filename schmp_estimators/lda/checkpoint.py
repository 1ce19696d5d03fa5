"""What a checkpoint of `DistributedLDA` belongs to, and what is to be made of the values in it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators import __version__
from schmp_estimators.core.io.checkpoint import check_array, check_history, check_sweeps
from schmp_estimators.core.program import Saved, identity
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.counts import Counts
from schmp_estimators.lda.priors import LEAST, MOST
from schmp_estimators.lda.programs.topics import TopicProgram, topic_dtype
from schmp_estimators.lda.start import HOT_SWEEPS

#: Documents whose entries are hashed together: so many that NumPy is fast, so few that they need no memory to speak of.
_HASHED_AT_ONCE = 1 << 12


class Restored(NamedTuple):
    """A fit that goes on."""

    #: Sweeps done.
    done: int
    saved: Saved
    history: list[dict[str, Any]]
    #: Sweeps of the tempered start that it began with.
    hot_sweeps: int
    #: Where document-topic priors have been learned: those that drew the pending proposals, and the next ones.
    alphas: tuple[NDArray[np.float64], ...]


def fingerprint(estimator: str, corpus: Corpus, program: TopicProgram[Any, Any], n_shards: int) -> dict[str, Any]:
    """Return what must be alike for a checkpoint to be a fit's own."""
    documents = corpus.rows.here(corpus.rows.each(_hash_documents, "hash-documents"))
    return {
        "estimator": estimator,
        "version": __version__,
        "data": hashlib.sha256(np.concatenate(documents).tobytes()).hexdigest(),
        **identity(program),
        **program.prior_identity(),
        "n_shards": None if program.partition_invariant else n_shards,
    }


def values_of(done: int, saved: Saved, history: list[dict[str, Any]], hot_sweeps: int) -> dict[str, Any]:
    """Return what is written: all counts follow from the topics."""
    learned = getattr(saved.model, "alphas", None)
    alphas = [] if learned is None else [saved.model.alphas_before, learned]
    kept = {"saved": saved._replace(model=None), "hot_sweeps": hot_sweeps, "alphas": alphas}
    return {"done": done, "history": history, **kept}


def restore(
    values: Any,
    *,
    url: str | os.PathLike[str],
    max_iter: int,
    program: TopicProgram[Any, Any],
    ends: Sequence[int],
) -> Restored:
    """Check what was read, and divide the topics among the shards of this fit.

    Parameters
    ----------
    values : nested lists and dicts
        From `values_of`, through a file.
    url : str or path-like
        That of the checkpoint, for messages.
    max_iter : int
        Number of sweeps of this fit.
    program : TopicProgram
        That of this fit.
    ends : sequence of n_shards + 1 ints
        Number of the first token of each shard, and of all tokens.

    Raises
    ------
    CheckpointMismatchError
        If more sweeps are done than this fit is to have.
    Exception
        If the values are not those of such a fit.
    """
    done, history, hot_sweeps = values["done"], values["history"], values.get("hot_sweeps", HOT_SWEEPS)
    check_history(history, done)
    check_sweeps(url, done, max_iter)
    if type(hot_sweeps) is not int:
        raise ValueError(f"a tempered start of {hot_sweeps!r} sweeps")
    alphas = tuple(values.get("alphas", ()))
    for prior in alphas:
        check_array("doc_topic_prior", prior, (program.n_components,), np.float64, LEAST, MOST)
    if len(alphas) not in (0, 2):
        raise ValueError(f"{len(alphas)} document-topic priors")
    _, states, _ = values["saved"]
    dtype, last = topic_dtype(program.n_components), program.n_components - 1
    pieces = list(pairwise(ends))
    if not program.partition_invariant:
        for topic, (a, b) in zip(states, pieces, strict=True):
            check_array("topics", topic, (b - a,), dtype, 0, last)
    else:  # it may come from other shards than those of this fit
        for topic in states:
            check_array("topics", topic, (np.size(topic),), dtype, 0, last)
        topic = np.concatenate(states)
        check_array("topics", topic, (ends[-1],), dtype)
        states = [topic[a:b] for a, b in pieces]
    return Restored(done, Saved(None, states, []), history, hot_sweeps, alphas)


def _hash_documents(counts: Counts) -> NDArray[np.uint64]:
    """Return a number for each document that follows from its words, whatever chunk it is in."""
    hashes = np.zeros(len(counts.indptr) - 1, np.uint64)
    for first in range(0, len(hashes), _HASHED_AT_ONCE):
        ptr = counts.indptr[first : first + _HASHED_AT_ONCE + 1]
        entries = slice(ptr[0], ptr[-1])
        mixed = (counts.indices[entries].astype(np.uint64) << np.uint64(32)) | counts.data[entries].astype(np.uint64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64's finalizer
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)])
        hashes[first : first + len(ptr) - 1] = np.diff(sums[ptr - ptr[0]])
    return hashes
