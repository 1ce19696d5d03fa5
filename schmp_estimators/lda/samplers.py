"""The samplers of `DistributedLDA` by name, and which one "auto" is."""

from __future__ import annotations

from typing import Any

from schmp_estimators.lda.programs.aliased import AliasLDA
from schmp_estimators.lda.programs.data_parallel import DataParallelLDA
from schmp_estimators.lda.programs.fplus import FPlusLDA
from schmp_estimators.lda.programs.frozen import FrozenLDA
from schmp_estimators.lda.programs.hybrid import HybridLDA
from schmp_estimators.lda.programs.light import LightLDA
from schmp_estimators.lda.programs.saber import SaberLDA
from schmp_estimators.lda.programs.sparse import SparseLDA
from schmp_estimators.lda.programs.topics import TopicProgram
from schmp_estimators.lda.programs.warp import WarpLDA

#: Every sampler under the name that users give.
SAMPLERS: dict[str, type[TopicProgram[Any, Any]]] = {
    program.sampler: program
    for program in (WarpLDA, FrozenLDA, SaberLDA, FPlusLDA, SparseLDA, LightLDA, AliasLDA, HybridLDA, DataParallelLDA)
}


#: Up to so many topics "auto" draws from all of them at once: measured in docs/measurements/lda.
FEW_TOPICS = 256
#: Weights of words that "auto" lets that take, in bytes: beyond, they are far from any cache.
TABLE = 1 << 27
#: Up to so many tokens of a document, on average, and so many topics "auto" looks at all topics of a document, in
#: corpora of no more than so many tokens: larger ones are for many workers, among whom "warp" is divided at less cost.
SHORT_DOCUMENT, MANY_TOPICS, MANY_TOKENS = 300, 1 << 12, 1 << 25


def choose_sampler(
    name: str, *, n_topics: int = 0, n_used_words: int = 0, n_tokens: int = 0, n_docs: int = 0
) -> type[TopicProgram[Any, Any]]:
    """Return the program of a sampler.

    Parameters
    ----------
    name : str
        One of `SAMPLERS`, or "auto", which depends on the other parameters: never on the place.
    n_topics, n_used_words : int
        Size of the model, without words that no document has.
    n_tokens, n_docs : int
        Size of the corpus.
    """
    if name != "auto":
        return SAMPLERS[name]
    if n_topics <= FEW_TOPICS:
        return FrozenLDA if 4 * n_topics * n_used_words <= TABLE else WarpLDA
    return SaberLDA if n_topics <= MANY_TOPICS and n_tokens <= min(MANY_TOKENS, SHORT_DOCUMENT * n_docs) else WarpLDA
