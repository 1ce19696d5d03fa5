"""Latent Dirichlet allocation, for users."""

from __future__ import annotations

import logging
import math
import os
from contextlib import closing
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, _fit_context
from sklearn.callback import with_callbacks
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from schmp_estimators.core.estimators import SweepingEstimator, make_seed, undone_on_error
from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.inputs.validation import (
    COUNT,
    NOT_NEGATIVE,
    SHARE,
    entries_of,
    is_dask,
    keep,
)
from schmp_estimators.core.places.place import choose_place, retry
from schmp_estimators.core.rng import stream_key
from schmp_estimators.core.typing import Array, Integers, Named
from schmp_estimators.lda.data.corpus import open_corpus
from schmp_estimators.lda.fit import LDAFit
from schmp_estimators.lda.names import names_of_words
from schmp_estimators.lda.parameters import (
    LEAST,
    MOST,
    check_most,
    check_parameters,
    priors_asked_for,
)
from schmp_estimators.lda.programs.topics import TopicSampler
from schmp_estimators.lda.samplers import FEW_TOPICS, SAMPLERS
from schmp_estimators.lda.shares import SharesOfTopics
from schmp_estimators.lda.spill import check_spill

logger = logging.getLogger(__name__)

_PRIOR = [None, Interval(Real, LEAST, MOST, closed="both"), StrOptions({"learn"})]


