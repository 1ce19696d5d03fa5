"""The partitions of a cross-validation, here or on workers, and the runs of its folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from schmp_estimators.core.engine.dynamic import Steps, run_coroutine, run_together
from schmp_estimators.core.engine.rounds import Keeper, Piece, Rounds
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.places.threads import one_blas_thread
from schmp_estimators.core.reduction import tree_merge
from schmp_estimators.linear.data.samples import Samples
from schmp_estimators.linear.losses.base import Loss
from schmp_estimators.linear.opening import explained, make_pieces
from schmp_estimators.linear.programs.centred import Rows, Summary, centred_products, joined
from schmp_estimators.linear.programs.choose import AT_HAND, is_small, make_problem
from schmp_estimators.linear.programs.folds import Cuts, FetchAll, Plan, SummariseFolds, restore_folds, save_folds
from schmp_estimators.linear.programs.homotopy import HomotopyProblem, ProblemAtHand
from schmp_estimators.linear.programs.input import Extent, resolution
from schmp_estimators.linear.programs.path import PathOptions

#: Begins the steps of a run.
Run = Callable[[], Steps]


class FoldedProblem:
    """Row partitions that are cut along folds.

    Parameters
    ----------
    plan : Plan
    cuts : sequence of Cuts
        Those of each partition.
    extent : Extent
        That of X.
    rounds : Rounds or list of FoldedRows
        The partitions on a cluster, or here, where threads may read them at the same time.
    """

    def __init__(self, plan: Plan, cuts: Sequence[Cuts], extent: Extent, rounds: Any) -> None:
        self.plan, self.extent = plan, extent
        self._cuts, self._rounds = cuts, rounds
        #: whether the user knows of columns that are left out
        self.told = False
        #: all rows in their order, where `fetch` has brought them
        self.rows: Rows | None = None

    def shape(self, number: int) -> tuple[Extent, int]:
        """Return the extent of what a fold is fitted to, about, and how many partitions have a part of it.

        The number after the last fold stands for all rows.
        """
        size = self.extent
        if number == len(self.plan.folds):
            return size, len(self._cuts)
        n_rows = len(self.plan.folds[number][0])
        stored = round(size.stored * n_rows / size.n_rows)
        n_partitions = sum(cuts.is_fitted_to(number) for cuts in self._cuts)
        return size._replace(n_rows=n_rows, stored=stored), n_partitions

    def held_out(self, number: int) -> NDArray[np.int64]:
        """Return the rows that a fold holds out, in the order in which partitions have them."""
        return np.concatenate([cuts.held_out(number) for cuts in self._cuts])

    def run(self, runs: Sequence[Run], n_jobs: int | None = None) -> list[Any]:
        """Run coroutines, each of which works on a fold of its own, and return what they return.

        Here `n_jobs` threads take one at a time; on a cluster several are under way.
        """
        if isinstance(self._rounds, Rounds):
            with one_blas_thread():
                return run_together(runs, self._rounds, self.plan.n_at_a_time(self.extent))
        return list(Parallel(n_jobs=n_jobs, prefer="threads")(delayed(self._run_here)(run) for run in runs))

    def fetch(
        self, solver: str, options: PathOptions, loss: Loss
    ) -> Callable[[int, Sequence[int]], ProblemAtHand | None]:
        """Return what returns the problem of a fold, if this solver needs no rounds, or None.

        It gets the number of the fold, that after the last for all rows, and those of classes that are fitted.
        """
        size, eps, small = self.extent, resolution(self.extent.dtype), is_small(self.extent)
        if solver not in AT_HAND or (small and not self.plan.copies(size)):
            return lambda *_: None
        if small:
            rows = self.rows = joined(self.run([partial(_asked, FetchAll())])[0])
            fits = [*(train for train, _ in self.plan.folds), slice(None)]
        else:
            found = zip(*self.run([partial(_asked, SummariseFolds())])[0], strict=True)
            summaries = [tree_merge([part for part in parts if part is not None], Summary.united) for parts in found]

        def problem(number: int, classes: Sequence[int]) -> ProblemAtHand | None:
            with one_blas_thread():
                if small:
                    given = rows.part(fits[number]).copy().labelled(classes), loss, options.penalty
                    return make_problem(solver, *given, options.fit_intercept, eps)
                data = centred_products(summaries[number], 1, options.fit_intercept, eps)
                return None if data is None else HomotopyProblem(data, options.penalty, eps)

        return problem

    def close(self) -> None:
        """Let go of the partitions."""
        if isinstance(self._rounds, Rounds):
            self._rounds.close()
        else:
            self._rounds.clear()

    def _run_here(self, run: Run) -> Any:
        with one_blas_thread(), Rounds(Place(), self._rounds) as rounds:
            return run_coroutine(lambda _: run(), rounds)


def _asked(job: Any) -> Steps:
    return (yield job)


@contextmanager
def open_folds(
    estimator: Any,
    samples: Samples,
    responses: NDArray[Any],
    weights: NDArray[Any],
    plan: Plan,
    place: Place,
    name: str,
) -> Iterator[FoldedProblem]:
    """Give the partitions of a cross-validation, and let go of them in the end; see `open_rows`."""
    with ExitStack() as stack:
        pieces, size = make_pieces(stack, estimator, samples, responses, weights, place, None, name, plan)
        cuts = [piece.parts[0] for piece in pieces]
        if place.is_local:
            with one_blas_thread():
                rounds: Any = [_made(pieces, number) for number in range(len(pieces))]
        else:
            rounds = stack.enter_context(Rounds(place, pieces, name, Keeper(save_folds, restore_folds)))
        del pieces
        with explained(estimator, samples.X):
            yield FoldedProblem(plan, cuts, size, rounds)


def _made(pieces: list[Any], number: int) -> Any:
    """Make a partition, and let go of what it is made of."""
    piece: Piece = pieces[number]
    pieces[number] = None
    return piece.function(*piece.parts)
