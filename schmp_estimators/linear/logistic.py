"""Sparse logistic regression: classification with an L1 penalty, solved on scheduled working sets."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import _fit_context
from sklearn.callback import with_callbacks
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions

from schmp_estimators.core.door.masks import unmask
from schmp_estimators.linear import opening as shared
from schmp_estimators.linear.checkpoint import Checkpointing, check_parameters
from schmp_estimators.linear.classifier import LinearClassifier, class_weights, find_classes
from schmp_estimators.linear.following import PENALTY_CONSTRAINTS, SCHEDULED_CONSTRAINTS, STRENGTH, CertifiedEstimator
from schmp_estimators.linear.losses.logistic import Logistic
from schmp_estimators.linear.penalties.choose import check_factors, choose_penalty
from schmp_estimators.linear.programs.choose import make_model, make_program
from schmp_estimators.linear.programs.input import Label
from schmp_estimators.linear.programs.model import Model


class SparseLogisticRegression(CertifiedEstimator, LinearClassifier):
    r"""Logistic regression with an L1 penalty, fitted on scheduled working sets, certified by a duality gap.

    Minimises over w and b, with labels :math:`y_i \in \{-1, 1\}` and sample weights :math:`s_i`,

    .. math:: \sum_j f_j \left(\rho |w_j| + \frac{1 - \rho}{2} w_j^2\right)
        + C \sum_i s_i \ln\left(1 + e^{-y_i (x_i^\top w + b)}\right),

    with the L1 ratio :math:`\rho` and penalty factors :math:`f`, both 1 by default.  Of more than two classes,
    each is fitted against all others.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss against the penalty, from 1e-300 to 1e300; as in
        :class:`sklearn.linear_model.LogisticRegression`.
    l1_ratio : float, default=1.0
        Part ρ of the penalty that is absolute values, from 1e-6 to 1; the rest is squares.
    penalty_factors : array-like of shape (n_features,) or None, default=None
        Factors f ≥ 0 by which the penalty of each coefficient is multiplied; they are not rescaled.  A coefficient
        with factor 0 is never penalised, as it should be for covariates, which may depend on each other; what they
        tell by less than the rounding of their values is left out.  None: all are 1.
    fit_intercept : bool, default=True
        Whether to fit the intercept b, which is not penalised.
    schedule : {"resolve", "priority", "random", "round_robin"}, default="resolve"
        How coefficients are chosen and updated.  "resolve" makes proximal Newton steps on a growing working set.  The
        others update `n_parallel` coefficients at a time: see `PrioritizedLasso`.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes; "balanced": inversely proportional to their frequencies.
    max_iter : int, default=1000
        Most outer steps of "resolve"; most passes over all coefficients of the other schedules.
    tol : float, default=1e-4
        The fit ends when the duality gap is at most `tol` times the objective at zero, ``C * sum(s) * ln(2)``.
    warm_start : bool, default=False
        Whether to start from the present `coef_` and `intercept_`.
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
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients w; float32 if X is, otherwise float64.
    sparse_coef_ : sparse array of the same shape
        `coef_` without its zeros.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts b.
    dual_gap_ : ndarray of shape (1,) or (n_classes,)
        Duality gap reached: the objective is at most this far from its minimum, up to the rounding of float64.  If
        `coef_` is float32, it is the gap of the rounded coefficients.
    n_iter_ : ndarray of shape (1,) or (n_classes,)
        Outer steps made ("resolve") or passes over all coefficients (other schedules).
    history_ : list of dict
        One record per certificate; see `PrioritizedLasso`.  Objective and dual_gap are per unit of sample weight, with
        the penalty divided by C.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features, if X has any that are all strings.

    See Also
    --------
    SparseLogisticRegressionCV : Chooses C by cross-validation.
    PrioritizedLasso : The same for regression.

    References
    ----------
    .. [1] J. K. Bradley, A. Kyrola, D. Bickson, C. Guestrin, "Parallel coordinate descent for L1-regularized loss
       minimization", ICML 2011, section 3.
    .. [2] E. Ndiaye, O. Fercoq, A. Gramfort, J. Salmon, "Gap safe screening rules for sparsity enforcing penalties",
       JMLR 2017, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from schmp_estimators import SparseLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1000))
    >>> y = np.where(X[:, 0] - X[:, 1] > 0, "right", "left")
    >>> model = SparseLogisticRegression(C=0.05).fit(X, y)
    >>> np.flatnonzero(model.coef_).tolist(), model.predict(X[:3]).tolist() == y[:3].tolist()
    ([0, 1], True)
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012  (scikit-learn's convention)
        "C": STRENGTH,
        **PENALTY_CONSTRAINTS,
        "class_weight": [dict, StrOptions({"balanced"}), None],
        **SCHEDULED_CONSTRAINTS,
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        l1_ratio: float = 1.0,
        penalty_factors: Any = None,
        fit_intercept: bool = True,
        schedule: str = "resolve",
        class_weight: Any = None,
        max_iter: int = 1000,
        tol: float = 1e-4,
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
        self.C = C
        self.l1_ratio = l1_ratio
        self.penalty_factors = penalty_factors
        self.fit_intercept = fit_intercept
        self.schedule = schedule
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
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
        y : array-like or Dask collection of shape (n_samples,)
            Class labels, numbers or strings.
        sample_weight : array-like or Dask collection of shape (n_samples,), default=None
            Weights of the samples, ≥ 0.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If X, y or the weights are masked, not finite, empty or of different lengths, or the weights are negative or
            all zero; if y holds one class only, or numbers that are no classes; if chunks of X have different widths.
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
        return shared.fit_where_input_is(self, X, y, sample_weight, "schmp-logistic")

    def _fit_on(
        self, place: shared.Place, X: Any, y: Any, sample_weight: Any, models: list[Model] | None = None
    ) -> Self:
        """Fit at a place; `models` gets what has been fitted, one for each class."""
        check_parameters(self)
        samples = shared.read_samples(self, X, y, sample_weight, place=place)
        classes, codes = find_classes(samples.y)
        if len(classes) < 2:
            raise ValueError(
                f"y holds one class only, {classes[0]!r} (of samples with positive weight); give samples of two or more"
            )
        weights = class_weights(self.class_weight, classes, samples.y, samples.weights)
        unit = float(weights[0]) if len(weights) else 1.0
        uniform = not len(weights) or bool((weights == unit).all())
        used = np.empty(0) if uniform else weights
        with (
            shared.open_rows(self, samples, codes, used, place, n_shards=self.n_shards, name="logistic") as problem,
            self._followed(X, y, place) as follower,
        ):
            scale = self.C * (unit if uniform else 1.0)
            identity = {"1 / C": 1.0 / scale, **shared.penalty_identity(self, problem)}
            positives = range(len(classes)) if len(classes) > 2 else [1]
            kept = np.float32 if problem.extent.dtype == np.float32 else np.float64
            models = [] if models is None else models
            models.clear()  # input that is lost is read again
            attributes = partial(_attributes, models, classes, scale, kept)
            fits = self._fits(problem, positives, scale, kept)
            shared.fit_each(
                fits,
                models,
                problem,
                follower.watch(problem.rounds, attributes),
                Checkpointing(self, problem, identity, len(positives)),
            )
        if not follower.stopped:
            for model in models:
                shared.warn_unless_converged(model, self.max_iter, "Logistic regression")
        self.__dict__.update(attributes())
        return self

    def _fits(
        self, problem: shared.Problem, positives: Sequence[int], scale: float, dtype: type
    ) -> Iterator[shared.Fit]:
        """Give one class after the other, each against all others."""
        starts = self._start(len(positives), problem.extent.n_columns)
        random = check_random_state(self.random_state)
        factors = check_factors(self.penalty_factors, problem.extent.n_columns)
        penalty = choose_penalty(1.0 / scale, self.l1_ratio, factors)
        for positive, (coef, level) in zip(positives, starts, strict=True):
            loss, size = Logistic(), problem.extent
            options: dict[str, Any] = {"coef": coef, "level": level, "dtype": dtype}
            model = make_model(self, loss, penalty, size, problem.n_partitions, **options)
            yield make_program(self, loss, model, size, random), Label(positive)

    def _start(self, n_models: int, n_features: int) -> list[tuple[np.ndarray, float]]:
        fitted = self.warm_start and hasattr(self, "coef_")
        if not fitted or self.coef_.shape != (n_models, n_features):
            return [(np.empty(0), 0.0)] * n_models
        levels = self.intercept_ if self.fit_intercept else np.zeros(n_models)
        return list(zip(unmask(self.coef_, "coef_").astype(np.float64), levels.tolist(), strict=True))


def _attributes(models: list[Model], classes: np.ndarray, scale: float, dtype: type) -> dict[str, Any]:
    """Return the fitted attributes; classes whose fit has not begun have no coefficients."""
    count = len(classes) if len(classes) > 2 else 1
    coefs: np.ndarray = np.zeros((count, max(model.n_columns for model in models)), dtype)
    levels, gaps, steps = np.zeros(count), np.full(count, np.inf), np.ones(count, int)
    for number, model in enumerate(models):
        if len(model.coef):
            coefs[number], levels[number] = model.coef, model.intercept
            gaps[number], steps[number] = scale * model.certified_gap, max(1, model.n_iter)
    return {"classes_": classes, "coef_": coefs, "intercept_": levels, "dual_gap_": gaps, "n_iter_": steps}
