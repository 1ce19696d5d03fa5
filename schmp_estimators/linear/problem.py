"""Problems: the used rows of X, in this process or on workers, ready for solvers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from copy import copy
from functools import cache, partial
from itertools import compress
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import numpy as np

from schmp_estimators.core.engine.dynamic import Coroutine, PlaceOfRounds, apply_job, run_coroutine
from schmp_estimators.core.engine.rounds import Keeper, Piece, Rounds, make
from schmp_estimators.core.inputs.rows import Rows as Chunks
from schmp_estimators.core.inputs.rows import open_rows
from schmp_estimators.core.inputs.validation import is_dask
from schmp_estimators.core.places.place import Place, choose_place
from schmp_estimators.core.reduction import tree_merge, tree_sum
from schmp_estimators.core.typing import Array, Function
from schmp_estimators.linear.penalties.choose import labels_of
from schmp_estimators.linear.programs import input as parts
from schmp_estimators.linear.programs.centred import (
    Fetch,
    Rows,
    Summarise,
    Summary,
    centred_products,
    dense,
    fetch,
    joined,
)
from schmp_estimators.linear.programs.choose import AT_HAND, choose_solver, is_small, make_problem
from schmp_estimators.linear.programs.columns import Fill, Survey, codes, deviations, known
from schmp_estimators.linear.programs.folds import (
    Plan,
    SummariseGroups,
    Take,
    restore_fold,
    save_fold,
)
from schmp_estimators.linear.programs.homotopy import HomotopyProblem, ProblemAtHand
from schmp_estimators.linear.programs.input import Extent
from schmp_estimators.linear.programs.jobs import SumsError
from schmp_estimators.linear.programs.matrix import Floats, Indices, Storage, means_of
from schmp_estimators.linear.programs.missing import with_missing
from schmp_estimators.linear.programs.stored import as_matrix
from schmp_estimators.linear.samples import Samples, check_finite, check_length
from schmp_estimators.linear.targets import Targets, check_sizes


class Problem:
    """Row partitions of a problem, in this process or on workers; for a fold, with the rows that it is fitted to.

    Parameters
    ----------
    estimator : estimator
    place : Place
    pieces : callable
        Returns the partitions, or pieces that stand for them, when they are needed; the list is
        emptied.
    n_partitions : int
    rows : callable or None
        Returns all rows in dense form, if X is in memory; its argument is `fill`.
    size : Extent
        That of X.
    n_targets : int
    name : str
        What tasks are called on the dashboard.
    plan : Plan, optional
        The folds of a cross-validation.
    """

    def __init__(
        self,
        estimator: Any,
        place: Place,
        pieces: Callable[[], list[Any]],
        n_partitions: int,
        rows: Callable[[Any], Rows] | None,
        size: Extent,
        n_targets: int,
        name: str,
        plan: Plan | None = None,
    ) -> None:
        self._estimator = estimator
        self._name = name
        self._plan = plan
        self.n_partitions = n_partitions
        #: the size of the rows, that of all rows, and whether partitions are in this process
        self.extent = size
        self.whole_extent = size
        self.is_local = place.is_local

        # functions without a reference to this object, so that rows are freed with it at once
        @cache
        def made() -> list[Any]:
            given = pieces()  # each can be freed once it has been used
            return [make(given.pop(0)) for _ in range(n_partitions)]

        keeper = Keeper(parts.save_partition, parts.restore_partition)
        if plan is not None:
            keeper = Keeper(save_fold, restore_fold)
        #: the partitions as they are made, if they are in this process
        self._first = [Piece(lambda k: made()[k], (k,)) for k in range(n_partitions)]
        given = self._first if place.is_local else pieces()
        self.rounds = rounds = Rounds(place, given, name, keeper)

        def fetched(fill: Any) -> Rows:
            if place.is_local:
                return joined([fetch(one, fill) for one in made()])
            return joined(rounds.collect(rounds.submit(apply_job, Fetch(fill))))

        #: return all rows of X, made anew, or once for all folds
        self._dense = rows or fetched
        self._all_rows = cache(partial(self._dense, None))
        #: the summaries of their groups, and whether the user has been warned of columns that are
        #: left out
        self._all = SimpleNamespace(n_targets=n_targets, groups=None, told=False)
        #: of a fold: the numbers of the rows that are fitted and of those held out, the job that
        #: takes the former, and whether it has been done
        self.fitted = self.tested = np.empty(0, np.int64)
        self._take: Take | None = None
        self._taken = False
        #: whether this is a fold, and not all rows: their fit should have the bits of a fit without
        #: folds
        self._is_part = False
        #: number of the target, if it is one of several
        self.target: int | None = None
        #: what stands for missing values, if there can be any, and standard deviations, if they are
        #: asked for
        self.fill: Floats | None = None
        self._units: Floats | None = None

    def do(self, job: Any) -> list[Any]:
        """Apply one job to all partitions, and return their answers."""
        self.begin()
        return self._answers(job)

    def _answers(self, job: Any) -> list[Any]:
        rounds: PlaceOfRounds = self.rounds
        return rounds.collect(rounds.submit(apply_job, job))

    def begin(self) -> None:
        """Take the rows of a fold, unless this has been done."""
        if self._take is not None and not self._taken:
            self._taken = True
            self._answers(self._take)

    def run(self, program: Coroutine) -> None:
        """Run a coroutine to its end."""
        self.begin()
        run_coroutine(program, self.rounds)

    def tell_of(self, dropped: Indices) -> None:
        """Warn once of columns that are left out."""
        if len(dropped) and not self._all.told:
            self._all.told = True
            warnings.warn(
                f"Columns {_listed(dropped)} of X vary by less than the rounding of their values, and keep the "
                "coefficient 0. Subtract a value near their mean before they are rounded, or leave them out.",
                UserWarning,
                stacklevel=2,
            )

    def fold(self, number: int) -> Problem:
        """Return the problem with the rows that a fold is fitted to; the number after the last stands for all rows.

        In this process several folds may run at a time, in threads; on a cluster each replaces the
        one before.
        """
        assert self._plan is not None
        one = copy(self)
        size = self.whole_extent
        one.free()
        one.fitted, one.tested = self._plan.folds[number]
        one._take = self._plan.take(number)
        one._is_part = number < len(self._plan.folds) - 1
        one._learn()
        n_rows = len(one.fitted)
        one.extent = size._replace(n_rows=n_rows, stored=round(size.stored * n_rows / size.n_rows))
        return one

    def free(self) -> None:
        """Let go of the rows of a fold in this process, which have been saved, or will be taken."""
        if self.is_local:
            keeper = Keeper(save_fold, restore_fold)
            self.rounds = Rounds(Place(), self._first, self._name, keeper)

    def of_target(self, number: int) -> Problem:
        """Return the problem of one of several targets."""
        one = copy(self)
        one.target = number
        return one

    def learn(self, may_miss: bool) -> None:
        """Learn of the columns what the estimator asks for, and set its `fill_values_`.

        Raises
        ------
        ValueError
            If all values of a column are missing, or if it is constant and should be standardised.
        """
        plan = self._plan
        given = self._estimator
        self._may_miss = may_miss
        if given.missing_values is None and self.extent.dtype == np.int8:
            others, lowest, highest = tree_sum(self._answers(Survey(None, None, codes)))
            if lowest and highest and not others:
                warnings.warn(
                    "X holds int8 values from -1 to 2, which are taken as numbers. If they are genotypes, of which -1 "
                    "are missing, give missing_values=-1.",
                    UserWarning,
                    stacklevel=2,
                )
        if plan is None:
            self._learn()
        if may_miss:
            given.fill_values_ = (self if plan is None else self.fold(len(plan.folds) - 1)).fill

    def _learn(self) -> None:
        """Learn from the rows of this fold what stands for missing values, and how much columns vary."""
        take = self._take
        counts = None if take is None else take.train

        def ask(function: Function, fill: Any) -> Any:
            return tree_sum(self._answers(Survey(counts, fill, function)))

        if self._may_miss:
            total, n_rows, sums = ask(known, None)
            means = means_of(total, n_rows, *sums)
            nothing = np.isnan(means) & np.isfinite(sums[0])
            self._refuse(nothing, "have no value that is not missing", "missing_values")
            self.fill = np.nan_to_num(means)
            if take is None:
                self._answers(Fill(self.fill))
            else:
                self._take = take._replace(fill=self.fill)
        if self._estimator.standardize:
            found = deviations(ask, self.fill, parts.resolution(self.extent.dtype))
            constant = f"are constant in its {self.extent.n_rows} samples"
            self._refuse(found == 0.0, constant, "standardize")
            self._units = np.where(found > 0.0, found, 1.0)

    def _refuse(self, columns: Array, why: str, name: str) -> None:
        """Raise ValueError if there are such columns among all rows."""
        given = self._estimator
        if columns.any() and not (self._is_part or given._of_part):
            named = _listed(np.flatnonzero(columns), labels_of(given))
            why = f"{why} ({name}={getattr(given, name)!r})"
            raise ValueError(f"columns {named} of X {why}; leave them out")

    def in_units(self, penalty: Any) -> Any:
        """Return a penalty for the columns as they are, if they are standardised."""
        return penalty if self._units is None else penalty.of_columns(self._units)

    def held_out(self) -> tuple[Rows, Floats] | None:
        """Return the held-out rows and their weights in scores, if all rows are in this process."""
        if self._plan is None or not is_small(self.whole_extent):
            return None
        rows = self._rows(self.tested)
        weights = self._plan.weights
        return rows, weights[self.tested] if len(weights) else rows.weights

    def at_hand(
        self, n_fits: int, loss: Any, penalty: Any, labels: Sequence[int]
    ) -> tuple[str, ProblemAtHand | None]:
        """Return the solver of some fits, and the problem for it, if it is one of those `AT_HAND`; warn of columns.

        `penalty` is that of strength one; `labels` are the numbers of classes that are fitted, each
        against all others.  There is no such problem either if columns vary by little more than
        rounding.
        """
        solver = choose_solver(self._estimator, self.whole_extent, n_fits, penalty, loss)
        found = self._found(solver, loss, penalty, labels) if solver in AT_HAND else None
        if found is not None:
            self.tell_of(found.dropped)
        return solver, found

    def _found(
        self, solver: str, loss: Any, penalty: Any, labels: Sequence[int]
    ) -> ProblemAtHand | None:
        fit_intercept = self._estimator.fit_intercept
        eps = parts.resolution(self.extent.dtype)
        take = self._take
        united = None if take is None or self.extent.sparse else take.united
        if is_small(self.whole_extent) and not (
            solver == "gram" and united is not None and self._is_part
        ):
            rows = self._rows(None if take is None else self.fitted).labelled(labels)
            return make_problem(solver, rows, loss, penalty, fit_intercept, eps)
        summary = _united(
            self.do(Summarise()) if united is None else compress(self._groups(), united)
        )
        n_targets = self._all.n_targets
        if self.target is not None:
            summary = summary.of_target(self.target, n_targets)
            n_targets = 1
        data = centred_products(summary, n_targets, fit_intercept, eps)
        return None if data is None else HomotopyProblem(data, penalty, eps)

    def _rows(self, chosen: Indices | None) -> Rows:
        """Return some rows, or all of them, in dense form, which may be overwritten."""
        rows = self._all_rows() if self.fill is None else self._dense(self.fill)
        rows = rows if chosen is None else rows.part(chosen)
        if self.target is None:
            return rows
        return rows._replace(responses=rows.responses[[self.target]])

    def _groups(self) -> list[Summary]:
        """Return the summaries of the groups of rows of all folds."""
        if self._all.groups is None:
            assert self._plan is not None
            found = zip(*self._answers(SummariseGroups(self._plan.n_groups)), strict=True)
            self._all.groups = list(map(_united, found))
        return self._all.groups


def _united(summaries: Iterable[Summary | None]) -> Summary:
    return tree_merge([one for one in summaries if one is not None], Summary.united)


def place_of(X: Any, label: str, n_jobs: int | None = None) -> AbstractContextManager[Place]:
    """Give the place of folds and paths: for an X in memory it is this thread."""
    return choose_place(n_jobs, is_dask=True, label=label) if is_dask(X) else nullcontext(Place())


@contextmanager
def open_problem(
    estimator: Any,
    samples: Samples,
    targets: Targets,
    place: Place,
    *,
    n_shards: int | None = None,
    name: str = "lasso",
    plan: Plan | None = None,
) -> Iterator[Problem]:
    """Give a problem, and let go of its rows in the end.

    Parameters
    ----------
    estimator : estimator
        Gets the attribute `n_features_in_`, if it is not known before chunks are loaded.
    samples : Samples
    targets : Targets
    place : Place
    n_shards : int, optional
        Number of partitions: at most the number of rows, or of chunks of rows of an X on Dask.
    name : str
        What tasks are called on the dashboard.
    plan : Plan, optional
        The folds of a cross-validation.
    """
    responses = np.array(targets.responses, np.float64, order="C", ndmin=2)
    weights = targets.weights
    missing = estimator.missing_values
    check_sizes(responses, weights)
    given = responses, weights, parts.NOTHING_BESIDE if plan is None else plan.beside
    with ExitStack() as stack:
        if is_dask(samples.X):
            read = partial(_read_part, getattr(estimator, "feature_names_in_", None), missing)
            chunks = stack.enter_context(open_rows(read, samples.X, estimator, place=place))
            found, size = _pieces(estimator, chunks, samples, given, n_shards, name)
            chunks.partitions = []  # so that each chunk is freed once its partition has been made
            made: tuple[Any, Any, Any] = (lambda: found), len(found), None
        else:
            X = samples.X
            size = parts.extent(samples.X)
            count = parts.default_partitions(X) if n_shards is None else min(n_shards, size.n_rows)
            split = partial(parts.split_rows, X, responses, weights, count, given[2], missing)

            def rows(fill: Any) -> Any:
                whole = X if fill is None else with_missing(X, missing).filled(fill)
                return dense(whole, responses, weights)

            made = split, count, rows
        try:
            problem = Problem(estimator, place, *made, size, len(responses), name, plan)
            stack.enter_context(problem.rounds)
            problem.learn(missing is not None or getattr(samples.X, "may_miss", False))
            yield problem
        except SumsError:
            if not is_dask(samples.X):
                check_finite(samples.X, getattr(estimator, "feature_names_in_", None), missing)
            raise


def _read_part(names: Any, missing: float | None, rows: Any) -> tuple[Storage, Extent]:
    return as_matrix(check_finite(rows, names, missing)), parts.extent(rows)


def _pieces(
    estimator: Any,
    chunks: Chunks,
    samples: Samples,
    given: tuple[Floats, Floats, Floats],
    n_shards: int | None,
    name: str,
) -> tuple[list[Any], Extent]:
    """Return how partitions are made from chunks, without those that have no rows, and the extent of the used rows."""
    extents = chunks.here(chunks.each(itemgetter(1), f"{name}-extent"))
    widths = sorted({one.n_columns for one in extents})
    if len(widths) != 1:
        raise ValueError(f"the chunks of X have different numbers of columns: {widths}")
    estimator.n_features_in_ = widths[0]
    size = parts.joint_extent(extents)
    lengths = [one.n_rows for one in extents]
    used = np.ones(size.n_rows, bool) if samples.used is None else samples.used
    check_length(size.n_rows, len(samples.y) if samples.used is None else len(used))
    responses, weights, beside = given
    bounds, rows_used = (np.append(0, np.cumsum(some)) for some in (lengths, used))
    pieces = list[Any]()
    filled = np.flatnonzero(lengths)  # at most so many groups of consecutive chunks
    for group in np.array_split(filled, min(n_shards or len(filled), len(filled))):
        start = bounds[group[0]]
        stop = bounds[group[-1] + 1]
        first, last = rows_used[[start, stop]].tolist()
        if first < last:
            arrays = responses[:, first:last], weights[first:last], beside[:, first:last], first
            found = (chunks.partitions[number] for number in group)
            given_parts = (*arrays, estimator.missing_values), used[start:stop], *found
            pieces.append(Piece(parts.join_parts, given_parts))
    return pieces, size._replace(n_rows=responses.shape[1])


def _listed(columns: Indices, names: Any = ()) -> str:
    """Return the first columns as a text: their names, or numbers if there are none."""
    first = [repr(names[column]) if len(names) else str(column) for column in columns[:5]]
    return ", ".join(first) + (f" and {len(columns) - 5} more" if len(columns) > 5 else "")
