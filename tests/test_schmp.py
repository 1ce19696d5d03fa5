"""The public programming model, and the two programs that the documentation writes with it."""

import contextlib
import doctest
import importlib.util
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from sklearn.decomposition import non_negative_factorization
from sklearn.svm import LinearSVC
from toys import Remade, Ring, bits, make_shards

from schmp_estimators import schmp
from schmp_estimators.core.places import watch
from schmp_estimators.exceptions import CheckpointMismatchError

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


# Static programs


def by_definition(program, n_shards, sweeps):
    return schmp.run(program, make_shards(n_shards), sweeps=sweeps, engine="serial")


@pytest.mark.parametrize("program", [Ring(), Remade()], ids=lambda program: program.name)
def test_run_equals_the_serial_engine(nothing_left, program):
    records, harvest = by_definition(program, 3, sweeps=4)
    found, harvested = schmp.run(program, make_shards(3), sweeps=4)
    assert found == records
    assert [record["sweep"] for record in found] == [0, 1, 2, 3]
    assert bits(harvested) == bits(harvest)


@pytest.mark.parametrize("engine", ["auto", "serial"])
def test_callback_ends_the_run(nothing_left, engine):
    seen = []

    def stop(record):
        seen.append(record)
        return record["sweep"] == 1

    records, harvest = schmp.run(Ring(), make_shards(2), sweeps=9, engine=engine, callback=stop)
    assert records == seen
    expected = by_definition(Ring(), 2, sweeps=2)
    assert bits((records, harvest.blocks)) == bits((expected[0], expected[1].blocks))


class Nameless(Ring):
    name = None


class NoBarrier(Ring):
    def schedule(self, sweep, n_shards):
        return super().schedule(sweep, n_shards)[:1]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"program": Ring}, TypeError, "call it to make one"),
        ({"program": SimpleNamespace()}, TypeError, "or a function that returns a generator of jobs"),
        ({"program": Nameless()}, TypeError, "Nameless has no name; give the class one"),
        ({"program": NoBarrier()}, ValueError, "last stage of a sweep must be each or observes"),
        ({"data": []}, ValueError, r"data=\[\] is empty; at least one"),
        ({"data": np.zeros(3)}, TypeError, "data must be a list of pieces, got ndarray"),
        ({"sweeps": None}, ValueError, "sweeps=None must be an integer of at least 1"),
        ({"checkpoint_every": 0}, ValueError, "checkpoint_every=0 must be"),
        ({"engine": "serial", "checkpoint": "x.npz"}, ValueError, "checkpoint='x.npz' needs engine='auto'"),
        ({"keeper": schmp.Keeper(len, len)}, ValueError, "is for coroutines"),
        ({"sweeps": 0}, ValueError, "sweeps=0 must be an integer of at least 1"),
        ({"sweeps": 2.0}, ValueError, r"sweeps=2\.0 must be an integer"),
        ({"engine": "dynamic"}, ValueError, "engine='dynamic' is unknown; use one of"),
        ({"callback": 3}, TypeError, "callback=3 must be a function"),
        ({"n_jobs": 0}, ValueError, "n_jobs=0 has no meaning; use None"),
    ],
)
def test_bad_arguments_of_run(change, error, message):
    arguments = {"program": Ring(), "data": make_shards(2), "sweeps": 1, **change}
    with dask.config.set({"schmp-estimators.runtime": "local"}), pytest.raises(error, match=message):
        schmp.run(**arguments)


def changed(checkpoint, **change):
    """Run three shards for five sweeps, but for a change."""
    arguments = {"program": Ring(), "data": make_shards(3), "sweeps": 5, "checkpoint": checkpoint} | change
    return schmp.run(**arguments, checkpoint_every=2)


