"""The bases of all sparse linear models.

They have the parameters, what callbacks see, and the fit with a given penalty.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from sklearn.base import _fit_context
from sklearn.callback import with_callbacks

from schmp_estimators.core.estimators import FollowedEstimator, undone_on_error
from schmp_estimators.core.inputs.validation import entries_of, is_dask
from schmp_estimators.core.places.place import choose_place, retry
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.core.progress import FitBar
from schmp_estimators.core.typing import Named
from schmp_estimators.linear.fit import Fit
from schmp_estimators.linear.penalties.choose import choose_penalty, factors_of
from schmp_estimators.linear.predicting import LinearModel
from schmp_estimators.linear.problem import open_problem
from schmp_estimators.linear.programs.choose import schedule_of
from schmp_estimators.linear.samples import read_samples, reading
from schmp_estimators.linear.targets import find_targets
from schmp_estimators.linear.texts import check_values, described


class Penalised(FollowedEstimator, LinearModel):
    """Base of all estimators: a loss with a penalty."""

    #: Parameters that some classes do not have.
    positive = False
    class_weight: Any = None
    standardize = False
    #: whether columns may be constant, because the samples are a part of those of the user
    _of_part = False

    #: names of tasks on a cluster, and of the fit in warnings
    _name = "lasso"
    _what = "The fit"

    if TYPE_CHECKING:  # `keep` sets parameters, `described` what values they accept, and defaults

        def __getattr__(self, name: str) -> Any: ...

    def _validate_params(self) -> None:
        """Raise an error if parameters have invalid values, or cannot be combined."""
        defaults = self._defaults
        given = vars(self).items()
        changed = {
            name: value for name, value in given if name in defaults and value is not defaults[name]
        }
        check_values(self._parameter_constraints, changed, type(self).__name__)
        if self.class_weight is not None and not self._classifies:
            raise ValueError(
                f'class_weight={self.class_weight!r} needs a loss for classes, such as "logistic"; '
                "the weights of samples are sample_weight of fit"
            )

    def _penalty(self, strength: float, ratio: Any) -> Any:
        """Return the penalty of a strength for the columns of X, with an L1 ratio."""
        return choose_penalty(strength, ratio, factors_of(self), self.positive)

    @contextmanager
    def _followed(
        self, X: Any, y: Any, snapshot: Callable[[], Named], most: int | None = None
    ) -> Iterator[tuple[Any, Named]]:
        """Give the task of the whole fit, and what callbacks get; it has at most so many parts."""
        with self._progress_bar():
            context = self._task(most)
            data = {"estimator": self, "X": X, "y": y}
            context.call_on_fit_task_begin(**data)
            yield context, data
            context.call_on_fit_task_end(**data, reconstruction_attributes=snapshot)


class SparseModel(Penalised):
    """Base of estimators that fit a model with a given penalty."""

    _objective = "objective"
    _bar = FitBar
    #: name of the parameter for the strength of the penalty
    _strength = "alpha"

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    @described
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        y : array-like or Dask collection of shape (n_samples,) or (n_samples, n_targets)
            Responses, or class labels (numbers, strings or booleans).  Each target is fitted
            separately.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            If X, y or the weights are masked or not finite (except missing values of X), empty or
            of different lengths.  If weights are negative or all zero.  If the labels y are of one
            class only, or continuous.  If squares of X or y overflow or underflow.  If chunks of X
            have different numbers of columns.
        TypeError
        CheckpointMismatchError

        Warns
        -----
        ConvergenceWarning
        CheckpointWarning
        UserWarning
        """
        lazy = any(map(is_dask, (X, y, sample_weight)))
        work = math.inf if self.n_shards else 2e-7 * entries_of(X)
        chosen = choose_place(self.n_jobs, is_dask=lazy, label=f"schmp-{self._name}", work=work)

        def fit() -> None:
            samples = read_samples(self, X, y, sample_weight, place=place, **reading(self._loss()))
            targets = find_targets(self, samples)
            opened: Named = {"n_shards": self.n_shards, "name": self._name}
            with open_problem(self, samples, targets, place, **opened) as problem:
                Fit(self, problem, targets).run(place, X, y)

        with undone_on_error(self), chosen as place, one_blas_thread():
            retry(place, fit)
        return self

    def _validate_params(self) -> None:
        """See `Penalised`."""
        super()._validate_params()
        earlier = getattr(self, "coef_", None) if self.warm_start else None
        schedule = None if self.schedule == "resolve" else schedule_of(self.schedule)
        if schedule:
            schedule.check()
        draws = bool(schedule and schedule.uses_random_state)
        self._check_checkpoint(earlier, "warm_start", draws=draws)

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator.

        The parameters of a schedule object have names such as ``schedule__n_parallel``.

        Parameters
        ----------
        **params : dict
            Parameters by name.

        Returns
        -------
        self
            The estimator.

        Raises
        ------
        ValueError
            If a parameter does not exist.
        """
        schedule = params.get("schedule", self.schedule)
        nested = [name for name in params if name.startswith("schedule__")]
        if nested and isinstance(schedule, str):
            raise ValueError(
                f"{nested[0]}: schedule={schedule!r} is a name, which has no parameters; give an "
                "object, such as schedule=schmp.Priority()"
            )
        return super().set_params(**params)
