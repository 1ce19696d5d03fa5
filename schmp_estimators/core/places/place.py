"""Places: where the functions of a fit are called and their results are kept.

`Place` is this process: one thread, or a few over kernels that release the GIL.  Other classes do
the same elsewhere.  `choose_place` chooses the place of a fit.  `Restores` says how often lost work
is repeated before a run is given up; engines and inputs follow this one rule.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import joblib
import numpy as np
from joblib.parallel import get_active_backend

from schmp_estimators.core.errors import AsynchronousClientError, WorkerLostError, WorkLostError
from schmp_estimators.core.later import Later, setting
from schmp_estimators.core.places.threads import share
from schmp_estimators.core.stages import Each, in_turn
from schmp_estimators.core.typing import Arguments, Function, Named
from schmp_estimators.core.values import box

if TYPE_CHECKING:
    from distributed import Client

    from schmp_estimators.core.dashboard.teller import Teller

logger = logging.getLogger(__name__)

T = TypeVar("T")

dask: Any = Later("dask")
distributed: Any = Later("distributed")
_dask_place: Any = Later("schmp_estimators.core.places.dask")
_teller: Any = Later("schmp_estimators.core.dashboard.teller")

_CHOICES = ("auto", "local", "dask")
#: Seconds of work up to which a fit is small.
SMALL = 1.0
#: How often work is repeated without any progress in between.
MAX_RESTORES = 5
#: Seconds of the pause before work is repeated for the second time; each further one is twice as
#: long.
PAUSE = 0.5


class Load(NamedTuple):
    """A call that makes data near a shard of pieces, as in `Source`."""

    function: Function
    pieces: Sequence[Any]
    p: int
    #: How many elements of the result are wanted one by one; 0: the result itself.
    n_elements: int = 0


class Place:
    """The current process as a place.

    Parameters
    ----------
    n_threads : int, default=1
        Number of threads that may work at the same time.
    teller : Teller, optional
        Publishes events of the fit on the dashboard of a cluster.
    """

    #: Whether this is the caller's process, in which nothing is lost.
    is_local: bool = True
    #: Name of the fit on the dashboard, and in warnings.
    label: str = "schmp"

    def __init__(self, n_threads: int = 1, teller: Teller | None = None) -> None:
        self._n_threads = n_threads
        self._teller = teller
        #: Applies a function to jobs, with the threads of this process.
        self.each: Each = in_turn
        if n_threads > 1:  # the caller's thread works, too
            self._helpers = ThreadPoolExecutor(n_threads - 1, "schmp")
            self.each = partial(share, self._helpers, n_threads)

    @property
    def n_processes(self) -> int:
        """Number of processes that work at the same time."""
        return 1

    @property
    def n_threads(self) -> int:
        """Number of threads that work at the same time."""
        return self._n_threads

    @property
    def memory_limit(self) -> int:
        """Bytes that all workers together may use; 0 if there is no limit."""
        return 0

    def settle(self, pieces: Sequence[Sequence[Any]]) -> None:
        """Place each shard where its results in `pieces` are; here do nothing.

        There is a list for each shard.
        """
        return

    def hold(self, lazy: Any) -> list[Any]:
        """Compute a list of Delayed objects, or the blocks of a Dask array, and hold them.

        The array has one column of blocks.

        They are computed in this process, even if a cluster is Dask's default.
        """
        chosen = dask.config.get("scheduler", "threads")
        scheduler = chosen if chosen in ("sync", "synchronous", "single-threaded") else "threads"
        if isinstance(lazy, list):
            return list(dask.compute(*lazy, scheduler=scheduler))
        shape = ((1,) * lazy.numblocks[0], (1,))
        meta = np.empty((0, 0), object)
        return list(
            lazy.map_blocks(box, dtype=object, chunks=shape, meta=meta)
            .compute(scheduler=scheduler)
            .ravel()
        )

    def map(
        self,
        function: Function,
        arguments: Sequence[Arguments],
        name: str,
        *,
        by_shard: bool = False,
    ) -> list[Any]:
        """Return ``function(*a)`` for all `arguments`, which may contain held results.

        With `by_shard` there is a call for each shard; it is made where the shard is placed, if
        possible.
        """
        return list(starmap(function, arguments))

    def gather(self, held: Sequence[Any]) -> list[Any]:
        """Return the values of what `hold`, `map` or `share` returned."""
        return list(held)

    def share(self, value: Any) -> Any:
        """Hold a value that many calls of `map` will read."""
        return value

    def lasting(self, value: Any) -> Any:
        """Return a piece for `Source` that stands for a value which many sources need."""
        return value

    def made(self, held: list[Any], name: str) -> tuple[Place, list[Any]]:
        """Compute results of `map`, if they are not there yet.

        Return them, and the place that holds them.
        """
        return self, held

    def let_go(self) -> None:
        """Release what `hold`, `map` and `share` have returned.

        A second call does nothing.
        """

    def tell(self, event: str, details: Named | None = None) -> None:
        """Publish an event of a fit, if the place has a dashboard.

        Only plain values of the details are sent.

        Events are published from the first "begin" until the place is closed; the others are
        "record", "measured", "restart" and "failed".
        """
        if self._teller:
            self._teller.tell(event, details or {})

    def are_gone(self, held: Iterable[Any]) -> bool:
        """Return whether some held results are lost for good; here none is.

        Such results cannot be computed again.
        """
        return False

    def deal(self) -> bool:
        """Return whether shards should be distributed anew because workers have joined.

        Then they are loaded again.
        """
        return False

    def reset(self, told: str = "") -> None:
        """Wait until there are workers again; `told` is what a warning has said of the loss."""

    def close(self) -> None:
        """Release all resources."""
        if self._n_threads > 1:
            self._helpers.shutdown(cancel_futures=True)
        if self._teller:
            self._teller.close(waits=not self.is_local)


def n_threads(n_jobs: int | None) -> int:
    """Return the number of threads that `n_jobs` means: None is 1, -1 all cores, -2 all but one, ….

    Joblib decides: it counts the cores that this process may use, ``joblib.parallel_config`` may
    change what None means, and joblib's own workers have one thread each.

    Raises
    ------
    ValueError
        If `n_jobs` is 0.
    """
    if n_jobs == 0:
        raise ValueError("n_jobs=0 has no meaning; use None or 1 for one thread, -1 for all cores")
    told = get_active_backend()[1] if n_jobs is None else n_jobs
    if told == 1:  # counting cores takes a fiftieth of the time of a small fit
        return 1
    # Joblib's Dask backend counts the threads of the cluster, but these are threads of this
    # process.
    return int(min(joblib.effective_n_jobs(n_jobs), max(told or 1, joblib.cpu_count())))


@contextmanager
def choose_place(
    n_jobs: int | None = None,
    *,
    is_dask: bool = False,
    label: str = "schmp",
    work: float = math.inf,
) -> Iterator[Place]:
    """Choose the place for a fit, and close it in the end.

    Inside a Dask task the fit stays in that task, because waiting for other tasks can cause a
    deadlock.  But if the input is a Dask collection, the task secedes from the threads of its
    worker, and the fit uses the cluster.  Outside of tasks the fit uses the active Dask client if
    there is one, else this process.  The ``dask.config`` key ``schmp-estimators.runtime`` overrides
    the choice: ``auto``, ``local`` or ``dask``.

    With ``auto`` a small fit stays in this process, or if the input is a Dask array on one
    worker: messages between workers would take longer than the fit.

    Parameters
    ----------
    n_jobs : int, optional
        Threads of the local place; the Dask place has those of its workers.
    is_dask : bool, default=False
        Whether the input is a Dask collection.
    label : str, default="schmp"
        Name of the fit on the dashboard.
    work : float, optional
        About how many seconds the fit takes, by shape and type of its input and by its parameters.
        It is small if this is at most the ``dask.config`` key ``schmp-estimators.small-fit``.  By
        default it is not.

    Yields
    ------
    Place
        It is closed on leaving.

    Raises
    ------
    ValueError
        If the configured place is unknown, or is ``dask`` where no client is active.
    AsynchronousClientError
        If the active client is asynchronous.
    NoWorkersError, SchedulerLostError, MixedClusterError
        If the cluster cannot be used.
    """
    choice = setting("schmp-estimators.runtime", "auto")
    if choice not in _CHOICES:
        raise ValueError(
            f"dask.config schmp-estimators.runtime is {choice!r}; it must be one of {_CHOICES}"
        )
    with _client(choice, is_dask) as client:
        most = float(setting("schmp-estimators.small-fit", SMALL))
        is_small = choice == "auto" and work <= most
        if client is None:
            place: Place = Place(n_threads(n_jobs))
        elif is_small and not is_dask:
            place = Place(n_threads(n_jobs), _teller.Teller(client, label))
        else:
            place = _dask_place.DaskPlace(client, label, most=1 if is_small else None)
        try:
            yield place
        except BaseException as error:
            place.tell("failed", {"error": type(error).__name__})
            raise
        finally:
            place.close()


def _client(choice: str, is_dask: bool) -> AbstractContextManager[Client | None]:
    """Give the client of a fit, or None if the fit stays in this process."""
    if choice == "local" or (choice == "auto" and "distributed" not in sys.modules):
        return nullcontext()
    with suppress(ValueError):  # raised outside of tasks
        distributed.get_worker()
        return distributed.worker_client() if is_dask or choice == "dask" else nullcontext()
    with suppress(ValueError):  # raised if there is no client
        client: Client = distributed.default_client()
        if client.asynchronous:
            raise AsynchronousClientError(
                "the active Dask client is asynchronous; fit in a thread with a synchronous "
                "Client, or keep the work in this process with "
                "dask.config.set({'schmp-estimators.runtime': 'local'})"
            )
        return nullcontext(client)
    if choice == "dask":
        raise ValueError(
            "dask.config schmp-estimators.runtime is 'dask', but no Dask client is active; "
            "make one with distributed.Client(), or set it to 'auto'"
        )
    return nullcontext()


class Restores:
    """Counts losses of work since the last progress.

    Parameters
    ----------
    place : Place
    progress : str
        What counts as progress, for the error: a sentence in the past tense.
    """

    def __init__(self, place: Place, progress: str) -> None:
        self._place = place
        self._progress = progress
        self._n = 0

    def forget(self) -> None:
        """Record that there has been progress."""
        self._n = 0

    def prepare(self, error: WorkLostError, going_on: str, needed: Iterable[Any] = ()) -> None:
        """Prepare the place for another attempt after a loss.

        Raises
        ------
        WorkLostError
            If also some of `needed` is gone, what the place was given: only who gave it can make it
            again.
        WorkerLostError
            If work has been lost too often.
        NoWorkersError, SchedulerLostError
            If there are no workers or no scheduler.
        """
        if self._place.are_gone(needed):
            raise error
        if self._n == MAX_RESTORES:
            raise WorkerLostError(
                f"work was lost {MAX_RESTORES + 1} times, each time before {self._progress} (the "
                f"last time: {error}); look at the logs and the memory of the workers, see whether "
                "Dask computes the input by itself, use more or larger workers, and set the "
                "parameter checkpoint, if there is one, so that a later fit can continue from there"
            ) from error
        if self._n:
            time.sleep(PAUSE * 2 ** (self._n - 1))
        self._n += 1
        logger.warning("%s: %s; %s", self._place.label, error, going_on)
        self._place.tell("restart")
        self._place.reset(str(error))


def check_sent(value: Any, what: str) -> None:
    """Raise TypeError, which says `what` is wrong, if a value cannot be sent to other processes."""
    try:
        distributed.protocol.pickle.dumps(value)
    except Exception as error:
        raise TypeError(
            f"{what} cannot be sent to workers, for want of a pickle ({error}); let it hold "
            "numbers, strings and arrays only, and its functions stand in a module, or work in "
            "this process"
        ) from error


def retry(place: Place, action: Callable[[], T]) -> T:
    """Return what `action` returns, which reads an input; repeat it if work is lost."""
    restores = Restores(place, "the input was read")
    while True:
        try:
            return action()
        except WorkLostError as error:
            restores.prepare(error, "reading the input again")
