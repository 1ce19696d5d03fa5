"""Latent Dirichlet allocation, for users."""

from __future__ import annotations

import os
from contextlib import closing
from numbers import Integral, Real
from typing import Any, ClassVar

from scipy import sparse
from sklearn.base import BaseEstimator, _fit_context
from sklearn.callback import with_callbacks
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from schmp_estimators.core.following import SweepingEstimator, make_seed, undone_on_error
from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.inputs.validation import is_dask
from schmp_estimators.core.places.place import begun_anew, choose_place
from schmp_estimators.core.rng import stream_key
from schmp_estimators.lda.data.corpus import open_corpus
from schmp_estimators.lda.diagnose import TopicsOfDocuments
from schmp_estimators.lda.fit import LDAFit
from schmp_estimators.lda.matching import MatchedTopics
from schmp_estimators.lda.parameters import LEAST, MOST, check_parameters, priors_asked_for
from schmp_estimators.lda.samplers import MOST_STEPS, SAMPLERS
from schmp_estimators.lda.spill import check_spill


class DistributedLDA(TopicsOfDocuments, MatchedTopics, SweepingEstimator, BaseEstimator):
    """Latent Dirichlet allocation by parallel sampling, in this process or on a Dask cluster.

    Topics are sampled word by word and document by document, with the words divided into blocks that go round the
    workers.  With the default sampler the fitted counts are the same, to the bit, for any number of threads, shards and
    workers, with or without Dask.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics K, up to 1,000,000 and more: no array of K times the number of words is ever made.
    doc_topic_prior : float, array-like of shape (n_components,) or "learn", default=None
        Prior of the topic proportions of documents, alpha, from 1e-30 to 1e30: one for all topics, or one for each.
        None means ``1 / n_components``.  "learn" begins with 0.1, and fits one for each topic to the documents [9]_
        [10]_ every 5 sweeps, the first time after 30 sweeps or half of `max_iter`; a later `partial_fit` takes
        `doc_topic_prior_` as it is and learns no more, and a fit with `warm_start` goes on from what the last fit has
        learned.  Numbers may be others for every batch.
    topic_word_prior : float or "learn", default=None
        Prior of the word proportions of topics, beta, from 1e-30 to 1e30.  None means ``1 / n_components``.  "learn"
        begins with 0.01, and fits one for all words and topics to the topics of the words [10]_, when learned
        document-topic priors are, or would be, and kept in the same way.
    seed_words : dict or array-like of shape (n_components, n_features), default=None
        Words that belong to topics: a dictionary of lists of words for some topics, by names or numbers of columns, or
        an array, which may be sparse, of imaginary tokens.  They add to `topic_word_prior`, and the tokens of such
        words begin in their topics, by any sampler.  `partial_fit` keeps the seeds of the first batch, and refuses
        others.
    seed_weight : float, default=1.0
        How many imaginary tokens a word of a dictionary has in its topic, for each of its tokens in X.  `partial_fit`
        keeps what that made of the first batch.
    feature_names : array-like of shape (n_features,) or vectorizer, default=None
        Names of the words, for `seed_words` and for all that describes topics: a list, or an object whose
        ``get_feature_names_out()`` gives them when `fit` is called, such as the vectorizer in front in a pipeline.  It
        must be that object itself: where pipelines are cloned, by searches, cross-validation and ``memory=``, give a
        list, and the same to the vectorizer as its ``vocabulary``.  None: the names of the columns of X, if it has any.
    sampler : {"auto", "warp", "frozen", "saber", "fplus", "sparse", "light", "light-word", "light-document", "alias", \
            "hybrid", "data-parallel"}, default="auto"
        How topics are drawn.  Results of "warp", "frozen" and "saber" do not depend on how the work is divided; those
        of the others do, and are a function of data, parameters and `n_shards`.

        - "warp": Metropolis–Hastings with counts frozen during a pass [1]_: constant time for each token.  Fast, but
          it does not sample the exact posterior.
        - "frozen": each token from its conditional over all topics, with word counts frozen for a sweep and the
          document live.  Time for each token and memory for each word are proportional to K, so it is for a few hundred
          topics at most; there it needs fewer sweeps than "warp", and often less time for good topics.
        - "saber": each token from its conditional over all topics, with the counts of words and of documents frozen for
          a sweep [11]_.  Time for each token grows with the topics that its document has, not with K: for many topics
          in short documents, where it needs fewer sweeps than "warp", and less time for good topics.
        - "fplus": exact collapsed Gibbs sampling with F+ trees [2]_, as long as there is one shard; with more, topic
          totals are stale within a sweep by the `s_error` in `history_` [3]_, here and with all that follow.
        - "sparse": exact, too, document by document, with sums over the topics of a word [4]_: the fastest exact sweeps
          where words have few topics, as they have after some sweeps.
        - "light": Metropolis–Hastings proposals by word and by document in turn [5]_, in constant time for each token
          and with counts that are up to date; with one shard it samples the exact posterior, but needs more sweeps.
          "light-word" and "light-document" make as many proposals of one kind only, for comparisons.
        - "alias": takes long sums from alias tables of the beginning of the sweep and corrects for it by
          Metropolis–Hastings [6]_; not exact, and for comparisons.
        - "hybrid": "fplus" for documents of up to 600 tokens; tokens of longer ones make proposals [8]_.  It was slower
          than "fplus" wherever we tried.
        - "data-parallel": a baseline for comparisons: "fplus" with a copy of all counts in every shard, brought
          together after each sweep [7]_.
        - "auto" is "frozen" up to 256 topics, where the weights of all words have room in 128 MiB; "saber" with 257 to
          4,096 topics, in up to 33,554,432 tokens (2**25) with no more than 300 to a document; else "warp".
    mh_steps : int, default=2
        Proposals for each token: 1 to 4 in each pass of "warp", 1 to 16 in a sweep by "alias", or by "hybrid" in long
        documents, and in a sweep by "light" 1 to 16 of the word and as many of the document.  More make a sweep slower
        and fewer sweeps necessary.
        The others make none.
    init : {"auto", "documents", "sparse", "tempered", "uniform"}, default="auto"
        How a fit starts that has nothing to start from. With "uniform" tokens begin in any topic. With "documents" each
        topic begins with a passage, up to 100 tokens of a random document, up to 300 where documents are long:
        tokens begin in the topics in whose passages their word is, or else another word of their document; for
        "saber" EM divides the tokens of a word among these topics first, unless priors are learned. With
        "sparse" each word draws two topics, and each of its tokens takes one of them. "tempered" is "uniform"
        with larger priors for the first sweeps, as far as the text outweighs them: up to 5 alpha and 10 beta,
        for 30 sweeps, but no more than half of `max_iter`; `history_` has the priors of each sweep. "auto"
        takes passages from 50 topics on, if there are no more than 100,000 tokens for each, and larger priors
        with "warp", "frozen" and "saber".
    max_iter : int, default=150
        Number of sweeps.
    evaluate_every : int, default=0
        Record the joint log-likelihood of tokens and topics after every so many sweeps; 0 for never, or for every 10
        if `tol` is not 0.
    tol : float, default=0.0
        Stop when the log-likelihood has changed by less than this, relatively, between two evaluations, both after a
        tempered start.  0 means to do all `max_iter` sweeps.
    transform_tol : float, default=1e-3
        How near `transform`, `perplexity` and `score` come to the topic proportions that maximise the posterior, in the
        sum of absolute differences for a document, as estimated from how its steps shrink; above 0 and below 1.
    n_shards : int, default=None
        In how many parts documents and words are divided; no more parts are made than there are documents or words.
        None: "warp", "frozen" and "saber" take 1 in this process, and on a cluster as many as there are workers, but no
        more than ``n_tokens / 1.5e6`` ("warp") or its square root ("frozen" and "saber"); the others, whose results
        depend on it, take that root whatever the workers.  With `spill` documents are cut into more slices where memory
        asks for it, which are not counted here.
    n_jobs : int, default=None
        Threads, where the fit runs in this process.  None means 1, -1 all cores.  Below 262,144 tokens there is
        nothing to share.
    checkpoint : str or path-like, default=None
        Path (``~`` and environment variables are replaced) or URL known to fsspec to which the state is written every
        `checkpoint_every` sweeps.  A fit that finds its own checkpoint there goes on from it.  Needs an int as
        `random_state`.  If it cannot be written, the fit goes on with a `CheckpointWarning`.
    checkpoint_every : int, default=25
        Number of sweeps between two checkpoints.
    spill : {"auto"} or path-like, default=None
        Where arrays go that do not fit into memory; for "warp", "frozen" and "saber", and "auto", which is the same
        sampler with it and without it.  Results are the same to the bit.  "auto" is Dask's temporary directory, or on
        a cluster the folder of each worker, and used only if the fit would need more than half of the memory that is
        left, with a `SpillWarning`.  Any other folder, which all workers must reach, is always used, stays, and is a
        checkpoint after every sweep: a fit that finds its own sweeps there goes on from them; it needs an int as
        `random_state`.  Documents are read several times, and a Dask collection is computed chunk by chunk; see the
        user guide.
    warm_start : bool, default=False
        Whether `fit` draws the first topics of each word, in its first sweep, from those of the last fit.
    verbose : int, default=0
        Show a progress bar if not 0 (needs the package ``rich``), with the objective as last evaluated, values on
        held-out samples, and samples per second.
    random_state : int, RandomState instance or None, default=None
        An int gives the same result every time.

    Attributes
    ----------
    topic_word_counts_ : scipy.sparse.csc_array of shape (n_components, n_features), int32
        How many tokens of each word are in each topic.
    components_ : ndarray of shape (n_components, n_features), float64
        ``topic_word_counts_`` plus the prior and the seeds.  Made on access; MemoryError above 2 GiB.
    topic_sizes_ : ndarray of shape (n_components,), int64
        How many tokens each topic has.
    doc_topic_prior_ : float or ndarray of shape (n_components,)
        The prior of the last sweep: that asked for, unless a callback ended the fit in its tempered start.  Where it is
        learned, what was learned last.
    topic_word_prior_ : float
        The same of words: one number, asked for or learned.
    seed_counts_ : scipy.sparse.csc_array of shape (n_components, n_features), float64, or None
        Imaginary tokens of seeded words.
    feature_names_ : ndarray of shape (n_features,) or None
        Names of the words, those of `feature_names` or of the columns of X.
    n_iter_ : int
        Number of sweeps done.
    history_ : list of dict
        A record for each sweep: ``iterations``, ``seconds`` and ``samples`` (tokens) so far, its ``doc_topic_prior``
        (of several, the mean) and ``topic_word_prior``, what the sampler reports, and, if it was evaluated,
        ``log_likelihood`` with its ``document_log_likelihood`` and ``word_log_likelihood`` under the priors asked for,
        or learned.
    n_shards_ : int
        Number of shards used.
    sampler_ : str
        Name of the sampler used: "auto" is none.
    n_features_in_ : int
        Number of words.
    feature_names_in_ : ndarray of str
        Names of the words, if the input had any.

    See Also
    --------
    sklearn.decomposition.LatentDirichletAllocation : Variational inference, in one process.

    Notes
    -----
    On Dask, documents stay with their workers; what the client holds is `topic_word_counts_`.  `transform` is a
    deterministic fixed-point iteration, so that the result for a document does not depend on the others;
    ``fit_transform(X)`` is ``fit(X).transform(X)``.

    References
    ----------
    .. [1] J. Chen, K. Li, J. Zhu, W. Chen, "WarpLDA: a cache efficient O(1) algorithm for latent Dirichlet allocation",
       PVLDB 9(10), 2016.
    .. [2] H.-F. Yu, C.-J. Hsieh, H. Yun, S. V. N. Vishwanathan, I. S. Dhillon, "A scalable asynchronous distributed
       algorithm for topic modeling", WWW 2015, section 3.
    .. [3] S. Lee, J. K. Kim, X. Zheng, Q. Ho, G. A. Gibson, E. P. Xing, "On model parallelization and scheduling
       strategies for distributed machine learning", NIPS 2014, section 3.1.
    .. [4] L. Yao, D. Mimno, A. McCallum, "Efficient methods for topic model inference on streaming document
       collections", KDD 2009, section 3.4.
    .. [5] J. Yuan, F. Gao, Q. Ho, W. Dai, J. Wei, X. Zheng, E. P. Xing, T.-Y. Liu, W.-Y. Ma, "LightLDA: big topic
       models on modest computer clusters", WWW 2015, section 3.
    .. [6] A. Q. Li, A. Ahmed, S. Ravi, A. J. Smola, "Reducing the sampling complexity of topic models", KDD 2014.
    .. [7] D. Newman, A. Asuncion, P. Smyth, M. Welling, "Distributed algorithms for topic models", JMLR 10, 2009.
    .. [8] L. Yu, C. Zhang, Y. Shao, B. Cui, "LDA*: a robust and large-scale topic modeling system", PVLDB 10(11), 2017,
       section 3.2.
    .. [9] H. M. Wallach, D. Mimno, A. McCallum, "Rethinking LDA: why priors matter", NIPS 2009.
    .. [10] T. P. Minka, "Estimating a Dirichlet distribution", 2000, equation 55.
    .. [11] K. Li, J. Chen, W. Chen, J. Zhu, "SaberLDA: sparsity-aware learning of topic models on GPUs", ASPLOS 2017.

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
    """

    _objective = "log_likelihood"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, 2**31 - 1, closed="both")],
        "doc_topic_prior": [None, Interval(Real, LEAST, MOST, closed="both"), StrOptions({"learn"}), "array-like"],
        "topic_word_prior": [None, Interval(Real, LEAST, MOST, closed="both"), StrOptions({"learn"})],
        "seed_words": [None, dict, "array-like", "sparse matrix"],
        "seed_weight": [Interval(Real, 0, MOST, closed="both")],
        "feature_names": [None, "array-like", HasMethods("get_feature_names_out")],
        "sampler": [StrOptions({"auto", *SAMPLERS})],
        "mh_steps": [Interval(Integral, 1, MOST_STEPS, closed="both")],
        "init": [StrOptions({"auto", "documents", "sparse", "tempered", "uniform"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "evaluate_every": [Interval(Integral, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "transform_tol": [Interval(Real, 0, 1, closed="neither")],
        "n_shards": [None, Interval(Integral, 1, None, closed="left")],
        "n_jobs": [None, Interval(Integral, 1, None, closed="left"), Interval(Integral, None, -1, closed="right")],
        "checkpoint": [None, str, os.PathLike],
        "checkpoint_every": [Interval(Integral, 1, None, closed="left")],
        "spill": [None, str, os.PathLike],
        "warm_start": ["boolean"],
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
        sampler: str = "auto",
        mh_steps: int = 2,
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
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.seed_words = seed_words
        self.seed_weight = seed_weight
        self.feature_names = feature_names
        self.sampler = sampler
        self.mh_steps = mh_steps
        self.init = init
        self.max_iter = max_iter
        self.evaluate_every = evaluate_every
        self.tol = tol
        self.transform_tol = transform_tol
        self.n_shards = n_shards
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.spill = spill
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> DistributedLDA:
        """Sample topics for the tokens of X.

        Parameters
        ----------
        X : array-like, sparse array or matrix, data frame, or Dask collection, of shape (n_documents, n_features)
            Word counts: whole numbers, at least 0.  A Dask collection stays on the cluster.
        y : None
            Ignored; present for pipelines.

        Returns
        -------
        DistributedLDA
            The fitted estimator itself.

        Raises
        ------
        ValueError
            If X holds anything that is no count, or has no documents; the message names value, place and remedy.
        MemoryError
            If the fit cannot fit into memory, not even with `spill`.
        CheckpointMismatchError
            If `checkpoint` or `spill` is that of another fit, or damaged.
        SpillError
            If the folder of `spill` cannot be used, its disk is full, or another fit works there.
        NotSharedError
            If that folder, or a file of a memory-mapped X that workers would read, is another one on a worker's host.
        WorkerLostError, NoWorkersError, SchedulerLostError, MixedClusterError, AsynchronousClientError
            If the Dask cluster cannot do the work.
        """
        earlier = self.topic_word_counts_ if self.warm_start and hasattr(self, "topic_word_counts_") else None
        return self._sample(X, y, earlier, keep=False)

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> DistributedLDA:
        """Sample topics for more documents; the counts of earlier batches stay as they are.

        Parameters
        ----------
        X : input as in `fit`
            Word counts of new documents, with the same columns as before.
        y : None
            Ignored.

        Returns
        -------
        DistributedLDA
            The fitted estimator itself.

        Raises
        ------
        ValueError
            As in `fit`, and if X has another number of columns than earlier batches, or if `n_components` or
            `seed_words` are not those of the first batch.
        """
        return self._sample(X, y, getattr(self, "topic_word_counts_", None), keep=True)

    def _sample(self, X: Any, y: Any, earlier: sparse.csc_array | None, *, keep: bool) -> DistributedLDA:
        self._validate_params()  # scikit-learn does not in `partial_fit` after a fit
        unmask(y, "y")
        check_parameters(self, earlier)
        self._check_checkpoint(earlier, "partial_fit and for warm_start")
        check_spill(self, earlier)
        batch = getattr(self, "_n_batches", 0) if keep and earlier is not None else 0
        seed = make_seed(self.random_state)
        seed = int(stream_key(seed, batch)) if batch else seed
        with (
            undone_on_error(self),
            self._progress_bar(),
            choose_place(self.n_jobs, is_dask=is_dask(X), label="schmp-lda") as place,
        ):

            def sample() -> dict[str, Any]:
                again = self.spill is not None
                with closing(open_corpus(X, self, place=place, reset=earlier is None, again=again)) as corpus:
                    return LDAFit(self, corpus, place, seed=seed, earlier=earlier, keep=keep).run(X, y)

            attributes = begun_anew(place, sample)
        self._n_batches = batch + 1
        for name, value in attributes.items():
            setattr(self, name, value)
        return self

    def _is_comparable(self, record: dict[str, Any]) -> bool:
        """Return whether a sweep was sampled under the priors asked for, and not in a tempered start."""
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
