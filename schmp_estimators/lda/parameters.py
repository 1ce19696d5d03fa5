"""What users of `DistributedLDA` ask for, checked: priors, starts, names of words and seed words.

With larger priors in the first sweeps, topics do not keep so long to what they began with by
chance.  With passages, each topic begins with some tokens of one document (`data.passages`): topics
are distinct from the first sweep on, and coherent.  With words that begin in two topics each, they
are distinct only.  Measured in docs/measurements/lda.
"""

import math
from collections.abc import Mapping
from numbers import Number, Real
from typing import Any, NamedTuple

import joblib
import numpy as np
from scipy import sparse

from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.program import check_program
from schmp_estimators.core.typing import Array, FloatPair, Floats, Integers, IntPair
from schmp_estimators.lda.data.topic_rows import widened
from schmp_estimators.lda.names import check_labels
from schmp_estimators.lda.programs.learning import mean_alpha
from schmp_estimators.lda.samplers import check_steps
from schmp_estimators.lda.use import check_room

#: Bounds of priors: beyond these, sums and ratios of priors leave the range of float32, which
#: kernels use.
LEAST, MOST = 1e-30, 1e30
#: The first values of learned priors, of documents and of words, and the sweeps between two
#: updates.
LEARN_FROM, LEARN_BETA_FROM, LEARN_EVERY = 0.1, 0.01, 5
#: The numbers of topics with which None learns the prior of documents: measured in
#: docs/measurements/lda.
LEARNED_BY_DEFAULT = range(500, 4097)


class Priors(NamedTuple):
    """Priors as numbers, under the names that programs have for them."""

    #: The document-topic prior, or the mean of those of all topics.
    doc_topic_prior: float
    topic_word_prior: float
    #: (K,) the document-topic prior of each topic, or None if they are the same.
    own_alphas: Floats | None = None
    #: Number of sweeps between two times that `own_alphas` are learned, and that the topic-word
    #: prior is; 0 for never.
    learn_every: IntPair = (0, 0)


def check_parameters(estimator: Any, earlier: sparse.csc_array | None) -> None:
    """Raise ValueError if parameters contradict each other, or the counts of earlier documents."""
    priors_asked_for(estimator)
    check_steps(estimator.sampler, estimator.mh_steps, estimator.n_components)
    if not isinstance(estimator.sampler, str):
        check_program(estimator.sampler, 1, [0])
    if estimator.evaluate_every > estimator.max_iter:
        raise ValueError(
            f"evaluate_every={estimator.evaluate_every} is more than "
            f"max_iter={estimator.max_iter}, so that nothing would be evaluated; give no more, or 0"
        )
    if estimator.seed_weight != 1.0 and not isinstance(estimator.seed_words, Mapping):
        raise ValueError(
            f"seed_weight={estimator.seed_weight} is for words of a dictionary, but seed_words is "
            "none: an array has its own weights; leave seed_weight out"
        )
    if earlier is not None and earlier.shape[0] != estimator.n_components:
        raise ValueError(
            f"n_components={estimator.n_components}, but the earlier fit had {earlier.shape[0]} "
            "topics; keep the number, or begin anew with fit and warm_start=False"
        )


def check_most(n_words: int, most: int | None) -> None:
    """Raise ValueError if there are more columns than `max_features`.

    They have no names to stay known by.
    """
    if most is not None and n_words > most:
        raise ValueError(
            f"X has {n_words} columns, more than max_features={most}, which bounds the words of "
            "partial_fit with feature_names: give names there, or give fewer columns"
        )


def priors_asked_for(estimator: Any) -> Priors:
    """Return the priors that the parameters of an estimator ask for.

    For learned priors, the first values.

    Raises
    ------
    ValueError
        If an array of priors has the wrong shape, or a value that cannot be a prior.
    """
    n_topics = estimator.n_components
    alpha = estimator.doc_topic_prior
    beta = estimator.topic_word_prior
    uniform = 1.0 / n_topics
    of_words = LEARN_EVERY if isinstance(beta, str) else 0  # "learn"
    beta = LEARN_BETA_FROM if of_words else uniform if beta is None else float(beta)
    if isinstance(alpha, str) or (alpha is None and n_topics in LEARNED_BY_DEFAULT):
        return Priors(LEARN_FROM, beta, np.full(n_topics, LEARN_FROM), (LEARN_EVERY, of_words))
    if alpha is None or np.ndim(alpha) == 0:
        return Priors(uniform if alpha is None else float(alpha), beta, None, (0, of_words))
    alphas = _check_array("doc_topic_prior", alpha, n_topics)
    check_labels(alpha, 0, range(n_topics), "doc_topic_prior")
    return Priors(mean_alpha(alphas), beta, alphas, (0, of_words))


