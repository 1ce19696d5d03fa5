"""Clusters of worker processes, and what is left on one."""

import os
import signal
import time
from contextlib import contextmanager, nullcontext, suppress
from functools import partial

import dask
from callbacks import AfterSweeps
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context

#: What workers and schedulers do while nobody asks anything of them: by default a worker that waits
#: takes 2.5 % of a core, for as long as tests run.
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.cycle": "10s",
    # Fits of tests are small; they test what large ones do.
    "schmp-estimators.small-fit": 0,
}


#: Workers of the cluster that tests share.
N_PROCESSES = 3


def keep_quiet():
    """Let all clusters of this process, and their workers, watch themselves seldom."""
    dask.config.set(QUIET)


#: What work on workers imports, and the tests that define it.
IMPORTED = [
    "distributed.nanny",
    "dask.dataframe",
    "hypothesis.strategies",
    "matplotlib.pyplot",
    "pytest",
    "sklearn.linear_model",
    "sklearn.model_selection",
    "schmp_estimators.lda.estimator",
    "schmp_estimators.linear.cross_validated",
    "schmp_estimators.mf.estimator",
    "schmp_estimators.schmp",
]


def fork_workers():
    """Let the worker processes of this process be forked from one that has imported what they need.

    Imports take each process seconds, also the one that a nanny starts for one that was killed.
    """
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context().set_forkserver_preload(IMPORTED)  # once Dask has asked for its own


@contextmanager
def own_cluster(
    n_workers=2, threads_per_worker=1, *, set_as_default=True, dashboard_address=None, **options
):
    """Client of a cluster in this process that a test may destroy.

    It has no dashboard unless one is asked for.
    """
    sizes = {"n_workers": n_workers, "threads_per_worker": threads_per_worker}
    if dashboard_address is None:  # else all clusters want the same port
        dashboard_address, options = ":0", {"scheduler_kwargs": {"dashboard": False}} | options
    options = {"processes": False, "dashboard_address": dashboard_address} | options
    with (
        LocalCluster(**sizes, **options) as cluster,
        Client(cluster, set_as_default=set_as_default) as client,
    ):
        yield client


#: The same with workers that are processes with one thread and memory of their own.
worker_processes = partial(own_cluster, processes=True, dashboard_address=":0")


def at(client):
    """Let fits go to the cluster of a client, or stay here where there is none."""
    return nullcontext() if client is None else client.as_current()


def wait_for_processes(client, n_workers):
    """Wait until `n_workers` processes answer, after some of them were killed.

    Return whether they do in time.
    """
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        answers = client.run(os.getpid, on_error="return")
        if len(answers) == n_workers and all(isinstance(pid, int) for pid in answers.values()):
            return True
        time.sleep(0.05)
    return False


def kill_workers(client, at_most):
    """Kill workers; their nannies start others.  Returns the processes that were killed."""
    pids = list(client.run(os.getpid).values())[:at_most]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids


@contextmanager
def hosts_apart(client, folder):
    """Give a path that is another folder for each process, and these folders.

    The processes are this one and the workers.

    The first one is this process's, the others are the workers', in the order of their addresses.
    """
    path, own = folder / "here", [folder / f"host-{number}" for number in range(N_PROCESSES + 1)]
    path.symlink_to("/proc/self/cwd")
    for one in own:
        one.mkdir()
    before = {None: os.getcwd(), **dict(sorted(client.run(os.getcwd).items()))}
    try:
        _work_in(client, dict(zip(before, own, strict=True)))
        yield str(path), own
    finally:
        _work_in(client, before)


def _work_in(client, folders):
    for address, folder in folders.items():
        if address is None:
            os.chdir(folder)
        else:
            client.run(os.chdir, folder, workers=[address])


class Killer(AfterSweeps):
    """A callback that kills workers, once, when a sweep ends."""

    def __init__(self, client, at, at_most=1):
        self.killed = []

        def kill(estimator, context):
            if context.task_id == at and not self.killed:
                self.killed += kill_workers(client, at_most)

        super().__init__(kill)


def keys_left(client):
    """Keys on the scheduler that are still there after a while."""
    deadline = time.monotonic() + 60
    while True:
        left = client.run_on_scheduler(
            lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks]
        )
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


def files_in(folder):
    """Return how many files of this process are in a folder, those without a name included."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # one that is closed meanwhile, as that of the list itself
            found += os.readlink(f"/proc/self/fd/{number}").startswith(f"{folder}/")
    return found
