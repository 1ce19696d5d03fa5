"""The bases of estimators.

They have callbacks, progress, and the restoring of failed fits.
"""

import copy
import logging
import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from time import perf_counter
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.callback import CallbackSupportMixin, ProgressBar
from sklearn.utils import check_random_state

from schmp_estimators.core.io.files import located
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.progress import FitBar, Progress, told_of_compiling
from schmp_estimators.core.typing import Named

logger = logging.getLogger(__name__)

#: Gets the records of a fit, and says whether the fit ends with the last one.
Ending = Callable[[Sequence[Named]], bool]


def make_seed(random_state: Any) -> int:
    """Return a seed for addressed random numbers.

    A generator is advanced; an int always gives the same seed.
    """
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def has_settled(name: str, tol: float, records: Sequence[Named]) -> bool:
    """Return whether a value has changed by at most `tol`, relatively, between two records.

    They are the last two records that have it.

    If the last record does not have it, the result is False.
    """
    if name not in records[-1]:
        return False
    values = [one[name] for one in records if name in one][-2:]
    return len(values) == 2 and abs(values[1] - values[0]) <= tol * abs(values[0])


def after(known: Sequence[Named], ends: Ending, records: Sequence[Named]) -> bool:
    """Return whether a fit ends with the last of some records, which follow known ones."""
    return ends([*known, *records])


def without_itself(snapshot: Callable[[], Named]) -> Callable[[], Named]:
    """Let copies that are made during a fit not refer to it.

    The copies may be kept or pickled.
    """
    return lambda: {**snapshot(), "_snapshot": None}


@contextmanager
def undone_on_error(estimator: Any) -> Iterator[None]:
    """If a fit fails or is interrupted, restore all fitted attributes as they were.

    New ones are removed.
    """
    before = {name: value for name, value in vars(estimator).items() if name.endswith("_")}
    try:
        yield
    except BaseException:
        for name in [name for name in vars(estimator) if name.endswith("_")]:
            delattr(estimator, name)
        estimator.__dict__.update(before)
        raise
    finally:
        estimator.__dict__.pop("_snapshot", None)


class _Unheard:
    """A task of a fit to which no callback listens, and all its parts."""

    def subcontext(self, **_: Any) -> Self:
        """Return the task of a part."""
        return self

    call_on_fit_task_begin = subcontext
    propagate_callback_context = nullcontext

    def call_on_fit_task_end(self, **_: Any) -> bool:
        """Return that the fit goes on."""
        return False


class FollowedEstimator(CallbackSupportMixin):  # type: ignore[misc]  # scikit-learn has no types
    """Base of estimators whose fits can be followed.

    They have callbacks, a progress bar, and the records in `history_`.

    Subclasses have the parameter `verbose`.  `_objective` is the name of their objective in the
    records.  During a fit they set `_snapshot`, a function that returns the fitted attributes as
    they are now.
    """

    _objective: str
    checkpoint: Any
    random_state: Any
    #: makes the progress bar
    _bar: ClassVar[type] = ProgressBar
    verbose: int

    history_: list[Named]
    _snapshot: Any

    @property
    def _is_heard(self) -> bool:
        """Whether a callback listens to parts of a fit."""
        return bool(getattr(self, "_skl_callbacks", ())) or hasattr(self, "_parent_callback_ctx")

    def _task(self, most: int | None) -> Any:
        """Return the task of the whole fit, which has at most so many parts."""
        return self._init_callback_context(max_subtasks=most) if self._is_heard else _Unheard()

    def _as_if_fitted(self) -> Any:
        """Return a copy of this estimator as if the fit ended now.

        Scikit-learn passes such a copy to callbacks that ask for a ``fitted_estimator``.  Here it
        is made on demand, because it takes time, and some callbacks need it only now and then.
        """
        fitted = copy.copy(self)
        for name, value in self._snapshot().items():
            setattr(fitted, name, value)
        return fitted

    def _check_checkpoint(self, earlier: Any, without: str, *, draws: bool = True) -> None:
        """Raise ValueError if a checkpoint could not recognise this fit.

        `draws` says whether the fit draws random numbers.

        `without` names what a checkpoint cannot be combined with.
        """
        if self.checkpoint is None:
            return
        located(self.checkpoint)  # raises if it is no path or URL
        if draws and not isinstance(self.random_state, numbers.Integral):
            raise ValueError(
                "checkpoint needs an int as random_state, to recognise its own fit; got "
                f"{self.random_state!r}"
            )
        if earlier is not None:
            raise ValueError(
                f"checkpoint needs a fit that starts anew; set checkpoint=None for {without}"
            )

    @contextmanager
    def _progress_bar(self) -> Iterator[None]:
        """Show a progress bar during a fit, and report compiling.

        The bar is shown if `verbose` asks for it and no other bar is shown.
        """
        with (
            self._bar_shown() as bar,
            told_of_compiling(type(self).__name__, getattr(bar, "say", None)),
        ):
            yield

    @contextmanager
    def _bar_shown(self) -> Iterator[Any]:
        callbacks = getattr(self, "_skl_callbacks", [])
        wanted = self.verbose and not any(
            isinstance(callback, ProgressBar) for callback in callbacks
        )
        if not wanted or hasattr(self, "_parent_callback_ctx"):
            yield None
            return
        if find_spec("rich") is None:
            logger.warning(
                "verbose=%r shows a progress bar with the package rich: pip install rich",
                self.verbose,
            )
            yield None
            return
        bar = self._bar()
        self.set_callbacks(*callbacks, bar)
        try:
            yield bar
        finally:
            self.set_callbacks(*callbacks)


