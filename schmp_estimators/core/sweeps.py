"""The sweeps of a fit of an estimator, which may continue those of its checkpoint."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from schmp_estimators.core.engine.running import AnyRun
from schmp_estimators.core.io.checkpoint import Checkpoint, check_records, identity_of
from schmp_estimators.core.places.place import Place
from schmp_estimators.core.program import AnyProgram, Harvest, check_saved, identity
from schmp_estimators.core.typing import Named

logger = logging.getLogger(__name__)


class Sweeps:
    """The sweeps of a fit, which may continue those of its checkpoint.

    Parameters
    ----------
    estimator : SweepingEstimator
        Its `history_` and `n_iter_` are set.
    program : Program
    n_shards : int
    told : iterable of str
        What recognises the data.
    names : mapping of str to str
        The user's names of those parameters of the program that are called otherwise.
    """

    def __init__(
        self,
        estimator: Any,
        program: AnyProgram,
        n_shards: int,
        told: Iterable[str],
        names: Mapping[str, str],
    ) -> None:
        self._estimator = estimator
        self._checkpoint: Checkpoint | None = None
        #: What the checkpoint holds, if there is one: the history, the state, and more.
        self.found: Named = {"history": [], "saved": None}
        if estimator.checkpoint is not None:
            found = identity_of(estimator, told, **identity(program, names), n_shards=n_shards)
            self._checkpoint = kept = Checkpoint(estimator.checkpoint, found)

            def checked(found: Named) -> Named:
                done = check_records(kept.url, found["history"], estimator._n_sweeps)
                check_saved(found["saved"], program, n_shards)
                logger.info("continuing after sweep %d from %s", done, kept.url)
                return found

            self.found = kept.read(checked) or self.found
        estimator.history_ = self.found["history"]
        self.first = estimator.n_iter_ = len(estimator.history_)

    def follow(
        self,
        run: AnyRun,
        X: Any,
        y: Any,
        *,
        place: Place,
        attributes: Callable[[Harvest], Named],
        n_samples: int = 0,
        kept: Callable[[], Named] = Named,
    ) -> Iterator[int]:
        """Do the sweeps of a run, and write checkpoints.

        Parameters
        ----------
        run : LocalRun or GroupRun
        X, y, place, n_samples
            As in `SweepingEstimator._follow`.
        attributes : callable
            Returns the fitted attributes, given a harvest.
        kept : callable
            Returns what a checkpoint has beside the history and the state.

        Yields
        ------
        int
            Number of sweeps done, after each of them.
        """
        estimator = self._estimator
        every = estimator.checkpoint_every
        for done in estimator._follow(
            run,
            X,
            y,
            place=place,
            first=self.first,
            n_samples=n_samples,
            snapshot=lambda: attributes(run.harvest()),
            took=lambda: run.took,
        ):
            yield done
            if done % every == 0:
                self._write(run, done, kept())
        if estimator.n_iter_ % every:
            self._write(run, estimator.n_iter_, kept())

    def _write(self, run: AnyRun, done: int, kept: Named) -> None:
        values = {"history": list(self._estimator.history_), **kept}
        if self._checkpoint is not None:
            run.keep(self._checkpoint, done, lambda saved: {**values, "saved": saved})
