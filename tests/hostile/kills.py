"""Kill, freeze, retire and scale the workers of fits, and kill clients, at random moments: same bits, or a failure.

    python tests/hostile/kills.py --kills 50 --seed 0 --seconds 3600

A fit of every estimator, sampler, solver and schedule in turn meets one to three random events.  What it learns must be
what the same fit learns in this process, to the last bit; nothing may be left on the cluster; none may wait for ever.
The last line is the summary.  The exit code is 0 if all is as it must be.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress

import dask
from distributed import Client
from distributed.exceptions import WorkerStartTimeoutError
from real import Attempt, cases, fit_here, keys_left, left_by, processes, signal_all, worker_pids

N_WORKERS = 2
#: Seconds after which a fit is said to wait for ever; undisturbed ones take a few.
LIMIT = 300


def kill_one(cluster, chance, tally):
    """SIGKILL to one worker."""
    tally["killed"] += signal_all(chance.sample(pids := worker_pids(cluster), min(1, len(pids))), signal.SIGKILL)


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


def disturbed_fit(case, lazy, client, disturber):
    """Return how the attempt ended, and the attempt."""
    X, y = case.data(lazy)
    attempt = Attempt(lambda: left_by(case.make().fit(X, y)))
    attempt.start()
    disturber.start()
    outcome = attempt.within(LIMIT)
    disturber.over.set()
    disturber.join()
    return outcome, attempt


def killed_client(name, case, client, chance, tally, usual):
    """Kill a client that writes a checkpoint after every sweep, and go on from there in this process."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "fit.npz")
        command = [sys.executable, __file__, "--client", name, client.scheduler.address, path]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + LIMIT
        while not os.path.exists(path) and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        with suppress(subprocess.TimeoutExpired):
            child.wait(chance.uniform(0, usual))  # sweeps are short: often it dies while it writes
        child.kill()
        child.wait()
        tally["clients"] += 1
        attempt = Attempt(lambda: left_by(case.make().set_params(checkpoint=path).fit(case.X, case.y)))
        attempt.start()
        return attempt.within(LIMIT), attempt


def run_client(name, address, path):
    """Be the client that is killed."""
    case = cases()[name]
    with Client(address):
        case.make().set_params(checkpoint=path, checkpoint_every=1).fit(case.X, case.y)


def run(n_kills, seed, seconds, names=None):
    """Run fits until so many workers have been killed, or the time is over; return the tally."""
    chance, tally, started = random.Random(seed), Counter(), time.monotonic()
    chosen = {name: case for name, case in cases().items() if not names or name in names}
    expected = {name: fit_here(case.make, case.X, case.y) for name, case in chosen.items()}
    usual = {}
    with ExitStack() as stack, dask.config.set({"schmp-estimators.worker-timeout": 60}):
        client = stack.enter_context(processes(N_WORKERS))
        for name, case in chosen.items():
            begun = time.monotonic()
            assert left_by(case.make().fit(case.X, case.y)) == expected[name], name
            usual[name] = time.monotonic() - begun
        while tally["killed"] + tally["clients"] < n_kills and time.monotonic() < started + seconds:
            name = list(chosen)[tally["fits"] % len(chosen)]
            case, lazy = chosen[name], chance.random() < 0.5
            tally["fits"] += 1
            begun = time.monotonic()
            if case.resumable and chance.random() < 0.2:
                outcome, attempt = killed_client(name, case, client, chance, tally, usual[name])
                events = ["client"]
            else:
                disturber = Disturber(client.cluster, chance, tally, usual[name])
                outcome, attempt = disturbed_fit(case, lazy, client, disturber)
                events = disturber.done
            if outcome == "answer":
                outcome = "same" if attempt.result == expected[name] else "other bits"
            tally[outcome] += 1
            print(
                f"{name:15} {'Dask' if lazy else 'here'} {time.monotonic() - begun:6.1f} s {outcome} {events}",
                flush=True,
            )
            if outcome == "error":
                print(f"  {type(attempt.error).__module__}.{type(attempt.error).__name__}: {attempt.error}")
            if outcome == "hang":
                print(attempt.stack())
                break
            if left := keys_left(client):
                tally["left"] += len(left)
                print("  left:", left[:5])
            try:
                client.wait_for_workers(N_WORKERS, timeout=30)
            except WorkerStartTimeoutError:  # a nanny gives up if what it starts is killed
                stack.close()
                client = stack.enter_context(processes(N_WORKERS))
    tally["seconds"] = round(time.monotonic() - started)
    return tally


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="processes to kill (default 50)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600, help="begin no fit after this time (default 3600)")
    parser.add_argument("--cases", nargs="*", choices=list(cases()), help="only these")
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        return run_client(*options.client)
    tally = run(options.kills, options.seed, options.seconds, options.cases)
    words = {"killed": "workers killed", "times all": "times all at once", "clients": "clients killed"}
    done = [f"{tally[key]} {words.get(key, key)}" for key in (*words, "frozen", "retired", "scaled", "adapted")]
    ends = [f"{tally[key]} {key}" for key in ("same", "other bits", "error", "hang", "left")]
    print(f"{', '.join(done)} in {tally['fits']} fits: {', '.join(ends)}; seed {options.seed}, {tally['seconds']} s")
    return int(tally["same"] != tally["fits"] or bool(tally["left"]))


if __name__ == "__main__":
    sys.exit(main())
