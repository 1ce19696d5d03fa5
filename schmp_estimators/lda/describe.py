"""What topics are about, and how good they look: their words, sizes and coherence."""

from collections import Counter
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions, validate_parameter_constraints
from sklearn.utils.validation import check_is_fitted

from schmp_estimators.core.inputs.rows import open_tasks
from schmp_estimators.core.inputs.validation import COUNT, is_dask
from schmp_estimators.core.later import Later
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.typing import Arguments, Array, Floats, Integers, Named
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.topic_rows import topic_totals
from schmp_estimators.lda.names import read_names
from schmp_estimators.lda.programs import coherence
from schmp_estimators.lda.programs.coherence import MEASURES, WINDOWS, BestWords
from schmp_estimators.lda.use import NAMES, TopicMethods, check_room, where_it_is

dask: Any = Later("dask")

#: What numbers of words and documents may be.
SOME = [COUNT]
#: Words in the name of a topic.
NAMED = 4
#: What the parameters of `top_words` and of `coherence` may be.
_WORDS: Named = {
    "n_words": SOME,
    "by": [StrOptions({"relevance", "probability"})],
    "relevance": [Interval(Real, 0, 1, closed="both")],
    "feature_names": NAMES,
    "return_probability": ["boolean"],
}
_COHERENCE: Named = {
    "measure": [StrOptions({*MEASURES})],
    "n_words": [Interval(Integral, 2, None, closed="left")],
    "window_size": [None, *SOME],
    "feature_names": NAMES,
}


