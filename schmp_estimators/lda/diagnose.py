"""Topics in documents: the documents with most of a topic, topics of tokens, diagnostics."""

from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from schmp_estimators.core.estimators import make_seed
from schmp_estimators.core.inputs.validation import as_chunks, is_dask
from schmp_estimators.core.io.files import replace_file
from schmp_estimators.core.later import Later
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.reduction import tree_sum
from schmp_estimators.core.stages import Each
from schmp_estimators.core.typing import AnyIntegers, Array, Floats, Integers, Integers32, Unary
from schmp_estimators.core.values import part_of_each
from schmp_estimators.lda.data.corpus import Corpus
from schmp_estimators.lda.data.counts import Counts
from schmp_estimators.lda.data.topic_rows import rows_of_counts_array
from schmp_estimators.lda.describe import NAMED, NAMES, SOME, DescribedTopics, joined
from schmp_estimators.lda.kernels.foldin import TopicModel
from schmp_estimators.lda.names import check_labels
from schmp_estimators.lda.parameters import as_numbers
from schmp_estimators.lda.programs import diagnostics
from schmp_estimators.lda.programs.foldin import draw_topics, proportions_of
from schmp_estimators.lda.use import check_room

dask: Any = Later("dask")


class TopicsOfDocuments(DescribedTopics):
    """The methods of a fitted topic model, with those for topics of documents and tokens."""

    def top_documents(
        self, X: Any = None, n_documents: int = 10, *, proportions: Any = None
    ) -> tuple[Integers, Floats]:
        """Return the documents in which each topic has its highest proportions.

        Parameters
        ----------
        X : input as in `fit`, of shape (n_documents, n_features), default=None
            Word counts.  A Dask collection is transformed on the workers.  Of the proportions, only
            those of the best documents come to this process.
        n_documents : int, default=10
            Number of documents for each topic.
        proportions : array-like or Dask array of shape (n_documents, n_components), default=None
            Result of `transform`, instead of X.

        Returns
        -------
        documents : ndarray of shape (n_components, min(n_documents, number of documents)), int64
            Numbers of the documents, by descending proportion.  Equal proportions are ordered by
            number.
        proportions : ndarray of the same shape, float64
            Proportions of the topic in these documents.  With X, documents without words have
            proportion 0 and come last.

        Raises
        ------
        ValueError
            If both or neither of `X` and `proportions` are given.  If `proportions` has NaN, or
            does not have one column for each topic.

        Examples
        --------
        >>> import numpy as np
        >>> from schmp_estimators import DistributedLDA
        >>> X = np.kron(np.eye(2, dtype=int), np.full((50, 5), 3))  # five words each of two topics
        >>> lda = DistributedLDA(2, max_iter=30, random_state=0).fit(X)
        >>> documents, proportions = lda.top_documents(X, 3)
        >>> sorted(documents.tolist())
        [[0, 1, 2], [50, 51, 52]]
        """
        self._check("top_documents", {"n_documents": SOME}, locals())
        if (X is None) == (proportions is None):
            raise ValueError(
                "top_documents needs X, word counts, or proportions, what transform returns: give "
                "one"
            )
        check_labels(proportions, -1, self.get_feature_names_out(), "proportions")
        take = partial(_most, n_best=int(n_documents), n_topics=self._n_features_out)
        if proportions is None:

            def look(corpus: Corpus, place: Place) -> list[tuple[int, Integers, Floats]]:
                task = partial(_most_of, take=take, each=place.each)
                return corpus.rows.here(corpus.tasks(task, "lda-top-documents", self._model()))

            found = self._with_documents(X, look)
        elif not is_dask(proportions):
            found = [take(proportions)]
        else:
            chunks = as_chunks(proportions)
            chunks = chunks if isinstance(chunks, list) else chunks.to_delayed().ravel()
            found = dask.compute(*(dask.delayed(take, pure=False)(chunk) for chunk in chunks))
        begins = np.cumsum([0, *(n for n, _, _ in found)])
        numbers = np.concatenate(
            [rows + begin for (_, rows, _), begin in zip(found, begins, strict=False)]
        )
        shares = np.concatenate([share for _, _, share in found])
        order = np.argsort(-shares, axis=0, kind="stable")[: int(n_documents)]
        return tuple(  # type: ignore[return-value]
            np.take_along_axis(one, order, 0).T.copy() for one in (numbers, shares)
        )

    def sample_topics(self, X: Any, *, random_state: Any = None) -> dict[str, AnyIntegers]:
        """Draw a topic for each token of the documents in X.

        Parameters
        ----------
        X : input as in `fit`, of shape (n_documents, n_features)
            Word counts.  The tokens of a Dask collection come to this process.
        random_state : int, RandomState instance or None, default=None
            Seed.  An int gives the same topics every time, for any chunks and workers.

        Returns
        -------
        dict of str to ndarray of shape (n_tokens,)
            A table for ``pandas.DataFrame``, with a row for each token.  Its columns are the
            numbers "document" (int64), "word" (int32) and "topic" (int32).  Rows are sorted by
            document and word.

        Raises
        ------
        ValueError
            If `transform` would not accept X.
        MemoryError
            If the tokens, at 16 bytes each, need more than 2 GiB.

        See Also
        --------
        write_mallet_state : Writes such topics to a file.

        Notes
        -----
        A fit does not keep the topics of its last sweep, because they need as much memory as the
        corpus.  This method draws topics again, for any documents.  Their probabilities follow from
        the fitted topics and from the proportions that `transform` returns.  Numbers of tokens per
        topic in the fitted documents therefore differ a little from `topic_sizes_`.  Documents with
        the same word counts get the same topics.

        Examples
        --------
        >>> import numpy as np
        >>> from schmp_estimators import DistributedLDA
        >>> X = np.kron(np.eye(2, dtype=int), np.full((50, 5), 3))  # five words each of two topics
        >>> lda = DistributedLDA(2, max_iter=30, random_state=0).fit(X)
        >>> tokens = lda.sample_topics(X, random_state=0)
        >>> len(tokens["topic"]) == int(X.sum())
        True
        >>> tokens["word"][:4].tolist()
        [0, 0, 0, 1]
        """
        check_is_fitted(self)
        seed = make_seed(random_state)

        def sample(corpus: Corpus, place: Place) -> dict[str, AnyIntegers]:
            needed = 16 * int(corpus.lengths.sum())
            remedy = "take some documents at a time, or "
            check_room(needed, "the tokens of X need", " in this process", remedy)
            drawn = corpus.tasks(
                partial(_draw, seed=seed, each=place.each), "lda-draw-topics", self._model()
            )
            found = corpus.rows.here(drawn)
            words, topics = (np.concatenate(part) for part in zip(*found, strict=True))
            return {"document": part_of_each(corpus.lengths), "word": words, "topic": topics}

        return self._with_documents(X, sample)

    def write_mallet_state(
        self,
        path: str | PathLike[str],
        X: Any,
        *,
        feature_names: Any = None,
        random_state: Any = None,
    ) -> None:
        """Draw a topic for each token, and write a file in the format of MALLET's state files.

        Parameters
        ----------
        path : str or path-like
            Path or fsspec URL of the file, which usually ends in ``.gz``.  ``~`` in a path is
            expanded.
        X : input as in `fit`, of shape (n_documents, n_features)
            Word counts.
        feature_names : array-like of shape (n_features,) or vectorizer, default=None
            Names of the words, as in `top_words`.
        random_state : int, RandomState instance or None, default=None
            As in `sample_topics`.

        Raises
        ------
        ValueError, MemoryError
            As in `sample_topics` and `top_words`.
        OSError
            If the file cannot be written.  An earlier file then remains.

        Notes
        -----
        The file is text compressed by gzip.  Its first line is ``#doc source pos typeindex type
        topic``.  The next two lines have the document-topic priors after ``#alpha :`` and the
        topic-word prior after ``#beta :``.  Then there is a line for each token, in which the
        source is "NA".  Tokens of a document are in the order of the columns.  In the name of a
        word, each whitespace character becomes "_".  Names that are then equal also get "#" and the
        number of the column.

        Examples
        --------
        >>> import numpy as np
        >>> from schmp_estimators import DistributedLDA
        >>> X = np.kron(np.eye(2, dtype=int), np.full((50, 5), 3))
        >>> lda = DistributedLDA(2, max_iter=30, random_state=0).fit(X)
        >>> lda.write_mallet_state("state.gz", X, random_state=0)  # doctest: +SKIP
        """
        self._check("write_mallet_state", {"feature_names": NAMES}, locals())
        names = self._plain_names(feature_names)
        tokens = self.sample_topics(X, random_state=random_state)
        alpha = self._alphas()
        beta = float(self.topic_word_prior_)
        replace_file(path, lambda file: diagnostics.write_state(file, tokens, names, alpha, beta))

    def topic_diagnostics(
        self,
        X: Any = None,
        n_words: int = 10,
        *,
        feature_names: Any = None,
        random_state: Any = None,
    ) -> dict[str, Array]:
        """Return MALLET's measures of the quality of topics, and the words of each topic.

        Parameters
        ----------
        X : input as in `fit`, of shape (n_documents, n_features), default=None
            Word counts of documents, those of the fit or others.  If None, the measures that need
            documents are left out.
        n_words : int, default=10
            Number of most probable words that "exclusivity", "coherence" and "words" use for each
            topic.
        feature_names : array-like of shape (n_features,) or vectorizer, default=None
            Names of the words, as in `top_words`.
        random_state : int, RandomState instance or None, default=None
            As in `sample_topics`.

        Returns
        -------
        dict of str to ndarray of shape (n_components,)
            A table for ``pandas.DataFrame``, with a row for each topic.  For a topic without tokens
            in the model, "exclusivity" is 0, and "uniform_dist", "corpus_dist" and "eff_num_words"
            are NaN.  Measures that need X are NaN for a topic without tokens in X.

            - "topic", "name", "alpha", "tokens": number, name, document-topic prior and number of
              tokens of the topic.
            - "document_entropy" (only with X): entropy of the distribution of the topic's tokens
              over documents.  It is low for a topic in few documents.
            - "rank_1_docs" (only with X): of the documents with tokens of the topic, the share in
              which it is the most frequent topic.
            - "coherence" (only with X): sum of ``log((d_ij + beta) / (d_j + beta))`` over pairs of
              words i and j, of which j is the more probable one [1]_.  d_ij is the number of
              documents in which both words have tokens of this topic, and d_j is the number in
              which word j does.  Values near 0 are best.
            - "uniform_dist": Kullback–Leibler divergence of the topic's word distribution from a
              uniform distribution.  It is low for a topic that uses all words alike.
            - "corpus_dist": Kullback–Leibler divergence of the topic's word distribution from that
              of all topics together.  It is low for a topic that resembles the whole corpus.
            - "eff_num_words": 1 divided by the sum of the topic's squared word probabilities.  It
              is large if the topic's tokens are spread over many words.
            - "exclusivity": mean, over the most probable words, of the word's probability in this
              topic divided by the sum of its probabilities in all topics.  It is near 1 if no other
              topic has these words.
            - "words": the most probable words in one string, separated by blanks.  Their names are
              those that `write_mallet_state` writes.

        Raises
        ------
        ValueError
            If a parameter is invalid, or `transform` would not accept X.
        MemoryError
            If the document counts of all pairs of words of all topics, at 8 bytes each, need more
            than 2 GiB.

        See Also
        --------
        coherence : Measures that use all tokens of a word, whatever their topic.

        Notes
        -----
        The definitions are those of MALLET's ``TopicModelDiagnostics``.  Topics of tokens are drawn
        as by `sample_topics`.  Probabilities of words come from `topic_word_counts_`, to which the
        prior and the seeds are added for "exclusivity" and for the choice of words.  As in MALLET,
        words without tokens in the topic, seeded or not, add nothing to "exclusivity".  With an int
        as `random_state`, results are bit-for-bit identical for any chunks and workers.

        References
        ----------
        .. [1] D. Mimno, H. M. Wallach, E. Talley, M. Leenders, A. McCallum, "Optimizing semantic
           coherence in topic models", EMNLP 2011.

        Examples
        --------
        >>> import numpy as np
        >>> from schmp_estimators import DistributedLDA
        >>> X = np.kron(np.eye(2, dtype=int), np.full((50, 5), 3))  # five words each of two topics
        >>> lda = DistributedLDA(2, max_iter=30, random_state=0).fit(X)
        >>> found = lda.topic_diagnostics(X, 5, random_state=0)
        >>> found["tokens"].tolist()
        [750, 750]
        >>> found["eff_num_words"].round(2).tolist(), found["rank_1_docs"].tolist()
        ([5.0, 5.0], [1.0, 1.0])
        """
        self._check("topic_diagnostics", {"n_words": SOME, "feature_names": NAMES}, locals())
        self._check_pairs(int(n_words))
        names = self._plain_names(feature_names)
        sizes = self.topic_sizes_
        beta = float(self.topic_word_prior_)
        best, weights = self._best_words(int(n_words))
        found = {"topic": np.arange(len(sizes)), "name": self.topic_names_}
        found |= {"alpha": self._alphas(), "tokens": sizes}
        if X is not None:
            seed = make_seed(random_state)

            def count(corpus: Corpus, place: Place) -> diagnostics.DocumentCounts:
                counted = partial(_count, seed=seed, each=place.each)
                parts = corpus.tasks(counted, "lda-diagnose", self._model(), best)
                whole: diagnostics.DocumentCounts = corpus.rows.merged(
                    parts, tree_sum, "lda-diagnose"
                )
                return whole

            found |= diagnostics.document_measures(
                self._with_documents(X, count), beta, best.shape[1]
            )
        found |= diagnostics.word_measures(
            rows_of_counts_array(self.topic_word_counts_), len(sizes)
        )
        is_own = self.topic_word_counts_[np.arange(len(best))[:, None], best].toarray() > 0
        found["exclusivity"] = diagnostics.exclusivity(
            *self._rows(), beta, best, np.where(is_own, weights, 0.0)
        )
        found["words"] = np.array([" ".join(row) for row in names[best].tolist()], object)
        return found

    def summary(
        self, X: Any = None, n_words: int = 10, *, feature_names: Any = None
    ) -> dict[str, Array]:
        """Return a table that describes each topic.

        Parameters
        ----------
        X : input as in `fit`, of shape (n_documents, n_features), default=None
            Word counts of documents, those of the fit or others.  If None, the columns that need
            documents are left out.
        n_words : int, default=10
            Number of words for each topic.
        feature_names : array-like of shape (n_features,) or vectorizer, default=None
            Names of the words, as in `top_words`.

        Returns
        -------
        dict of str to ndarray of shape (n_components,)
            A table for ``pandas.DataFrame``, with a row for each topic.

            - "topic", "name": number of the topic, and its name in `topic_names_`.
            - "share": share of the topic in all tokens of the model.
            - "words": the most relevant words, as `top_words` returns them, in one string.
            - "exclusivity": as in `topic_diagnostics`.
            - "coherence" (only with X): "npmi" as in `coherence`.
            - "document", "proportion" (only with X): number of the document with the highest
              proportion of the topic, and this proportion.

        Raises
        ------
        ValueError
            If a parameter is invalid, or `transform` would not accept X.

        Examples
        --------
        >>> import numpy as np
        >>> from schmp_estimators import DistributedLDA
        >>> X = np.kron(np.eye(2, dtype=int), np.full((50, 5), 3))  # five words each of two topics
        >>> lda = DistributedLDA(2, max_iter=30, random_state=0).fit(X)
        >>> lda.topic_names_ = ["one", "other"]
        >>> [*lda.summary(X, 5)]
        ['topic', 'name', 'share', 'words', 'exclusivity', 'coherence', 'document', 'proportion']
        >>> lda.summary()["share"].tolist()
        [0.5, 0.5]
        """
        self._check("summary", {"n_words": SOME, "feature_names": NAMES}, locals())
        words = self.top_words(max(NAMED, n_words), feature_names=feature_names)
        found = {
            "topic": np.arange(len(words)),
            "name": self._named(words[:, :NAMED]),
            "share": self.topic_sizes_ / max(1, self.topic_sizes_.sum()),
            "words": joined(words[:, :n_words]),
            "exclusivity": self.topic_diagnostics(None, n_words)["exclusivity"],
        }
        if X is not None:
            found["coherence"] = self.coherence(X, n_words=max(2, n_words))
            best = self.top_documents(X, 1)
            found["document"], found["proportion"] = (one[:, 0] for one in best)
        return found

    def _plain_names(self, feature_names: Any) -> Array:
        """Return names without blanks, none of which is empty or that of two words."""
        names = self._names(feature_names)
        return diagnostics.plain_names(
            range(self.n_features_in_) if names is None else names.tolist()
        )

    def _alphas(self) -> Floats:
        return np.array(np.broadcast_to(self.doc_topic_prior_, self._n_features_out), np.float64)


