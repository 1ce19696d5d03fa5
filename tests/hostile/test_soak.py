"""One fit of thousands of sweeps on worker processes: does anything grow?

    SWEEPS=3000 python -m pytest tests/hostile/test_soak.py -m slow -s

Memory of client, scheduler and workers, their open files, and the tasks on the scheduler are looked
at after the same sweep between two cuts, again and again.  Compared are the middle and the end of
the run, as Dask fills logs of limited length at first.  The largest of them, which knows of 100,000
keys how the dashboard shows them, would need 6,000 sweeps for that: it is emptied at every look.
"""

import os
import time
from statistics import median

import psutil
import pytest
from dask.utils import key_split
from real import AfterSweeps, cases, fit_here, keys_left, left_by, processes, worker_pids

SWEEPS = int(os.environ.get("SWEEPS", "400"))
#: Sweeps between two cuts of a run.
CUT_EVERY = 50
#: MB that a process may grow by from the middle of the run to its end.
ALLOWED = 8.0
#: Seconds that a look waits for the scheduler to forget tasks that it has been told to let go of.
PATIENCE = 10.0


class Meter(AfterSweeps):
    """A callback that takes a reading after the same sweep between cuts."""

    def __init__(self, client, every):
        super().__init__(self.read)
        self._client, self._every = client, every
        self._processes = {
            "client": psutil.Process(),
            "scheduler": psutil.Process(client.cluster.scheduler.process.pid),
            **{
                f"worker {i}": psutil.Process(pid)
                for i, pid in enumerate(worker_pids(client.cluster))
            },
        }
        self.readings = []

    def read(self, estimator, context):
        if context.task_id % self._every == CUT_EVERY // 2:
            self._client.run_on_scheduler(key_split.cache_clear)
            self._client.run(key_split.cache_clear)
            reading = {"sweep": context.task_id, "tasks": self._count_tasks()}
            for name, process in self._processes.items():
                reading[name] = process.memory_info().rss / 1e6
                reading[f"{name} files"] = process.num_fds()
            self.readings.append(reading)
            print("  ".join(f"{key} {value:.0f}" for key, value in reading.items()), flush=True)

    def _count_tasks(self):
        """Return how many tasks there are, without those on their way out.

        On a busy machine that way is long.
        """
        least = min((one["tasks"] for one in self.readings), default=0)
        deadline = time.monotonic() + PATIENCE
        while True:
            tasks = self._client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
            if tasks <= least or time.monotonic() > deadline:
                return tasks
            time.sleep(0.05)


def growth(readings):
    """Return by how much every reading is larger at the end of the run than in its middle.

    Both are medians of a quarter.
    """
    quarter = max(1, len(readings) // 4)
    middle, end = readings[-3 * quarter : -2 * quarter] or readings[:1], readings[-quarter:]
    return {
        key: median(one[key] for one in end) - median(one[key] for one in middle)
        for key in readings[0]
    }


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")
def test_nothing_grows():
    case, every = cases()["lda-warp"], CUT_EVERY * max(1, SWEEPS // (CUT_EVERY * 60))

    def make():
        return case.make().set_params(max_iter=SWEEPS)

    expected = fit_here(make, case.X, case.y)
    with processes() as client:
        meter = Meter(client, every)
        assert left_by(make().set_callbacks(meter).fit(case.X)) == expected
        assert keys_left(client) == []
    grown = growth(meter.readings)
    allowed = {
        name: ALLOWED if f"{name} files" in grown else 1 for name in grown if name != "sweep"
    }
    assert {name: grown[name] for name, most in allowed.items() if grown[name] > most} == {}