class SweepingEstimator(FollowedEstimator):
    """Base of estimators that fit by sweeps of a program.

    They have the parameters `max_iter`, `tol`, `checkpoint` and `random_state`.
    """

    _bar = FitBar
    #: what the log counts
    _step = "sweep"
    max_iter: int
    tol: float

    n_iter_: Any

    @property
    def _n_sweeps(self) -> int:
        """Number of sweeps of the fit at most."""
        return self.max_iter

    def _follow(
        self,
        run: Iterable[Named],
        X: Any,
        y: Any,
        *,
        place: Place,
        first: int,
        n_samples: int,
        snapshot: Callable[[], Named],
        seconds: float = 0.0,
        took: Callable[[], float | None] = lambda: None,
    ) -> Iterator[int]:
        """Do the sweeps of a run, write `history_`, and call callbacks.

        The run stops when a callback or `tol` ends the fit.

        Parameters
        ----------
        run : iterable of dict
            The records of sweeps from `first` on, each made when it is asked for.
        X, y : array-like
            The input, for callbacks.
        place : Place
            The place of the run, which gets events for the dashboard.
        first : int
            Number of the first sweep.
        n_samples : int
            Data samples that one sweep operates upon.
        snapshot : callable
            Returns the fitted attributes as they are after the current sweep.
        seconds : float
            If `history_` is empty: what those sweeps took whose records are ready when `run`
            begins.
        took : callable
            Returns the seconds of the current sweep, or None if they are those that the fit waited
            for its record.

        Yields
        ------
        int
            Number of sweeps done, after each of them.
        """
        context = self._task(max(0, self._n_sweeps - first))
        data: Named = {"estimator": self, "X": X, "y": y}
        context.call_on_fit_task_begin(**data)
        records = iter(run)
        seconds = self.history_[-1]["seconds"] if self.history_ else seconds
        self._snapshot = snapshot = without_itself(snapshot)
        progress = Progress(self, place.tell, step=self._step, every=10, total=self._n_sweeps)
        # A checkpoint may belong to a fit that `tol` had ended.
        last = first if self.history_ and self._has_converged() else self._n_sweeps
        for done in range(first + 1, last + 1):
            task = context.subcontext(task_name="sweep").call_on_fit_task_begin(**data)
            began = perf_counter()
            record = next(records)
            waited = perf_counter() - began
            seconds += took() or waited
            self.history_.append(
                {"iterations": done, "seconds": seconds, "samples": done * n_samples, **record}
            )
            logger.debug("%s: %s", type(self).__name__, self.history_[-1])
            self.n_iter_ = done
            yield done
            stop = task.call_on_fit_task_end(**data, reconstruction_attributes=snapshot)
            progress.record()
            if stop or self._has_converged():
                break
        progress.end()
        context.call_on_fit_task_end(**data, reconstruction_attributes=snapshot)

    def _may_ask(self, sweep: int, every: int) -> bool:
        """Return whether the fit may need more than records, or end for other reasons than `tol`.

        Parameters
        ----------
        sweep : int
            Number of the sweep.
        every : int
            Number of sweeps between two checkpoints.
        """
        followed = hasattr(self, "_parent_callback_ctx") or any(
            not isinstance(callback, ProgressBar)
            for callback in getattr(self, "_skl_callbacks", [])
        )
        done = sweep + 1
        kept = self.checkpoint is not None and done % every == 0
        return followed or done == self._n_sweeps or kept

    def _has_converged(self) -> bool:
        """Return whether the objective has changed by at most `tol`, relatively.

        The last two evaluations are compared.
        """
        if not self.tol or not self._is_comparable(self.history_[-1]):
            return False
        return self._ending()([one for one in self.history_ if self._is_comparable(one)])

    def _ending(self) -> Ending:
        """Return a function that gets records and says whether `tol` ends the fit there.

        It can be pickled.
        """
        return partial(has_settled, self._objective, self.tol)

    def _ends(self) -> Ending | None:
        """Return `_ending` for records after those of `history_`, if all are comparable.

        Return None if `tol` is 0.
        """
        return partial(after, list(self.history_), self._ending()) if self.tol else None

    def _is_comparable(self, record: Named) -> bool:
        """Return whether `tol` may compare the objective of this record with that of others."""
        return True
