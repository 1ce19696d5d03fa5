"""The Lasso: least squares with an L1 penalty, solved on scheduled sets of coefficients."""

import os
from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, _fit_context
from sklearn.callback import with_callbacks
from sklearn.utils import Tags, check_random_state

from schmp_estimators.core.door.masks import unmask
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.linear import opening as shared
from schmp_estimators.linear.checkpoint import Checkpointing, check_parameters
from schmp_estimators.linear.following import PENALTY_CONSTRAINTS, SCHEDULED_CONSTRAINTS, STRENGTH, CertifiedEstimator
from schmp_estimators.linear.losses.squared import Squared
from schmp_estimators.linear.penalties.choose import check_factors, choose_penalty
from schmp_estimators.linear.predicting import Scored, apply_rows, scores
from schmp_estimators.linear.programs.choose import choose_solver, make_model, make_program
from schmp_estimators.linear.programs.homotopy import Solution, record_of
from schmp_estimators.linear.programs.input import Target
from schmp_estimators.linear.programs.model import Model


class _LinearRegressor(Scored, RegressorMixin, BaseEstimator):
    """A regressor with coefficients, most of them zero."""

    coef_: np.ndarray

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted responses.

        Parameters
        ----------
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray or lazy Dask array of shape (n_samples,) or (n_samples, n_targets)
            Predicted responses.
        """
        n_targets = len(self.coef_) if np.ndim(getattr(self, "coef_", 0)) == 2 else None
        return apply_rows(self, scores, X, n_outputs=n_targets, dtype=np.float64, name="lasso-predict")

    @property
    def sparse_coef_(self) -> sp.csr_array:
        """`coef_` as a sparse array of shape (1, n_features) or (n_targets, n_features)."""
        return sp.csr_array(np.atleast_2d(self.coef_))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class PrioritizedLasso(MultiOutputMixin, CertifiedEstimator, _LinearRegressor):
    r"""Linear model with an L1 penalty, fitted by priority-scheduled coordinate descent, certified by a duality gap.

    Minimises over :math:`\beta` and :math:`b`

    .. math:: \frac{1}{2n} \sum_i (y_i - x_i^\top\beta - b)^2
        + \alpha \sum_j f_j \left(\rho |\beta_j| + \frac{1 - \rho}{2} \beta_j^2\right),

    with the L1 ratio :math:`\rho` and penalty factors :math:`f`, both 1 by default: the objectives of
    :class:`sklearn.linear_model.Lasso` and :class:`~sklearn.linear_model.ElasticNet`, with the same meaning of every
    shared parameter.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty, from 1e-300 to 1e300.
    l1_ratio : float, default=1.0
        Part ρ of the penalty that is absolute values, from 1e-6 to 1; the rest is squares.
    penalty_factors : array-like of shape (n_features,) or None, default=None
        Factors f ≥ 0 by which the penalty of each coefficient is multiplied; they are not rescaled.  A coefficient
        with factor 0 is never penalised, as it should be for covariates, which may depend on each other; what they
        tell by less than the rounding of their values is left out.  `positive` does not go with such factors.  None:
        all are 1.
    fit_intercept : bool, default=True
        Whether to fit the intercept b.  X is then centred implicitly: it is neither copied nor made dense.
    schedule : {"resolve", "priority", "random", "round_robin"}, default="resolve"
        How coefficients are chosen and updated.  "resolve" solves a growing candidate set exactly.  The others update
        `n_parallel` coefficients at a time from the same residual: "priority" draws them by their last change and
        drops those correlated above `max_correlation` (STRADS, [1]_), "random" draws them uniformly (Shotgun, [2]_),
        "round_robin" takes them in turn.
    max_iter : int, default=1000
        Most outer steps of "resolve"; most passes over all coefficients of the other schedules.
    tol : float, default=1e-4
        The fit ends when the duality gap is at most ``tol * sum(y ** 2) / n_samples`` (of the centred response).
    positive : bool, default=False
        Whether coefficients are restricted to be ≥ 0.
    warm_start : bool, default=False
        Whether to start from the present `coef_`.
    n_parallel : int, default=64
        Coefficients updated at a time by the schedules other than "resolve".
    max_correlation : float or None, default=None
        Largest absolute correlation of columns that are updated together, by the schedules other than "resolve"; 1: no
        check.  None: 0.1 for "priority", no check for the others.
    pipeline_depth : int, default=1
        Rounds under way at a time, for the schedules other than "resolve".
    n_schedulers : int, default=1
        Schedulers that take turns in choosing coefficients, each of a slice of its own, for the schedules other than
        "resolve": none has to look through all priorities.
    n_shards : int or None, default=None
        Partitions of the rows.  None: one per 2²⁸ stored values, or one per chunk of rows of a Dask collection; of
        that, `n_shards` puts consecutive chunks together.
    n_jobs : int or None, default=None
        Threads over the partitions in this process; None means 1, -1 all processors.  The result does not depend on
        it.  Not used on a Dask cluster.
    checkpoint : str or path-like, default=None
        Path (``~`` and environment variables are replaced) or URL known to fsspec to which the state is written every
        `checkpoint_every` certificates and at the end.  A fit that finds its own checkpoint there goes on from it, with
        the same bits; with a larger `max_iter` it goes further. "priority" and "random" need an int as `random_state`.
        If it cannot be written, the fit warns and goes on.
    checkpoint_every : int, default=5
        Number of certificates between two checkpoints.
    verbose : int or bool, default=0
        Whether to show a progress bar, with the objective and samples per second; it needs the package rich.
    random_state : int, RandomState or None, default=None
        Seed of "priority" and "random"; "resolve" and "round_robin" draw nothing.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Coefficients; float32 if X is, otherwise float64.
    sparse_coef_ : sparse array of shape (1, n_features) or (n_targets, n_features)
        `coef_` without its zeros.
    intercept_ : float or ndarray of shape (n_targets,)
        Intercept b.
    dual_gap_ : float or ndarray of shape (n_targets,)
        Duality gap reached, in units of the objective: the objective is at most this far from its minimum, up to the
        rounding of float64.  If `coef_` is float32, it is the gap of the rounded coefficients.
    n_iter_ : int or list of int
        Outer steps made ("resolve") or passes over all coefficients (other schedules).
    history_ : list of dict
        One record per certificate: iterations, seconds, samples (entries of X and of Gram matrices operated upon),
        objective, dual_gap, support (non-zero coefficients), scope (columns looked at).  Of several targets: one after
        the other.  The solvers "gram" and "columns" give one certificate for each.
    solver_ : {"gram", "columns", "rounds", "scheduled"}
        How the fit was made; the user guide has a table.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features, if X has any that are all strings.

    See Also
    --------
    PrioritizedLassoCV : Chooses alpha by cross-validation.
    SparseLogisticRegression : The same for classification.

    References
    ----------
    .. [1] S. Lee, J. K. Kim, X. Zheng, Q. Ho, G. A. Gibson, E. P. Xing, "On model parallelization and scheduling
       strategies for distributed machine learning", NIPS 2014, section 3.3.
    .. [2] J. K. Bradley, A. Kyrola, D. Bickson, C. Guestrin, "Parallel coordinate descent for L1-regularized loss
       minimization", ICML 2011, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import PrioritizedLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 1000))
    >>> y = 3 * X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=100)
    >>> lasso = PrioritizedLasso(alpha=0.1).fit(X, y)
    >>> np.flatnonzero(lasso.coef_).tolist()
    [0, 1]
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012  (scikit-learn's convention)
        "alpha": STRENGTH,
        **PENALTY_CONSTRAINTS,
        "positive": ["boolean"],
        **SCHEDULED_CONSTRAINTS,
    }

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 1.0,
        penalty_factors: Any = None,
        fit_intercept: bool = True,
        schedule: str = "resolve",
        max_iter: int = 1000,
        tol: float = 1e-4,
        positive: bool = False,
        warm_start: bool = False,
        n_parallel: int = 64,
        max_correlation: float | None = None,
        pipeline_depth: int = 1,
        n_schedulers: int = 1,
        n_shards: int | None = None,
        n_jobs: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 5,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.penalty_factors = penalty_factors
        self.fit_intercept = fit_intercept
        self.schedule = schedule
        self.max_iter = max_iter
        self.tol = tol
        self.positive = positive
        self.warm_start = warm_start
        self.n_parallel = n_parallel
        self.max_correlation = max_correlation
        self.pipeline_depth = pipeline_depth
        self.n_schedulers = n_schedulers
        self.n_shards = n_shards
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix, Dask collection} of shape (n_samples, n_features)
            Samples.  Dense arrays of floats and integers are read as they are, in either order; sparse input is read
            by columns.  A Dask array with dense or sparse chunks, a Dask data frame or a list of Delayed objects stays
            where it is: each chunk of rows makes a partition.
        y : array-like or Dask collection of shape (n_samples,) or (n_samples, n_targets)
            Responses; each target is fitted on its own.
        sample_weight : array-like or Dask collection of shape (n_samples,), default=None
            Weights of the samples, ≥ 0; only their ratios matter.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If X, y or the weights are masked, not finite, empty or of different lengths, or the weights are negative or
            all zero; if squares of X or y overflow or underflow; if chunks of X have different widths.
        TypeError
            If X is a Dask collection of another kind than those above.
        CheckpointMismatchError
            If the checkpoint is that of another fit, or damaged.

        Warns
        -----
        ConvergenceWarning
            If the gap is above the tolerance after `max_iter`, or where rounding ends the fit earlier.
        CheckpointWarning
            If a checkpoint could not be written.
        UserWarning
            If columns vary by less than the rounding of their values; they keep the coefficient 0.
        """
        return shared.fit_where_input_is(self, X, y, sample_weight, "schmp-lasso")

    def _fit_on(self, place: shared.Place, X: Any, y: Any, sample_weight: Any) -> Self:
        check_parameters(self)
        samples = shared.read_samples(self, X, y, sample_weight, place=place, multi_output=True, y_numeric=True)
        weights = samples.weights
        if len(weights) and (weights == weights[0]).all():
            weights = np.empty(0)
        targets = samples.y.reshape(len(samples.y), -1).T
        with (
            shared.open_rows(self, samples, targets, weights, place, n_shards=self.n_shards) as problem,
            self._followed(X, y, place) as follower,
        ):
            kept = np.float32 if problem.extent.dtype == np.float32 else np.float64
            models: list[Any] = []
            attributes = partial(_attributes, models, len(targets), kept)
            followed, starts = follower.watch(problem.rounds, attributes), self._start(len(targets))
            penalty = self._penalty(problem.extent.n_columns)
            self.solver_ = choose_solver(self, problem.extent, len(targets), penalty)
            if not self._fit_at_hand(problem, followed, models, starts, kept):
                identity = shared.penalty_identity(self, problem)
                identity |= {"alpha": float(self.alpha), "positive": bool(self.positive)}
                checkpointing = Checkpointing(self, problem, identity, len(targets))
                shared.fit_each(self._fits(problem, starts, kept), models, problem, followed, checkpointing)
        if not follower.stopped:
            for model in models:
                shared.warn_unless_converged(model, self.max_iter, "The Lasso")
        self.__dict__.update(attributes())
        return self

    def _penalty(self, n_columns: int) -> Any:
        factors = check_factors(self.penalty_factors, n_columns, self.positive)
        return choose_penalty(self.alpha, self.l1_ratio, factors, self.positive)

    def _unit(self, n_columns: int) -> tuple[Any, float]:
        """Return a penalty, and what it is to be multiplied by; factors that are all alike multiply alpha."""
        factors = check_factors(self.penalty_factors, n_columns, self.positive)
        alike = not np.ndim(factors)
        unit = choose_penalty(1.0, self.l1_ratio, 1.0 if alike else factors, self.positive)
        return unit, self.alpha * factors if alike else self.alpha

    def _fit_at_hand(
        self, problem: shared.Problem, followed: Any, models: list[Any], starts: list[np.ndarray], dtype: type
    ) -> bool:
        """Fit all targets where all columns are, until a callback ends that; returns False if that is not the way."""
        n_columns, solutions, records = problem.extent.n_columns, list[Solution](), list[dict[str, float]]()
        penalty, strength = self._unit(n_columns)
        found = shared.at_hand(problem, self.solver_, self.fit_intercept, penalty)
        if found is not None:
            with one_blas_thread():
                for target, given in enumerate(starts):
                    began, tolerance = perf_counter(), self.tol * found.square(target)
                    start = given if len(given) else np.zeros(n_columns)
                    points = found.fit(target, strength * found.total, tolerance, self.max_iter, start)
                    solutions.append(found.rounded(target, points, tolerance, dtype))
                    records.append(record_of(solutions[-1], int(points.work[0]), perf_counter() - began))
        if found is None or (not found.at_hand and any(one.fell_short for one in solutions)):
            self.solver_ = "scheduled" if self.schedule != "resolve" else "rounds"
            return False
        for solution, record in zip(solutions, records, strict=True):
            models.append(solution)
            followed.report(record)
            if followed.stopped:
                break
        return True

    def _start(self, n_targets: int) -> list[np.ndarray]:
        if not self.warm_start or not hasattr(self, "coef_"):
            return [np.empty(0)] * n_targets
        coef = np.atleast_2d(unmask(self.coef_, "coef_"))
        if coef.shape != (n_targets, self.n_features_in_):
            return [np.empty(0)] * n_targets
        return list(coef.astype(np.float64))

    def _fits(self, problem: shared.Problem, starts: list[np.ndarray], dtype: type) -> Iterator[shared.Fit]:
        """Give one target after the other; the Gram matrix of candidates is shared."""
        random = check_random_state(self.random_state)
        penalty = self._penalty(problem.extent.n_columns)
        for number, coef in enumerate(starts):
            loss, size = Squared(), problem.extent
            options: dict[str, Any] = {"coef": coef, "dtype": dtype, "per_weight": True}
            model = make_model(self, loss, penalty, size, problem.n_partitions, **options)
            yield make_program(self, loss, model, size, random), Target(number) if number else None


def _attributes(models: list[Model], n_targets: int, dtype: type) -> dict[str, Any]:
    """Return the fitted attributes; targets whose fit has not begun have no coefficients."""
    coefs: np.ndarray = np.zeros((n_targets, max(model.n_columns for model in models)), dtype)
    intercepts, gaps, steps = np.zeros(n_targets), np.full(n_targets, np.inf), np.ones(n_targets, int)
    for number, model in enumerate(models):
        if len(model.coef):
            coefs[number] = model.coef
            intercepts[number] = model.intercept
            gaps[number] = model.certified_gap / model.total_weight
            steps[number] = max(1, model.n_iter)
    if n_targets > 1:
        return {"coef_": coefs, "intercept_": intercepts, "dual_gap_": gaps, "n_iter_": steps.tolist()}
    [intercept], [gap], [step] = intercepts.tolist(), gaps.tolist(), steps.tolist()
    return {"coef_": coefs[0], "intercept_": intercept, "dual_gap_": gap, "n_iter_": step}
