"""What the shards, blocks and checkpoints of the frozen-count sampler are made of."""

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
    #: Sweeps done.
    sweep: int


class WarpSaved(NamedTuple):
    """The least from which a state can be restored at the end of a sweep."""

    #: (n_tokens,) topics in document order.
    topic: NDArray[np.signedinteger]
    #: Sweeps done.
    sweep: int


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
