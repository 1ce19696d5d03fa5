"""The public programming model, and the two programs that the documentation writes with it."""

import doctest
import importlib.util
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from sklearn.decomposition import non_negative_factorization
from sklearn.svm import LinearSVC
from toys import Divided, Ring, make_shards

from schmp_estimators import schmp
from schmp_estimators.core.places.choose import choose_runtime
from schmp_estimators.core.places.dask import DaskRuntime

EXAMPLES = Path(__file__).parents[1] / "examples"


def source_of(name):
    return (EXAMPLES / f"{name}.py").read_text().partition("\n# %%\n")[0]


def load_example(name):
    """Return the functions and classes of an example, without running what follows them."""
    path = EXAMPLES / f"{name}.py"
    source = source_of(name)
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, path))
    sys.modules[name] = module  # where unpickling looks for the classes
    exec(compile(source, path, "exec"), module.__dict__)
    return module


svm = load_example("plot_your_own_svm")
rotation = load_example("plot_your_own_rotation")


@pytest.fixture(params=["one thread", "two threads", pytest.param("cluster", marks=pytest.mark.cluster)])
def n_jobs(request):
    """A number of threads; in the third case it is of no use, as there is an active client."""
    if request.param == "cluster":
        with request.getfixturevalue("client").as_current():
            yield None
        return
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        yield 1 if request.param == "one thread" else 2


@pytest.fixture
def nothing_left(place):
    """Check after the test that nothing is left on a cluster."""
    if place is None:
        with dask.config.set({"schmp-estimators.runtime": "local"}):
            yield
    else:
        with place.as_current():
            yield


def test_docstrings():
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        failed, tried = doctest.testmod(schmp)
    assert tried > 10
    assert failed == 0


def test_all_names_exist_and_are_documented():
    for name in schmp.__all__:
        assert getattr(schmp, name).__doc__, name


# Static programs


def by_definition(program, n_shards, n_sweeps):
    return schmp.run(program, make_shards(n_shards), n_sweeps=n_sweeps, engine="serial")


@pytest.mark.parametrize("program", [Ring(), Divided()], ids=lambda program: program.name)
def test_run_equals_the_serial_engine(nothing_left, program):
    records, harvest = by_definition(program, 3, n_sweeps=4)
    found, harvested = schmp.run(program, make_shards(3), n_sweeps=4)
    assert found == records
    assert [record["sweep"] for record in found] == [0, 1, 2, 3]
    assert harvested[1:] == harvest[1:]
    assert str(harvested.model) == str(harvest.model)


@pytest.mark.parametrize("engine", ["static", "serial"])
def test_shards_may_be_callable(nothing_left, engine):
    callables = [partial(make_shard, p) for p in range(3)]
    records, harvest = schmp.run(Ring(), callables, n_sweeps=2, engine=engine)
    expected = by_definition(Ring(), 3, n_sweeps=2)
    assert (records, harvest.blocks) == (expected[0], expected[1].blocks)


def make_shard(p):
    return make_shards(3)[p]


@pytest.mark.parametrize("engine", ["static", "serial"])
def test_callback_ends_the_run(nothing_left, engine):
    seen = []

    def stop(record):
        seen.append(record)
        return record["sweep"] == 1

    records, harvest = schmp.run(Ring(), make_shards(2), n_sweeps=9, engine=engine, callback=stop)
    assert records == seen
    expected = by_definition(Ring(), 2, n_sweeps=2)
    assert (records, harvest.blocks) == (expected[0], expected[1].blocks)


class Nameless(Ring):
    name = None