class DescribedTopics(TopicMethods):
    """The methods of a fitted topic model, with those that describe its topics."""

    #: Names that have been assigned to the topics.
    _topic_names: Array | None = None

    @property
    def topic_sizes_(self) -> Integers:
        """Number of tokens of each topic, shape (n_components,).

        These are the row sums of `topic_word_counts_`.
        """
        check_is_fitted(self)
        return topic_totals(self.topic_word_counts_)

    @property
    def topic_names_(self) -> Array:
        """Names of the topics, shape (n_components,), which all tables and plots use.

        They consist of the most relevant words of each topic until you assign other names.  `fit`
        forgets assigned names, but `partial_fit` keeps them.
        """
        check_is_fitted(self)
        return self._named(self.top_words(NAMED))

    @topic_names_.setter
    def topic_names_(self, names: Any) -> None:
        check_is_fitted(self)
        given = np.array(names, object)
        if given.shape != (self._n_features_out,):
            raise ValueError(
                f"topic_names_ has shape {given.shape}, but there are {self._n_features_out} "
                "topics; give one name for each"
            )
        self._topic_names = given

    def _named(self, words: Array) -> Array:
        """Return the names that have been assigned, or else names made of words.

        The words (n_components, n) of each topic are then its name.
        """
        return joined(words) if self._topic_names is None else self._topic_names

    def top_words(
        self,
        n_words: int = 10,
        by: str = "relevance",
        relevance: float = 0.6,
        *,
        feature_names: Any = None,
        return_probability: bool = False,
    ) -> Any:
        """Return the words that describe each topic best, the best one first.

        Parameters
        ----------
        n_words : int, default=10
            Number of words for each topic.  If the model has fewer words, all are returned.
        by : {"relevance", "probability"}, default="relevance"
            How words are ranked.  "probability" ranks them by their probability in the topic, as in
            a row of `components_`.  Words that are common in all topics then come first in many of
            them.  "relevance" also considers how much more probable a word is in the topic than in
            the whole model [1]_.
        relevance : float, default=0.6
            Weight from 0 to 1 in ``relevance * log(p) + (1 - relevance) * log(p / p_all)``, for a
            word with probability p in the topic and p_all in the whole model.  A weight of 1 ranks
            by probability alone, and 0 ranks by ``p / p_all`` alone.
        feature_names : array-like of shape (n_features,) or vectorizer, default=None
            Names of the words, or a fitted vectorizer that has them.  If None, `feature_names_` is
            used, or the numbers of the columns if `feature_names_` is None.
        return_probability : bool, default=False
            Whether to return the probabilities, too.

        Returns
        -------
        words : ndarray of shape (n_components, min(n_words, n_features))
            Names of the words, or numbers of their columns (int64).
        probabilities : ndarray of the same shape, float64
            Probabilities of these words in their topics, returned only with `return_probability`.

        Raises
        ------
        ValueError
            If a parameter is invalid, or the number of names differs from the number of words.

        Notes
        -----
        The probability of a word in a topic is its entry in `components_` divided by the sum of the
        row.  Its probability in the model is the sum of its column divided by the sum of all
        entries.  All entries are positive, so even words that never occur have a relevance.  Words
        of equal relevance are ordered by probability, and then by column.  No array of the size of
        `components_` is made.

        References
        ----------
        .. [1] C. Sievert, K. E. Shirley, "LDAvis: a method for visualizing and interpreting
           topics", Workshop on Interactive Language Learning, Visualization, and Interfaces, ACL
           2014, section 3.1.

        Examples
        --------
        >>> from sklearn.feature_extraction.text import CountVectorizer
        >>> from sklearn.pipeline import make_pipeline
        >>> from schmp_estimators import DistributedLDA
        >>> text = ["cats purr", "dogs bark", "cats purr and purr", "dogs bark and bark"] * 10
        >>> counter = CountVectorizer()
        >>> lda = DistributedLDA(2, feature_names=counter, max_iter=50, random_state=0)
        >>> model = make_pipeline(counter, lda).fit(text)
        >>> sorted(sorted(topic) for topic in lda.top_words(2).tolist())
        [['bark', 'dogs'], ['cats', 'purr']]
        """
        self._check("top_words", _WORDS, locals())
        if by == "probability" and relevance != 0.6:
            raise ValueError(
                f"relevance={relevance} is for by='relevance', but by='probability'; leave one of "
                "them out"
            )
        names = self._names(feature_names)
        words, weights = self._best_words(int(n_words), relevance if by == "relevance" else None)
        found = words if names is None else names[words]
        if not return_probability:
            return found
        totals = self._rows()[1] + self.n_features_in_ * self.topic_word_prior_
        return found, weights / totals[:, None]

    def coherence(
        self,
        X: Any,
        measure: str = "npmi",
        n_words: int = 10,
        *,
        window_size: int | None = None,
        feature_names: Any = None,
    ) -> Floats:
        """Measure how often the most probable words of each topic occur together; higher is better.

        Parameters
        ----------
        X : input as in `fit`, of shape (n_documents, n_features), or texts
            "npmi" and "u_mass" take word counts of documents, those of the fit or others.  "c_npmi"
            and "c_v" depend on the order of words, so they take texts.  Texts are an iterable of
            lists of words, a Dask bag of such lists, or a list of Delayed objects, each of them
            such an iterable.  On Dask, pairs of words are counted on the cluster.
        measure : {"npmi", "u_mass", "c_npmi", "c_v"}, default="npmi"
            Quantity that is averaged over pairs of words, or over words for "c_v".

            - "npmi": normalised pointwise mutual information of two words [1]_ [2]_, from -1 to 1.
              It is 0 for independent words.
            - "u_mass": ``log(d_both / d_first)``, at most 0 [3]_.  d_first is the number of
              documents with the more probable of two words, and d_both the number of documents with
              both.
            - "c_npmi": "npmi" in windows of texts instead of documents.
            - "c_v": cosine between the vector of a word and the sum of the vectors of all words of
              the topic, mostly from 0 to 1 [4]_.  The vector of a word holds its NPMI in windows
              with each of these words.
        n_words : int, default=10
            Number of words of each topic, at least 2.  They are chosen as by ``top_words(n_words,
            by="probability")``.
        window_size : int, default=None
            Only for texts: number of tokens in a window, which slides over each text token by
            token.  A shorter text is one window.  None means 10 for "c_npmi" and 110 for "c_v".
        feature_names : array-like of shape (n_features,) or vectorizer, default=None
            Only for texts: names of the words, as in `top_words`.  If the model has no names
            either, texts must be lists of column numbers.

        Returns
        -------
        ndarray of shape (n_components,), float64
            Mean over all pairs of words, or over words for "c_v".  It is NaN if the model has only
            one word.

        Raises
        ------
        ValueError
            If X does not suit the measure or has no documents.  If no text has any of the words of
            the topics.  If a parameter is invalid.
        MemoryError
            If the document counts of all pairs of words of all topics, at 8 bytes each, need more
            than 2 GiB.

        See Also
        --------
        perplexity : Measures how well the model predicts, and often favours more topics.

        Notes
        -----
        All measures agree with gensim's ``CoherenceModel``, whose `topn` (here `n_words`) is 20 by
        default.  "npmi" equals gensim's "c_npmi" with a `window_size` that no document exceeds.
        For "npmi" and "u_mass", it does not matter how often a word occurs in a document.  A
        document without words also counts in the number of documents, and a text without words
        counts as one window.

        As in gensim, 1e-12 is added to the share of documents or windows with both words.  The
        "npmi" of two words that never occur together is therefore not exactly -1.  It is near -1 if
        the words are frequent, and -0.5 if each is in a thousandth of the documents.  In [3]_,
        "u_mass" adds 1 to d_both instead.  If every document has both words, the "npmi" of the pair
        is -1, although the words always occur together.  If X lacks a word, its pairs count as 0.
        With "u_mass", only those pairs count as 0 in which X lacks the more probable word.

        As in gensim, a word that occurs several times in a window is counted in slightly fewer
        windows than contain it.

        Results are bit-for-bit identical for any chunks and workers.

        References
        ----------
        .. [1] G. Bouma, "Normalized (pointwise) mutual information in collocation extraction", GSCL
           2009.
        .. [2] N. Aletras, M. Stevenson, "Evaluating topic coherence using distributional
           semantics", IWCS 2013.
        .. [3] D. Mimno, H. M. Wallach, E. Talley, M. Leenders, A. McCallum, "Optimizing semantic
           coherence in topic models", EMNLP 2011.
        .. [4] M. Röder, A. Both, A. Hinneburg, "Exploring the space of topic coherence measures",
           WSDM 2015.

        Examples
        --------
        >>> import numpy as np
        >>> from schmp_estimators import DistributedLDA
        >>> rng = np.random.default_rng(0)
        >>> X = rng.poisson(np.kron(np.eye(2), np.ones((50, 5))))  # five words each of two topics
        >>> lda = DistributedLDA(2, max_iter=30, random_state=0).fit(X)
        >>> bool((lda.coherence(X, n_words=5) > 0.1).all())
        True
        >>> # Words are numbers here.
        >>> texts = [rng.permutation(np.repeat(np.arange(10), row)).tolist() for row in X]
        >>> bool((lda.coherence(texts, "c_v", n_words=5) > 0.5).all())
        True
        """
        given = locals()
        self._check("coherence", _COHERENCE, given)
        n_words = int(n_words)  # numbers of pairs do not fit into small integers of NumPy
        self._check_pairs(n_words)
        best = coherence.find_slots(self._best_words(n_words)[0], self.n_features_in_)
        for name in ("window_size", "feature_names"):
            if given[name] is not None and measure not in WINDOWS:
                raise ValueError(
                    f"{name}={given[name]!r:.50} is for 'c_npmi' and 'c_v', which take texts; "
                    f"measure={measure!r} takes counts"
                )

        def count(corpus: Corpus, _place: Place) -> tuple[Integers, int]:
            found = corpus.tasks(coherence.count_pairs, "lda-coherence", best)
            return corpus.rows.merged(found, tree_sum, "lda-coherence"), len(corpus.lengths)

        if measure in WINDOWS:
            columns = self._columns_of_words(X, measure, best, feature_names)
            work = partial(_count_windows, X, (best, columns, int(window_size or WINDOWS[measure])))
            documents, n_documents = where_it_is(X, self.n_jobs, work)
        else:
            documents, n_documents = self._with_documents(X, count)
        if not documents.any() and measure in WINDOWS:
            raise ValueError(
                f"X has {n_documents} windows, but none of the words of topics; split texts as the "
                "vectorizer does, by vectorizer.build_analyzer(), and give its words as "
                "feature_names"
            )
        return coherence.mean_over_pairs(
            documents, n_documents, min(n_words, self.n_features_in_), measure
        )

    def _columns_of_words(
        self, X: Any, measure: str, best: BestWords, feature_names: Any
    ) -> dict[Any, int]:
        """Return the columns of the best words of all topics, by the words as they are in texts."""
        is_one = isinstance(X, str | bytes) or not (hasattr(X, "__iter__") or is_dask(X))
        if is_one or hasattr(X, "columns") or getattr(X, "ndim", 1) != 1:
            raise ValueError(
                f"measure={measure!r} slides windows over texts, but X is of type "
                f"{type(X).__name__}: give lists of words, such as "
                "[*map(vectorizer.build_analyzer(), texts)], or take measure='npmi' for counts"
            )
        names = self._names(feature_names)
        columns = np.flatnonzero(np.diff(best.slot_ptr))
        words = columns.tolist() if names is None else names[columns].tolist()
        if names is not None:
            for word, n in Counter(names.tolist()).items():
                if n > 1 and word in words:
                    raise ValueError(
                        f"feature_names has {word!r} for {n} columns, which texts cannot tell "
                        "apart; give each word a name of its own"
                    )
        return dict(zip(words, columns.tolist(), strict=True))

    def _check(self, method: str, constraints: Named, given: Named) -> None:
        """Raise an error unless the model is fitted.

        The arguments given to a method must meet their constraints, too.
        """
        check_is_fitted(self)
        validate_parameter_constraints(
            constraints, given, caller_name=f"{type(self).__name__}.{method}"
        )

    def _best_words(self, n_words: int, relevance: float | None = None) -> tuple[Array, Array]:
        n_topics, n_features = self.topic_word_counts_.shape
        n_best = min(n_words, n_features)
        return coherence.top_words(
            self._rows()[0], n_topics, self.topic_word_prior_, n_best, relevance
        )

    def _names(self, feature_names: Any) -> Array | None:
        # models of earlier versions have the names of columns only
        own = getattr(self, "feature_names_", getattr(self, "feature_names_in_", None))
        return own if feature_names is None else read_names(feature_names, self.n_features_in_, own)

    def _check_pairs(self, n_words: int) -> None:
        """Raise MemoryError if the array of document numbers of all pairs would be too large."""
        n_topics, n_features = self.topic_word_counts_.shape
        needed = 8 * n_topics * coherence.n_pairs(min(n_words, n_features))
        what = f"n_words={n_words} of {n_topics} topics need"
        check_room(
            needed, what, " for the numbers of documents of all pairs", "take fewer words, or "
        )


def joined(words: Array) -> Array:
    """Return the words of each row in one string."""
    return np.array([", ".join(map(str, row)) for row in words.tolist()], object)


def _count_windows(texts: Any, given: Arguments, place: Place) -> tuple[Integers, int]:
    """Return ``count_windows(texts, *given)`` for texts in this process or on Dask."""
    if not is_dask(texts):
        return coherence.count_windows(texts, *given)
    shared = [dask.delayed(one, traverse=False) for one in given]
    chunks = texts if isinstance(texts, list | tuple) else texts.to_delayed()
    with open_tasks(
        coherence.count_windows, [(chunk, *shared) for chunk in chunks], place=place
    ) as rows:
        documents, n_windows = rows.merged(rows.partitions, tree_sum, "lda-coherence")
        return documents, n_windows
