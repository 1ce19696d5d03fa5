"""The priors that users of `DistributedLDA` ask for, checked."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schmp_estimators.core.door.masks import unmask
from schmp_estimators.lda.programs.learning import mean_alpha, memory_of_counts
from schmp_estimators.lda.use import dense_limit

#: Kernels have 32 bits: beyond these bounds, sums and ratios of priors leave their range.
LEAST, MOST = 1e-30, 1e30
#: What priors that are learned begin with, of documents and of words, and every how many sweeps they are learned.
LEARN_FROM, LEARN_BETA_FROM, LEARN_EVERY = 0.1, 0.01, 5


class Priors(NamedTuple):
    """Priors as numbers."""

    #: The document-topic prior, or the mean of those of all topics.
    alpha: float
    #: The topic-word prior.
    beta: float
    #: (K,) the document-topic prior of each topic, or None if they are the same.
    alphas: NDArray[np.float64] | None = None
    #: Number of sweeps between two times that `alphas` are learned, and that `beta` is; 0 for never.
    learn_every: tuple[int, int] = (0, 0)


def priors_asked_for(estimator: Any) -> Priors:
    """Return the priors that the parameters of an estimator ask for; where they are learned, how that begins.

    Raises
    ------
    ValueError
        If a prior for every topic does not have one for every topic, or one that is none.
    """
    n_topics, alpha, beta = estimator.n_components, estimator.doc_topic_prior, estimator.topic_word_prior
    uniform = 1.0 / n_topics
    of_words = LEARN_EVERY if isinstance(beta, str) else 0  # "learn"
    beta = LEARN_BETA_FROM if of_words else uniform if beta is None else float(beta)
    if isinstance(alpha, str):
        return Priors(LEARN_FROM, beta, np.full(n_topics, LEARN_FROM), (LEARN_EVERY, of_words))
    if alpha is None or np.ndim(alpha) == 0:
        return Priors(uniform if alpha is None else float(alpha), beta, None, (0, of_words))
    alphas = _check_array("doc_topic_prior", alpha, n_topics)
    return Priors(mean_alpha(alphas), beta, alphas, (0, of_words))


def going_on(asked: Priors, fitted: Any, *, keep: bool) -> Priors:
    """Return learned priors as an earlier fit has left them; `keep` them from then on, or go on learning."""
    found = asked._replace(learn_every=(0, 0)) if keep else asked
    if asked.learn_every[1]:
        found = found._replace(beta=fitted.topic_word_prior_)
    if asked.learn_every[0]:
        alphas = np.array(np.broadcast_to(fitted.doc_topic_prior_, len(asked.alphas)), np.float64)  # type: ignore[arg-type]
        found = found._replace(alpha=mean_alpha(alphas), alphas=alphas)
    return found


def _check_array(name: str, values: Any, n_topics: int) -> NDArray[np.float64]:
    """Return a prior for every topic as a copy that nobody can change."""
    values = unmask(values, name)
    try:
        given = np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be one number, or numbers, one for each topic: {error}") from error
    if given.shape != (n_topics,):
        raise ValueError(
            f"{name} has shape {given.shape}, but n_components={n_topics}; give one number for all topics, or an array "
            f"of shape ({n_topics},)"
        )
    if bad := np.flatnonzero(~((given >= LEAST) & (given <= MOST))).tolist():
        raise ValueError(
            f"{name}[{bad[0]}] is {given[bad[0]]}; priors must be from {LEAST:g} to {MOST:g}"
            + (f", and so must {len(bad) - 1} others" if bad[1:] else "")
            + ": give rare topics a small prior, such as 1e-3, not zero"
        )
    given.flags.writeable = False
    return given


def check_learning(n_tokens: int, n_topics: int) -> None:
    """Raise MemoryError if what learning document-topic priors needs on the client could be too large."""
    needed, limit = memory_of_counts(n_tokens, n_topics), dense_limit()
    if needed > limit:
        raise MemoryError(
            f"doc_topic_prior='learn' may need {needed / 2**30:.3g} GiB for the counts of {n_topics} topics in "
            f"{n_tokens} tokens; give an array or a number as doc_topic_prior, or raise the limit with "
            f"dask.config.set({{'schmp-estimators.dense-limit': {math.ceil(needed)}}})"
        )
