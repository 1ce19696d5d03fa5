"""How many topics: several numbers, judged by other documents and by other seeds."""

import logging
import math
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from numbers import Integral
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, validate_params

from schmp_estimators.core.estimators import undone_on_error
from schmp_estimators.core.inputs.rows import Rows
from schmp_estimators.core.inputs.validation import SHARE, is_dask
from schmp_estimators.core.places.place import Place, choose_place, retry
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.typing import Array, Floats
from schmp_estimators.lda.data.corpus import Corpus, open_corpus, some_documents
from schmp_estimators.lda.data.counts import Counts, canonical_counts, hash_documents
from schmp_estimators.lda.estimator import DistributedLDA
from schmp_estimators.lda.fit import LDAFit
from schmp_estimators.lda.names import names_of_words
from schmp_estimators.lda.parameters import check_parameters
from schmp_estimators.lda.programs.foldin import completion_scores
from schmp_estimators.monitor.curves import draw_curves

logger = logging.getLogger(__name__)

#: Perplexities that are higher by at most this share, or by a standard error, are near the lowest.
NEAR = 0.05
#: The curve has turned after so many numbers in a row that lower it by less than this share.
TURNED, GAIN = 2, 0.01


@dataclass(frozen=True, eq=False)
class TopicNumbers:
    """Result of `choose_n_components`, which fits models with several numbers of topics.

    Parameters
    ----------
    table_ : dict of str to ndarray of shape (n_numbers,)
        A table for ``pandas.DataFrame``, with a row for each number of topics that was tried.

        - "n_components": the number of topics.
        - "perplexity", "perplexity_se": the lowest held-out perplexity of the fits with this
          number, and its standard error over documents.
        - "coherence", "coherence_std": mean over topics and fits of "npmi"
          (`DistributedLDA.coherence`) in the fitted documents, and its standard deviation over
          fits.
        - "stability", "stability_std": mean cosine similarity of the topics of two fits, matched by
          `DistributedLDA.match_topics`, and its standard deviation over pairs of fits.
        - "seconds": mean CPU seconds of a fit, or elapsed seconds on a cluster.
    n_components_ : int
        The number of topics that was chosen.
    reason_ : str
        Reason for the choice of `n_components_`, in a sentence.
    best_estimator_ : DistributedLDA
        The fit with the lowest perplexity among those with the chosen number.  It was not fitted to
        the held-out documents.
    """

    table_: dict[str, Array]
    n_components_: int
    reason_: str
    best_estimator_: Any

    def plot(self, ax: Any = None) -> Any:
        """Plot perplexity, coherence and stability, with a line at the chosen number of topics.

        Parameters
        ----------
        ax : array-like of three matplotlib Axes, default=None
            Where to draw.  If None, a new figure is made.

        Returns
        -------
        ndarray of three matplotlib Axes
        """
        spreads = {"perplexity": "se", "coherence": "std", "stability": "std"}
        return draw_curves(self.table_, "n_components", spreads, self.n_components_, ax)


