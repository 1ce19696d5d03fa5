"""What the frozen-count sampler's states, reports and model are made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class WarpState(NamedTuple):
    """What changes of a shard."""

    #: (n_tokens, 1 + mh_steps) topic and pending proposals of each token, word-major; int16 or int32.
    tokens: NDArray[np.signedinteger]
    #: (n_blocks,) tokens of each block that moved to another topic in the last word pass.
    moved: NDArray[np.int64]
    #: (K,) tokens of each topic after the last document pass; nothing in the pieces of a divided state.
    totals: NDArray[np.int64]
    #: Tokens that moved in the last document pass.
    moved_by_documents: int = 0


class WarpReport(NamedTuple):
    """What a shard reports at the end of a sweep."""

    #: (K,) tokens of each topic, and counts in the fixed rows that the shard keeps.
    topic_total: NDArray[np.int64]
    #: Tokens that moved to another topic in the word pass and in the document pass.
    moved: tuple[int, int]
    #: Sweeps done.
    sweep: int


class WarpModel(NamedTuple):
    """What every token reads."""

    #: (K,) counts of each topic, earlier batches included.
    topic_total: NDArray[np.int64]
    #: (K,) ``1 / (topic_total + V beta)``, rounded once so that all shards use the same bits.
    inverse: NDArray[np.float32]
    #: Tokens that moved to another topic in the word pass and in the document pass.
    moved: tuple[int, int]
    #: The joint log-likelihood and its parts, if it has just been measured.
    likelihood: tuple[float, ...] = ()
    #: (K,) document-topic priors that have been learned, if there are, and those of the last document pass.
    alphas: NDArray[np.float64] | None = None
    alphas_before: NDArray[np.float64] | None = None
