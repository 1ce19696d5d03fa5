"""Dynamic schedules as objects: which parameters are updated next, and which together."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from numbers import Real
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from schmp_estimators.core.inputs.validation import COUNT, NOT_NEGATIVE, keep
from schmp_estimators.core.schedules.dynamic_regression import DynamicRegressionSchedule
from schmp_estimators.core.schedules.samplers import (
    PrioritySampler,
    RandomSampler,
    RoundRobinSampler,
    Sampler,
    SlicedSampler,
    Weight,
)
from schmp_estimators.core.typing import Named


def _described(kind: type[Schedule]) -> type[Schedule]:
    """Complete entries of a docstring that are names alone by those of `Schedule`."""
    known = dict(re.findall(r"^    ((\w+) : .*\n(?:        .*\n)+)", Schedule.__doc__ or "", re.M))
    defaults = inspect.signature(kind).parameters
    for text, name in known.items():
        first, rest = text.split(", default=", 1)
        rest = rest.partition("\n")[2]
        entry = f"\n    {first}, default={defaults[name].default!r}\n{rest}"
        kind.__doc__ = (kind.__doc__ or "").replace(f"\n    {name}\n", entry)
    return kind


class Schedule(BaseEstimator, ABC):  # type: ignore[misc]
    r"""Base class of dynamic schedules, which choose the parameters that are updated next.

    A round updates several parameters of a model, starting from the same values.  A schedule draws
    candidates and, with `max_correlation`, keeps those that depend little on each other.
    `Priority`, `Random` and `RoundRobin` draw in different ways.  A schedule of your own is a
    subclass with a method `sampler`.  If it has an ``__init__``, this must call the one of
    `Schedule`.  The algorithm is ``scheduleDynRegr`` of Kim et al., EuroSys 2016, section 4.1.

    Parameters
    ----------
    n_parallel : int or None, default=None
        Maximum number of parameters that are updated together in one round.  If None, it is 64 at
        first, and is halved whenever the objective has risen between two gradients of all
        parameters; the fit then goes back to the earlier point.
    max_correlation : float or None, default=None
        Largest absolute correlation of two parameters that are updated together, below 1.  If None,
        correlations are not checked.
    oversample : float, default=2.0
        Number of candidates that are drawn for each parameter of a round, at least 1.  This is
        L' / L of Lee et al., NIPS 2014, section 3.3.  It needs `max_correlation`.
    correlation_rows : int or None, default=None
        Number of rows from which correlations are estimated, as in Kim et al., EuroSys 2016,
        section 4.1, footnote 2.  Rows are drawn anew for each check.  The notes of `Priority` bound
        the error.  If None, all rows are used.  It needs `max_correlation`.
    refresh : int, "auto" or None, default="auto"
        Number of rounds between two gradients of all parameters.  Such a gradient gives the
        objective and the duality gap, and sets all priorities anew unless `refresh` is None.
        "auto" means the number of rounds that update half of the parameters, but at least 10.
        None, as in the papers, means no fixed number.  A gap is then computed when one pass of
        updates lowers the objective by less than the tolerance.
    pipeline_depth : int, default=1
        Number of rounds that run at the same time, as in `Overlapping`.
    n_schedulers : int, default=1
        Number of schedulers that take turns, one round each.  Scheduler s draws only from the
        parameters j with ``j % n_schedulers == s``, with its own priorities and random numbers.
        With `max_correlation`, a scheduler also compares its candidates with parameters that other
        schedulers are updating.
    moved_above : float or None, default=None
        If a number, the attribute ``moves_`` of estimators has two arrays.  ``n_updates`` counts
        the updates of each parameter.  ``last_moved`` is the number of passes after which each
        parameter last changed by more than `moved_above`.
    """

    n_parallel: int | None
    max_correlation: float | None
    oversample: float
    correlation_rows: int | None
    refresh: int | str | None
    pipeline_depth: int
    n_schedulers: int
    moved_above: float | None

    #: Whether the sampler draws at random.
    is_random = True

    _parameter_constraints: ClassVar[Named] = {
        "n_parallel": [COUNT, None],
        "max_correlation": [Interval(Real, 0, 1, closed="left"), None],
        "oversample": [Interval(Real, 1, None, closed="left")],
        "correlation_rows": [COUNT, None],
        "weight": [callable, None],
        "refresh": [COUNT, StrOptions({"auto"}), None],
        "pipeline_depth": [COUNT],
        "n_schedulers": [COUNT],
        "moved_above": [NOT_NEGATIVE, None],
    }

    def __init__(
        self,
        n_parallel: int | None = None,
        *,
        max_correlation: float | None = None,
        oversample: float = 2.0,
        correlation_rows: int | None = None,
        refresh: int | str | None = "auto",
        pipeline_depth: int = 1,
        n_schedulers: int = 1,
        moved_above: float | None = None,
    ) -> None:
        keep(self, locals())

    @property
    def uses_random_state(self) -> bool:
        """Whether anything is drawn at random."""
        return self.is_random or self.correlation_rows is not None

    @abstractmethod
    def sampler(self, n_parameters: int, random: np.random.Generator) -> Sampler:
        """Return a `Sampler` of `n_parameters` parameters."""

    def check(self) -> None:
        """Raise ValueError if a parameter is invalid, or would have no effect."""
        self._validate_params()
        for name, default in (("oversample", 2.0), ("correlation_rows", None)):
            value = getattr(self, name)
            if self.max_correlation is None and value != default:
                raise ValueError(
                    f"{name}={value!r} of {type(self).__name__} needs max_correlation: without it "
                    "nothing is checked"
                )

    def start(
        self, n_parameters: int, random_state: int | np.random.Generator | None = None
    ) -> DynamicRegressionSchedule:
        """Return a running schedule, which chooses the rounds of one fit.

        Parameters
        ----------
        n_parameters : int
            Number of parameters, at least 1.
        random_state : int or numpy.random.Generator, optional
            Source of random numbers.

        Returns
        -------
        DynamicRegressionSchedule
            Call ``next_round`` for each job, and ``answer`` when the job has been aggregated.  Pass
            the changes of updated parameters to ``record``.  If the changes of all parameters are
            known, pass them to ``refresh``.  Between rounds, ``save`` returns the state as a dict,
            and ``restore`` continues from it.

        Raises
        ------
        ValueError
            If a parameter is invalid, or would have no effect.
        """
        self.check()
        if n_parameters not in COUNT:
            raise ValueError(f"n_parameters={n_parameters!r} must be an integer of at least 1")
        random = np.random.default_rng(random_state)
        key = 0 if self.correlation_rows is None else int(random.integers(2**63))
        sampler = self._sampler(int(n_parameters), random)
        return DynamicRegressionSchedule(self, sampler, int(n_parameters), key)

    def _sampler(self, n_parameters: int, random: np.random.Generator) -> Sampler:
        n_schedulers = min(self.n_schedulers, n_parameters)
        if n_schedulers == 1:
            return self.sampler(n_parameters, random)
        # not by `spawn`, which some generators refuse
        seeds = random.integers(2**63, size=(n_schedulers, 2))
        sizes = [len(range(number, n_parameters, n_schedulers)) for number in range(n_schedulers)]
        slices = zip(sizes, seeds, strict=True)
        return SlicedSampler(
            [self.sampler(size, np.random.default_rng(seed)) for size, seed in slices]
        )


@_described
class Priority(Schedule):
    r"""Schedule that prefers parameters whose last change was large, as STRADS does [1]_ [2]_.

    The probability that a parameter is drawn grows with δ².  After an update of the parameter, δ is
    its change.  After each gradient of all parameters, unless `refresh` is None, δ is the change
    that an update would then make.  At first, δ is 1.  A tenth of the draws is uniform.

    Parameters
    ----------
    n_parallel
    max_correlation
    oversample
    correlation_rows
    weight : callable, default=None
        Function that replaces δ².  It gets an array of changes, and returns an array of the same
        shape with numbers ≥ 0.  If None, changes are squared.
    refresh
    pipeline_depth
    n_schedulers
    moved_above

    See Also
    --------
    Random : Draws parameters uniformly.
    RoundRobin : Takes parameters in turn.

    Notes
    -----
    With `correlation_rows` = m, the correlation of columns j and k is estimated by the mean of
    :math:`z_{ij} z_{ik}` over m rows i, drawn with replacement.  Here z are the columns,
    standardised by their means and standard deviations over all rows, so the estimate is unbiased.
    If no :math:`|z|` exceeds B, the standard deviation of the estimate is at most
    :math:`B / \sqrt{m}`.  By Hoeffding's inequality, its error is then larger than t with a
    probability of at most :math:`2 \exp(-m t^2 / 2 B^4)`.

    References
    ----------
    .. [1] S. Lee, J. K. Kim, X. Zheng, Q. Ho, G. A. Gibson, E. P. Xing, "On model parallelization
       and scheduling strategies for distributed machine learning", NIPS 2014, section 3.3.
    .. [2] J. K. Kim, Q. Ho, S. Lee, X. Zheng, W. Dai, G. A. Gibson, E. P. Xing, "STRADS: a
       distributed framework for scheduled model parallel machine learning", EuroSys 2016, section
       4.1.

    Examples
    --------
    There are four independent pairs of equal parameters.  A round takes at most one of each pair:

    >>> import numpy as np
    >>> from schmp_estimators import schmp
    >>> correlation = np.kron(np.eye(4), np.ones((2, 2)))
    >>> schedule = schmp.Priority(n_parallel=4).start(8, random_state=0)
    >>> chosen, check = schedule.next_round()
    >>> len(chosen)  # nothing has been checked yet
    0
    >>> schedule.answer(check, correlation[np.ix_(check.candidates, check.both)])
    >>> chosen, check = schedule.next_round()
    >>> pairs = chosen // 2
    >>> len(pairs) == len(set(pairs.tolist())) > 1
    True
    """

    def __init__(
        self,
        n_parallel: int | None = None,
        *,
        max_correlation: float | None = 0.1,
        oversample: float = 2.0,
        correlation_rows: int | None = None,
        weight: Weight | None = None,
        refresh: int | str | None = "auto",
        pipeline_depth: int = 1,
        n_schedulers: int = 1,
        moved_above: float | None = None,
    ) -> None:
        keep(self, locals())

    def sampler(self, n_parameters: int, random: np.random.Generator) -> Sampler:
        """Return a sampler of parameters."""
        return PrioritySampler(n_parameters, random, weight=self.weight or np.square)


@_described
class Random(Schedule):
    """Schedule that draws parameters uniformly, as Shotgun does [1]_.

    Parameters
    ----------
    n_parallel
    max_correlation
    oversample
    correlation_rows
    refresh
    pipeline_depth
    n_schedulers
    moved_above

    See Also
    --------
    Priority : Prefers parameters whose last change was large.

    References
    ----------
    .. [1] J. K. Bradley, A. Kyrola, D. Bickson, C. Guestrin, "Parallel coordinate descent for
       L1-regularized loss minimization", ICML 2011, section 3.

    Examples
    --------
    >>> from schmp_estimators import PrioritizedLasso, schmp
    >>> PrioritizedLasso(schedule=schmp.Random(n_parallel=8)).get_params()["schedule__n_parallel"]
    8
    """

    def sampler(self, n_parameters: int, random: np.random.Generator) -> Sampler:
        """Return a sampler of parameters."""
        return RandomSampler(n_parameters, random)


@_described
class RoundRobin(Schedule):
    """Schedule that takes parameters in turn: "Lasso-RR" of Kim et al., EuroSys 2016, section 5.

    Parameters
    ----------
    n_parallel
    max_correlation
    oversample
    correlation_rows
    refresh
    pipeline_depth
    n_schedulers
    moved_above

    See Also
    --------
    Priority : Prefers parameters whose last change was large.

    Examples
    --------
    >>> from schmp_estimators import schmp
    >>> schedule = schmp.RoundRobin(n_parallel=2).start(5)
    >>> for _ in range(3):
    ...     chosen, check = schedule.next_round()
    ...     schedule.answer(check, None)
    ...     print(chosen)
    [0 1]
    [2 3]
    [4 0]
    """

    is_random = False

    def sampler(self, n_parameters: int, random: np.random.Generator) -> Sampler:
        """Return a sampler of parameters."""
        return RoundRobinSampler(n_parameters)


#: The schedules that a name stands for.
SCHEDULES: Mapping[str, type[Schedule]] = {
    "priority": Priority,
    "random": Random,
    "round_robin": RoundRobin,
}
