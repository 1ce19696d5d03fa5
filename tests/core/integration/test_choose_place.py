"""Which runtime a fit gets, in every situation it can be in."""

import asyncio
import math
import os
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import dask
import joblib
import pytest
from clusters import own_cluster
from distributed import Client, LocalCluster, Scheduler, SpecCluster, Worker

from schmp_estimators.core.errors import AsynchronousClientError, MixedClusterError, NoWorkersError
from schmp_estimators.core.places import answers
from schmp_estimators.core.places.answers import check_alike
from schmp_estimators.core.places.cluster import live_workers
from schmp_estimators.core.places.dask import DaskPlace
from schmp_estimators.core.places.place import choose_place, n_threads


def chosen(**options):
    with choose_place(**options) as runtime:
        return type(runtime).__name__


@pytest.mark.parametrize(
    ("runtime", "has_client", "expected"),
    [
        ("auto", False, "Place"),
        ("auto", True, "DaskPlace"),
        ("local", True, "Place"),
        ("dask", True, "DaskPlace"),
    ],
)
def test_fits_go_to_the_cluster_of_a_client_unless_they_are_to_stay(
    client, runtime, has_client, expected
):
    with (
        dask.config.set({"schmp-estimators.runtime": runtime}),
        client.as_current() if has_client else nullcontext(),
    ):
        assert chosen() == expected


@pytest.mark.parametrize(
    ("runtime", "message"), [("dask", "no Dask client"), ("desk", "'desk'; it must be")]
)
def test_a_runtime_that_cannot_be_had_is_refused(runtime, message):
    with (
        dask.config.set({"schmp-estimators.runtime": runtime}),
        pytest.raises(ValueError, match=message),
    ):
        chosen()


@pytest.mark.parametrize(
    ("runtime", "most", "work", "is_dask", "expected"),
    [
        ("auto", 1.0, 0.9, False, 0),
        ("auto", 1.0, 0.9, True, 1),
        ("auto", 1.0, 1.1, False, 2),
        ("auto", 1.0, math.inf, True, 2),
        ("auto", 3.0, 2.9, False, 0),
        ("auto", 0.0, 0.1, False, 2),
        ("dask", 1.0, 0.1, False, 2),
        ("local", 1.0, 9.9, True, 0),
    ],
)
def test_small_fits_need_no_cluster_or_one_worker(client, runtime, most, work, is_dask, expected):
    given = {"schmp-estimators.runtime": runtime, "schmp-estimators.small-fit": most}
    with (
        dask.config.set(given),
        client.as_current(),
        choose_place(is_dask=is_dask, work=work) as place,
    ):
        assert expected == (0 if place.is_local else min(2, place.n_processes))


def test_inside_a_task_the_fit_stays_in_the_task(client):
    assert client.submit(chosen, pure=False).result() == "Place"


@pytest.mark.cluster
def test_asynchronous_client_is_refused_before_any_work():
    async def attempt():
        async with (
            LocalCluster(
                n_workers=1, processes=False, asynchronous=True, dashboard_address=":0"
            ) as cluster,
            Client(cluster, asynchronous=True),
        ):
            with pytest.raises(AsynchronousClientError, match="asynchronous"):
                chosen()
            return True

    assert asyncio.run(attempt())


@pytest.mark.cluster
def test_cluster_without_workers_is_given_up_in_time():
    with (
        own_cluster(0),
        dask.config.set({"schmp-estimators.worker-timeout": 0.3}),
        pytest.raises(NoWorkersError, match=r"no workers for 0.3 s; start some"),
    ):
        chosen()


@pytest.mark.parametrize(("answers_at", "is_in_time"), [(100, True), (120, False)])
def test_a_worker_that_comes_late_is_given_time_to_answer(monkeypatch, answers_at, is_in_time):
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    known = {"address": "tcp://late", "status": "running", "memory": 1, "memory_limit": 0}
    able = SimpleNamespace(**known, may_take=lambda annotations: True)
    monkeypatch.setattr(answers, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(answers, "live_workers", lambda client: [able] * (now[0] > 50))

    def check(client, asked, enrol, until):
        return {one.address: now[0] > answers_at for one in asked}

    monkeypatch.setattr(answers, "check_alike", check)
    client = SimpleNamespace(scheduler=None, status="running")
    if is_in_time:
        assert answers.responsive_workers(client, {}, dict) == ([able], [])
        return
    with pytest.raises(NoWorkersError, match="has answered for 60 s: tcp://late is running"):
        answers.responsive_workers(client, {}, dict)


@pytest.mark.cluster
def test_shards_go_only_where_annotations_let_tasks_go():
    options = {"nthreads": 1, "protocol": "inproc://", "dashboard_address": ":0"}
    workers = {
        "plain": {"cls": Worker, "options": options},
        "special": {"cls": Worker, "options": {**options, "resources": {"GPU": 1}}},
    }
    scheduler = {"cls": Scheduler, "options": {"protocol": "inproc://", "dashboard_address": ":0"}}
    with (
        SpecCluster(workers=workers, scheduler=scheduler) as cluster,
        Client(cluster, set_as_default=False) as client,
        dask.config.set({"schmp-estimators.worker-timeout": 0.3}),
    ):
        client.wait_for_workers(2)
        for annotations, n_workers in (
            ({}, 2),
            ({"resources": {"GPU": 1}}, 1),
            ({"workers": ["plain"]}, 1),
        ):
            with dask.annotate(**annotations):
                assert len(DaskPlace(client).groups(4)) == n_workers
        with (
            dask.annotate(resources={"GPU": 2}),
            pytest.raises(NoWorkersError, match=r"none of the 2 .*'GPU': 2"),
        ):
            DaskPlace(client)


@pytest.mark.cluster
@pytest.mark.slow
def test_workers_of_another_kind_are_refused():
    """Before a fit, and by a fit that began when there were none."""
    with (
        LocalCluster(n_workers=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        runtime = DaskPlace(client)
        environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+sse2"}
        command = [
            sys.executable,
            "-m",
            "distributed.cli.dask_worker",
            cluster.scheduler_address,
            "--no-nanny",
        ]
        other = subprocess.Popen(
            [*command, "--no-dashboard"], env=environment, stderr=subprocess.DEVNULL
        )
        try:
            client.wait_for_workers(2, timeout=60)
            with pytest.raises(MixedClusterError, match="differ in CPU"):
                while not runtime.deal():
                    """It has not answered yet."""
            with pytest.raises(MixedClusterError, match="differ in CPU"):
                chosen()
            workers = live_workers(client)
            with pytest.raises(MixedClusterError, match="make the environments alike"):
                check_alike(client, workers)
            check_alike(client, workers[:1])
        finally:
            runtime.close()
            other.terminate()
            other.wait()


@pytest.mark.parametrize(
    ("n_jobs", "threads"), [(None, 1), (1, 1), (3, 3), (-1, joblib.cpu_count()), (-1000, 1)]
)
def test_n_jobs_means_what_it_means_in_scikit_learn(n_jobs, threads):
    assert n_threads(n_jobs) == threads
    with joblib.parallel_config(n_jobs=3):
        assert n_threads(n_jobs) == (threads if n_jobs else 3)


def test_n_jobs_counts_the_cores_that_this_process_may_use():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    code += "from schmp_estimators.core.places.place import n_threads; print(n_threads(-1))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "1\n"
    )


def test_n_jobs_zero_is_refused():
    with pytest.raises(ValueError, match="n_jobs=0"):
        n_threads(0)
