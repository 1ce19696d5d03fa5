"""The samplers of `DistributedLDA` by name, and which one "auto" is."""

from __future__ import annotations

from typing import Any

from schmp_estimators.lda.programs.topics import TopicProgram
from schmp_estimators.lda.programs.warp import WarpLDA
from schmp_estimators.lda.samplers.alias import AliasLDA
from schmp_estimators.lda.samplers.fplus import DataParallelLDA, FPlusLDA
from schmp_estimators.lda.samplers.frozen import FrozenLDA
from schmp_estimators.lda.samplers.hybrid import HybridLDA
from schmp_estimators.lda.samplers.light import LightDocumentLDA, LightLDA, LightWordLDA
from schmp_estimators.lda.samplers.saber import SaberLDA
from schmp_estimators.lda.samplers.sparse import SparseLDA

#: Every sampler under the name that users give.
SAMPLERS: dict[str, type[TopicProgram[Any, Any]]] = {
    program.sampler: program
    for program in (
        *(WarpLDA, FrozenLDA, SaberLDA, FPlusLDA, SparseLDA, LightLDA, LightWordLDA, LightDocumentLDA, AliasLDA),
        *(HybridLDA, DataParallelLDA),
    )
}
#: The most proposals for a token, in a pass of "warp" and in a sweep by others: "warp" keeps those of all tokens.
WARP_STEPS, MOST_STEPS = 4, 16


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


def check_steps(name: str, mh_steps: int) -> None:
    """Raise ValueError if a sampler, which may be "auto", does not make so many proposals."""
    if mh_steps > WARP_STEPS and (name in ("auto", "warp") or not SAMPLERS[name].options):
        named = ", ".join(repr(one) for one, kind in SAMPLERS.items() if kind.options and one != "warp")
        raise ValueError(
            f"mh_steps={mh_steps} with sampler={name!r}: give at most {WARP_STEPS}, or one of the samplers {named}, "
            "which make more proposals for a token"
        )
