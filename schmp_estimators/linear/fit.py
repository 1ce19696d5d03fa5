"""A fit to a problem: one target or class after the other, records, checkpoints, attributes.

A checkpoint contains the state of the coroutine, the state of each partition, the models of
finished targets, and the history.
"""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from schmp_estimators.core.engine.dynamic import Save, run_coroutine
from schmp_estimators.core.estimators import without_itself
from schmp_estimators.core.inputs.masks import unmask
from schmp_estimators.core.io.checkpoint import Checkpoint, check_sweeps, identity_of, recognised
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.progress import Progress
from schmp_estimators.core.typing import Array, Function, Named
from schmp_estimators.linear.contracts import declared, is_joint
from schmp_estimators.linear.losses.base import total_of
from schmp_estimators.linear.penalties.base import Penalty, fields_of, of_strength
from schmp_estimators.linear.penalties.choose import Grid
from schmp_estimators.linear.problem import Problem
from schmp_estimators.linear.programs.choose import (
    AT_HAND,
    make_program,
    schedule_of,
)
from schmp_estimators.linear.programs.input import SavedPartition, identify
from schmp_estimators.linear.programs.solution import Solution, record_of
from schmp_estimators.linear.targets import Targets, by_class, of_classes

logger = logging.getLogger(__name__)


