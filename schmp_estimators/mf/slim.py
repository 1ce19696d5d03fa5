"""Sparse linear models of items, for users."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import partial
from math import ceil
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.callback import with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval

from schmp_estimators.core.engine.running import Source, static_run
from schmp_estimators.core.errors import SpillWarning
from schmp_estimators.core.estimators import SweepingEstimator
from schmp_estimators.core.inputs.files import memory_of_workers
from schmp_estimators.core.inputs.validation import COUNT, NOT_NEGATIVE, keep
from schmp_estimators.core.io.checkpoint import recognised
from schmp_estimators.core.io.files import temporary_directory
from schmp_estimators.core.io.slices import Filed, Slices, memory_left, read_back
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.program import Harvest
from schmp_estimators.core.sweeps import Sweeps
from schmp_estimators.core.typing import Array, Floats, Named
from schmp_estimators.core.values import nbytes
from schmp_estimators.mf.data.clicks import (
    amounts_of,
    arrange,
    in_units,
    read_clicks,
    weigh_users,
    with_values,
)
from schmp_estimators.mf.data.rows import RatingRows, Wanted
from schmp_estimators.mf.item_ranking import ItemRanking
from schmp_estimators.mf.kernels.layout import deal
from schmp_estimators.mf.programs.columns import (
    NO_COLUMNS,
    ColumnShard,
    ItemColumns,
    assembled,
    columns_of,
)

#: Number of shards at most.
_SHARDS = 32
#: Pairs of clicks of one user that make a portion, and the number of portions at most.
_PORTION, _PORTIONS = 2_000_000, 50
#: Bytes of arrays that stay in memory in any case.
_SMALL = 1 << 28
#: The user's names of those parameters of the program that are called otherwise.
_NAMES = {
    "l1": "l1_reg", "l2": "l2_reg", "most": "max_neighbors", "max_passes": "max_iter",
    "unit": "confidence",
}  # fmt: skip


class DistributedSLIM(ItemRanking, SweepingEstimator, BaseEstimator):
    """Sparse linear model of items (SLIM) for clicks, in this process or on a Dask cluster.

    The score of item j for a user is ``x_u @ coef_[:, j]``, where x_u holds the values of the
    user's clicks, after `confidence`.  Column j of `coef_` is a non-negative elastic net that
    predicts the clicks on item j from the clicks on the other items [1]_.  For each column,
    `dual_gap_` bounds how far the objective is above its minimum over the items that
    `max_neighbors` allows.  The fitted numbers are bit-for-bit identical for any number of threads
    and workers.

    Parameters
    ----------
    l1_reg : float, default=0.0
        Weight of the sum of the coefficients of a column in its objective (see `dual_gap_`).  If
        clicks have the value 1 and at most `l1_reg` users have clicked on both i and j, entry (i,
        j) of `coef_` is 0.
    l2_reg : float, default=50.0
        Weight of half the sum of the squared coefficients of a column in its objective.
    max_neighbors : int or None, default=300
        Largest number of items that may have coefficients in a column.  Each of these alone would
        lower the objective, without its `l2_reg` term, more than any other item.  `dual_gap_` is
        then the gap of the problem with these items only.  None means all items.
    user_weight : float, default=0.0
        In the fit, the row of a user with n clicks is multiplied by ``n ** -user_weight``.  With a
        value above 0, users with many clicks count less.
    confidence : callable, default=None
        A function that takes an array of the values of clicks, such as counts, and returns the
        values that the model uses instead, for example `numpy.log1p`.  None keeps the values.
    n_users, n_items : int, default=None
        Numbers of users and items, if ids of pairs are row and column indices that start at 0.
        With None, the ids that occur are numbered (see `user_ids_`).
    max_iter : int, default=1000
        Largest number of passes over the coefficients of a column.
    tol : float, default=1e-3
        A column counts as solved when its :term:`duality gap` is at most `tol` times its objective
        with zero coefficients.  `tol` must be at least 1e-6.
    n_jobs : int, default=None
        Number of threads of a fit in this process.  None means 1, and -1 means all cores.
    checkpoint : str or path-like, default=None
        Path or fsspec URL of a file for solved columns.  In a path, ``~`` and environment variables
        are expanded.  A fit that finds its own checkpoint there continues from it.
    checkpoint_every : int, default=5
        Columns are solved in portions.  This is the number of portions between two checkpoints.
    verbose : int, default=0
        If not 0, show a progress bar, which needs the package ``rich``.

    Attributes
    ----------
    coef_ : csr_array of shape (n_items, n_items), float32
        Coefficients.  A click on item i adds entry (i, j), times the value of the click after
        `confidence`, to the score of item j.
    dual_gap_ : ndarray of shape (n_items,), float64
        Duality gap of each column w of `coef_`.  The objective of the column is
        ``½‖x_j − X w‖² + l1_reg Σ w + l2_reg/2 ‖w‖²``.  X has the clicks after `confidence` and
        `user_weight`.
    n_iter_ : ndarray of shape (n_items,), int32
        Number of passes over the coefficients of each column.
    clicks_ : csr_array of shape (n_users, n_items), float32
        Values of all clicks.  None in a copy made by `without_clicks`.
    user_ids_, item_ids_ : ndarray of shape (n_users,) and (n_items,)
        Ids of the users and items, in the order of the rows and columns of `clicks_`.  They are as
        in `ModelParallelMF`.
    history_ : list of dict
        A record for each portion of columns, with the numbers of ``iterations``, ``seconds``,
        ``samples`` (columns) and ``coefficients`` so far.  ``dual_gap`` is the sum of the gaps of
        all columns, divided by the sum of their objectives with zero coefficients.  The gap of a
        column not yet solved counts as this objective.  So ``dual_gap`` falls to at most `tol` if
        all columns are solved.
    n_features_in_ : int
        Number of columns of X in `fit`: the number of items, or 2 for pairs.
    feature_names_in_ : ndarray of str
        Names of these columns, if they are all strings.

    See Also
    --------
    ModelParallelMF : Factors of users and items, for ratings and for clicks.

    Notes
    -----
    Duality gaps are those of coefficients before rounding to float32.  A pickled model takes about
    8 bytes for each click and for each coefficient.

    References
    ----------
    .. [1] X. Ning, G. Karypis, "SLIM: sparse linear methods for top-N recommender systems",
       ICDM 2011, section IV.

    Examples
    --------
    >>> from schmp_estimators import DistributedSLIM
    >>> pairs = [["ada", "Emma"], ["ada", "Persuasion"], ["bob", "Dune"], ["cy", "Emma"]]
    >>> slim = DistributedSLIM(l2_reg=1).fit(pairs, [1] * 4)
    >>> books, scores = slim.recommend(["cy"], n=1)
    >>> books.tolist()
    [['Persuasion']]
    """

    _objective = "dual_gap"
    _step = "portion"

    _parameter_constraints: ClassVar[Named] = {
        "l1_reg": [NOT_NEGATIVE],
        "l2_reg": [NOT_NEGATIVE],
        "max_neighbors": [None, COUNT],
        "user_weight": [Interval(Real, 0, 10, closed="both")],
        "confidence": [None, callable],
        "n_users": [None, COUNT],
        "n_items": [None, COUNT],
        "max_iter": [COUNT],
        "tol": [Interval(Real, 1e-6, None, closed="left")],
        "n_jobs": [None, Integral],
        "checkpoint": [None, str, os.PathLike],
        "checkpoint_every": [COUNT],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        l1_reg: float = 0.0,
        l2_reg: float = 50.0,
        *,
        max_neighbors: int | None = 300,
        user_weight: float = 0.0,
        confidence: Callable[[Array], Array] | None = None,
        n_users: int | None = None,
        n_items: int | None = None,
        max_iter: int = 1000,
        tol: float = 1e-3,
        n_jobs: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 5,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, **fit_params: Any) -> DistributedSLIM:
        """Fit the coefficients of all items.

        Parameters
        ----------
        X : matrix of shape (n_users, n_items), or pairs of shape (n_clicks, 2)
            As in `ModelParallelMF.fit`: a sparse matrix of clicks, an array or data frame in which
            NaN and zeros are not clicks, or pairs of ids.  X may also be a Dask collection.
        y : array-like of shape (n_clicks,), default=None
            Values of the pairs, at least 0, for example counts.  Pass ones if clicks have no
            values.  If X is a matrix, y is not used.
        **fit_params : dict
            Must be empty.  There is no ``sample_weight``.

        Returns
        -------
        DistributedSLIM
            The fitted estimator itself.

        Raises
        ------
        TypeError
            If there are `fit_params`.
        DuplicateRatingError
            If a pair occurs twice.
        ValueError
            As in `ModelParallelMF.fit`.  If a value is negative, or no value is above 0.  If
            `l1_reg` and `l2_reg` are both 0.

        Warns
        -----
        ConvergenceWarning
            If columns are not solved after `max_iter` passes.
        """
        return self._solve(X, y, fit_params, anew=True)

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, **fit_params: Any) -> DistributedSLIM:
        """Add clicks, and solve again the columns that no longer meet `tol`.

        Known users and items keep their ids and rows, and new ones are appended.  A new value of a
        known pair is added to the old one.  Up to the tolerance `tol`, the result is that of a fit
        to all clicks.

        Parameters
        ----------
        X : input as in `fit`
            Clicks of known or new users.  A matrix must have the same columns as before.
        y : array-like of shape (n_clicks,), default=None
            As in `fit`.
        **fit_params : dict
            As in `fit`.

        Returns
        -------
        DistributedSLIM
            The fitted estimator itself.

        Raises
        ------
        DuplicateRatingError
            If a pair occurs twice in X.
        ValueError
            As in `fit`.  If the model was made by `without_clicks`, or `checkpoint` is set after an
            earlier fit.
        """
        return self._solve(X, y, fit_params, anew=not hasattr(self, "coef_"))

    def _solve(self, X: Any, y: Any, fit_params: Named, *, anew: bool) -> DistributedSLIM:
        if fit_params:
            raise TypeError(
                f"fit takes X and y, not {', '.join(sorted(fit_params))}; weights of clicks are "
                "their values y, and user_weight weighs users"
            )
        self._validate_params()  # scikit-learn skips this in `partial_fit` after a fit
        if self.l1_reg == self.l2_reg == 0:
            raise ValueError(
                "l1_reg and l2_reg are both 0, so coefficients may be anything; raise one of them"
            )
        self._check_checkpoint(None if anew else self, "partial_fit", draws=False)
        earlier = None if anew else self._kept_clicks("fit anew")

        def solve(ratings: RatingRows, place: Place) -> Named:
            pairs = ratings.are_pairs if anew else self._fitted_on_pairs
            clicks = read_clicks(ratings, earlier)
            ids = {"user_ids_": ratings.known.users, "item_ids_": ratings.known.items}
            return {**ids, "_fitted_on_pairs": pairs, **self._run(X, y, clicks, place, anew)}

        wanted = Wanted(1, (self.n_users, self.n_items))
        self._fit_ratings(X, y, wanted, solve, anew=anew, label="schmp-slim")
        return self

    def _run(self, X: Any, y: Any, clicks: Any, place: Place, anew: bool) -> Named:
        """Solve all columns, and return the fitted attributes."""
        values = amounts_of(clicks.data, self.confidence).astype(np.float32)
        if not values.any():
            raise ValueError(
                "confidence is 0 for all clicks; it must be above 0 for some, as numpy.log1p is"
            )
        amounts = with_values(clicks, values)
        fitted, unit = in_units(
            weigh_users(amounts, self.user_weight) if self.user_weight else amounts
        )
        n_items = clicks.shape[1]
        most = min(self.max_neighbors or n_items, n_items)
        arranged = arrange(fitted, float(self.l1_reg) / unit**2, most, place.each)
        at_zero = unit**2 * arranged.squares / 2
        lengths = np.diff(amounts.indptr).astype(np.float64)
        costs = with_values(clicks, np.ones(clicks.nnz)).T @ lengths
        shards = deal(costs, min(_SHARDS, n_items)).members
        self._portions = min(_PORTIONS, max(1, ceil(costs.sum() / _PORTION)))
        program = ItemColumns(
            float(self.l1_reg),
            float(self.l2_reg),
            most,
            float(self.tol),
            int(self.max_iter),
            unit,
            self._portions,
        )
        columns = NO_COLUMNS if anew else columns_of(self.coef_)
        slices = _choose_files(nbytes(arranged), place)
        shared = place.lasting(Filed((arranged, columns), slices))
        sources = [Source(partial(_make_shard, items), (shared,)) for items in shards]
        of_all: Named = {
            "clicks_": clicks,
            "_occur": (lengths > 0, np.diff(arranged.by_item.offsets) > 0),
        }
        usual = np.asarray(amounts.mean(axis=0, dtype=np.float64))

        def attributes(harvest: Harvest) -> Named:
            coefficients, gaps, n_iter = assembled(harvest, at_zero, unit)
            solved = {"coef_": coefficients, "dual_gap_": gaps, "n_iter_": n_iter}
            return {**of_all, **solved, "_usual": usual @ coefficients, "_tables": {}}

        told = map(recognised, (fitted.indptr, fitted.indices, fitted.data))
        sweeps = Sweeps(self, program, len(shards), told, _NAMES)
        with static_run(
            program,
            sources,
            place,
            n_sweeps=self._portions,
            saved=sweeps.found["saved"],
            first=sweeps.first,
            may_ask=partial(self._may_ask, every=self.checkpoint_every),
        ) as run:
            for _ in sweeps.follow(run, X, y, place=place, attributes=attributes):
                pass
            found = attributes(run.harvest())
        if len(self.history_) == self._portions:
            self._warn_of(found["dual_gap_"], at_zero)
        return found

    def _warn_of(self, gaps: Floats, at_zero: Floats) -> None:
        left = int(np.count_nonzero(gaps > self.tol * at_zero))
        if left:
            warnings.warn(
                f"{left} of {gaps.size} columns are not within tol={self.tol:g} after "
                f"max_iter={self.max_iter} passes; raise max_iter or l2_reg, or look at dual_gap_",
                ConvergenceWarning,
                stacklevel=2,
            )

    @property
    def _n_sweeps(self) -> int:
        return self._portions

    def _has_converged(self) -> bool:
        """Return False: all columns are solved."""
        return False

    def __sklearn_tags__(self) -> Any:
        """Declare that inputs may be sparse, are not negative, and that NaN means missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.positive_only = True
        return tags

    _portions: int


def _choose_files(needed: int, place: Place) -> Slices | None:
    """Return files for what each process reads, or None if it stays in memory."""
    if needed <= _SMALL:
        return None
    left = [needed + memory_left()] if place.is_local else memory_of_workers(place)
    if 2 * needed <= min(left):
        return None
    folder = temporary_directory()
    where = f"{folder!r}" if place.is_local else f"workers (local_directory), and in {folder!r}"
    warnings.warn(
        f"clicks and products of items take {needed / 2**30:.3g} GiB, more than half of what is "
        f"left of the memory limit: they are in files of {where} until the fit ends",
        SpillWarning,
        stacklevel=2,
    )
    return Slices(folder)


def _make_shard(items: Any, shared: Any) -> Filed[ColumnShard]:
    arranged, earlier = read_back(shared)
    return Filed(ColumnShard(arranged, earlier, items))
