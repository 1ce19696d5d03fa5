"""Topic models: the samplers on 100,000 tokens and 200 topics, and topics of new documents."""

from abc import abstractmethod
from functools import cache

import numpy as np
import scipy.sparse as sp

from schmp_estimators.core.values import freeze, own
from schmp_estimators.lda.blocks import HEAD, WordBlock, no_rows
from schmp_estimators.lda.data.counts import canonical_counts, count_words
from schmp_estimators.lda.data.tokens import Plan, make_layout, make_shard, shard_offsets
from schmp_estimators.lda.data.topic_rows import order_rows, rows_of_lists
from schmp_estimators.lda.kernels import aliased, ftree, light, sparse
from schmp_estimators.lda.kernels.draw import padded
from schmp_estimators.lda.kernels.foldin import fold_in, make_scratch, rows_of_words, topic_model
from schmp_estimators.lda.kernels.fplus import sample_cell
from schmp_estimators.lda.kernels.frozen import Frozen, sample_documents
from schmp_estimators.lda.kernels.frozen_rows import make_rows
from schmp_estimators.lda.kernels.hybrid import sample_hybrid
from schmp_estimators.lda.kernels.lists import empty_lists, list_topics, order_lists
from schmp_estimators.lda.kernels.visits import no_visits, order_visits
from schmp_estimators.lda.kernels.warp import sample_words
from schmp_estimators.lda.kernels.warp_documents import start_documents

from .one_kernel import OneKernel

N_TOPICS, N_WORDS, N_DOCS, LENGTH = 200, 4000, 600, 170
ALPHA, BETA = 0.1, 0.01
KEY = np.uint64(12345)


@cache
def corpus():
    """Return counts, and the topics of their tokens in document order: as sparse as those of a fit that has settled."""
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
    plan = Plan(words, layout, shard_offsets([words], layout)[0], no_rows(N_WORDS))
    return freeze(make_shard([counts], plan)), layout


@cache
def started(n_steps):
    """Return topics with `n_steps` proposals of every token, word-major, and the topic totals."""
    shard, _ = one_shard()
    topics = freeze(corpus()[1])
    tokens, totals = np.empty(len(topics) * (1 + n_steps), topics.dtype), np.zeros(N_TOPICS, np.int64)
    steps = (0,) * n_steps
    start_documents(0, N_DOCS, shard, topics, tokens, np.float32(ALPHA), KEY, KEY, totals, steps)
    return tokens, totals


class WarpWords(OneKernel):
    """The word pass of "warp", two proposals, one shard."""

    kernel = staticmethod(sample_words)

    def fresh(self):
        tokens, totals = started(2)
        inverse = (1.0 / (totals + N_WORDS * BETA)).astype(np.float32)
        return (0, N_WORDS, one_shard()[0], own(tokens), freeze(inverse), np.float32(BETA), KEY, False, (0, 0))


@cache
def cell():
    """Return what "fplus" changes: the rows of all words, topics, and topic lists; and documents, word-major."""
    shard, _ = one_shard()
    topic, totals = started(0)
    n_heads = int(np.count_nonzero(np.diff(shard.word_ptr) >= HEAD * N_TOPICS))
    first_tail = shard.word_ptr[n_heads]
    word = np.repeat(np.arange(n_heads), np.diff(shard.word_ptr[: n_heads + 1]))
    heads = np.zeros((n_heads, N_TOPICS), np.int32)
    np.add.at(heads, (word, topic[:first_tail]), 1)
    block = WordBlock(heads, shard.word_ptr[n_heads:] - first_tail, topic[first_tail:], shard.fixed)
    document, lists = np.empty(len(topic), np.uint32), empty_lists(shard.doc_ptr, N_TOPICS, topic.dtype.type)
    list_topics(shard.doc_ptr, shard.place, freeze(topic), N_TOPICS, document, lists)
    order_lists(lists)
    return block, topic, lists, totals, document


def fresh_rows():
    """Return the rows of all words, to be changed."""
    block = cell()[0]
    return WordBlock(own(block.heads), freeze(block.tail_ptr), own(block.tails), freeze(block.fixed))


class FplusCell(OneKernel):
    """All words and all documents as one cell of "fplus"."""

    kernel = staticmethod(sample_cell)

    def fresh(self):
        _, topic, lists, totals, document = cell()
        return (
            0, N_WORDS, one_shard()[0], fresh_rows(), own(topic), freeze(document), own(lists), own(totals),
            freeze(ftree.level_offsets(N_TOPICS)), ALPHA, BETA, N_WORDS * BETA, KEY, None,
        )  # fmt: skip


class HybridCell(FplusCell):
    """The same of "hybrid", where every document makes two proposals for each token."""

    kernel = staticmethod(sample_hybrid)

    def fresh(self):
        return (*super().fresh()[:-1], KEY + np.uint64(1), LENGTH - 1, 2, None)


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
        make_rows(
            0, len(words), freeze(words), shard.word_ptr, freeze(topic), freeze(totals), shard.fixed, BETA, beta_sum,
            rows, None,
        )  # fmt: skip
        frozen = freeze(Frozen(rows, np.full(N_TOPICS, ALPHA), totals, BETA, beta_sum))
        return (0, N_DOCS, shard, freeze(word), own(topic), frozen, KEY, np.zeros(N_TOPICS, np.int64), None)


@cache
def visited():
    """Return the tokens as samplers visit them that go document by document."""
    shard, _ = one_shard()
    visits = no_visits(len(shard.place), N_DOCS, 1)
    order_visits(shard, visits)
    return freeze(visits)


class ByDocument(OneKernel):
    """All words and all documents as one cell of a sampler that goes document by document."""

    @property
    @abstractmethod
    def options(self):
        """What a kernel takes beside what all of them take."""

    def fresh(self):
        return (
            0, one_shard()[0], fresh_rows(), visited(), own(corpus()[1]), own(started(0)[1]), *self.options,
            freeze(np.full(N_TOPICS, ALPHA)), BETA, N_WORDS * BETA, KEY, None,
        )  # fmt: skip


class SparseCell(ByDocument):
    """Of "sparse"."""

    kernel = staticmethod(sparse.sample_cell)
    options = (freeze(ftree.level_offsets(N_TOPICS)),)


class LightCell(ByDocument):
    """Of "light", with two proposals of each kind."""

    kernel = staticmethod(light.sample_cell)
    options = (2,)


class AliasCell(ByDocument):
    """Of "alias", with two proposals."""

    kernel = staticmethod(aliased.sample_cell)
    options = (2, HEAD * N_TOPICS, 0)


@cache
def fitted():
    """Return the topics of the corpus as fold-in wants them."""
    shard, layout = one_shard()
    rows = order_rows(rows_of_lists(shard.word_ptr, started(0)[0], N_TOPICS), np.argsort(layout.column), N_TOPICS)
    return freeze(topic_model(rows, started(0)[1], ALPHA, BETA))


class FoldIn(OneKernel):
    """Topic proportions of 100 documents under given topics."""

    kernel = staticmethod(fold_in)

    def fresh(self):
        counts, _ = corpus()
        ptr, words, tokens = freeze((counts[0][:101], *counts[1:3]))
        rows = rows_of_words(fitted().rows, words)
        return ptr, tokens, rows, fitted()[1:], make_scratch(ptr, rows, N_TOPICS), np.zeros((100, N_TOPICS))