@pytest.mark.covering
@pytest.mark.parametrize("program", [Ring(), Remade(), rotation.PoissonFactorization()], ids=lambda one: one.name)
def test_a_static_run_goes_on_from_its_checkpoint(nothing_left, place, program, tmp_path):
    data = poisson_shards(3) if program.name == "poisson" else make_shards(3)
    expected = schmp.run(program, data, sweeps=5, engine="serial")
    for stop in (1, 2, 3, 4, 5) if place is None else (1, 4):  # before the first checkpoint, and at the second
        path, seen = tmp_path / f"{stop}.npz", []

        def interrupt(record, seen=seen, stop=stop):
            seen.append(record)
            return len(seen) == stop

        begun, _ = changed(path, program=program, data=data, callback=interrupt)
        assert begun == seen == expected[0][:stop]
        seen.clear()
        records, harvest = changed(path, program=program, data=data, callback=seen.append)
        assert records == expected[0] and seen == records[stop:]
        assert bits(harvest) == bits(expected[1])
        again, harvest = changed(path, program=program, data=data)
        assert again == records and bits(harvest) == bits(expected[1])


class Unkeepable(Ring):
    def save(self, at, state):
        return {"seen": {1, 2}}


def test_a_state_that_cannot_be_kept_is_refused_before_the_first_sweep(nothing_left, tmp_path):
    seen = []
    with pytest.raises(TypeError, match=r"checkpoint cannot keep shards\[0\]\.seen, of type set"):
        changed(tmp_path / "run.npz", program=Unkeepable(), callback=seen.append)
    assert not seen


# Coroutines


def add(partition, number):
    return partition + number, float(partition.sum())


def spoil(partition, number):
    partition += 1
    return partition, 0.0


def totals(state, job=add, n_jobs=4):
    """Adds 0, 1, 2, … to every number; the answers are the sums before."""
    found = []
    while len(found) < n_jobs:
        found.append(schmp.tree_sum((yield partial(job, number=len(found)))))
        if (yield schmp.Report({"total": found[-1]})):
            break
    return found


class Saved(NamedTuple):
    found: np.ndarray


@schmp.saves(Saved)
def saved_totals(state, n_jobs=6):
    found = list(state.found) if state else []
    while len(found) < n_jobs:
        found.append(schmp.tree_sum((yield partial(add, number=len(found)))))
        yield schmp.Report({"total": float(found[-1])})
        yield schmp.Save(Saved(np.array(found)), last=len(found) == n_jobs)
    return found


@schmp.saves(dict)
def asking(state, n_jobs=6):
    """Asks only, and changes nothing."""
    found = list(state["found"]) if state else []
    while len(found) < n_jobs:
        found.append(schmp.tree_sum((yield partial(ask, number=len(found)))))
        yield schmp.Save({"found": np.array(found)}, last=len(found) == n_jobs)
    return found


def ask(partition, number):
    return partition, float((partition**number).sum())


class Total:
    """Adds one to every number, some times; jobs overlap."""

    def __init__(self):
        self.n_left = 4

    def schedule(self, model):
        self.n_left -= 1
        return 1 if self.n_left >= 0 else None

    @staticmethod
    def update(partition, job):
        return add(partition, job)

    def aggregate(self, model, job, partials):
        model.append(schmp.tree_sum(partials))


def overlapping(state, depth):
    model = []
    yield schmp.Overlapping(Total(), model, depth)
    return model


PARTITIONS = [np.arange(3.0), np.arange(4.0)]
KEEPER = schmp.Keeper(lambda partition: partition, lambda partition, saved: saved)


def test_pieces_keep_their_state_and_may_be_callable(nothing_left):
    expected = [9.0, 9.0, 16.0, 30.0]
    records, found = schmp.run(totals, PARTITIONS)
    assert found == expected and records == [{"total": total} for total in expected]
    assert schmp.run(totals, [partial(np.arange, 3.0), partial(np.arange, 4.0)])[1] == expected
    assert PARTITIONS[0].tolist() == [0.0, 1.0, 2.0]


