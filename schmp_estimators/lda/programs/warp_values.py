"""What the frozen-count sampler's states, reports and model are made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.values import align
from schmp_estimators.lda.blocks import WordBlock
from schmp_estimators.lda.data.parcels import Parcel
from schmp_estimators.lda.programs.blocks import WordPart
from schmp_estimators.lda.programs.learning import Learned


class InOrder:
    """Topics in document order for who asks first: then nothing holds them that lives as long as the state.

    Parameters
    ----------
    topics : (n_tokens,) int16 or int32
    """

    def __init__(self, topics: NDArray[np.signedinteger]) -> None:
        self._topics: NDArray[np.signedinteger] | None = topics

    def take(self) -> NDArray[np.signedinteger] | None:
        """Return them, or None if somebody has them."""
        topics, self._topics = self._topics, None
        return topics


class WarpState(NamedTuple):
    """What changes of a shard."""

    #: (n_tokens, 1 + mh_steps) topic and pending proposals of each token, word-major; int16 or int32.
    tokens: NDArray[np.signedinteger]
    #: (K,) tokens of each topic after the last document pass; int32, or int64 if a shard has too many tokens for that.
    #: Empty once they have been reported.
    totals: NDArray[np.integer]
    #: Tokens that moved to another topic in the last word pass.
    moved_by_words: int = 0
    #: Tokens that moved in the last document pass.
    moved_by_documents: int = 0
    #: Where it was known that they would be saved.
    saved: InOrder | None = None


class WarpPiece(NamedTuple):
    """What a shard has for the owner of a block."""

    #: Topics of the words whose rows travel; None if there are none.
    part: WordPart | None
    #: Tokens of the other words, word-major; or their topics, where it is for a look at them.
    parcel: Parcel


class WarpAnswer(NamedTuple):
    """What the owner of a block has for a shard."""

    #: Rows of the words whose rows travel; None if there are none.
    block: WordBlock | None
    #: Tokens of the other words, sampled, in the order in which they came; None where these have been sampled where
    #: they are.
    parcel: Parcel | None
    #: Of them, those that moved to another topic; the tokens of all shards in the answer to the first one.
    moved: int


class WarpReport(NamedTuple):
    """What a shard reports at the end of a sweep."""

    #: (K,) tokens of each topic, and counts in the fixed rows that the shard keeps; in as few bits as they need.
    topic_total: NDArray[np.integer]
    #: Tokens that moved to another topic in the word pass and in the document pass.
    moved: tuple[int, int]
    #: Sweeps done.
    sweep: int


class WarpModel(NamedTuple):
    """What every token reads."""

    #: (K,) counts of each topic, earlier batches included; in as few bits as they need.
    topic_total: NDArray[np.integer]
    #: (K,) ``1 / (topic_total + V beta)``, rounded once so that all shards use the same bits.
    inverse: NDArray[np.float32]
    #: Tokens that moved to another topic in the word pass and in the document pass.
    moved: tuple[int, int]
    #: The joint log-likelihood and its parts, if it has just been measured.
    likelihood: tuple[float, ...] = ()
    #: Priors that have been learned, if there are, and those of the last document pass.
    learned: Learned = Learned()
    learned_before: Learned = Learned()

    def __reduce__(self) -> tuple[Any, ...]:
        """Arrive with arrays where they should be: else each task that reads them would copy them."""
        return _model, tuple(self)


def _model(*values: Any) -> WarpModel:
    return WarpModel(*align(values))