class Fit:
    """A fit in progress; for the engine, rounds with callbacks.

    A task "step" begins with the first round and ends with a duality gap.

    Parameters
    ----------
    estimator : SparseModel
        Gets `history_` and `solver_` while the fit runs, and in the end all attributes.
    problem : Problem
    targets : Targets
    """

    def __init__(self, estimator: Any, problem: Problem, targets: Targets) -> None:
        self._asked = estimator
        self._problem = problem
        self._targets = targets
        self._loss = of_classes(estimator._loss(), targets.classes)
        name = estimator._strength
        ratio = estimator.l1_ratio
        unit = targets.unit
        value = float(getattr(estimator, name))
        grid = Grid(name, None)
        if estimator.penalty_factors is not None:  # raises if it vanishes or overflows
            estimator._penalty(grid.strength(value, 1.0, unit), ratio)
        #: the penalty of strength one, its strength, and the weight of all rows
        self._unit = problem.in_units(estimator._penalty(1.0, ratio))
        self._total = total_of(targets.weights, problem.extent.n_rows)
        self._strength = grid.strength(value, self._total, unit)
        self._in_units = partial(grid.in_units, values=value, unit=unit)
        self._dtype = np.float32 if problem.extent.dtype == np.float32 else np.float64
        #: solutions; the last may be a program that is under way
        self._models = list[Any]()
        #: the task of the present step, and whether a callback has ended the fit
        self._step: Any = None
        self._stopped = False
        self.collect = problem.rounds.collect

    def run(self, place: Place, X: Any, y: Any) -> list[Solution]:
        """Fit all targets or classes; returns their solutions.  X and y are for callbacks."""
        asked = self._asked
        asked.history_ = []
        asked._snapshot = without_itself(self.attributes)
        with asked._followed(X, y, asked._snapshot) as (self._task, self._data):
            self._progress = Progress(asked, place.tell, step="step", every=1)
            starts = self._starts()
            solved = self._at_hand(starts)
            if solved is None:
                self._by_rounds(starts)
            for solution, record in solved or []:
                self._models.append(solution)
                if self._report(record):
                    break
            self._progress.end()
        for one in self._models:
            if one.fell_short and not self._stopped:
                given = asked._what, asked, self._loss, one.certified, one.n_iter
                warn_of_gap(*given, one.gap / one.total_weight, one.tolerance / one.total_weight)
        vars(asked).update(self.attributes())
        return self._models

    def submit(self, function: Function, job: Any, *, is_sum: bool = False) -> Any:
        """Apply function(partition, job) to every partition, as part of a step."""
        self._begin()
        return self._problem.rounds.submit(function, job, is_sum=is_sum)

    def _begin(self) -> None:
        """Begin a step if none has begun."""
        if self._step is None:
            step = self._task.subcontext(task_name="step")
            self._step = step.call_on_fit_task_begin(**self._data)

    def _report(self, record: Named) -> bool:
        """End the step with its record; returns whether the fit should end."""
        self._begin()
        asked = self._asked
        asked.history_.append(record)
        logger.debug("%s: %s", type(asked).__name__, record)
        step = self._step
        self._step = None
        self._stopped |= bool(
            step.call_on_fit_task_end(**self._data, reconstruction_attributes=asked._snapshot)
        )
        self._progress.record()
        return self._stopped

    def _starts(self) -> list[tuple[Array, Any]]:
        """Return coefficients and intercepts to start from; empty arrays stand for zeros."""
        asked = self._asked
        targets = self._targets
        shape = (
            len(targets.jobs) * declared(self._loss, "n_outputs"),
            self._problem.extent.n_columns,
        )
        known = asked.coef_ if asked.warm_start and hasattr(asked, "coef_") else np.empty(0)
        coef = np.atleast_2d(unmask(known, "coef_"))
        if coef.shape != shape:
            return [(np.empty(0), 0.0)] * len(targets.jobs)
        coef, levels = coef.astype(np.float64), np.zeros(len(coef))
        if asked.fit_intercept:
            levels += getattr(asked, "intercept_", 0.0) - targets.shifts
        if is_joint(self._loss):
            return [(coef, levels)]
        return list(zip(coef, levels.tolist(), strict=True))

    def _at_hand(
        self, starts: Sequence[tuple[Array, float]]
    ) -> list[tuple[Solution, dict[str, float]]] | None:
        """Return solutions and records of all targets, found in one call each, if possible."""
        asked = self._asked
        problem = self._problem
        solved = []
        labels = self._targets.labels
        asked.solver_, found = problem.at_hand(len(starts), self._loss, self._unit, labels)
        if found is None:
            return None
        for target, (coef, level) in enumerate(starts):
            began = perf_counter()
            tolerance = asked.tol * found.square(target)
            start = coef if len(coef) else np.zeros(len(found.means))
            away = level + start @ found.means
            points = found.fit(target, self._strength, tolerance, asked.max_iter, start, away)
            one = found.rounded(target, points, tolerance, self._dtype)
            solved.append((one, record_of(one, int(points.work[0]), perf_counter() - began)))
        return solved if found.at_hand or not any(one.fell_short for one, _ in solved) else None

    def _by_rounds(self, starts: Sequence[tuple[Array, float]]) -> None:
        """Solve for one target or class after the other, until a callback ends the fit.

        Targets share the Gram matrix of the working set.
        """
        asked = self._asked
        problem = self._problem
        models = self._models
        asked.solver_ = "rounds" if asked.solver_ in AT_HAND else asked.solver_
        problem.begin()
        penalty = self._of_part(1.0)
        checkpoint, resumed = self._resumed(penalty)
        given = asked, self._loss, penalty, problem.extent, problem.n_partitions
        random = check_random_state(asked.random_state)
        program: Any = None
        for number, ((coef, level), job) in enumerate(zip(starts, self._targets.jobs, strict=True)):
            start: Named = {"coef": coef, "level": level, "dtype": self._dtype}
            previous = program
            program = make_program(*given, random, **start)
            if not penalty.certified and asked.schedule == "resolve":
                program.approach = self._of_part
            if number < resumed.target:
                models.append(Solution(**resumed.finished[number]))
                continue
            state = resumed.state if number == resumed.target else None
            if state is None:
                if previous is not None:
                    program.follow(previous)
                if job is not None:
                    problem.do(job)
            save = None if checkpoint is None else partial(self._save, checkpoint, models[:])
            models.append(program)
            run_coroutine(program, self, state, report=self._report, save=save)
            models[-1] = program.solution()
            problem.tell_of(program.design.dropped)
            if self._stopped:
                return

    def _of_part(self, part: float) -> Any:
        """Return the penalty of `part` times the strength."""
        return of_strength(self._unit, part * self._strength, self._total)

    def attributes(self) -> Named:
        """Return the fitted attributes; a fit that has not begun has no coefficients."""
        targets = self._targets
        count = len(self._targets.jobs)
        begun = [one if isinstance(one, Solution) else one.solution() for one in self._models]
        missing = count - len(begun)
        found = [by_class(one.coef[None], np.array([one.intercept])) for one in begun]
        found += [(np.zeros((1, 1, begun[0].n_columns)), np.zeros((1, 1)))] * missing
        coefs, levels = (np.concatenate(part, axis=1)[0] for part in zip(*found, strict=True))
        known = [self._in_units(one.certified_gap, total=one.total_weight) for one in begun]
        gaps = np.array(known + [np.inf] * missing)
        steps = np.array([max(1, one.n_iter) for one in begun] + [1] * missing)
        values = {
            "coef_": coefs.astype(self._dtype),
            "intercept_": levels + targets.shifts,
            "dual_gap_": gaps,
            "n_iter_": steps,
        }
        if not all(one.certified for one in begun):
            values |= {"dual_gap_": np.full(count, np.nan), "stationarity_": gaps}
        if targets.classes is not None:
            values["classes_"] = targets.classes
        elif count > 1:
            values["n_iter_"] = steps.tolist()
        else:
            values = {name: one[0] if one.ndim > 1 else one.item() for name, one in values.items()}
        if moves := [one.moves for one in begun if one.moves is not None]:
            values["moves_"] = moves[0] if count == 1 else moves
        return values

    def _resumed(self, penalty: Penalty) -> tuple[Checkpoint | None, Resumed]:
        """Return the checkpoint, if there is one, and what it holds; restore partitions."""
        asked = self._asked
        problem = self._problem
        if asked.checkpoint is None:
            return None, Resumed()
        rows, digests = map(list, zip(*problem.do(identify), strict=True))
        most = int(asked.max_iter)
        # a finished target is not continued, so with several targets max_iter must be the same
        alike = most if len(self._targets.jobs) > 1 else None
        identity = {**_identity(asked, problem, penalty), "max_iter": alike, "rows": rows}
        checkpoint = Checkpoint(asked.checkpoint, identity_of(asked, digests, **identity))

        def go_on(found: Resumed) -> Resumed:
            check_sweeps(checkpoint.url, found.state["work"]["n_iter"], most)
            logger.info("going on after certificate %d from %s", len(found.history), checkpoint.url)
            problem.rounds.restore(found.partitions)
            return found

        found = checkpoint.read(go_on) or Resumed()
        asked.history_ = list(found.history)
        return checkpoint, found

    def _save(self, checkpoint: Checkpoint, finished: Sequence[Solution], saved: Save) -> None:
        history = self._asked.history_
        if saved.last or len(history) % self._asked.checkpoint_every == 0:
            before = [dict(vars(one)) for one in finished]
            partitions = self._problem.rounds.save()
            values = Resumed(len(finished), before, saved.state, partitions, history)
            checkpoint.write(len(history), values)


