"""Kill, freeze, retire and scale the workers of fits, and kill clients, at random moments.

The bits stay the same.

    KILLS=50 SEED=0 python -m pytest tests/hostile/test_kills.py -m slow -n 0 -s

A fit of every estimator, sampler, solver and schedule in turn meets one to three random events.
What it learns must be what the same fit learns in this process, to the last bit; nothing may be
left on the cluster; none may wait for ever.
"""

import faulthandler
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from itertools import cycle

import dask
import pytest
from distributed import Client
from distributed.exceptions import WorkerStartTimeoutError
from real import cases, fit_here, keys_left, left_by, processes, signal_all, worker_pids

KILLS, SEED = (int(os.environ.get(name, usual)) for name, usual in (("KILLS", 6), ("SEED", 1)))
N_WORKERS = 2
#: Seconds after which a fit is said to wait for ever; undisturbed ones take a few.
LIMIT = 300


def kill_one(cluster, chance, tally):
    """SIGKILL to one worker."""
    tally["killed"] += signal_all(
        chance.sample(pids := worker_pids(cluster), min(1, len(pids))), signal.SIGKILL
    )


def kill_all(cluster, chance, tally):
    """SIGKILL to all workers at once."""
    tally["killed"] += signal_all(worker_pids(cluster), signal.SIGKILL)
    tally["times all"] += 1


def freeze(cluster, chance, tally):
    """SIGSTOP to one worker, and SIGCONT some seconds later."""
    pids = worker_pids(cluster)[:1]
    tally["frozen"] += signal_all(pids, signal.SIGSTOP)
    time.sleep(chance.uniform(1, 5))
    signal_all(pids, signal.SIGCONT)


def retire(cluster, chance, tally):
    """Let a worker retire, and another come."""
    cluster.scale(N_WORKERS - 1)
    time.sleep(chance.uniform(0.2, 2))
    cluster.scale(N_WORKERS)
    tally["retired"] += 1


def grow(cluster, chance, tally):
    """Let a worker come, and leave again."""
    cluster.scale(N_WORKERS + 1)
    time.sleep(chance.uniform(1, 4))
    cluster.scale(N_WORKERS)
    tally["scaled"] += 1


def adapt(cluster, chance, tally):
    """Leave the number of workers to Dask for a while."""
    adaptive = cluster.adapt(minimum=1, maximum=N_WORKERS + 1, interval="200ms", wait_count=2)
    time.sleep(chance.uniform(1, 5))
    cluster.sync(_stop, adaptive)
    cluster.scale(N_WORKERS)
    tally["adapted"] += 1


async def _stop(adaptive):
    adaptive.stop()


EVENTS = {kill_one: 10, kill_all: 5, freeze: 2, retire: 2, grow: 1, adapt: 1}


class Disturber(threading.Thread):
    """Lets events happen while a fit goes on."""

    def __init__(self, cluster, chance, tally, usual):
        super().__init__(daemon=True)
        self._cluster, self._chance, self._tally = cluster, chance, tally
        self.over = threading.Event()
        events = chance.choices(list(EVENTS), list(EVENTS.values()), k=chance.randint(1, 3))
        self._events = [(event, chance.uniform(0, usual)) for event in events]
        self.done = []

    def run(self):
        for event, pause in self._events:
            if self.over.wait(pause):
                return
            event(self._cluster, self._chance, self._tally)
            self.done.append(event.__name__)


def disturbed_fit(case, client, chance, tally, usual):
    """Fit while events happen, and return what the fit leaves."""
    X, y = case.data(lazy=chance.random() < 0.5)
    disturber = Disturber(client.cluster, chance, tally, usual)
    disturber.start()
    try:
        return left_by(case.make().fit(X, y))
    finally:
        disturber.over.set()
        disturber.join()
        print(disturber.done)


def killed_client(name, client, folder, chance, tally, usual):
    """Kill a client that writes a checkpoint after every sweep, and go on in this process."""
    case, path = cases()[name], str(folder / f"{tally['fits']}")
    child = multiprocessing.get_context("spawn").Process(
        target=run_client, args=(name, client.scheduler.address, path)
    )
    child.start()
    while not os.path.exists(path) and child.is_alive():
        time.sleep(0.005)
    child.join(chance.uniform(0, usual))  # sweeps are short: often it dies while it writes
    child.kill()
    child.join()
    tally["clients"] += 1
    return left_by(case.make().set_params(checkpoint=path).fit(case.X, case.y))


def run_client(name, address, path):
    """Be the client that is killed."""
    case = cases()[name]
    with Client(address):
        case.make().set_params(checkpoint=path, checkpoint_every=1).fit(case.X, case.y)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")
def test_fits_are_the_same_whatever_dies(tmp_path):
    chance, tally, chosen, usual = random.Random(SEED), Counter(), cases(), {}
    expected = {name: fit_here(case.make, case.X, case.y) for name, case in chosen.items()}
    with ExitStack() as stack, dask.config.set({"schmp-estimators.worker-timeout": 60}):
        client = stack.enter_context(processes(N_WORKERS))
        for name, case in chosen.items():
            begun = time.monotonic()
            assert left_by(case.make().fit(case.X, case.y)) == expected[name], name
            usual[name] = time.monotonic() - begun
        for name in cycle(chosen):
            if tally["killed"] + tally["clients"] >= KILLS:
                break
            case, begun = chosen[name], time.monotonic()
            faulthandler.dump_traceback_later(LIMIT, exit=True)
            if case.resumable and chance.random() < 0.2:
                found = killed_client(name, client, tmp_path, chance, tally, usual[name])
            else:
                found = disturbed_fit(case, client, chance, tally, usual[name])
            faulthandler.cancel_dump_traceback_later()
            tally["fits"] += 1
            print(f"{name} {time.monotonic() - begun:.1f} s", flush=True)
            assert found == expected[name], name
            assert keys_left(client) == []
            try:
                client.wait_for_workers(N_WORKERS, timeout=30)
            except WorkerStartTimeoutError:  # a nanny gives up if what it starts is killed
                stack.close()
                client = stack.enter_context(processes(N_WORKERS))
    print(dict(tally))