def going_on(asked: Priors, fitted: Any, *, keep: bool) -> Priors:
    """Return learned priors with the values of an earlier fit.

    `keep` them from now on, or go on learning.
    """
    found = asked._replace(learn_every=(0, 0)) if keep else asked
    if asked.learn_every[1]:
        found = found._replace(topic_word_prior=fitted.topic_word_prior_)
    if asked.learn_every[0]:
        alphas = np.array(np.broadcast_to(fitted.doc_topic_prior_, fitted.n_components), np.float64)
        found = found._replace(doc_topic_prior=mean_alpha(alphas), own_alphas=alphas)
    return found


def _check_array(name: str, values: Any, n_topics: int) -> Floats:
    """Return a prior for every topic, as a read-only copy."""
    given = as_numbers(values, f"{name} must be one number, or numbers, one for each topic")
    if given.shape != (n_topics,):
        raise ValueError(
            f"{name} has shape {given.shape}, but n_components={n_topics}; give one number for all "
            f"topics, or an array of shape ({n_topics},)"
        )
    if bad := np.flatnonzero(~((given >= LEAST) & (given <= MOST))).tolist():
        raise ValueError(
            f"{name}[{bad[0]}] is {given[bad[0]]}; priors must be from {LEAST:g} to {MOST:g}"
            + (f", and so must {len(bad) - 1} others" if bad[1:] else "")
            + ": give rare topics a small prior, such as 1e-3, not zero"
        )
    given.flags.writeable = False
    return given