@validate_params(
    {
        "estimator": [DistributedLDA],
        "n_components": ["array-like"],
        "n_fits": [Interval(Integral, 2, None, closed="left")],
        "test_size": [SHARE],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def choose_n_components(
    estimator: Any,
    X: Any,
    n_components: Any = (5, 10, 20, 40, 80, 160),
    *,
    n_fits: int = 3,
    test_size: float = 0.1,
    random_state: Any = None,
) -> TopicNumbers:
    """Choose the number of topics by held-out perplexity and by stability.

    Numbers are tried in ascending order, each with `n_fits` seeds.  The search stops when the last
    two numbers together lower the perplexity by less than 1 %.  Of all numbers with a perplexity
    near the lowest, the most stable is chosen.  A perplexity is near the lowest if it is higher by
    at most 5 %, or by at most the standard error of the difference.  The most stable number is the
    one whose topics are most similar between fits with different seeds.

    Parameters
    ----------
    estimator : DistributedLDA
        Model from which all fits take the parameters except `n_components` and `random_state`.  It
        is not changed.  Fits write no checkpoint, do not spill tokens to disk, and ignore
        `verbose`.  The log has a line for each number.
    X : input as in `DistributedLDA.fit`, of shape (n_documents, n_features)
        Word counts.  They are read once.  All fits run in threads of this process, or on the
        workers of a Dask cluster.
    n_components : array-like of int, default=(5, 10, 20, 40, 80, 160)
        Different numbers of topics to try, at least two.
    n_fits : int, default=3
        Number of fits with each number of topics, at least 2.
    test_size : float, default=0.1
        Share of the documents that are held out, between 0 and 1.  The held-out documents are
        chosen by a hash of their words, so that equal documents stay together.  Documents without
        words are left out.
    random_state : int, RandomState instance or None, default=None
        Source of the seeds.  Apart from "seconds", an int gives the same result every time, for any
        chunks, threads and workers.

    Returns
    -------
    TopicNumbers

    Raises
    ------
    ValueError
        As in `DistributedLDA.fit`, or if X has too few different documents to hold some out.

    See Also
    --------
    DistributedLDA.perplexity, DistributedLDA.coherence, DistributedLDA.topic_stability

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import DistributedLDA, choose_n_components
    >>> rng = np.random.default_rng(0)
    >>> X = rng.poisson(np.kron(np.eye(4), np.ones((50, 5))))  # five words each of four topics
    >>> lda = DistributedLDA(doc_topic_prior=0.1, max_iter=30)
    >>> found = choose_n_components(lda, X, [2, 4, 8, 16], random_state=0)
    >>> found.n_components_, found.best_estimator_.n_components
    (4, 4)
    """
    numbers = np.asarray(n_components)
    numbers = np.unique(numbers) if numbers.dtype.kind in "iu" else numbers[:0]
    if len(numbers) < 2 or numbers[0] < 1:
        raise ValueError(
            f"n_components={n_components!r}; give two or more different whole numbers, at least 1"
        )
    random = check_random_state(random_state)
    key, *seeds = random.randint(np.iinfo(np.int32).max, size=1 + n_fits).tolist()
    tried = list[_Tried]()
    with choose_place(estimator.n_jobs, is_dask=is_dask(X), label="schmp-lda") as place:

        def search() -> None:
            # A clone of a vectorizer would have no names.
            known = clone(estimator).set_params(feature_names=estimator.feature_names)
            with closing(open_corpus(X, known, place=place)) as corpus:
                names = names_of_words(known, X, corpus.n_features, is_first=True)
                train, test = (
                    some_documents(
                        corpus, partial(_held_out, key, test_size, is_test), "lda-divide"
                    )
                    for is_test in (False, True)
                )
                if not (test.lengths > 1).any() or not len(train.lengths):
                    raise ValueError(
                        f"test_size={test_size} holds out {len(test.lengths)} documents, none with "
                        f"two tokens, or leaves {len(train.lengths)} to fit; give more documents "
                        "that differ, or another share"
                    )
                corpus.rows.partitions = []
                for number in numbers[len(tried) :].tolist():
                    losses = [one.loss for one in tried]
                    if tried[TURNED:] and min(losses[:-TURNED]) - min(losses[-TURNED:]) < GAIN:
                        break
                    tried.append(_try(known, number, seeds, (train, test), names))

        retry(place, search)
    return _chosen(tried)


class _Tried(NamedTuple):
    """One number of topics."""

    #: A row of the table.
    row: dict[str, float]
    #: The fit with the lowest perplexity, and the logarithm of this.
    best: Any
    loss: float
    #: (n_docs,) what each held-out document adds to the error of the loss.
    errors: Floats


def _held_out(key: int, share: float, is_test: bool, counts: Counts) -> Counts:
    """Return the documents of a partition that are held out, or those that are not."""
    chosen = (hash_documents(counts) ^ stream_key(key)) * 2.0**-64 < share
    matrix = sparse.csr_array(
        (counts.data, counts.indices, counts.indptr), shape=(len(chosen), counts.n_features)
    )
    return canonical_counts(matrix[(chosen == is_test) & (np.diff(counts.indptr) > 0)])


def _try(
    known: Any, number: int, seeds: list[int], documents: tuple[Corpus, Corpus], names: Array | None
) -> _Tried:
    """Fit with each seed, and measure the fits."""
    train, test = documents
    place: Place = train.rows.place
    clock = process_time if place.is_local else perf_counter
    began = clock()
    fits = []
    for seed in seeds:
        one = copy(known).set_params(
            n_components=number, random_state=seed, checkpoint=None, spill=None
        )
        one._validate_params()
        check_parameters(one, None)
        # A fit forgets the documents that it was given.
        corpus = replace(train, rows=Rows([*train.rows.partitions], place))
        fit = LDAFit(one, corpus, place, seed=seed, earlier=None, keep=False, names=names)
        with undone_on_error(one):
            vars(one).update(fit.run(None, None))
        fits.append(one)
    seconds = (clock() - began) / len(fits)
    score = partial(completion_scores, each=place.each)
    scores = [
        np.concatenate(test.rows.here(test.tasks(score, "lda-score", one._model()))) for one in fits
    ]
    n_scored = test.lengths // 2
    losses = -np.array(scores) / n_scored.sum()
    best = int(np.argmin(losses.sum(axis=1)))
    loss = math.fsum(losses[best])
    # The loss is a ratio of two sums over documents.
    errors = losses[best] - loss * n_scored / n_scored.sum()
    coherence = [np.mean(one.coherence(train)) for one in fits]
    stability = [np.mean(one.match_topics(two)[1]) for one, two in combinations(fits, 2)]
    row = {
        "n_components": number,
        "perplexity": math.exp(loss),
        "perplexity_se": math.exp(loss) * np.linalg.norm(errors),
        "coherence": np.mean(coherence),
        "coherence_std": np.std(coherence),
        "stability": np.mean(stability),
        "stability_std": np.std(stability),
        "seconds": seconds,
    }
    logger.info("choose_n_components: %s", row)
    return _Tried(row, fits[best], loss, errors)


def _chosen(tried: list[_Tried]) -> TopicNumbers:
    """Choose one by the rule of `choose_n_components`."""
    lowest = min(tried, key=lambda one: one.loss)
    near = [
        one
        for one in tried
        if one.loss - lowest.loss
        <= max(math.log1p(NEAR), float(np.linalg.norm(one.errors - lowest.errors)))
    ]
    chosen = max(near, key=lambda one: one.row["stability"])
    number, best, *others = (one.best.n_components for one in (chosen, lowest, *near))
    reason = f"only {number} topics have a perplexity near the lowest"
    if others[1:]:
        reason = (
            f"{number} topics are the most stable of {others}, whose perplexity is near the lowest"
        )
    if lowest is tried[-1] and tried[-2].loss - lowest.loss >= GAIN:
        reason += f"; it still falls at {best}, so that more topics may predict better"
    table = {name: np.array([one.row[name] for one in tried]) for name in chosen.row}
    return TopicNumbers(table, number, f"{reason}.", chosen.best)
