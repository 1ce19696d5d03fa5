"""Topic models: the samplers on 100,000 tokens and 200 topics, and topics of new documents."""

from functools import cache

import numpy as np
import scipy.sparse as sp

from schmp_estimators.core.stages import At
from schmp_estimators.core.values import freeze, own
from schmp_estimators.lda.blocks import HEAD, WordBlock
from schmp_estimators.lda.data.counts import canonical_counts, count_words
from schmp_estimators.lda.data.shards import Plan, make_layout, make_shard
from schmp_estimators.lda.data.topic_rows import counts_of_rows, rows_of_counts_array, rows_of_lists
from schmp_estimators.lda.kernels import warp_documents
from schmp_estimators.lda.kernels.draw import padded
from schmp_estimators.lda.kernels.foldin import fold_in, make_scratch, rows_of_words, topic_model
from schmp_estimators.lda.kernels.frozen import frozen_of, make_slots, sample_documents, take_rows
from schmp_estimators.lda.kernels.warp import pieces_of, sample_words
from schmp_estimators.lda.programs.sequential import SequentialSampler
from schmp_estimators.lda.programs.topics import SweepModel
from schmp_estimators.lda.samplers.alias import AliasLDA
from schmp_estimators.lda.samplers.fplus import FPlusLDA
from schmp_estimators.lda.samplers.hybrid import HybridLDA, sample_hybrid
from schmp_estimators.lda.samplers.light import LightLDA
from schmp_estimators.lda.samplers.sparse import SparseLDA

from .one_kernel import OneKernel

N_TOPICS, N_WORDS, N_DOCS, LENGTH = 200, 4000, 600, 170
ALPHA, BETA = 0.1, 0.01
KEY = np.uint64(12345)


@cache
def corpus():
    """Return counts, and the topics of their tokens in document order.

    They are as sparse as those of a fit that has settled.
    """
    rng = np.random.default_rng(0)
    document = np.repeat(np.arange(N_DOCS), LENGTH)
    topic = rng.integers(0, N_TOPICS, (N_DOCS, 5))[document, rng.integers(0, 5, len(document))]
    weight = 1.0 / np.arange(1, N_WORDS + 1)
    rank = np.searchsorted(np.cumsum(weight / weight.sum()), rng.random(len(document)))
    # every topic has an order of the words of its own, but for the 50 that all of them use
    word = np.where(rank < 50, rank, 50 + (rank + 37 * topic) % (N_WORDS - 50))
    order = np.lexsort((topic, word, document))
    counts = sp.csr_array((np.ones(len(word), np.int32), (document, word)), shape=(N_DOCS, N_WORDS))
    return canonical_counts(counts), topic[order].astype(np.int16)


@cache
def one_shard():
    """Return the tokens of all documents as one shard, and the layout of the words."""
    counts, _ = corpus()
    words = count_words([counts], N_WORDS)
    layout = make_layout(words, 1)
    plan = Plan(0, layout, words, np.array([N_WORDS]), 0)
    before, own = np.zeros(N_WORDS, np.int64), words[layout.column]
    return freeze(make_shard([counts], before, own, plan)), layout


@cache
def started(n_steps):
    """Return topics with `n_steps` proposals of every token, word-major, and the topic totals."""
    shard, _ = one_shard()
    topics = freeze(corpus()[1])
    tokens, totals = (
        np.empty((len(topics), 1 + n_steps), topics.dtype),
        np.zeros(N_TOPICS, np.int64),
    )
    tokens[shard.place] = topics[:, None]  # proposals that change nothing
    inverse = freeze(np.ones(N_TOPICS, np.float32))
    given = totals, shard, tokens.reshape(-1), inverse, np.float32(ALPHA), KEY, (0,) * n_steps
    warp_documents.sample_documents(0, N_DOCS, *given)
    return tokens.reshape(-1), totals


class WarpWords(OneKernel):
    """The word pass of "warp", two proposals, one shard."""

    kernel = staticmethod(sample_words)

    def fresh(self):
        tokens, totals = started(2)
        inverse = (1.0 / (totals + N_WORDS * BETA)).astype(np.float32)
        shard, tokens = one_shard()[0], own(tokens).reshape(-1, 3)
        words = freeze(pieces_of(tokens, shard.word_ptr)), shard.word_first, None, None
        types = tokens[:0].reshape(-1), np.empty(0, np.int16)  # a view keeps the tokens
        given = types, freeze(inverse), np.float32(BETA), KEY
        return (0, N_WORDS, *words, *given, (0, 0))


