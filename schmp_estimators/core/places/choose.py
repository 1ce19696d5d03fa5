"""Which place a fit uses, decided in one place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import joblib
from joblib.parallel import get_active_backend

from schmp_estimators.core.errors import AsynchronousClientError
from schmp_estimators.core.later import Later, setting
from schmp_estimators.core.places.place import Place

if TYPE_CHECKING:
    from distributed import Client

distributed: Any = Later("distributed")
_dask: Any = Later("schmp_estimators.core.places.dask")

_CHOICES = ("auto", "local", "dask")


def n_threads(n_jobs: int | None) -> int:
    """Return the number of threads that `n_jobs` means: None is 1, -1 all cores, -2 all but one, ….

    Joblib decides: cores are those that this process may use, None is what ``joblib.parallel_config`` says, and inside
    joblib's own workers there is one.

    Raises
    ------
    ValueError
        If `n_jobs` is 0.
    """
    if n_jobs == 0:
        raise ValueError("n_jobs=0 has no meaning; use None or 1 for one thread, -1 for all cores")
    wanted = joblib.effective_n_jobs(n_jobs)
    if wanted == 1:  # to count cores takes a fiftieth of a small fit
        return 1
    told = get_active_backend()[1] if n_jobs is None else n_jobs
    # Joblib's Dask backend counts the threads of the cluster, but these are threads of this process.
    return int(min(wanted, max(told or 1, joblib.cpu_count())))


@contextmanager
def choose_place(n_jobs: int | None = None, *, is_dask: bool = False, label: str = "schmp") -> Iterator[Place]:
    """Give the place for a fit.

    Inside a Dask task the fit stays in that task, as waiting there for other tasks can deadlock; unless the input is a
    Dask collection, for which the task secedes from its worker's threads.  Elsewhere an active Dask client is used if
    there is one, else this process.  The ``dask.config`` key ``schmp-estimators.runtime`` overrides the choice:
    ``auto``, ``local`` or ``dask``.

    Parameters
    ----------
    n_jobs : int, optional
        Threads of the local place; the Dask place has those of its workers.
    is_dask : bool, default=False
        Whether the input is a Dask collection.
    label : str, default="schmp"
        Name of the fit on the dashboard.

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
        raise ValueError(f"dask.config schmp-estimators.runtime is {choice!r}; it must be one of {_CHOICES}")
    with _client(choice, is_dask) as client:
        if client is None:
            place: Place = Place(n_threads(n_jobs))
        else:
            place = _dask.DaskPlace(client, label)
        try:
            yield place
        except BaseException as error:
            place.tell("failed", {"error": type(error).__name__})
            raise
        finally:
            place.close()


def _client(choice: str, is_dask: bool) -> AbstractContextManager[Client | None]:
    """Give the client of a fit; None if it stays in this process."""
    if choice == "local" or (choice == "auto" and "distributed" not in sys.modules):
        return nullcontext()
    with suppress(ValueError):  # this is no task
        distributed.get_worker()
        return distributed.worker_client() if is_dask or choice == "dask" else nullcontext()
    with suppress(ValueError):  # there is no client
        client: Client = distributed.default_client()
        if client.asynchronous:
            raise AsynchronousClientError(
                "the active Dask client is asynchronous; fit in a thread with a synchronous Client, or keep the work "
                "in this process with dask.config.set({'schmp-estimators.runtime': 'local'})"
            )
        return nullcontext(client)
    if choice == "dask":
        raise ValueError(
            "dask.config schmp-estimators.runtime is 'dask', but no Dask client is active; "
            "make one with distributed.Client(), or set it to 'auto'"
        )
    return nullcontext()