def _most(theta: Any, n_best: int, n_topics: int) -> tuple[int, Integers, Floats]:
    """Return the number of documents, and numbers and shares of each topic's best ones.

    Both have the shape (n_best, K).
    """
    shares = as_numbers(theta, "proportions must be numbers, one column for each topic")
    if shares.shape[1:] != (n_topics,):
        raise ValueError(
            f"proportions has shape {shares.shape}, but there are {n_topics} topics; give one "
            "column for each"
        )
    if np.isnan(shares).any():
        raise ValueError("proportions has NaN; leave these documents out")
    order = np.argsort(-shares, axis=0, kind="stable")[:n_best]
    return len(shares), order, np.take_along_axis(shares, order, 0)


def _most_of(
    counts: Counts, model: TopicModel, *, take: Unary, each: Each
) -> tuple[int, Integers, Floats]:
    theta = proportions_of(counts, model, each)
    theta[np.diff(counts.indptr) == 0] = 0.0
    found: tuple[int, Integers, Floats] = take(theta)
    return found


def _draw(
    counts: Counts, model: TopicModel, *, seed: int, each: Each
) -> tuple[Integers32, Integers32]:
    """Return the word and the topic of each token."""
    return np.repeat(counts.indices, counts.data), draw_topics(counts, model, seed, each)


def _count(
    counts: Counts, model: TopicModel, best: Integers, *, seed: int, each: Each
) -> diagnostics.DocumentCounts:
    return diagnostics.count_topics(counts, draw_topics(counts, model, seed, each), best)
