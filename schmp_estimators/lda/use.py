"""Uses of a fitted topic model: proportions of documents, perplexity, topics as a dense array."""

import copy
import math
import warnings
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils._param_validation import HasMethods, validate_parameter_constraints
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from schmp_estimators.core.inputs.validation import is_dask, map_rows, refuse_container
from schmp_estimators.core.later import setting
from schmp_estimators.core.places.place import Place, choose_place, n_threads, retry
from schmp_estimators.core.typing import Array, Floats
from schmp_estimators.lda.blocks import Prior, TopicRows
from schmp_estimators.lda.data.corpus import Corpus, open_corpus
from schmp_estimators.lda.data.counts import Columns
from schmp_estimators.lda.data.topic_rows import rows_of_counts_array, topic_totals
from schmp_estimators.lda.kernels.foldin import TopicModel, topic_model
from schmp_estimators.lda.names import MISMATCH, check_order, columns_by_name, labels_of
from schmp_estimators.lda.programs.foldin import completion_scores, proportions

#: The most bytes of an array in this process, such as ``components_``, unless dask.config has
#: another limit.
DENSE_LIMIT = 2 << 30

#: What names of words may be.
NAMES = [None, "array-like", HasMethods("get_feature_names_out")]

R = TypeVar("R")


def check_room(needed: float, what: str, use: str, remedy: str = "") -> None:
    """Raise MemoryError if arrays of so many bytes are larger than the limit for one process.

    The error says ``what`` needs the memory, how much, for which ``use``, and a ``remedy`` beside a
    higher limit.
    """
    if needed > int(setting("schmp-estimators.dense-limit", DENSE_LIMIT)):
        raise MemoryError(
            f"{what} {needed / 2**30:.3g} GiB{use}; {remedy}raise the limit with "
            f"dask.config.set({{'schmp-estimators.dense-limit': {math.ceil(needed)}}})"
        )


