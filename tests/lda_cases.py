"""Small corpora, and fits of them by the serial engine."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
from definition import run_serial
from scipy import sparse

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.data.counts import canonical_counts, count_words
from schmp_estimators.lda.data.shards import Plan, local_columns, make_layout, make_shard
from schmp_estimators.lda.data.topic_rows import (
    counts_of_rows,
    rows_of_counts_array,
)
from schmp_estimators.lda.samplers.warp import WarpLDA

#: How 12 documents may be divided: before which of them the shards after the first begin.
CUTS = [(), (6,), (1, 10), (0, 2, 2, 5, 6, 9, 12)]


def random_counts(seed, n_docs=12, n_words=9, rate=1.5):
    """Counts with empty documents, unused words, and a few heavy ones."""
    rng = np.random.default_rng(seed)
    heavy = rng.gamma(0.5, 2.0, n_words) * (rng.random(n_words) < 0.8)
    counts = rng.poisson(rate * np.outer(rng.gamma(1.0, 1.0, n_docs), heavy))
    counts[rng.random(n_docs) < 0.2] = 0
    return counts.astype(np.int32)


def make_shards(counts, cuts=(), seeds=None, exchanged=False):
    """Shards of a dense matrix cut before the given rows; `seeds` are dense rows of all words.

    Of the words of a block, some are to be sampled locally, none, or all; all, if none may be
    exchanged: then every shard knows of all words.
    """
    pieces = [[canonical_counts(counts[a:b])] for a, b in pairwise([0, *cuts, len(counts)])]
    word_counts = [count_words(piece, counts.shape[1]) for piece in pieces]
    layout = make_layout(np.sum(word_counts, axis=0), len(pieces))
    sizes = np.diff(layout.block_ptr)
    n_local = (
        (3 * np.arange(len(sizes)) + 2) % (sizes + 1) if exchanged and len(pieces) > 1 else sizes
    )
    columns, first_token, shards = local_columns(layout, n_local), 0, []
    for index, (piece, words) in enumerate(zip(pieces, word_counts, strict=True)):
        before = np.sum([np.zeros_like(words), *word_counts[:index]], axis=0)[columns]
        plan = Plan(index, layout, np.sum(word_counts, axis=0), n_local, first_token)
        plan = plan._replace(seeds=None if seeds is None else sparse.csc_array(np.transpose(seeds)))
        shards.append(make_shard(piece, before, words[columns], plan))
        first_token += int(words.sum())
    return freeze(shards), layout


def fit(
    counts, n_components, *, kind=WarpLDA, cuts=(), n_sweeps=3, seeds=None, saved=None, first=0,
    engine=run_serial, history=(), **parameters,
):  # fmt: skip
    """Fit; return the topics in document order after each sweep, records, and rows by column.

    With `saved` topics alone, the run follows from the `history`, too, as after a checkpoint.
    """
    shards, layout = make_shards(counts, cuts, seeds, exchanged=not kind.rotates)
    parameters = {
        "doc_topic_prior": 0.3,
        "topic_word_prior": 0.1,
        "seed": 5,
        "evaluate_every": 1,
    } | parameters
    if seeds is not None:
        parameters |= {"seed_totals": np.sum(seeds, axis=0, dtype=float), "begins_seeded": True}
    program = kind(n_components=n_components, n_words=counts.shape[1], **parameters)
    if history:
        program = program.following(history)
    topics, records = [], []
    for record, last, kept in engine(program, shards, n_sweeps, saved, first):
        topics.append(np.concatenate(kept.shards))
        records.append(record)
        harvest = last
    rows = rows_of_counts_array(
        counts_of_rows(harvest.blocks or harvest.shards, layout, n_components)
    )
    return SimpleNamespace(
        topics=topics, records=records, rows=rows, saved=kept, model=harvest.model
    )


def old_rows(seed, counts, n_components):
    """Counts of earlier batches, for most words: seeds that are whole."""
    rng = np.random.default_rng(seed)
    return rng.poisson(3.0, (counts.shape[1], n_components)) * (
        rng.random((counts.shape[1], 1)) < 0.7
    )


def token_words(counts):
    """The word of each token, in document order."""
    return np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.reshape(-1))
