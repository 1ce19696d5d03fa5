"""The samplers of `DistributedLDA` by name, and which one "auto" is."""

from importlib import import_module
from typing import Any, cast

from schmp_estimators.lda.programs.topics import TopicSampler

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


def program_of(sampler: str) -> type[TopicSampler[Any]]:
    """Return the class of a sampler's program.  It is imported now: to import all takes a fifth of a second."""
    module, _, kind = SAMPLERS[sampler].partition(":")
    return cast("type[TopicSampler[Any]]", getattr(import_module(f"{__name__}.{module}"), kind))


#: The most proposals for a token, in a pass of "warp" and in a sweep by others: "warp" keeps those of all tokens.
WARP_STEPS, MOST_STEPS = 4, 16
#: The default, which samplers without proposals accept, too.
USUAL_STEPS = 2


#: Up to so many topics "auto" draws from all of them at once: measured in docs/measurements/lda.
FEW_TOPICS = 256
#: Weights of words that "auto" lets that take, in bytes: beyond, they are far from any cache.
TABLE = 1 << 27
#: Up to so many tokens of a document, on average, and so many topics "auto" looks at all topics of a document, in
#: corpora of no more than so many tokens: larger ones are for many workers, among whom "warp" is divided at less cost.
SHORT_DOCUMENT, MANY_TOPICS, MANY_TOKENS = 300, 1 << 12, 1 << 25
#: With fewer topics, but at least so many, it does so if documents have more than so many tokens on average.
SOME_TOPICS, LONG_DOCUMENT = 100, 500


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
    has_long = LONG_DOCUMENT * n_docs < n_tokens <= MANY_TOKENS
    if SOME_TOPICS <= n_topics <= FEW_TOPICS and has_long:
        return "saber"
    if n_topics <= FEW_TOPICS:
        return "frozen" if 4 * n_topics * n_used_words <= TABLE else "warp"
    has_short = n_topics <= MANY_TOPICS and n_tokens <= min(MANY_TOKENS, SHORT_DOCUMENT * n_docs)
    return "saber" if has_short else "warp"


def check_steps(name: str, mh_steps: int | str, size: int) -> None:
    """Raise ValueError if a sampler, which may be "auto", does not make so many proposals.

    `size` is the number of topics or, if it is known and less, that of the tokens of the longest document.
    """
    by_acceptance = isinstance(mh_steps, str)
    if mh_steps == USUAL_STEPS or (name == "auto" and mh_steps in range(1, WARP_STEPS + 1)):
        return
    makers = {one: program_of(one) for one in SAMPLERS if hasattr(program_of(one), "mh_steps")}
    able = [
        one
        for one, program in makers.items()
        if size > getattr(program, "long_document", -1)
        and (
            one == "hybrid"
            if by_acceptance
            else mh_steps in range(1, (WARP_STEPS if one == "warp" else MOST_STEPS) + 1)
        )
    ]
    if name not in able:
        others = f", or take one of the samplers {', '.join(map(repr, able))}" if able else ""
        raise ValueError(
            f"mh_steps={mh_steps!r}, but sampler={name!r} does not make so many proposals for a token here; leave "
            f"mh_steps out{others}"
        )