class DistributedLDA(SharesOfTopics, SweepingEstimator, BaseEstimator):
    """Latent Dirichlet allocation by parallel sampling, in this process or on a Dask cluster.

    A *token* is one occurrence of a word in a document.  A *sweep* goes once through all tokens and
    draws a new topic for each.  A *shard* is one of the parts into which the documents are divided.
    With the default sampler and an int as `random_state`, `topic_word_counts_` is bit-for-bit
    identical for any number of threads, shards and workers, with or without Dask.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics, called K below.  Even a million is possible, except with
        ``sampler="frozen"``.
    doc_topic_prior : float, array-like of shape (n_components,) or "learn", default=None
        Parameter alpha of the Dirichlet prior of the topic proportions of documents, from 1e-30 to
        1e30.  None means "learn" for 500 to 4,096 topics, and ``1 / n_components`` otherwise.
        "learn" starts from 0.1 and estimates one number for each topic [9]_ [10]_.  The numbers are
        updated every 5 sweeps, after the first 30 sweeps or half of `max_iter`, whichever is less.
        Later calls of `partial_fit` keep a learned prior, but `fit` with `warm_start` continues to
        learn it.
    topic_word_prior : float or "learn", default=None
        Parameter beta of the Dirichlet prior of the word proportions of topics, from 1e-30 to 1e30.
        None means ``1 / n_components``.  "learn" starts from 0.01 and estimates one number for all
        words and topics [10]_.  This number is updated in the same sweeps as a learned
        `doc_topic_prior`, and later calls of `partial_fit` keep it.
    seed_words : dict or array-like of shape (n_components, n_features), default=None
        Words that you expect in certain topics.  A dictionary maps the number of a topic to a list
        of words, or to a dictionary from words to numbers of imaginary tokens.  Words are given by
        name or by column number.  If names are numbers, a number is read as a name.  An array,
        dense or sparse, has the number of imaginary tokens of each word in each topic.  Imaginary
        tokens add to `topic_word_prior`.  In a fit without an earlier model, the real tokens of a
        seed word start in its topics.  Later calls of `partial_fit` keep the imaginary tokens of
        the first call.
    seed_weight : float, default=1.0
        Factor for the numbers of imaginary tokens in a dictionary of `seed_words`.  A word in a
        list gets `seed_weight` imaginary tokens for each of its tokens in X.  With `partial_fit`,
        this is the X of the first call.
    feature_names : array-like of shape (n_features,) or vectorizer, default=None
        Names of the words, for `seed_words` and for methods that describe topics.  Pass an array,
        or an object whose ``get_feature_names_out()`` returns the names when `fit` is called, such
        as the vectorizer of the same pipeline.  Searches, cross-validation and
        ``Pipeline(memory=...)`` fit a clone of that vectorizer.  For these, pass the same list here
        and to the vectorizer as its ``vocabulary``.  If None, the column names of X are used,
        unless they are 0, 1, 2, and so on.  Names should be unique, and no word may have the name
        of another column of X.
    sampler : {"auto", "warp", "frozen", "saber", "fplus", "sparse", "light", "light-word", \
            "light-document", "alias", "hybrid", "data-parallel"} or object, default="auto"
        Algorithm that draws topics: a name, or an object (see :doc:`/user_guide/samplers`).  Of
        these names, only "auto", "warp", "frozen" and "saber" give results independent of
        `n_shards`.  "light-word", "light-document", "alias" and "data-parallel" are only for
        comparisons.

        - "warp": Metropolis–Hastings sampling [1]_.  A sweep has one pass by word and one by
          document, and the counts of words and topics are updated only after each pass.  The
          sampler takes constant time per token, but does not sample the exact posterior.
        - "frozen": Gibbs sampling in which word counts are updated only after each sweep.  Time per
          token and memory per word are proportional to K, so use it for at most a few hundred
          topics.  Like "saber", it needs fewer sweeps than "warp".
        - "saber": Gibbs sampling in which the counts of words and documents are updated only after
          each sweep [11]_.  Time per token grows with the number of topics in its document, not
          with K.  See "auto" for when to use it.
        - "fplus": collapsed Gibbs sampling with F+ trees [2]_.  It is exact with one shard.  With
          several shards, each uses slightly outdated topic totals.  So do the shards of the
          samplers from "sparse" to "data-parallel".  The entry ``s_error`` of `history_` measures
          the error of these totals [3]_.
        - "sparse": collapsed Gibbs sampling, document by document [4]_.  It is exact with one
          shard, and fast once each word is in few topics.
        - "light": Metropolis–Hastings with proposals by word and by document in turn [5]_.  It
          takes constant time per token.  With one shard it is exact, but needs more sweeps than
          Gibbs sampling.  Its variants "light-word" and "light-document" make only one kind of
          proposal.
        - "alias": Metropolis–Hastings with alias tables that are not updated during a sweep [6]_.
        - "hybrid": like "fplus", but with Metropolis–Hastings for documents of more than 600 tokens
          if there are more than 600 topics [8]_.  It was slower than "fplus" in our tests.
        - "data-parallel": like "fplus", but each shard works on its own copy of all counts [7]_.
          The copies are merged after each sweep.
        - "auto": "saber", "frozen" or "warp".  With at most 2**25 tokens, "saber" is used for 257
          to 4,096 topics if documents have at most 300 tokens on average, and for 100 to 256 topics
          if they have more than 500.  Otherwise, "frozen" is used for at most 256 topics if ``4*K``
          bytes for each word that occurs in X fit in 128 MiB.  All other cases use "warp".
    mh_steps : int or "acceptance", default=2
        Number of proposals for each token in Metropolis–Hastings samplers.  "warp" can make 1 to 4
        in each pass.  In a sweep, "alias" can make 1 to 16, and so can "hybrid" for long documents.
        "light" can make 1 to 16 by word and as many by document, and its variants make twice as
        many of one kind.  With more proposals, a sweep takes longer, but fewer sweeps are needed.
        Other samplers (also if "auto" chooses them) and objects accept only 2, as does "hybrid" if
        it makes no proposals.  "acceptance", only for "hybrid", means 2 in the first sweep and then
        ⌈1/π⌉, at most 16.  Here π is the share of proposals accepted in the sweep before [8]_.
    init : {"auto", "documents", "sparse", "tempered", "uniform"}, default="auto"
        How tokens get their first topics in a fit without an earlier model.

        - "uniform": each token starts in a random topic.
        - "documents": each topic starts from a *seed window*, which is up to 100 tokens of a random
          document, or up to 300 if documents are long.  A token starts in a topic whose window has
          its word, or another word of its document if no window has its word.  With "saber" and a
          fixed `doc_topic_prior`, expectation–maximisation steps then weight these topics.
        - "sparse": each word draws two topics at random, and each of its tokens starts in one of
          them.
        - "tempered": like "uniform", but with priors of up to 5 alpha and 10 beta for the first 30
          sweeps, or half of `max_iter` if that is less.
        - "auto": "documents" for 50 topics or more with at most 100,000 tokens per topic on
          average, and "uniform" otherwise.  In both cases, "warp", "frozen" and "saber" also start
          with the larger priors of "tempered".
    max_iter : int, default=150
        Maximum number of sweeps.
    evaluate_every : int, default=0
        Number of sweeps, at most `max_iter`, between two evaluations of the joint log-likelihood of
        words and topics.  0 means 10 if `tol` is not 0, and otherwise no evaluation.
    tol : float, default=0.0
        Stop when the log-likelihood changes by at most this fraction between two evaluations.
        Evaluations before the larger priors of `init` end, or before "learn" begins, do not count.
        With 0, only a callback can end a fit before `max_iter` sweeps.
    transform_tol : float, default=1e-3
        Tolerance of `transform` and of all methods that need topic proportions, between 0 and 1.
        It limits the estimated sum of absolute differences between the topic proportions of a
        document and those that maximise its likelihood times a Dirichlet(1 + alpha) prior.
    n_shards : int, default=None
        Number of shards, at most the number of documents and at most that of words.  If None,
        "warp", "frozen" and "saber" use 1 in this process.  On a cluster they use the number of
        workers, but at most the square root of ``n_tokens / 8e4``.  With these samplers, more
        shards than workers only help if workers join during the fit.  For the other named samplers,
        None means the square root of ``n_tokens / 1.5e6``.
    n_jobs : int, default=None
        Number of threads for work in this process.  None means 1, and -1 means all cores.  In fits
        with "warp", "frozen" or "saber" and up to 32,768 topics, a second thread helps from 262,144
        tokens on.
    checkpoint : str or path-like, default=None
        Path or fsspec URL of a file to which the state of the fit is written every
        `checkpoint_every` sweeps.  ``~`` and environment variables in a path are expanded.  A fit
        that finds its own checkpoint in this file continues from it.  A call of `partial_fit`
        replaces the checkpoint of the call before.  A checkpoint needs an int as `random_state`.
        If the file cannot be written, the fit continues with a `CheckpointWarning`.
    checkpoint_every : int, default=25
        Number of sweeps between two checkpoints.
    spill : {"auto"} or path-like, default=None
        Where to keep parts of the tokens (*slices*) on disk instead of in memory.  Results do not
        change.  Samplers whose results depend on `n_shards` need at least one shard for each slice.
        "auto" uses the disk only if the fit would need more than half of the available memory, or
        on a cluster more than 80 % of that of all workers.  It then gives a `SpillWarning` and uses
        Dask's temporary directory, or on a cluster the local directory of each worker.  A folder
        that you pass is always used, and all workers must reach it.  The folder also keeps a
        checkpoint of the last sweep, from which the same fit continues, and needs an int as
        `random_state`.  With any `spill`, `checkpoint` must be None.  If the disk is used, the
        input is read several times.
    warm_start : bool, default=False
        Whether `fit` draws the first topics from the counts of the last fit.  Unlike `partial_fit`,
        `fit` does not keep these counts.
    half_life : float, default=None
        Number of further calls of `partial_fit` after which the tokens of a call count half.
        Earlier counts become fractions, and fractions below a hundredth of `topic_word_prior_` are
        dropped.  If None, all tokens keep their full weight.
    max_features : int, default=None
        Maximum number of words in the model after a call of `partial_fit` with `feature_names`.
        The words with the fewest tokens, real and imaginary, are removed at the end of the call.
        The log names the removed words.  A removed word that occurs again is a new word.  In other
        calls, also of `fit`, more columns are an error.  If None, all words are kept.
    verbose : int, default=0
        If not 0, show a progress bar, which needs the package ``rich``.  The bar also shows tokens
        per second, the last log-likelihood and the last measurement of `HeldOutPerplexity`.
    random_state : int, RandomState instance or None, default=None
        Seed.  An int gives the same result every time.

    Attributes
    ----------
    topic_word_counts_ : scipy.sparse.csc_array of shape (n_components, n_features), int32
        Number of tokens of each word in each topic.  The dtype is float64 if `half_life` has made
        fractions of some counts.
    components_ : ndarray of shape (n_components, n_features), float64
        Sum of `topic_word_counts_`, `topic_word_prior_` and `seed_counts_`.  Each access computes
        it, and raises MemoryError above 2 GiB.
    topic_sizes_ : ndarray of shape (n_components,), int64
        Number of tokens of each topic, float64 if some are fractions.
    batch_topic_sizes_ : ndarray of shape (n_calls, n_components), int64
        Number of tokens of each topic in each call.  The calls are the last `fit`, if any, and
        those of `partial_fit` since.
    topic_names_ : ndarray of shape (n_components,), dtype object
        Names of the topics in tables and plots: the most relevant words of each topic, until you
        assign others.
    doc_topic_prior_ : float or ndarray of shape (n_components,)
        Document-topic prior at the end of the fit, given or learned.  It is larger if a callback
        ended the fit in sweeps with the larger priors of `init`.
    topic_word_prior_ : float
        Topic-word prior at the end of the fit, larger in the same case as `doc_topic_prior_`.
    seed_counts_ : scipy.sparse.csc_array of shape (n_components, n_features), float64, or None
        Imaginary tokens of each word in each topic.
    feature_names_ : ndarray of shape (n_features,) or None
        Names of the words, from `feature_names` or from the columns of X.
    n_iter_ : int
        Number of sweeps done.
    history_ : list of dict
        A record for each sweep.  ``iterations``, ``seconds`` and ``samples`` (tokens) are totals so
        far.  ``doc_topic_prior`` (a mean, if there are several) and ``topic_word_prior`` are the
        priors of the sweep.  Evaluations add ``document_log_likelihood``, ``word_log_likelihood``
        and their sum ``log_likelihood``, under the given or learned priors.  In later calls of
        `partial_fit`, these are log-likelihoods of the new documents, given the earlier tokens.
    n_shards_ : int
        Number of shards used.
    sampler_ : str or object
        The sampler used, never "auto".
    n_features_in_ : int
        Number of words.
    feature_names_in_ : ndarray of str
        Names of the words, if X had names that are strings.

    See Also
    --------
    sklearn.decomposition.LatentDirichletAllocation : Variational inference, in one process.

    Notes
    -----
    Documents in a Dask collection stay on the cluster.  In a fit, the client receives numbers of
    tokens, seed windows, records and `topic_word_counts_`.  In longer fits and for checkpoints, it
    also receives the topics of all tokens (a :term:`snapshot`).  `transform` is deterministic, and
    its result for a document does not depend on other documents.

    References
    ----------
    .. [1] J. Chen, K. Li, J. Zhu, W. Chen, "WarpLDA: a cache efficient O(1) algorithm for latent
       Dirichlet allocation", PVLDB 9(10), 2016.
    .. [2] H.-F. Yu, C.-J. Hsieh, H. Yun, S. V. N. Vishwanathan, I. S. Dhillon, "A scalable
       asynchronous distributed algorithm for topic modeling", WWW 2015, section 3.
    .. [3] S. Lee, J. K. Kim, X. Zheng, Q. Ho, G. A. Gibson, E. P. Xing, "On model parallelization
       and scheduling strategies for distributed machine learning", NIPS 2014, section 3.1.
    .. [4] L. Yao, D. Mimno, A. McCallum, "Efficient methods for topic model inference on streaming
       document collections", KDD 2009, section 3.4.
    .. [5] J. Yuan, F. Gao, Q. Ho, W. Dai, J. Wei, X. Zheng, E. P. Xing, T.-Y. Liu, W.-Y. Ma,
       "LightLDA: big topic models on modest computer clusters", WWW 2015, section 4.
    .. [6] A. Q. Li, A. Ahmed, S. Ravi, A. J. Smola, "Reducing the sampling complexity of topic
       models", KDD 2014.
    .. [7] D. Newman, A. Asuncion, P. Smyth, M. Welling, "Distributed algorithms for topic models",
       JMLR 10, 2009.
    .. [8] L. Yu, C. Zhang, Y. Shao, B. Cui, "LDA*: a robust and large-scale topic modeling system",
       PVLDB 10(11), 2017, section 3.2.
    .. [9] H. M. Wallach, D. Mimno, A. McCallum, "Rethinking LDA: why priors matter", NIPS 2009.
    .. [10] T. P. Minka, "Estimating a Dirichlet distribution", 2000, equation 55.
    .. [11] K. Li, J. Chen, W. Chen, J. Zhu, "SaberLDA: sparsity-aware learning of topic models on
       GPUs", ASPLOS 2017.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from schmp_estimators import DistributedLDA
    >>> text = ["cats purr and sleep", "dogs bark", "a cat sleeps", "the dog barks at the cat"] * 10
    >>> X = CountVectorizer().fit_transform(text)
    >>> lda = DistributedLDA(n_components=2, max_iter=50, random_state=0).fit(X)
    >>> lda.transform(X).shape
    (40, 2)
    >>> int(lda.topic_word_counts_.sum()) == int(X.sum())
    True

    Documents may come in batches, whose words are matched by name:

    >>> stream = DistributedLDA(n_components=2, half_life=10, max_iter=50, random_state=0)
    >>> for batch in (text, ["foxes and dogs bark"] * 10):
    ...     counter = CountVectorizer()
    ...     counts = counter.fit_transform(batch)
    ...     stream = stream.partial_fit(counts, feature_names=counter.get_feature_names_out())
    >>> stream.feature_names_[-1]
    'foxes'
    """

    _objective = "log_likelihood"

    _parameter_constraints: ClassVar[Named] = {
        "n_components": [Interval(Integral, 1, 2**31 - 1, closed="both")],
        "doc_topic_prior": [*_PRIOR, "array-like"],
        "topic_word_prior": _PRIOR,
        "seed_words": [None, dict, "array-like", "sparse matrix"],
        "seed_weight": [Interval(Real, 0, MOST, closed="both")],
        "feature_names": [None, "array-like", HasMethods("get_feature_names_out")],
        "sampler": [StrOptions({"auto", *SAMPLERS}), TopicSampler],
        "mh_steps": [Interval(Integral, 1, 16, closed="both"), StrOptions({"acceptance"})],
        "init": [StrOptions({"auto", "documents", "sparse", "tempered", "uniform"})],
        "max_iter": [COUNT],
        "evaluate_every": [Interval(Integral, 0, None, closed="left")],
        "tol": [NOT_NEGATIVE],
        "transform_tol": [SHARE],
        "n_shards": [None, COUNT],
        "n_jobs": [None, COUNT, Interval(Integral, None, -1, closed="right")],
        "checkpoint": [None, str, os.PathLike],
        "checkpoint_every": [COUNT],
        "spill": [None, str, os.PathLike],
        "warm_start": ["boolean"],
        "half_life": [None, Interval(Real, 0, None, closed="neither")],
        "max_features": [None, COUNT],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components: int = 10,
        *,
        doc_topic_prior: Any = None,
        topic_word_prior: float | str | None = None,
        seed_words: Any = None,
        seed_weight: float = 1.0,
        feature_names: Any = None,
        sampler: Any = "auto",
        mh_steps: int | str = 2,
        init: str = "auto",
        max_iter: int = 150,
        evaluate_every: int = 0,
        tol: float = 0.0,
        transform_tol: float = 1e-3,
        n_shards: int | None = None,
        n_jobs: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 25,
        spill: str | os.PathLike[str] | None = None,
        warm_start: bool = False,
        half_life: float | None = None,
        max_features: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        keep(self, locals())

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> DistributedLDA:
        """Sample topics for the tokens of X.

        Parameters
        ----------
        X : array-like, sparse array or matrix, data frame, or Dask collection, \
                of shape (n_documents, n_features)
            Word counts: whole numbers, at least 0.
        y : None
            Ignored.

        Returns
        -------
        DistributedLDA
            The fitted estimator itself.

        Raises
        ------
        ValueError
            If a parameter is invalid.  If X has no documents, or has a value that is not a count.
        MemoryError
            If a check before the first sweep finds that the fit needs too much memory.
        CheckpointMismatchError
            If the files of `checkpoint` or `spill` belong to another fit or are damaged.
        SpillError
            If the folder of `spill` cannot be used, is on a full disk, or is used by another fit.
        NotSharedError
            If a worker does not see the folder of `spill`, or the file of a memory-mapped X.
        WorkerLostError, NoWorkersError, SchedulerLostError, MixedClusterError,
        AsynchronousClientError
            If the Dask cluster cannot complete the fit.
        """
        earlier = (
            self.topic_word_counts_
            if self.warm_start and hasattr(self, "topic_word_counts_")
            else None
        )
        return self._sample(X, y, earlier, keep=False)

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, *, feature_names: Any = None) -> DistributedLDA:
        """Sample topics for more documents, and keep the counts of earlier calls.

        Parameters
        ----------
        X : input as in `fit`
            Word counts of new documents.  If `feature_names` is None, the columns must be those of
            earlier calls.
        y : None
            Ignored.
        feature_names : array-like of shape (n_columns,) or vectorizer, default=None
            Names of the columns of X; for a data frame, pass ``X.columns``.  They override the
            parameter `feature_names` of the estimator.  Words are matched by name, so columns may
            be in any order.  New words become new columns at the end of the model.  Words of the
            model that X lacks have count 0.

        Returns
        -------
        DistributedLDA
            The fitted estimator itself.

        Raises
        ------
        ValueError
            As in `fit`.  If X has other columns than earlier calls, and `feature_names` is None.
            If two names are the same, or the words of earlier calls have no names.  If
            `n_components` or `seed_words` are not those of the first call.
        """
        earlier = getattr(self, "topic_word_counts_", None)
        return self._sample(X, y, earlier, keep=True, feature_names=feature_names)

    def _sample(
        self,
        X: Any,
        y: Any,
        earlier: sparse.csc_array | None,
        *,
        keep: bool,
        feature_names: Any = None,
    ) -> DistributedLDA:
        self._validate_params()  # scikit-learn does not in `partial_fit` after a fit
        unmask(y, "y")
        check_parameters(self, earlier)
        is_first = earlier is None
        seen: Any = self
        if not is_first and feature_names is None:
            seen = self._named_as(X)
        begins_with = None if keep else earlier
        self._check_checkpoint(begins_with, "warm_start")
        check_spill(self, begins_with)
        batch = len(self.batch_topic_sizes_) if keep and not is_first else 0
        seed = make_seed(self.random_state)
        seed = int(stream_key(seed, batch)) if batch else seed
        words: Array | None = None
        columns: Any = None
        if feature_names is not None:
            seen, words, columns = self._by_name(X, feature_names, anew=is_first)
        with (
            undone_on_error(self),
            self._progress_bar(),
            choose_place(
                self.n_jobs, is_dask=is_dask(X), label="schmp-lda", work=self._work(X)
            ) as place,
        ):

            def sample() -> Named:
                given: Named = {"again": self.spill is not None, "columns": columns}
                with closing(open_corpus(X, seen, place=place, reset=is_first, **given)) as corpus:
                    if (names := words) is None:
                        names = names_of_words(self, X, corpus.n_features, is_first=is_first)
                        check_most(corpus.n_features, self.max_features)
                    else:
                        self._set_words(seen, names)
                    given = {"seed": seed, "earlier": earlier, "keep": keep}
                    return LDAFit(self, corpus, place, names=names, **given).run(X, y)

            self.__dict__.update(retry(place, sample))
            self._forget_rare_words()
        if not keep:
            self._topic_names = None
        return self

    def _set_words(self, seen: Any, names: Array) -> None:
        """Take names of words.

        Of a data frame they are also names of columns, if all are strings.
        """
        self.n_features_in_ = len(names)
        is_frame = hasattr(seen, "feature_names_in_")
        self.__dict__.pop("feature_names_in_", None)
        if is_frame and all(isinstance(one, str) for one in names):
            self.feature_names_in_ = names

    def _forget_rare_words(self) -> None:
        """Keep the `max_features` words with the most tokens, those of seeds included.

        Of equal ones the first are kept.
        """
        most = self.max_features
        if most is None or self.n_features_in_ <= most:
            return
        order = np.argsort(-self._tokens().sum(axis=0), kind="stable")
        kept, left = np.sort(order[:most]), np.sort(order[most:])
        names = np.asarray(self.feature_names_)
        logger.info(
            "max_features=%d: %d words leave the model: %s",
            most, len(left), ", ".join(map(str, names[left])),
        )  # fmt: skip
        self.topic_word_counts_ = self.topic_word_counts_[:, kept]
        if self.seed_counts_ is not None:
            self.seed_counts_ = self.seed_counts_[:, kept]
        self.feature_names_ = names[kept]
        self._set_words(self, self.feature_names_)

    def _work(self, X: Any) -> float:
        """Return about how many seconds a fit takes, or infinity if shards were asked for."""
        if self.n_shards or self.spill is not None:
            return math.inf
        of_a_token = 5e-8 + 5e-10 * min(self.n_components, FEW_TOPICS)
        return entries_of(X) * self.max_iter * of_a_token

    def _is_comparable(self, record: Named) -> bool:
        """Return whether a sweep had the priors asked for, not those of a tempered start."""
        asked = priors_asked_for(self)
        if any(asked.learn_every):
            return bool(record["iterations"] > self._tempered_sweeps)
        return (record.get("doc_topic_prior"), record.get("topic_word_prior")) == asked[:2]

    def __sklearn_tags__(self) -> Any:
        """Say that inputs are counts, dense or sparse."""
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags

    _tempered_sweeps: int
    _identity: Named | None = None
    _seeds_given: str | None = None
    batch_topic_sizes_: Integers