class Resumed(NamedTuple):
    """The state from which a fit continues."""

    #: the current target or class, −1 if the fit begins
    target: int = -1
    #: fields of the solutions of finished targets
    finished: Sequence[Mapping[str, Any]] = ()
    state: Any = None
    partitions: Sequence[SavedPartition] = ()
    history: Sequence[dict[str, float]] = ()


def warn_of_gap(
    what: str,
    asked: Any,
    loss: Any,
    certified: bool,
    n_iter: int,
    gap: float,
    tolerance: float,
) -> None:
    """Warn of a fit whose gap is above its tolerance; `asked` has `max_iter` and `schedule`."""
    most = asked.max_iter
    reason = f"stopped after max_iter={most}" if n_iter >= most else f"ended in step {n_iter}"
    name = "a duality gap" if certified else "an estimated possible decrease (stationarity_)"
    slower = ""
    if asked.schedule != "resolve":
        slower = "; with fewer updates at a time (n_parallel) random schedules do not diverge"
    warnings.warn(
        f"{what} {reason} with {name} of {gap:.3g}, above the tolerance of {tolerance:.3g}. "
        f"Increase max_iter or tol, or scale the columns of X{slower}." + declared(loss, "remedy"),
        ConvergenceWarning,
        stacklevel=3,
    )


def _identity(estimator: Any, problem: Any, penalty: Penalty) -> Named:
    """Return what the result depends on besides data: parameters, and the penalty."""
    used = {"alpha", "C", "loss", "l1_ratio", "positive", "fit_intercept", "tol"}
    used |= {"missing_values", "standardize"}
    named = {
        name: repr(value)
        for name, value in estimator.get_params(deep=False).items()
        if name in used
    }
    named |= _identity_of_schedule(estimator)
    factors = estimator._penalty(1.0, 1.0).strengths
    for name, values in {"penalty": fields_of(penalty), "penalty_factors": [factors]}.items():
        whole = b"".join(np.asarray(value, np.float64).tobytes() for value in values)
        named[name] = hashlib.sha256(whole).hexdigest()
    return {**named, "dtype": str(problem.extent.dtype)}


def _identity_of_schedule(estimator: Any) -> Named:
    if estimator.schedule == "resolve":
        return {"schedule": "resolve"}
    schedule = schedule_of(estimator.schedule)
    seed = {"random_state": repr(estimator.random_state)} if schedule.uses_random_state else {}
    given = schedule.get_params(deep=False).items()
    known = {f"schedule {name}": recognised(value) for name, value in given}
    return {"schedule": type(schedule).__name__, **seed, **known}