@cache
def block():
    """Return the rows of all words."""
    shard, (topic, _) = one_shard()[0], started(0)
    n_heads = int(np.count_nonzero(np.diff(shard.word_ptr) >= HEAD * N_TOPICS))
    first_tail = shard.word_ptr[n_heads]
    word = np.repeat(np.arange(n_heads), np.diff(shard.word_ptr[: n_heads + 1]))
    heads = np.zeros((n_heads, N_TOPICS), np.int32)
    np.add.at(heads, (word, topic[:first_tail]), 1)
    return WordBlock(heads, shard.word_ptr[n_heads:] - first_tail, topic[first_tail:])


@cache
def sampled(program):
    """Return what a sampler keeps of the shard."""
    at = At(one_shard()[0], None, -1, 0, 1, n_blocks=1)
    return program.restore(at, corpus()[1])[0]


class Cell(OneKernel):
    """All words and all documents as one cell of a sampler that sees counts as they change."""

    program: SequentialSampler

    def fresh(self):
        model = SweepModel(started(0)[1], n_tokens=len(corpus()[1]))
        at = At(one_shard()[0], model, 0, 0, 1, block=0, n_blocks=1)
        return (self.program.cell(at, own(sampled(self.program)), own(block())),)


def priors(kind, **options):
    """Return a program with the priors of the corpus."""
    given = {"doc_topic_prior": ALPHA, "topic_word_prior": BETA}
    return kind(n_components=N_TOPICS, n_words=N_WORDS, **given, **options)


class FplusCell(Cell):
    """Of "fplus"."""

    program = priors(FPlusLDA)
    kernel = staticmethod(FPlusLDA.kernel)


class HybridCell(Cell):
    """Of "hybrid", where every document makes two proposals for each token."""

    program = priors(HybridLDA, long_document=LENGTH - 1)
    kernel = staticmethod(sample_hybrid)


class SparseCell(Cell):
    """Of "sparse"."""

    program = priors(SparseLDA)
    kernel = staticmethod(SparseLDA.kernel)


class LightCell(Cell):
    """Of "light", with two proposals of each kind."""

    program = priors(LightLDA)
    kernel = staticmethod(LightLDA.kernel)


class AliasCell(Cell):
    """Of "alias", with two proposals."""

    program = priors(AliasLDA)
    kernel = staticmethod(AliasLDA.kernel)


class FrozenDocuments(OneKernel):
    """All documents of "frozen", whose rows are there."""

    kernel = staticmethod(sample_documents)

    def fresh(self):
        shard, (topic, totals) = one_shard()[0], started(0)
        rows, sizes = np.zeros((N_WORDS, padded(N_TOPICS)), np.float32), np.diff(shard.word_ptr)
        words = np.flatnonzero(sizes)
        word = np.repeat(np.arange(len(words), dtype=np.uint32), sizes[words])[shard.place]
        rows = rows[: len(words)]
        beta_sum = N_WORDS * BETA
        whole = freeze(WordBlock(np.zeros((0, N_TOPICS), np.int32), shard.word_ptr, topic))
        inverse = 1.0 / (totals + beta_sum)
        take_rows(0, len(words), freeze(words), whole, inverse, BETA, rows, None)
        frozen = freeze(frozen_of(rows, np.full(N_TOPICS, ALPHA), totals, BETA, beta_sum))
        slots = make_slots(np.diff(shard.doc_ptr), N_TOPICS, topic.dtype)
        given = (
            0,
            N_DOCS,
            shard,
            freeze(word),
            own(topic),
            frozen,
        )
        return (*given, KEY, slots, np.zeros(N_TOPICS, np.int64), None)


@cache
def fitted():
    """Return the topics of the corpus as fold-in wants them."""
    shard, layout = one_shard()
    rows = rows_of_lists(shard.word_ptr, started(0)[0], N_TOPICS)
    rows = rows_of_counts_array(counts_of_rows([rows], layout, N_TOPICS))
    return freeze(topic_model(rows, started(0)[1], ALPHA, BETA, 1e-3))


class FoldIn(OneKernel):
    """Topic proportions of 100 documents under given topics."""

    kernel = staticmethod(fold_in)

    def fresh(self):
        counts, _ = corpus()
        ptr, words, tokens = freeze((counts[0][:101], *counts[1:3]))
        rows = rows_of_words(fitted().rows, words)
        lengths = np.add.reduceat(tokens, ptr[:-1]).astype(np.float64)
        theta = np.repeat(
            (lengths[:, None] + fitted().priors.alpha_sum) / N_TOPICS, N_TOPICS, axis=1
        )
        return (
            ptr,
            tokens,
            freeze(lengths),
            rows,
            fitted().priors,
            make_scratch(ptr, rows, N_TOPICS),
            theta,
        )