def test_callback_is_the_answer_to_a_report(nothing_left):
    assert schmp.run(totals, PARTITIONS, callback=lambda record: record["total"] == 16.0)[1] == [9.0, 9.0, 16.0]


@pytest.mark.parametrize("depth", [1, 3])
def test_rounds_that_overlap(nothing_left, depth):
    assert schmp.run(partial(overlapping, depth=depth), PARTITIONS)[1] == [9.0, 16.0, 23.0, 30.0]


def test_writing_into_a_piece_raises(nothing_left):
    with pytest.raises(ValueError, match="read-only"):
        schmp.run(partial(totals, job=spoil), PARTITIONS)


class Interrupted(Exception):
    """Ends a run in its midst."""


@pytest.mark.covering
@pytest.mark.parametrize(("program", "keeper"), [(saved_totals, KEEPER), (asking, None)])
@pytest.mark.parametrize("every", [1, 2])
def test_a_coroutine_goes_on_from_its_checkpoint(nothing_left, program, keeper, every, tmp_path):
    expected = schmp.run(program, PARTITIONS)
    for stop in range(1, 7):
        path = tmp_path / f"{stop}.npz"

        def stopping(state, n_jobs=6, stop=stop):
            """The program, until the process dies."""
            steps, answer, n_left = program(state, n_jobs), None, stop
            with contextlib.suppress(StopIteration):
                while True:
                    step = steps.send(answer)
                    n_left -= isinstance(step, schmp.Save)
                    answer = yield step
                    if not n_left:
                        raise Interrupted

        stopping.__name__, stopping.saves = program.__name__, program.saves
        options = {"checkpoint": path, "checkpoint_every": every, "keeper": keeper}
        with pytest.raises(Interrupted):
            schmp.run(stopping, PARTITIONS, **options)
        seen = []
        assert schmp.run(program, PARTITIONS, callback=seen.append, **options) == expected
        if program is saved_totals:
            assert len(seen) == 6 - stop // every * every


def test_a_program_that_changes_its_pieces_needs_a_keeper_for_checkpoints(nothing_left, tmp_path):
    with pytest.raises(ValueError, match="checkpoint needs a keeper"):
        schmp.run(saved_totals, PARTITIONS, checkpoint=tmp_path / "run.npz")


def test_checkpoints_need_a_state(tmp_path):
    with pytest.raises(ValueError, match="checkpoint needs a program that saves its state, which totals does not"):
        schmp.run(totals, PARTITIONS, checkpoint=tmp_path / "run.npz")
    assert not list(tmp_path.iterdir())


@schmp.saves(dict)
def scaled(factor, state):
    answers = yield partial(ask, number=1)
    yield schmp.Save({"sum": factor * sum(answers)}, last=True)


def test_arguments_by_place_are_parameters_too(tmp_path):
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        schmp.run(partial(scaled, 2.0), PARTITIONS, checkpoint=tmp_path / "run.npz")
        schmp.run(partial(scaled, 2.0), PARTITIONS, checkpoint=tmp_path / "run.npz")
        with pytest.raises(CheckpointMismatchError, match="parameter "):
            schmp.run(partial(scaled, 3.0), PARTITIONS, checkpoint=tmp_path / "run.npz")


def test_pieces_that_cannot_be_known_again_are_refused(tmp_path):
    with (
        dask.config.set({"schmp-estimators.runtime": "local"}),
        pytest.raises(TypeError, match="functions that stand"),
    ):
        schmp.run(asking, [lambda: np.arange(3.0)], checkpoint=tmp_path / "run.npz")


@pytest.mark.filterwarnings("ignore::RuntimeWarning:distributed")
@pytest.mark.cluster
def test_a_lost_piece_is_made_again(monkeypatch):
    monkeypatch.setattr(watch, "WATCH_EVERY", 0.1)
    with LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster, Client(cluster) as client:
        [worker, _] = cluster.workers.values()
        seen = []

        def lose(record):
            seen.append(record)
            if len(seen) == 2:
                client.sync(worker.close, executor_wait=False, nanny=False)

        assert schmp.run(totals, PARTITIONS, callback=lose)[1] == [9.0, 9.0, 16.0, 30.0]


def no_job(state):
    yield 3


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"program": no_job}, TypeError, "no_job yields 3; a job is a function"),
        ({"program": lambda state: 3}, TypeError, "which is no generator"),
        ({"sweeps": 3}, ValueError, "sweeps=3 is for static programs"),
        ({"engine": "serial"}, ValueError, "engine='serial' is for static programs"),
        ({"data": ()}, ValueError, r"data=\(\) is empty"),
        ({"data": "ab"}, TypeError, "data must be a list of pieces, got str"),
        ({"callback": "print"}, TypeError, "callback='print' must be a function"),
    ],
)
def test_bad_arguments_of_a_coroutine(change, error, message):
    arguments = {"program": totals, "data": PARTITIONS, **change}
    with dask.config.set({"schmp-estimators.runtime": "local"}), pytest.raises(error, match=message):
        schmp.run(**arguments)


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


# The support vector machine


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 30))
    return X, np.where(X[:, :5].sum(axis=1) + rng.normal(size=120) > 0, 1.0, -1.0)


def test_svm_finds_what_liblinear_finds(rows):
    (X, y), C = rows, 0.01
    records, alpha = svm.fit(X, y, C=C, tol=1e-10, max_updates=200_000, n_slices=3)
    peer = LinearSVC(C=C, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=10**6, random_state=0).fit(X, y)
    coef = peer.coef_[0]
    objective = coef @ coef / 2 + C * np.maximum(0, 1 - y * (X @ coef)).sum()
    # objective and gap anew, from what the program returns
    weights = X.T @ (alpha * y)
    primal = weights @ weights / 2 + C * np.maximum(0, 1 - y * (X @ weights)).sum()
    gap = primal - (alpha.sum() - weights @ weights / 2)
    assert 0 <= alpha.min() <= alpha.max() <= C
    assert -1e-12 < gap < 2e-10 * primal
    np.testing.assert_allclose(records[-1]["objective"], objective, rtol=1e-9)
    np.testing.assert_allclose(weights, coef, atol=1e-5 * abs(coef).max())


def test_svm_has_the_same_bits_everywhere(rows, n_jobs):
    X, y = rows
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        expected = svm.fit(X, y, max_updates=200, n_slices=3)
    found = svm.fit(X, y, max_updates=200, n_slices=3, n_jobs=n_jobs)
    np.testing.assert_array_equal(found[1], expected[1])
    assert found[0] == expected[0]


# The Poisson factorisation


def counts(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.poisson(rng.gamma(0.5, size=(31, 4)) @ rng.gamma(0.5, size=(4, 23)))
    X[0], X[:, 0] = 1, 1
    return X.astype(float), rng.uniform(0.1, 1, (31, 4)), rng.uniform(0.1, 1, (23, 4))


def poisson_shards(n_shards):
    X, documents, words = counts()
    return rotation.make_shards(rotation.sparse.csr_array(X), documents, words, n_shards)


@pytest.mark.parametrize("n_shards", [1, 4])
def test_poisson_takes_the_steps_of_multiplicative_updates(n_shards):
    X, documents, words = counts()
    with dask.config.set({"schmp-estimators.runtime": "local"}):
        records, harvest = schmp.run(rotation.PoissonFactorization(), poisson_shards(n_shards), sweeps=25)
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
    expected = schmp.run(rotation.PoissonFactorization(), poisson_shards(3), sweeps=4, engine="serial")
    records, harvest = schmp.run(rotation.PoissonFactorization(), poisson_shards(3), sweeps=4, n_jobs=n_jobs)
    assert records == expected[0]
    for found, block in zip(harvest.blocks, expected[1].blocks, strict=True):
        np.testing.assert_array_equal(found, block)
