"""The joint log-likelihood of topic programs, put together from integers: its bits do not depend on the shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.values import freeze
from schmp_estimators.lda.blocks import TokenShard, WordBlock
from schmp_estimators.lda.data.topic_rows import add_rows, cut_rows
from schmp_estimators.lda.kernels.likelihood import (
    Histogram,
    asymmetric_log_likelihood,
    count_histogram,
    document_histogram,
    document_log_likelihood,
    merge,
    word_histogram,
    word_log_likelihood,
)
from schmp_estimators.lda.kernels.topic_counts import TopicCounts, merge_counts, topic_counts

#: What a record calls the joint log-likelihood and its parts.
LIKELIHOODS = ("log_likelihood", "document_log_likelihood", "word_log_likelihood")


class ShardMeasure(NamedTuple):
    """What the likelihood must know of a shard."""

    #: Of the counts of topics in documents: of each topic, where each has a prior of its own.
    documents: Histogram | TopicCounts
    #: Of the lengths of documents.
    lengths: Histogram
    #: Of the counts of topics in words, where the shard has all tokens and there are no blocks.
    words: Histogram | None


def measure_shard(
    shard: TokenShard, topic: NDArray[Any], n_components: int, *, has_blocks: bool, by_topic: bool
) -> ShardMeasure:
    """Measure a shard, given its topics in word-major order."""
    topic = freeze(topic)
    count = topic_counts if by_topic else document_histogram
    documents = count(shard.doc_ptr, shard.place, topic, n_components)
    lengths = count_histogram(np.diff(shard.doc_ptr))
    words = None if has_blocks else word_histogram(shard.word_ptr, topic, n_components, shard.fixed)
    return ShardMeasure(documents, lengths, words)


def measure_block(block: WordBlock, n_components: int) -> Histogram:
    """Return the histogram of the counts of topics in the words of a block, earlier batches included."""
    n_heads, n_words = len(block.heads), len(block.fixed.ptr) - 1
    heads = add_rows(block.heads, cut_rows(block.fixed, 0, n_heads))
    fixed = cut_rows(block.fixed, n_heads, n_words)
    return merge([count_histogram(heads), word_histogram(block.tail_ptr, block.tails, n_components, freeze(fixed))])


def merge_some(*histograms: Histogram | None) -> Histogram | None:
    """Return the histogram of all tables of which there is one, None if there is none."""
    found = [one for one in histograms if one is not None]
    return merge(found) if found else None


def merge_shards(one: ShardMeasure, other: ShardMeasure) -> ShardMeasure:
    """Return the measure of two shards taken together."""
    lengths = merge([one.lengths, other.lengths])
    return ShardMeasure(_merge_documents([one, other]), lengths, merge_some(one.words, other.words))


def _merge_documents(shards: Sequence[ShardMeasure]) -> Histogram | TopicCounts:
    of_topics = [shard.documents for shard in shards if isinstance(shard.documents, TopicCounts)]
    plain = [shard.documents for shard in shards if isinstance(shard.documents, Histogram)]
    return merge_counts(of_topics) if of_topics else merge(plain)


def joint_log_likelihood(
    shards: Sequence[ShardMeasure],
    words: Histogram,
    topic_total: NDArray[np.int64],
    n_words: int,
    doc_topic_prior: float | NDArray[np.float64],
    topic_word_prior: float,
) -> tuple[float, float, float]:
    """Return the joint log-likelihood and its two parts, as in `LIKELIHOODS`, from all measures."""
    documents, lengths = _merge_documents(shards), merge([shard.lengths for shard in shards])
    if isinstance(documents, TopicCounts):
        of_documents = asymmetric_log_likelihood(documents, lengths, np.asarray(doc_topic_prior))
    else:
        of_documents = document_log_likelihood(documents, lengths, float(doc_topic_prior), len(topic_total))
    of_words = word_log_likelihood(words, topic_total, topic_word_prior, n_words)
    return of_documents + of_words, of_documents, of_words