class NoBarrier(Ring):
    def schedule(self, sweep, n_shards):
        return super().schedule(sweep, n_shards)[:1]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"program": Ring}, TypeError, "call it to make one"),
        ({"program": SimpleNamespace()}, TypeError, "use run_dynamic"),
        ({"program": Nameless()}, TypeError, "Nameless has no name; give the class one"),
        ({"program": NoBarrier()}, ValueError, "last stage of a sweep must be Local"),
        ({"shards": []}, ValueError, r"shards=\[\] is empty; at least one"),
        ({"shards": np.zeros(3)}, TypeError, "shards must be a list, got ndarray"),
        ({"n_sweeps": 0}, ValueError, "n_sweeps=0 must be an integer of at least 1"),
        ({"n_sweeps": 2.0}, ValueError, r"n_sweeps=2\.0 must be an integer"),
        ({"engine": "dynamic"}, ValueError, "engine='dynamic' is unknown; use one of"),
        ({"callback": 3}, TypeError, "callback=3 must be a function"),
        ({"n_jobs": 0}, ValueError, "n_jobs=0 has no meaning; use None"),
    ],
)
def test_bad_arguments_of_run(change, error, message):
    arguments = {"program": Ring(), "shards": make_shards(2), "n_sweeps": 1, **change}
    with dask.config.set({"schmp-estimators.runtime": "local"}), pytest.raises(error, match=message):
        schmp.run(arguments.pop("program"), arguments.pop("shards"), **arguments)


# Dynamic programs


class Total:
    """Adds a job to every number, some times; the partial results are the sums."""

    def schedule(self, model):
        return (len(model),) if len(model) < 4 else None

    @staticmethod
    def update(partition, job):
        return partition + job[0], float(partition.sum())

    def aggregate(self, model, job, partials):
        model.append(schmp.tree_sum(partials))


class Impure(Total):
    @staticmethod
    def update(partition, job):
        partition += 1
        return partition, 0.0


class Bound(Total):
    def update(self, partition, job):
        return partition, 0.0


PARTITIONS = [np.arange(3.0), np.arange(4.0)]


def test_partitions_keep_their_state_and_may_be_callable(nothing_left):
    expected = [9.0, 9.0, 16.0, 30.0]
    assert schmp.run_dynamic(Total(), [], PARTITIONS) == expected
    assert schmp.run_dynamic(Total(), [], [partial(np.arange, 3.0), partial(np.arange, 4.0)]) == expected
    assert PARTITIONS[0].tolist() == [0.0, 1.0, 2.0]


def test_callback_ends_dynamic_rounds(nothing_left):
    assert len(schmp.run_dynamic(Total(), [], PARTITIONS, callback=lambda model: len(model) == 2)) == 2


def test_partitions_that_are_tuples_stay_whole(nothing_left):
    class Pair(Total):
        @staticmethod
        def update(partition, job):
            left, right = partition
            return partition, float(left @ right)

    assert schmp.run_dynamic(Pair(), [], [(np.ones(2), np.ones(2))])[0] == 2.0


def test_writing_into_a_partition_raises(nothing_left):
    with pytest.raises(ValueError, match="read-only"):
        schmp.run_dynamic(Impure(), [], PARTITIONS)


