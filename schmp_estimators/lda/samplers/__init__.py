"""The samplers of `DistributedLDA` by name, and which one "auto" is."""

from importlib import import_module
from typing import Any, cast

from schmp_estimators.lda.programs.topics import TopicProgram

#: Module and class of the program of each sampler, by the name that users give.
SAMPLERS = {
    "warp": "warp:WarpLDA",
    "frozen": "frozen:FrozenLDA",
    "saber": "saber:SaberLDA",
    "fplus": "fplus:FPlusLDA",
    "sparse": "sparse:SparseLDA",
    "light": "light:LightLDA",
    "light-word": "light:LightWordLDA",
    "light-document": "light:LightDocumentLDA",
    "alias": "alias:AliasLDA",
    "hybrid": "hybrid:HybridLDA",
    "data-parallel": "fplus:DataParallelLDA",
}


def program_of(sampler: str) -> type[TopicProgram[Any]]:
    """Return the class of a sampler's program.  It is imported now: to import all takes a fifth of a second."""
    module, _, kind = SAMPLERS[sampler].partition(":")
    return cast("type[TopicProgram[Any]]", getattr(import_module(f"{__name__}.{module}"), kind))


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
    name: str, *, n_topics: int, n_used_words: int, n_tokens: int, n_docs: int
) -> str:
    """Return the name of the sampler to take.

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
        return name
    if n_topics <= FEW_TOPICS:
        return "frozen" if 4 * n_topics * n_used_words <= TABLE else "warp"
    has_short = n_topics <= MANY_TOPICS and n_tokens <= min(MANY_TOKENS, SHORT_DOCUMENT * n_docs)
    return "saber" if has_short else "warp"


def check_steps(name: str, mh_steps: int | str) -> None:
    """Raise ValueError if a sampler, which may be "auto", does not make so many proposals."""
    if isinstance(mh_steps, str):  # "acceptance"
        if name != "hybrid":
            raise ValueError(
                f"mh_steps={mh_steps!r} with sampler={name!r}: give a number, or sampler='hybrid', "
                "which counts how many proposals are accepted"
            )
        return
    if mh_steps <= WARP_STEPS:
        return
    able = [one for one in SAMPLERS if one != "warp" and hasattr(program_of(one), "mh_steps")]
    if name not in able:
        raise ValueError(
            f"mh_steps={mh_steps} with sampler={name!r}: give at most {WARP_STEPS}, or one of the samplers "
            f"{', '.join(map(repr, able))}, which make more proposals for a token"
        )