class TopicMethods(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """The methods of a fitted topic model."""

    n_features_in_: int
    n_jobs: int | None
    transform_tol: float
    topic_word_counts_: sparse.csc_array
    doc_topic_prior_: Prior
    topic_word_prior_: float
    #: A class attribute, for models that were fitted before there were seeds.
    seed_counts_: sparse.csc_array | None = None
    feature_names_: Array | None

    @property
    def components_(self) -> Floats:
        """Pseudo-counts of the words in each topic, shape (n_components, n_features).

        They are the sums of `topic_word_counts_`, `topic_word_prior_` and `seed_counts_`.
        """
        check_is_fitted(self)
        sparsely = (
            "use the sparse topic_word_counts_, to which components_ adds topic_word_prior_, or "
        )
        check_room(
            8 * math.prod(self.topic_word_counts_.shape),
            "components_ would be a dense array of",
            "",
            sparsely,
        )
        dense = self.topic_word_counts_.toarray() + self.topic_word_prior_
        return dense if self.seed_counts_ is None else dense + self.seed_counts_.toarray()

    def transform(self, X: Any, *, feature_names: Any = None) -> Any:
        """Return the topic proportions of documents, given the fitted topics.

        Parameters
        ----------
        X : input as in `fit`, of shape (n_documents, n_features)
            Word counts.
        feature_names : array-like of shape (n_columns,) or vectorizer, default=None
            Names of the columns of X.  With names, X may have other words than the fit, in any
            order.  Words that the model does not know are left out, and the log gives the number of
            their tokens.  If None, X must have the columns of the model.

        Returns
        -------
        ndarray or dask.array.Array of shape (n_documents, n_components), float64
            Topic proportions; rows sum to 1.  For a Dask collection, the result is lazy: a Dask
            array, or a list of Delayed if X is such a list.  A document without words gets the mean
            proportions of the document-topic prior.
        """
        check_is_fitted(self)
        refuse_container(self, X)
        seen, columns = self._columns(X, feature_names)
        n_outputs = self.topic_word_counts_.shape[0]
        with closing(Place(1 if is_dask(X) else n_threads(self.n_jobs))) as place:
            apply = partial(proportions, each=place.each, columns=columns)
            return map_rows(
                apply,
                X,
                seen,
                self._model(),
                n_outputs=n_outputs,
                dtype=np.float64,
                name="lda-fold-in",
            )

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit, then return the topic proportions of the documents.

        The result equals ``fit(X).transform(X)``.

        Parameters
        ----------
        X : input as in `fit`
            Word counts.
        y : None
            Ignored.
        **fit_params : dict
            Passed to `fit`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n_documents, n_components)
            Topic proportions.
        """
        refuse_container(self, X)
        return self.fit(X, y, **fit_params).transform(X)

    def perplexity(self, X: Any, *, feature_names: Any = None) -> float:
        """Return the perplexity of one half of each document, predicted from the other half.

        The tokens of a document are numbered from 0, in the order of the columns.  Tokens with even
        numbers determine the topic proportions, and the other tokens are scored.  Documents with
        fewer than two tokens are not scored.

        Parameters
        ----------
        X : input as in `fit`
            Word counts.
        feature_names : array-like of shape (n_columns,) or vectorizer, default=None
            Names of the columns of X, as in `transform`.

        Returns
        -------
        float
            ``exp(-mean log-likelihood of a scored token)``; lower is better.  It is NaN if no
            document has two or more tokens.

        Warns
        -----
        UndefinedMetricWarning
            If no document has two or more tokens.
        """
        log_likelihood, n_scored, _ = self._complete(X, feature_names)
        return math.exp(-log_likelihood / n_scored) if n_scored else math.nan

    def score(self, X: Any, y: Any = None) -> float:
        """Return a log-likelihood of X, ``-X.sum() * log(perplexity(X))``.

        The score is at most 0, and higher is better.

        Parameters
        ----------
        X : input as in `fit`
            Word counts.
        y : None
            Ignored.

        Returns
        -------
        float
            The score, or NaN if no document has two or more tokens.

        Warns
        -----
        UndefinedMetricWarning
            If no document has two or more tokens.
        """
        log_likelihood, n_scored, n_tokens = self._complete(X)
        return n_tokens * log_likelihood / n_scored if n_scored else math.nan

    def _complete(self, X: Any, feature_names: Any = None) -> tuple[float, int, int]:
        """Return the log-likelihood of the scored half of X, its number of tokens, and X's.

        Warns if there is nothing to score.
        """
        check_is_fitted(self)

        def complete(corpus: Corpus, place: Place) -> tuple[float, int, int]:
            scores = corpus.tasks(
                partial(completion_scores, each=place.each), "lda-score", self._model()
            )
            total = math.fsum(np.concatenate(corpus.rows.here(scores)))
            return total, int((corpus.lengths // 2).sum()), int(corpus.lengths.sum())

        found = self._with_documents(X, complete, feature_names)
        if not found[1]:
            warnings.warn(
                f"X has {found[2]} tokens, but no document with two, so that there is nothing to "
                "score: half of the tokens of a document are predicted from the other half. Give "
                "longer documents.",
                UndefinedMetricWarning,
                stacklevel=3,
            )
        return found

    def _with_documents(
        self, X: Any, work: Callable[[Corpus, Place], R], feature_names: Any = None
    ) -> R:
        """Return ``work(corpus, place)`` for documents and their place, as `where_it_is`."""
        if isinstance(X, Corpus):
            return work(X, X.rows.place)
        seen, columns = self._columns(X, feature_names)

        def go(place: Place) -> R:
            with closing(open_corpus(X, seen, place=place, reset=False, columns=columns)) as corpus:
                return work(corpus, place)

        return where_it_is(X, self.n_jobs, go)

    def _columns(self, X: Any, feature_names: Any) -> tuple[Any, Columns | None]:
        """Return the estimator with whose columns those of X are compared, and where they are.

        The places are those among the model's columns.
        """
        if feature_names is None:
            return self._named_as(X), None
        seen, _, (of_input, _) = self._by_name(X, feature_names)
        n_words = self.n_features_in_
        return seen, Columns(np.where(of_input < n_words, of_input, -1), n_words)

    def _by_name(
        self, X: Any, feature_names: Any, *, anew: bool = False
    ) -> tuple[Any, Array, Columns]:
        """Return a copy that has the columns of X, the names of all words, and where X has them.

        New names are at the end.

        `anew`: whether there are no words yet.
        """
        given = {"feature_names": feature_names}
        validate_parameter_constraints(
            {"feature_names": NAMES}, given, caller_name=type(self).__name__
        )
        known = None if anew else self.feature_names_
        if known is None and not anew:
            raise ValueError(
                "feature_names cannot be compared with the words of the model, which have no "
                "names: begin by partial_fit with feature_names, or leave them out"
            )
        names, columns = columns_by_name(X, feature_names, known)
        seen = copy.copy(self)
        seen.n_features_in_ = len(columns.of_input)
        _check_feature_names(seen, getattr(X, "_meta", X), reset=True)
        return seen, names, columns

    def _named_as(self, X: Any) -> Any:
        """Return the estimator, as if its words had been names of columns if those of X are.

        Raise ValueError if a data frame has the columns in another order: scikit-learn does not
        look at the order there.
        """
        if hasattr(self, "feature_names_in_"):
            return self
        labels = labels_of(X, self.n_features_in_)
        if labels is None:
            return self
        known = getattr(self, "feature_names_", None)
        words = [*range(self.n_features_in_)] if known is None else known.tolist()
        check_order(labels.tolist(), words, f"{MISMATCH}X")
        if labels.tolist() != words or not all(isinstance(word, str) for word in words):
            return self
        named = copy.copy(self)
        named.feature_names_in_ = labels
        return named

    def _model(self) -> TopicModel:
        return topic_model(
            *self._rows(), self.doc_topic_prior_, self.topic_word_prior_, self.transform_tol
        )

    def _tokens(self) -> sparse.csc_array:
        """Return the tokens of words in topics, seeds included."""
        if self.seed_counts_ is None:
            return self.topic_word_counts_
        both = sparse.csc_array(self.topic_word_counts_ + self.seed_counts_)
        both.sort_indices()
        return both

    def _rows(self) -> tuple[TopicRows, Array]:
        """Return the tokens of words in topics, seeds included, as `TopicRows`, and of topics."""
        totals = topic_totals(self.topic_word_counts_)
        seeds = self.seed_counts_
        if seeds is not None:
            totals = totals + np.bincount(seeds.indices, seeds.data, len(totals))
        return rows_of_counts_array(self._tokens()), totals

    @property
    def _n_features_out(self) -> int:
        return self.topic_word_counts_.shape[0]


def where_it_is(X: Any, n_jobs: int | None, work: Callable[[Place], R]) -> R:
    """Return ``work(place)`` for the place of a Dask collection.

    The place of an X in memory is this process.
    """
    if not is_dask(X):
        with closing(Place(n_threads(n_jobs))) as here:
            return work(here)
    with choose_place(n_jobs, is_dask=True, label="schmp-lda") as place:
        return retry(place, lambda: work(place))