@pytest.mark.parametrize("keeper", [None, schmp.Keeper(lambda partition: partition, lambda partition, saved: saved)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning:distributed")
@pytest.mark.cluster
def test_a_lost_partition_is_made_again(keeper):
    with LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster, Client(cluster) as client:
        [worker, _] = cluster.workers.values()

        def lose(model):
            if len(model) == 2:
                client.sync(worker.close, executor_wait=False, nanny=False)

        assert schmp.run_dynamic(Total(), [], PARTITIONS, callback=lose, keeper=keeper) == [9.0, 9.0, 16.0, 30.0]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"program": Total}, TypeError, "is a class"),
        ({"program": Ring()}, TypeError, "run static programs with run"),
        ({"program": SimpleNamespace(update=len)}, TypeError, "lacks schedule, aggregate"),
        ({"program": Bound()}, TypeError, "make it a staticmethod"),
        ({"partitions": ()}, ValueError, r"partitions=\(\) is empty"),
        ({"partitions": "ab"}, TypeError, "partitions must be a list, got str"),
        ({"pipeline_depth": 0}, ValueError, "pipeline_depth=0 must be an integer of at least 1"),
        ({"callback": "print"}, TypeError, "callback='print' must be a function"),
    ],
)
def test_bad_arguments_of_run_dynamic(change, error, message):
    arguments = {"program": Total(), "partitions": PARTITIONS, **change}
    with pytest.raises(error, match=message):
        schmp.run_dynamic(arguments.pop("program"), [], arguments.pop("partitions"), **arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_parameters": 0}, "n_parameters=0 must be"),
        ({"n_parallel": True}, "n_parallel=True must be"),
        ({"n_parallel": 11}, "n_parallel=11 is more than n_parameters=10"),
        ({"max_correlation": 1.5}, "max_correlation=1.5 must be from 0 to 1, or None"),
        ({"order": "best"}, "order='best' is unknown; use one of"),
        ({"pipeline_depth": 0}, "pipeline_depth=0 must be"),
    ],
)
def test_bad_arguments_of_the_dynamic_schedule(change, message):
    arguments = {"n_parameters": 10, "n_parallel": 2, **change}
    with pytest.raises(ValueError, match=message):
        schmp.schedule_dynamic_regression(arguments.pop("n_parameters"), **arguments)


@pytest.mark.parametrize("order", ["priority", "random", "round_robin"])
def test_parameters_of_a_round_are_independent(order):
    schedule = schmp.schedule_dynamic_regression(30, n_parallel=5, max_correlation=0.5, order=order, random_state=0)
    groups, sizes = np.arange(30) // 3, []
    for _ in range(20):
        chosen, check = schedule.next_round()
        assert len(set(groups[chosen])) == len(chosen) <= 5
        sizes.append(len(chosen))
        both = np.concatenate(check)
        schedule.answer(check, np.equal.outer(groups[check.candidates], groups[both]).astype(float))
    assert sum(sizes) >= 20


# The support vector machine


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 30))
    return X, np.where(X[:, :5].sum(axis=1) + rng.normal(size=120) > 0, 1.0, -1.0)


@pytest.mark.parametrize("C", [0.003, 0.01])
def test_svm_finds_what_liblinear_finds(rows, C):
    X, y = rows
    found = svm.fit(X, y, C=C, tol=1e-10, max_updates=200_000, n_slices=3)
    peer = LinearSVC(C=C, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=10**6, random_state=0).fit(X, y)
    coef = peer.coef_[0]
    objective = coef @ coef / 2 + C * np.maximum(0, 1 - y * (X @ coef)).sum()
    # objective and gap anew, from what the program returns
    weights = X.T @ (found.alpha * y)
    primal = weights @ weights / 2 + C * np.maximum(0, 1 - y * (X @ weights)).sum()
    gap = primal - (found.alpha.sum() - weights @ weights / 2)
    assert 0 <= found.alpha.min() <= found.alpha.max() <= C
    assert -1e-12 < gap < 2e-10 * primal
    np.testing.assert_allclose(found.objective, objective, rtol=1e-9)
    np.testing.assert_allclose(found.coef, coef, atol=1e-5 * abs(coef).max())
    np.testing.assert_allclose(found.coef, weights, atol=1e-12)


def test_svm_has_the_same_bits_everywhere(rows, n_jobs):
    X, y = rows
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = svm.fit(X, y, max_updates=200, n_slices=3)
    found = svm.fit(X, y, max_updates=200, n_slices=3, n_jobs=n_jobs)
    np.testing.assert_array_equal(found.alpha, expected.alpha)
    np.testing.assert_array_equal(found.coef, expected.coef)
    assert found.history == expected.history


# The Poisson factorisation


