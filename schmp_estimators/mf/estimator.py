"""Matrix factorisation with missing entries, for users."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from sklearn.base import BaseEstimator, _fit_context
from sklearn.callback import with_callbacks

from schmp_estimators.core.estimators import Ending, SweepingEstimator, make_seed
from schmp_estimators.core.inputs.validation import entries_of, keep
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.typing import Array, Named
from schmp_estimators.mf.data.rows import RatingRows, Wanted
from schmp_estimators.mf.data.seen import RepeatedCallError
from schmp_estimators.mf.fit import MFFit
from schmp_estimators.mf.parameters import (
    CONSTRAINTS,
    check_earlier,
    check_together,
    read_fit_params,
)
from schmp_estimators.mf.programs.factors import has_not_improved
from schmp_estimators.mf.use import FactorModel

logger = logging.getLogger(__name__)

#: What a fit monitors: the first of these that it records.  With `evaluate_every` it is one of the
#: first two.
_MONITORED = "validation_rmse", "objective", "running_loss", "running_rmse"


class ModelParallelMF(FactorModel, SweepingEstimator, BaseEstimator):
    """Matrix factorisation of ratings with missing entries, in this process or on a Dask cluster.

    A rating of item i by user u is modelled as
    ``global_mean_ + user_bias_[u] + item_bias_[i] + w_u @ h_i``.  With `unobserved_weight`, clicks
    and other implicit feedback are modelled as ``w_u @ h_i``.  If `random_state` is an int, the
    fitted numbers are bit-for-bit identical for any number of threads and workers.

    Parameters
    ----------
    n_components : int, default=20
        Number of entries of each vector w and h.
    loss : {"squared", "logistic", "bpr"} or NamedTuple, default="squared"
        "squared" predicts ratings, or clicks with `unobserved_weight`.  "logistic" and "bpr" are
        ranking losses: they rank items by the scores ``item_bias_[i] + w_u @ h_i``, and compare
        each rated item of a user with a random unrated item.  "logistic" classifies both items as
        rated or not.  "bpr" uses the difference of their scores [5]_.  A ranking loss ignores the
        values of ratings, which must be above 0.  :doc:`The user guide </user_guide/mf>` lists the
        parameters that cannot be used with a ranking loss.  A named tuple is your own ranking loss
        (:doc:`/user_guide/plugs`).
    unobserved_weight : float, default=0.0
        With 0, the squared loss ignores pairs without a rating.  A number above 0 is for implicit
        feedback, such as clicks [4]_: every pair without a rating then counts as a rating of 0 with
        this weight.  Ratings then have the weight 1 by default, and are not standardised.
    confidence : callable, default=None
        Only for `unobserved_weight`: a function that takes an array of values, such as numbers of
        clicks, and returns their weights, for example `numpy.log1p`.  Each value above 0 is then
        fitted as a rating of 1.  With None, the values themselves are fitted, with the weights 1 or
        `sample_weight`.
    fit_bias : bool, default=True
        Whether the model has a global mean and biases.  With a ranking `loss`, only items have
        biases.  With `unobserved_weight`, there is neither a mean nor a bias.
    positive : bool, default=False
        Whether all entries of w and h are kept at or above zero.  Biases are not restricted.
    alpha : float or "auto", default="auto"
        Strength of the L2 penalty on vectors and biases, at most 1e30.  "auto" is 0.05 with a
        ranking `loss`, and 0.07 with `unobserved_weight`.  If `penalty` is a number, "auto" is 0.07
        times a factor, which makes the sum of the penalty weights of all users and items that of
        0.07 and "per_rating".  For ratings with the squared loss, `alpha` applies to standardised
        ratings, which have been divided by their standard deviation.  "auto" is then ``0.55 * s *
        (1 / sqrt(n) + 1 / sqrt(m))``, or with ``penalty="per_row"`` ``0.55 * s * (sqrt(n) +
        sqrt(m))``.  Here n and m are the mean numbers of ratings per user and per item.  The number
        s estimates, without using `sample_weight`, the standard deviation of standardised ratings
        after the biases have been subtracted.  :doc:`/user_guide/mf` has the formula for a number
        as `penalty`.
    penalty : {"per_rating", "per_row"} or float, default="per_rating"
        For the squared loss: how the penalty of a user or item depends on the number n of its
        ratings.  "per_rating" multiplies `alpha` by n.  With `sample_weight`, but without
        `unobserved_weight`, n is the sum of the weights.  "per_row" uses `alpha` itself, as in
        [1]_.  A number ν from 0 to 2 multiplies `alpha` by ``n ** ν``.  With `unobserved_weight` u,
        this factor is ``(n + u * n_items) ** ν`` for a user, and ``(n + u * n_users) ** ν`` for an
        item [6]_.
    clip : bool, default=False
        Whether `predict`, and `score` where it is R², limit predictions to `rating_range_`.
    n_users, n_items : int, default=None
        Numbers of users and items, if the ids of pairs are row and column indices that start at 0.
        With None, the ids that occur are numbered (see `user_ids_`).
    solver : {"auto", "sgd", "ccd"}, default="auto"
        "sgd" is stochastic gradient descent with an adaptive step size for each user and item [2]_.
        The users are divided into parts (shards).  By default, blocks of items rotate over the
        shards [1]_.  "ccd" is cyclic coordinate descent; its objective never rises [3]_.  "ccd"
        needs fewer epochs than "sgd", but its epochs take longer.  "auto" is "ccd" with
        `unobserved_weight` or `sample_weight`, and otherwise "sgd".
    schedule : {"rotation", "bsp"}, default="rotation"
        How the shards of "sgd" update the items in an epoch.  With "rotation", every shard works on
        every block of items, and no two shards have the same block at the same time.  With "bsp"
        (bulk synchronous parallel), each shard changes its own copy of all items, and the changes
        are added up after the epoch.  "bsp" is only for comparisons: more shards need a smaller
        `learning_rate`.
    learning_rate : float, default=0.1
        Initial step size of "sgd", at most 1e30.  For ratings, it applies to standardised values,
        like `alpha`.
    n_shards : int, default=None
        Number of parts (shards) into which the users are divided.  A rotation of "sgd" has as many
        blocks as shards.  If there are too few users or items, there are fewer shards.  With None,
        the number depends on the size of the data.  The number of shards changes the results of
        "sgd", but those of "ccd" only by rounding errors.
    random_state : int, RandomState instance or None, default=None
        Seed of the random numbers.  An int gives the same result every time.
    max_iter : int, default=20
        Largest number of epochs.  An epoch of "sgd" visits every rating once.  An epoch of "ccd"
        updates every component of the users and of the items once.
    tol : float, default=1e-4
        The fit ends when a monitored value has not fallen by the fraction `tol` below its best in
        `n_iter_no_change` evaluations in a row.  With `early_stopping` the monitored value is the
        error of held-out ratings (``validation_rmse`` in `history_`).  Otherwise "ccd" monitors the
        training ``objective``, as "sgd" does with `evaluate_every`.  Without `evaluate_every`,
        "sgd" monitors the square of ``running_rmse``, or ``running_loss`` with a ranking `loss`.
        With ``tol=0`` and `early_stopping`, even the smallest decrease of the error is an
        improvement.  With ``tol=0`` and no `early_stopping`, only a callback can end the fit before
        `max_iter` epochs.
    n_iter_no_change : int, default=None
        The fit ends after this number of evaluations in a row without a fall by the fraction `tol`.
        There is an evaluation after every epoch, or, with `evaluate_every` but without
        `early_stopping`, every `evaluate_every` epochs.  None means 3 with `early_stopping` or a
        ranking `loss`, and otherwise 1.
    early_stopping : bool, default=False
        Whether to hold out some ratings, monitor the error of their predictions, and keep the
        factors of the epoch with the smallest error.
    validation_fraction : float, default=0.1
        Share of the ratings that early stopping holds out.  At least one rating is held out, and at
        least one is fitted.
    evaluate_every : int, default=0
        Number of epochs of "sgd" between two evaluations of the objective, for `history_` and
        `tol`.  0 means never.  An evaluation takes about half the time of an epoch.
    n_jobs : int, default=None
        Number of threads of a fit in this process, and of recommendations to many users.  None
        means 1, and -1 means all cores.
    checkpoint : str or path-like, default=None
        Path or fsspec URL of a file, to which the state of the fit is written every
        `checkpoint_every` epochs.  In a path, ``~`` and environment variables are expanded.  A fit
        that finds its own checkpoint there continues from it.  A checkpoint needs an int as
        `random_state`.
    checkpoint_every : int, default=5
        Number of epochs between two checkpoints.
    verbose : int, default=0
        If not 0, show a progress bar, which needs the package ``rich``.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_items), float32
        Vectors h of the items, as columns.
    user_factors_ : ndarray of shape (n_users, n_components), float32
        Vectors w of the users.
    user_bias_, item_bias_ : ndarray of shape (n_users,) and (n_items,), float32
        Biases; zeros if the model has none (see `fit_bias`).
    global_mean_ : float
        Mean of the ratings of the last call of `fit`, weighted by `sample_weight`, which
        `partial_fit` keeps.  It is zero if the model has no global mean (see `fit_bias`).
    rating_scale_ : float
        Number by which ratings were divided for the fit.  It is their standard deviation, or their
        absolute value if all are equal.  It is 1 with `unobserved_weight` or a ranking `loss`, and
        if all ratings are 0.
    solver_ : str
        The solver of the last fit: "sgd" or "ccd".
    alpha_ : float
        `alpha`, or the value that "auto" chose for the ratings of the first fit.
    rating_range_ : tuple of two floats
        The smallest and the largest rating so far.  With `unobserved_weight` the zeros of missing
        pairs count, too.
    user_ids_, item_ids_ : ndarray of shape (n_users,) and (n_items,)
        Ids of the users and items, in the order of `user_factors_` and of the columns of
        `components_`.  Numbers are int64, or uint64 if an id needs it; strings are Python objects.
        After a fit of pairs, they are the ids that occur, in ascending order.  `partial_fit`
        appends new ids.  For a matrix, or a given `n_users` or `n_items`, the ids are the indices
        of rows or columns.
    n_iter_ : int
        Number of epochs of the last fit.
    history_ : list of dict
        A record for each epoch of the last `fit` or `partial_fit`, with the numbers of
        ``iterations``, ``seconds`` and ``samples`` (ratings) so far.  ``running_rmse`` uses the
        errors just before each step of "sgd", and is ``train_rmse`` with "ccd".  With a ranking
        `loss`, a record has ``running_loss`` instead, the mean loss.  A record also has
        ``objective``, ``penalty``, ``train_rmse`` and ``validation_rmse`` if they were computed.
        Errors are in the unit of the ratings; the objective and the penalty are in its square.
    n_shards_ : int
        Number of shards of the last fit.
    n_features_in_ : int
        Number of columns of X in `fit`: the number of items, or 2 for pairs.
    feature_names_in_ : ndarray of str
        Names of these columns, if they are all strings.

    See Also
    --------
    sklearn.decomposition.NMF : Non-negative factorisation of a complete matrix.

    Notes
    -----
    If y is given, a dense X of two columns holds pairs of ids.  Any other X is a matrix.  A
    complete dense matrix of two or three columns, of which the first two look like ids, raises an
    error.

    References
    ----------
    .. [1] J. K. Kim, Q. Ho, S. Lee, X. Zheng, W. Dai, G. A. Gibson, E. P. Xing, "STRADS: a
       distributed framework for scheduled model parallel machine learning", EuroSys 2016, section
       4.3.
    .. [2] W.-S. Chin, Y. Zhuang, Y.-C. Juan, C.-J. Lin, "A learning-rate schedule for stochastic
       gradient methods to matrix factorization", PAKDD 2015, section 3.
    .. [3] S. Lee, J. K. Kim, X. Zheng, Q. Ho, G. A. Gibson, E. P. Xing, "On model parallelization
       and scheduling strategies for distributed machine learning", NIPS 2014, supplement, section
       2.
    .. [4] Y. Hu, Y. Koren, C. Volinsky, "Collaborative filtering for implicit feedback datasets",
       ICDM 2008.  The fit uses blocks of components, as in S. Rendle, W. Krichene, L. Zhang, Y.
       Koren, "iALS++", arXiv:2110.14044, 2021.
    .. [5] S. Rendle, C. Freudenthaler, Z. Gantner, L. Schmidt-Thieme, "BPR: Bayesian personalized
       ranking from implicit feedback", UAI 2009.
    .. [6] S. Rendle, W. Krichene, L. Zhang, Y. Koren, "Revisiting the performance of iALS on item
       recommendation benchmarks", RecSys 2022, section 2.2, equation 5.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import ModelParallelMF
    >>> pairs = np.array([[0, 0], [0, 1], [1, 0], [1, 2], [2, 1], [2, 2]])
    >>> ratings = np.array([5.0, 3.0, 4.0, 1.0, 3.0, 2.0])
    >>> mf = ModelParallelMF(n_components=2, random_state=0).fit(pairs, ratings)
    >>> mf.predict([[0, 2], [7, 0]]).shape
    (2,)
    >>> items, scores = mf.recommend([0], n=1)
    >>> items
    array([[2]])
    """

    _objective = "objective"
    _step = "epoch"

    _parameter_constraints: ClassVar[Named] = CONSTRAINTS
    #: scikit-learn needs this to route weights to `fit`, which takes them by name.
    __metadata_request__fit: ClassVar[dict[str, None]] = {"sample_weight": None}
    __metadata_request__partial_fit: ClassVar[dict[str, None]] = {"sample_weight": None}

    def __init__(
        self,
        n_components: int = 20,
        *,
        loss: Any = "squared",
        unobserved_weight: float = 0.0,
        confidence: Callable[[Array], Array] | None = None,
        fit_bias: bool = True,
        positive: bool = False,
        alpha: float | str = "auto",
        penalty: str | float = "per_rating",
        clip: bool = False,
        n_users: int | None = None,
        n_items: int | None = None,
        solver: str = "auto",
        schedule: str = "rotation",
        learning_rate: float = 0.1,
        n_shards: int | None = None,
        random_state: Any = None,
        max_iter: int = 20,
        tol: float = 1e-4,
        n_iter_no_change: int | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        evaluate_every: int = 0,
        n_jobs: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 5,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, **fit_params: Any) -> ModelParallelMF:
        """Factorise ratings.

        Parameters
        ----------
        X : matrix of shape (n_users, n_items), or pairs of shape (n_ratings, 2)
            A matrix may be sparse, with ratings as its stored entries (zeros included), or an array
            or data frame of numbers, in which NaN and masked entries are missing.  Pairs are two
            columns with the ids of the user and the item of each rating.  Ids are whole numbers or
            strings, in an array or a data frame (pandas, polars, PyArrow).  X may also be a Dask
            array or data frame.
        y : array-like of shape (n_ratings,), default=None
            The ratings of pairs.  For a matrix, y is not used, with a warning.
        **fit_params : dict
            ``sample_weight``, array-like of shape (n_ratings,): the weight of the squared error of
            each rating, 1 by default.  For a sparse X in memory, weights are in the order of
            ``X.data``.  For any other X they are row by row, without missing entries.  Weights may
            also be a Dask collection.  Without `unobserved_weight` and with a number as `alpha`, a
            rating of weight 2 acts like two equal ratings.

        Returns
        -------
        ModelParallelMF
            The fitted estimator itself.

        Raises
        ------
        ValueError
            If parameters cannot be combined.  If ratings are dates or are not finite.  If a user
            rates an item twice, or there are no ratings.  If ids are missing, negative, too large
            for `n_users` or `n_items`, or neither whole numbers nor strings.  If X and y differ in
            length.  If X is a table of ids and ratings, or holds pairs without y.  If early
            stopping would hold out the only rating.  If a rating is not above 0 with a ranking
            `loss`.  If the factors diverge.
        """
        return self._factorise(X, y, fit_params, anew=True)

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, **fit_params: Any) -> ModelParallelMF:
        """Fit more ratings, and keep the influence of earlier ones.

        Known users and items keep their ids and their places in the factors, and new ones are
        appended.  In a matrix, row u belongs to user u.  `global_mean_`, `rating_scale_` and an
        `alpha_` chosen by "auto" do not change.

        With the squared loss the solver is "ccd", whatever `solver` is.  Users without ratings in
        this call keep their vectors and biases.  So do items without ratings, unless
        `unobserved_weight` is used.  A penalty keeps the other vectors and biases near their
        earlier values.  It grows with the number of earlier ratings of the user or item, and is a
        part of the objective in `history_`.  A call with exactly the ratings of an earlier call
        changes nothing.  With `unobserved_weight`, however, a pair of an earlier call counts as one
        more click: the weight of the click, minus `unobserved_weight`, is added to that of the
        pair.

        With a ranking `loss` the solver is "sgd".  The fit starts from the earlier factors, and
        each epoch visits all clicks, earlier and new.  A repeated pair counts once.  Three to ten
        epochs are about as good as a new fit to all clicks.

        Parameters
        ----------
        X : input as in `fit`
            Ratings of known or new users and items.  A matrix must have the same columns as before.
        y : array-like of shape (n_ratings,), default=None
            As in `fit`.
        **fit_params : dict
            ``sample_weight``, as in `fit`.

        Returns
        -------
        ModelParallelMF
            The fitted estimator itself.

        Raises
        ------
        DuplicateRatingError
            If a pair occurs twice in X.  With the squared loss and without `unobserved_weight`,
            also if a pair was in an earlier call, and no call had a Dask collection on a cluster.
        ValueError
            As in `fit`.  If `loss` or `n_components` has changed, or `unobserved_weight` from or to
            0, or `checkpoint` is set after an earlier fit.  If the standard deviation of the
            ratings, or the difference between their mean and `global_mean_`, is more than 100 times
            `rating_scale_`.  With a ranking `loss`, if earlier clicks were a Dask collection on a
            cluster.
        """
        try:
            return self._factorise(X, y, fit_params, anew=not hasattr(self, "components_"))
        except RepeatedCallError:
            logger.info("partial_fit: all ratings are those of an earlier call, and change nothing")
            return self

    def _factorise(self, X: Any, y: Any, fit_params: Named, *, anew: bool) -> ModelParallelMF:
        weights = read_fit_params(fit_params)
        self._validate_params()  # scikit-learn skips this in `partial_fit` after a fit
        if not anew:
            check_earlier(self)
        self._check_checkpoint(None if anew else self, "partial_fit")
        check_together(self, weights, anew=anew)
        seed = make_seed(self.random_state)
        wanted = Wanted(
            self.n_components,
            (self.n_users, self.n_items),
            bool(self.unobserved_weight),
            self.confidence,
            self.loss,
        )

        def factorise(ratings: RatingRows, place: Place) -> Named:
            return MFFit(self, ratings, place, seed=seed, anew=anew).run(X, y)

        given: Named = {"anew": anew, "label": "schmp-mf", "work": self._work(X)}
        self._fit_ratings(X, y, wanted, factorise, weights=weights, **given)
        return self

    def _work(self, X: Any) -> float:
        """Return about how many seconds a fit takes, or infinity if shards were asked for."""
        if self.n_shards:
            return math.inf
        return entries_of(X) * self.max_iter * self.n_components * 2e-9

    def _has_converged(self) -> bool:
        """Return whether what the fit monitors no longer falls by `tol`.

        With 0 only early stopping may end it.
        """
        return bool(self.tol or self.early_stopping) and self._ending()(self.history_)

    def _ending(self) -> Ending:
        varies = self.early_stopping or self.loss != "squared"
        patience = self.n_iter_no_change or (3 if varies else 1)
        names = _MONITORED[: 2 if self.evaluate_every else None]
        return partial(has_not_improved, names, self.tol, patience)

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self) -> Any:
        """Declare that inputs may be sparse, and that NaN means missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.positive_only = self.loss != "squared"
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags
