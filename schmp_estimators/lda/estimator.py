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

    A *token* is one occurrence of a word in a document.  A *sweep* is one pass over all tokens that
    draws a topic for each.  With the default sampler the fitted counts are bit-for-bit identical
    for any number of threads, shards and workers, with or without Dask.

    The parameters stand in this order: the model (to `feature_names`), the fit (from `sampler`),
    when it stops (from `max_iter`), where it runs and what it leaves there (from `n_shards`),
    streams (from `warm_start`).

    Parameters
    ----------
    n_components : int, default=10
        Number of topics K. A million is possible: a fit never makes a dense array of topics ×
        words.
    doc_topic_prior : float, array-like of shape (n_components,) or "learn", default=None
        Prior of the topic proportions of documents, alpha, from 1e-30 to 1e30: one number for all
        topics, or one for each.  None means "learn" for 500 to 4,096 topics, and otherwise
        ``1 / n_components``.  "learn" starts from 0.1 and fits one number for each topic [9]_
        [10]_.  It does so every 5 sweeps, from sweep 30 or half of `max_iter` on, whichever is
        less.  Later batches of `partial_fit` use `doc_topic_prior_` unchanged; a fit with
        `warm_start` continues to learn from it.
    topic_word_prior : float or "learn", default=None
        Prior of the word proportions of topics, beta, from 1e-30 to 1e30.  None means
        ``1 / n_components``.  "learn" starts from 0.01 and fits one number for all words and topics
        [10]_, in the same sweeps as `doc_topic_prior`.
    seed_words : dict or array-like of shape (n_components, n_features), default=None
        Words that belong to topics.  A dictionary maps numbers of topics to lists of words, or to
        dictionaries of words and their numbers of imaginary tokens.  Words are names, or numbers of
        columns; if the names are numbers, numbers mean names.  An array, dense or sparse, has
        imaginary tokens of each word in each topic.  They add to `topic_word_prior`, and the tokens
        of such words start in these topics.  `partial_fit` keeps the seeds of the first batch.
    seed_weight : float, default=1.0
        How many imaginary tokens a word in a list of `seed_words` gets for each of its tokens in X,
        or in the first batch of `partial_fit`.  Numbers of tokens in the dictionary are multiplied
        by it.
    feature_names : array-like of shape (n_features,) or vectorizer, default=None
        Names of the words, for `seed_words` and for methods that describe topics.  It may be a
        list, or an object whose ``get_feature_names_out()`` returns the names when `fit` is called,
        such as the vectorizer of the same pipeline.  Searches, cross-validation and
        ``Pipeline(memory=...)`` clone that vectorizer.  For them pass a list, and pass the same
        list to the vectorizer as its ``vocabulary``.  None: the names of the columns of X, if it
        has any other than 0, 1, 2, and so on.  The names may be others than those of X, but must
        differ from each other.
    sampler : {"auto", "warp", "frozen", "saber", "fplus", "sparse", "light", "light-word", \
            "light-document", "alias", "hybrid", "data-parallel"} or object, default="auto"
        How topics are drawn, by name or by an object of your own, as the user guide shows.  The
        results of "warp", "frozen" and "saber" do not depend on `n_shards`; those of the other
        samplers do.

        - "warp": Metropolis–Hastings with counts frozen during a pass [1]_.  It takes constant time
          per token, but does not sample the exact posterior.
        - "frozen": Gibbs sampling with word counts frozen for a sweep.  Time per token and memory
          per word are proportional to K, so it is for a few hundred topics at most.  It needs fewer
          sweeps than "warp".
        - "saber": Gibbs sampling with the counts of words and documents frozen for a sweep [11]_.
          Time per token grows with the topics of its document, not with K. It is for many topics in
          short documents, or a hundred or more in long ones.  It needs fewer sweeps than "warp".
        - "fplus": collapsed Gibbs sampling with F+ trees [2]_.  It is exact with one shard.  With
          several shards, topic totals are outdated within a sweep; `s_error` in `history_` measures
          this error [3]_.  All samplers below have the same error.
        - "sparse": collapsed Gibbs sampling by document, with sums over the topics of a word [4]_.
          It has the fastest exact sweeps where words have few topics, as they soon do.
        - "light": Metropolis–Hastings with proposals by word and by document in turn [5]_.  It
          takes constant time per token and uses current counts; with one shard it is exact, but it
          needs more sweeps.  For comparison, "light-word" and "light-document" make proposals of
          one kind only.
        - "alias": Metropolis–Hastings with alias tables that are not updated during a sweep [6]_.
          It is for comparison.
        - "hybrid": with more than 600 topics, Metropolis–Hastings for documents of more than 600
          tokens [8]_; otherwise "fplus".  It was slower than "fplus" in all our tests.
        - "data-parallel": "fplus" with a copy of all counts in every shard; the copies are merged
          after each sweep [7]_.  It is for comparison.
        - "auto": "frozen" up to 256 topics, if its table of 4 K bytes per word fits in 128 MiB.
          "saber" for 257 to 4,096 topics, up to 2**25 tokens, and up to 300 tokens per document on
          average; and for 100 to 256 topics, up to 2**25 tokens, and more than 500 tokens per
          document.  Otherwise "warp".
    mh_steps : int or "acceptance", default=2
        Proposals for each token: 1 to 4 in each pass of "warp"; 1 to 16 in a sweep of "alias" and
        "hybrid"; 1 to 16 by word and as many by document in a sweep of "light".  With more
        proposals a sweep is slower, but fewer sweeps are needed.  The other samplers and objects
        accept only 2; so does "hybrid" if no document needs proposals.  "acceptance", for "hybrid":
        2 in the first sweep, then ⌈1/π⌉, at most 16, where π is the share of proposals that were
        accepted in the sweep before [8]_.
    init : {"auto", "documents", "sparse", "tempered", "uniform"}, default="auto"
        How a fit starts without an earlier model.  "uniform": each token starts in a random topic.
        "documents": each topic starts from a *seed window*, up to 100 tokens of a random document,
        or up to 300 if documents are long.  Tokens start in a topic whose window has their word, or
        else another word of their document.  With "saber" and fixed priors, EM steps follow.
        "sparse": each word draws two topics, and each of its tokens takes one of them.  "tempered":
        as "uniform", but with priors of up to 5 alpha and 10 beta for the first 30 sweeps, or half
        of `max_iter` if that is less; `history_` has the priors of each sweep.  "auto": "documents"
        for 50 topics or more with at most 100,000 tokens per topic on average, otherwise "uniform".
        With "warp", "frozen" or "saber" a fit then also starts with the larger priors of
        "tempered".
    max_iter : int, default=150
        Number of sweeps.
    evaluate_every : int, default=0
        Number of sweeps between two evaluations of the joint log-likelihood of tokens and topics,
        at most `max_iter`.  0: never, or every 10 sweeps if `tol` is not 0.
    tol : float, default=0.0
        Stop when the relative change of the log-likelihood between two evaluations is less than
        this; evaluations under larger priors do not count. 0: do all `max_iter` sweeps.
    transform_tol : float, default=1e-3
        Tolerance of `transform`, `perplexity` and `score`, between 0 and 1.  It limits the
        estimated sum of absolute differences between the topic proportions of a document and those
        that maximise the posterior.
    n_shards : int, default=None
        Number of parts into which documents and words are divided, at most the number of documents
        or words.  None: "warp", "frozen" and "saber" use 1 in this process, and on a cluster the
        number of workers, but at most the square root of ``n_tokens / 8e4``.  The other samplers
        always use the square root of ``n_tokens / 1.5e6``.  With "warp", "frozen" and "saber" a
        larger number only helps workers that join later.
    n_jobs : int, default=None
        Threads of a fit in this process.  None means 1, -1 all cores.  With "warp", "frozen" and
        "saber" more than one thread helps from 262,144 tokens on.
    checkpoint : str or path-like, default=None
        Path (``~`` and environment variables are replaced) or URL known to fsspec, to which the
        state is written every `checkpoint_every` sweeps.  A fit that finds its own checkpoint there
        continues from it.  `partial_fit` replaces that of the call before.  It needs an int as
        `random_state`.  If it cannot be written, the fit continues with a `CheckpointWarning`.
    checkpoint_every : int, default=25
        Number of sweeps between two checkpoints.
    spill : {"auto"} or path-like, default=None
        Where to keep tokens on disk instead of in memory.  Results do not change; samplers whose
        results depend on `n_shards` need one shard for each slice on disk.  An error says how many.
        "auto" uses Dask's temporary directory, or on a cluster the folder of each worker, and only
        if the fit would need more than half of the memory that is left, or on a cluster more than
        80 %; a `SpillWarning` says so.  A folder is always used, and remains as a checkpoint after
        every sweep: a fit that finds its own sweeps there continues from them.  All workers must
        reach the folder, and the fit needs an int as `random_state`.  The input is read several
        times.
    warm_start : bool, default=False
        Whether `fit` draws its first topics given the counts of the last fit, as `partial_fit`
        does, and then forgets these counts.
    half_life : float, default=None
        Number of further calls of `partial_fit` after which the tokens of a batch count half.  What
        is left of earlier tokens are fractions; tokens of the present batch count whole.  Fractions
        of less than a hundredth of `topic_word_prior_` are left out.  None: all tokens count whole
        for ever.
    max_features : int, default=None
        How many words the model has at most after a call of `partial_fit` with `feature_names`.
        Words with the fewest tokens leave the model at the end of the call.  The log names them.
        Seeds count as tokens.  A word that comes again is new.  None: as many as there are.
    verbose : int, default=0
        If not 0, show a progress bar (it needs the package ``rich``), with the objective as last
        evaluated, values on held-out samples, and samples per second.
    random_state : int, RandomState instance or None, default=None
        An int gives the same result every time.

    Attributes
    ----------
    topic_word_counts_ : scipy.sparse.csc_array of shape (n_components, n_features), int32
        How many tokens of each word are in each topic.  It is float64 if `half_life` has made
        fractions of some counts.
    components_ : ndarray of shape (n_components, n_features), float64
        ``topic_word_counts_`` plus the prior and the seeds.  It is made on access, and raises
        MemoryError above 2 GiB.
    topic_sizes_ : ndarray of shape (n_components,), int64
        How many tokens each topic has; float64 if there are fractions.
    batch_topic_sizes_ : ndarray of shape (n_calls, n_components), int64
        How many tokens of each batch are in each topic: of `fit`, if it came first, and of each
        call of `partial_fit`.
    topic_names_ : ndarray of shape (n_components,), dtype object
        Names of the topics in tables and plots: the most relevant words of each, until others are
        assigned.
    doc_topic_prior_ : float or ndarray of shape (n_components,)
        The prior of the last sweep: the parameter, or what was learned last.  If a callback ended
        the fit in its first sweeps, it may be a larger one.
    topic_word_prior_ : float
        The same for words.
    seed_counts_ : scipy.sparse.csc_array of shape (n_components, n_features), float64, or None
        Imaginary tokens of seeded words.
    feature_names_ : ndarray of shape (n_features,) or None
        Names of the words, from `feature_names` or from the columns of X.
    n_iter_ : int
        Number of sweeps done.
    history_ : list of dict
        A record for each sweep: ``iterations``, ``seconds`` and ``samples`` (tokens) so far, the
        priors ``doc_topic_prior`` (a mean, if there are several) and ``topic_word_prior``, and what
        the sampler reports.  Evaluations add ``log_likelihood``, the sum of
        ``document_log_likelihood`` and ``word_log_likelihood``, under the given or learned priors.
        With `half_life`, ``word_log_likelihood`` is that of the batch alone, given the earlier
        tokens.
    n_shards_ : int
        Number of shards used.
    sampler_ : str or object
        The sampler used, never "auto".
    n_features_in_ : int
        Number of words.
    feature_names_in_ : ndarray of str
        Names of the words, if the input had any.

    See Also
    --------
    sklearn.decomposition.LatentDirichletAllocation : Variational inference, in one process.

    Notes
    -----
    On Dask, documents stay on their workers; the client receives `topic_word_counts_`.  `transform`
    is a deterministic fixed-point iteration, and its result for a document does not depend on other
    documents.  ``fit_transform(X)`` is ``fit(X).transform(X)``.

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

    Documents may come in batches.  Names tell which words are the same:

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
            Word counts: whole numbers, at least 0.  A Dask collection stays on the cluster.
        y : None
            Ignored; it is there for pipelines.

        Returns
        -------
        DistributedLDA
            The fitted estimator itself.

        Raises
        ------
        ValueError
            If X has a value that is not a count, or no documents.  The message names the value, its
            place and the remedy.
        MemoryError
            If the memory is too small, even with `spill`.
        CheckpointMismatchError
            If `checkpoint` or `spill` belongs to another fit, or is damaged.
        SpillError
            If the folder of `spill` cannot be used, its disk is full, or another fit uses it.
        NotSharedError
            If this folder, or the file of a memory-mapped X, is another one on the host of a
            worker.
        WorkerLostError, NoWorkersError, SchedulerLostError, MixedClusterError,
        AsynchronousClientError
            If the Dask cluster cannot do the work.
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
        """Sample topics for more documents, and keep the counts of earlier batches.

        With `half_life`, these counts lose weight from call to call.

        Parameters
        ----------
        X : input as in `fit`
            Word counts of new documents, with the same columns as before if `feature_names` is
            None.
        y : None
            Ignored.
        feature_names : array-like of shape (n_columns,) or vectorizer, default=None
            Names of the columns of X, for a data frame ``X.columns``.  They are used instead of the
            parameter `feature_names` of this object.  Columns may be in any order: a word is known
            by its name.  Words that are new become new columns of the model, at the end; words of
            the model that X does not have count 0.

        Returns
        -------
        DistributedLDA
            The fitted estimator itself.

        Raises
        ------
        ValueError
            As in `fit`; if X has other columns than earlier batches, and no `feature_names`; if two
            names are the same, or the words of earlier batches have none; if `n_components` or
            `seed_words` are not those of the first batch.
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
        if not is_first and feature_names is None:
            self._check_columns(X)
        begins_with = None if keep else earlier
        self._check_checkpoint(begins_with, "warm_start")
        check_spill(self, begins_with)
        batch = len(self.batch_topic_sizes_) if keep and not is_first else 0
        seed = make_seed(self.random_state)
        seed = int(stream_key(seed, batch)) if batch else seed
        seen, words, columns = (
            (self, None, None)
            if feature_names is None
            else self._by_name(X, feature_names, anew=is_first)
        )
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