def counts(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.poisson(rng.gamma(0.5, size=(31, 4)) @ rng.gamma(0.5, size=(4, 23)))
    X[0], X[:, 0] = 1, 1
    return X.astype(float), rng.uniform(0.1, 1, (31, 4)), rng.uniform(0.1, 1, (23, 4))


def poisson_shards(n_shards):
    X, documents, words = counts()
    return rotation.make_shards(rotation.sparse.csr_array(X), documents, words, n_shards)


@pytest.mark.parametrize("n_shards", [1, 3, 4])
def test_poisson_takes_the_steps_of_multiplicative_updates(n_shards):
    X, documents, words = counts()
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        records, harvest = schmp.run(rotation.PoissonFactorization(), poisson_shards(n_shards), n_sweeps=25)
    options = {"solver": "mu", "beta_loss": "kullback-leibler", "tol": 0, "max_iter": 25, "init": "custom"}
    _, expected, _ = non_negative_factorization(X, documents.copy(), words.T.copy(), n_components=4, **options)
    np.testing.assert_allclose(np.concatenate(harvest.blocks).T, expected, rtol=1e-8, atol=1e-12)
    curve = [record["log_likelihood"] for record in records]
    assert (np.diff(curve) > 0).all()
    # the likelihood is that of the documents' new factors with the words' old ones
    for _ in range(2):
        documents *= (X / (documents @ words.T)) @ words / words.sum(axis=0)
        means = documents @ words.T
        words *= (X / means).T @ documents / documents.sum(axis=0)
        np.testing.assert_allclose(curve.pop(0), np.sum(X * np.log(means) - means), rtol=1e-10)


def test_poisson_has_the_same_bits_everywhere(n_jobs):
    expected = schmp.run(rotation.PoissonFactorization(), poisson_shards(3), n_sweeps=4, engine="serial")
    records, harvest = schmp.run(rotation.PoissonFactorization(), poisson_shards(3), n_sweeps=4, n_jobs=n_jobs)
    assert records == expected[0]
    for found, block in zip(harvest.blocks, expected[1].blocks, strict=True):
        np.testing.assert_array_equal(found, block)


def test_poisson_goes_on_from_what_it_saved(client):
    program, shards = rotation.PoissonFactorization(), poisson_shards(3)
    expected, _ = schmp.run(program, shards, n_sweeps=5, engine="serial")
    sources = [schmp.Source(partial(poisson_shard, p)) for p in range(3)]
    with schmp.StaticRun(program, sources, DaskRuntime(client, cut_every=2), n_sweeps=5) as run:
        assert list(run) == expected
    with dask.config.set({"schmp-estimators.runtime": "local"}), choose_runtime() as runtime:
        with schmp.StaticRun(program, sources, runtime, n_sweeps=3) as run:
            records, saved = list(run), run.save()
        with schmp.StaticRun(program, sources, runtime, n_sweeps=5, saved=saved, first=3) as run:
            assert records + list(run) == expected


def poisson_shard(p):
    return poisson_shards(3)[p]


# Both on a cluster of processes, which get their modules as files


@pytest.fixture
def with_modules(tmp_path, processes):
    for name in ("plot_your_own_svm", "plot_your_own_rotation"):
        path = tmp_path / f"{name}.py"
        path.write_text(source_of(name))
        processes.upload_file(str(path))
    return processes


@pytest.mark.timeout(120)
def test_both_programs_have_the_same_bits_in_processes(rows, with_modules):
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = svm.fit(*rows, max_updates=100, n_slices=3)
    records, harvest = schmp.run(rotation.PoissonFactorization(), poisson_shards(3), n_sweeps=4, engine="serial")
    with with_modules.as_current():
        found = svm.fit(*rows, max_updates=100, n_slices=3)
        found_records, found_harvest = schmp.run(rotation.PoissonFactorization(), poisson_shards(3), n_sweeps=4)
    np.testing.assert_array_equal(found.alpha, expected.alpha)
    assert found.history == expected.history and found_records == records
    for one, other in zip(found_harvest.blocks, harvest.blocks, strict=True):
        np.testing.assert_array_equal(one, other)
