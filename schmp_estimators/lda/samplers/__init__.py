"""The samplers of `DistributedLDA` by name, and which one "auto" is."""

from importlib import import_module
from typing import Any, cast

from schmp_estimators.lda.programs.topics import TopicSampler

#: The class of each sampler by the name that users give; it is in the module of the same name.
SAMPLERS = {
    "warp": "WarpLDA",
    "frozen": "FrozenLDA",
    "saber": "SaberLDA",
    "fplus": "FPlusLDA",
    "sparse": "SparseLDA",
    "light": "LightLDA",
    "light-word": "LightWordLDA",
    "light-document": "LightDocumentLDA",
    "alias": "AliasLDA",
    "hybrid": "HybridLDA",
    "data-parallel": "DataParallelLDA",
}


def program_of(sampler: str) -> type[TopicSampler[Any]]:
    """Return the class of a sampler.

    It is imported now: to import all takes a fifth of a second.
    """
    module = import_module(f"{__name__}.{sampler.replace('-', '_')}")
    return cast("type[TopicSampler[Any]]", getattr(module, SAMPLERS[sampler]))


def sampler_of(given: Any) -> TopicSampler[Any]:
    """Return the sampler that a user gives by its name, or as an object."""
    return program_of(given)() if isinstance(given, str) else given


#: Up to so many topics "auto" draws from all of them at once: measured in docs/measurements/lda.
FEW_TOPICS = 256
#: Weights of words that "auto" lets that take, in bytes: beyond, they are far from any cache.
TABLE = 1 << 27
#: Up to so many tokens of a document, on average, and so many topics "auto" looks at all topics of
#: a document, in corpora of no more than so many tokens: larger ones are for many workers, among
#: whom "warp" is divided at less cost.
SHORT_DOCUMENT, MANY_TOPICS, MANY_TOKENS = 300, 1 << 12, 1 << 25
#: With fewer topics, but at least so many, it does so if documents have more than so many tokens on
#: average.
SOME_TOPICS, LONG_DOCUMENT = 100, 500


def choose_sampler(
    given: Any, *, n_topics: int, n_used_words: int, n_tokens: int, n_docs: int
) -> Any:
    """Return the sampler to take.

    Parameters
    ----------
    given : str or TopicSampler
        An object, one of `SAMPLERS`, or "auto", which depends on the other parameters: never on the
        place.
    n_topics, n_used_words : int
        Size of the model, without words that no document has.
    n_tokens, n_docs : int
        Size of the corpus.
    """
    if given != "auto":
        return given
    has_long = LONG_DOCUMENT * n_docs < n_tokens <= MANY_TOKENS
    if SOME_TOPICS <= n_topics <= FEW_TOPICS and has_long:
        return "saber"
    if n_topics <= FEW_TOPICS:
        return "frozen" if 4 * n_topics * n_used_words <= TABLE else "warp"
    has_short = n_topics <= MANY_TOPICS and n_tokens <= min(MANY_TOKENS, SHORT_DOCUMENT * n_docs)
    return "saber" if has_short else "warp"


def check_steps(given: Any, mh_steps: int | str, size: int) -> None:
    """Raise ValueError if a sampler, which may be "auto", does not make so many proposals.

    `size` is the number of topics or, if it is known and less, that of the tokens of the longest
    document.
    """
    if mh_steps == 2:
        return
    if not isinstance(given, str):
        raise ValueError(
            f"mh_steps={mh_steps!r} is for samplers that are given by their names; leave it out, "
            f"and give sampler={given!r} its parameters itself"
        )
    able = [name for name in SAMPLERS if program_of(name)().takes(mh_steps, size)]
    if ("warp" if given == "auto" else given) not in able:
        others = f", or take one of the samplers {', '.join(map(repr, able))}" if able else ""
        raise ValueError(
            f"mh_steps={mh_steps!r}, but sampler={given!r} does not make so many proposals for a "
            f"token here; leave mh_steps out{others}"
        )