def as_numbers(values: Any, wanted: str) -> Floats:
    """Return a copy as floats, or raise ValueError with what is `wanted`.

    Strings, dates and complex numbers are errors, too.

    The name of the parameter comes first in `wanted`.
    """
    values = unmask(values, wanted.partition(" ")[0])
    try:
        found = np.asarray(values)
        if found.dtype.kind == "O" and any(isinstance(one, str | bytes) for one in found.flat):
            raise TypeError("it has strings")
        return found.astype(
            np.float64, casting="unsafe" if found.dtype.kind == "O" else "same_kind"
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{wanted}: {error}") from error


def check_learning(n_tokens: int, n_topics: int) -> None:
    """Raise MemoryError if learning document-topic priors could need too much client memory."""
    needed = (
        3 * 16 * min(n_tokens, math.sqrt(2.0 * n_tokens * n_topics))
    )  # while counts are merged: see `TopicCounts`
    use = f" for the counts of {n_topics} topics in {n_tokens} tokens"
    remedy = "give an array or a number, or "
    check_room(needed, "doc_topic_prior='learn' may need", use, remedy)


#: Larger priors of a tempered start, as multiples of those asked for.
HOT_DOCUMENT, HOT_WORD = 5.0, 10.0
#: If documents have so many tokens on average, only the prior of documents is larger.
LONG_DOCUMENT = 500
#: "auto" begins with passages from so many topics on, unless topics have more than so many tokens
#: on average: then longer fits have better results without.
MANY_TOPICS, TOKENS_OF_TOPIC = 50, 100_000
#: The most sweeps of a tempered start.
HOT_SWEEPS = 30


class Start(NamedTuple):
    """How a fit begins."""

    #: Where first topics come from: "uniform", "sparse" or "documents".
    topics: str
    #: The priors of documents and words in the first sweeps, where they are larger than those asked
    #: for.
    hot_priors: FloatPair = (0.0, 0.0)


class Sizes(NamedTuple):
    """Sizes of the corpus, without words that no document has, and of the model."""

    n_tokens: int
    n_docs: int
    n_used_words: int
    n_topics: int


def choose_start(init: str, priors: FloatPair, sizes: Sizes, *, tempers: bool) -> Start:
    """Return how a fit begins: there are four starts, of which "auto" chooses one, or two at once.

    "uniform"
        Every token begins in a random topic.
    "sparse"
        Every word draws two topics, in which its tokens begin: `data.passages.draw_sparse_topics`.
    "documents"
        Every topic begins with a passage of a document: `data.passages.topics_from_passages`; for
        some samplers EM steps follow: `data.passages.weigh_topics`.
    "tempered"
        As "uniform", with larger priors in `hot_sweeps`, 0 for one that would outweigh the text.

    Parameters
    ----------
    init : str
        The parameter.
    priors : tuple of two floats
        Alpha and beta as asked for.
    sizes : Sizes
        Of the fit.
    tempers : bool
        Whether "auto" begins with larger priors, too.
    """
    n_tokens, n_docs, n_used_words, n_topics = sizes
    topics = "uniform" if init == "tempered" else init
    if init == "auto":
        is_small = n_topics >= MANY_TOPICS and n_tokens <= TOKENS_OF_TOPIC * n_topics
        topics = "documents" if is_small else "uniform"
    if init != "tempered" and not (init == "auto" and tempers):
        return Start(topics)
    alpha, beta = priors
    length = n_tokens / max(1, n_docs)
    # K alpha is no more than half an average document.
    hot_document = min(HOT_DOCUMENT * alpha, length / (2 * n_topics))
    hot_word = HOT_WORD * beta
    suits = length < LONG_DOCUMENT and 4 * n_used_words * hot_word <= n_tokens / n_topics
    return Start(topics, (hot_document, hot_word if suits else 0.0))


def hot_sweeps(max_iter: int, done: int = 0, begun_with: int = HOT_SWEEPS) -> int:
    """Return how many sweeps a tempered start has.

    They are no more than half of all, so that a fit ends with its own priors.

    Parameters
    ----------
    max_iter : int
        Number of sweeps of the fit.
    done : int
        Sweeps before a checkpoint, which stay as they were.
    begun_with : int
        The number for the fit that wrote the checkpoint.  With more sweeps than that fit had, no
        more are tempered; with fewer, fewer may be.
    """
    return min(begun_with, max(done, max_iter // 2))


#: The remedy in errors about words if columns have no names.
_NAMELESS = (
    "X has no names of columns: give numbers of columns, or feature_names, a list of names or the "
    "vectorizer in front, as in make_pipeline(vectorizer, DistributedLDA(feature_names=vectorizer))"
)


def seed_counts(
    estimator: Any, word_totals: Integers, names: Array | None
) -> sparse.csc_array | None:
    """Return the imaginary tokens (K, V) that the parameters ask for, or None if there are none.

    `names` are those of the words.

    Raises
    ------
    ValueError
        If `seed_words` is invalid.
    """
    given = estimator.seed_words
    if given is None:
        return None
    shape = (estimator.n_components, len(word_totals))
    is_dict = isinstance(given, Mapping)
    found = (
        _of_dict(estimator, given, word_totals, names)
        if is_dict
        else _of_array(unmask(given, "seed_words"), shape)
    )
    check_labels(given, 0, range(shape[0]), "seed_words")
    check_labels(given, -1, range(shape[1]) if names is None else names.tolist(), "seed_words")
    found.sum_duplicates()
    found.eliminate_zeros()
    return found if found.nnz else None


def seeds_of_first_batch(
    estimator: Any, word_totals: Integers, names: Array | None
) -> sparse.csc_array | None:
    """Return the seeds that a later batch is sampled with.

    They are those of the first one, in whose tokens they are weighed.

    Raises
    ------
    ValueError
        If the parameters ask for others by now: for other words or topics, or for other numbers in
        an array.
    """
    fitted: sparse.csc_array | None = estimator.seed_counts_
    if fitted is not None:
        fitted = widened(fitted, len(word_totals))
    if seeds_given(estimator) == estimator._seeds_given:
        return fitted
    asked = seed_counts(estimator, word_totals, names)
    is_same = asked is fitted
    if asked is not None and fitted is not None:
        given = estimator.seed_words
        is_same = ((asked != 0) != (fitted != 0)).nnz == 0
        # Lists of words are weighed by the tokens of the first batch.
        told = (
            [topic for topic, words in given.items() if isinstance(words, Mapping)]
            if isinstance(given, Mapping)
            else [*range(asked.shape[0])]
        )
        is_same &= (asked.tocsr()[told] != fitted.tocsr()[told]).nnz == 0
    if not is_same:
        raise ValueError(
            "seed_words are not those of the first batch, which partial_fit keeps: give the same, "
            "or begin anew by fit"
        )
    return fitted


def seeds_given(estimator: Any) -> str | None:
    """Return what identifies the parameters about seeds.

    With it, other columns need not be looked through for them.
    """
    if estimator.seed_words is None:
        return None
    found: str = joblib.hash((estimator.seed_words, estimator.seed_weight))
    return found


def kept_counts(estimator: Any, earlier: sparse.csc_array, n_words: int) -> sparse.csc_array:
    """Return what a further batch keeps of earlier counts: `half_life` makes them fractions.

    Fractions of less than a hundredth of the prior of words are left out, so that an endless stream
    does not fill rows.
    """
    found = widened(earlier, n_words)
    if estimator.half_life is not None:
        found = sparse.csc_array(found * 0.5 ** (1.0 / estimator.half_life))
        found.data[found.data < 0.01 * estimator.topic_word_prior_] = 0.0
        found.eliminate_zeros()
    return found


def _of_dict(
    estimator: Any, given: Mapping[Any, Any], word_totals: Integers, names: Array | None
) -> sparse.csc_array:
    n_topics = estimator.n_components
    columns = dict[Any, int | None]()  # None where several have the same name
    for at, name in enumerate([] if names is None else names.tolist()):
        columns[name] = None if name in columns else at
    has_numbers = any(isinstance(name, Number) for name in columns)
    cells: dict[IntPair, float] = {}
    for topic, words in given.items():
        if not _is_whole(topic) or not 0 <= topic < n_topics:
            raise ValueError(
                f"seed_words has the topic {topic!r}; topics are numbers from 0 to {n_topics - 1}"
            )
        if isinstance(words, (str, bytes)) or not np.iterable(words):
            raise ValueError(f"seed_words[{topic}] is {words!r}; give a list of words")
        for word in words:
            where = f"seed_words[{topic}]"
            column = _column(word, columns, len(word_totals), where, has_numbers=has_numbers)
            tokens = words[word] if isinstance(words, Mapping) else max(1, int(word_totals[column]))
            if not isinstance(tokens, Real) or not 0 <= float(tokens) <= MOST:
                raise ValueError(
                    f"{where} has {tokens!r} for the word {word!r}; give a number of tokens, at "
                    "least 0"
                )
            cells[int(topic), column] = float(estimator.seed_weight) * float(tokens)
    rows, found = np.array(list(cells), np.int64).reshape(-1, 2).T
    return sparse.csc_array(
        (np.array(list(cells.values())), (rows, found)), shape=(n_topics, len(word_totals))
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _column(
    word: Any, columns: Mapping[Any, int | None], n_words: int, where: str, *, has_numbers: bool
) -> int:
    """Return the column of a word, by its name.

    A number is that of a column only if no name is a number.
    """
    if isinstance(word, str) or (has_numbers and _is_whole(word)):
        column = columns.get(word, -1)
        if column is None:
            remedy = "names that differ" if has_numbers else "numbers"
            raise ValueError(
                f"{where} has the word {word!r}, which several columns have as their name: give "
                f"{remedy}"
            )
        if column >= 0:
            return column
        known = "X has no such column" if columns else _NAMELESS
        raise ValueError(f"{where} has the word {word!r}, but {known}")
    if _is_whole(word) and 0 <= word < n_words:
        if columns.get(str(word), word) != word:
            raise ValueError(
                f"{where} has the number {word!r}, but another column than {word} has the name "
                f"'{word}'; give names"
            )
        return int(word)
    raise ValueError(
        f"{where} has the word {word!r}; words are names of columns, or numbers from 0 to "
        f"{n_words - 1}"
    )


def _of_array(given: Any, shape: IntPair) -> sparse.csc_array:
    wanted = "seed_words must be a dictionary or an array of numbers"
    found = sparse.csc_array(
        given if sparse.issparse(given) else as_numbers(given, wanted), dtype=np.float64
    )
    if found.shape != shape:
        raise ValueError(
            f"seed_words has shape {found.shape}; an array must have shape (n_components, "
            f"n_features) = {shape}"
        )
    if not ((found.data >= 0) & (found.data <= MOST)).all():
        raise ValueError(
            "seed_words has values that are negative or not finite, or above "
            f"{MOST:g}; they are numbers of tokens, 0 for none"
        )
    return found.copy()
